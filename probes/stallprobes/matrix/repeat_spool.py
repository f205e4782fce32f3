"""Temporary store of the repeats of merged checks: a cell of 1000 hosts has 1000, and one is used at a time."""

from __future__ import annotations

import os
import pickle
import tempfile
import threading
from array import array
from collections.abc import Iterator, Sequence
from typing import overload

from stallprobes.latency.histogram import HistogramBlock
from stallprobes.latency.window import Window
from stallprobes.matrix.matrix import Repeat

# Size (bytes) up to which all repeats of the merged checks stay in memory. Above this size, the repeats go to a
# temporary file.
_IN_MEMORY = 32 << 20


class RepeatSpool:
    """Store of repeats, in memory while they are few, else in an unnamed temporary file that ends with it.

    Only the fields of ``Repeat`` that a check's document has are stored. Methods raise OSError.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._file = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115
        # Where each repeat begins.
        self._places = array("Q")

    def sequence(self) -> SpooledRepeats:
        """A new, empty sequence of repeats in this store."""
        return SpooledRepeats(self)

    def add(self, repeat: Repeat) -> int:
        """Store ``repeat``; the result is its number."""
        parts, window = (repeat.window.channels, repeat.before, repeat.after), repeat.window
        # A block of their own: that of a histogram can hold those of other cells.
        block = HistogramBlock.of([histogram for part in parts for histogram in part.values()])
        with self._lock:
            self._places.append(self._file.seek(0, os.SEEK_END))
            pickle.dump((block, [*map(tuple, parts)], window.iterations, window.duration_ns, repeat.host), self._file)
            return len(self._places) - 1

    def read(self, number: int) -> Repeat:
        """The repeat with the ``number``."""
        with self._lock:
            self._file.seek(self._places[number])
            block, parts, iterations, duration_ns, host = pickle.load(self._file)
        histograms = iter(block.histograms())
        window, before, after = [{channel: next(histograms) for channel in part} for part in parts]
        return Repeat(Window(window, iterations, duration_ns), before, after, host)


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
