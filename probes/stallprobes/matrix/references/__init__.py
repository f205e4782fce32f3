"""The references in the package: a file for each, their names and texts. Imports nothing that measures."""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.resources.abc import Traversable


def names() -> tuple[str, ...]:
    """The names of the references in the package."""
    return tuple(sorted(file.name.removesuffix(".json") for file in _folder().iterdir() if file.name.endswith(".json")))


def text(name: str) -> str:
    """The document of the reference ``name``, one of ``names()``."""
    return (_folder() / f"{name}.json").read_text(encoding="utf-8")


def _folder() -> Traversable:
    return resources.files(__name__)
