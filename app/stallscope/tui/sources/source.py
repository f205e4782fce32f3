"""Protocols of sources: of probes and of a watched program, each live or replayed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    # The monitor's first frame needs no recording and no watched program.
    from stallprobes.machine.telemetry import TelemetrySnapshot
    from stallprobes.recording.observation import Observation
    from stallprobes.traces.trace import RecordedTrace, Trace
    from stallprobes.watch.live.live_view import WatchedProgram, WatchMoment
    from stallscope.tui.sources.live import LiveSource
    from stallscope.tui.sources.pane_program import PaneProgram, ShownOutput
    from stallscope.tui.sources.playback import Playback
    from stallscope.tui.sources.replay import ReplaySource
    from stallscope.tui.sources.watched import KeptTraces


class TraceSource(Protocol):
    """Traces for the timeline, recorded or kept. With ``slow_calls_only`` calls that were not slow are missing.

    ``at_s`` is the position in seconds; ``problem`` is a sentence once a trace could not be read.
    """

    slow_calls_only: bool
    problem: str | None

    @property
    def at_s(self) -> float: ...
    @property
    def traces(self) -> tuple[RecordedTrace, ...]: ...
    def nearest_trace(self, at_s: float) -> RecordedTrace | None: ...
    def trace(self, recorded: RecordedTrace) -> Trace | None: ...


class ScreenSource(Protocol):
    """Source of the data that all screens of a session show. Each of these is None where the source has none:

    ``engine``, the live engine; ``program``, the watched program that runs; ``playback``, a recording that is played;
    ``recorded_traces``, traces that the timeline shows in place of the engine's. ``report_s`` is the longest time (s)
    of the report after a signal, 0 without a report.
    """

    report_s: float

    @property
    def engine(self) -> LiveSource | None: ...
    @property
    def program(self) -> PaneProgram | None: ...
    @property
    def playback(self) -> Playback[Any] | None: ...
    @property
    def recorded_traces(self) -> TraceSource | None: ...

    def start(self) -> None:
        """Start to read or to play; a second call does nothing in a live source."""

    def close(self) -> None:
        """End what the source started."""


class ProbeSource(ScreenSource, Protocol):
    """Source of the observations of probes."""

    @property
    def playback(self) -> ReplaySource | None: ...

    def observations(self) -> list[Observation]:
        """The observations that are due."""


class ProgramSource(ScreenSource, Protocol):
    """Source of the moments of a watched program.

    ``kept_traces`` takes the traces of frozen views, None in a recording. ``moment`` is the present one; ``output`` has
    the last lines that the program wrote, or says where they go. ``running_text`` is the program in words while it
    runs. ``gpu_values`` are NVML's with the GPU's name, or None with the reason. ``note`` is the problem of a
    recording, ``failure`` the reason why reading ended early. All texts are "" for nothing.
    """

    @property
    def kept_traces(self) -> KeptTraces | None: ...
    @property
    def moment(self) -> WatchMoment | None: ...
    @property
    def output(self) -> ShownOutput: ...
    @property
    def running_text(self) -> str: ...
    @property
    def program_state(self) -> WatchedProgram: ...
    @property
    def gpu_values(self) -> tuple[TelemetrySnapshot | None, str]: ...
    @property
    def note(self) -> str: ...
    @property
    def failure(self) -> str: ...

    def suspend(self) -> None:
        """Stop while the screen is suspended."""

    def resume(self) -> None:
        """Continue."""
