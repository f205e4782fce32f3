"""The check: every victim of a plan beside every disturbance, each cell against its own quiet.

A repeat goes through the disturbances in random order. Before each of them every victim is measured in quiet, which is
also the quiet after the one before; then every victim beside it, one at a time. The first repeat only warms up and
learns how long the aggressors' turns are. What the host control or the clocks spoilt does not count; a cell with half
of its repeats spoilt is measured again at the end.
"""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace

from stallprobes.catalog import entries
from stallprobes.catalog.host import HOST
from stallprobes.engine.backend import MS, Options
from stallprobes.errors import EXIT_NO_GPU, EXIT_USAGE, EngineFailed, Unsupported
from stallprobes.latency.sparse import merged
from stallprobes.latency.window import Window
from stallprobes.machine import fingerprint, gpus, nvml
from stallprobes.matrix import schedule
from stallprobes.matrix.accumulator import CellAccumulator, VictimWindow, quiet_cell
from stallprobes.matrix.cell_runner import PACE_NS, CellRunner, Stopped
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, Repeat, Status
from stallprobes.matrix.plan import AggressorSet, Plan, VictimProbe
from stallprobes.matrix.schedule import QUICK_REPEATS, REPEATS, Block, Pace
from stallprobes.model import Channel, Phase

# How many engines share a simulated GPU's columns: each takes a core's time.
_ENGINES = 2
_WATCHDOG_NS = 60 * MS
# How often a cell is measured again that too many spoilt repeats left without enough.
_AGAIN = 2
# Between the seeds of two engines, so that no user's seeds meet.
_FAR = 1_000_003


@dataclass(frozen=True)
class CheckProgress:
    """How far a check is: windows done of all, the seconds left (None while that is not known), and what it does.

    ``cell`` is one just measured, as far as it is known by now.
    """

    done: int
    total: int
    left_s: float | None
    text: str
    cell: Cell | None = None


def run(
    plan: Plan,
    *,
    backend: str = "cuda",
    gpu: str | None = None,
    options: Options | None = None,
    seed: int = 1,
    progress: Callable[[CheckProgress], None] | None = None,
    cells: bool = False,
    stop: Callable[[], bool] = lambda: False,
    survey: gpus.Survey | None = None,
) -> Matrix:
    """Measure ``plan``. ``seed`` makes the order of the cells.

    ``progress`` hears what is done, one call at a time, from any thread; with ``cells`` also each cell just measured:
    to work that out takes time, which nobody needs who waits for the whole.

    ``gpu``: UUIDs of the GPUs to use, by commas. ``stop`` is asked between any two windows and within long ones; once
    it says True, or at a KeyboardInterrupt, what was measured is returned. ``survey`` saves asking the driver again.

    Raises EngineFailed when nothing could be measured at all; a failure on the way makes its column invalid.
    """
    settings = options or Options()
    if gpu is not None:
        settings = replace(settings, gpu=gpu)
    settings = replace(settings, watchdog_ns=min(settings.watchdog_ns, _WATCHDOG_NS), rings=False)
    return _Check(plan, backend, settings, seed, progress, cells, stop).matrix(survey)


