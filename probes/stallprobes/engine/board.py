"""The board: shared memory that the engine's loops write and the session reads.

It is one anonymous block (``memfd_create``), so nothing remains when both processes have ended. It holds a header and
a section for each probe. Every word has one writer; readers never block writers. Times are ns of CLOCK_MONOTONIC, or
of the simulated clock if the header has one.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.layout import (
    CHANGES,
    CLOCK_NS,
    DIGEST_WORD,
    DUE_ALLOWED_NS,
    DUE_CHANNEL,
    DUE_NS,
    ENGINE_HEARTBEAT_NS,
    ENGINE_STATE,
    ERROR_CODE,
    ERROR_NS,
    ERROR_OP,
    FIRST_NS,
    HEADER_WORDS,
    HEARTBEAT_NS,
    INFLIGHT_OP,
    INFLIGHT_SINCE_NS,
    ITERATIONS,
    LAYOUT_VERSION,
    LEAD_NS,
    MAGIC,
    MAGIC_WORD,
    MAX_NS,
    MISSED,
    NOT_ALONE,
    OFFSET_NS,
    ON_SINCE_NS,
    PAUSES,
    PERIOD_NS,
    POLLED_NS,
    PROBE_WORDS,
    PROOF,
    RING,
    RING_HEAD,
    RUN,
    SIZE_WORD,
    SLOT,
    STATE,
    TOTAL_NS,
    VERSION_WORD,
    BoardLayout,
    EngineState,
    Int64s,
    ProbeState,
    Uint64s,
    section_sizes,
)
from stallprobes.engine.loop_timing import LEAD_DEFAULT_NS
from stallprobes.engine.snapshot import ProbeErrorCode, ProbeSnapshot, Snapshot
from stallprobes.engine.timeline.ring import CALL_WORDS, CALLS, TimelineSection
from stallprobes.files.shared_memory import create_shared_memory
from stallprobes.latency.dense import DenseChannels
from stallprobes.latency.histogram import BUCKETS, Histogram
from stallprobes.latency.window import NO_CALLS, InFlight
from stallprobes.model import Channel, Phase


class BoardError(Exception):
    """The shared memory is not a board of the expected layout."""


# ``ProbeState(number)`` takes longer.
_STATES = tuple(ProbeState)


class ProbeSection:
    """A probe's section of the board as numpy views.

    ``words`` int64[64], ``hist`` uint64[channels][BUCKETS], ``stats`` int64[channels][4] (COUNT, SUM_NS, MAX_NS,
    FIRST_NS), ``ring`` int64[RING][3] (end in ns, channel, value in ns), ``trace`` int64[CALLS][CALL_WORDS], the host
    calls for the timeline. The rows of ``channels`` come first, then those of ``timeline_channels``.
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
        rows = len(channels) + len(timeline_channels)
        words, hist, stats, ring, _ = section_sizes(rows)
        starts = np.cumsum([offset, words, hist, stats, ring]).tolist()

        def view(part: int, dtype: type[Any], shape: tuple[int, ...]) -> NDArray[Any]:
            count = int(np.prod(shape))
            return np.frombuffer(memory, dtype, count, starts[part]).reshape(shape)

        self.words: Int64s = view(0, np.int64, (PROBE_WORDS,))
        self.hist: Uint64s = view(1, np.uint64, (rows, BUCKETS))
        self.stats: Int64s = view(2, np.int64, (rows, 4))
        self.ring: Int64s = view(3, np.int64, (RING, 3))
        self.trace: Int64s = view(4, np.int64, (CALLS, CALL_WORDS))

    def channel(self, channel: Channel) -> int:
        """The row of ``channel``. Raises ValueError if the probe has no such channel."""
        return (*self.channels, *self.timeline_channels).index(channel)


