"""Samples of the code that threads of a watched process run, taken by the kernel (perf_event_open) from outside.

A call of the driver shows where a compiled program was when it called, not where it computed before. The kernel notes
the address of the code every 10 ms in which a thread has a CPU; that needs no rights beyond those to trace the process,
as far as the kernel's setting perf_event_paranoid allows it (2 or less), which some containers forbid. A sample takes
the thread some microseconds. Time that the kernel itself takes, as for page faults, has samples for root only, or with
perf_event_paranoid 1 or less.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import re
import struct
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from stallprobes.foreign_text import printable
from stallprobes.watch.reading.call_stack import CallStack, StackFrame
from stallprobes.watch.reading.compilers import DeviceCompiler, compiler_of
from stallprobes.watch.reading.kernel_names import short_name

# Numbers of the system call perf_event_open.
_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241}.get(platform.machine())
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
_PAGE = mmap.PAGESIZE
# Largest number of addresses whose code is looked up, and whose samples are counted.
_MOST_ADDRESSES = 4096
# struct perf_event_attr: its size (PERF_ATTR_SIZE_VER5), and the layout of the members that are set.
_ATTRIBUTES = struct.Struct("<IIQQQQQ")
_ATTRIBUTES_BYTES, _CLOCK_AT, _DEPTH_AT = 112, 92, 108
# PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK; the address, the time and the callers of each sample; CLOCK_MONOTONIC.
_SOFTWARE, _TASK_CLOCK, _SAMPLED, _MONOTONIC = 1, 1, 1 | 4 | 32, 1
# Flags of an event: exclude_kernel, exclude_hv, exclude_callchain_kernel and use_clockid.
_NO_KERNEL, _FLAGS = 1 << 5, 1 << 6 | 1 << 21 | 1 << 25
# PERF_FLAG_FD_CLOEXEC, and the records PERF_RECORD_SAMPLE.
_CLOSE_ON_EXEC, _SAMPLE = 8, 9
# Places of the end and of the begin of what is to be read, in the first page.
_HEAD_AT, _TAIL_AT = 1024, 1032
# PERF_CONTEXT_MAX: larger numbers among the callers are marks in front of addresses, this one of those of the program.
_MARKS, _USER_MARK = 2**64 - 4095, 2**64 - 512


class _ThreadEvents:
    """The samples of one thread, until ``close``. Raises OSError where the kernel refuses them."""

    def __init__(self, thread: int) -> None:
        try:
            self._descriptor = _open_event(thread, 0)
        except OSError:
            self._descriptor = _open_event(thread, _NO_KERNEL)
        try:
            self._memory = mmap.mmap(self._descriptor, (1 + _PAGES) * _PAGE)
        except OSError:
            os.close(self._descriptor)
            raise

    def read(self) -> Iterator[tuple[int, int]]:
        """Time (ns on CLOCK_MONOTONIC) and address of the samples since the last reading."""
        (head,), (tail,) = (struct.unpack_from("<Q", self._memory, at) for at in (_HEAD_AT, _TAIL_AT))
        size = _PAGES * _PAGE
        data = bytes(self._memory[_PAGE:])
        first = tail % size
        part = (data[first:] + data[:first])[: min(head - tail, size)]
        struct.pack_into("<Q", self._memory, _TAIL_AT, head)
        at = 0
        while at + 8 <= len(part):
            kind, _, length = struct.unpack_from("<IHH", part, at)
            if length < 8:
                return
            if kind == _SAMPLE and at + length <= len(part):
                yield from _sample(part[at + 8 : at + length])
            at += length

    def close(self) -> None:
        """End the samples."""
        self._memory.close()
        os.close(self._descriptor)


class CodeSamples:
    """The samples of the threads of one process with most calls, since they were looked at first."""

    def __init__(self) -> None:
        self._events: dict[int, _ThreadEvents | None] = {}
        # The samples at each address, by thread and by bin of time (on CLOCK_MONOTONIC, of so many nanoseconds).
        self._counts: dict[tuple[int, int], Counter[int]] = {}
        self._bin_ns = _SECOND_NS
        self._addresses: set[int] = set()
        self._began: dict[int, int] = {}
        self.places: dict[int, StackFrame] = {}

    def look(self, threads: Iterable[tuple[int, int]]) -> set[int]:
        """Read the samples of threads, each known to its process by the first number and here by the second.

        Returns the addresses that have no place yet.
        """
        for own, here in list(threads)[:_MOST_THREADS]:
            if own not in self._events and len(self._events) < _MOST_THREADS:
                self._events[own] = None
                self._began[own] = time.monotonic_ns()
                with contextlib.suppress(OSError):
                    self._events[own] = _ThreadEvents(here)
        for thread, events in self._events.items():
            for at_ns, address in () if events is None else events.read():
                if address in self._addresses or len(self._addresses) < _MOST_ADDRESSES:
                    self._addresses.add(address)
                    self._counts.setdefault((thread, at_ns // self._bin_ns), Counter())[address] += 1
        if len(self._counts) > _MOST_BINS * max(len(self._events), 1):
            self._merge()
        return self._addresses - self.places.keys()

    def note(self, frames: Mapping[int, tuple[StackFrame, ...]], process: Path | None = None) -> None:
        """Note the frames at addresses, those of inlined functions first.

        Code of libraries that no call stack went through is of the files that ``process``, its folder in /proc, maps.
        """
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
    try:
        with (process / "maps").open("rb") as file:
            lines = file.read(_MOST_MAPS_BYTES).splitlines()
    except OSError:
        return {}
    ranges = [match for line in lines if (match := _MAPPED.fullmatch(line))]
    found = {}
    for address in addresses:
        for match in ranges:
            if int(match[1], 16) <= address < int(match[2], 16):
                found[address] = printable(os.fsdecode(match[3]))
    return found


def _open_event(thread: int, more_flags: int) -> int:
    """The descriptor of an event that samples a thread. Raises OSError."""
    if _SYSTEM_CALL is None:
        raise OSError("the number of the system call is not known")
    attributes = bytearray(_ATTRIBUTES_BYTES)
    flags = _FLAGS | more_flags
    _ATTRIBUTES.pack_into(attributes, 0, _SOFTWARE, _ATTRIBUTES_BYTES, _TASK_CLOCK, PERIOD_NS, _SAMPLED, 0, flags)
    struct.pack_into("<i", attributes, _CLOCK_AT, _MONOTONIC)
    struct.pack_into("<H", attributes, _DEPTH_AT, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    memory = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    descriptor: int = libc.syscall(_SYSTEM_CALL, memory, thread, -1, -1, _CLOSE_ON_EXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), "perf_event_open")
    return descriptor


def _sample(body: bytes) -> Iterator[tuple[int, int]]:
    """Time and address of a sample: of code of the program, also while the kernel worked for it; none without."""
    address, at_ns, callers = struct.unpack_from("<QQQ", body)
    numbers = struct.unpack_from(f"<{min(callers, len(body) // 8 - 3)}Q", body, 24)
    if _USER_MARK in numbers[:-1]:
        yield at_ns, numbers[numbers.index(_USER_MARK) + 1]
    elif address < _MARKS and not numbers:
        yield at_ns, address
