"""Shapes of calls, GPU work, tenures and overheads: structured arrays, with times in ns."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]


class WorkRow(NamedTuple):
    """A row of WORK as Python's integers: they are read several times as fast as NumPy's.

    ``sequence`` is the record's number, ``kind`` a RecordKind, ``subkind`` a CopyKind. ``memory`` is the MemoryKind of
    the source plus 256 times the MemoryKind of the target. ``probe``, ``op``, ``iteration``, ``began_ns`` and
    ``returned_ns`` belong to the call that submitted the work; ``probe`` is -1 where it is not known.
    """

    sequence: int
    kind: int
    start_ns: int
    end_ns: int
    device: int
    context: int
    stream: int
    probe: int
    op: int
    iteration: int
    began_ns: int
    returned_ns: int
    subkind: int
    memory: int
    bytes: int
    correlation: int


def _int64s(*names: str) -> np.dtype[Any]:
    return np.dtype([(name, np.int64) for name in names])


# Row of a piece of work on the GPU.
WORK = _int64s(*WorkRow._fields)
# Row of a call of a probe, or of a watched program's thread. ``probe`` is the number of the probe or thread, and ``op``
# the number of the operation. ``measured`` is 1 for a measured call, and 0 for other calls.
CALL = _int64s("probe", "op", "iteration", "began_ns", "returned_ns", "measured")
# Row of a call of a watched program. ``stream`` and ``event`` are handles, ``source`` and ``target`` MemoryKinds, and
# ``flags`` CallFlags. ``function`` is the number of the function in the process's file.
DRIVER_CALL = np.dtype(
    [
        ("began_ns", np.int64), ("returned_ns", np.int64), ("stream", np.uint64), ("bytes", np.uint64),
        ("event", np.uint64), ("thread", np.uint32), ("context", np.uint32), ("correlation", np.uint32),
        ("function", np.uint16), ("source", np.uint8), ("target", np.uint8), ("flags", np.uint8),
    ]
)  # fmt: skip
# Columns that the WORK row of a piece of GPU work takes from the CALL row of the call that submitted the work.
OWNER = ["probe", "op", "iteration", "began_ns", "returned_ns"]
# Row of a tenure: the time in which one context has the GPU's graphics engine.
TENURE = _int64s("context", "start_ns", "end_ns")
# Row of a table of overheads: time that the driver or CUPTI itself takes, for example to load a module. ``sequence`` is
# the number of the record, and ``subkind`` an OverheadKind.
OVERHEAD = _int64s("sequence", "subkind", "start_ns", "end_ns")


# NumPy copies structured arrays field by field where it may choose or join rows, which takes ten times as long as to
# copy whole rows.


def rows_where(rows: NDArray[Any], chosen: NDArray[np.bool_]) -> NDArray[Any]:
    """``rows[chosen]`` of a structured array; ``rows`` themselves if all are chosen."""
    return rows if chosen.all() else rows.compress(chosen)


def of_kinds(rows: NDArray[Any], *kinds: int) -> NDArray[np.bool_]:
    """Which records (their field ``kind`` is uint16) are of some kinds."""
    return np.asarray(_table(kinds)[rows["kind"]], dtype=np.bool_)


@lru_cache
def _table(kinds: tuple[int, ...]) -> NDArray[np.bool_]:
    table = np.zeros(1 << 16, dtype=np.bool_)
    table[list(kinds)] = True
    return table


def rows_at(rows: NDArray[Any], places: NDArray[np.intp]) -> NDArray[Any]:
    """``rows[places]`` of a structured array."""
    return rows.take(places)


def joined(form: np.dtype[Any], parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
    """The rows of all ``parts``, which have the type ``form``, in their order."""
    plain = np.dtype((np.void, form.itemsize))
    return np.concatenate([np.zeros(0, plain), *(part.view(plain) for part in parts)]).view(form)
