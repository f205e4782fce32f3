"""Maker of a reference from saved checks of one model of GPU with one driver, all with the same settings.

python -m stallprobes.matrix.reference_maker OUT CHECK CHECK...

OUT is the file of the reference, which ``stallscope check --reference OUT`` then uses; it is replaced. At least two
checks are needed, better two of each of several machines, measured while nothing else uses them. The package's own are
in ``stallprobes/matrix/references``; their file names are the GPU's and the driver's.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from statistics import median

from stallprobes.errors import StallprobesError
from stallprobes.files import atomic
from stallprobes.foreign_text import printable_lines
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.matrix import check_file, reference_document
from stallprobes.matrix.matrix import QUIET, Cell, Matrix, MatrixColumn, MatrixRow
from stallprobes.matrix.reference import (
    FINGERPRINT_KEYS,
    LEAST_CHECKS,
    REFERENCE_PHASES,
    CellState,
    RatioRange,
    Reference,
    ReferenceCell,
    ReferenceCheck,
    state_of,
)
from stallprobes.model import Channel, Phase

# Keys of the fingerprint that have to be the same in all checks; of the other keys only common values are kept.
_COMMON = ("gpu", "driver", "cuda")


class NotAReference(StallprobesError):
    """The checks make no reference; the message is one sentence."""


def make(name: str, matrices: Sequence[Matrix]) -> Reference:
    """The reference called ``name`` of all checks in ``matrices``, in the order of their start.

    Raises NotAReference if there are too few, if one is quick, interrupted, merged, simulated or made with the
    timeline, or if they differ in GPU model, driver, CUDA, period, victims or aggressors.
    """
    matrices = sorted(matrices, key=lambda matrix: matrix.started_at)
    _require_alike(matrices)
    rows = {row.name: row for matrix in matrices for row in matrix.rows}
    columns = {one.name: one for matrix in matrices for one in matrix.columns if one.name != QUIET}
    keys = [(row, column) for row in rows for column in columns]
    cells = {key: _cell([matrix.cells[key] for matrix in matrices if key in matrix.cells]) for key in keys}
    return Reference(
        name=name,
        pace_us=matrices[0].pace_us,
        fingerprint={key: _common(matrix.fingerprint.get(key) for matrix in matrices) for key in FINGERPRINT_KEYS},
        machines=len({(matrix.fingerprint.get("hostname"), matrix.fingerprint.get("uuid")) for matrix in matrices}),
        checks=tuple(_check(matrix) for matrix in matrices),
        rows=rows,
        columns=columns,
        baselines_ns=_baselines(matrices, rows),
        cells={key: cell for key, cell in cells.items() if cell.measured},
    )


def _require_alike(matrices: Sequence[Matrix]) -> None:
    if len(matrices) < LEAST_CHECKS:
        raise NotAReference(f"a reference needs at least {LEAST_CHECKS} checks")
    first = matrices[0]
    rows: dict[str, MatrixRow] = {}
    columns: dict[str, MatrixColumn] = {}
    for matrix in matrices:
        for found, kind in (
            (matrix.backend != "cuda", "not of a real GPU"),
            (matrix.hosts, "merged"),
            (matrix.quick, "quick"),
            (matrix.timeline, "made with the timeline"),
            (matrix.interrupted, "interrupted"),
        ):
            if found:
                raise NotAReference(f"the check of {matrix.started_at} is {kind}")
        for key in _COMMON:
            values = [one.fingerprint.get(key) for one in (first, matrix)]
            if values[0] is None or values[0] != values[1]:
                raise NotAReference(f"the checks differ in {key}, or do not know it: {values[0]} and {values[1]}")
        if not math.isclose(first.pace_us, matrix.pace_us, rel_tol=1e-6):
            raise NotAReference(f"the checks differ in the period of the victims: {first.pace_us} and {matrix.pace_us}")
        same = [rows.setdefault(row.name, row) == row for row in matrix.rows]
        same += [columns.setdefault(column.name, column) == column for column in matrix.columns]
        if not all(same):
            raise NotAReference("the checks call different victims or aggressors by one name")


def _common(values: Iterable[object]) -> object:
    first, *others = values
    return first if all(other == first for other in others) else None


def _check(matrix: Matrix) -> ReferenceCheck:
    cpus = matrix.fingerprint.get("cpus")
    return ReferenceCheck(
        matrix.started_at, round(matrix.seconds, 1), matrix.repeats, cpus if isinstance(cpus, int) else None
    )


def _baselines(matrices: Sequence[Matrix], rows: Iterable[str]) -> dict[tuple[str, Phase], float]:
    """The median over all checks of each row's median in the column quiet, in ns, by row and phase."""
    found: dict[tuple[str, Phase], float] = {}
    for row in rows:
        quiet = [matrix.cells[row, QUIET].channels for matrix in matrices if (row, QUIET) in matrix.cells]
        for phase in REFERENCE_PHASES:
            medians = [one[Channel(phase)].percentile(50) for one in quiet if Channel(phase) in one]
            known = [ns for ns in medians if ns is not None]
            if known:
                found[row, phase] = round(median(known))
    return found


def _cell(cells: Sequence[Cell]) -> ReferenceCell:
    states = Counter(state for cell in cells if (state := state_of(cell)) is not None)
    measured = [cell for cell in cells if cell.status.measured]
    ratios: dict[tuple[Phase, Quantile], RatioRange] = {}
    for phase in REFERENCE_PHASES:
        for quantile in PERCENTILES:
            found = [one.ratio for cell in measured if (one := cell.ratio(phase, quantile)) is not None]
            if found:
                ratios[phase, quantile] = RatioRange(_rounded(min(found)), _rounded(max(found)))
    return ReferenceCell({state: states[state] for state in CellState if states[state]}, ratios)


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
        atomic.write(out, (reference_document.text(made).encode(),), force=True, mode=0o644)
    except StallprobesError as error:
        return printable_lines(f"error: {error}")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
