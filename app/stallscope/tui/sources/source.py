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

# Sources of any first screen. Each of these is None where the source has none: ``engine``, the live engine;
# ``program``, the watched program that runs; ``playback``, a recording that is played; ``recorded_traces``, traces that
# the timeline shows in place of the engine's. ``report_s`` is the longest time (s) of the report after a signal, 0
# without a report.
ScreenSource: TypeAlias = "ProbeSource | ProgramSource | GpuProcessSource"
# Sources of the observations of probes: ``observations`` returns those that are due.
ProbeSource: TypeAlias = "LiveSource | ReplaySource"
# Sources of the moments of a watched program. ``kept_traces`` takes the traces of frozen views, None in a recording.
# ``running_text`` is the program in words while it runs. ``gpu_values`` are NVML's with the GPU's name, or None with
# the reason. ``note`` is the problem of a recording, ``failure`` the reason why reading ended early. All texts are ""
# for nothing.
ProgramSource: TypeAlias = "WatchedProgramSource | AttachedSource | WatchReplaySource"
# Sources of traces for the timeline, recorded or kept. With ``slow_calls_only`` calls that were not slow are missing.
# ``at_s`` is the position in seconds; ``problem`` is a sentence once a trace could not be read.
TraceSource: TypeAlias = "KeptTraces | Playback[Recording] | Playback[WatchRecording]"
