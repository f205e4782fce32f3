"""Tests of the collector's tables."""

from __future__ import annotations

import ctypes

import pytest

from stallprobes.engine.timeline.tables import table
from stallprobes.native.layouts.structure import CACHE_LINE
from stallprobes.native.layouts.timeline import IDS, DriverCall, GpuClock


@pytest.mark.parametrize(("structure", "count"), [(DriverCall, IDS), (GpuClock, 3), (GpuClock, 0)])
def test_a_table_begins_with_a_cache_line(structure: type[ctypes.Structure], count: int) -> None:
    made = table(structure, count)
    assert (len(made), ctypes.sizeof(made)) == (count, count * ctypes.sizeof(structure))
    assert ctypes.addressof(made) % CACHE_LINE == 0
    assert not any(bytes(made))


def test_a_record_of_a_call_and_one_of_its_work_write_one_cache_line_each() -> None:
    def line(field: str) -> int:
        return int(getattr(DriverCall, field).offset) // CACHE_LINE

    call = {"id", "thread", "start_ns", "end_ns"}
    assert {line(field) for field in call} == {0}
    assert {line(field[0]) for field in DriverCall._fields_[:-1] if not field[0].startswith("unused")} == {0, 1}
    assert {line(field[0]) for field in DriverCall._fields_ if field[0] not in call and "unused" not in field[0]} == {1}
    assert ctypes.sizeof(DriverCall) % CACHE_LINE == 0
