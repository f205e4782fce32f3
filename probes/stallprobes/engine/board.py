"""The board: shared memory that the engine's loops write and the session reads.

It is one anonymous block (``memfd_create``), so nothing remains when both processes have ended. It holds a header, a
section for each probe, and a section for the timeline. Every word has one writer; readers never block writers. Times
are ns of CLOCK_MONOTONIC, or of the simulated clock if the header has one.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import mmap
import os
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.gpu_work import timeline_channels
from stallprobes.engine.snapshot import ProbeErrorCode, ProbeSnapshot, Snapshot
from stallprobes.latency.histogram import Histogram, HistogramBlock
from stallprobes.latency.window import NO_SAMPLES, InFlight, Samples
from stallprobes.model import Channel, Phase, Probe
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.board import (
    ALIGN,
    BOARD_MAGIC,
    GPU_RECORDS,
    HOST_CALLS,
    LAYOUT_VERSION,
    SAMPLES,
    BoardHeader,
    ChannelStats,
    EngineState,
    GpuRecord,
    HostCall,
    ProbeState,
    ProbeWords,
    Sample,
    TimeCounter,
    TimelineWords,
    create_shared_memory,
)
from stallprobes.native.layouts.histogram import BUCKETS
from stallprobes.native.layouts.schedule import LEAD_DEFAULT_NS

# Rows of GpuRecord, and of HostCall.
GpuRecords = NDArray[Any]
HostCalls = NDArray[Any]
# Members of ProbeState by their number. Indexing this tuple is faster than ``ProbeState(number)``.
_STATES = tuple(ProbeState)


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


@dataclass(frozen=True)
class SectionLayout:
    """Offsets in bytes of the parts of a probe's section from its begin, and its size, for ``rows`` of channels."""

    rows: int
    hist: int
    stats: int
    samples: int
    host_calls: int
    size: int

    @classmethod
    def of(cls, rows: int) -> SectionLayout:
        """The layout of a section with ``rows`` channels."""
        hist = _aligned(ctypes.sizeof(ProbeWords))
        stats = hist + _aligned(rows * BUCKETS * ctypes.sizeof(ctypes.c_uint64))
        samples = stats + _aligned(rows * ctypes.sizeof(ChannelStats))
        host_calls = samples + SAMPLES * ctypes.sizeof(Sample)
        return cls(rows, hist, stats, samples, host_calls, host_calls + HOST_CALLS * ctypes.sizeof(HostCall))


@dataclass(frozen=True)
class BoardLayout:
    """Layout of a board: names, channels and periods (ns) of the probes, offsets of their sections, size (bytes).

    ``timeline_channels`` are the channels that the timeline fills, ``timeline_offset`` is the offset of its section.
    """

    names: tuple[str, ...]
    channels: tuple[tuple[Channel, ...], ...]
    timeline_channels: tuple[tuple[Channel, ...], ...]
    periods_ns: tuple[int, ...]
    offsets: tuple[int, ...]
    timeline_offset: int
    size: int

    @classmethod
    def of(cls, probes: Sequence[Probe]) -> BoardLayout:
        """The layout for ``probes``. Raises ValueError if two have the same name."""
        names = tuple(probe.name for probe in probes)
        if len(set(names)) != len(names):
            raise ValueError("two probes have the same name")
        channels = tuple(probe.program.channels for probe in probes)
        # The board cannot grow, so the timeline's channels exist whether it is switched on or not.
        traced = tuple(timeline_channels(probe.program) for probe in probes)
        offsets = []
        end = ctypes.sizeof(BoardHeader)
        for own, more in zip(channels, traced, strict=True):
            end = _aligned(end)
            offsets.append(end)
            end += SectionLayout.of(len(own) + len(more)).size
        periods = tuple(probe.period_ns for probe in probes)
        timeline = _aligned(end)
        end = timeline + _aligned(ctypes.sizeof(TimelineWords)) + GPU_RECORDS * ctypes.sizeof(GpuRecord)
        return cls(names, channels, traced, periods, tuple(offsets), timeline, _aligned(end))

    def digest(self) -> int:
        """Checksum of names and channels; it detects processes that disagree about the layout."""
        return zlib.crc32(repr((self.names, self.channels, self.timeline_channels, SAMPLES, BUCKETS)).encode())


