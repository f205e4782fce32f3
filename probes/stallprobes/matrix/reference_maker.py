"""Maker of a reference from saved checks of one model of GPU with one driver, all with the same settings.

python -m stallprobes.matrix.reference_maker OUT CHECK CHECK...

OUT is the file of the reference, which ``stallscope check --reference OUT`` then uses; it is replaced. At least two
checks are needed, better two of each of several machines, measured while nothing else uses them. The package's own are
in ``stallprobes/matrix/references``; their file names are the GPU's and the driver's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from stallprobes.errors import NotComparable, StallprobesError
from stallprobes.files import atomic
from stallprobes.foreign_text import printable_lines
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.matrix import check_file, reference_file
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, MatrixColumn, MatrixRow
from stallprobes.matrix.reference import (
    LEAST_CHECKS,
    REFERENCE_PHASES,
    CellState,
    RatioRange,
    Reference,
    ReferenceCell,
    ReferenceCheck,
    ReferenceFingerprint,
    ReferenceRow,
    state_of,
)
from stallprobes.model import Channel, Phase

# Keys of the machine's fingerprint in which all checks of a reference must agree. Other keys are kept only if all
# checks have the same value.
_COMMON = ("gpu", "driver", "cuda")


def make(name: str, matrices: Sequence[Matrix]) -> Reference:
    """The reference called ``name`` of all checks in ``matrices``, in the order of their start.

    Raises NotComparable if there are too few, if one is quick, interrupted, merged, simulated or made with the
    timeline, or if they differ in GPU model, driver, CUDA, period, victims or aggressors.
    """
    matrices = sorted(matrices, key=lambda matrix: matrix.started_at)
    _require_alike(matrices)
    rows = {row.name: row for matrix in matrices for row in matrix.rows}
    columns = {column.name: column for matrix in matrices for column in matrix.columns if column.name != QUIET}
    keys = [(row, column) for row in rows for column in columns]
    cells = [_cell(*key, [matrix.cells[key] for matrix in matrices if key in matrix.cells]) for key in keys]
    facts = ReferenceFingerprint.__struct_fields__
    common: dict[str, Any] = {key: _common(matrix.fingerprint.get(key) for matrix in matrices) for key in facts}
    return Reference(
        name=name,
        pace_ns=matrices[0].pace_ns,
        fingerprint=ReferenceFingerprint(**common),
        machines=len({(matrix.fingerprint.get("hostname"), matrix.fingerprint.get("uuid")) for matrix in matrices}),
        checks=tuple(_check(matrix) for matrix in matrices),
        rows=tuple(ReferenceRow.of(row, baseline_ns=_baseline_ns(matrices, row.name)) for row in rows.values()),
        columns=tuple(columns.values()),
        cells=tuple(cell for cell in cells if cell.measured),
    )


def _require_alike(matrices: Sequence[Matrix]) -> None:
    if len(matrices) < LEAST_CHECKS:
        raise NotComparable(f"a reference needs at least {LEAST_CHECKS} checks")
    first = matrices[0]
    rows: dict[str, MatrixRow] = {}
    columns: dict[str, MatrixColumn] = {}
    for matrix in matrices:
        for differs, kind in (
            (matrix.backend != "cuda", "not of a real GPU"),
            (matrix.hosts, "merged"),
            (matrix.quick, "quick"),
            (matrix.timeline, "made with the timeline"),
            (matrix.interrupted, "interrupted"),
        ):
            if differs:
                raise NotComparable(f"the check of {matrix.started_at} is {kind}")
        for key in _COMMON:
            values = [check.fingerprint.get(key) for check in (first, matrix)]
            if values[0] is None or values[0] != values[1]:
                raise NotComparable(f"the checks differ in {key}, or do not know it: {values[0]} and {values[1]}")
        if first.pace_ns != matrix.pace_ns:
            paces = f"{first.pace_ns} and {matrix.pace_ns} ns"
            raise NotComparable(f"the checks differ in the period of the victims: {paces}")
        same = [rows.setdefault(row.name, row) == row for row in matrix.rows]
        same += [columns.setdefault(column.name, column) == column for column in matrix.columns]
        if not all(same):
            raise NotComparable("the checks call different victims or aggressors by one name")


def _common(values: Iterable[object]) -> object:
    first, *others = values
    return first if all(other == first for other in others) else None


def _check(matrix: Matrix) -> ReferenceCheck:
    cpus = matrix.fingerprint.get("cpus")
    return ReferenceCheck(
        matrix.started_at, round(matrix.seconds, 1), matrix.repeats, cpus if isinstance(cpus, int) else None
    )


def _baseline_ns(matrices: Sequence[Matrix], row: str) -> dict[Phase, int]:
    """The median over all checks of a row's median in the column quiet, by phase."""
    baselines: dict[Phase, int] = {}
    quiet = [matrix.cells[row, QUIET].channels for matrix in matrices if (row, QUIET) in matrix.cells]
    for phase in REFERENCE_PHASES:
        medians = [channels[Channel(phase)].percentile(50) for channels in quiet if Channel(phase) in channels]
        values = [ns for ns in medians if ns is not None]
        if values:
            baselines[phase] = round(median(values))
    return baselines


def _cell(row: str, column: str, cells: Sequence[Cell]) -> ReferenceCell:
    states = Counter(state for cell in cells if (state := state_of(cell)) is not None)
    measured = [cell for cell in cells if cell.status.measured]
    ratios: dict[Phase, dict[Quantile, RatioRange]] = {}
    for phase in REFERENCE_PHASES:
        for quantile in PERCENTILES:
            values = [ratio.ratio for cell in measured if (ratio := cell.ratio(phase, quantile)) is not None]
            if values:
                ratios.setdefault(phase, {})[quantile] = _rounded(min(values)), _rounded(max(values))
    return ReferenceCell(row, column, {state: states[state] for state in CellState if states[state]}, ratios)


def _rounded(ratio: float) -> float:
    """``ratio`` with three significant digits."""
    return float(f"{ratio:.3g}")


def main(arguments: Sequence[str]) -> str | None:
    """Make the reference that the command line asks for. Returns a message for stderr, None after success."""
    if len(arguments) < 1 + LEAST_CHECKS:
        return f"usage: python -m stallprobes.matrix.reference_maker OUT CHECK CHECK...\n\n{__doc__}"
    checks = arguments[1:]
    try:
        out = atomic.named_file(arguments[0])
        atomic.ready(out, force=True)
        made = make(out.stem, [check_file.load(path) for path in checks])
        atomic.write(out, (reference_file.text(made).encode(),), force=True, mode=0o644)
    except StallprobesError as error:
        return printable_lines(f"error: {error}")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
