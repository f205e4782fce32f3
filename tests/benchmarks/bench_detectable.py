"""Which changes two checks of one machine could detect: the ratios at p50, and the cells of those above 3.

python tests/benchmarks/bench_detectable.py OLD NEW [--machine PAIRS] [--slowness F] [--planted SEEDS]
python tests/benchmarks/bench_detectable.py --measure FOLDER

OLD and NEW are files of ``stallscope check``. ``--measure`` makes two checks in a row on this GPU (two minutes), saves
them in FOLDER and also prints where their time went. The limits are those of two checks in a row: at most 5 % of the
cells UNSURE, none WORSE or BETTER, half of the phases able to detect a ratio of 1.5 at p50 and nine of ten one of 3.
Exits 1 if one is not kept.

``--machine`` compares that many pairs of checks of a machine that varies as OLD and NEW do, on a clock of its own: no
GPU is needed, so it shows what a change of the schedule does to the detectable ratios. ``--slowness`` multiplies the
estimated time between the windows. ``--planted`` compares such checks and plants changes of the stated size at p50 in
them: at least 90 of 100 must be shown, and in at most 1 of 100 comparisons an unchanged cell be WORSE or BETTER.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).parents[2] / "probes"))
sys.path.insert(0, str(Path(__file__).parents[1]))

from factories.planted_changes import planted
from factories.recorded_machine import RecordedMachine, checked
from stallprobes.latency.statistics import sample_percentiles
from stallprobes.matrix import check_file
from stallprobes.matrix.check import runner
from stallprobes.matrix.check.cell_runner import CellRunner
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import CellChange, Change, Comparison, QuantileChange
from stallprobes.matrix.comparing.quantile_comparison import P50
from stallprobes.matrix.matrix import QUIET, Matrix

HALF, NINE_OF_TEN, UNSURE, FOUND, FALSE = 1.5, 3.0, 0.05, 0.9, 0.01
_PERCENTS = (50, 75, 85, 90, 95)


@dataclass(frozen=True)
class Figures:
    """The figures of a comparison that have limits."""

    half: float
    nine_of_ten: float
    unsure: float
    changed: int

    @classmethod
    def of(cls, comparison: Comparison) -> Figures:
        """The figures of ``comparison``."""
        half, nine_of_ten = sample_percentiles([ratio(part) for _, part in phases(comparison)], (50, 90))
        counts = comparison.counts()
        changed = counts[Change.WORSE] + counts[Change.BETTER]
        return cls(half, nine_of_ten, counts[Change.UNSURE] / sum(counts.values()), changed)

    @property
    def well(self) -> bool:
        """Whether all limits are kept, to the two digits that are printed."""
        half, nine_of_ten = round(self.half, 2), round(self.nine_of_ten, 2)
        return half <= HALF and nine_of_ten <= NINE_OF_TEN and self.unsure <= UNSURE and not self.changed

    def __str__(self) -> str:
        return (
            f"half of the phases x{self.half:.2f} (limit {HALF:g}), nine of ten x{self.nine_of_ten:.2f} (limit "
            f"{NINE_OF_TEN:g}), {self.unsure:.1%} UNSURE (limit {UNSURE:.0%}), {self.changed} WORSE or BETTER"
        )


def phases(comparison: Comparison) -> list[tuple[CellChange, QuantileChange]]:
    """The measured phases of a comparison at p50, each with its cell."""
    parts = [(cell, part) for cell in comparison.cells for part in cell.parts]
    return [each for each in parts if each[1].quantile is P50 and each[1].ratio is not None]


def ratio(part: QuantileChange) -> float:
    """The detectable ratio of a phase, a large one if it detects none."""
    return 1e6 if part.detectable is None else part.detectable


def repeats_of(matrix: Matrix) -> str:
    """The cells by their number of repeats."""
    measured = [cell for key, cell in matrix.cells.items() if key[1] != QUIET and cell.status.measured]
    counts = Counter(len(cell.repeats) for cell in measured)
    additional = sum(max(len(cell.repeats) - matrix.repeats, 0) for cell in measured)
    by = ", ".join(f"{number} in {counts[number]}" for number in sorted(counts))
    return f"{matrix.seconds:.0f} s, {additional} additional repeats; repeats: {by} cells"


def table(old: Matrix, new: Matrix) -> Figures:
    """Print the detectable ratios of two checks, and the phases above the limit by column and by row."""
    comparison = compare(old, new)
    for name, matrix in (("old", old), ("new", new)):
        print(f"{name}: {repeats_of(matrix)}")
    parts = phases(comparison)
    ratios = [ratio(part) for _, part in parts]
    found = sample_percentiles(ratios, _PERCENTS)
    print(", ".join(f"{percent} % x{one:.2f}" for percent, one in zip(_PERCENTS, found, strict=True)))
    bad = sorted((each for each in parts if ratio(each[1]) > NINE_OF_TEN), key=lambda each: ratio(each[1]))
    print(f"{len(bad)} of {len(parts)} phases detect only more than x{NINE_OF_TEN:g}")
    for words, names in (("column", [cell.column for cell, _ in bad]), ("row", [cell.row for cell, _ in bad])):
        print(f"  by {words}: {', '.join(f'{name} {number}' for name, number in Counter(names).most_common())}")
    for cell, part in bad:
        numbers = [len(matrix.cells[cell.key].repeats) for matrix in (old, new)]
        name = f"{part.channel.phase} {part.channel.label}".strip()
        print(f"  x{ratio(part):<10.4g} {cell.row} beside {cell.column}, {name}: {numbers[0]} and {numbers[1]} repeats")
    for cell in comparison.cells:
        if cell.change is not Change.SAME:
            why = next((part.why for part in cell.parts if part.change is cell.change), cell.note)
            print(f"{cell.change}: {cell.row} beside {cell.column}: {why}")
    figures = Figures.of(comparison)
    print(figures, flush=True)
    return figures


@dataclass
class Spent:
    """Seconds and windows by step of a check."""

    seconds: dict[str, float] = field(default_factory=dict)
    windows: dict[str, int] = field(default_factory=dict)

    def measured(self, method: Callable[..., Any], name: Callable[..., tuple[str, int]]) -> Callable[..., Any]:
        """``method`` of a cell runner with its time added to the step that ``name`` gives for its arguments."""

        def timed(*arguments: Any) -> Any:
            began = time.monotonic()
            try:
                return method(*arguments)
            finally:
                step, number = name(*arguments)
                self.seconds[step] = self.seconds.get(step, 0.0) + time.monotonic() - began
                self.windows[step] = self.windows.get(step, 0) + number

        return timed


def measure(folder: Path) -> tuple[Matrix, Matrix]:
    """Two checks in a row on this GPU, saved in ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    found = []
    for number in (1, 2):
        spent = Spent()
        enter = spent.measured(CellRunner.__enter__, lambda *_: ("start of an engine", 0))
        baselines = spent.measured(CellRunner.measure_baselines, lambda _, victims, *__: ("baselines", len(victims)))
        blocks = spent.measured(CellRunner.measure, lambda _, one, victims, *__: (one.column.name, len(victims)))
        with mock.patch.multiple(CellRunner, __enter__=enter, measure_baselines=baselines, measure=blocks):
            matrix = runner.run(plan(), seed=number)
        check_file.save(matrix, folder / f"check-{number}.json.gz")
        print(f"check {number}: {matrix.seconds:.1f} s")
        for step in sorted(spent.seconds, key=lambda step: -spent.seconds[step]):
            windows = f", {spent.windows[step]} windows" if spent.windows[step] else ""
            print(f"  {spent.seconds[step]:6.2f} s {step}{windows}")
        found.append(matrix)
    return found[0], found[1]


