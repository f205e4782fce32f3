"""The check: measurement of each victim of a plan with each of its aggressor sets, compared with its own baseline.

A repeat measures the aggressor sets in random order. Before every second set, the baseline of every victim is measured;
it also serves as the baseline after the two previous sets. Then every victim is measured with the set running, one
victim at a time. The first repeat only warms up and measures how long an iteration of the aggressors takes; its windows
are discarded. The last repeats leave out slow aggressors, and end when their time is spent. A
window is rejected when the host control or the GPU's clocks disturbed it; a cell with half of its repeats rejected is
measured again at the end. The cells that gain most precision by it get additional repeats, for which a share of the
time is kept.
"""

from __future__ import annotations

import datetime
import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import replace

from stallprobes.catalog.host import HOST
from stallprobes.engine.backend import Options
from stallprobes.errors import EXIT_NO_GPU, EXIT_USAGE, EngineFailed, NoTimeline, Stopped, Unsupported
from stallprobes.machine import fingerprint, gpus, nvml
from stallprobes.machine.origin import BACKENDS
from stallprobes.matrix.check import schedule
from stallprobes.matrix.check.block_choice import BlockCosts, chosen_cells
from stallprobes.matrix.check.cell_runner import PACE_NS, CellRunner
from stallprobes.matrix.check.cells import CheckCells, MeasuredBlock
from stallprobes.matrix.check.plan import AggressorSet, Plan, VictimProbe
from stallprobes.matrix.check.progress import CheckProgress, ProgressReporter
from stallprobes.matrix.check.schedule import Block, TimeBudget
from stallprobes.matrix.check.window_measurer import Lengths, VictimWindow
from stallprobes.matrix.matrix import LostEngine, Matrix, Status
from stallprobes.model import MS
from stallprobes.records.timeline_summary import TimelineSummary

