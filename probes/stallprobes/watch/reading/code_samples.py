"""Samples of the code that threads of a watched process run, every 10 ms in which they have a CPU.

A call of the driver shows where a compiled program was when it called, not where it computed before.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

from stallprobes.foreign_text import printable
from stallprobes.machine.perf_events import CodeEvents
from stallprobes.watch.reading.call_stack import CallStack, StackFrame
from stallprobes.watch.reading.compilers import DeviceCompiler, compiler_of
from stallprobes.watch.reading.kernel_names import short_name
from stallprobes.watch.reading.proc_files import content

# What compilers append to the name of a function that they have copied or divided.
_CLONE = re.compile(r"(?:\.(?:constprop|isra|part|cold|lto_priv|clone)(?:\.\d+)*)+$")
# Line of code in /proc/PID/maps: its begin, its end and its file; and the largest number of bytes that are read there.
_MAPPED = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) ..x. \S+ \S+ \S+ +(/.*)")
_MOST_MAPS_BYTES = 1 << 22
# Time on a CPU (ns) from one sample of a thread to the next. It is no multiple of the kernel's clock tick.
PERIOD_NS = 10_100_000
# Largest number of threads of a process that are sampled: those with most calls.
_MOST_THREADS = 4
_SECOND_NS = 1_000_000_000
# Largest number of bins of time of a thread. With more, two bins become one: the first have a second each.
_MOST_BINS = 256
# Number of pages of memory for the samples of a thread. They have room for about seven seconds on a CPU.
_PAGES = 8
# Shortest time (s) from one look for places to the next, and as a multiple of the time that the last one took.
_LEAST_PAUSE_S, _PAUSE_FACTOR = 1.0, 20
# Largest number of addresses whose code is looked up, and whose samples are counted.
_MOST_ADDRESSES = 4096


class CodeSamples:
    """The samples of the threads of one process with most calls, since they were looked at first."""

    def __init__(self) -> None:
        self._events: dict[int, CodeEvents | None] = {}
        # The samples at each address, by thread and by bin of time (on CLOCK_MONOTONIC, of so many nanoseconds).
        self._counts: dict[tuple[int, int], Counter[int]] = {}
        self._bin_ns = _SECOND_NS
        self._addresses: set[int] = set()
        self._began: dict[int, int] = {}
        self._due_s = 0.0
        self.places: dict[int, StackFrame] = {}

    def look(self, threads: Iterable[tuple[int, int]]) -> set[int]:
        """Read the samples of threads, each known to its process by the first number and here by the second.

        Returns the addresses that have no place yet, unless places were just looked up: a large program's file takes
        seconds to read.
        """
        for own, here in islice(threads, _MOST_THREADS):
            if own not in self._events and len(self._events) < _MOST_THREADS:
                self._events[own] = None
                self._began[own] = time.monotonic_ns()
                with contextlib.suppress(OSError):
                    self._events[own] = CodeEvents(here, PERIOD_NS, _PAGES)
        for thread, events in self._events.items():
            for at_ns, address in () if events is None else events.read():
                if address in self._addresses or len(self._addresses) < _MOST_ADDRESSES:
                    self._addresses.add(address)
                    self._counts.setdefault((thread, at_ns // self._bin_ns), Counter())[address] += 1
        if len(self._counts) > _MOST_BINS * max(len(self._events), 1):
            self._merge()
        return set() if time.monotonic() < self._due_s else self.unknown

    @property
    def unknown(self) -> set[int]:
        """The addresses that have no place yet."""
        return self._addresses - self.places.keys()

    def note(
        self, frames: Mapping[int, tuple[StackFrame, ...]], process: Path | None = None, took_s: float = 0.0
    ) -> None:
        """Note the frames at addresses, those of inlined functions first; to find them ``took_s`` seconds.

        Code of libraries that no call stack went through is of the files that ``process``, its folder in /proc, maps.
        """
        if frames:
            self._due_s = time.monotonic() + max(_LEAST_PAUSE_S, _PAUSE_FACTOR * took_s)
        unknown = [address for address, native in frames.items() if not native[0].file]
        files = _mapped_files(process, unknown) if unknown and process is not None else {}
        for address, native in frames.items():
            place = CallStack(native=native).place or native[0]
            self.places[address] = place.changed(file=files[address]) if address in files else place

    def shares(self, thread: int, begin_ns: int, end_ns: int) -> Mapping[StackFrame, float]:
        """The share (0 to 1) of the time from ``begin_ns`` to ``end_ns`` in which a thread computed in each function of
        the program's own compiled code, by the line of it with most samples; empty where it was not sampled."""
        functions: dict[StackFrame, dict[StackFrame, float]] = {}
        for place, share in self._shares(thread, begin_ns, end_ns):
            if place.is_users and not place.is_installed and place.function:
                line = _place_of(place)
                lines = functions.setdefault(line.changed(line=None), {})
                lines[line] = lines.get(line, 0.0) + share
        return {max(lines, key=lambda line: lines[line]): min(sum(lines.values()), 1.0) for lines in functions.values()}

    def compiling(self, thread: int, begin_ns: int, end_ns: int) -> Mapping[DeviceCompiler, float]:
        """The share (0 to 1) of the time in which a thread was in a library that compiles device code, likewise."""
        compilers: dict[DeviceCompiler, float] = {}
        for place, share in self._shares(thread, begin_ns, end_ns):
            if (compiler := compiler_of([(place.file, place.function)])) is not None:
                compilers[compiler] = compilers.get(compiler, 0.0) + share
        return compilers

    def _shares(self, thread: int, begin_ns: int, end_ns: int) -> Iterator[tuple[StackFrame, float]]:
        """The places of a thread's samples in whole bins between two times, each with its share of the time."""
        first, last = -(-max(begin_ns, self._began.get(thread, end_ns)) // self._bin_ns), end_ns // self._bin_ns
        for number in range(first, last):
            for address, count in self._counts.get((thread, number), {}).items():
                if (place := self.places.get(address)) is not None:
                    yield place, count * PERIOD_NS / ((last - first) * self._bin_ns)

    def _merge(self) -> None:
        """Make one bin of two."""
        merged: dict[tuple[int, int], Counter[int]] = {}
        for (thread, number), counts in self._counts.items():
            merged.setdefault((thread, number // 2), Counter()).update(counts)
        self._counts = merged
        self._bin_ns *= 2

    def close(self) -> None:
        """End the samples; what was sampled stays."""
        for thread, events in self._events.items():
            if events is not None:
                events.close()
                self._events[thread] = None


def _place_of(frame: StackFrame) -> StackFrame:
    """A frame of compiled code without its offset, and with the short name of its function."""
    return frame.changed(function=short_name(_CLONE.sub("", frame.function)), offset=None)


def _mapped_files(process: Path, addresses: Iterable[int]) -> Mapping[int, str]:
    """The paths of the files that a process maps at addresses, without those that are not known."""
    lines = content(process / "maps", _MOST_MAPS_BYTES).splitlines()
    ranges = [match for line in lines if (match := _MAPPED.fullmatch(line))]
    found = {}
    for address in addresses:
        for match in ranges:
            if int(match[1], 16) <= address < int(match[2], 16):
                found[address] = printable(os.fsdecode(match[3]))
    return found
