"""Histograms in a JSON document, ``{"max_ns": 65, "histogram": [[64, 1], [65, 3]]}``: many are converted at once.

They are most of a check. JSON's decoder takes ten times as long as one search for them in the text and a conversion of
all their numbers by numpy. In a document without spaces, as stallscope writes it, all histograms of one object are
found together.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.files.json_stream import Extraction
from stallprobes.latency.histogram import LOWER, indices
from stallprobes.latency.histogram_block import HistogramBlock
from stallprobes.latency.sparse import MOST, SparseHistogram


def decoded_object(found: dict[str, Any]) -> Any:
    """``found``, or the SparseHistogram if it is one: as JSON types it takes ten times the memory."""
    if "histogram" in found and len(found) == 2 and "max_ns" in found:
        with contextlib.suppress(ValueError):
            return SparseHistogram.read(found["histogram"], found["max_ns"])
    return found


@dataclass(frozen=True, eq=False, slots=True)
class NamedHistograms:
    """An object of histograms: those of ``names`` are in ``block``, from number ``first`` on."""

    names: tuple[str, ...]
    block: HistogramBlock
    first: int

    def members(self) -> dict[str, SparseHistogram]:
        """The histograms by name."""
        return {name: self.block.histogram(self.first + place) for place, name in enumerate(self.names)}


def _extracted(
    objects: Sequence[bytes | None],
    before: Sequence[bytes | None],
    pairs: Sequence[bytes | None],
    after: Sequence[bytes | None],
) -> Sequence[NamedHistograms | SparseHistogram | None]:
    """The value of each match: of an object of histograms, or of one with the list ``pairs``.

    Its ``max_ns`` comes before or after; without one, the value is None.
    """
    if None not in objects:
        return read_objects([one for one in objects if one is not None])
    both = zip(before, after, strict=True)
    maxima = [(one or b"") if other is None else b"" if one else other for one, other in both]
    single = [place for place, one in enumerate(objects) if one is None]
    found: list[NamedHistograms | SparseHistogram | None] = [None] * len(objects)
    for place, one in zip(
        single, read_many([maxima[place] for place in single], [pairs[place] or b"" for place in single]), strict=True
    ):
        found[place] = one
    several = [(place, one) for place, one in enumerate(objects) if one is not None]
    for (place, _), named in zip(several, read_objects([one for _, one in several]), strict=True):
        found[place] = named
    return found


_S = r"[ \t\n\r]*"
_NUMBER = r"(?:0|[1-9][0-9]{0,15})"
_WHOLE = rf'"max_ns"{_S}:{_S}({_NUMBER})'
_PAIRS = rf'"histogram"{_S}:{_S}(\[[0-9,\[\] \t\n\r]*\])'
_ONE = rf"\{{{_S}(?:{_WHOLE}{_S},{_S})?{_PAIRS}{_S}(?:,{_S}{_WHOLE}{_S})?\}}"
# A name without escapes.
_NAMED = rf'"[ !#-\[\]-~]*":\{{"max_ns":{_NUMBER},"histogram":\[[0-9,\[\]]*\]\}}'
# The histograms of a check, which are most of it.
HISTOGRAMS = Extraction(
    re.compile(rf":(?:\{{({_NAMED}(?:,{_NAMED})*+)\}}|{_S}{_ONE})".encode()), _extracted, (b"}}", b"}")
)


def read_objects(objects: Sequence[bytes]) -> list[NamedHistograms | None]:
    """The histograms in the texts of ``objects``, without their braces, which the pattern has matched.

    None for one that is not valid.
    """
    try:
        return _named(objects)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return [_valid_object(one) for one in objects]


def _valid_object(text: bytes) -> NamedHistograms | None:
    try:
        return _named([text])[0]
    except (ValueError, TypeError, OverflowError, RecursionError):
        return None


def _named(objects: Sequence[bytes]) -> list[NamedHistograms | None]:
    """The histograms of ``objects``. Raises as ``_converted`` does, and ValueError for a name that occurs twice."""
    names: list[tuple[str, ...]] = []
    maxima: list[bytes] = []
    pairs: list[bytes] = []
    for one in objects:
        # "call":{"max_ns":65,"histogram":[[64,1],[65,3]]}, and so on: six parts for each histogram.
        parts = (one + b",").split(b'"')
        names.append(_names(tuple(parts[1::6])))
        maxima += parts[4::6]
        pairs += parts[6::6]
    block = _converted([int(one[1:-1]) for one in maxima], [one[1:-2] for one in pairs])
    found: list[NamedHistograms | None] = []
    first = 0
    for each in names:
        found.append(NamedHistograms(each, block, first))
        first += len(each)
    return found


@lru_cache(maxsize=256)
def _names(names: tuple[bytes, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError
    return tuple([name.decode("ascii") for name in names])


def read_many(maxima: Sequence[bytes], pairs: Sequence[bytes]) -> list[SparseHistogram | None]:
    """The histograms with the numbers ``maxima`` and the lists ``pairs``, both as JSON text, as ``read`` returns them.

    None for one that is not valid. One by one takes five times as long.
    """
    try:
        block = _converted([int(one) for one in maxima], pairs)
    except (ValueError, TypeError, OverflowError, RecursionError):
        return [_valid(*one) for one in zip(maxima, pairs, strict=True)]
    return [block.histogram(number) for number in range(len(pairs))]


def _valid(max_ns: bytes, pairs: bytes) -> SparseHistogram | None:
    try:
        return SparseHistogram.read(json.loads(pairs), int(max_ns))
    except (ValueError, RecursionError):
        return None


def _converted(maxima: list[int], pairs: Sequence[bytes]) -> HistogramBlock:
    """The histograms. Raises ValueError, TypeError, OverflowError or RecursionError if one is not valid."""
    flat, sizes, digits = _flat(pairs)
    used = flat.reshape(-1, 2).T.copy()
    bounds, counts = used
    ends = np.cumsum(sizes, dtype=np.int64)
    starts = ends - np.array(sizes, dtype=np.int64)
    filled = ends > starts
    places = indices(bounds)
    ascending = np.ones(len(bounds), dtype=bool)
    ascending[1:] = places[1:] > places[:-1]
    ascending[starts[filled]] = True
    # As floats: the sum of integers could overflow.
    if (
        max(maxima) > MOST
        or not ascending.all()
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
    return HistogramBlock(used, [0, *ends.tolist()], maxima, (sums[ends] - sums[starts]).tolist())


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
    # No digit is outside of the pairs.
    apart = not count or (text[:1] == b"[" and text[-1:] == b"]" and text.count(b"],[") + 1 == count)
    if not apart or between != (b"[,]," * count)[:-1]:
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
