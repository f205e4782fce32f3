"""Threads that make quick CUDA calls through the library whose path is the first argument.

python named_threads.py LIBCUDA run FOLDER
python named_threads.py LIBCUDA late

run: each thread makes calls for half a second. FOLDER, that of an installed package, has a module ``wrapping``; one
thread runs a function with its decorator ``wrapped``, one its function ``collect``, one a method ``run``, one a
function in a pool, and one sets its name before its first call. late: a thread makes a call, sets its name when a line
is read, and ends with the next one; a line is written after each step. The main thread makes one call.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PR_SET_NAME = 15
CALLS, PAUSE_S = 25, 0.02


class Server:
    """What the threads run."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        self._library.cuInit(0)
        self.call: Callable[[], int] = self._library.cuCtxSynchronize
        self.call()

    def calls(self) -> None:
        """Calls over a time of which a hundredth is more than a stack takes."""
        for _ in range(CALLS):
            self.call()
            time.sleep(PAUSE_S)

    def run(self) -> None:
        """The same, in a method that many classes have."""
        self.calls()

    def named(self) -> None:
        """A thread that sets its name before its first call."""
        set_name("first-named")
        self.calls()

    def named_late(self) -> None:
        """A thread that sets its name after its first call."""
        self.call()
        step("called")
        set_name("late-named")
        step("named")


def set_name(name: str) -> None:
    """Set the system's name of this thread."""
    ctypes.CDLL(None).prctl(PR_SET_NAME, ctypes.c_char_p(name.encode()), 0, 0, 0)


def step(done: str) -> None:
    """Write what was done and wait for a line."""
    sys.stdout.write(f"{done}\n")
    sys.stdout.flush()
    sys.stdin.readline()


def main(path: str, case: str, *more: str) -> None:
    """Run one case."""
    server = Server(path)
    if case == "late":
        run([server.named_late])
        return
    sys.path.insert(0, *more)
    wrapping: Any = importlib.import_module("wrapping")

    def serve() -> None:
        server.calls()

    with ThreadPoolExecutor(1) as pool:
        pool.submit(serve)
        collect = functools.partial(wrapping.collect, server.call, CALLS, PAUSE_S)
        run([wrapping.wrapped(serve), server.run, server.named, collect])


def run(targets: Sequence[Callable[[], None]]) -> None:
    """Run each in a thread."""
    threads = [threading.Thread(target=target) for target in targets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main(*sys.argv[1:])
