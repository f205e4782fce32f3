"""Tests of the collector's tables."""

from __future__ import annotations

import numpy as np

from stallprobes.engine.timeline import tables


def test_a_table_begins_with_a_cache_line() -> None:
    for shape in ((tables.IDS, tables.ID_WORDS), (3, 5, 4)):
        table = tables.zeros(*shape)
        assert (table.shape, table.dtype) == (shape, np.dtype(np.int64))
        assert table.flags.c_contiguous
        assert not table.any()
        assert table.ctypes.data % 64 == 0


def test_a_record_of_a_call_and_one_of_its_work_write_one_cache_line_each() -> None:
    per_line = 64 // 8
    call = {tables.ID, tables.ID_THREAD, tables.ID_START_NS, tables.ID_END_NS}
    work = {tables.OWNED_ID, tables.OWNER_PROBE, tables.OWNER_CALL, tables.STAGED_TRACK, tables.STAGED_NS}
    assert {word // per_line for word in call} == {0}
    assert {word // per_line for word in work} == {1}
    assert tables.ID_WORDS % per_line == 0
