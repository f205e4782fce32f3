"""The sources of each kind of screen."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    # The monitor's first frame needs no recording and no watched program.
    from stallprobes.recording.recording import Recording
    from stallprobes.watch.live.recording import WatchRecording
    from stallscope.tui.sources.gpu_processes import GpuProcessSource
    from stallscope.tui.sources.live import LiveSource
    from stallscope.tui.sources.playback import Playback
    from stallscope.tui.sources.replay import ReplaySource
    from stallscope.tui.sources.watch_replay import WatchReplaySource
    from stallscope.tui.sources.watched import AttachedSource, KeptTraces, WatchedProgramSource

# Sources of any first screen. Attributes that a source may have, None otherwise: ``engine``, the live engine;
# ``program``, the watched program that runs; ``playback``, the recording that is played; ``recorded_traces``, traces
# that the timeline shows in place of the engine's. ``report_s`` is the longest time (s) of the report after a signal, 0
# without a report.
ScreenSource: TypeAlias = "ProbeSource | ProgramSource | GpuProcessSource"
# Sources of the observations of probes; ``observations`` returns the observations that are due.
ProbeSource: TypeAlias = "LiveSource | ReplaySource"
# Sources of the moments of a watched program. ``kept_traces`` keeps the traces of frozen views, None in a recording.
# ``trial`` has aggressors beside the program, None in a recording. ``running_text`` names the program while it runs.
# ``gpu_values``: NVML's values with the GPU's name, or None with the reason. ``note``: the problem of a recording.
# ``failure``: the reason why reading ended early. A text can be "".
ProgramSource: TypeAlias = "WatchedProgramSource | AttachedSource | WatchReplaySource"
# Sources of traces for the timeline, recorded or kept. ``slow_calls_only``: traces have only slow calls. ``at_s``: the
# position (s). ``problem``: a sentence once a trace could not be read.
TraceSource: TypeAlias = "KeptTraces | Playback[Recording] | Playback[WatchRecording]"
