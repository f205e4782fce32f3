"""What is known of the functions of the driver, as columns of calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.driver_calls import DriverFunction, HostTask, function_of
from stallprobes.records.rows import Rows
from stallprobes.watch.intervals import Int64s

# Kinds and tasks of calls of a function, without and with pageable memory.
_KINDS, _HOLDS = (
    [partial(value, pageable=pageable) for pageable in (False, True)]
    for value in (DriverFunction.kind_of, DriverFunction.holds)
)
# Kind of a call of a function with pageable memory.
kind_if_pageable = _KINDS[1]


def columns_of(rows: Rows, functions: Mapping[int, str]) -> tuple[Int64s, Int64s]:
    """The kind of each of ``rows``, which are DRIVER_CALL (CallKind), and the task for whose end calls of other threads
    may wait (HostTask)."""
    kinds, holds = (np.concatenate([by_number(functions, value) for value in values]) for values in (_KINDS, _HOLDS))
    pageable = (rows["source"] == int(MemoryKind.PAGEABLE)) | (rows["target"] == int(MemoryKind.PAGEABLE))
    places = rows["function"] + pageable * (len(kinds) // 2)
    # Without a look at the bounds of each of two numbers.
    return kinds.take(places), holds.take(places)


def by_number(functions: Mapping[int, str], value: Callable[[DriverFunction], int]) -> Int64s:
    """The value of each of ``functions`` by its number, 0 for the numbers between. What ``value`` returns is kept."""
    return _by_number(tuple(functions.items()), value)


# Functions of several processes, and of the last readings of each.
@lru_cache(maxsize=256)
def _by_number(functions: tuple[tuple[int, str], ...], value: Callable[[DriverFunction], int]) -> Int64s:
    values = np.zeros(max((number for number, _ in functions), default=0) + 1, dtype=np.int64)
    for number, name in functions:
        values[number] = value(function_of(name))
    values.flags.writeable = False
    return values


def may_hold_up(holds: Any, contexts: Any, context: Any) -> NDArray[np.bool_]:
    """Which calls may hold up a call of ``context``, by what they hold and their contexts.

    The driver's locks are those of one context, but whoever makes or ends a context holds up all.
    """
    same = (holds != HostTask.NOTHING) & (contexts == context) & (contexts != 0)
    return np.asarray(same | (holds == HostTask.CONTEXT), dtype=np.bool_)
