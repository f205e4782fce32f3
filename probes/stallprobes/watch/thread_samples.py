"""Samples of threads from outside: how long each ran, was ready without a CPU, or slept, and how busy child processes
were meanwhile."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import numpy as np

from stallprobes.watch.division.cpu_time import CHILDREN, SAMPLE_COLUMNS
from stallprobes.watch.intervals import Int64s
from stallprobes.watch.reading.kernel_wait import RUNNING, kernel_wait
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.reading.source import WatchSource

# Largest number of samples of a thread (its times on a CPU, ready and asleep) that are kept, the latest ones.
MOST_SAMPLES = 256
# Largest number of threads whose sleep is sampled, the first ones, and of child processes.
_MOST_THREADS, _MOST_CHILDREN = 16, 64
# What a thread waits for that sleeps in a function of the kernel, or system call, whose name contains one of these: a
# time, the end of a child process, data from outside its process, another thread (or anything).
_PLACES = (
    ("nanosleep",), ("do_wait", "wait4", "waitid"), ("poll", "select", "accept", "read", "wait_data", "data_wait"),
    ("futex",),
)  # fmt: skip


class ThreadSamples:
    """The samples of the threads of one process."""

    def __init__(self) -> None:
        self._samples: dict[int, deque[tuple[int, ...]]] = {}
        self._children: dict[Path, int] = {}

    def look(self, process: WatchedProcess, source: WatchSource, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Take a sample of each thread that runs, at the times of a clock."""
        children: list[Path] = []
        threads = [thread for thread in process.threads if thread.ended_ns is None]
        for number, thread in enumerate(threads):
            folder, now_ns = source.thread(process.pid, thread.id), clock()
            times = _times(folder)
            if folder is None or times is None:
                continue
            before = self._samples.get(thread.id, ((0,) * SAMPLE_COLUMNS,))[-1]
            slept = list(before[3:])
            if number < _MOST_THREADS:
                children += [folder.parents[2] / str(child) for child in _children(folder)]
                place = _place(kernel_wait(folder))
                if place >= 0 and before[0]:
                    slept[place] += now_ns - before[0]
            self._add(thread.id, (now_ns, *times, *slept))
        if children or CHILDREN in self._samples:
            self._look_at_children(children, clock())

    def arrays(self) -> dict[int, Int64s]:
        """The samples by thread, as ``CpuSamples`` describes them."""
        return {
            thread: np.array(samples, dtype=np.int64).reshape(-1, SAMPLE_COLUMNS)
            for thread, samples in self._samples.items()
        }

    def _add(self, thread: int, sample: tuple[int, ...]) -> None:
        self._samples.setdefault(thread, deque(maxlen=MOST_SAMPLES)).append(sample)

    def _look_at_children(self, children: list[Path], now_ns: int) -> None:
        """Add how long the busiest child process was busy since the last sample; children of children are some too."""
        busy: dict[Path, int] = {}
        while children and len(busy) < _MOST_CHILDREN:
            child = children.pop(0)
            times = _times(child)
            if times is not None:
                busy[child] = sum(times)
                children += [child.parent / str(number) for number in _children(child / "task" / child.name)]
        passed = max((ns - self._children[child] for child, ns in busy.items() if child in self._children), default=0)
        self._children = busy
        before = self._samples.get(CHILDREN, ((0,) * SAMPLE_COLUMNS,))[-1]
        self._add(CHILDREN, (now_ns, 0, before[2] + max(passed, 0), *(0,) * (SAMPLE_COLUMNS - 3)))


def _times(folder: Path | None) -> tuple[int, int] | None:
    """Time (ns) ready to run without a CPU, and on one; None where that is not known."""
    try:
        fields = [] if folder is None else (folder / "schedstat").read_bytes().split()
        return int(fields[1]), int(fields[0])
    except (OSError, IndexError, ValueError):
        return None


def _children(folder: Path) -> list[int]:
    try:
        return [int(word) for word in (folder / "children").read_bytes().split()]
    except (OSError, ValueError):
        return []


def _place(function: str) -> int:
    """The number of what is waited for in a function of the kernel; -1 for something else."""
    if function == RUNNING:
        return -1
    # futex_do_wait is no wait for a child.
    places = reversed(list(enumerate(_PLACES)))
    return next((number for number, words in places if any(word in function for word in words)), -1)
