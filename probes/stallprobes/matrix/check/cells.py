"""Cells of a check in progress, each computed from the repeats measured so far: of each victim beside each set of
aggressors, and alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stallprobes.catalog import entries
from stallprobes.catalog.host import HOST
from stallprobes.engine.backend import ProbeFailure
from stallprobes.latency.baseline import ENOUGH_CALLS
from stallprobes.latency.ratio import BaselineRatio, Quantile
from stallprobes.latency.window import ChannelMap, InFlight, Window, merged
from stallprobes.matrix.check.plan import AggressorSet, Plan, VictimProbe
from stallprobes.matrix.check.schedule import Block
from stallprobes.matrix.check.window_measurer import VictimWindow
from stallprobes.matrix.matrix import QUIET, Cell, Repeat, Status
from stallprobes.model import Channel, Phase, Probe, Role, op_name
from stallprobes.units import duration_ns, times
from stallprobes.verdicts.evidence import STALLED, TAIL_NS, Evidence
from stallprobes.verdicts.explanations import beside_aggressors
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.rules import TAIL_SHARE, judge
from stallprobes.verdicts.verdict import Verdict

# Smallest number of valid repeats with which a cell (a victim beside aggressors) is valid although other repeats were
# rejected. If fewer repeats are planned, the planned number suffices. A stall that only the latency from the due time
# shows must also occur in at least LEAST_REPEATS repeats.
LEAST_REPEATS = 2

# Channel (kind of latency) of the time from when a call was due until it returned.
_DUE = Channel(Phase.DUE)


@dataclass
class CellAccumulator:
    """One cell while it is measured: its valid repeats and the reasons of the rejected ones.

    ``victim`` is None for the host control. ``hosts`` are the host control's channels in each window with the
    aggressors, before and after them. ``longest`` is the oldest call in flight at the end of a repeat. ``status`` and
    ``reason`` are set when the cell cannot be measured.
    """

    victim: VictimProbe | None
    aggressor_set: AggressorSet
    repeats: list[Repeat] = field(default_factory=list)
    rejections: list[str] = field(default_factory=list)
    hosts: tuple[list[ChannelMap], ...] = field(default_factory=lambda: ([], [], []))
    longest: InFlight | None = None
    status: Status | None = None
    reason: str | None = None
    error: str | None = None

    def add(self, before: VictimWindow, now: VictimWindow, after: VictimWindow | None) -> None:
        """Add one repeat, or only its reason if a window of it is rejected."""
        reason = next((each.rejection for each in (now, before, after) if each is not None and each.rejection), None)
        if reason is not None:
            self.rejections.append(reason)
            return
        self.repeats.append(Repeat(now.window, before.window.channels, {} if after is None else after.window.channels))
        for windows, part in zip(self.hosts, (now, before, after), strict=True):
            if part is not None:
                windows.append(part.host)
        flight = now.window.in_flight
        if flight is not None and flight.age_ns > (0 if self.longest is None else self.longest.age_ns):
            self.longest = flight

    def cell(self, row: str, column: str, wanted: int, host: Probe) -> Cell:
        """The cell from the repeats so far; ``wanted`` is the planned number of repeats."""
        if self.status is not None:
            return Cell(row, column, self.status, self.reason, repeats=tuple(self.repeats))
        if not self.repeats and not self.rejections:
            return Cell(row, column, Status.MISSING, "it was not reached")
        if len(self.repeats) < min(wanted, LEAST_REPEATS) and self.rejections:
            return Cell(row, column, Status.INVALID, self.rejections[-1], repeats=tuple(self.repeats))
        victim = host if self.victim is None else self.victim.probe
        evidence = self._evidence(victim)
        # Each window was rejected if an aggressor did not run in it.
        ran = Window({}, iterations=1, duration_ns=evidence.window.duration_ns)
        others = [Evidence(probe, ran) for probe in self.aggressor_set.probes]
        control = [] if self.victim is None else [self._host(host, ran)]
        verdicts = [verdict for verdict in judge([evidence, *others, *control]) if verdict.probe == victim.name]
        if not any(verdict.kind.severity for verdict in verdicts):
            rare = _rare_stalls(evidence, self.repeats, self.aggressor_set)
            verdicts = verdicts if rare is None else [rare]
        return Cell(
            row,
            column,
            Status.STARVED if evidence.starved else Status.OK,
            self.error,
            tuple(verdict.changed(probe=row) for verdict in verdicts),
            None if self.longest is None else self.longest.age_ns,
            None if self.longest is None else op_name(victim.program.ops[self.longest.op]),
            repeats=tuple(self.repeats),
        )

    def _evidence(self, victim: Probe) -> Evidence:
        baselines = (merged(repeat.before for repeat in self.repeats), merged(repeat.after for repeat in self.repeats))
        window = Window(
            channels=merged(repeat.window.channels for repeat in self.repeats),
            iterations=sum(repeat.window.iterations for repeat in self.repeats),
            duration_ns=sum(repeat.window.duration_ns for repeat in self.repeats),
            in_flight=self.longest,
            period_ns=victim.period_ns,
        )
        return Evidence(victim, window, tuple(baseline for baseline in baselines if baseline))

    def _host(self, host: Probe, window: Window) -> Evidence:
        now, before, after = map(merged, self.hosts)
        return Evidence(host, replace(window, channels=now), tuple(part for part in (before, after) if part))


def quiet_cell(row: str, column: str, repeats: Sequence[Repeat], others: Sequence[Cell]) -> Cell:
    """The cell of a victim with no aggressor; unsupported if all ``others`` of its row are."""
    refused = [cell for cell in others if cell.status is Status.UNSUPPORTED]
    if not repeats and refused and len(refused) == len(others):
        return Cell(row, column, Status.UNSUPPORTED, refused[0].reason)
    if not repeats:
        return Cell(row, column, Status.MISSING, "it was not reached")
    return Cell(row, column, Status.OK, repeats=tuple(repeats))


def _rare_stalls(evidence: Evidence, repeats: Sequence[Repeat], aggressor_set: AggressorSet) -> Verdict | None:
    """The verdict on rare, long stalls, None without them.

    A frequent victim makes many fast calls between two stalls, so that few of its calls are slow. The latency from the
    due time weights a stall by its duration. A thread that lost its CPU core once has the same effect, so at least two
    repeats, and all but one in four, have to show the stall.
    """
    if evidence.probe.role is Role.HOST or len(repeats) < LEAST_REPEATS:
        return None
    baseline = merged(part for repeat in repeats for part in (repeat.before, repeat.after))
    figure = BaselineRatio.of(evidence.window.channels, baseline, _DUE, Quantile.P99)
    if figure is None or baseline[_DUE].count < ENOUGH_CALLS:
        return None
    limit = int(max(STALLED * figure.baseline_ns, figure.baseline_ns + TAIL_NS))
    with_due = [repeat.window.channels[_DUE] for repeat in repeats if _DUE in repeat.window.channels]
    showing = sum(histogram.share_above(limit) >= TAIL_SHARE for histogram in with_due)
    if figure.now_ns <= limit or showing < max(LEAST_REPEATS, len(repeats) - max(1, len(repeats) // 4)):
        return None
    explanation = beside_aggressors(evidence.probe, aggressor_set.probes)
    change = f"{duration_ns(figure.baseline_ns)} → {duration_ns(figure.now_ns)} ({times(figure.ratio)})"
    return Verdict(
        probe=evidence.probe.name,
        phase=Phase.DUE,
        quantile=figure.quantile,
        baseline_ns=figure.baseline_ns,
        now_ns=figure.now_ns,
        ratio=figure.ratio,
        kind=VerdictKind.STALLED,
        head=f"{evidence.probe.name}: few calls are slow, but they delay 1 in 100 or more of the calls due: "
        f"p99 of the latency from the due time {change} while {aggressor_set.column.name} runs.",
        **explanation._asdict(),
    )


@dataclass(frozen=True)
class MeasuredBlock:
    """The windows of a block and its baselines before it, by row name."""

    block: Block
    before: Mapping[str, VictimWindow]
    windows: Mapping[str, VictimWindow]


class CheckCells:
    """Cells of ``plan``, which is measured in ``repeats`` regular repeats."""

    def __init__(self, plan: Plan, repeats: int) -> None:
        self._plan = plan
        self._repeats = repeats
        self._host = entries()[HOST].probe()
        self._accumulators = {
            (row.name, aggressor_set.column.name): CellAccumulator(victim, aggressor_set)
            for aggressor_set in plan.aggressor_sets
            for row, victim in zip(plan.rows, (*plan.victims, None), strict=True)
        }
        self._baselines: dict[str, dict[int, list[VictimWindow]]] = {row.name: {} for row in plan.rows}

    def add(self, pending: Iterable[MeasuredBlock], after: Mapping[str, VictimWindow]) -> None:
        """Add the windows of the blocks ``pending`` with their baseline ``after``; repeat 0 adds nothing."""
        for number, measured in enumerate(pending):
            block = measured.block
            if block.repeat == 0:
                continue
            for row, now in measured.windows.items():
                self._accumulators[row, block.aggressor_set.column.name].add(measured.before[row], now, after.get(row))
            if not block.additional:
                self._add_host(block, measured.before, measured.windows, after)
                # The blocks share their baseline.
                if number == 0:
                    self._add_baselines(block, measured.before)

    def _add_baselines(self, block: Block, before: Mapping[str, VictimWindow]) -> None:
        """Add the baselines ``before`` to the column quiet."""
        host = _host_window(before.values())
        for row, window in {**before, **({} if host is None else {HOST: host})}.items():
            self._baselines[row].setdefault(block.repeat, []).append(window)

    def _add_host(
        self,
        block: Block,
        before: Mapping[str, VictimWindow],
        windows: Mapping[str, VictimWindow],
        after: Mapping[str, VictimWindow],
    ) -> None:
        host = _host_window(windows.values())
        host_before, host_after = _host_window(before.values()), _host_window(after.values())
        if host is None or host_before is None:
            return
        self._accumulators[HOST, block.aggressor_set.column.name].add(host_before, host, host_after)

    def cell(self, row: str, column: str) -> Cell:
        """The cell of a victim, or of the host control, beside an aggressor set."""
        return self._accumulators[row, column].cell(row, column, self._repeats, self._host)

    def quiet_cell(self, row: str) -> Cell:
        """The cell of a row in the column quiet, without what the row's other cells say of it."""
        return quiet_cell(row, QUIET, self._baseline_repeats(row), ())

    def _baseline_repeats(self, row: str) -> list[Repeat]:
        return [_baseline_repeat(windows) for _, windows in sorted(self._baselines[row].items())]

    def enough_repeats(self, row: str, column: str) -> list[Repeat] | None:
        """The valid repeats of a cell; None if too many were rejected, or if it is not measured at all."""
        accumulator = self._accumulators[row, column]
        if accumulator.status is not None or len(accumulator.repeats) <= self._repeats // 2:
            return None
        return accumulator.repeats

    def is_rejected(self, row: str, column: str) -> bool:
        """True if half of the repeats of a cell or more were rejected."""
        accumulator = self._accumulators[row, column]
        few = len(accumulator.repeats) <= self._repeats // 2
        return bool(accumulator.rejections) and accumulator.status is None and few

    def invalidate(self, failures: Iterable[ProbeFailure]) -> None:
        """Make the row or the column of each failed probe invalid."""
        for failure in failures:
            for accumulator in self._accumulators.values():
                is_victim = accumulator.victim is not None and accumulator.victim.probe.name == failure.probe
                is_aggressor = any(probe.name == failure.probe for probe in accumulator.aggressor_set.probes)
                if (is_victim or is_aggressor) and accumulator.status is None:
                    accumulator.status, accumulator.reason = Status.INVALID, failure.sentence

    def drop(self, row: str, column: str, status: Status, reason: str) -> bool:
        """Give a cell that is measured no further a status and its reason; False if it has one already."""
        accumulator = self._accumulators[row, column]
        if accumulator.status is not None:
            return False
        accumulator.status, accumulator.reason = status, reason
        return True

    def drop_host(self, column: str, status: Status, reason: str) -> None:
        """The same for the host control beside an aggressor set without a victim, unless it has repeats."""
        host = self._accumulators[HOST, column]
        if not host.repeats:
            host.status, host.reason = status, reason

    @property
    def has_repeats(self) -> bool:
        """True if any cell has a repeat, be it a rejected one."""
        return any(accumulator.repeats or accumulator.rejections for accumulator in self._accumulators.values())

    def all(self) -> dict[tuple[str, str], Cell]:
        """All cells by row and column."""
        cells = {}
        for row in self._plan.rows:
            others = [self.cell(row.name, aggressor_set.column.name) for aggressor_set in self._plan.aggressor_sets]
            cells[row.name, QUIET] = quiet_cell(row.name, QUIET, self._baseline_repeats(row.name), others)
            cells.update({cell.key: cell for cell in others})
        return cells


def _host_window(windows: Iterable[VictimWindow]) -> VictimWindow | None:
    """The sum of the host control's windows, None if it has no calls in any."""
    parts = [window for window in windows if window.host]
    if not parts:
        return None
    channels = merged(part.host for part in parts)
    calls = channels[Channel(Phase.CALL)].count if Channel(Phase.CALL) in channels else 0
    return VictimWindow(Window(channels, calls, sum(part.window.duration_ns for part in parts)))


def _baseline_repeat(windows: Iterable[VictimWindow]) -> Repeat:
    parts = [window.window for window in windows if not window.rejection]
    return Repeat(
        Window(
            merged(part.channels for part in parts),
            sum(part.iterations for part in parts),
            sum(part.duration_ns for part in parts),
        )
    )
