"""The ring of GPU records on the board: writers, readers, and records that were overwritten."""

from __future__ import annotations

import numpy as np

from factories.host_probes import host_probe
from stallprobes.engine.board import Board, BoardLayout, GpuRecords
from stallprobes.engine.timeline.reader import read_calls
from stallprobes.native.layouts.board import GPU_RECORDS, HOST_CALLS, GpuRecord


def new_board() -> Board:
    return Board.create(BoardLayout.of([host_probe("host")]))


def write(board: Board, count: int) -> None:
    for number in range(count):
        board.timeline.append(GpuRecord(kind=10, start_ns=number))


def starts(rows: GpuRecords) -> list[int]:
    return [int(start) for start in rows["start_ns"]]


def test_a_reader_goes_on_where_it_stopped() -> None:
    board = new_board()
    write(board, 3)
    rows, head, lost = board.timeline.read()
    assert (starts(rows), head, lost) == ([0, 1, 2], 3, 0)
    write(board, 2)
    rows, head, lost = board.timeline.read(head)
    assert (starts(rows), head, lost) == ([0, 1], 5, 0)
    assert len(board.timeline.read(head)[0]) == 0


def test_overwritten_records_are_counted() -> None:
    board = new_board()
    write(board, GPU_RECORDS + 100)
    rows, head, lost = board.timeline.read(50)
    assert (len(rows), head, lost) == (GPU_RECORDS, GPU_RECORDS + 100, 50)
    assert starts(rows)[:2] == [100, 101]


def test_a_record_that_is_being_overwritten_is_left_out() -> None:
    board = new_board()
    write(board, 4)
    board.timeline.records["sequence"][1] = 0
    rows, head, lost = board.timeline.read()
    assert (starts(rows), head, lost) == ([0, 2, 3], 4, 1)


def test_two_readers_do_not_disturb_each_other() -> None:
    board = new_board()
    write(board, 10)
    first, second = board.timeline.read(0)[0], board.timeline.read(0)[0]
    assert np.array_equal(first, second)


def test_calls_that_may_have_been_overwritten_are_left_out() -> None:
    part = new_board()["host"]
    part.host_calls["began_ns"] = np.arange(HOST_CALLS)
    part.words.host_calls = 10
    assert len(read_calls(part, 4, 10)) == 6
    assert len(read_calls(part, 10, 10)) == 0
    part.words.host_calls = HOST_CALLS + 20
    assert len(read_calls(part, 0, HOST_CALLS + 10)) == HOST_CALLS - 11
