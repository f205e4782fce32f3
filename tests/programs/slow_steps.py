"""Slow CUDA calls from known lines of Python code, through the library whose path is the first argument.

python slow_steps.py LIBCUDA steps|deep|short|contended|RLock|Lock|prepared|lambda|thread|foreign-thread|close|end|hang

Each call takes 2 ms. steps: five copies, or as many as the next argument says, from one line. deep: as many below 60
frames. short: so many waits of 0.2 ms from one line, each after work of 0.1 ms before another one. contended: as short,
beside a thread that computes in Python. RLock, Lock: so many queries, each after such a lock was taken, which another
thread has nearly always. prepared: so many copies, each after 10 ms in which the thread sleeps and 10 ms
in which it computes, at lines of other functions. lambda: one copy from a lambda. thread: one in a thread of Python's.
foreign-thread: one in a thread that Python does not know. close: the program closes all descriptors and opens a file of
its own between two copies. end: a call that returns while the interpreter ends. hang: a copy that does not return.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import time
from contextlib import AbstractContextManager

SOURCE, SIZE, STREAM = ctypes.c_uint64(0x7F0000000000), ctypes.c_size_t(4), ctypes.c_void_p(0x11)
CALL_NS, LONG_NS, HOUR_NS = 2_000_000, 300_000_000, 3_600_000_000_000
SHORT_NS, WORK_NS, INPUT_NS = 200_000, 100_000, 10_000_000
STEPS = 5


class Library:
    """The driver, whose calls take the time that ``lasting`` sets."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._target = ctypes.create_string_buffer(4)
        self._library.cuInit(0)

    def lasting(self, length_ns: int) -> None:
        """Let the calls of this thread take this time."""
        self._library.stand_in_length(ctypes.c_uint64(length_ns))

    def copies(self, count: int) -> None:
        """Copy four bytes to pageable memory."""
        for _ in range(count):
            self._library.cuMemcpyDtoHAsync_v2(self._target, SOURCE, SIZE, STREAM)  # the line of the copies

    def short_steps(self, count: int) -> None:
        """Waits that no limit calls slow, and work of the host between calls."""
        for _ in range(count):
            until = time.perf_counter_ns() + WORK_NS
            while time.perf_counter_ns() < until:
                pass
            self.lasting(0)
            self._library.cuEventQuery(None)  # the line behind work
            self.lasting(SHORT_NS)
            self._library.cuStreamSynchronize(STREAM)  # the line of the waits

    def prepared_steps(self, count: int) -> None:
        """Copies of what takes longer to make."""
        self.lasting(0)
        for _ in range(count):
            sleep_for_input()
            compute_input()
            self._library.cuEventQuery(None)  # the line behind input

    def locked_steps(self, count: int, lock: AbstractContextManager[object]) -> None:
        """Steps that wait for a lock."""
        self.lasting(0)
        for _ in range(count):
            with lock:  # the line that waits
                pass
            time.sleep(WORK_NS / 1e9)
            self._library.cuEventQuery(None)

    def in_foreign_thread(self) -> None:
        """A copy in a thread that the library makes."""
        self._library.stand_in_copy_in_thread()


def sleep_for_input() -> None:
    """As one that waits for another process."""
    time.sleep(INPUT_NS / 1e9)  # the line that sleeps


def compute_input() -> None:
    """As one that prepares a batch."""
    until = time.perf_counter_ns() + INPUT_NS
    while time.perf_counter_ns() < until:
        sum(range(1000))  # the line that computes


def compute_for_ever() -> None:
    """As one that prepares batch after batch."""
    while True:
        compute_input()


def hold_for_ever(lock: AbstractContextManager[object]) -> None:
    """As one that works with a lock, of which it lets others have it for moments."""
    while True:
        with lock:
            sleep_for_input()
        time.sleep(WORK_NS / 1e9)


class Late:
    """Held until the interpreter ends, which it makes last."""

    def __del__(self, sleep: object = time.sleep) -> None:
        assert callable(sleep)
        sleep(2 * LONG_NS / 1e9)


def load(library: Library, length_ns: int = CALL_NS) -> None:
    """What a thread does."""
    library.lasting(length_ns)
    library.copies(1)


def call_deeply(library: Library, count: int, depth: int = 60) -> None:
    """Copies below many frames."""
    if depth:
        call_deeply(library, count, depth - 1)
    else:
        library.copies(count)


def close_descriptors(own: str) -> None:
    """Close what the program does not know, and take the numbers for a file of its own."""
    for number in range(3, 64):
        with contextlib.suppress(OSError):
            os.close(number)
    first = os.open(own, os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(32):
        os.dup(first)


def main(path: str, case: str, *more: str) -> None:
    """Run one case."""
    library = Library(path)
    library.lasting(CALL_NS)
    if case == "steps":
        library.copies(int(more[0]) if more else STEPS)
    elif case == "deep":
        call_deeply(library, int(more[0]))
    elif case == "short":
        library.short_steps(int(more[0]))
    elif case == "contended":
        threading.Thread(target=compute_for_ever, daemon=True).start()
        library.short_steps(int(more[0]))
    elif case in ("RLock", "Lock"):
        lock = getattr(threading, case)()
        threading.Thread(target=hold_for_ever, args=(lock,), daemon=True).start()
        library.locked_steps(int(more[0]), lock)
    elif case == "prepared":
        library.prepared_steps(int(more[0]))
    elif case == "lambda":
        (lambda: library.copies(1))()
    elif case == "thread":
        thread = threading.Thread(target=load, args=(library,), name="loader-of-batches")
        thread.start()
        thread.join()
    elif case == "foreign-thread":
        library.in_foreign_thread()
    elif case == "close":
        library.copies(1)
        close_descriptors(more[0])
        library.copies(1)
    elif case == "end":
        sys.modules["late"] = Late()  # type: ignore[assignment]
        threading.Thread(target=load, args=(library, LONG_NS), daemon=True).start()
    elif case == "hang":
        sys.stdout.write("begins\n")
        sys.stdout.flush()
        load(library, HOUR_NS)


if __name__ == "__main__":
    main(*sys.argv[1:])
