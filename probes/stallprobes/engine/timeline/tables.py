"""Memory that the compiled collector works on: tracks, queues, clocks, and records on their way to the board."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from stallprobes.engine.board import Board
from stallprobes.engine.gpu_work import StreamUse, depth, submissions
from stallprobes.model import Channel, Context, Phase, Probe
from stallprobes.native.layouts import timeline
from stallprobes.native.layouts.board import GpuRecord, HostCall
from stallprobes.native.layouts.structure import CACHE_LINE
from stallprobes.native.layouts.timeline import Collector as CollectorWords

# Thread number of a probe whose thread is unknown. No driver call has this number.
_NO_THREAD = -1


def table(structure: type[Any], count: int) -> Any:
    """An array of zeros that begins with a cache line, and whose pages are in memory.

    The first write to a page takes the collector longer than a record does.
    """
    size = ctypes.sizeof(structure) * count
    memory = ctypes.create_string_buffer(size + CACHE_LINE)
    ctypes.memset(memory, 0, len(memory))
    return (structure * count).from_buffer(memory, -ctypes.addressof(memory) % CACHE_LINE)


class CollectorTables:
    """The tables of a timeline that is on. ``clocks`` are the GPUs' clocks, empty if unknown."""

    def __init__(self, contexts: Mapping[int, Context], with_clocks: bool) -> None:
        """``contexts`` are those of the engine by their number in records."""
        devices = sorted({context.device for context in contexts.values()})
        self._contexts = table(timeline.TracedContext, len(contexts))
        for row, (number, context) in zip(self._contexts, contexts.items(), strict=True):
            row.number, row.clock = number, devices.index(context.device)
        self.clocks: Sequence[timeline.GpuClock] = table(timeline.GpuClock, len(devices) if with_clocks else 0)
        for clock, device in zip(self.clocks, devices, strict=False):
            clock.last_context = next(number for number, context in contexts.items() if context.device == device)
        self._batch, self._waiting = table(GpuRecord, timeline.BATCH), table(GpuRecord, timeline.MOST_KEPT)
        self._order, self._merged = table(ctypes.c_uint32, timeline.BATCH), table(ctypes.c_uint32, timeline.BATCH)
        self._calls = table(timeline.DriverCall, timeline.IDS)
        self._tracks = table(timeline.Track, 0)
        self._of_tracks: list[Any] = []

    def forget_clocks(self) -> None:
        """Work without the GPUs' clocks, and so without context switches."""
        self.clocks = table(timeline.GpuClock, 0)

    def add_tracks(
        self,
        board: Board,
        probes: Iterable[Probe],
        numbers: Mapping[StreamUse, tuple[int, int]],
        threads: Mapping[str, int],
        found_by_id: set[StreamUse],
    ) -> None:
        """Make a track of each use of a stream; ``numbers`` are the numbers of its context and stream in records.

        Those of ``found_by_id`` have their thread's number, of ``threads`` by the probe's name.
        """
        own = {probe.name: probe for probe in probes}
        self._tracks = table(timeline.Track, len(numbers))
        for track, (use, (context, stream)) in zip(self._tracks, numbers.items(), strict=True):
            probe, part = own[use.probe], board[use.probe]
            ops, queue = _ops(probe, use, part.channels, part.timeline_channels), table(HostCall, timeline.QUEUE)
            self._of_tracks += [ops, queue]
            track.probe = board.layout.names.index(use.probe)
            track.context, track.stream = context, stream
            track.depth = depth(probe.program, use.stream)
            track.thread = threads.get(use.probe, _NO_THREAD) if use in found_by_id else 0
            track.loaded = part.words.host_calls
            track.ops, track.queue = ctypes.addressof(ops), ctypes.addressof(queue)
            track.words = ctypes.addressof(part.words)
            track.host_calls, track.hist, track.stats = (
                array.ctypes.data for array in (part.host_calls, part.hist, part.stats)
            )

    def connect(self, words: CollectorWords, board: Board) -> None:
        """Write the addresses of the tables and of the board's section to ``words``."""
        words.context_count, words.contexts = len(self._contexts), ctypes.addressof(self._contexts)
        words.clock_count, words.clocks = len(self.clocks), ctypes.addressof(self.clocks)  # type: ignore[arg-type]
        words.track_count, words.tracks = len(self._tracks), ctypes.addressof(self._tracks)
        words.calls = ctypes.addressof(self._calls)
        words.batch, words.waiting = ctypes.addressof(self._batch), ctypes.addressof(self._waiting)
        words.order, words.merged = ctypes.addressof(self._order), ctypes.addressof(self._merged)
        words.timeline = ctypes.addressof(board.timeline.words)
        words.records = board.timeline.records.ctypes.data
        words.kept = 0


def _ops(probe: Probe, use: StreamUse, own: Sequence[Channel], traced: Sequence[Channel]) -> Any:
    """The submissions of each op of the probe on the stream, and the rows of its histograms."""
    ops = table(timeline.TrackOp, len(probe.program.ops))
    for op in ops:
        op.start_rows[:] = op.early_rows[:] = op.gpu_rows[:] = [timeline.NO_ROW] * timeline.PHASE_ROWS
    rows = {channel: place + len(own) for place, channel in enumerate(traced)}
    for work in submissions(probe.program):
        if work.stream != use.stream:
            continue
        op = ops[work.op]
        op.records, op.awaited = work.records, work.awaited
        labels = ("", work.label) if work.label else ("",)
        for phase, target in ((Phase.START, op.start_rows), (Phase.EARLY, op.early_rows), (Phase.GPU, op.gpu_rows)):
            for place, label in enumerate(labels):
                target[place] = rows.get(Channel(phase, label), timeline.NO_ROW)
    return ops
