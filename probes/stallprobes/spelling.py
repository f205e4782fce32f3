"""Nearest of known names to one that is unknown: what an error suggests."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Smallest length (characters) of an unknown name for which known names that begin with the unknown name are suggested.
_SHORTEST_BEGINNING = 2


def nearest(name: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """The shortest of ``known`` that begins with ``name``, else the closest by its spelling; None if none is close.

    ``cutoff`` is the smallest similarity, from 0 to 1, of a name that is close.
    """
    names = list(known)
    begun = [each for each in names if len(name) >= _SHORTEST_BEGINNING and each.startswith(name)]
    if begun:
        return min(begun, key=len)
    return next(iter(difflib.get_close_matches(name, names, n=1, cutoff=cutoff)), None)
