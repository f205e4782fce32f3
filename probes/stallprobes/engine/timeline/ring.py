"""The timeline's part of the board: a ring of GPU records, a ring of host calls for each probe, and counters.

The collector, or the simulated GPU, is the only writer of GPU records; a probe's thread is the only writer of its host
calls. A GPU record holds its own sequence number, so any number of readers can tell a whole record from one that is
being overwritten.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64s = NDArray[np.int64]

# Words of the timeline's header.
ON = 0
STARTED_NS = 1
STOPPED_NS = 2
HEAD = 8
DROPPED = 9
EXHAUSTED = 10
UNMATCHED = 11
UNANSWERED = 12
COLLECTED = 13
ROUNDS = 14
FLUSH_NS = 15
DECODE_NS = 16
PENDING = 17
CODE = 18
UNKNOWN = 19
COLLECTED_NS = 20
TIMELINE_WORDS = 32

# Words of a GPU record. PROBE and OP are indices, -1 if the record belongs to no known call; BEGAN_NS and RETURNED_NS
# are those of the call. DETAIL is the number of bytes; SUBKIND as in ``records.Field``; MEMORY the kind of source
# memory plus 256 times that of the target. A context switch has START_NS only.
(
    SEQUENCE, KIND, START_NS, END_NS, DEVICE, CONTEXT, STREAM, CORRELATION,
    PROBE, OP, BEGAN_NS, RETURNED_NS, SUBKIND, MEMORY, DETAIL, ITERATION,
) = range(16)  # fmt: skip
RECORD_WORDS = 16
RECORDS = 16_384

# Words of a host call.
CALL_BEGAN_NS, CALL_END_NS, CALL_OP, CALL_ITERATION = range(4)
CALL_WORDS = 4
CALLS = 8_192
# CALL_OP holds the op's index, and these bits: the call was measured; it was of the very first iteration.
MEASURED = 1 << 32
FIRST = 1 << 33
OP_MASK = (1 << 32) - 1


class TimelineSection:
    """The board's part: ``words`` int64[TIMELINE_WORDS], ``records`` int64[RECORDS][RECORD_WORDS]."""

    def __init__(self, memory: memoryview, offset: int) -> None:
        self.words: Int64s = np.frombuffer(memory, np.int64, TIMELINE_WORDS, offset)
        self.records: Int64s = np.frombuffer(
            memory, np.int64, RECORDS * RECORD_WORDS, offset + TIMELINE_WORDS * 8
        ).reshape(RECORDS, RECORD_WORDS)

    @property
    def on(self) -> bool:
        """Whether records are collected now."""
        return bool(self.words[ON])

    @property
    def was_on(self) -> bool:
        """Whether records were collected at any time of the session."""
        return bool(self.words[STARTED_NS])

    def read(self, since: int = 0) -> tuple[Int64s, int, int]:
        """The records from sequence number ``since`` on, oldest first, as int64[n][RECORD_WORDS].

        Also the number of the next record, and how many from ``since`` on were overwritten before they could be read.
        """
        head = int(self.words[HEAD])
        first = max(since, head - RECORDS, 0)
        numbers = np.arange(first, head, dtype=np.int64)
        places = numbers % RECORDS
        rows = self.records[places]
        # A record that is being overwritten has another number before or after the copy.
        whole = (rows[:, SEQUENCE] == numbers + 1) & (self.records[places, SEQUENCE] == numbers + 1)
        rows = rows[whole]
        return rows, head, max(head - min(since, head), 0) - len(rows)


def append(section: TimelineSection, row: Sequence[int]) -> None:
    """Append one record, the words from KIND on; for a writer that is not compiled."""
    head = int(section.words[HEAD])
    place = head % RECORDS
    section.records[place, SEQUENCE] = 0
    section.records[place, KIND:] = row
    section.records[place, SEQUENCE] = head + 1
    section.words[HEAD] = head + 1
