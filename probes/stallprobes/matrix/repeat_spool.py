"""Temporary store of the repeats of merged checks: a cell of 1000 hosts has 1000, and one is used at a time."""

from __future__ import annotations

import struct
import tempfile
import threading
from array import array
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import BinaryIO, overload

import numpy as np

from stallprobes.latency.histogram import HistogramBlock
from stallprobes.latency.ratio import PERCENTILES
from stallprobes.latency.window import Window
from stallprobes.matrix.matrix import Repeat
from stallprobes.model import Channel

# Size (bytes) up to which all repeats of the merged checks stay in memory. Above this size, the repeats go to a
# temporary file.
_IN_MEMORY = 32 << 20
# Size (bytes) of repeats that are collected in memory before the repeats are added to the temporary file together.
_PENDING_BYTES = 1 << 20
# Percentiles of each latency that are stored with a repeat. Reason: computing the percentiles for all histograms of a
# host at once takes a tenth of the time of single computations.
_PERCENTS = tuple(quantile.percent for quantile in PERCENTILES)
# Layout of the head of a stored repeat: number of its host, number of its list of channels (kinds of latency),
# iterations, duration (ns).
_HEAD = struct.Struct("=IIqq")
# Channels of the histograms of a repeat: of its window, of the baseline before, and of the one after.
_Layout = tuple[tuple[Channel, ...], ...]


class RepeatSpool:
    """Store of repeats, in memory while they are few, else in an unnamed temporary file that ends with it.

    Only the fields of ``Repeat`` that a check's document has are stored. Methods raise OSError.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Where each repeat begins, and the end of the last one.
        self._places = array("Q", (0,))
        # The first bytes are in the file, the others are pending.
        self._written = 0
        self._pending = bytearray()
        self._hosts: dict[str, int] = {}
        self._host_names: list[str] = []
        self._layouts: dict[_Layout, int] = {}
        self._known_layouts: list[_Layout] = []

    def sequence(self) -> SpooledRepeats:
        """A new, empty sequence of repeats in this store."""
        return SpooledRepeats(self)

    def add(self, repeat: Repeat) -> int:
        """Store ``repeat``; the result is its number."""
        with self._lock:
            data = self._packed(repeat)
            self._pending += data
            self._places.append(self._places[-1] + len(data))
            if len(self._pending) > (_PENDING_BYTES if self._written else _IN_MEMORY):
                self._write()
            return len(self._places) - 2

    def read(self, number: int) -> Repeat:
        """The repeat with the ``number``."""
        with self._lock:
            begin, end = self._places[number : number + 2]
            if begin >= self._written:
                data = bytes(self._pending[begin - self._written : end - self._written])
            else:
                self._file.seek(begin)
                data = self._file.read(end - begin)
        return self._unpacked(data)

    def _write(self) -> None:
        self._file.seek(self._written)
        with memoryview(self._pending) as left:
            done = 0
            while done < len(left):
                done += self._file.write(left[done:])
        self._written += len(self._pending)
        self._pending = bytearray()

    @cached_property
    def _file(self) -> BinaryIO:
        return tempfile.TemporaryFile(buffering=0)

    def _packed(self, repeat: Repeat) -> bytes:
        parts = (repeat.window.channels, repeat.before, repeat.after)
        layout = tuple([tuple(part) for part in parts])
        number = self._layouts.setdefault(layout, len(self._layouts))
        if number == len(self._known_layouts):
            self._known_layouts.append(layout)
        host = self._hosts.setdefault(repeat.host, len(self._hosts))
        if host == len(self._host_names):
            self._host_names.append(repeat.host)
        histograms = [histogram for part in parts for histogram in part.values()]
        block = HistogramBlock.of(histograms)
        figures = [array("q", values).tobytes() for values in (block.borders, block.maxima, block.totals)]
        for percent in _PERCENTS:
            figures.append(array("d", [histogram.percentile(percent) or 0.0 for histogram in histograms]).tobytes())
        places, counts = block.used
        head = _HEAD.pack(host, number, repeat.window.iterations, repeat.window.duration_ns)
        return b"".join((head, *figures, counts.tobytes(), places.astype(np.uint16).tobytes()))

    def _unpacked(self, data: bytes) -> Repeat:
        host, layout, iterations, duration_ns = _HEAD.unpack_from(data)
        count = sum(map(len, self._known_layouts[layout]))
        figures = np.frombuffer(data, np.int64, 3 * count + 1, _HEAD.size).tolist()
        buckets = figures[count]
        totals = figures[2 * count + 1 :]
        at = _HEAD.size + 8 * len(figures)
        percentiles: dict[float, list[float | None]] = {}
        for percent in _PERCENTS:
            values = np.frombuffer(data, np.float64, count, at).tolist()
            percentiles[percent] = (
                values if all(totals) else [ns if total else None for ns, total in zip(values, totals, strict=True)]
            )
            at += 8 * count
        used = np.empty((2, buckets), dtype=np.int64)
        used[1] = np.frombuffer(data, np.int64, buckets, at)
        used[0] = np.frombuffer(data, np.uint16, buckets, at + 8 * buckets)
        block = HistogramBlock(used, figures[: count + 1], figures[count + 1 : 2 * count + 1], totals, percentiles)
        histograms = iter(block.histograms())
        window, before, after = [
            {channel: next(histograms) for channel in channels} for channels in self._known_layouts[layout]
        ]
        return Repeat(Window(window, iterations, duration_ns), before, after, self._host_names[host])


class SpooledRepeats(Sequence[Repeat]):
    """The repeats of one cell, each read from the store when it is used."""

    __slots__ = ("_numbers", "_spool")

    def __init__(self, spool: RepeatSpool, numbers: Sequence[int] = ()) -> None:
        self._spool = spool
        self._numbers = array("I", numbers)

    def append(self, repeat: Repeat) -> None:
        """Add ``repeat``. Raises OSError."""
        self._numbers.append(self._spool.add(repeat))

    def __len__(self) -> int:
        return len(self._numbers)

    def __iter__(self) -> Iterator[Repeat]:
        return map(self._spool.read, self._numbers)

    @overload
    def __getitem__(self, number: int) -> Repeat: ...
    @overload
    def __getitem__(self, number: slice) -> SpooledRepeats: ...
    def __getitem__(self, number: int | slice) -> Repeat | SpooledRepeats:
        if isinstance(number, slice):
            return SpooledRepeats(self._spool, self._numbers[number])
        return self._spool.read(self._numbers[number])
