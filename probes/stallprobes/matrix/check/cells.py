"""Cells of a check in progress: the repeats measured so far of each victim beside each aggressor set, and alone."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from stallprobes.catalog import entries
from stallprobes.catalog.host import HOST
from stallprobes.engine.backend import ProbeFailure
from stallprobes.latency.channels import merged
from stallprobes.latency.window import Window
from stallprobes.matrix.check.accumulator import CellAccumulator, quiet_cell
from stallprobes.matrix.check.plan import Plan
from stallprobes.matrix.check.schedule import Block
from stallprobes.matrix.check.window_measurer import VictimWindow
from stallprobes.matrix.matrix import QUIET, Cell, Repeat, Status
from stallprobes.model import Channel, Phase


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
            (row.name, one.column.name): CellAccumulator(victim, one)
            for one in plan.aggressor_sets
            for row, victim in zip(plan.rows, (*plan.victims, None), strict=True)
        }
        self._baselines: dict[str, dict[int, list[VictimWindow]]] = {row.name: {} for row in plan.rows}

    def add(self, pending: Iterable[MeasuredBlock], after: Mapping[str, VictimWindow]) -> None:
        """Add the windows of the blocks ``pending`` with their baseline ``after``; repeat 0 adds nothing."""
        for number, one in enumerate(pending):
            block = one.block
            if block.repeat == 0:
                continue
            for row, now in one.windows.items():
                self._accumulators[row, block.aggressor_set.column.name].add(one.before[row], now, after.get(row))
            if not block.additional:
                self._add_host(block, one.before, one.windows, after)
                # The blocks share their baseline.
                if number == 0:
                    self._add_baselines(block, one.before)

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
        """Whether half of the repeats of a cell or more were rejected."""
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
        """Whether any cell has a repeat, be it a rejected one."""
        return any(accumulator.repeats or accumulator.rejections for accumulator in self._accumulators.values())

    def all(self) -> dict[tuple[str, str], Cell]:
        """All cells by row and column."""
        cells = {}
        for row in self._plan.rows:
            repeats = self._baseline_repeats(row.name)
            others = []
            for one in self._plan.aggressor_sets:
                key = (row.name, one.column.name)
                others.append(self.cell(*key))
            cells[row.name, QUIET] = quiet_cell(row.name, QUIET, repeats, others)
            cells.update({(cell.row, cell.column): cell for cell in others})
        return cells


def _host_window(windows: Iterable[VictimWindow]) -> VictimWindow | None:
    """The sum of the host control's windows, None if it has no calls in any."""
    parts = [one for one in windows if one.host]
    if not parts:
        return None
    channels = merged(one.host for one in parts)
    calls = channels[Channel(Phase.CALL)].count if Channel(Phase.CALL) in channels else 0
    return VictimWindow(Window(channels, calls, sum(one.window.duration_ns for one in parts)))


def _baseline_repeat(windows: Iterable[VictimWindow]) -> Repeat:
    parts = [one.window for one in windows if not one.rejection]
    return Repeat(
        Window(
            merged(one.channels for one in parts),
            sum(one.iterations for one in parts),
            sum(one.duration_ns for one in parts),
        )
    )
