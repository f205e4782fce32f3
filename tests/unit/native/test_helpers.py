"""What programs call as native:NAME, called by address as CUDA and the loop call it."""

from __future__ import annotations

import ctypes
import os
import resource
import threading
import time

import numpy as np
import pytest

from stallprobes.engine.host_resolver import libc_address
from stallprobes.native.library import core

MS = 1_000_000
# CUDA_ERROR_NOT_READY.
NOT_READY = 600
SHAPE = ctypes.CFUNCTYPE(ctypes.c_int64, *[ctypes.c_int64] * 11)


def call(name: str, *arguments: int) -> int:
    return int(SHAPE(core().helper(name))(*arguments, *[77] * (11 - len(arguments))))


def words(*values: int) -> tuple[np.ndarray[tuple[int, ...], np.dtype[np.int64]], int]:
    array = np.array(values, dtype=np.int64)
    return array, array.ctypes.data


def seconds(name: str, *arguments: int) -> float:
    since = time.monotonic()
    assert call(name, *arguments) == 0
    return time.monotonic() - since


def cpu_seconds(name: str, *arguments: int) -> float:
    """The CPU time that a helper takes, which does not depend on what else runs."""
    since = time.thread_time()
    assert call(name, *arguments) == 0
    return time.thread_time() - since


def test_store_and_add_change_a_word() -> None:
    array, at = words(1, 2, 3)
    assert call("store", at + 8, -(2**60)) == 0
    assert call("add", at + 16, 2**40) == 0
    assert call("add", at + 16, -1) == 0
    assert array.tolist() == [1, -(2**60), 3 + 2**40 - 1]


