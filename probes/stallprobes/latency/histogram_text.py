"""Histograms in a JSON document, ``{"max_ns": 65, "histogram": [[64, 1], [65, 3]]}``: many are converted at once.

They are most of a check. JSON's decoder takes ten times as long as one search for them in the text and a conversion of
all their numbers by numpy.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from itertools import chain, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.files.json_stream import Extraction
from stallprobes.latency.histogram import LOWER
from stallprobes.latency.sparse import MOST, SparseHistogram


def decoded_object(found: dict[str, Any]) -> Any:
    """``found``, or the SparseHistogram if it is one: as JSON types it takes ten times the memory."""
    if "histogram" in found and len(found) == 2 and "max_ns" in found:
        with contextlib.suppress(ValueError):
            return SparseHistogram.read(found["histogram"], found["max_ns"])
    return found


def _histograms(
    before: Sequence[bytes | None], pairs: Sequence[bytes], after: Sequence[bytes | None]
) -> list[SparseHistogram | None]:
    """The histograms with the lists ``pairs`` and their ``max_ns``, which comes before or after; None without one."""
    both = zip(before, after, strict=True)
    return read_many([(one or b"") if other is None else b"" if one else other for one, other in both], pairs)


_S = r"[ \t\n\r]*"
_WHOLE = rf'"max_ns"{_S}:{_S}(0|[1-9][0-9]{{0,15}})'
_PAIRS = rf'"histogram"{_S}:{_S}(\[[0-9,\[\] \t\n\r]*\])'
# The histograms of a check, which are most of it.
HISTOGRAMS = Extraction(
    re.compile(rf":{_S}\{{{_S}(?:{_WHOLE}{_S},{_S})?{_PAIRS}{_S}(?:,{_S}{_WHOLE}{_S})?\}}".encode()), _histograms
)


def read_many(maxima: Sequence[bytes], pairs: Sequence[bytes]) -> list[SparseHistogram | None]:
    """The histograms with the numbers ``maxima`` and the lists ``pairs``, both as JSON text, as ``read`` returns them.

    None for one that is not valid. One by one takes five times as long.
    """
    try:
        return _converted([int(one) for one in maxima], pairs)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return [_valid(*one) for one in zip(maxima, pairs, strict=True)]


def _valid(max_ns: bytes, pairs: bytes) -> SparseHistogram | None:
    try:
        return SparseHistogram.read(json.loads(pairs), int(max_ns))
    except (ValueError, RecursionError):
        return None


def _converted(maxima: list[int], pairs: Sequence[bytes]) -> list[SparseHistogram | None]:
    """The histograms. Raises ValueError, TypeError, OverflowError or RecursionError if one is not valid."""
    flat, sizes, digits = _flat(pairs)
    used = flat.reshape(-1, 2).T.copy()
    bounds, counts = used
    ends = np.cumsum(sizes)
    starts = ends - sizes
    filled = ends > starts
    places = np.searchsorted(LOWER, bounds, side="right") - 1
    ascending = np.ones(len(bounds), dtype=bool)
    ascending[1:] = places[1:] > places[:-1]
    ascending[starts[filled]] = True
    # As floats: the sum of integers could overflow.
    if (
        max(maxima) > MOST
        or not ascending.all()
        or (places < 0).any()
        or (LOWER[places] != bounds).any()
        or (counts < 1).any()
        or (counts > MOST).any()
        or (np.array(maxima)[filled] < bounds[ends[filled] - 1]).any()
        or counts.sum(dtype=np.float64) > MOST / 2
        or (digits is not None and _DIGITS[places].sum() + _digits(counts) != digits)
    ):
        raise ValueError
    used[0] = places
    sums = np.concatenate(([0], np.cumsum(counts)))
    totals = (sums[ends] - sums[starts]).tolist()
    return list(map(SparseHistogram.part, repeat(used), starts.tolist(), ends.tolist(), maxima, totals))


def _flat(pairs: Sequence[bytes]) -> tuple[NDArray[np.int64], list[int], int | None]:
    """All numbers of several lists of pairs such as ``[[64,1],[65,3]]``, and the length of each list.

    The third value is the number of digits if they have to be counted: a number may have none, or begin with a zero.
    Raises ValueError, TypeError, OverflowError or RecursionError for other text.
    """
    text = b",".join([one[1:-1] for one in pairs if one != b"[]"])
    if b" " in text:
        text = text.replace(b", ", b",")
    between = text.translate(None, b"0123456789")
    count = (len(between) + 1) // 4
    if between != (b"[,]," * count)[:-1]:
        return *_flat_lists([json.loads(one) for one in pairs]), None
    flat = np.fromstring(text.translate(None, b"[]"), np.int64, sep=",") if count else np.zeros(0, np.int64)
    return flat, [one.count(b"[") - 1 for one in pairs], len(text) - len(between)


# Number of decimal digits of each bucket's lower bound.
_DIGITS = np.array([len(str(bound)) for bound in LOWER.tolist()])


def _digits(numbers: NDArray[np.int64]) -> int:
    """Number of decimal digits of all ``numbers``, which are above 0."""
    found, left = 0, numbers
    while len(left):
        found += len(left)
        left = left[left > 9] // 10
    return found


def _flat_lists(pairs: list[Any]) -> tuple[NDArray[np.int64], list[int]]:
    every = list(chain.from_iterable(pairs))
    flat = list(chain.from_iterable(every))
    if not set(map(type, every)) <= {list} or not set(map(len, every)) <= {2} or not set(map(type, flat)) <= {int}:
        raise ValueError
    return np.array(flat, dtype=np.int64), [len(one) for one in pairs]
