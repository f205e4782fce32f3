"""Samples of threads from outside: how long each ran, was ready without a CPU, or slept, and how busy child processes
and other threads were meanwhile."""

from __future__ import annotations

import os
import random
import threading
import time
import weakref
from collections.abc import Callable
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path

import numpy as np

from stallprobes.foreign_text import printable
from stallprobes.watch.division.cpu_time import CHILDREN, COLLECTOR, OTHERS, SAMPLE_COLUMNS
from stallprobes.watch.intervals import Int64s
from stallprobes.watch.reading.cpu_supply import Workers, times_of
from stallprobes.watch.reading.garbage_collector import find_flag, is_set
from stallprobes.watch.reading.kernel_wait import RUNNING, awaited_address, kernel_wait
from stallprobes.watch.reading.proc_files import content
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.reading.source import WatchSource
from stallprobes.watch.reading.timed_counts import TimedCounts

# Largest number of samples of a thread (its times on a CPU, ready and asleep) that are kept, the latest ones.
MOST_SAMPLES = 1024
# Limits for a process. _MOST_THREADS: number of the first threads whose reasons for sleep are sampled, and whose child
# processes are read. _MOST_CHILDREN: largest number of child processes, and of threads without calls, whose CPU time is
# read.
_MOST_THREADS, _MOST_CHILDREN = 16, 64
# Largest number of a process's threads with calls whose times are read, those with most calls. Reason: 256 take 6 ms of
# CPU time in each reading, five times a second, and 1024, which a process's file has room for, would take 27 ms.
_MOST_READ = 256
# Number of a process's first threads that are also sampled between readings of its file.
_MOST_SAMPLED_OFTEN = 4
# Largest number of names of child processes, or of other threads, that are reported.
_MOST_NAMED = 4
# Beginning of the names of the injected library's own threads.
_OWN_THREADS = "stallscope-"
# Limits for reading the CPU time of a process's threads without calls. _OTHERS_PERIOD_NS: shortest time (ns) between
# two readings. _MOST_TASKS: number of the process's first threads in /proc that are examined.
_OTHERS_PERIOD_NS, _MOST_TASKS = 1_000_000_000, 1024
# Limits for the mean pause between two samples of the _MOST_SAMPLED_OFTEN threads. _PERIOD_S: smallest mean pause (s).
# _PAUSE_FACTOR: smallest mean pause as a multiple of the CPU time that the last samples took.
_PERIOD_S, _PAUSE_FACTOR = 0.02, 60
# Time (s) without a reading of the processes after which the sampling between readings stops. Longer than a reading
# takes where CPUs are short.
_STOPPED_AFTER_S = 10.0
# Parts of the names of Linux kernel functions and system calls in which a thread sleeps, by reason for sleep. The
# reasons in this order: a time, the end of a child process, data from outside the process, another thread. If parts of
# several reasons are in a name, the last reason counts.
_PLACES = (
    ("nanosleep",), ("do_wait", "wait4", "waitid"), ("poll", "select", "accept", "read", "wait_data", "data_wait"),
    ("futex",),
)  # fmt: skip
# Numbers of reasons for sleep. _OTHER_THREAD: wait for another thread (a position in _PLACES). _INTERPRETER_LOCK: wait
# for the lock of Python's interpreter. For both reasons, threads sleep in the same kernel functions, but wait for
# different addresses.
_OTHER_THREAD, _INTERPRETER_LOCK = 3, 4


class _Samples:
    """The latest samples of a thread: rows of ``CpuSamples``."""

    def __init__(self) -> None:
        self._rows = np.zeros((MOST_SAMPLES, SAMPLE_COLUMNS), dtype=np.int64)
        self._count = 0

    @property
    def last(self) -> list[int]:
        """The last sample; zeros before the first."""
        last: list[int] = self._rows[(self._count - 1) % MOST_SAMPLES].tolist()
        return last

    def add(self, row: tuple[int, ...]) -> None:
        self._rows[self._count % MOST_SAMPLES] = row
        self._count += 1

    def array(self) -> Int64s:
        """All of them, the oldest first."""
        return np.roll(self._rows, -self._count, axis=0)[-min(self._count, MOST_SAMPLES) :]