def test_adding_from_two_threads_loses_nothing() -> None:
    array, at = words(0)
    add = SHAPE(core().helper("add"))

    def many() -> None:
        for _ in range(20_000):
            add(at, 1, *[0] * 9)

    threads = [threading.Thread(target=many) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert array[0] == 40_000


def test_wait_returns_once_the_word_is_there() -> None:
    array, at = words(0)
    threading.Timer(0.05, lambda: array.__setitem__(0, 6)).start()
    assert call("wait", at, 5, 60_000 * MS) == 0
    assert array[0] == 6


def test_wait_gives_up_after_its_time() -> None:
    _, at = words(4)
    for ms in (5, 50):
        assert time_of_wait(at, ms) >= ms / 1000


def time_of_wait(at: int, ms: int) -> float:
    since = time.monotonic()
    assert call("wait", at, 5, ms * MS) == 1
    return time.monotonic() - since


def test_wait_does_not_hold_a_core() -> None:
    _, at = words(0)
    given = 0
    # It gives the core away once for each step, of which a busy machine makes few in a call.
    for _ in range(200):
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw
        assert call("wait", at, 1, 20 * MS) == 1
        given += resource.getrusage(resource.RUSAGE_THREAD).ru_nvcsw - before
        if given > 100:
            return
    raise AssertionError(f"only {given} times in 200 calls")


def test_sleep_takes_the_time_it_is_told() -> None:
    call("sleep", 1)
    for ms in (5, 50):
        assert seconds("sleep", ms * MS) >= ms / 1000
    assert call("sleep", -5) == 0


def test_work_takes_time_in_proportion_to_its_iterations() -> None:
    call("work", 1)
    few = min(cpu_seconds("work", 1_000_000) for _ in range(5))
    many = min(cpu_seconds("work", 8_000_000) for _ in range(5))
    assert 3 < many / few < 24
    assert call("work", 0) == 0


def queries(*codes: int) -> tuple[object, int, list[int]]:
    """A query that returns ``codes``, the last one again and again: what must stay alive, its address, its handles."""
    asked: list[int] = []

    def query(handle: int, *_: int) -> int:
        asked.append(handle)
        return codes[min(len(asked), len(codes)) - 1]

    made = SHAPE(query)
    return made, int(ctypes.cast(made, ctypes.c_void_p).value or 0), asked


@pytest.mark.parametrize("step_ns", [0, MS])
def test_a_poll_queries_until_the_work_is_complete(step_ns: int) -> None:
    keep, query, asked = queries(NOT_READY, NOT_READY, 0)
    assert call("poll", query, 77, step_ns, 60_000 * MS) == 0
    assert asked == [77, 77, 77]
    assert keep is not None


def test_a_poll_returns_any_other_code_at_once() -> None:
    keep, query, asked = queries(700)
    assert call("poll", query, 5, 0, 60_000 * MS) == 700
    assert (asked, keep is not None) == ([5], True)


@pytest.mark.parametrize("step_ns", [0, MS, 60_000 * MS])
def test_a_poll_gives_up_after_its_time(step_ns: int) -> None:
    keep, query, asked = queries(NOT_READY)
    since = time.monotonic_ns()
    assert call("poll", query, 5, step_ns, 20 * MS) == NOT_READY
    assert time.monotonic_ns() - since >= 20 * MS
    assert (bool(asked), keep is not None) == (True, True)


def test_nothing_returns_at_once() -> None:
    assert call("nothing") == 0


def test_a_gate_that_is_open_lets_pass() -> None:
    word, at = words(1)
    forced, forced_at = words(0)
    _, data = words(at, forced_at, 60_000 * MS)
    call("gate", data)
    assert (word[0], forced[0]) == (1, 0)


def test_a_gate_opens_when_the_word_is_set() -> None:
    word, at = words(0)
    forced, forced_at = words(0)
    keep, data = words(at, forced_at, 60_000 * MS)
    threading.Timer(0.05, lambda: word.__setitem__(0, 1)).start()
    call("gate", data)
    assert (word[0], forced[0], len(keep)) == (1, 0, 3)


def test_a_gate_that_nobody_opens_opens_itself_and_counts_it() -> None:
    word, at = words(0)
    forced, forced_at = words(5)
    keep, data = words(at, forced_at, 30 * MS)
    since = time.monotonic_ns()
    call("gate", data)
    assert time.monotonic_ns() - since >= 30 * MS
    assert (word[0], forced[0], len(keep)) == (1, 6, 3)


def test_spinning_takes_its_time_on_the_cpu() -> None:
    since, used = time.monotonic_ns(), time.thread_time()
    assert call("spin", 20 * MS) == 0
    assert time.monotonic_ns() - since >= 20 * MS
    assert time.thread_time() - used > 0


def test_a_busy_host_function_counts_after_its_time() -> None:
    calls, at = words(41)
    keep, data = words(at, 0, 10 * MS)
    since = time.monotonic_ns()
    call("busy", data)
    assert time.monotonic_ns() - since >= 10 * MS
    assert (calls[0], len(keep)) == (42, 3)


def test_a_mutex_is_taken_once() -> None:
    mutex, at = words(0)
    assert call("lock", at, 60_000 * MS) == 0
    assert mutex[0] == 1
    assert call("lock", at, 5 * MS) == 1
    assert call("store", at, 0) == 0
    assert call("lock", at, 0) == 0


def test_a_host_function_waits_for_the_mutex_and_releases_it() -> None:
    mutex, at = words(1)
    forced, forced_at = words(0)
    keep, data = words(at, forced_at, 60_000 * MS)
    threading.Timer(0.05, lambda: mutex.__setitem__(0, 0)).start()
    call("mutex", data)
    assert (mutex[0], forced[0], len(keep)) == (0, 0, 3)


def test_a_host_function_gives_a_mutex_up_and_leaves_it_to_its_holder() -> None:
    mutex, at = words(1)
    forced, forced_at = words(2)
    keep, data = words(at, forced_at, 5 * MS)
    call("mutex", data)
    assert (mutex[0], forced[0], len(keep)) == (1, 3, 3)


def test_a_helper_or_function_that_is_not_there_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        core().helper("nonsense")
    with pytest.raises(KeyError):
        libc_address("no_such_function_at_all")


def test_libc_functions_are_found_by_name() -> None:
    getppid = ctypes.CFUNCTYPE(ctypes.c_int)(libc_address("getppid"))
    assert getppid() == os.getppid()
