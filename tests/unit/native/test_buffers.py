"""The buffer pool and its native callbacks, called from several threads as CUPTI does."""

from __future__ import annotations

import ctypes
import itertools
import mmap
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.fake_cupti import complete, request
from factories.stand_in import COMPILER
from stallprobes.native.building.libraries import write_header
from stallprobes.native.layouts.cupti import (
    BUFFER_BYTES,
    LARGE_BUFFER_BYTES,
    LARGE_BUFFERS,
    MOST_BUFFERS,
    BufferPool,
    BufferState,
)
from stallprobes.native.library import core
from stallprobes.native.sources import NATIVE

REGISTERED = ("requested", "completed", "timestamp")


def callbacks() -> dict[str, int]:
    """What is registered with CUPTI."""
    return {name: core().address(f"ss_{name}") for name in REGISTERED}


def states(pool: BufferPool) -> Counter[BufferState]:
    """How many buffers are in each state."""
    return Counter(BufferState(buffer.state) for buffer in pool.states)


@pytest.fixture(name="pool")
def _pool() -> Iterator[BufferPool]:
    core().discard_buffers(1)
    yield core().pool
    core().discard_buffers(1)


def test_buffers_are_aligned_distinct_and_of_one_size(pool: BufferPool) -> None:
    taken = [request(callbacks()) for _ in range(MOST_BUFFERS)]
    addresses = sorted(address for address, _ in taken)
    assert {size for _, size in taken} == {BUFFER_BYTES}
    assert all(address % 8 == 0 for address in addresses)
    assert all(later - earlier >= BUFFER_BYTES for earlier, later in itertools.pairwise(addresses))
    assert states(pool) == {BufferState.WITH_CUPTI: MOST_BUFFERS}


def test_without_a_free_buffer_cupti_gets_none_and_it_is_counted(pool: BufferPool) -> None:
    for _ in range(MOST_BUFFERS):
        request(callbacks())
    before = pool.exhausted
    assert request(callbacks()) == (0, 0)
    assert pool.exhausted == before + 1


@pytest.mark.usefixtures("pool")
def test_completed_buffers_come_in_the_order_of_their_completion() -> None:
    native = callbacks()
    taken = [request(native) for _ in range(3)]
    for which in (2, 0, 1):
        complete(native, *taken[which], valid=which)
    order = []
    for _ in range(3):
        order.append(core().oldest_completed())
        core().release_buffer(order[-1])
    assert order == [2, 0, 1]
    assert core().oldest_completed() == -1


@pytest.mark.usefixtures("pool")
def test_a_buffer_of_somebody_else_is_ignored() -> None:
    complete(callbacks(), 4096, 100, 100)
    assert core().oldest_completed() == -1


def injected(folder: Path) -> ctypes.CDLL:
    """The buffers of the injected library, as a library of their own."""
    write_header(folder)
    includes = [f"-I{path}" for path in (folder, NATIVE / "common", NATIVE / "cupti")]
    source, target = NATIVE / "cupti" / "buffers.c", folder / "buffers.so"
    flags = ["-D_GNU_SOURCE", "-shared", "-fPIC"]
    subprocess.run([str(COMPILER), *flags, *includes, str(source), "-o", str(target)], check=True)
    return ctypes.CDLL(str(target))


