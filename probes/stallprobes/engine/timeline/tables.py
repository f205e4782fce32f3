"""Layouts of the tables that the collector passes to its compiled loop."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

# Words of a track. OLDEST and NEWEST number the calls in its queue; LOADED is the number of the next host call to load.
# The last call matched: LEFT is the number of its records that are to come, GROUP_START_NS the start of the first. The
# last four are the addresses of the probe's words, host calls, histograms and statistics on the board.
(
    TRACK_PROBE, TRACK_CONTEXT, TRACK_STREAM, TRACK_DEPTH, TRACK_THREAD, LOADED, OLDEST, NEWEST,
    LEFT, GROUP_START_NS, GROUP_CORRELATION, HAS_GROUP, GROUP_PLACE,
    AT_WORDS, AT_TRACE, AT_HIST, AT_STATS,
) = range(17)  # fmt: skip
TRACK_WORDS = 24
STATS = 4
QUEUE = 4_096

# Columns of an op of a track: the records that one call yields (0: the op submits nothing on it), whether the iteration
# waits for its work, and the rows of its histograms, -1 for none.
OP_RECORDS, OP_AWAITED, ROW_START, ROW_EARLY, ROW_GPU, LABEL_START, LABEL_EARLY, LABEL_GPU = range(8)
OP_WORDS = 8

# Driver calls by correlation id. Ids count up, so the oldest is replaced. From the record of the call: id, thread, and
# start and end in ns. From the first record of its work: id, probe, iteration, begin and return in ns, and the bits of
# the probe's call; the probe is NO_PROBE while that record waits for its call. Of a staged copy whose second half is to
# come: the number of its track from 1, and the length of the first half in ns. Each of the two records writes one cache
# line: nothing that is as large stays in the cache.
IDS = 1 << 16
ID, ID_THREAD, ID_START_NS, ID_END_NS = range(4)
(
    OWNED_ID, OWNER_PROBE, OWNER_ITERATION, OWNER_BEGAN_NS, OWNER_RETURNED_NS, OWNER_CALL, STAGED_TRACK, STAGED_NS,
) = range(8, 16)  # fmt: skip
ID_WORDS = 16
NO_PROBE = -1
_CACHE_LINE = 64

# Words of the control block: addresses of CUPTI's functions, the pool's address, the period in ns, and scratch words
# for pointers that CUPTI fills. KEPT is the number of records that wait for their call, PATIENCE for how many rounds
# one does.
(
    STOP, FLUSH, NEXT_RECORD, COUNT_DROPPED, PERIOD, RECORD, DROPPED_NOW, KEPT, TRACKS, EXHAUSTED_SEEN, PATIENCE,
) = range(11)  # fmt: skip
CONTROL_WORDS = 16

BATCH = 8_192
MOST_KEPT = 2_048
# At the usual period, 2 s.
USUAL_PATIENCE = 200
PERIOD_NS = 10_000_000
MOST_BATCHES = 64


def zeros(*shape: int) -> NDArray[np.int64]:
    """A table of zeros, int64[shape], that begins with a cache line, and whose pages are in memory.

    The first write to a page takes the collector longer than a record does.
    """
    size = math.prod(shape)
    words = np.empty(size + _CACHE_LINE // 8, dtype=np.int64)
    words.fill(0)
    first = -words.ctypes.data % _CACHE_LINE // 8
    return words[first : first + size].reshape(shape)