class TimelineSection:
    """The section: ``words``, and ``records``, GpuRecord[GPU_RECORDS]."""

    def __init__(self, memory: memoryview, offset: int) -> None:
        self.words: TimelineWords = TimelineWords.from_buffer(memory, offset)
        first = offset + _aligned(ctypes.sizeof(TimelineWords))
        self.records: GpuRecords = np.frombuffer(memory, dtype_of(GpuRecord), GPU_RECORDS, first)

    @property
    def was_on(self) -> bool:
        """True if records were collected at any time of the session."""
        return bool(self.words.started_ns)

    def read(self, since: int = 0) -> tuple[GpuRecords, int, int]:
        """The records from number ``since`` on, oldest first.

        Also the number of the next record, and how many from ``since`` on were overwritten before they could be read.
        """
        head = self.words.records
        first = max(since, head - GPU_RECORDS, 0)
        numbers = np.arange(first, head, dtype=np.int64)
        places = numbers % GPU_RECORDS
        rows = self.records[places]
        # A record that is being overwritten has another number before or after the copy.
        whole = (rows["sequence"] == numbers + 1) & (self.records["sequence"][places] == numbers + 1)
        rows = rows[whole]
        return rows, head, max(head - min(since, head), 0) - len(rows)

    def append(self, record: GpuRecord) -> None:
        """Append a record, whose sequence number is set; for a writer that is not compiled."""
        number = self.words.records
        place = number % GPU_RECORDS
        self.records["sequence"][place] = 0
        record.sequence = 0
        self.records[place] = np.frombuffer(bytes(record), dtype_of(GpuRecord), 1)[0]
        self.records["sequence"][place] = number + 1
        self.words.records = number + 1


class ProbeSection:
    """A probe's section of the board.

    ``words`` are its words; as arrays: ``hist`` uint64[rows][BUCKETS], ``stats`` ChannelStats[rows], ``samples``
    Sample[SAMPLES], the calls measured last, and ``host_calls`` HostCall[HOST_CALLS], those for the timeline. The rows
    of ``channels`` come first, then those of ``timeline_channels``.
    """

    def __init__(
        self,
        name: str,
        channels: tuple[Channel, ...],
        timeline_channels: tuple[Channel, ...],
        memory: memoryview,
        offset: int,
    ) -> None:
        self.name = name
        self.channels = channels
        self.timeline_channels = timeline_channels
        layout = SectionLayout.of(len(channels) + len(timeline_channels))
        rows = layout.rows
        self.words: ProbeWords = ProbeWords.from_buffer(memory, offset)
        self.hist: NDArray[np.uint64] = np.frombuffer(memory, np.uint64, rows * BUCKETS, offset + layout.hist).reshape(
            rows, BUCKETS
        )
        self.stats: NDArray[Any] = np.frombuffer(memory, dtype_of(ChannelStats), rows, offset + layout.stats)
        self.samples: NDArray[Any] = np.frombuffer(memory, dtype_of(Sample), SAMPLES, offset + layout.samples)
        self.host_calls: HostCalls = np.frombuffer(memory, dtype_of(HostCall), HOST_CALLS, offset + layout.host_calls)

    def channel(self, channel: Channel) -> int:
        """The row of ``channel``. Raises ValueError if the probe has no such channel."""
        return (*self.channels, *self.timeline_channels).index(channel)


