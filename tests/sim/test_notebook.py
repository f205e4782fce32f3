"""The example of a notebook, run with the simulated GPU: what its cells print and show."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

from factories.html_tables import tables

NOTEBOOK = Path(__file__).parents[2] / "probes" / "examples" / "notebook.py"
pytestmark = pytest.mark.usefixtures("forked_engines")


def cells() -> list[str]:
    """The code of each cell."""
    parts = f"\n{NOTEBOOK.read_text(encoding='utf-8')}".split("\n# %%")[1:]
    return [part for part in parts if not part.startswith(" [markdown]")]


def run_cell(code: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does: the value of its last line if that is an expression, else None."""
    *body, last = ast.parse(code).body
    if not isinstance(last, ast.Expr):
        exec(code, names)
        return None
    exec(compile(ast.Module(body, []), str(NOTEBOOK), "exec"), names)
    return eval(compile(ast.Expression(last.value), str(NOTEBOOK), "eval"), names)


def test_the_cells_of_the_example_show_results_as_tables(capsys: pytest.CaptureFixture[str]) -> None:
    names: dict[str, Any] = {}
    shown = [value for code in cells() if (value := run_cell(code, names)) is not None]
    assert [type(value).__name__ for value in shown] == ["RunResult", "Matrix"]
    for value in shown:
        ((caption, rows),) = tables(value._repr_html_())
        assert "SIMULATED h200" in caption
        assert len(rows) > 1
        assert repr(value)[1:-1] == caption.partition(". ")[0]
    printed = capsys.readouterr().out
    assert "kernel-other-context" in printed
    assert "graphics engine runs one context at a time" in printed
    assert ("launch", "host-alloc-free") in names["stalled"]