class _BusyWorkers:
    """How busy child processes or threads are, by their names: the busiest of each, and how many there were at once."""

    def __init__(self) -> None:
        self._times: dict[Path, int] = {}
        self._names: dict[Path, str] = {}
        self._busy = TimedCounts()
        self._most: dict[str, int] = {}
        self._looked_ns = 0

    def add(self, times: dict[Path, int], now_ns: int) -> int:
        """Add how long each was busy since it began; how long (ns) the busiest was so since the last time."""
        # What one that began since the last look has done was all since then.
        worked = {folder: ns - self._times.get(folder, 0) for folder, ns in times.items()} if self._looked_ns else {}
        self._names = {folder: self._names.get(folder) or _name_of(folder) for folder in times}
        named = sorted((self._names[folder], ns) for folder, ns in worked.items())
        busiest: dict[str, int] = {}
        for name, group in groupby(named, key=itemgetter(0)):
            every = [ns for _, ns in group]
            busiest[name] = max(*every, 0)
            self._most[name] = max(self._most.get(name, 0), len(every))
        if self._looked_ns:
            self._busy.add(self._looked_ns, now_ns, busiest)
        self._looked_ns = now_ns
        passed = max((ns for folder, ns in worked.items() if folder in self._times), default=0)
        self._times = times
        return max(passed, 0)

    def found(self, begin_ns: int, end_ns: int) -> tuple[Workers, ...]:
        """The workers by name between two times (ns), the busiest ones first."""
        passed_ns, counts = self._busy.between(begin_ns, end_ns)
        busy = [(name, ns / max(passed_ns, 1)) for name, ns in counts.most_common(_MOST_NAMED)]
        return tuple(Workers(name=name, most=self._most[name], busy=min(share, 1.0)) for name, share in busy)


