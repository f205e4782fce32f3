"""Histograms in a JSON document, ``{"max_ns":65,"histogram":[[64,1],[65,3]]}``: many are converted at once.

They are most of a check. JSON's decoder takes ten times as long as one search for them in the text and a conversion of
all their numbers by numpy. Only those in a document without spaces, as ``save`` writes it, are converted this way.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.files.json_stream import Extraction
from stallprobes.latency.histogram import LOWER, MOST, Histogram, HistogramBlock, indices


def decoded_object(found: dict[str, Any]) -> Any:
    """``found``, or the Histogram if it is one: as JSON types it takes ten times the memory."""
    if "histogram" in found and len(found) == 2 and "max_ns" in found:
        with contextlib.suppress(ValueError):
            return Histogram.read(found["histogram"], found["max_ns"])
    return found


def read_objects(objects: Sequence[bytes]) -> list[dict[str, Histogram] | None]:
    """The histograms in the texts of ``objects``, without their braces, which the pattern has matched.

    None for one that is not valid.
    """
    try:
        return _named(objects)
    except ValueError:
        return [_valid_object(one) for one in objects]


def _valid_object(text: bytes) -> dict[str, Histogram] | None:
    try:
        return _named([text])[0]
    except ValueError:
        return None


def _named(objects: Sequence[bytes]) -> list[dict[str, Histogram] | None]:
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
    histograms = iter(block.histograms())
    return [{name: next(histograms) for name in each} for each in names]


@lru_cache(maxsize=256)
def _names(names: tuple[bytes, ...]) -> tuple[str, ...]:
    if len(set(names)) < len(names):
        raise ValueError
    return tuple([name.decode("ascii") for name in names])


def _converted(maxima: list[int], pairs: Sequence[bytes]) -> HistogramBlock:
    """The histograms. Raises ValueError if one is not valid."""
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
        or _DIGITS[places].sum() + _digits(counts) != digits
    ):
        raise ValueError
    used[0] = places
    sums = np.concatenate(([0], np.cumsum(counts)))
    return HistogramBlock(used, [0, *ends.tolist()], maxima, (sums[ends] - sums[starts]).tolist())


def _flat(pairs: Sequence[bytes]) -> tuple[NDArray[np.int64], list[int], int]:
    """All numbers of several lists of pairs such as ``[[64,1],[65,3]]``, the length of each list, and the digits.

    The number of digits tells a number without any, or one that begins with a zero. Raises ValueError for other text.
    """
    text = b",".join([one[1:-1] for one in pairs if one != b"[]"])
    between = text.translate(None, b"0123456789")
    count = (len(between) + 1) // 4
    # No digit is outside of the pairs.
    apart = not count or (text[:1] == b"[" and text[-1:] == b"]" and text.count(b"],[") + 1 == count)
    if not apart or between != (b"[,]," * count)[:-1]:
        raise ValueError
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


_NUMBER = r"(?:0|[1-9][0-9]{0,15})"
# A name without escapes.
_NAMED = rf'"[ !#-\[\]-~]*":\{{"max_ns":{_NUMBER},"histogram":\[[0-9,\[\]]*\]\}}'
# The histograms of a check, which are most of it.
HISTOGRAMS = Extraction(re.compile(rf":\{{({_NAMED}(?:,{_NAMED})*+)\}}".encode()), read_objects, (b"}}", b"}"))
