"""A comparison as JSON by its schema, whatever is in it."""

from __future__ import annotations

import json

import jsonschema
import pytest

from factories import documents, matrices, matrix_examples
from stallprobes.matrix.comparing import compare, comparison
from stallprobes.matrix.matrix import Matrix, Status

VALIDATOR = documents.validator(comparison.COMPARE_SCHEMA)


def document(old: Matrix, new: Matrix, *fail_on: str) -> dict[str, object]:
    found = compare.compare(old, new, force=True)
    made = comparison.document(found, fail_on, found.regressions(fail_on))
    VALIDATOR.validate(made)
    # NaN and infinity have no word in JSON.
    json.dumps(made, allow_nan=False)
    return made


def test_the_schema_is_one() -> None:
    jsonschema.Draft202012Validator.check_schema(VALIDATOR.schema)


def test_what_is_slower_is_there_with_figures_in_nanoseconds() -> None:
    old, new = matrices.made_up(1, drift=0.02), matrices.made_up(2, drift=0.02, times={("launch", "spin"): 2.0})
    made = document(old, new, "worse")
    assert made["regressions"] == [{"row": "launch", "column": "spin"}]
    cell = next(c for c in made["cells"] if (c["row"], c["column"]) == ("launch", "spin"))  # type: ignore[attr-defined]
    part = next(p for p in cell["parts"] if (p["phase"], p["quantile"]) == ("call", "p50"))
    assert 2500 < part["old_ns"] < 2900
    assert part["ratio"] == pytest.approx(part["new_ns"] / part["old_ns"], abs=0.01)
    assert (part["change"], part["op"]) == ("worse", None)
    assert document(old, new)["regressions"] == []


def test_every_kind_of_cell_can_be_told_in_both_directions() -> None:
    kinds = matrix_examples.every_kind()
    well = kinds.changed(cells={k: c.changed(status=Status.OK, reason=None) for k, c in kinds.cells.items()})
    for old, new in ((kinds, kinds), (kinds, well), (well, kinds)):
        made = document(old, new, "worse", "starved", "better", "unsure")
        assert sum(made["counts"].values()) == len(made["cells"])  # type: ignore[attr-defined, arg-type]


def test_cells_of_one_check_alone_are_named() -> None:
    old = matrices.made_up(1)
    made = document(old, matrices.made_up(2, rows=matrices.ROWS[:2], columns=matrices.COLUMNS[:3]))
    assert {"row": "d2h-pinned", "column": "spin"} in made["only_old"]  # type: ignore[operator]
    assert made["only_new"] == []


def test_hostile_names_stay_names() -> None:
    evil = matrix_examples.hostile()
    assert document(evil, evil)