def machine(checks: Sequence[Matrix], pairs: int, slowness: float) -> bool:
    """Print the figures of pairs of checks of a machine that varies as ``checks`` do; whether their means are well."""
    found = []
    for pair in range(pairs):
        old, new = (checked(RecordedMachine(checks, 2 * pair + number, slowness)) for number in (1, 2))
        found.append(Figures.of(compare(old, new)))
        print(f"{repeats_of(old)}\n  {found[-1]}", flush=True)
    mean = Figures(
        statistics.mean(one.half for one in found),
        math.exp(statistics.mean(math.log(one.nine_of_ten) for one in found)),
        statistics.mean(one.unsure for one in found),
        sum(one.changed for one in found),
    )
    print(f"mean of {pairs} pairs: {mean}")
    return mean.well


def stated(checks: Sequence[Matrix], seeds: int, slowness: float) -> bool:
    """Plant changes of the stated size in checks of such a machine; whether enough are shown and nothing else is."""
    # Each check is the old one, the other one and the new one of a seed: no two checks are compared twice.
    made = [checked(RecordedMachine(checks, seed, slowness)) for seed in range(2)]
    found, unchanged = [], 0
    for seed in range(seeds):
        old, other, new = made = [*made[-2:], checked(RecordedMachine(checks, seed + 2, slowness))]
        comparison = compare(old, other)
        unchanged += bool(Figures.of(comparison).changed)
        found.append(planted(comparison, old, new, P50, seed))
    shown = sum(one.found for one in found)
    worse = sum(one.part.change is Change.WORSE for one in found)
    beside = sum(bool(one.others) for one in found)
    middle = statistics.median(one.ratio for one in found)
    print(
        f"{shown} of {seeds} changes shown, {worse} as worse; stated ratio x{middle:.1f} (median); an unchanged cell "
        f"WORSE or BETTER in {beside} of these comparisons and in {unchanged} of {seeds} without a change"
    )
    return shown >= FOUND * seeds and beside + unchanged <= FALSE * 2 * seeds


def main() -> None:
    """Measure or load, and print; exit code 1 where a limit is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checks", nargs="*", type=Path, metavar="CHECK", help="two files of stallscope check")
    parser.add_argument("--measure", type=Path, metavar="FOLDER", help="make the two checks on this GPU")
    parser.add_argument("--machine", type=int, default=0, metavar="PAIRS", help="pairs of checks of such a machine")
    parser.add_argument("--slowness", type=float, default=1.5, help="factor of the time between windows (%(default)s)")
    parser.add_argument("--planted", type=int, default=0, metavar="SEEDS", help="changes planted in such checks")
    asked = parser.parse_args()
    if asked.measure is None and len(asked.checks) != 2:
        parser.error("two checks are needed, or --measure FOLDER")
    old, new = measure(asked.measure) if asked.measure else (check_file.load(path) for path in asked.checks)
    well = True
    if not asked.machine and not asked.planted:
        well = table(old, new).well
    if asked.machine:
        well = machine((old, new), asked.machine, asked.slowness)
    if asked.planted:
        well = stated((old, new), asked.planted, asked.slowness) and well
    sys.exit(0 if well else 1)


if __name__ == "__main__":
    main()