def native_of(library: ctypes.CDLL) -> dict[str, int]:
    """The callbacks of a library of buffers."""
    return {name: ctypes.cast(library[f"ss_{name}"], ctypes.c_void_p).value or 0 for name in REGISTERED[:2]}


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_the_first_buffers_of_the_injected_library_are_large(tmp_path: Path) -> None:
    library = injected(tmp_path)
    pool = BufferPool.in_dll(library, "ss_pool")
    native = native_of(library)
    # Without memory there is none.
    assert request(native) == (0, 0)
    complete(native, 4096, 100, 100)
    memory = (ctypes.c_uint8 * (LARGE_BUFFERS * LARGE_BUFFER_BYTES + (MOST_BUFFERS - LARGE_BUFFERS) * BUFFER_BYTES))()
    library.ss_place_buffers(memory)
    library.ss_use_buffers(LARGE_BUFFERS, MOST_BUFFERS - LARGE_BUFFERS)
    taken = [request(native) for _ in range(MOST_BUFFERS)]
    assert [size for _, size in taken] == [LARGE_BUFFER_BYTES] * LARGE_BUFFERS + [BUFFER_BYTES] * (
        MOST_BUFFERS - LARGE_BUFFERS
    )
    assert all(later - earlier == size for (earlier, size), (later, _) in itertools.pairwise(taken))
    chosen = (0, LARGE_BUFFERS - 1, LARGE_BUFFERS, MOST_BUFFERS - 1)
    for number in chosen:
        address, size = taken[number]
        complete(native, address, size, valid=number)
    completed = [number for number, buffer in enumerate(pool.states) if buffer.state == BufferState.COMPLETED]
    assert tuple(completed) == chosen
    assert [pool.states[number].valid for number in chosen] == list(chosen)
    complete(native, taken[0][0] - 64, 100, 100)
    complete(native, taken[-1][0] + BUFFER_BYTES, 100, 100)
    assert pool.returned == len(chosen)


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_the_injected_library_uses_as_many_buffers_as_there_is_room_for(tmp_path: Path) -> None:
    library = injected(tmp_path)
    native = native_of(library)
    size = LARGE_BUFFERS * LARGE_BUFFER_BYTES + (MOST_BUFFERS - LARGE_BUFFERS) * BUFFER_BYTES
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    library.ss_place_buffers(ctypes.byref(ctypes.c_char.from_buffer(memory)))
    library.ss_use_buffers(1, 2)
    taken = [request(native) for _ in range(4)]
    assert [size for _, size in taken] == [LARGE_BUFFER_BYTES, BUFFER_BYTES, BUFFER_BYTES, 0]
    for address, size in taken[:3]:
        ctypes.memset(address, 1, size)
    complete(native, *taken[0], valid=8)
    library.ss_release_buffer(library.ss_oldest_completed())
    # The pages of a free buffer are given back, and of those with CUPTI none.
    library.ss_return_pages()
    assert [ctypes.string_at(address, size).strip(b"\1") for address, size in taken[:3]] == [
        b"\0" * LARGE_BUFFER_BYTES, b"", b""
    ]  # fmt: skip
    library.ss_use_buffers(0, 3)
    # One that is still with CUPTI comes back in a later recording.
    assert request(native)[1] == BUFFER_BYTES
    assert request(native) == (0, 0)
    complete(native, *taken[2], valid=8)
    assert library.ss_oldest_completed() == LARGE_BUFFERS + 1


@pytest.mark.skipif(COMPILER is None, reason="no C compiler")
def test_a_buffer_is_small_or_large_as_is_asked_for_while_one_is_free(tmp_path: Path) -> None:
    library = injected(tmp_path)
    memory = (ctypes.c_uint8 * (LARGE_BUFFERS * LARGE_BUFFER_BYTES + (MOST_BUFFERS - LARGE_BUFFERS) * BUFFER_BYTES))()
    library.ss_place_buffers(memory)
    library.ss_use_buffers(2, 2)

    def give(small: int) -> int:
        buffer, size, most = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
        library.ss_give_buffer(ctypes.byref(buffer), ctypes.byref(size), ctypes.byref(most), small)
        assert bool(buffer.value) == bool(size.value)
        return size.value

    assert [give(small) for small in (1, 0, 1, 1, 1)] == [
        BUFFER_BYTES, LARGE_BUFFER_BYTES, BUFFER_BYTES, LARGE_BUFFER_BYTES, 0
    ]  # fmt: skip


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
        number = core().oldest_completed()
        if number >= 0:
            core().release_buffer(number)
            done += 1
        else:
            time.sleep(0)
    for thread in threads:
        thread.join()
    assert not wrong
    assert states(pool) == {BufferState.FREE: MOST_BUFFERS}


def test_discarding_frees_completed_buffers_and_those_of_a_detached_cupti_only_when_asked(pool: BufferPool) -> None:
    native = callbacks()
    held, done = request(native), request(native)
    complete(native, done[0], done[1], 100)
    assert states(pool) == {BufferState.FREE: MOST_BUFFERS - 2, BufferState.WITH_CUPTI: 1, BufferState.COMPLETED: 1}
    assert core().discard_buffers(0) == 0
    assert states(pool) == {BufferState.FREE: MOST_BUFFERS - 1, BufferState.WITH_CUPTI: 1}
    assert request(native) == done
    assert core().discard_buffers(1) == 0
    assert states(pool) == {BufferState.FREE: MOST_BUFFERS}
    assert request(native) == held


def test_timestamps_are_those_of_the_monotonic_clock() -> None:
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    found = ctypes.CFUNCTYPE(ctypes.c_uint64)(callbacks()["timestamp"])()
    assert before <= found <= time.clock_gettime_ns(time.CLOCK_MONOTONIC)
