"""Choice of a reference: by its name, from a file, or the one in the package that fits a GPU and its driver."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from itertools import zip_longest
from pathlib import Path

from stallprobes.errors import CheckFileError
from stallprobes.matrix import reference_file, references
from stallprobes.matrix.matrix import Matrix
from stallprobes.matrix.reference import Reference, ReferenceComparison, real_name


def unusual(matrix: Matrix) -> ReferenceComparison | None:
    """Unusual cells of ``matrix`` by the fitting reference of the package.

    None if none fits or if it has none of the cells.
    """
    reference = reference_for(matrix)
    comparison = None if reference is None else reference.unusual(matrix)
    return comparison if comparison is not None and comparison.compared else None


@cache
def shipped(name: str) -> Reference:
    """The reference ``name`` of the package. Raises KeyError for an unknown name."""
    if name not in references.names():
        raise KeyError(name)
    return reference_file.read(references.text(name).encode())


def load(name: str) -> Reference:
    """The reference called ``name``, or in the file ``name`` if that ends in ``.json``. Raises CheckFileError."""
    if name in references.names():
        return shipped(name)
    if not name.endswith(".json"):
        names = ", ".join(references.names())
        raise CheckFileError(f"there is no reference “{name}”: use {names}, or the path of a .json file")
    return reference_file.load(Path(name))


def reference_for(matrix: Matrix) -> Reference | None:
    """The reference in the package for the GPU model of ``matrix``, with the nearest driver; None if there is none."""
    return _nearest(
        (entry for entry in map(shipped, references.names()) if entry.misfit(matrix) is None),
        real_name(matrix.fingerprint.get("driver")),
    )


def reference_of_gpu(gpu: str, driver: str | None) -> Reference | None:
    """The reference in the package for the GPU model ``gpu``, with the nearest driver; None if there is none."""
    return _nearest((entry for entry in map(shipped, references.names()) if entry.misfit_of(gpu) is None), driver)


def _nearest(references: Iterable[Reference], driver: object) -> Reference | None:
    wanted = _version(driver)
    return min(references, key=lambda reference: _driver_distance(_version(reference.driver), wanted), default=None)


def _version(text: object) -> tuple[int, ...]:
    parts = text.split(".") if isinstance(text, str) else []
    return tuple(int(part) for part in parts if part.isascii() and part.isdigit())


def _driver_distance(first: Iterable[int], second: Iterable[int]) -> tuple[int, ...]:
    return tuple(abs(a - b) for a, b in zip_longest(first, second, fillvalue=0))
