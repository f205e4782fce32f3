"""Buffers that CUPTI fills: a fixed pool without locks, and the native callbacks that hand them over.

CUPTI calls from its own threads and from those of the probes. The callbacks are compiled and touch neither Python nor
the heap. The memory of the pool is never freed: CUPTI may hold a buffer until it is detached.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.native import (
    add,
    c_callback,
    clock_gettime,
    clock_ns,
    compare_exchange,
    compiled,
    external_address,
    invoke,
    load,
    load_u32,
    set_external_address,
    store,
)

BUFFER_BYTES = 64 * 1024
BUFFERS = 128

# Words of the pool's header, then of each buffer. FINALIZE is the address of cuptiFinalize while CUPTI is to be
# detached, FINALIZED what it returned.
(
    POOL_BASE, POOL_BUFFERS, POOL_BUFFER_BYTES, POOL_TICKETS, POOL_EXHAUSTED, POOL_TAKEN, POOL_RETURNED, POOL_FINALIZE,
    POOL_FINALIZED,
) = range(9)  # fmt: skip
HEADER = 16
SLOT = 8
SLOT_STATE, SLOT_VALID, SLOT_TICKET = range(3)
FREE, WITH_CUPTI, COMPLETED = range(3)

# CUpti_ApiCallbackSite, at the beginning of CUpti_CallbackData.
_EXIT = 1
_NAME = "stallscope_timeline_pool"
_pool = external_address(_NAME)


def _requested(buffer: int, size: int, most: int) -> None:
    pool = _pool()
    store(most, 0)
    for number in range(load(pool + 8 * POOL_BUFFERS)):
        slot = pool + 8 * (HEADER + SLOT * number)
        if compare_exchange(slot, FREE, WITH_CUPTI) == FREE:
            add(pool + 8 * POOL_TAKEN, 1)
            bytes_each = load(pool + 8 * POOL_BUFFER_BYTES)
            store(size, bytes_each)
            store(buffer, load(pool + 8 * POOL_BASE) + number * bytes_each)
            return
    # CUPTI drops records without a buffer, and counts them.
    add(pool + 8 * POOL_EXHAUSTED, 1)
    store(size, 0)
    store(buffer, 0)


def _completed(_context: int, _stream: int, buffer: int, _size: int, valid: int) -> None:
    pool = _pool()
    bytes_each = load(pool + 8 * POOL_BUFFER_BYTES)
    number = (buffer - load(pool + 8 * POOL_BASE)) // bytes_each
    if number < 0 or number >= load(pool + 8 * POOL_BUFFERS):
        return
    slot = pool + 8 * (HEADER + SLOT * number)
    store(slot + 8 * SLOT_VALID, valid)
    store(slot + 8 * SLOT_TICKET, add(pool + 8 * POOL_TICKETS, 1))
    store(slot, COMPLETED)
    add(pool + 8 * POOL_RETURNED, 1)


def _discard(with_cupti: int) -> int:
    """Free the completed buffers without reading them, and those that CUPTI holds if ``with_cupti`` is not 0."""
    pool = _pool()
    for number in range(load(pool + 8 * POOL_BUFFERS)):
        slot = pool + 8 * (HEADER + SLOT * number)
        if load(slot) == COMPLETED or (with_cupti != 0 and load(slot) == WITH_CUPTI):
            store(slot, FREE)
    return 0


def _timestamp() -> int:
    return clock_ns(clock_gettime())


def _detach(_user: int, _domain: int, _number: int, data: int) -> None:
    # NVIDIA's documentation advises to call it here.
    if load_u32(data) != _EXIT:
        return
    pool = _pool()
    finalize = load(pool + 8 * POOL_FINALIZE)
    if finalize != 0:
        store(pool + 8 * POOL_FINALIZE, 0)
        store(pool + 8 * POOL_FINALIZED, invoke(finalize, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) & 0xFFFFFFFF)


@compiled()
def oldest_completed(pool: int) -> int:
    """The number of the buffer that was completed first and not yet released; -1 if there is none."""
    found = -1
    first = 0
    for number in range(load(pool + 8 * POOL_BUFFERS)):
        slot = pool + 8 * (HEADER + SLOT * number)
        if load(slot) == COMPLETED:
            ticket = load(slot + 8 * SLOT_TICKET)
            if found < 0 or ticket < first:
                found, first = number, ticket
    return found


class BufferPool:
    """The pool of this process. ``address`` is that of its words, ``words`` the words themselves."""

    def __init__(self, buffers: int = BUFFERS, buffer_bytes: int = BUFFER_BYTES) -> None:
        self._memory: NDArray[np.uint8] = np.zeros(buffers * buffer_bytes + 64, dtype=np.uint8)
        self.words: NDArray[np.int64] = np.zeros(HEADER + SLOT * buffers, dtype=np.int64)
        # CUPTI wants buffers aligned to 8 bytes.
        base = -(-self._memory.ctypes.data // 64) * 64
        self.words[[POOL_BASE, POOL_BUFFERS, POOL_BUFFER_BYTES]] = base, buffers, buffer_bytes
        self.address = int(self.words.ctypes.data)

    @property
    def exhausted(self) -> int:
        """How often CUPTI asked for a buffer and got none."""
        return int(self.words[POOL_EXHAUSTED])

    def take_back(self) -> None:
        """Release the buffers that CUPTI held when it was detached."""
        states = self.words[HEADER::SLOT]
        states[states == WITH_CUPTI] = FREE


@cache
def process_pool() -> BufferPool:
    """The pool that the callbacks use; it lasts as long as the process."""
    pool = BufferPool()
    set_external_address(_NAME, pool.address)
    return pool


@cache
def callbacks() -> dict[str, int]:
    """The addresses of the callbacks: ``requested``, ``completed``, ``timestamp``, and ``detach`` for a subscriber."""
    process_pool()
    return {
        "requested": c_callback("void(int64, int64, int64)")(_requested),
        "completed": c_callback("void(int64, int64, int64, int64, int64)")(_completed),
        "timestamp": c_callback("int64()")(_timestamp),
        "detach": c_callback("void(int64, int64, int64, int64)")(_detach),
    }


@cache
def discard_address() -> int:
    """The address of ``native:discard_records``: with 0 it frees the completed buffers, with 1 all of them.

    All of them only while CUPTI is detached from the process.
    """
    process_pool()
    return c_callback("int64(int64)")(_discard)
