"""Where each section of a board begins; the words of the sections are in ``native.layouts.board``."""

from __future__ import annotations

import ctypes
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

from stallprobes.engine.gpu_work import timeline_channels
from stallprobes.model import Channel, Probe
from stallprobes.native.layouts.board import (
    ALIGN,
    GPU_RECORDS,
    HOST_CALLS,
    SAMPLES,
    BoardHeader,
    ChannelStats,
    GpuRecord,
    HostCall,
    ProbeWords,
    Sample,
    TimelineWords,
)
from stallprobes.native.layouts.histogram import BUCKETS


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
