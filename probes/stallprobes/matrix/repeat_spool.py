"""Temporary store of the repeats of merged checks: a cell of 1000 hosts has 1000, and one is used at a time."""

from __future__ import annotations

import struct
import tempfile
import threading
from array import array
from collections.abc import Iterator, Sequence
from typing import overload

import numpy as np
from numpy.typing import NDArray

from stallprobes.latency.sparse import SparseChannels, SparseHistogram
from stallprobes.latency.window import Window
from stallprobes.matrix.matrix import Repeat
from stallprobes.model import Channel

# Up to so many bytes are kept in memory.
_IN_MEMORY = 32 << 20
_SIZE = struct.Struct("=I")
# Host, iterations, duration, and numbers of histograms and of buckets.
_HEAD = struct.Struct("=IqqII")
_HISTOGRAM = np.dtype([("part", "u1"), ("channel", "u4"), ("max_ns", "i8"), ("count", "i8"), ("buckets", "u4")])


# Channel, first bucket in use and the one after the last, maximum and number of values.
_Entry = tuple[Channel, int, int, int, int]


class RepeatSpool:
    """Store of repeats, in memory while they are few, else in an unnamed temporary file that ends with it.

    Only the fields of ``Repeat`` that a check's document has are stored. Methods raise OSError.
    """

    def __init__(self) -> None:
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 closed with the spool
        self._lock = threading.Lock()
        self._end = 0
        self._hosts: dict[str, int] = {}
        self._host_names: list[str] = []
        self._channels: dict[Channel, int] = {}
        self._channel_names: list[Channel] = []

    def sequence(self) -> SpooledRepeats:
        """A new, empty sequence of repeats in this store."""
        return SpooledRepeats(self)

    def add(self, repeat: Repeat) -> int:
        """Store ``repeat``; the result is its place."""
        data = self._packed(repeat)
        with self._lock:
            place = self._end
            self._file.seek(place)
            self._file.write(_SIZE.pack(len(data)) + data)
            self._end += _SIZE.size + len(data)
        return place

    def read(self, place: int) -> Repeat:
        """The repeat at ``place``."""
        with self._lock:
            self._file.seek(place)
            (size,) = _SIZE.unpack(self._file.read(_SIZE.size))
            data = self._file.read(size)
        return self._unpacked(data)

    def _packed(self, repeat: Repeat) -> bytes:
        parts = (repeat.window.channels, repeat.before, repeat.after)
        found = [
            (number, self._channel(channel), channels.sparse(channel))
            for number, channels in enumerate(parts)
            if isinstance(channels, SparseChannels)
            for channel in channels
        ]
        table = np.array(
            [(part, channel, one.max_ns, one.count, one.used.shape[1]) for part, channel, one in found], _HISTOGRAM
        )
        used = np.concatenate([one.used for _, _, one in found], axis=1) if found else np.zeros((2, 0), np.int64)
        host = self._hosts.setdefault(repeat.host, len(self._hosts))
        if host == len(self._host_names):
            self._host_names.append(repeat.host)
        head = _HEAD.pack(host, repeat.window.iterations, repeat.window.duration_ns, len(found), used.shape[1])
        return b"".join((head, table.tobytes(), used[0].astype(np.uint16).tobytes(), used[1].tobytes()))

    def _channel(self, channel: Channel) -> int:
        number = self._channels.setdefault(channel, len(self._channels))
        if number == len(self._channel_names):
            self._channel_names.append(channel)
        return number

    def _unpacked(self, data: bytes) -> Repeat:
        host, iterations, duration_ns, histograms, buckets = _HEAD.unpack_from(data)
        table = np.frombuffer(data, _HISTOGRAM, histograms, _HEAD.size)
        at = _HEAD.size + table.nbytes
        used = np.empty((2, buckets), dtype=np.int64)
        used[0] = np.frombuffer(data, np.uint16, buckets, at)
        used[1] = np.frombuffer(data, np.int64, buckets, at + 2 * buckets)
        parts: tuple[list[_Entry], ...] = ([], [], [])
        begin = 0
        for part, channel, max_ns, count, size in table.tolist():
            end = begin + size
            parts[part].append((self._channel_names[channel], begin, end, max_ns, count))
            begin = end
        channels, before, after = (SpooledChannels(used, entries) for entries in parts)
        return Repeat(Window(channels, iterations, duration_ns), before, after, self._host_names[host])


class SpooledChannels(SparseChannels):
    """Histograms by channel that are made at the first access: most readers of a repeat use one of its three parts."""

    __slots__ = ("_entries", "_made", "_used")

    def __init__(self, used: NDArray[np.int64], entries: list[_Entry]) -> None:
        self._used = used
        self._entries = entries
        self._made: dict[Channel, SparseHistogram] | None = None

    @property
    # The base class has an attribute that is filled at once.
    def _held(self) -> dict[Channel, SparseHistogram]:  # type: ignore[override]
        if self._made is None:
            part, used = SparseHistogram.part, self._used
            self._made = {
                channel: part(used, begin, end, max_ns, count) for channel, begin, end, max_ns, count in self._entries
            }
        return self._made


class SpooledRepeats(Sequence[Repeat]):
    """The repeats of one cell, each read from the store when it is used."""

    __slots__ = ("_places", "_spool")

    def __init__(self, spool: RepeatSpool, places: Sequence[int] = ()) -> None:
        self._spool = spool
        self._places = array("Q", places)

    def append(self, repeat: Repeat) -> None:
        """Add ``repeat``. Raises OSError."""
        self._places.append(self._spool.add(repeat))

    def append_place(self, place: int) -> None:
        """Add the repeat that is in the store at ``place``."""
        self._places.append(place)

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[Repeat]:
        return map(self._spool.read, self._places)

    @overload
    def __getitem__(self, number: int) -> Repeat: ...
    @overload
    def __getitem__(self, number: slice) -> SpooledRepeats: ...
    def __getitem__(self, number: int | slice) -> Repeat | SpooledRepeats:
        if isinstance(number, slice):
            return SpooledRepeats(self._spool, self._places[number])
        return self._spool.read(self._places[number])
