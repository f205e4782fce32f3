"""The buffer pool and its native callbacks, called from several threads as CUPTI does."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from factories.fake_cupti import complete, request
from stallprobes.engine.native import compiled
from stallprobes.engine.timeline import buffers
from stallprobes.engine.timeline.buffers import BufferPool, callbacks, discard_address, oldest_completed, process_pool


@compiled("int64(int64)")
def oldest(pool: int) -> int:
    return oldest_completed(pool)


def release(pool: BufferPool, number: int) -> None:
    pool.words[buffers.HEADER + buffers.SLOT * number] = buffers.FREE


def with_cupti(pool: BufferPool) -> int:
    return int((pool.words[buffers.HEADER :: buffers.SLOT] == buffers.WITH_CUPTI).sum())


def states(pool: BufferPool) -> Counter[int]:
    """How many buffers are in each state."""
    return Counter(pool.words[buffers.HEADER :: buffers.SLOT].tolist())


@pytest.fixture(name="pool")
def _pool() -> Iterator[BufferPool]:
    pool = process_pool()
    pool.words[buffers.HEADER :] = 0
    yield pool
    pool.words[buffers.HEADER :] = 0


def test_buffers_are_aligned_distinct_and_of_one_size(pool: BufferPool) -> None:
    taken = [request(callbacks()) for _ in range(buffers.BUFFERS)]
    addresses = sorted(address for address, _ in taken)
    assert {size for _, size in taken} == {buffers.BUFFER_BYTES}
    assert all(address % 8 == 0 for address in addresses)
    assert np.diff(addresses).min() >= buffers.BUFFER_BYTES
    assert with_cupti(pool) == buffers.BUFFERS


def test_without_a_free_buffer_cupti_gets_none_and_it_is_counted(pool: BufferPool) -> None:
    for _ in range(buffers.BUFFERS):
        request(callbacks())
    before = pool.exhausted
    assert request(callbacks()) == (0, 0)
    assert pool.exhausted == before + 1


def test_completed_buffers_come_in_the_order_of_their_completion(pool: BufferPool) -> None:
    native = callbacks()
    taken = [request(native) for _ in range(3)]
    for which in (2, 0, 1):
        complete(native, *taken[which], valid=which)
    order = []
    for _ in range(3):
        order.append(oldest(pool.address))
        release(pool, order[-1])
    assert order == [2, 0, 1]
    assert oldest(pool.address) == -1


def test_a_buffer_of_somebody_else_is_ignored(pool: BufferPool) -> None:
    complete(callbacks(), 4096, 100, 100)
    assert oldest(pool.address) == -1


def test_threads_that_request_and_complete_never_share_a_buffer(pool: BufferPool) -> None:
    native, rounds = callbacks(), 300
    wrong: list[int] = []

    def work(mark: int) -> None:
        for _ in range(rounds):
            address, size = request(native)
            # None is free while those that are completed wait for their release.
            while not address:
                time.sleep(0)
                address, size = request(native)
            word = ctypes.c_int64.from_address(address)
            word.value = mark
            time.sleep(0)
            if word.value != mark:
                wrong.append(mark)
            complete(native, address, size, 8)

    threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
    for thread in threads:
        thread.start()
    done = 0
    while done < rounds * len(threads):
        number = oldest(pool.address)
        if number >= 0:
            release(pool, number)
            done += 1
        else:
            time.sleep(0)
    for thread in threads:
        thread.join()
    assert not wrong
    assert with_cupti(pool) == 0


def test_discarding_frees_completed_buffers_and_those_of_a_detached_cupti_only_when_asked(pool: BufferPool) -> None:
    discard = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(discard_address())
    native = callbacks()
    held, done = request(native), request(native)
    complete(native, done[0], done[1], 100)
    assert states(pool) == {buffers.FREE: buffers.BUFFERS - 2, buffers.WITH_CUPTI: 1, buffers.COMPLETED: 1}
    assert discard(0) == 0
    assert states(pool) == {buffers.FREE: buffers.BUFFERS - 1, buffers.WITH_CUPTI: 1}
    assert request(native) == done
    assert discard(1) == 0
    assert states(pool) == {buffers.FREE: buffers.BUFFERS}
    assert request(native) == held


def test_timestamps_are_those_of_the_monotonic_clock() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    found = ctypes.CFUNCTYPE(ctypes.c_uint64)(callbacks()["timestamp"])()
    assert before <= found <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)


def test_the_cached_callbacks_use_the_pool_of_their_own_process() -> None:
    callbacks()
    code = (
        "import sys\n"
        "sys.modules['scipy'] = None\n"
        "from stallprobes.engine.timeline.buffers import *\n"
        "from factories.fake_cupti import request\n"
        "pad = bytearray(1 << 22)\n"
        "address, size = request(callbacks())\n"
        "assert address == process_pool().words[POOL_BASE] and size == BUFFER_BYTES\n"
    )
    subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=True
    )
