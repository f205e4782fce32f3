"""Reader of the file of a watched process, also while it is written.

The file may be damaged, or made by a hostile program: every number is checked against its limit before it is used.
System calls read it: another process could cut a mapped file off under its reader. Words beside a sequence number that
changed meanwhile are read again.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Any
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from stallprobes.errors import WatchError
from stallprobes.files.codec import LARGEST_INTEGER
from stallprobes.foreign_text import printable
from stallprobes.latency.histogram import LOWER, UPPER, Histogram
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import (
    CallFlag,
    Flag,
    LossKind,
    SampledTime,
    SlotUse,
    StackFlag,
    WatchState,
)
from stallprobes.records.rows import DRIVER_CALL, Rows, joined, of_kinds, rows_at, rows_where
from stallprobes.watch.intervals import FOREVER
from stallprobes.watch.reading.file_calls import driver_calls, file_text, slow_calls
from stallprobes.watch.reading.lack_text import lack_of, lack_sentence
from stallprobes.watch.reading.process import (
    CallBatch,
    CallFigures,
    ClockPair,
    DriverCall,
    GpuLimits,
    LoadedModule,
    NamedRange,
    RecordBatch,
    RecordedStack,
    SampleBatch,
    SlowDriverCall,
    WatchedProcess,
    WatchedThread,
)
from stallprobes.watch.reading.record_windows import RecordWindows
from stallprobes.watch.reading.words import STATES, ProcessState

# Name of a process's file: PID-NUMBER.watch. NUMBER: number of files that were made for this PID before, since a
# process makes another file when it executes another program (execve). A process that cannot record makes an empty file
# PID-NUMBER.LACK.NEEDED.AVAILABLE.watch. LACK: number of what it lacks (Lack). NEEDED, AVAILABLE: bytes, both 0 where
# the lack is no amount of memory or the amounts are not known.
FILE_NAME = re.compile(r"(\d{1,10})-(\d{1,4})(?:\.(\d{1,2})\.(\d{1,20})\.(\d{1,20}))?\.watch")
# Largest number of attempts to read words of a file that its process changes meanwhile.
ATTEMPTS = 16
# Largest time (ns) or count that is accepted in a file. A real program has no larger value. This value also stands for
# the end of a window that has not ended.
MOST = 2**62
# Largest count of a histogram's bucket that is accepted in a file: sums over a histogram stay within 64 bits.
MOST_IN_BUCKET = 2**48
# Largest number of bytes that a copy or fill in a record may have. A larger number is replaced by this limit, so that
# sums stay within 64 bits.
MOST_IN_RECORD = 2**45
# Largest number of samples at the end of the ring that threads may still be writing during a reading.
_OPEN_SAMPLES = 16
# Longest time (ns) that is accepted for a sample: a year. A real sample stands for less.
MOST_OF_SAMPLE = 2**55
# Layout of the first bytes of a file: magic number and version.
_BEGINNING = struct.Struct("<QI")
# NumPy types of structures in a file. _HEADER: header of the file. _API: a watched driver function. _SLOT: a thread of
# the program.
_HEADER, _API, _SLOT = dtype_of(layout.FileHeader), dtype_of(layout.Api), dtype_of(layout.Slot)
# NumPy types of structures in a file. _HISTOGRAM: the calls of one function by one thread. _RECORD: an activity record.
_HISTOGRAM, _RECORD = dtype_of(layout.CallHistogram), dtype_of(layout.WatchRecord)
# NumPy types of structures in a file. _MODULE: a module (program or library with frames of call stacks). _STACK: a call
# stack.
_MODULE, _STACK = dtype_of(layout.Module), dtype_of(layout.Stack)
# NumPy types of structures in a file. _WINDOW: a span of time with or without records. _BLOCK: a block of the log of
# all calls. _LOGGED: a call in this log.
_WINDOW, _BLOCK, _LOGGED = dtype_of(layout.Window), dtype_of(layout.CallBlock), dtype_of(layout.LoggedCall)
# NumPy types of structures in a file. _SAMPLE: a sample of a thread's time. _RANGE: the NVTX ranges of one name in one
# thread.
_SAMPLE, _RANGE = dtype_of(layout.TimeSample), dtype_of(layout.NamedRange)
# Flags, and numbers, of the header that a process has by the same names.
_FLAGS = (
    "calls_only", "no_stacks", "native_stacks", "python_stacks", "free_threaded", "late", "finalized", "beside",
)  # fmt: skip
_NUMBERS = ("parent_pid", "start_ticks", "code", "cupti_version", "not_held", "unfinished")
# Beginning of the name that stands for a function until the library has written its name. The number of the function
# follows.
_UNNAMED = "function "


class IncompleteFile(WatchError):
    """The file is still being made, or its process ended before it was."""


class CallPosition:
    """Position in the log of all calls of a file."""

    def __init__(self) -> None:
        # Number of each block, and number of its calls that have been read.
        self.numbers = np.zeros(0, np.uint64)
        self.read = np.zeros(0, np.uint32)
        # By slot: the calls that have been made, as far as its blocks show, and those that have been read.
        self._made = np.zeros(layout.SLOTS, np.uint64)
        self._read = np.zeros(layout.SLOTS, np.uint64)
        self._missed = 0

    def begin(self, blocks: int) -> None:
        """The position in a log of so many blocks, before its first reading."""
        if len(self.numbers) != blocks:
            self.numbers, self.read = np.zeros(blocks, np.uint64), np.zeros(blocks, np.uint32)

    def move(
        self, process: WatchedProcess, blocks: NDArray[Any], places: NDArray[np.intp], first_ends: NDArray[Any]
    ) -> tuple[int, int]:
        """Note that all calls of the blocks at ``places`` have been read; the first call of each returned at
        ``first_ends``.

        Returns how many calls are now known to have been overwritten before they were read, and until when they had
        returned (ns, CLOCK_MONOTONIC; 0 without any).
        """
        chosen = blocks[places]
        known = self.numbers[places] == chosen["number"]
        before = np.where(known, self.read[places], 0)
        lost = (self._made - self._read).astype(np.int64)
        self.numbers[places], self.read[places] = chosen["number"], chosen["calls"]
        np.add.at(self._read, chosen["slot"], chosen["calls"] - before)
        np.maximum.at(self._made, chosen["slot"], chosen["first"] + chosen["calls"])
        ends = dict.fromkeys(range(layout.SLOTS), FOREVER)
        for thread in process.threads:
            self._made[thread.slot] = max(self._made[thread.slot], thread.logged)
            ends[thread.slot] = FOREVER if thread.ended_ns is None else thread.ended_ns
        missed = (self._made - self._read).astype(np.int64)
        complete_ns = 0
        for slot in np.flatnonzero(missed > lost).tolist():
            # A thread takes its next block when one is full, and gives up the last one when it ends.
            own = np.flatnonzero((chosen["slot"] == slot) & ~known)
            next_ns = int(first_ends[own[np.argmin(chosen["first"][own])]]) if len(own) else ends[slot]
            complete_ns = max(complete_ns, next_ns)
        new, self._missed = int(missed.sum()) - self._missed, int(missed.sum())
        return new, complete_ns


class MapFile(AbstractContextManager["MapFile"]):
    """The file of a watched process, open for reading. A context manager."""

    def __init__(self, path: Path, owner: int | None = None, memory: int | None = None) -> None:
        """Open the file of the user ``owner``, None for the one of this process.

        ``memory`` is a descriptor of it, which stays the caller's; then ``path`` names it only. Raises IncompleteFile,
        or WatchError if it is none of that user or a symbolic link.
        """
        self._owner = os.geteuid() if owner is None else owner
        self.path = path
        self._shown = printable(str(path))
        self._earlier: dict[int, WatchedThread] = {}
        self._apis: dict[int, str] = {}
        match = FILE_NAME.fullmatch(path.name)
        if match is None:
            raise WatchError(f"{self._shown} is not named like the file of a watched process (PID-NUMBER.watch).")
        self._pid, self._image = int(match[1]), int(match[2])
        if match[3]:
            raise WatchError(
                lack_sentence(f"Process {self._pid}", lack_of(int(match[3])), int(match[4]), int(match[5]))
            )
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._file = os.open(path, flags) if memory is None else os.dup(memory)
        except OSError as error:
            raise WatchError(f"{self._shown} cannot be opened: {error.strerror}.") from error
        try:
            self._check(os.fstat(self._file))
        except BaseException:
            os.close(self._file)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        os.close(self._file)

    def read(self, earlier: WatchedProcess | None = None) -> WatchedProcess:
        """The process as it is now; ``earlier`` is a reading of the same file, whose slow calls are not decoded again.

        Raises WatchError if the file is damaged.
        """
        self._earlier = {} if earlier is None else {thread.slot: thread for thread in earlier.threads}
        header = self._header()
        return self._process(header, self._slots(header))

    def records(self, position: int = 0) -> RecordBatch:
        """The activity records from ``position`` on, which is the ``next`` of an earlier batch.

        Raises WatchError if the file is damaged.
        """
        end = self._number(self._header()["records"])
        first = max(position, end - self._places, 0)
        rows = self._ring(_RECORD, layout.RECORDS_AT, self._places, first, end)
        # What was overwritten meanwhile, or may just be.
        oldest = self._number(self._header()["records"]) - self._places + 1
        numbers = np.arange(first, first + len(rows))
        complete = (rows["sequence"] == 2 * numbers.astype(np.uint64) + 2) & (numbers >= oldest)
        kept = rows_where(rows, complete)
        if not of_kinds(kept, *layout.READABLE).all():
            raise self._damaged("has a record of an unknown kind")
        if (kept["bytes"] > MOST_IN_RECORD).any():
            kept = kept.copy()
            kept["bytes"] = np.minimum(kept["bytes"], MOST_IN_RECORD)
        places = kept["name"][kept["kind"] == RecordKind.KERNEL]
        # Most kernels have the name of the one before.
        changes = np.append(True, places[1:] != places[:-1])[: len(places)]
        names = self._names(np.unique(places[changes]))
        return RecordBatch(kept, names, max(end, position), max(end - position, 0) - len(kept))

    def samples(self, position: int = 0) -> SampleBatch:
        """The samples of the threads' time from ``position`` on, which is the ``next`` of an earlier batch.

        Raises WatchError if the file is damaged.
        """
        end = self._number(self._header()["samples"])
        first = max(position, end - layout.TIME_SAMPLES, 0)
        rows = self._ring(_SAMPLE, layout.SAMPLES_AT, layout.TIME_SAMPLES, first, end)
        complete = rows["sequence"] == 2 * np.arange(first, first + len(rows), dtype=np.uint64) + 2
        # The last ones may still be written: the next batch begins with them.
        last = complete[max(len(rows) - _OPEN_SAMPLES, 0) :]
        end -= len(last) - int(np.argmin(last)) if not last.all() else 0
        kept = rows[: max(end - first, 0)][complete[: max(end - first, 0)]]
        for name, most in (
            ("at_ns", MOST),
            ("ns", MOST_OF_SAMPLE),
            ("cpu_ns", MOST),
            ("stack", layout.STACKS),
            ("holder", 2 * layout.STACKS),
            ("api", layout.APIS - 1),
            ("sampled", max(SampledTime)),
        ):
            self._limited(int(kept[name].max(initial=0)), most, f"sample with the {name}")
        if (kept["since_ns"] > kept["at_ns"]).any():
            raise self._damaged("has a sample that ends before it begins")
        functions = {number: self._api(number) for number in np.unique(kept["api"]).tolist()}
        return SampleBatch(kept, functions, max(end, position), max(end - position, 0) - len(kept))

    def calls(self, position: CallPosition, process: WatchedProcess) -> CallBatch:
        """The calls that finished since ``position``, which is moved on; ``process`` is a reading before this one.

        Raises WatchError if the file is damaged.
        """
        earlier, blocks = self._blocks(), self._blocks()
        position.begin(len(blocks))
        # When a thread takes a block, the one before is complete: a second look at those of the first look shows it so.
        complete = (blocks["number"] == earlier["number"]) & (blocks["number"] > 0)
        read = np.where(position.numbers == blocks["number"], position.read, 0)
        places = np.flatnonzero(complete & (blocks["calls"] > read))
        runs = np.split(places, np.flatnonzero(np.diff(places) > 1) + 1) if len(places) else []
        chunks = [
            self._array(_LOGGED, layout.CALLS_AT + int(run[0]) * layout.BLOCK_PITCH, len(run) * layout.BLOCK_CALLS)
            for run in runs
        ]
        # A block that has passed to another thread meanwhile has other entries.
        kept = self._blocks()["number"][places] == blocks["number"][places]
        entries = np.arange(layout.BLOCK_CALLS)
        new = (entries >= read[places, None]) & (entries < blocks["calls"][places, None]) & kept[:, None]
        order = np.flatnonzero(new)
        every = joined(_LOGGED, chunks)
        order = order[np.argsort(every["end_ns"][order], kind="stable")]
        rows = self._finished_calls(rows_at(every, order), blocks["thread"][places][order // layout.BLOCK_CALLS])
        functions = {number: self._api(number) for number in np.flatnonzero(np.bincount(rows["function"])).tolist()}
        filled = int(blocks["number"].max(initial=0)) - int(position.numbers.max(initial=0))
        first_ends = every["end_ns"][:: layout.BLOCK_CALLS]
        missed, complete_ns = position.move(process, blocks, places[kept], first_ends[kept])
        return CallBatch(rows, functions, missed, complete_ns, filled / max(len(blocks), 1))

    def stack(self, number: int) -> RecordedStack | None:
        """The call stack with a number, from 1; None while it is being written. Raises WatchError if it is damaged."""
        if not 1 <= number <= layout.STACKS:
            raise self._damaged(f"names the call stack number {number}")
        row = self._array(_STACK, layout.STACKS_AT + (number - 1) * layout.STACK_PITCH, 1)[0]
        if not row["ready"]:
            return None
        frames = self._limited(int(row["frames"]), layout.STACK_FRAMES, "number of frames")
        size = self._limited(int(row["text_bytes"]), layout.STACK_TEXT, "size of a stack")
        text, flags = row["text"][:size].decode("ascii", "replace"), int(row["flags"])
        return RecordedStack(
            addresses=tuple(row["addresses"][:frames].tolist()),
            text=text,
            native_cut=bool(flags & StackFlag.NATIVE_CUT),
            text_cut=bool(flags & StackFlag.PYTHON_CUT),
        )

    def modules(self) -> tuple[LoadedModule, ...]:
        """The programs and libraries that have frames of stacks. Raises WatchError if the file is damaged."""
        count = self._limited(int(self._header()["modules"]), layout.MODULES, "number of modules")
        modules = []
        for row in self._array(_MODULE, layout.MODULES_AT, count):
            most = _MODULE["build_id"].shape[0]
            size = self._limited(int(row["build_id_bytes"]), most, "size of a build id")
            path = os.fsdecode(bytes(row["path"]).split(b"\0", 1)[0])
            build_id = row["build_id"][:size].tobytes()
            modules.append(LoadedModule(int(row["start"]), int(row["end"]), int(row["base"]), build_id, path))
        return tuple(modules)

    def _finished_calls(self, logged: NDArray[Any], threads: NDArray[Any]) -> Rows:
        """The calls of entries of the log, each with its thread."""
        rows, calls = np.zeros(len(logged), DRIVER_CALL), logged["call"]
        for name in ("stream", "context", "correlation", "source", "target", "flags"):
            rows[name] = calls[name]
        has_event = (rows["flags"] & int(CallFlag.EVENT)) > 0
        rows["bytes"] = calls["bytes"]
        rows["event"][has_event], rows["bytes"][has_event] = calls["bytes"][has_event], 0
        rows["began_ns"], rows["returned_ns"], rows["thread"] = calls["start_ns"], logged["end_ns"], threads
        self._limited(int(calls["api"].max(initial=0)), layout.APIS - 1, "number of a function")
        rows["function"] = calls["api"]
        self._count(logged["end_ns"].max(initial=0))
        if (logged["end_ns"] < calls["start_ns"]).any():
            raise self._damaged("has a call that ends before it starts")
        return rows

    def _blocks(self) -> NDArray[Any]:
        blocks = self._array(_BLOCK, layout.BLOCKS_AT, self._blocks_kept)
        for name, most in (
            ("calls", layout.BLOCK_CALLS),
            ("slot", layout.SLOTS - 1),
            ("first", MOST),
            ("number", MOST),
        ):
            self._limited(int(blocks[name].max()), most, f"block with the {name}")
        return blocks

    def _check(self, status: os.stat_result) -> None:
        if not stat.S_ISREG(status.st_mode):
            raise WatchError(f"{self._shown} is not a regular file.")
        if status.st_uid != self._owner:
            raise WatchError(f"{self._shown} belongs to another user.")
        # Both are at one place in every format, whose sizes differ.
        magic, version = _BEGINNING.unpack(os.pread(self._file, _BEGINNING.size, 0).ljust(_BEGINNING.size, b"\0"))
        if magic == layout.FILE_MAGIC and version != layout.FILE_FORMAT:
            raise WatchError(f"{self._shown} has the format {version}; this version reads {layout.FILE_FORMAT}.")
        if status.st_size < layout.FILE_BYTES:
            raise IncompleteFile(
                f"{self._shown} is not complete: it has {status.st_size} of {layout.FILE_BYTES} bytes."
            )
        if status.st_size > layout.FILE_BYTES:
            raise WatchError(f"{self._shown} has {status.st_size} bytes in place of {layout.FILE_BYTES}.")
        header = self._header()
        if not header["magic"]:
            raise IncompleteFile(f"{self._shown} is not complete: its beginning is not written.")
        if header["magic"] != layout.FILE_MAGIC:
            raise WatchError(f"{self._shown} is not the file of a watched process.")
        if header["pid"] != self._pid:
            raise self._damaged("names another process than its file name")
        self._places = self._sized(header, "record_places", layout.RECORDS, layout.RECORDS_STEP)
        self._blocks_kept = self._sized(header, "call_blocks", layout.CALL_BLOCKS, layout.BLOCKS_STEP)

    def _sized(self, header: Any, name: str, most: int, step: int) -> int:
        """The size of a ring in the header."""
        size = int(header[name])
        if not step <= size <= most or size % step:
            raise self._damaged(f"has the {name} {size}")
        return size

    @property
    def record_places(self) -> int:
        """Number of records that the file keeps."""
        return self._places

    def _damaged(self, what: str) -> WatchError:
        return WatchError(f"{self._shown} is damaged: it {what}.")

    def _bytes(self, offset: int, size: int) -> bytes:
        parts = []
        while size:
            try:
                part = os.pread(self._file, size, offset)
            except OSError as error:
                raise WatchError(f"{self._shown} cannot be read: {error.strerror}.") from error
            if not part:
                raise self._damaged("ends before its size")
            parts.append(part)
            offset, size = offset + len(part), size - len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _array(self, form: np.dtype[Any], offset: int, count: int) -> NDArray[Any]:
        return np.frombuffer(self._bytes(offset, count * form.itemsize), form, count)

    def _header(self) -> Any:
        for _ in range(ATTEMPTS):
            header = self._array(_HEADER, 0, 1)[0]
            before = int(header["clock_sequence"])
            if before % 2 == 0 and int(self._array(_HEADER, 0, 1)[0]["clock_sequence"]) == before:
                break
        return header

    def _slots(self, header: Any) -> list[tuple[int, WatchedThread]]:
        """Use of each slot, with its thread."""
        slots = self._limited(int(header["slots"]), layout.SLOTS, "number of slots")
        owners: set[int] = set()
        # A library that gave CUPTI up learns of no end of a call.
        learns = header["state"] == WatchState.RECORDING
        return [self._slot(number, owners, learns) for number in range(slots)]

    def _slot(self, number: int, owners: set[int], learns: bool) -> tuple[int, WatchedThread]:
        offset = layout.SLOTS_AT + number * layout.SLOT_PITCH
        slot = self._array(_SLOT, offset, 1)[0]
        thread = WatchedThread(
            id=int(slot["thread"]),
            name=file_text(slot["name"]),
            started_ns=self._count(slot["started_ns"]),
            ended_ns=self._count(slot["ended_ns"]) or None,
            in_flight=self._in_flight(offset, int(slot["thread"])) if learns and slot["use"] == SlotUse.LIVE else (),
            figures=self._figures(slot, owners),
            slow_calls=self._slow_calls(slot, offset, self._earlier.get(number)),
            slow_count=self._number(slot["slow_calls"]),
            stack=int(slot["stack"]),
            slot=number,
            owners=int(slot["owners"]),
            lost=self._number(slot["lost"]),
            logged=self._number(slot["logged"]),
        )
        return int(slot["use"]), thread

    def _in_flight(self, offset: int, thread: int) -> tuple[DriverCall, ...]:
        """The calls in flight of ``thread`` in the slot at ``offset``; none if the file changes at each attempt.

        A process that was killed while it wrote them leaves an odd sequence.
        """
        for _ in range(ATTEMPTS):
            part = self._array(_IN_FLIGHT, offset, 1)[0]
            before = int(part["sequence"])
            if before % 2 == 0 and int(self._array(_IN_FLIGHT, offset, 1)[0]["sequence"]) == before:
                depth = self._limited(int(part["depth"]), layout.DEPTH, "number of calls in flight")
                calls = part["calls"][:depth]
                self._count(calls["start_ns"].max(initial=0))
                return tuple(driver_calls(calls, thread, self._api))
        return ()

    def _slow_calls(self, slot: Any, offset: int, earlier: WatchedThread | None) -> tuple[SlowDriverCall, ...]:
        end = self._number(slot["slow_calls"])
        earlier_calls: dict[int, SlowDriverCall] = {}
        # An entry does not change once it is complete. Where one was not, the numbers of the others are not known.
        if earlier is not None and len(earlier.slow_calls) == min(earlier.slow_count, layout.SLOW_CALLS - 1):
            first = earlier.slow_count - len(earlier.slow_calls)
            earlier_calls = dict(enumerate(earlier.slow_calls, first))
            earlier_calls = {at: slow for at, slow in earlier_calls.items() if not slow.function.startswith(_UNNAMED)}
        # What was overwritten meanwhile, or may just be.
        oldest = self._number(self._array(_SLOW_COUNT, offset, 1)[0]["slow_calls"]) - layout.SLOW_CALLS + 1
        numbers = range(max(end - layout.SLOW_CALLS, oldest, 0), end)
        new = np.array([number for number in numbers if number not in earlier_calls], np.int64)
        rows = rows_at(slot["slow"], new % layout.SLOW_CALLS)
        complete = rows["sequence"] == 2 * new.astype(np.uint64) + 2
        earlier_calls.update(zip(new[complete].tolist(), self._decoded(rows_where(rows, complete)), strict=True))
        return tuple(earlier_calls[number] for number in numbers if number in earlier_calls)

    def _decoded(self, rows: NDArray[Any]) -> list[SlowDriverCall]:
        self._count(rows["end_ns"].max(initial=0))
        self._count(rows["call"]["start_ns"].max(initial=0))
        if (rows["end_ns"] < rows["call"]["start_ns"]).any():
            raise self._damaged("has a call that ends before it starts")
        return slow_calls(rows, self._api)

    def _api(self, number: int) -> str:
        """Name of a function by its number in the file."""
        if number not in self._apis:
            if number >= layout.APIS:
                raise self._damaged(f"names the function number {number}")
            row = self._array(_API, layout.APIS_AT + number * _API.itemsize, 1)[0]
            name = file_text(row["name"])
            if not name:
                # The names are written once all functions are chosen.
                return f"{_UNNAMED}{number}"
            self._apis[number] = name
        return self._apis[number]

    def _figures(self, slot: Any, owners: set[int]) -> dict[str, CallFigures]:
        """The figures of a slot by function. ``owners`` are the histograms that belong to other slots."""
        figures_of: dict[str, CallFigures] = {}
        for api in np.flatnonzero(slot["histograms"]).tolist():
            number = int(slot["histograms"][api]) - 1
            if number in owners or number >= layout.HISTOGRAMS:
                raise self._damaged("has a histogram that belongs to two functions or to none")
            owners.add(number)
            figures = self._histogram(number, api)
            if figures.total.count:
                figures_of[self._api(api)] = figures
        return figures_of

    def _histogram(self, number: int, api: int) -> CallFigures:
        offset = layout.HISTOGRAMS_AT + number * layout.HISTOGRAM_PITCH
        row = self._array(_HISTOGRAM, offset, 1)[0]
        counts = row["counts"]
        if row["api"] != api or (counts > MOST_IN_BUCKET).any():
            raise self._damaged("has a histogram with impossible values")
        used = np.flatnonzero(counts)
        most = int(row["max_ns"])
        if len(used):
            # A call may have been counted and its maximum not yet written.
            highest = int(used[-1])
            most = min(max(most, int(LOWER[highest])), int(UPPER[highest]) - 1) if highest < len(LOWER) - 1 else most
        histogram = Histogram.of_counts(counts, self._count(most))
        return CallFigures(
            total=histogram,
            total_ns=self._count(row["total_ns"]),
            slow=self._number(row["slow"]),
            failed=self._number(row["failed"]),
        )

    def _process(self, header: Any, slots: list[tuple[int, WatchedThread]]) -> WatchedProcess:
        flags, kinds = int(header["flags"]), int(header["kinds"])
        losses = {kind: self._number(header["losses"][kind]) for kind in LossKind}
        losses[LossKind.NO_HISTOGRAM] += sum(thread.lost for _, thread in slots)
        calls = (thread.calls for use, thread in slots if use != SlotUse.UNUSED)
        # Documents have these figures as they are.
        for number in (*losses.values(), sum(calls)):
            self._number(number)
        plain: dict[str, Any] = {name: int(header[name]) for name in _NUMBERS}
        plain |= {name: bool(flags & Flag[name.upper()]) for name in _FLAGS}
        return WatchedProcess(
            pid=self._pid,
            image=self._image,
            name=file_text(header["program"]),
            command=file_text(header["command"]),
            state=self._state(int(header["state"])),
            failed_function=file_text(header["function"]),
            cupti_path=file_text(header["cupti_path"]),
            kinds=frozenset(int(kind) for kind in layout.COLLECTED if kinds >> kind & 1),
            slow_limit_ns=min(int(header["slow_ns"]), MOST),
            started=ClockPair(self._count(header["started_ns"]), self._count(header["started_realtime_ns"])),
            clocks=ClockPair(self._count(header["clock_ns"]), self._count(header["clock_realtime_ns"])),
            ended_ns=self._count(header["ended_ns"]) or None,
            threads=tuple(thread for use, thread in slots if use != SlotUse.UNUSED),
            losses=losses,
            records=self._number(header["records"]),
            python=file_text(header["python"]),
            interpreter=(self._number(header["interpreter"]), self._number(header["interpreter_bytes"])),
            recorded_ns=self._count(header["recorded_ns"]),
            unrecorded_ns=self._count(header["unrecorded_ns"]) or None,
            cpus=self._number(header["cpus_ppm"]) / 1e6 or None,
            leaves_graphs=bool(flags & Flag.GRAPHS),
            windows=RecordWindows.of(self._windows(self._number(header["windows"]))),
            budget=min(int(header["cost_ppm"]), layout.EVERYTHING_PPM) / layout.EVERYTHING_PPM,
            callback_ns=self._count(header["timed_ns"]) / max(self._number(header["timed"]), 1),
            stacks_ns=self._count(header["stacks_ns"]),
            gpus=self._gpus(header),
            limits=self._gpu_limits(header),
            **plain,
            ranges=tuple(self._ranges(self._limited(int(header["ranges"]), layout.RANGES, "number of ranges"))),
        )

    def _gpus(self, header: Any) -> tuple[str, ...]:
        count, uuids = self._limited(int(header["devices"]), layout.DEVICES, "number of GPUs"), bytes(header["uuids"])
        return tuple(str(UUID(bytes=uuids[16 * number : 16 * number + 16])) for number in range(count))

    def _gpu_limits(self, header: Any) -> tuple[GpuLimits | None, ...]:
        values = np.asarray(header["limits"], dtype=np.int64).reshape(layout.DEVICES, -1)[: int(header["devices"])]
        return tuple(GpuLimits(*each) if all(each) else None for each in values.tolist())

    def _ranges(self, count: int) -> Iterator[NamedRange]:
        for place in range(count):
            at = layout.RANGES_AT + place * layout.RANGE_PITCH
            row = self._array(_RANGE, at, 1)[0]
            begun = self._number(row["begun"])
            if row["use"] == SlotUse.UNUSED or not begun:
                continue
            # What was overwritten meanwhile, or may just be.
            oldest = self._number(self._array(_RANGE_HEAD, at, 1)[0]["begun"]) - layout.RANGE_BEGINS + 1
            numbers = np.arange(max(begun - layout.RANGE_BEGINS, oldest, 0), begun)
            begins = row["begins"][numbers % layout.RANGE_BEGINS]
            self._count(begins.max(initial=0))
            if (begins[1:] < begins[:-1]).any():
                raise self._damaged("has ranges that do not begin in their order")
            yield NamedRange(
                place=place,
                thread=int(row["thread"]),
                name=file_text(row["name"]),
                begun=begun,
                begins=begins.astype(np.int64),
                inside_ns=self._count(row["inside_ns"]),
            )

    def _windows(self, count: int) -> NDArray[Any]:
        """The last windows of ``count``, in their order."""
        if not count:
            return np.zeros(0, _WINDOW)
        first = max(count - layout.WINDOWS, 0)
        numbers = np.arange(first, count)
        # What was overwritten meanwhile, or may just be, comes first.
        rows: NDArray[Any] = self._array(_WINDOW, layout.WINDOWS_AT, min(count, layout.WINDOWS))
        rows = rows[numbers % layout.WINDOWS]
        rows = rows[rows["sequence"] == 2 * numbers.astype(np.uint64) + 2]
        for name in rows.dtype.names or ():
            self._count(rows[name].max(initial=0))
        ends = np.where(rows["ended_ns"] > 0, rows["ended_ns"], MOST)
        if (ends < rows["began_ns"]).any() or (rows["began_ns"][1:] < ends[:-1]).any():
            raise self._damaged("has a window that ends before it begins")
        return rows

    def _ring(self, form: np.dtype[Any], at: int, places: int, first: int, end: int) -> NDArray[Any]:
        """Entries from number ``first`` to ``end`` of a ring of ``places`` at the offset ``at``."""
        parts = []
        while first < end:
            place = first % places
            count = min(end - first, places - place)
            parts.append(self._array(form, at + place * form.itemsize, count))
            first += count
        return parts[0] if len(parts) == 1 else joined(form, parts)

    def _names(self, places: NDArray[Any]) -> dict[int, str]:
        used = self._limited(int(self._header()["name_bytes"]), layout.NAME_BYTES, "size of the names")
        names = self._bytes(layout.NAMES_AT, used) if len(places) else b""
        texts: dict[int, str] = {}
        for place in places.tolist():
            at = place + 3
            if not place:
                continue
            length = int.from_bytes(names[place - 1 : at], "little")
            if length > layout.LONGEST_NAME or at + length > used:
                raise self._damaged("has a name that lies outside its names")
            texts[place] = file_text(names[at : at + length])
        return texts

    def _limited(self, value: int, most: int, name: str) -> int:
        """``value``; raises WatchError unless it lies between 0 and ``most``."""
        if not 0 <= value <= most:
            raise self._damaged(f"has a {name} of {value}, above {most}")
        return value

    def _count(self, value: Any) -> int:
        return self._limited(int(value), MOST, "time or count")

    def _number(self, value: Any) -> int:
        """A count, which JSON can have."""
        return self._limited(int(value), LARGEST_INTEGER, "time or count")

    def _state(self, number: int) -> ProcessState:
        if number not in STATES:
            raise self._damaged(f"has the unknown state {number}")
        return STATES[number]


def _part(form: np.dtype[Any], *names: str) -> np.dtype[Any]:
    """Fields of a structure, up to the last of them."""
    fields = form.fields
    assert fields is not None
    places = [fields[name] for name in names]
    return np.dtype(
        {
            "names": names,
            "formats": [place[0] for place in places],
            "offsets": [place[1] for place in places],
            "itemsize": max(place[1] + place[0].itemsize for place in places),
        }
    )


# Fields of a thread's entry in the file: sequence number, and number and data of the calls in flight. An attempt to
# read the fields succeeds if the sequence number is even and does not change. After ATTEMPTS failed attempts, the
# thread counts as without calls in flight.
_IN_FLIGHT = _part(_SLOT, "sequence", "depth", "calls")
# Part of a thread's entry in the file with the number of its slow calls. After the slow calls were read, the number is
# read again, to find those that were overwritten during the reading.
_SLOW_COUNT = _part(_SLOT, "slow_calls")
# Part of an NVTX range's entry with the number of its begins. After the begins were read, the number is read again, to
# find those that were overwritten during the reading.
_RANGE_HEAD = _part(_RANGE, "begun")


def watch_files(folder: Path) -> Iterator[Path]:
    """The files in ``folder`` that are named like those of watched processes, in the order of their names.

    Raises WatchError if the folder cannot be read.
    """
    try:
        names = sorted(os.listdir(folder))
    except OSError as error:
        raise WatchError(f"{printable(str(folder))} cannot be read: {error.strerror}.") from error
    for name in names:
        if FILE_NAME.fullmatch(name):
            yield folder / name
