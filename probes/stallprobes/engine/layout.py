"""Layout of the board: the words of its header and of each probe, their values, and where each section begins."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine.timeline.ring import CALL_WORDS, CALLS, RECORD_WORDS, RECORDS, TIMELINE_WORDS
from stallprobes.engine.timeline.work import timeline_channels
from stallprobes.latency.histogram import BUCKETS
from stallprobes.model import Channel, Probe

LAYOUT_VERSION = 5
MAGIC = 0x5354_414C_4C42_4F41  # "STALLBOA"
ALIGN = 128
HEADER_WORDS = 64
PROBE_WORDS = 64
RING = 4096

MAGIC_WORD, VERSION_WORD, SIZE_WORD, DIGEST_WORD = 0, 1, 2, 3
QUIT = 8
ENGINE_STATE = 16
ENGINE_HEARTBEAT_NS = 17
CLOCK_NS = 18
# The number of the present hold, 0 for none (see ``hold``).
HOLD = 19
# Written by the second process, where there is one.
SECOND_HEARTBEAT_NS = 24
# The values of a simulated GPU's sensors, in the order of ``machine.simulated_telemetry.SENSORS``.
SENSORS_FROM = 32

# Words of a probe. Each writer (session, loop, engine) has cache lines of eight words of its own.
RUN = 0
PERIOD_NS = 1
STATE = 8
ITERATIONS = 9
HEARTBEAT_NS = 10
INFLIGHT_OP = 11
INFLIGHT_SINCE_NS = 12
DUE_NS = 13
RING_HEAD = 14
ON_SINCE_NS = 15
MISSED = 16
DUE_ALLOWED_NS = 17
POLLED_NS = 18
PAUSES = 19
TRACE_HEAD = 20
# The number of the hold in which the loop rests, or rested last.
HELD = 21
ERROR_CODE = 24
ERROR_OP = 25
ERROR_NS = 26
PROOF = 32
GUARD_ADDRESS = 40
GUARD_AHEAD = 41
DUE_CHANNEL = 42
LEAD_NS = 43
ALIGNED = 44
# Two time counters of the engine's slots, each of three words (see ``counter_ns``), and the earliest time at which the
# slot opens unless a probe is switched.
SLOT = 48
NOT_ALONE = 51
OPENS_NS = 54
# The words of a time counter, relative to its first.
CHANGES, OFFSET_NS, TOTAL_NS = 0, 1, 2

COUNT, SUM_NS, MAX_NS, FIRST_NS = 0, 1, 2, 3

Int64s = NDArray[np.int64]
Uint64s = NDArray[np.uint64]


class ProbeState(IntEnum):
    """State of a probe's loop."""

    NEW = 0
    PARKED = 1
    RUNNING = 2
    ENDED = 3
    ERROR = 4


class EngineState(IntEnum):
    """State of the engine."""

    STARTING = 0
    READY = 1
    STOPPING = 2
    FAILED = 3


def _aligned(size: int) -> int:
    return -(-size // ALIGN) * ALIGN


@dataclass(frozen=True)
class BoardLayout:
    """Layout of a board: names, channels and periods (ns) of the probes, offsets of their sections, size (bytes).

    ``timeline_channels`` are those that the timeline fills, ``timeline_offset`` that of its own section.
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
        channels = tuple(probe.program.channels() for probe in probes)
        # The board cannot grow, so the timeline's channels exist whether it is switched on or not.
        traced = tuple(timeline_channels(probe.program) for probe in probes)
        offsets = []
        end = HEADER_WORDS * 8
        for own, more in zip(channels, traced, strict=True):
            end = _aligned(end)
            offsets.append(end)
            end += sum(section_sizes(len(own) + len(more)))
        periods = tuple(probe.period_ns for probe in probes)
        timeline = _aligned(end)
        end = timeline + (TIMELINE_WORDS + RECORDS * RECORD_WORDS) * 8
        return cls(names, channels, traced, periods, tuple(offsets), timeline, _aligned(end))

    def digest(self) -> int:
        """Checksum of names and channels; it detects processes that disagree about the layout."""
        return zlib.crc32(repr((self.names, self.channels, self.timeline_channels, RING, CALLS, BUCKETS)).encode())


def section_sizes(channels: int) -> tuple[int, int, int, int, int]:
    return (
        PROBE_WORDS * 8, _aligned(channels * BUCKETS * 8), _aligned(channels * 4 * 8), RING * 3 * 8,
        CALLS * CALL_WORDS * 8,
    )  # fmt: skip
