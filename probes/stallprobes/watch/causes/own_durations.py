"""Durations of functions of the driver without a wait, as measured on an idle GPU.

``call_durations.json`` is what tests/benchmarks/bench_call_durations.py measured, with GPU, driver and date.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from stallprobes.native.layouts.driver_calls import plain_name

# File with the measured durations of driver functions, by function.
FILE = Path(__file__).with_name("call_durations.json")
# Largest usual duration of a call, as a multiple of the longest measured duration of the call's function. MOST_MORE_NS
# is added to the limit. Reason for both: machines differ.
MOST_TIMES = 4.0
# Time (ns) that is added to the largest usual duration of a call (see MOST_TIMES).
MOST_MORE_NS = 1_000_000
# Version at the end of a driver function's name.
_VERSION = re.compile(r"_v\d+$")
# Functions that were not measured, each with the measured function whose durations are used instead.
_SAME = {
    "cuMemAllocHost": "cuMemHostAlloc",
    "cuMemAllocPitch": "cuMemAlloc",
    "cuMemAllocManaged": "cuMemAlloc",
    "cuMemAllocFromPoolAsync": "cuMemAllocAsync",
    "cuStreamCreateWithPriority": "cuStreamCreate",
    "cuDevicePrimaryCtxReset": "cuDevicePrimaryCtxRelease",
}


@cache
def _measured() -> dict[str, Any]:
    durations: dict[str, Any] = json.loads(FILE.read_bytes())
    return durations


def longest_ns(function: str, size: int | None) -> int | None:
    """Longest measured time (ns) that a function took by itself; None without a measurement.

    Between and beyond the measured sizes (bytes), the duration grows evenly. Without a size, as for a free, it is the
    longest of all.
    """
    name = _VERSION.sub("", plain_name(function))
    rows = _measured()["functions"].get(_SAME.get(name, name))
    if rows is None:
        return None
    sizes, longest = [row[0] for row in rows], np.maximum.accumulate([row[2] for row in rows]).tolist()
    if size is None or len(rows) == 1:
        return int(longest[-1])
    if size > sizes[-1]:
        return int(longest[-1] * size / sizes[-1])
    return round(float(np.interp(size, sizes, longest)))


def is_usual(function: str, size: int | None, duration_ns: int) -> bool:
    """True if a function takes as long by itself; False without a measurement."""
    longest = longest_ns(function, size)
    return longest is not None and duration_ns <= MOST_TIMES * longest + MOST_MORE_NS