class _Check:
    def __init__(
        self,
        plan: Plan,
        backend: str,
        options: Options,
        seed: int,
        progress: Callable[[CheckProgress], None] | None,
        cells: bool,
        stop: Callable[[], bool],
    ) -> None:
        self._plan = plan
        self._backend = backend
        self._options = options
        self._seed = seed
        self._progress = progress
        self._cells_too = cells and progress is not None
        self._stop = stop
        self._repeats = QUICK_REPEATS if plan.quick else REPEATS
        self._host = entries()[HOST].probe()
        self._accumulators = {
            (row.name, one.column.name): CellAccumulator(victim, one)
            for one in plan.aggressor_sets
            for row, victim in zip(plan.rows, (*plan.victims, None), strict=True)
        }
        self._quiets: dict[str, dict[int, list[VictimWindow]]] = {row.name: {} for row in plan.rows}
        self._info: Mapping[str, object] = {}
        self._interrupted = False
        self._text = ""
        self._pace = Pace(plan, backend == "sim")
        self._done = 0
        self._total = 0
        self._ending = threading.Event()
        self._telling = threading.Lock()

    def matrix(self, survey: gpus.Survey | None) -> Matrix:
        """Measure, and put everything together."""
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        blocks = schedule.blocks(self._plan, self._repeats, self._seed)
        self._total = sum(len(block.victims) for block in blocks)
        try:
            for enabling in (False, True):
                self._share(schedule.with_peer_access(blocks, enabling))
            self._share(self._again())
        except (Stopped, KeyboardInterrupt):
            self._interrupted = True
        simulated = self._backend == "sim"
        info = self._info
        return Matrix(
            backend="simulated" if simulated else self._backend,
            fingerprint=self._fingerprint(survey),
            started_at=started,
            seconds=round(self._pace.spent_s, 3),
            rows=self._plan.rows,
            columns=self._plan.columns,
            cells=self._cells(),
            seed=self._seed,
            repeats=self._repeats,
            pace_us=PACE_NS / 1000,
            quick=self._plan.quick,
            interrupted=self._interrupted,
            profile=str(info.get("profile")) if simulated and info.get("profile") else None,
            sim_seed=self._options.seed if simulated else None,
            program=nvml.version_of("stallscope") or "",
        )

    def _again(self) -> list[Block]:
        """The spoilt cells once more, where half of their repeats or more are spoilt."""
        found = []
        for one in self._plan.aggressor_sets:
            spoilt = tuple(
                victim
                for victim in self._plan.victims
                if (accumulator := self._accumulators[victim.row.name, one.column.name]).spoilt
                and accumulator.status is None
                and len(accumulator.repeats) <= self._repeats // 2
            )
            found += [Block(self._repeats + 1 + extra, one, spoilt) for extra in range(_AGAIN)]
        return [block for block in found if block.victims]

    def _share(self, blocks: list[Block]) -> None:
        """Measure the blocks: in one engine, or on a simulated GPU in several side by side, each with its own columns.

        Their number does not depend on the machine, so that the same seeds give the same matrix everywhere.
        """
        if self._backend != "sim":
            self._measure(blocks, self._options)
            return
        names = list(dict.fromkeys(block.aggressor_set.column.name for block in blocks))
        group_of = {name: number % _ENGINES for number, name in enumerate(names)}
        groups = [
            [block for block in blocks if group_of[block.aggressor_set.column.name] == number]
            for number in range(_ENGINES)
        ]
        with ThreadPoolExecutor(_ENGINES) as pool:
            # Dice of their own, or the engines would measure the same calls.
            running = [
                pool.submit(self._measure, group, replace(self._options, seed=self._options.seed + number * _FAR))
                for number, group in enumerate(groups)
                if group
            ]
            try:
                for one in as_completed(running):
                    one.result()
            except BaseException:
                self._ending.set()
                raise

    def _measure(self, blocks: list[Block], options: Options) -> None:
        """Go through the blocks, with a new engine whenever the old one is gone or cannot be had with all of them."""
        while blocks:
            if self._stops():
                raise Stopped
            victims = {victim.row.name: victim for block in blocks for victim in block.victims}
            aggressor_sets = {block.aggressor_set.column.name: block.aggressor_set for block in blocks}
            cell_runner = CellRunner(
                tuple(victims.values()), tuple(aggressor_sets.values()), self._backend, options, self._stops
            )
            left = list(blocks)
            try:
                with cell_runner:
                    if not self._info or options == self._options:
                        self._info = cell_runner.session.info
                    self._go(cell_runner, left)
                return
            except Unsupported as error:
                blocks = self._without(left, error)
            except EngineFailed as error:
                started = bool(cell_runner.session.info)
                if not started and (error.exit_code in (EXIT_NO_GPU, EXIT_USAGE) or not self._anything()):
                    raise
                blocks = self._without_failed(left, error)

    def _go(self, cell_runner: CellRunner, left: list[Block]) -> None:
        """Measure the blocks of ``left``, taking each out once it is done."""
        pending: tuple[Block, dict[str, VictimWindow], dict[str, VictimWindow]] | None = None
        while left:
            block = left[0]
            dice = random.Random(f"{self._seed} {block.repeat} {block.aggressor_set.column.name}")
            lengths = self._pace.lengths(left)
            self._say(block)
            began = time.monotonic()
            try:
                before = cell_runner.quiet(block.victims, lengths, dice)
                self._close(pending, before)
                pending = None
                beside = cell_runner.beside(block.aggressor_set, block.victims, lengths, dice)
            except (Stopped, KeyboardInterrupt, EngineFailed):
                self._close(pending, {})
                raise
            self._note_troubles(cell_runner, block)
            pending = (block, before, beside)
            self._pace.took(block, lengths, time.monotonic() - began)
            with self._telling:
                self._done += len(block.victims)
            left.pop(0)
            if not left or left[0].repeat != block.repeat or left[0].victims != block.victims:
                rest = cell_runner.quiet(block.victims, lengths, dice)
                self._close(pending, rest)
                pending = None
                if block.repeat:
                    self._tell_quiet()

    def _close(
        self,
        pending: tuple[Block, dict[str, VictimWindow], dict[str, VictimWindow]] | None,
        after: Mapping[str, VictimWindow],
    ) -> None:
        """Count a block whose quiet afterwards is known by now."""
        if pending is None:
            return
        block, before, beside = pending
        if block.repeat == 0:
            return
        column = block.aggressor_set.column.name
        for row, now in beside.items():
            self._accumulators[row, column].add(before[row], now, after.get(row))
            self._quiets[row].setdefault(block.repeat, []).append(before[row])
        self._add_host(block, before, beside, after)
        self._tell(block)

    def _add_host(
        self,
        block: Block,
        before: Mapping[str, VictimWindow],
        beside: Mapping[str, VictimWindow],
        after: Mapping[str, VictimWindow],
    ) -> None:
        together = _host_window(beside.values())
        quiet, later = _host_window(before.values()), _host_window(after.values())
        if together is None or quiet is None:
            return
        self._accumulators[HOST, block.aggressor_set.column.name].add(quiet, together, later)
        self._quiets[HOST].setdefault(block.repeat, []).append(quiet)

    def _tell(self, block: Block) -> None:
        for row in (*(victim.row.name for victim in block.victims), HOST):
            self._tell_cell(row, block.aggressor_set.column.name)

    def _tell_cell(self, row: str, column: str) -> None:
        if self._progress is None or not self._cells_too:
            return
        cell = self._accumulators[row, column].cell(row, column, self._repeats, self._host)
        with self._telling:
            self._progress(CheckProgress(self._done, self._total, self._left_s(), self._text, cell))

    def _tell_quiet(self) -> None:
        """The column quiet as it is after a whole repeat: it takes too long to add up after every block."""
        if self._progress is None or not self._cells_too:
            return
        for row in self._plan.rows:
            cell = quiet_cell(row.name, QUIET, self._quiet_repeats(row.name), ())
            with self._telling:
                self._progress(CheckProgress(self._done, self._total, self._left_s(), self._text, cell))

    def _quiet_repeats(self, row: str) -> list[Repeat]:
        return [_quiet_repeat(windows) for _, windows in sorted(self._quiets[row].items())]

    def _note_troubles(self, cell_runner: CellRunner, block: Block) -> None:
        """A probe that stopped by an error: its row or its column cannot be measured any more."""
        for failure in cell_runner.session.probe_failures():
            for (row, column), accumulator in self._accumulators.items():
                mine = accumulator.victim is not None and accumulator.victim.probe.name == failure.probe
                its = any(probe.name == failure.probe for probe in accumulator.aggressor_set.probes)
                if (mine or its) and accumulator.status is None:
                    accumulator.status, accumulator.reason = Status.INVALID, failure.sentence
                    del row, column

    def _without(self, blocks: list[Block], error: Unsupported) -> list[Block]:
        """The blocks without the probe that this machine cannot run; all of them where that is not known."""

        def needs(victim: VictimProbe, one: AggressorSet) -> bool:
            return error.probe is None or error.probe in {victim.probe.name, *(probe.name for probe in one.probes)}

        return self._dropped(blocks, needs, Status.UNSUPPORTED, error.reason)

    def _without_failed(self, blocks: list[Block], error: EngineFailed) -> list[Block]:
        """The blocks without the disturbance at which the engine was lost."""
        column = blocks[0].aggressor_set.column.name if blocks else ""
        return self._dropped(
            blocks, lambda _, one: one.column.name == column, Status.INVALID, f"the engine was lost: {error.sentence}"
        )

    def _dropped(
        self,
        blocks: list[Block],
        out: Callable[[VictimProbe, AggressorSet], bool],
        status: Status,
        reason: str,
    ) -> list[Block]:
        kept = []
        for block in blocks:
            stay = []
            for victim in block.victims:
                if out(victim, block.aggressor_set):
                    accumulator = self._accumulators[victim.row.name, block.aggressor_set.column.name]
                    if accumulator.status is None:
                        accumulator.status, accumulator.reason = status, reason
                        self._tell_cell(victim.row.name, block.aggressor_set.column.name)
                    self._total -= 1
                else:
                    stay.append(victim)
            if stay:
                kept.append(replace(block, victims=tuple(stay)))
            elif status is not Status.UNSUPPORTED or not stay:
                host = self._accumulators[HOST, block.aggressor_set.column.name]
                if not host.repeats:
                    host.status, host.reason = status, reason
        return kept

    def _say(self, block: Block) -> None:
        if self._progress is None:
            return
        what = "warming up" if block.repeat == 0 else f"repeat {min(block.repeat, self._repeats)} of {self._repeats}"
        with self._telling:
            self._text = f"{what} · {block.aggressor_set.column.title}"
            self._progress(CheckProgress(self._done, self._total, self._left_s(), self._text))

    def _left_s(self) -> float | None:
        return self._pace.left_s(self._done, self._total, self._repeats)

    def _stops(self) -> bool:
        return self._ending.is_set() or self._stop()

    def _anything(self) -> bool:
        return any(accumulator.repeats or accumulator.spoilt for accumulator in self._accumulators.values())

    def _cells(self) -> dict[tuple[str, str], Cell]:
        cells = {}
        for row in self._plan.rows:
            repeats = self._quiet_repeats(row.name)
            others = []
            for one in self._plan.aggressor_sets:
                key = (row.name, one.column.name)
                others.append(self._accumulators[key].cell(*key, self._repeats, self._host))
            cells[row.name, QUIET] = quiet_cell(row.name, QUIET, repeats, others)
            cells.update({(cell.row, cell.column): cell for cell in others})
        return cells

    def _fingerprint(self, survey: gpus.Survey | None) -> dict[str, object]:
        if self._backend == "sim":
            return fingerprint.fingerprint(None, self._info)
        gpu = self._options.gpu
        return fingerprint.fingerprint(
            gpu.split(",")[0] if gpu else fingerprint.first_gpu(self._info), self._info, survey
        )


def _host_window(windows: Iterable[VictimWindow]) -> VictimWindow | None:
    """The host control over several windows, None where it has no calls in any."""
    parts = [one for one in windows if one.host]
    if not parts:
        return None
    channels = merged(one.host for one in parts)
    calls = channels[Channel(Phase.CALL)].count if Channel(Phase.CALL) in channels else 0
    return VictimWindow(Window(channels, calls, sum(one.window.duration_ns for one in parts)))


def _quiet_repeat(windows: Iterable[VictimWindow]) -> Repeat:
    parts = [one.window for one in windows if not one.spoilt]
    return Repeat(
        Window(
            merged(one.channels for one in parts),
            sum(one.iterations for one in parts),
            sum(one.duration_ns for one in parts),
        )
    )