# Number of engines among which a simulated check divides its columns (sets of aggressors); each engine uses one CPU
# core.
_ENGINES = 2
# Longest wait (ns) of a host function for its gate or mutex in a check. After this time, the host function returns
# without the gate or mutex.
_WATCHDOG_NS = 60 * MS
# Number of further repeats that a check measures for a cell (a victim beside aggressors) with too few valid repeats.
_REJECTED_REPEATS = 2
# Difference between the random seeds of the engines that run at the same time in a simulated check. Reason: with equal
# seeds, the engines would simulate the same latencies. The difference is large, so that checks with small seeds, such
# as 1 and 2, share no engine seed.
_SEED_STEP = 1_000_003


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
    """Measure ``plan`` and return the matrix. ``seed`` determines the order of the cells.

    ``progress`` is called from any thread, never twice at the same time. With ``cells`` it also receives each cell just
    measured, which costs the time to compute it. ``gpu``: UUIDs of the GPUs to use, separated by commas. ``stop`` is
    called between windows and within long ones; once it returns True, or at a KeyboardInterrupt, the cells measured so
    far are returned. ``survey`` avoids a second survey of the driver. With ``options.timeline`` the phases start, early
    and gpu are measured too; each call then takes 1 to 10 µs longer.

    Raises EngineFailed if nothing was measured, NoTimeline if the timeline cannot be switched on; any later failure
    makes its column invalid, and the check continues with another engine (``Matrix.lost_engines``).
    """
    settings = options or Options()
    if gpu is not None:
        settings = replace(settings, gpu=gpu)
    settings = replace(settings, watchdog_ns=min(settings.watchdog_ns, _WATCHDOG_NS))
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
        self._stop = stop
        self._repeats = schedule.repeats(plan, backend == "sim")
        # Number of regular repeats of which no block was left out for lack of time.
        self._complete_repeats = self._repeats
        self._cells = CheckCells(plan, self._repeats)
        self._info: Mapping[str, object] = {}
        self._interrupted = False
        self._pace = TimeBudget(plan, backend == "sim")
        self._costs = BlockCosts(backend == "sim")
        self._progress = ProgressReporter(progress, self._pace, self._repeats, cells)
        self._aborted = threading.Event()
        self._timelines: list[TimelineSummary] = []
        self._lost_engines: list[LostEngine] = []

    def matrix(self, survey: gpus.Survey | None) -> Matrix:
        """Measure all blocks and return the matrix."""
        started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
        blocks = schedule.blocks(self._plan, self._repeats, self._seed, self._backend == "sim")
        parts = [schedule.with_peer_access(blocks, enabling) for enabling in (False, True)]
        expected = sum(sum(self._expected_additional(group)) for part in parts for group in self._groups(part))
        self._progress.expect(schedule.window_count(blocks) + expected)
        try:
            for number, part in enumerate(parts):
                left = sum(schedule.window_count(planned) for planned in parts[number:])
                self._pace.begin_part(schedule.window_count(part), left)
                self._measure_all(part)
            rejected = self._rejected_blocks()
            self._progress.expect(schedule.window_count(rejected))
            self._measure_all(rejected)
            self._progress.report()
        except (Stopped, KeyboardInterrupt):
            self._interrupted = True
        simulated = self._backend == "sim"
        info = self._info
        return Matrix(
            backend=BACKENDS[self._backend],
            fingerprint=self._fingerprint(survey),
            started_at=started,
            seconds=round(self._pace.spent_s, 3),
            rows=self._plan.rows,
            columns=self._plan.columns,
            cells=self._cells.all(),
            seed=self._seed,
            repeats=self._complete_repeats,
            pace_ns=PACE_NS,
            quick=self._plan.quick,
            interrupted=self._interrupted,
            timeline=self._options.timeline,
            timeline_summary=TimelineSummary.joined(self._timelines),
            profile=str(info.get("profile")) if simulated and info.get("profile") else None,
            sim_seed=self._options.seed if simulated else None,
            program=nvml.version_of("stallscope") or "",
            lost_engines=tuple(self._lost_engines),
        )

    def _rejected_blocks(self) -> list[Block]:
        """Blocks for the cells of which half of the repeats or more were rejected."""
        blocks = []
        for column in self._plan.aggressor_sets:
            rejected = tuple(
                victim for victim in self._plan.victims if self._cells.is_rejected(victim.row.name, column.column.name)
            )
            first = self._repeats + schedule.ROUNDS + 1
            blocks += [Block(first + number, column, rejected) for number in range(_REJECTED_REPEATS)]
        return [block for block in blocks if block.victims]

    def _expected_additional(self, blocks: Iterable[Block]) -> list[int]:
        """Expected number of cells in each round of additional repeats of the cells of ``blocks``."""
        windows = schedule.window_count(block for block in blocks if self._is_regular(block))
        return [self._pace.expected_additional(windows, number) for number in range(schedule.ROUNDS)]

    def _is_regular(self, block: Block) -> bool:
        return 0 < block.repeat <= self._repeats

    def _additional_blocks(self, regular: Iterable[Block], cell_runner: CellRunner, number: int) -> list[Block]:
        """Round ``number``, from 0 on, of additional repeats: the cells in ``regular`` with the largest gain.

        Cells with a probe that ``cell_runner`` does not have are left out.
        """
        rows = set(cell_runner.rows)
        columns = {aggressor_set.column.name for aggressor_set in cell_runner.aggressor_sets}
        keys = {(v.row.name, block.aggressor_set.column.name): None for block in regular for v in block.victims}
        # A cell with fewer valid repeats is measured again at the end.
        repeats = {
            key: enough
            for key in keys
            if key[0] in rows and key[1] in columns and (enough := self._cells.enough_repeats(*key)) is not None
        }
        limit = self._pace.additional(len(repeats) * self._repeats, number)
        cells = chosen_cells(repeats, self._costs, limit) if limit > 0 else []
        return schedule.additional_blocks(self._plan, cells, self._repeats + 1 + number, self._seed)

    def _groups(self, blocks: list[Block]) -> list[list[Block]]:
        """The blocks of each engine: all in one, on a simulated GPU in several concurrent ones with their own columns.

        The number of engines does not depend on the machine, so that equal seeds give equal matrices everywhere.
        """
        if self._backend != "sim":
            return [blocks]
        names = list(dict.fromkeys(block.aggressor_set.column.name for block in blocks))
        group_of = {name: number % _ENGINES for number, name in enumerate(names)}
        return [
            [block for block in blocks if group_of[block.aggressor_set.column.name] == number]
            for number in range(_ENGINES)
        ]

    def _measure_all(self, blocks: list[Block]) -> None:
        """Measure the blocks, each group in its own engine."""
        groups = self._groups(blocks)
        if len(groups) == 1:
            self._measure(blocks, self._options)
            return
        with ThreadPoolExecutor(len(groups)) as pool:
            # With one seed, all engines would simulate the same latencies.
            running = [
                pool.submit(self._measure, group, replace(self._options, seed=self._options.seed + number * _SEED_STEP))
                for number, group in enumerate(groups)
                if group
            ]
            try:
                for future in as_completed(running):
                    future.result()
            except BaseException:
                self._aborted.set()
                raise

    def _measure(self, blocks: list[Block], options: Options) -> None:
        """Measure the blocks and then the additional repeats of their cells.

        A new engine follows one that is lost or cannot run all of the probes.
        """
        regular = [block for block in blocks if self._is_regular(block)]
        # The number of each round with its expected size, which the total already has.
        rounds = enumerate(self._expected_additional(regular) if regular else ())
        while blocks:
            if self._stop_requested():
                raise Stopped
            victims = {victim.row.name: victim for block in blocks for victim in block.victims}
            aggressor_sets = {block.aggressor_set.column.name: block.aggressor_set for block in blocks}
            cell_runner = CellRunner(
                tuple(victims.values()), tuple(aggressor_sets.values()), self._backend, options, self._stop_requested
            )
            left = list(blocks)
            try:
                with cell_runner:
                    if not self._info or options == self._options:
                        self._info = cell_runner.session.info
                    self._measure_blocks(cell_runner, left)
                    self._pace.begin_additional()
                    for number, expected in rounds:
                        left = self._additional_blocks(regular, cell_runner, number)
                        self._progress.expect(schedule.window_count(left) - expected)
                        self._measure_blocks(cell_runner, left)
                blocks = []
            except Unsupported as error:
                blocks = self._drop_unsupported(left, error)
            except EngineFailed as error:
                if isinstance(error, NoTimeline) and not self._cells.has_repeats:
                    raise
                started = bool(cell_runner.session.info)
                if not started and (error.exit_code in (EXIT_NO_GPU, EXIT_USAGE) or not self._cells.has_repeats):
                    raise
                blocks = self._drop_failed(left, error)
            finally:
                if cell_runner.timeline is not None:
                    self._timelines.append(cell_runner.timeline)
        self._progress.expect(-sum(expected for _, expected in rounds))

    def _measure_blocks(self, cell_runner: CellRunner, left: list[Block]) -> None:
        """Measure the blocks of ``left`` and remove each once it is done."""
        pending: list[MeasuredBlock] = []
        before: dict[str, VictimWindow] = {}
        try:
            self._leave_out(cell_runner, left)
            while left:
                block = left[0]
                rng = random.Random(f"{self._seed} {block.repeat} {block.aggressor_set.column.name}")
                lengths = self._pace.lengths(left)
                self._progress.report_step(block)
                began = time.monotonic()
                if not before:
                    sharing = [*(measured.block for measured in pending), *left[: self._pace.blocks_per_baseline]]
                    before = self._measure_baselines(cell_runner, sharing, lengths, rng)
                    self._finish(pending, before)
                    pending = []
                windows = self._measure_windows(cell_runner, block, lengths, rng)
                self._cells.invalidate(cell_runner.session.probe_failures())
                pending.append(MeasuredBlock(block, before, windows))
                self._progress.add_done(len(block.victims))
                left.pop(0)
                if block.additional and self._pace.additional_time_spent:
                    self._progress.expect(-schedule.window_count(left))
                    left.clear()
                regular_s = time.monotonic() - began
                self._leave_out(cell_runner, left)
                if not left or left[0].repeat != block.repeat:
                    sharing = [measured.block for measured in pending]
                    self._finish(pending, self._measure_baselines(cell_runner, sharing, lengths, rng))
                    pending, before = [], {}
                    if self._is_regular(block):
                        self._report_baselines()
                elif len(pending) >= self._pace.blocks_per_baseline:
                    before = {}
                self._pace.add_block(block, lengths, regular_s)
        except (Stopped, KeyboardInterrupt, EngineFailed):
            self._finish(pending, {})
            raise

    def _measure_baselines(
        self, cell_runner: CellRunner, sharing: Sequence[Block], lengths: Lengths, rng: random.Random
    ) -> dict[str, VictimWindow]:
        """The baselines of all victims of the blocks ``sharing`` that belong to the repeat of the first."""
        victims = schedule.victims_of(block for block in sharing if block.repeat == sharing[0].repeat)
        began = time.monotonic()
        windows = cell_runner.measure_baselines(victims, lengths, rng)
        self._costs.add_baselines(len(victims), time.monotonic() - began)
        return windows

    def _measure_windows(
        self, cell_runner: CellRunner, block: Block, lengths: Lengths, rng: random.Random
    ) -> dict[str, VictimWindow]:
        """The windows of a block."""
        began = time.monotonic()
        windows = cell_runner.measure(block.aggressor_set, block.victims, lengths, rng)
        # The windows of the warm-up are shorter.
        if block.repeat:
            windows_s = {row: window.window.duration_ns / 1e9 for row, window in windows.items()}
            self._costs.add_block(block.aggressor_set.column.name, windows_s, time.monotonic() - began)
        return windows

    def _leave_out(self, cell_runner: CellRunner, left: list[Block]) -> None:
        """Remove the first blocks of ``left`` up to one that is not left out."""
        while left:
            block = left[0]
            if self._pace.is_late(block):
                self._complete_repeats = min(self._complete_repeats, block.repeat - 1)
            elif not self._pace.is_slow(cell_runner.iteration_s(block.aggressor_set)) or not self._pace.may_end(block):
                return
            self._progress.expect(-len(block.victims))
            left.pop(0)

    def _finish(self, pending: Iterable[MeasuredBlock], after: Mapping[str, VictimWindow]) -> None:
        """Add the blocks ``pending`` with their baseline ``after``, and report their cells."""
        measured = list(pending)
        self._cells.add(measured, after)
        for measured_block in measured:
            if measured_block.block.repeat:
                for row in (*(victim.row.name for victim in measured_block.block.victims), HOST):
                    self._report_cell(row, measured_block.block.aggressor_set.column.name)

    def _report_cell(self, row: str, column: str) -> None:
        if self._progress.wants_cells:
            self._progress.report(self._cells.cell(row, column))

    def _report_baselines(self) -> None:
        """Report the column quiet. Called once per repeat: merging its histograms takes too long for every block."""
        if self._progress.wants_cells:
            for row in self._plan.rows:
                self._progress.report(self._cells.quiet_cell(row.name))

    def _drop_unsupported(self, blocks: list[Block], error: Unsupported) -> list[Block]:
        """The blocks without the probes that this machine cannot run; none if ``error`` names no probe."""
        refused = set(error.probes)

        def needs(victim: VictimProbe, column: AggressorSet) -> bool:
            return not refused or not refused.isdisjoint({victim.probe.name, *(probe.name for probe in column.probes)})

        return self._drop(blocks, needs, Status.UNSUPPORTED, error.reason)[0]

    def _drop_failed(self, blocks: list[Block], error: EngineFailed) -> list[Block]:
        """The blocks without the aggressor set with which the engine was lost."""
        column = blocks[0].aggressor_set.column.name if blocks else ""
        kept, lost = self._drop(
            blocks, lambda _, each: each.column.name == column, Status.INVALID, f"the engine was lost: {error.sentence}"
        )
        self._lost_engines.append(LostEngine(error.sentence, lost))
        return kept

    def _drop(
        self,
        blocks: list[Block],
        drops: Callable[[VictimProbe, AggressorSet], bool],
        status: Status,
        reason: str,
    ) -> tuple[list[Block], tuple[tuple[str, str], ...]]:
        """The blocks without the cells for which ``drops`` returns True, and the rows and columns of the dropped cells.

        A dropped cell gets ``status`` and ``reason``, unless it has a status already.
        """
        kept: list[Block] = []
        dropped: list[tuple[str, str]] = []
        for block in blocks:
            victims, column = [], block.aggressor_set.column.name
            for victim in block.victims:
                if drops(victim, block.aggressor_set):
                    if self._cells.drop(victim.row.name, column, status, reason):
                        dropped.append((victim.row.name, column))
                        self._report_cell(victim.row.name, column)
                    self._progress.expect(-1)
                else:
                    victims.append(victim)
            if victims:
                kept.append(replace(block, victims=tuple(victims)))
            else:
                self._cells.drop_host(column, status, reason)
        return kept, tuple(dropped)

    def _stop_requested(self) -> bool:
        return self._aborted.is_set() or self._stop()

    def _fingerprint(self, survey: gpus.Survey | None) -> dict[str, object]:
        if self._backend == "sim":
            return fingerprint.fingerprint(None, self._info)
        gpu = self._options.gpu
        return fingerprint.fingerprint(
            gpu.split(",")[0] if gpu else fingerprint.first_gpu(self._info), self._info, survey
        )
