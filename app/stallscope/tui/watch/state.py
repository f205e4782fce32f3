"""State of the screen of a watched program, frozen, and the views of panels that follow from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from stallprobes.live.view_model import ChannelView, ProbeRow
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import Phase, Role
from stallprobes.watch.live.live_view import WatchMoment, WatchRow, WatchRowKey, slow_calls
from stallprobes.watch.live.trace_history import TriggeringCall
from stallscope.tui.common.bars import with_utilization
from stallscope.tui.common.histograms import HistogramsView
from stallscope.tui.common.screen import MovingState
from stallscope.tui.sources.source import ProgramSource
from stallscope.tui.watch.beside_panel import BesideView
from stallscope.tui.watch.call_table import CallTableView, thread_labels
from stallscope.tui.watch.division_panel import DivisionView, LineKey, ShownLine

# Short and long name of the histogram of the whole run, which is drawn behind the histogram of the last second. The
# short name stands beside the plot, the long name in the legend.
_BEHIND = ("all", "since the start")


@dataclass(frozen=True, eq=False)
class WatchScreenState(MovingState):
    """What the screen shows of a watched program; each method but the last two returns the state after a change.

    ``frozen`` is the moment of a view that is frozen. ``gpu`` has NVML's values with the GPU's name, or None with the
    reason. ``chosen``: the ``selected`` row or line is not just the row that lost most time. The trigger was armed at
    ``armed_ns``. ``enlarged``: the output has all the room. ``kernels``: they are shown in place of the slow calls;
    ``beside``: so is what aggressors do. ``disturbs``: the user has agreed to disturb the program.
    """

    frozen: WatchMoment | None = None
    gpu: tuple[TelemetrySnapshot | None, str] = (None, "")
    selected: WatchRowKey | LineKey | None = None
    chosen: bool = False
    armed_ns: int = 0
    enlarged: bool = False
    kernels: bool = False
    beside: bool = False
    disturbs: bool = False

    def on_row_of(self, moment: WatchMoment) -> WatchScreenState:
        """State with the row that lost most time selected, until somebody selects another one."""
        if not moment.rows or (self.chosen and (self.row(moment) or self.line(moment)) is not None):
            return self
        return replace(self, selected=moment.rows[0].key, chosen=False)

    def selecting(self, key: WatchRowKey | LineKey) -> WatchScreenState:
        """State with a row or a line that somebody selected."""
        return replace(self, selected=key, chosen=True)

    def stepped(self, keys: Sequence[WatchRowKey | LineKey], by: int, around: bool) -> WatchScreenState:
        """State with the selection ``by`` places further among ``keys``; ``around``: the first follows the last."""
        if not keys:
            return self
        place = (keys.index(self.selected) if self.selected in keys else 0) + by
        return self.selecting(keys[place % len(keys) if around else min(max(place, 0), len(keys) - 1)])

    def with_gpu(self, gpu: tuple[TelemetrySnapshot | None, str]) -> WatchScreenState:
        """State with the present values of the GPU, unless the view is frozen."""
        if self.frozen is not None:
            return self
        utilization, telemetry = self.utilization, gpu[0]
        # A recording that stands still has no new values.
        if telemetry is not None and telemetry is not self.gpu[0]:
            utilization = with_utilization(utilization, telemetry)
        return replace(self, gpu=gpu, utilization=utilization)

    def row(self, moment: WatchMoment | None) -> WatchRow | None:
        """The selected row of a moment."""
        return next((row for row in (() if moment is None else moment.rows) if row.key == self.selected), None)

    def line(self, moment: WatchMoment | None) -> ShownLine | None:
        """The selected line of the program of a moment."""
        lines = () if moment is None else DivisionView(moment.findings).program_lines
        return next((line for line in lines if line.key == self.selected), None)

    def slowest(self, moment: WatchMoment) -> tuple[TriggeringCall, WatchRowKey] | None:
        """The slowest call since the trigger was armed, or in flight, with its row."""
        calls = [
            (TriggeringCall.of(call), WatchRowKey(process.pid, process.image, call.thread, call.function))
            for call, process in slow_calls(moment.findings)
            if call.end_ns > self.armed_ns
        ]
        calls += [
            (TriggeringCall(row.key.thread, row.begin_ns, moment.at_ns), row.key)
            for row in moment.rows
            if row.begin_ns is not None
        ]
        return max(calls, key=lambda item: item[0].duration_ns, default=None)


def table_view(state: WatchScreenState, moment: WatchMoment) -> CallTableView:
    """The table of calls."""
    selected = state.selected if isinstance(state.selected, WatchRowKey) else None
    return CallTableView(moment.rows, selected, moment.at_ns, moment.hidden, "no call yet")


def division_view(state: WatchScreenState, moment: WatchMoment) -> DivisionView:
    """What bounds the program, with its lines."""
    return DivisionView(moment.findings, state.selected if isinstance(state.selected, LineKey) else None)


def beside_view(state: WatchScreenState, source: ProgramSource) -> BesideView:
    """What aggressors beside the program do, now or in a frozen or recorded moment."""
    moment = state.frozen or source.moment
    result = None if moment is None else moment.findings.beside
    present = None if state.frozen is not None or source.trial is None else source.trial.present()
    return BesideView(result, present, 0 if moment is None else moment.at_ns)


def histograms_view(state: WatchScreenState, moment: WatchMoment) -> HistogramsView | None:
    """The histogram of the selected row; None without one."""
    row = state.row(moment)
    if row is None:
        return None
    age_ns = row.age_ns(moment.at_ns)
    word, mark = (f"{row.slow} slow", "warn") if row.slow else ("", "")
    if age_ns is not None and age_ns >= row.slow_limit_ns:
        word, mark = "in flight", "bad"
    name = f"{row.key.function} · {thread_labels(moment.rows)[row.key]}"
    return HistogramsView(
        ProbeRow(name, Role.VICTIM, True, word, mark, in_flight_ns=age_ns),
        (ChannelView(Phase.CALL, "", row.recent, row.total),),
        now=f"last {row.window_ns / 1e9:.0f} s" if row.window_ns >= 1.5e9 else "last second",
        behind=_BEHIND,
    )
