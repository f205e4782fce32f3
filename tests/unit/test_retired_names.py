"""Names that the glossary retires: no module, class or function of the project has one."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
RETIRED = {
    "scope", "frame", "picture", "lane", "lanes", "bench", "benches", "tally", "chance", "desk", "sheet", "passages",
    "doing", "walking", "ahead", "letters", "crew", "turns", "yardstick", "seen", "picked", "paint", "threads",
    "words",
}  # fmt: skip
FILES = sorted([*(ROOT / "app").rglob("*.py"), *(ROOT / "probes").rglob("*.py")])


def retired(name: str) -> bool:
    """Whether ``name`` is a retired term, in any of the spellings of a module, class or function."""
    return name.lower().strip("_") in RETIRED


@pytest.mark.parametrize("path", FILES, ids=lambda path: "/".join(path.relative_to(ROOT).parts[2:]))
def test_no_module_class_or_function_has_a_retired_name(path: Path) -> None:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    names = [node.name for node in ast.walk(tree) if isinstance(node, kinds)]
    assert [name for name in (path.stem, *names) if retired(name)] == []