class Board:
    """The mapped shared memory. ``fd`` can be passed to another process; ``header`` are its first words."""

    def __init__(self, fd: int, layout: BoardLayout) -> None:
        self.fd = fd
        self.layout = layout
        # Populated, so that the first count in a bucket causes no page fault.
        self.mm: mmap.mmap | None = mmap.mmap(fd, layout.size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        memory = memoryview(self.mm)
        self.header: BoardHeader = BoardHeader.from_buffer(memory)
        self._sections = [
            ProbeSection(name, channels, traced, memory, offset)
            for name, channels, traced, offset in zip(
                layout.names, layout.channels, layout.timeline_channels, layout.offsets, strict=True
            )
        ]
        self.timeline = TimelineSection(memory, layout.timeline_offset)
        self._by_name = {part.name: part for part in self._sections}

    @classmethod
    def create(cls, layout: BoardLayout, fd: int | None = None) -> Board:
        """A new board of zeros with all probes off.

        ``fd``, if given, is the empty shared memory to use; the board closes it. Raises OSError without memory.
        """
        fd = create_shared_memory() if fd is None else fd
        try:
            os.ftruncate(fd, layout.size)
            # If the block shrank, its readers would get SIGBUS.
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
            board = cls(fd, layout)
        except BaseException:
            os.close(fd)
            raise
        for part, period_ns in zip(board._sections, layout.periods_ns, strict=True):
            part.words.period_ns = period_ns
            part.words.lead_ns = LEAD_DEFAULT_NS
            part.words.due_channel = part.channel(Channel(Phase.DUE))
            # Without slots the slot is open from the beginning, and the allowed time is the board's time.
            part.words.slot.changes = 1
            part.stats["first_ns"] = -1
        header = board.header
        header.version, header.size, header.digest = LAYOUT_VERSION, layout.size, layout.digest()
        header.magic = BOARD_MAGIC
        return board

    @classmethod
    def attach(cls, fd: int, layout: BoardLayout) -> Board:
        """The board that another process created; it closes ``fd``. Raises RuntimeError for another layout."""
        size = os.fstat(fd).st_size
        if size != layout.size:
            raise RuntimeError(f"the board has {size} bytes, not {layout.size}")
        board = cls(fd, layout)
        header = board.header
        actual = [header.magic, header.version, header.size, header.digest]
        wanted = [BOARD_MAGIC, LAYOUT_VERSION, layout.size, layout.digest()]
        for what, value, expected in zip(
            ("magic", "version", "size", "digest of channels"), actual, wanted, strict=True
        ):
            if value != expected:
                board.fd = -1
                del header
                board.close()
                raise RuntimeError(f"the board's {what} is {value}, not {expected}")
        return board

    def __getitem__(self, probe: str | int) -> ProbeSection:
        """The section of a probe by name or number. Raises KeyError or IndexError."""
        return self._by_name[probe] if isinstance(probe, str) else self._sections[probe]

    def switch(self, name: str, on: bool) -> None:
        """Switch a probe on or off. Raises KeyError for an unknown name."""
        self._by_name[name].words.run = int(on)

    @property
    def running(self) -> dict[str, bool]:
        """States of the probes' switches by name, True for on."""
        return {name: probe.words.run != 0 for name, probe in self._by_name.items()}

    def set_period(self, name: str, period_ns: int) -> None:
        """Set the time in ns between the due times of a probe's iterations.

        Raises KeyError for an unknown name, ValueError for a negative time.
        """
        if period_ns < 0:
            raise ValueError(f"a period is 0 ns or more, not {period_ns}")
        self._by_name[name].words.period_ns = period_ns

    def now(self) -> int:
        """The time in ns: of the simulated clock, or CLOCK_MONOTONIC."""
        return self.header.clock_ns or time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def close(self) -> None:
        """Close the descriptor and unmap the memory, or leave the mapping to the views that still exist."""
        self._sections.clear()
        self._by_name.clear()
        self.header = BoardHeader()
        self.__dict__.pop("timeline", None)
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        if self.mm is not None:
            with contextlib.suppress(BufferError):
                self.mm.close()
            # With views left, the mapping lives as long as they do; it has a descriptor of its own.
            self.mm = None

    def probe_snapshot(self, name: str, with_channels: bool = True, with_timeline: bool = True) -> ProbeSnapshot:
        """The statistics of one probe now, without recent calls.

        It has no histograms unless ``with_channels``, and none of the timeline unless ``with_timeline``. Raises
        KeyError for an unknown name.
        """
        part = self._by_name[name]
        channels = _shown(part, with_timeline and self.timeline.was_on) if with_channels else ()
        (snapshot,) = _read([(part, channels)], self.now, with_samples=False)
        return snapshot

    def timeline_channels(self, name: str) -> dict[Channel, Histogram]:
        """The histograms of one probe that the timeline fills. Raises KeyError for an unknown name."""
        part, histograms = self._by_name[name], _Histograms()
        histograms.read(part, part.timeline_channels)
        return histograms.made()[0]

    def snapshot(self, now_ns: int | None = None) -> Snapshot:
        """The statistics of all probes. ``now_ns`` is the time of the snapshot, by default ``now()``."""
        traced = self.timeline.was_on
        now = self.now if now_ns is None else lambda: now_ns
        probes = _read([(part, _shown(part, traced)) for part in self._sections], now)
        return Snapshot(
            at_ns=probes[0].at_ns if probes else now(),
            engine_state=EngineState(self.header.engine_state),
            engine_heartbeat_ns=self.header.engine_heartbeat_ns,
            probes={probe.name: probe for probe in probes},
        )


def counter_ns(counter: TimeCounter, now_ns: int) -> int:
    """The time in ns that a time counter shows at ``now_ns``.

    The engine writes ``offset_ns`` only while it does not count, ``total_ns`` only while it does, so no lock is needed.
    """
    while True:
        changes = counter.changes
        counted = now_ns - counter.offset_ns if changes & 1 else counter.total_ns
        if counter.changes == changes:
            return counted


def _shown(part: ProbeSection, traced: bool) -> tuple[Channel, ...]:
    """The channels of a snapshot: the timeline's channels appear once it has been on."""
    return (*part.channels, *part.timeline_channels) if traced else part.channels


class _Histograms:
    """Histograms that are read one probe after the other and then made at once: all take little longer than one."""

    def __init__(self) -> None:
        self._channels: list[Sequence[Channel]] = []
        self._keys: list[NDArray[np.int64]] = []
        self._counts: list[NDArray[np.uint64]] = []
        self._maxima: list[int] = []

    def read(self, part: ProbeSection, channels: Sequence[Channel]) -> None:
        """Read those of ``channels``, which are neighbors on the board."""
        first = part.channel(channels[0]) if channels else 0
        rows = slice(first, first + len(channels))
        # One dimension takes a fifth of the time of two, and truth values a sixth of the time of integers.
        flat = part.hist[rows].reshape(-1)
        places = (flat != 0).nonzero()[0]
        # Counts before maxima: a maximum may be ahead of its count, never behind it. A copy: the loop counts meanwhile.
        self._counts.append(flat[places])
        self._keys.append(places + len(self._maxima) * BUCKETS)
        self._maxima += part.stats["max_ns"][rows].tolist()
        self._channels.append(channels)

    def made(self) -> list[dict[Channel, Histogram]]:
        """The histograms of each probe."""
        counts = np.concatenate(self._counts).astype(np.int64)
        block = HistogramBlock.of_keys(np.concatenate(self._keys), counts, self._maxima)
        rows = iter(block.histograms())
        return [{channel: next(rows) for channel in channels} for channels in self._channels]


def _read(
    parts: Sequence[tuple[ProbeSection, tuple[Channel, ...]]], now: Callable[[], int], with_samples: bool = True
) -> list[ProbeSnapshot]:
    """The statistics of probes with the histograms of channels of each, all as those of one time."""
    histograms = _Histograms()
    snapshots = [_read_probe(part, channels, histograms, now, with_samples) for part, channels in parts]
    # Read after the probes, so that no call in flight began after it.
    at_ns = now()
    made = histograms.made() if snapshots else []
    return [snapshot_at(at_ns, channels) for snapshot_at, channels in zip(snapshots, made, strict=True)]


def _read_probe(
    part: ProbeSection,
    channels: tuple[Channel, ...],
    histograms: _Histograms,
    now: Callable[[], int],
    with_samples: bool,
) -> Callable[[int, Mapping[Channel, Histogram]], ProbeSnapshot]:
    """The statistics of a probe, for the time of the snapshot and the histograms of ``channels``, which ``histograms``
    get."""
    words = part.words
    now_ns = now()
    allowed_ns = counter_ns(words.slot, now_ns)
    iterations = words.iterations
    histograms.read(part, channels)
    first_ns: dict[Channel, int | None] = {}
    for channel, first in zip(channels, part.stats["first_ns"][: len(channels)].tolist(), strict=True):
        first_ns[channel] = first if iterations and first >= 0 else None
    samples, head = _samples(part) if with_samples else (NO_SAMPLES, 0)
    error = None
    if words.error_op != 0:
        error = ProbeErrorCode(words.error_code, words.error_op, words.error_ns)
    in_slots = words.slot.changes != 1
    # Read before the call in flight: a reader that loses its CPU in between must not make the call look older.
    seen_ns = now()
    flight = _in_flight(words, allowed_ns)
    not_alone_ns = counter_ns(words.not_alone, now_ns)
    snapshot = partial(
        ProbeSnapshot,
        name=part.name,
        state=_STATES[words.state],
        on=words.run != 0,
        iterations=iterations,
        on_since_ns=words.on_since_ns,
        heartbeat_ns=words.heartbeat_ns,
        in_flight=None if flight is None else _flight_at(flight, seen_ns, in_slots),
        error=error,
        missed=words.missed,
        proof=words.proof,
        period_ns=words.period_ns,
        first_ns=first_ns,
        samples=samples,
        sample_count=head,
        in_slots=in_slots,
        not_alone_ns=not_alone_ns,
        polled_ns=words.polled_ns,
        paused_ns=words.paused_ns,
    )
    return lambda at_ns, read: snapshot(at_ns=at_ns, allowed_ns=allowed_ns if in_slots else at_ns, channels=read)


def _flight_at(flight: InFlight, at_ns: int, in_slots: bool) -> InFlight:
    """The call in flight at the time ``at_ns``."""
    allowed_ns = flight.allowed_ns if in_slots else max(at_ns - flight.due_ns, 0)
    return flight._replace(age_ns=max(at_ns - flight.since_ns, 0), allowed_ns=allowed_ns)


def _in_flight(words: ProbeWords, allowed_ns: int) -> InFlight | None:
    for _ in range(2):
        seen = words.iterations, words.inflight_op, words.inflight_since_ns
        due, due_allowed = words.due_ns, words.due_allowed_ns
        if (words.iterations, words.inflight_op, words.inflight_since_ns) == seen:
            _, op, since = seen
            return InFlight(op - 1, since, 0, due, max(allowed_ns - due_allowed, 0)) if op > 0 else None
    # The words change, so no call hangs.
    return None


def _samples(part: ProbeSection) -> tuple[Samples, int]:
    """The measured calls that the ring holds, oldest first, and the number of the next one."""
    head = part.words.samples
    # In the order of the calls: a full ring begins behind its head, another one at its beginning.
    begin = max(head - SAMPLES, 0)
    middle = begin % SAMPLES
    # The view has integers, which are copied in a tenth of the time of structures.
    rows = part.samples.view(np.int64).reshape(SAMPLES, -1)
    copied = np.concatenate((rows[middle:], rows[:middle])) if begin else rows[:head].copy()
    entries = copied.view(part.samples.dtype).reshape(-1)
    # Entries that were overwritten during the copy are left out, and the entry that may be half written.
    first = max(part.words.samples - SAMPLES + 1, 0)
    return entries[min(first, head) - begin :], head
