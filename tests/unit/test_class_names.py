"""One concept, one name: no two classes of the product have the same one."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def is_layout(node: ast.ClassDef) -> bool:
    """Whether a class is the layout of a structure of C, which has the name of that."""
    return any(ast.unparse(base).startswith("ctypes.") for base in node.bases)


def test_no_two_classes_have_one_name() -> None:
    places = defaultdict(list)
    for path in sorted([*(ROOT / "app").rglob("*.py"), *(ROOT / "probes").rglob("*.py")]):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not is_layout(node):
                places[node.name].append(str(path.relative_to(ROOT)))
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
