"""JSON document of a reference, published schema ``stallscope.reference/1``: its text, and validated reading.

One line per cell, so that a difference between two versions can be read.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stallprobes.errors import CheckFileError, MalformedJson
from stallprobes.files.json_reader import Node, clean, parse, plain
from stallprobes.foreign_text import escaped_json
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.matrix.matrix import MatrixColumn, MatrixRow
from stallprobes.matrix.reference import (
    FINGERPRINT_KEYS,
    REFERENCE_PHASES,
    CellState,
    RatioRange,
    Reference,
    ReferenceCell,
    ReferenceCheck,
    ReferenceComparison,
    UnusualCell,
)
from stallprobes.model import Phase

REFERENCE_SCHEMA = "stallscope.reference/1"
_LARGEST = 16 * 1024 * 1024
# Upper limits of values in a document.
_MOST = 1_000_000
_MICROSECONDS = 1e13
_SECONDS = 1e9
_RATIO = 1e18
# Phases by the word that the document has for them.
_PHASES = {phase.traits.word: phase for phase in REFERENCE_PHASES}


def text(reference: Reference) -> str:
    """``reference`` as text; equal references give equal text."""
    head = {
        "schema": REFERENCE_SCHEMA,
        "pace_us": reference.pace_us,
        "fingerprint": dict(reference.fingerprint),
        "machines": reference.machines,
    }
    lists = {
        "checks": [_check_out(check) for check in reference.checks],
        "rows": [_row_out(reference, row) for row in reference.rows.values()],
        "columns": [
            {"name": one.name, "title": one.title, "aggressors": list(one.aggressors)}
            for one in reference.columns.values()
        ],
        "cells": [_cell_out(*key, cell) for key, cell in reference.cells.items()],
    }
    parts = ['"' + key + '":[\n' + ",\n".join(map(_json, items)) + "\n]" for key, items in lists.items()]
    return ",\n".join([_json(head)[:-1], *parts]) + "}\n"


def load(path: Path) -> Reference:
    """The reference in the file ``path``, named after it. Raises CheckFileError for any other content."""
    try:
        with open(path, "rb") as file:
            data = file.read(_LARGEST + 1)
        if len(data) > _LARGEST:
            raise CheckFileError(f"{path} is not a reference: none is larger than {_LARGEST >> 20} MiB")
        return read(data.decode(), path.stem)
    except OSError as error:
        raise CheckFileError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise CheckFileError(f"{path} is not a reference: it is not UTF-8") from None
    except MalformedJson as error:
        raise CheckFileError(f"{path} is not a reference: {error}") from error


def read(document: str, name: str) -> Reference:
    """The reference in the text ``document``, called ``name``. Raises MalformedJson for any other content."""
    node = Node(parse(document, lambda found: found), "")
    if not isinstance(node.value, dict) or node.value.get("schema") != REFERENCE_SCHEMA:
        raise MalformedJson(f"its schema is not {REFERENCE_SCHEMA}")
    fields = node.fields("schema", "pace_us", "fingerprint", "machines", "checks", "rows", "columns", "cells")
    fingerprint = fields["fingerprint"].fields(*FINGERPRINT_KEYS)
    fingerprint["gpu"].name()
    checks = tuple(_check(one) for one in fields["checks"].items())
    if not checks:
        raise fields["checks"].wrong("is empty")
    rows = {(row := _row(one)).name: row for one in fields["rows"].items()}
    columns = {(column := _column(one)).name: column for one in fields["columns"].items()}
    for named, number in ((fields["rows"], len(rows)), (fields["columns"], len(columns))):
        if number < len(named.items()):
            raise named.wrong("has a duplicate name")
    cells = {}
    for one in fields["cells"].items():
        cell = one.fields("row", "column", "checks", "ratios")
        key = cell["row"].one_of(rows), cell["column"].one_of(columns)
        if key in cells:
            raise one.wrong("is a second cell of its row and column")
        cells[key] = ReferenceCell(_states(cell["checks"]), _ratios(cell["ratios"]))
    return Reference(
        name=name,
        pace_us=fields["pace_us"].number(_MICROSECONDS),
        fingerprint=fields["fingerprint"].free(),
        machines=fields["machines"].whole(1, _MOST),
        checks=checks,
        rows=rows,
        columns=columns,
        baselines_ns={
            (name, phase): 1000 * us
            for name, one in zip(rows, fields["rows"].items(), strict=True)
            for phase, us in _baselines(one)
        },
        cells=cells,
    )


def comparison_out(found: ReferenceComparison) -> dict[str, Any]:
    """``found`` as JSON types, the member ``reference`` of the document of a check."""
    first, last = found.reference.dates
    return {
        "name": clean(found.reference.name),
        "gpu": found.reference.gpu,
        "driver": found.reference.driver,
        "machines": found.reference.machines,
        "checks": len(found.reference.checks),
        "first": first,
        "last": last,
        "compared": found.compared,
        "absent": found.absent,
        "disagreed": found.disagreed,
        "unjudged": found.unjudged,
        "differences": [{"key": one.key, "here": plain(one.new), "there": plain(one.old)} for one in found.differences],
        "stalled_here": [_unusual_out(one) for one in found.stalled_here],
        "stalled_there": [_unusual_out(one) for one in found.stalled_there],
    }


def _unusual_out(cell: UnusualCell) -> dict[str, Any]:
    return {
        "row": clean(cell.row),
        "column": clean(cell.column),
        "phase": cell.phase.traits.word,
        "quantile": str(cell.quantile),
        "ratio": None if cell.ratio is None else round(float(cell.ratio), 3),
        "there": None if cell.range is None else [cell.range.low, cell.range.high],
    }


def _json(value: object) -> str:
    return escaped_json(json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False))


def _check_out(check: ReferenceCheck) -> dict[str, Any]:
    return {
        "started_at": check.started_at,
        "seconds": check.seconds,
        "repeats": check.repeats,
        "cpus": check.cpus,
    }


def _row_out(reference: Reference, row: MatrixRow) -> dict[str, Any]:
    return {
        "name": row.name,
        "title": row.title,
        "entry": row.entry,
        "context": row.context,
        "stream": row.stream,
        "baseline_us": {
            word: round(reference.baselines_ns[row.name, phase] / 1000, 3)
            for word, phase in _PHASES.items()
            if (row.name, phase) in reference.baselines_ns
        },
    }


def _cell_out(row: str, column: str, cell: ReferenceCell) -> dict[str, Any]:
    ratios: dict[str, dict[str, list[float]]] = {}
    for (phase, quantile), found in cell.ratios.items():
        ratios.setdefault(phase.traits.word, {})[quantile] = [found.low, found.high]
    checks = {str(state): number for state, number in cell.checks.items()}
    return {"row": row, "column": column, "checks": checks, "ratios": ratios}


def _check(node: Node) -> ReferenceCheck:
    fields = node.fields("started_at", "seconds", "repeats", "cpus")
    return ReferenceCheck(
        started_at=fields["started_at"].name(),
        seconds=fields["seconds"].number(_SECONDS),
        repeats=fields["repeats"].whole(0, _MOST),
        cpus=None if fields["cpus"].value is None else fields["cpus"].whole(1, _MOST),
    )


def _row(node: Node) -> MatrixRow:
    fields = node.fields("name", "title", "entry", "context", "stream", "baseline_us")
    del fields["baseline_us"]
    return MatrixRow(name=fields.pop("name").name(), **{key: one.text() for key, one in fields.items()})


def _baselines(node: Node) -> list[tuple[Phase, float]]:
    members = Node(node.value["baseline_us"], f"{node.where}.baseline_us").members()
    return [(_phase(word, one), one.number(_MICROSECONDS)) for word, one in members.items()]


def _column(node: Node) -> MatrixColumn:
    fields = node.fields("name", "title", "aggressors")
    aggressors = tuple(one.name() for one in fields["aggressors"].items())
    return MatrixColumn(fields["name"].name(), fields["title"].text(), aggressors)


def _states(node: Node) -> dict[CellState, int]:
    return {
        Node(state, f"a state in {node.where}").choice(CellState): one.whole(1, _MOST)
        for state, one in node.members().items()
    }


def _ratios(node: Node) -> dict[Any, RatioRange]:
    found = {}
    for word, phase in node.members().items():
        for quantile, one in phase.members().items():
            if quantile not in PERCENTILES:
                raise one.wrong("is not one of p50, p99")
            ends = [end.number(_RATIO) for end in one.items()]
            if len(ends) != 2 or ends[0] > ends[1]:
                raise one.wrong("is not a range of two numbers")
            found[_phase(word, one), PERCENTILES[PERCENTILES.index(quantile)]] = RatioRange(*ends)
    return found


def _phase(word: str, node: Node) -> Phase:
    if word not in _PHASES:
        raise node.wrong(f"is not of one of the phases {', '.join(_PHASES)}")
    return _PHASES[word]