class Board:
    """The mapped shared memory. ``fd`` can be passed to another process; ``header`` is int64[64]."""

    def __init__(self, fd: int, layout: BoardLayout) -> None:
        self.fd = fd
        self.layout = layout
        # Populated, so that the first count in a bucket causes no page fault.
        self.mm: mmap.mmap | None = mmap.mmap(fd, layout.size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
        memory = memoryview(self.mm)
        self.header: Int64s = np.frombuffer(memory, np.int64, HEADER_WORDS)
        self._words = self.header.data
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
            part.words[PERIOD_NS] = period_ns
            part.words[LEAD_NS] = LEAD_DEFAULT_NS
            part.words[DUE_CHANNEL] = part.channel(Channel(Phase.DUE))
            # Without slots the slot is open from the beginning, and the allowed time is the board's time.
            part.words[SLOT + CHANGES] = 1
            part.stats[:, FIRST_NS] = -1
        board.header[[VERSION_WORD, SIZE_WORD, DIGEST_WORD]] = LAYOUT_VERSION, layout.size, layout.digest()
        board.header[MAGIC_WORD] = MAGIC
        return board

    @classmethod
    def attach(cls, fd: int, layout: BoardLayout) -> Board:
        """The board that another process created; it closes ``fd``. Raises BoardError for another layout."""
        size = os.fstat(fd).st_size
        if size != layout.size:
            raise BoardError(f"the board has {size} bytes, not {layout.size}")
        board = cls(fd, layout)
        found = board.header[[MAGIC_WORD, VERSION_WORD, SIZE_WORD, DIGEST_WORD]].tolist()
        wanted = [MAGIC, LAYOUT_VERSION, layout.size, layout.digest()]
        for what, value, expected in zip(
            ("magic", "version", "size", "digest of channels"), found, wanted, strict=True
        ):
            if value != expected:
                board.fd = -1
                board.close()
                raise BoardError(f"the board's {what} is {value}, not {expected}")
        return board

    def __getitem__(self, probe: str | int) -> ProbeSection:
        """The section of a probe by name or number. Raises KeyError or IndexError."""
        return self._by_name[probe] if isinstance(probe, str) else self._sections[probe]

    def __len__(self) -> int:
        return len(self._sections)

    def switch(self, name: str, on: bool) -> None:
        """Switch a probe on or off. Raises KeyError for an unknown name."""
        self._by_name[name].words[RUN] = int(on)

    def set_period(self, name: str, period_ns: int) -> None:
        """Set the time in ns between the due times of a probe's iterations. Raises KeyError for an unknown name."""
        self._by_name[name].words[PERIOD_NS] = period_ns

    def now(self) -> int:
        """The time in ns: of the simulated clock, or CLOCK_MONOTONIC."""
        return self._words[CLOCK_NS] or time.clock_gettime_ns(time.CLOCK_MONOTONIC)

    def close(self) -> None:
        """Close the descriptor and unmap the memory, or leave the mapping to the views that still exist."""
        self._sections.clear()
        self._by_name.clear()
        self.header = np.zeros(HEADER_WORDS, dtype=np.int64)
        self._words = self.header.data
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
        traced = with_timeline and self.timeline.was_on
        return _read(self._by_name[name], self.now, traced, with_ring=False, with_channels=with_channels)

    def timeline_channels(self, name: str) -> dict[Channel, Histogram]:
        """The histograms of one probe that the timeline fills. Raises KeyError for an unknown name."""
        part = self._by_name[name]
        first = len(part.channels)
        counts = part.hist[first:].copy()
        counts.flags.writeable = False
        maxima = part.stats[first:, MAX_NS].tolist()
        return {
            channel: Histogram(row, most)
            for channel, row, most in zip(part.timeline_channels, counts, maxima, strict=True)
        }

    def snapshot(self, now_ns: int | None = None) -> Snapshot:
        """The statistics of all probes. ``now_ns`` is the time of the snapshot, by default ``now()``."""
        traced = self.timeline.was_on
        now = self.now if now_ns is None else lambda: now_ns
        probes = {part.name: _read(part, now, traced) for part in self._sections}
        # Read after the probes, so that no call in flight began after it.
        at_ns = self.now() if now_ns is None else now_ns
        return Snapshot(
            at_ns=at_ns,
            engine_state=EngineState(int(self.header[ENGINE_STATE])),
            engine_heartbeat_ns=int(self.header[ENGINE_HEARTBEAT_NS]),
            probes={name: probe.at(at_ns) for name, probe in probes.items()},
        )


def counter_ns(words: Int64s | memoryview[int], first: int, now_ns: int) -> int:
    """The time in ns that the time counter at word ``first`` shows at ``now_ns``.

    CHANGES is odd while it counts, and the time is then ``now_ns`` - OFFSET_NS, else TOTAL_NS. The engine writes
    OFFSET_NS only while it does not count, TOTAL_NS only while it does, so no lock is needed.
    """
    while True:
        changes = words[first + CHANGES]
        counted = now_ns - words[first + OFFSET_NS] if changes & 1 else words[first + TOTAL_NS]
        if words[first + CHANGES] == changes:
            return int(counted)


def _read(
    part: ProbeSection,
    now: Callable[[], int],
    traced: bool = False,
    with_ring: bool = True,
    with_channels: bool = True,
) -> ProbeSnapshot:
    # Access to a memoryview's element takes a third of numpy's time.
    words = part.words.data
    now_ns = now()
    allowed_ns = counter_ns(words, SLOT, now_ns)
    iterations = words[ITERATIONS]
    # Counts before maxima: a maximum may be ahead of its count, never behind it.
    channels: Mapping[Channel, Histogram] = {}
    first_ns: dict[Channel, int | None] = {}
    if with_channels:
        # Channels of the timeline appear once it has been on.
        shown = (*part.channels, *part.timeline_channels) if traced else part.channels
        counts = part.hist[: len(shown)].copy()
        # A histogram copies an array that is writeable.
        counts.flags.writeable = False
        stats = part.stats[: len(shown)].tolist()
        channels = DenseChannels(shown, counts, [stat[MAX_NS] for stat in stats])
        for channel, stat in zip(shown, stats, strict=True):
            first_ns[channel] = stat[FIRST_NS] if iterations and stat[FIRST_NS] >= 0 else None
    ring, head = _ring(part) if with_ring else (NO_CALLS, 0)
    error = None
    if words[ERROR_OP] != 0:
        error = ProbeErrorCode(words[ERROR_CODE], words[ERROR_OP], words[ERROR_NS])
    in_slots = words[SLOT + CHANGES] != 1
    # Read before the call in flight: a reader that loses its CPU in between must not make the call look older.
    seen_ns = now()
    flight = _in_flight(words, allowed_ns)
    not_alone_ns = counter_ns(words, NOT_ALONE, now_ns)
    # Read after the words, so that no call in flight began after it.
    at_ns = now()
    return ProbeSnapshot(
        name=part.name,
        at_ns=at_ns,
        state=_STATES[words[STATE]],
        on=words[RUN] != 0,
        iterations=iterations,
        on_since_ns=words[ON_SINCE_NS],
        heartbeat_ns=words[HEARTBEAT_NS],
        in_flight=None if flight is None else _flight_at(flight, seen_ns, in_slots),
        error=error,
        missed=words[MISSED],
        proof=words[PROOF],
        period_ns=words[PERIOD_NS],
        channels=channels,
        first_ns=first_ns,
        ring=ring,
        ring_head=head,
        allowed_ns=allowed_ns if in_slots else at_ns,
        in_slots=in_slots,
        not_alone_ns=not_alone_ns,
        polled_ns=words[POLLED_NS],
        pauses=words[PAUSES],
    )


def _flight_at(flight: InFlight, at_ns: int, in_slots: bool) -> InFlight:
    """The call in flight at the time ``at_ns``."""
    allowed_ns = flight.allowed_ns if in_slots else max(at_ns - flight.due_ns, 0)
    return replace(flight, age_ns=max(at_ns - flight.since_ns, 0), allowed_ns=allowed_ns)


def _in_flight(words: memoryview[int], allowed_ns: int) -> InFlight | None:
    for _ in range(2):
        seen = words[ITERATIONS], words[INFLIGHT_OP], words[INFLIGHT_SINCE_NS]
        due, due_allowed = words[DUE_NS], words[DUE_ALLOWED_NS]
        if (words[ITERATIONS], words[INFLIGHT_OP], words[INFLIGHT_SINCE_NS]) == seen:
            _, op, since = seen
            return InFlight(op - 1, since, 0, due, max(allowed_ns - due_allowed, 0)) if op > 0 else None
    # The words change, so no call hangs.
    return None


def _ring(part: ProbeSection) -> tuple[Int64s, int]:
    head = int(part.words[RING_HEAD])
    # In the order of the calls: a full ring begins behind its head, another one at its beginning.
    begin = max(head - RING, 0)
    middle = begin % RING
    entries = np.concatenate((part.ring[middle:], part.ring[:middle])) if begin else part.ring[:head].copy()
    # Without the entries that were overwritten during the copy, and the one that may be half written.
    first = max(int(part.words[RING_HEAD]) - RING + 1, 0)
    return entries[min(first, head) - begin :], head
