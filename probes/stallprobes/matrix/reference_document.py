"""JSON document of a reference, published schema ``stallscope.reference/1``: its text, and validated reading.

One line per cell, so that a difference between two versions can be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta
from msgspec.structs import asdict

from stallprobes.errors import CheckFileError, FileNotRead, MalformedJson, OversizedData
from stallprobes.files import codec, input_file
from stallprobes.files.codec import Document, Figure, Name, Natural, Positive, Text, about
from stallprobes.foreign_text import escaped_json
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import MatrixColumn, MatrixRow
from stallprobes.matrix.reference import (
    CellState,
    RatioRange,
    Reference,
    ReferenceCell,
    ReferenceCheck,
    ReferenceComparison,
    UnusualCell,
)
from stallprobes.model import Phase
from stallprobes.units import rounded

REFERENCE_SCHEMA = "stallscope.reference/1"
_LARGEST = 16 * 1024 * 1024
# The phases of which a reference has ratios.
ReferencePhase = Literal["call", "wait", "start", "due"]
Percentile = Literal["p50", "p99"]


class ReferenceFingerprint(Document):
    """What all checks have in common; null where they differ."""

    gpu: Name
    driver: Text
    cuda: Text
    memory_bytes: Natural | None
    module_loading: Text | None
    mig: bool | None
    mps: bool | None
    compute_mode: Text | None


class ReferenceRow(Document):
    """A victim."""

    name: Name
    title: Text
    entry: Text
    context: Text
    stream: Text
    baseline_us: Annotated[
        dict[ReferencePhase, Figure],
        about("Median over the checks of the victim's median latency with no aggressor, by phase."),
    ]

    @classmethod
    def of_row(cls, row: MatrixRow, reference: Reference) -> ReferenceRow:
        """The document of a row."""
        baselines = {
            str(phase): round(ns / 1000, 3) for (name, phase), ns in reference.baselines_ns.items() if name == row.name
        }
        return cls.of(row, baseline_us=baselines)


class ReferenceCellDocument(Document):
    """A victim with an aggressor."""

    row: Text
    column: Text
    checks: Annotated[
        dict[CellState, Positive],
        about("Number of checks by the state of the cell; a check that did not measure it is not counted."),
    ]
    ratios: Annotated[
        dict[ReferencePhase, dict[Percentile, tuple[Figure, Figure]]],
        about("Smallest and largest ratio to the baseline among the checks, by phase and percentile."),
    ]

    @classmethod
    def of_cell(cls, row: str, column: str, cell: ReferenceCell) -> ReferenceCellDocument:
        """The document of a cell."""
        ratios: dict[Any, dict[Any, tuple[float, float]]] = {}
        for (phase, quantile), one in cell.ratios.items():
            ratios.setdefault(str(phase), {})[str(quantile)] = one.low, one.high
        return cls(row, column, dict(cell.checks), ratios)

    def cell(self) -> ReferenceCell:
        """The cell that the document was made of."""
        ratios = {
            (Phase(phase), Quantile(quantile)): RatioRange(*ends)
            for phase, ranges in self.ratios.items()
            for quantile, ends in ranges.items()
        }
        return ReferenceCell(self.checks, ratios)


class ReferenceDocument(Document):
    """Recorded checks of one model of GPU with one driver, against which stallscope names what is unusual. Keys ending
    in _us are microseconds."""

    schema: Literal["stallscope.reference/1"]
    pace_us: Annotated[Figure, about("Period of the victims.")]
    fingerprint: ReferenceFingerprint
    machines: Annotated[Positive, about("Number of machines.")]
    checks: Annotated[list[ReferenceCheck], Meta(min_length=1)]
    rows: list[ReferenceRow]
    columns: list[MatrixColumn]
    cells: list[ReferenceCellDocument]


class UnusualFact(Document):
    """A difference between the machines."""

    key: Text
    here: Any
    there: Any


class UnusualCellDocument(Document):
    """A cell that differs from the reference."""

    row: Text
    column: Text
    phase: ReferencePhase
    quantile: Quantile
    ratio: Annotated[Figure | None, about("Ratio to the baseline here; null for a call in flight.")]
    there: Annotated[
        tuple[Figure, Figure] | None,
        about("Smallest and largest ratio among the checks of the reference; null where no call returned."),
    ]

    @classmethod
    def of_cell(cls, cell: UnusualCell) -> UnusualCellDocument:
        """The document of ``cell``."""
        there = None if cell.range is None else (cell.range.low, cell.range.high)
        return cls.of(cell, ratio=rounded(cell.ratio), there=there)


class FoundByReference(Document):
    """What is unusual in a check, by a reference: the member ``reference`` of its document."""

    name: Text
    gpu: Text
    driver: Text
    machines: Positive
    checks: Positive
    first: Annotated[Text, about("Date of the first check of the reference.")]
    last: Annotated[Text, about("Date of its last check.")]
    compared: Natural
    absent: Annotated[Natural, about("Number of cells that the reference does not have.")]
    disagreed: Annotated[Natural, about("Number of cells on which its checks disagree.")]
    unjudged: Annotated[Natural, about("Number of cells that this check did not judge.")]
    differences: list[UnusualFact]
    stalled_here: Annotated[list[UnusualCellDocument], about("Cells that stall here and in no check of the reference.")]
    stalled_there: Annotated[
        list[UnusualCellDocument], about("Cells that stall in every check of the reference and not here.")
    ]

    @classmethod
    def of_comparison(cls, found: ReferenceComparison) -> FoundByReference:
        """The document of ``found``."""
        first, last = found.reference.dates
        return cls.of(
            found,
            name=found.reference.name,
            gpu=found.reference.gpu,
            driver=found.reference.driver,
            machines=found.reference.machines,
            checks=len(found.reference.checks),
            first=first,
            last=last,
            differences=[UnusualFact(one.key, one.new, one.old) for one in found.differences],
            stalled_here=list(map(UnusualCellDocument.of_cell, found.stalled_here)),
            stalled_there=list(map(UnusualCellDocument.of_cell, found.stalled_there)),
        )


def text(reference: Reference) -> str:
    """``reference`` as text; equal references give equal text."""
    head = {
        "schema": REFERENCE_SCHEMA,
        "pace_us": reference.pace_us,
        "fingerprint": dict(reference.fingerprint),
        "machines": reference.machines,
    }
    lists: dict[str, Sequence[object]] = {
        "checks": reference.checks,
        "rows": [ReferenceRow.of_row(row, reference) for row in reference.rows.values()],
        "columns": list(reference.columns.values()),
        "cells": [ReferenceCellDocument.of_cell(*key, cell) for key, cell in reference.cells.items()],
    }
    parts = ['"' + key + '":[\n' + ",\n".join(map(_json, items)) + "\n]" for key, items in lists.items()]
    return ",\n".join([_json(head)[:-1], *parts]) + "}\n"


def _json(value: object) -> str:
    return escaped_json(codec.encoded(value).decode())


def load(path: Path) -> Reference:
    """The reference in the file ``path``, named after it. Raises CheckFileError for any other content."""
    try:
        return read(input_file.read(path, _LARGEST), path.stem)
    except FileNotRead as error:
        raise CheckFileError(str(error)) from error
    except OversizedData:
        raise CheckFileError(f"{path} is not a reference: none is larger than {_LARGEST >> 20} MiB") from None
    except UnicodeDecodeError:
        raise CheckFileError(f"{path} is not a reference: it is not UTF-8") from None
    except MalformedJson as error:
        raise CheckFileError(f"{path} is not a reference: {error}") from error


def read(text_of_document: bytes, name: str) -> Reference:
    """The reference in the text of a document, called ``name``. Raises MalformedJson and UnicodeDecodeError."""
    document = codec.decoded(text_of_document, ReferenceDocument)
    rows = {row.name: MatrixRow(row.name, row.title, row.entry, row.context, row.stream) for row in document.rows}
    columns = {column.name: column for column in document.columns}
    cells = {(one.row, one.column): one.cell() for one in document.cells}
    if any(one.low > one.high for cell in cells.values() for one in cell.ratios.values()):
        raise MalformedJson("cells has a range whose end is below its begin")
    for key, listed, named in (
        ("rows", document.rows, rows),
        ("columns", document.columns, columns),
        ("cells", document.cells, cells),
    ):
        if len(named) < len(listed):
            raise MalformedJson(f"{key} has a duplicate name")
    for row, column in cells:
        if row not in rows or column not in columns:
            raise MalformedJson(f"a cell is of {row} and {column}, which are not among the rows and columns")
    return Reference(
        name=name,
        pace_us=document.pace_us,
        fingerprint=asdict(document.fingerprint),
        machines=document.machines,
        checks=tuple(document.checks),
        rows=rows,
        columns=columns,
        baselines_ns={
            (row.name, Phase(phase)): 1000 * us for row in document.rows for phase, us in row.baseline_us.items()
        },
        cells=cells,
    )
