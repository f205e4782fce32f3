"""Events of threads that the kernel notes (perf_event_open), read from outside: the code that they run, and when they
lose their CPU.

That needs no rights beyond those to trace the thread, as far as the kernel's setting perf_event_paranoid allows it (2
or less), which some containers forbid. A sample takes the thread some microseconds, a switch half of one.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
import struct
from collections.abc import Iterator
from enum import IntEnum

# Numbers of the system call perf_event_open.
_SYSTEM_CALL = {"x86_64": 298, "aarch64": 241}.get(platform.machine())
_PAGE = mmap.PAGESIZE
# struct perf_event_attr: its size (PERF_ATTR_SIZE_VER5), and the layout and places of the members that are set.
_ATTRIBUTES = struct.Struct("<IIQQQQQ")
_ATTRIBUTES_BYTES, _CLOCK_AT, _DEPTH_AT = 112, 92, 108
# PERF_TYPE_SOFTWARE, and CLOCK_MONOTONIC as the clock of the events.
_SOFTWARE, _MONOTONIC = 1, 1
# Flags: exclude_kernel, sample_id_all, use_clockid, context_switch; exclude_hv and exclude_callchain_kernel.
_NO_KERNEL, _WITH_TIME, _WITH_CLOCK, _SWITCHES, _HIDDEN = 1 << 5, 1 << 18, 1 << 25, 1 << 26, 1 << 6 | 1 << 21
# PERF_COUNT_SW_TASK_CLOCK with the address, the time and the callers of each sample; PERF_COUNT_SW_DUMMY with the time.
_TASK_CLOCK, _OF_CODE, _NOTHING, _TIME_ALONE = 1, 1 | 4 | 32, 9, 4
# PERF_FLAG_FD_CLOEXEC.
_CLOSE_ON_EXEC = 8
# Places of the end and of the begin of what is to be read, in the first page.
_HEAD_AT, _TAIL_AT = 1024, 1032
# PERF_CONTEXT_MAX: larger numbers among the callers are marks in front of addresses, this one of those of the program.
_MARKS, _USER_MARK = 2**64 - 4095, 2**64 - 512
# PERF_RECORD_MISC_SWITCH_OUT and PERF_RECORD_MISC_SWITCH_OUT_PREEMPT.
_OUT, _PREEMPTED = 1 << 13, 1 << 14


class _Record(IntEnum):
    """Kind of a record (enum perf_event_type). LOST: the memory was full."""

    LOST = 2
    SAMPLE = 9
    SWITCH = 14


class ThreadEvents:
    """The events of one thread, until ``close``. Raises OSError where the kernel refuses them."""

    def __init__(self, thread: int, event: int, sampled: int, flags: int, period: int, pages: int) -> None:
        self._bytes = pages * _PAGE
        self._descriptor = _open_event(thread, event, sampled, flags, period)
        try:
            self._memory = mmap.mmap(self._descriptor, _PAGE + self._bytes)
        except OSError:
            os.close(self._descriptor)
            raise

    def records(self) -> Iterator[tuple[int, int, bytes]]:
        """Kind, flags and content of the records since the last reading."""
        (head,), (tail,) = (struct.unpack_from("<Q", self._memory, at) for at in (_HEAD_AT, _TAIL_AT))
        data, first = bytes(self._memory[_PAGE:]), tail % self._bytes
        part = (data[first:] + data[:first])[: min(head - tail, self._bytes)]
        struct.pack_into("<Q", self._memory, _TAIL_AT, head)
        at = 0
        while at + 8 <= len(part):
            kind, flags, length = struct.unpack_from("<IHH", part, at)
            if length < 8:
                return
            yield kind, flags, part[at + 8 : at + length]
            at += length

    def close(self) -> None:
        """End the events."""
        self._memory.close()
        os.close(self._descriptor)


class CodeEvents(ThreadEvents):
    """Samples of the code that a thread runs, one in ``period_ns`` on a CPU. Raises OSError."""

    def __init__(self, thread: int, period_ns: int, pages: int) -> None:
        flags = _WITH_CLOCK | _HIDDEN
        try:
            super().__init__(thread, _TASK_CLOCK, _OF_CODE, flags, period_ns, pages)
        except OSError:
            # Time that the kernel itself takes has samples for root only, or with perf_event_paranoid 1 or less.
            super().__init__(thread, _TASK_CLOCK, _OF_CODE, flags | _NO_KERNEL, period_ns, pages)

    def read(self) -> Iterator[tuple[int, int]]:
        """Time (ns on CLOCK_MONOTONIC) and address of the samples since the last reading: of code of the program, also
        while the kernel worked for it."""
        for kind, _, body in self.records():
            if kind != _Record.SAMPLE or len(body) < 24:
                continue
            address, at_ns, callers = struct.unpack_from("<QQQ", body)
            numbers = struct.unpack_from(f"<{min(callers, len(body) // 8 - 3)}Q", body, 24)
            if _USER_MARK in numbers[:-1]:
                yield at_ns, numbers[numbers.index(_USER_MARK) + 1]
            elif address < _MARKS and not numbers:
                yield at_ns, address


class SwitchEvents(ThreadEvents):
    """The times at which a thread loses its CPU while it is ready to run, and gets one again. Raises OSError.

    ``switches`` counts all that were read, also where it sleeps.
    """

    def __init__(self, thread: int, pages: int) -> None:
        flags = _WITH_CLOCK | _HIDDEN | _NO_KERNEL | _SWITCHES | _WITH_TIME
        super().__init__(thread, _NOTHING, _TIME_ALONE, flags, 0, pages)
        self.switches = self._since_ns = 0

    def read(self) -> Iterator[tuple[int, int]]:
        """Begins and ends (ns on CLOCK_MONOTONIC) of the times without a CPU that have ended since the last reading."""
        for kind, flags, body in self.records():
            if kind == _Record.LOST:
                self._since_ns = 0
            if kind != _Record.SWITCH or len(body) < 8:
                continue
            (at_ns,) = struct.unpack_from("<Q", body)
            self.switches += 1
            if self._since_ns and not flags & _OUT:
                yield self._since_ns, at_ns
            self._since_ns = at_ns if flags & _OUT and flags & _PREEMPTED else 0


def refusal() -> str:
    """Why the kernel refuses events of this thread; "" if it does not."""
    try:
        SwitchEvents(0, 1).close()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _open_event(thread: int, event: int, sampled: int, flags: int, period: int) -> int:
    """The descriptor of an event of a thread. Raises OSError."""
    if _SYSTEM_CALL is None:
        raise OSError("the number of the system call is not known")
    attributes = bytearray(_ATTRIBUTES_BYTES)
    _ATTRIBUTES.pack_into(attributes, 0, _SOFTWARE, _ATTRIBUTES_BYTES, event, period, sampled, 0, flags)
    struct.pack_into("<i", attributes, _CLOCK_AT, _MONOTONIC)
    struct.pack_into("<H", attributes, _DEPTH_AT, 1)
    libc = ctypes.CDLL(None, use_errno=True)
    memory = (ctypes.c_char * len(attributes)).from_buffer(attributes)
    descriptor: int = libc.syscall(_SYSTEM_CALL, memory, thread, -1, -1, _CLOSE_ON_EXEC)
    if descriptor < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return descriptor
