"""Names that the glossary retires: no module, class or function of the project has one."""

from __future__ import annotations

import ast
from pathlib import Path

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


def names_of(path: Path) -> list[str]:
    """The names of a module, its classes and its functions."""
    kinds = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [path.stem, *(node.name for node in nodes if isinstance(node, kinds))]


def test_no_module_class_or_function_has_a_retired_name() -> None:
    found = {str(path.relative_to(ROOT)): list(filter(retired, names_of(path))) for path in FILES}
    assert {path: names for path, names in found.items() if names} == {}