class ThreadSamples:
    """The samples of the threads of one process."""

    def __init__(self) -> None:
        self._samples: dict[int, _Samples] = {}
        self._children, self._others = _BusyWorkers(), _BusyWorkers()
        self._others_ns = 0
        # The threads that are sampled between the looks, and their folders in /proc.
        self._often: list[tuple[int, Path]] = []
        # The addresses of the state of Python's interpreter, with its global lock.
        self._interpreter = range(0)
        # The process's folder in /proc, and the address of the flag that is set while Python collects garbage: it is
        # looked for once.
        self._collector: tuple[Path, int] | None = None
        self._has_looked = False
        self._lock = threading.Lock()

    def look(self, process: WatchedProcess, source: WatchSource, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Take a sample of each thread that runs, at the times of a clock."""
        running = [thread for thread in process.threads if thread.ended_ns is None]
        if len(running) > _MOST_READ:
            running = sorted(running, key=lambda thread: -thread.calls)[:_MOST_READ]
        threads = [thread.id for thread in running]
        folders = [(thread, folder) for thread in threads if (folder := source.thread(process.pid, thread)) is not None]
        with self._lock:
            begin, length = process.interpreter
            self._interpreter = range(begin, begin + length)
            self._often, sleepers = folders[:_MOST_SAMPLED_OFTEN], folders[:_MOST_THREADS]
            children: list[Path] = []
            for thread, folder in sleepers:
                children += [folder.parents[2] / str(child) for child in _children(folder)]
                self._add(thread, folder, clock(), self._place(kernel_wait(folder), folder))
            for thread, folder in folders[_MOST_THREADS:]:
                self._add(thread, folder, clock())
            if folders and length and not self._has_looked:
                self._has_looked, whole = True, folders[0][1].parents[1]
                flag = find_flag(whole, self._interpreter)
                self._collector = None if flag is None else (whole, flag)
            self._look_at_collector(clock())
            if children or CHILDREN in self._samples:
                self._look_at_children(children, clock())
            if folders and (now_ns := clock()) - self._others_ns >= _OTHERS_PERIOD_NS:
                self._others_ns = now_ns
                known = {thread.id for thread in process.threads}
                self._add_busy(OTHERS, self._others.add(_other_times(folders[0][1].parent, known), now_ns), now_ns)

    def sample(self, clock: Callable[[], int] = time.monotonic_ns) -> None:
        """Take one more sample of the first threads of the last look. Any thread may call this."""
        with self._lock:
            for thread, folder in self._often:
                name = _function(folder).decode("utf-8", "replace")
                self._add(thread, folder, clock(), self._place(name, folder))
            self._look_at_collector(clock())

    def arrays(self) -> dict[int, Int64s]:
        """The samples by thread, as ``CpuSamples`` describes them."""
        with self._lock:
            return {thread: samples.array() for thread, samples in self._samples.items()}

    def children(self, begin_ns: int, end_ns: int) -> tuple[Workers, ...]:
        """The child processes by name between two times (ns), the busiest ones first."""
        with self._lock:
            return self._children.found(begin_ns, end_ns)

    def others(self, begin_ns: int, end_ns: int) -> tuple[Workers, ...]:
        """As ``children``, the threads that make no calls, without those of the library."""
        with self._lock:
            found = self._others.found(begin_ns, end_ns)
        return tuple(worker for worker in found if not worker.name.startswith(_OWN_THREADS))

    def _add(self, thread: int, folder: Path, now_ns: int, place: int = -1) -> None:
        """Add a sample of a thread that sleeps at a place (-1: it does not, or that is not known)."""
        times = times_of(folder)
        if times is None:
            return
        samples = self._samples.setdefault(thread, _Samples())
        before, _, _, *slept = samples.last
        if place >= 0 and before:
            slept[place] += now_ns - before
        samples.add((now_ns, *times, *slept))

    def _place(self, function: str, folder: Path) -> int:
        """The number of what a thread waits for in a function of the kernel; -1 for something else."""
        place = _place(function)
        return _INTERPRETER_LOCK if place == _OTHER_THREAD and awaited_address(folder) in self._interpreter else place

    def _look_at_collector(self, now_ns: int) -> None:
        """Add a sample of the garbage collector: the time since the last sample counts as its state is now."""
        collects = is_set(*self._collector) if self._collector is not None else None
        if collects is not None:
            last = self._samples[COLLECTOR].last[0] if COLLECTOR in self._samples else now_ns
            self._add_busy(COLLECTOR, now_ns - last if collects else 0, now_ns)

    def _look_at_children(self, children: list[Path], now_ns: int) -> None:
        """Add how long the busiest child process was busy since the last sample; children of children are some too."""
        busy: dict[Path, int] = {}
        while children and len(busy) < _MOST_CHILDREN:
            child = children.pop(0)
            times = times_of(child)
            if times is not None:
                busy[child] = sum(times)
                children += [child.parent / str(number) for number in _children(child / "task" / child.name)]
        self._add_busy(CHILDREN, self._children.add(busy, now_ns), now_ns)

    def _add_busy(self, key: int, passed_ns: int, now_ns: int) -> None:
        """Add how long the busiest of some workers was busy since the last sample."""
        samples = self._samples.setdefault(key, _Samples())
        samples.add((now_ns, 0, samples.last[2] + passed_ns, *(0,) * (SAMPLE_COLUMNS - 3)))


class Sampler:
    """Takes samples of threads between the readings of their processes, in a thread of its own.

    It ends when no process is read any more.
    """

    def __init__(self) -> None:
        self._chosen: list[ThreadSamples] = []
        self._until_s = 0.0
        self._thread: threading.Thread | None = None

    def follow(self, chosen: list[ThreadSamples]) -> None:
        """Take samples of the threads of these processes from now on."""
        self._chosen, self._until_s = chosen, time.monotonic() + _STOPPED_AFTER_S
        if chosen and (self._thread is None or not self._thread.is_alive()):
            self._thread = threading.Thread(
                target=_take_samples, args=(weakref.ref(self),), name="thread samples", daemon=True
            )
            self._thread.start()

    def take(self) -> bool:
        """Take a sample of each; False if no process is read any more."""
        chosen = self._chosen if time.monotonic() < self._until_s else []
        for samples in chosen:
            samples.sample()
        return bool(chosen)


def _take_samples(reference: weakref.ref[Sampler]) -> None:
    while True:
        sampler, begun_s = reference(), time.thread_time()
        if sampler is None or not sampler.take():
            return
        del sampler
        rest_s = max(_PERIOD_S, _PAUSE_FACTOR * (time.thread_time() - begun_s))
        # Not in step with the program.
        time.sleep(rest_s * random.uniform(0.5, 1.5))


def _other_times(tasks: Path, known: set[int]) -> dict[Path, int]:
    """How long (ns) threads of a process that are not ``known`` were busy, by their folders below ``tasks``."""
    try:
        with os.scandir(tasks) as entries:
            names = [entry.name for entry in islice(entries, _MOST_TASKS)]
    except OSError:
        return {}
    others = [tasks / name for name in names if name.isdecimal() and int(name) not in known]
    times = ((folder, times_of(folder)) for folder in others[:_MOST_CHILDREN])
    return {folder: sum(passed) for folder, passed in times if passed is not None}


def _name_of(process: Path) -> str:
    """The name of a process or a thread, in text that can be printed."""
    return printable(content(process / "comm").decode("utf-8", "replace").strip())


def _function(folder: Path) -> bytes:
    """The function of the kernel in which a thread sleeps; "0" if it does not sleep, or if the kernel hides it."""
    return content(folder / "wchan") or b"0"


def _children(folder: Path) -> list[int]:
    return [int(word) for word in content(folder / "children").split() if word.isdigit()]


def _place(function: str) -> int:
    """The number of what is waited for in a function of the kernel; -1 for something else."""
    if function == RUNNING:
        return -1
    # futex_do_wait is no wait for a child.
    places = reversed(list(enumerate(_PLACES)))
    return next((number for number, words in places if any(word in function for word in words)), -1)
