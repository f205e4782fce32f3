"""The timeline's section of the board: its words, and a ring of GPU records.

The collector, or the simulated GPU, is its only writer. A GPU record holds its own sequence number, so any number of
readers can tell a whole record from one that is being overwritten.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.board import ALIGN, GPU_RECORDS, GpuRecord, TimelineWords

# Rows of GpuRecord, and of HostCall.
GpuRecords = NDArray[Any]
HostCalls = NDArray[Any]


class TimelineSection:
    """The section: ``words``, and ``records``, GpuRecord[GPU_RECORDS]."""

    def __init__(self, memory: memoryview, offset: int) -> None:
        self.words: TimelineWords = TimelineWords.from_buffer(memory, offset)
        first = offset + -(-ctypes.sizeof(TimelineWords) // ALIGN) * ALIGN
        self.records: GpuRecords = np.frombuffer(memory, dtype_of(GpuRecord), GPU_RECORDS, first)

    @property
    def on(self) -> bool:
        """Whether records are collected now."""
        return bool(self.words.on)

    @property
    def was_on(self) -> bool:
        """Whether records were collected at any time of the session."""
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
