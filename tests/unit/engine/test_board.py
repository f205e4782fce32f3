"""The board, in one process and between two."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.snapshot import ProbeErrorCode, ProbeSnapshot, Snapshot
from stallprobes.latency.histogram import Histogram, index
from stallprobes.latency.window import InFlight
from stallprobes.model import Channel, Op, Phase, Probe, Program, Role
from stallprobes.native.layouts.board import SAMPLES, EngineState, ProbeState
from stallprobes.native.layouts.structure import CACHE_LINE

CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)
PROGRAM = Program((Op("native:nothing", label="a"), Op("native:sleep", (5,), Phase.WAIT)), context=None)


def probe(name: str, period_ns: int = 1_000_000) -> Probe:
    return Probe(name, name, Role.HOST, PROGRAM, period_ns, name)


LAYOUT = BoardLayout.of([probe("one"), probe("two", 0)])


@pytest.fixture
def board() -> Iterator[Board]:
    board = Board.create(LAYOUT)
    yield board
    board.close()


def record(board: Board, channel: Channel, *values: int) -> None:
    part = board["one"]
    row = part.channel(channel)
    for value in values:
        part.hist[row, index(value)] += np.uint64(1)
        part.stats["max_ns"][row] = max(int(part.stats["max_ns"][row]), value)


def push(board: Board, first: int, last: int) -> None:
    part = board["one"]
    for number in range(first, last):
        part.samples[number % SAMPLES] = number, 0, 10 * number
        part.words.samples = number + 1


def one(snapshot: Snapshot) -> ProbeSnapshot:
    return snapshot.probes["one"]


def test_a_new_board_is_all_off(board: Board) -> None:
    snapshot = board.snapshot()
    assert snapshot.engine_state is EngineState.STARTING
    assert list(snapshot.probes) == ["one", "two"]
    fresh = one(snapshot)
    assert (fresh.state, fresh.on, fresh.iterations, fresh.error, fresh.in_flight) == (
        ProbeState.NEW,
        False,
        0,
        None,
        None,
    )
    assert fresh.period_ns == 1_000_000
    assert set(fresh.channels) == {CALL, WAIT, DUE, Channel(Phase.CALL, "a")}
    assert all(hist.count == 0 for hist in fresh.channels.values())
    assert set(fresh.first_ns.values()) == {None}
    assert len(fresh.samples) == 0


def test_slices_and_their_arrays_do_not_overlap() -> None:
    board = Board.create(LAYOUT)
    parts = [board["one"], board["two"]]
    arrays: list[Any] = [board.header]
    for part in parts:
        arrays += [part.words, part.hist, part.stats, part.samples, part.host_calls]
    views = [np.frombuffer(array, np.uint8) for array in arrays]
    for number, view in enumerate(views):
        view[...] = number + 1
    assert [set(view.tolist()) for view in views] == [{number + 1} for number in range(len(views))]
    assert not any(view.ctypes.data % CACHE_LINE for view in views)
    board.close()


def test_two_probes_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        BoardLayout.of([probe("one"), probe("one")])


def test_a_probe_is_found_by_name_and_number(board: Board) -> None:
    assert board["two"] is board[1]
    assert len(board.layout.names) == 2
    with pytest.raises(KeyError):
        board["three"]


CHILD = """
import sys
sys.path[:0] = {path!r}
from stallprobes.engine.snapshot import ProbeErrorCode, ProbeSnapshot
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.model import *
program = Program((Op("native:nothing", label="a"), Op("native:sleep", (5,), Phase.WAIT)), context=None)
probes = [Probe(n, n, Role.HOST, program, p, n) for n, p in (("one", 1_000_000), ("two", 0))]
board = Board.attach({fd}, BoardLayout.of(probes))
assert board["one"].words.run == 1
board["one"].hist[0, 77] = 3
board["one"].stats["max_ns"][0] = 77
board["one"].words.state = 2
board["one"].words.iterations = 4
board["one"].stats["first_ns"][0] = 99
board.header.engine_state = 1
board.close()
"""


def test_what_another_process_writes_is_read_here(board: Board) -> None:
    board["one"].words.run = 1
    before = board.snapshot()
    code = CHILD.format(path=sys.path, fd=board.fd)
    subprocess.run([sys.executable, "-c", code], pass_fds=[board.fd], check=True, timeout=60)
    snapshot = board.snapshot()
    assert snapshot.engine_state is EngineState.READY
    assert one(snapshot).state is ProbeState.RUNNING
    assert one(snapshot).channels[CALL] == Histogram.of([77, 77, 77])
    assert one(snapshot).first_ns == {CALL: 99, WAIT: None, DUE: None, Channel(Phase.CALL, "a"): None}
    assert snapshot.minus(before)["one"].iterations == 4


def test_a_board_has_no_name_and_is_gone_when_closed() -> None:
    def maps() -> int:
        with open("/proc/self/maps") as lines:
            return lines.read().count("memfd:stallscope")

    open_files, before = len(os.listdir("/proc/self/fd")), maps()
    board = Board.create(LAYOUT)
    # Not in /dev/shm, where tests that run beside this one make and remove folders.
    assert os.readlink(f"/proc/self/fd/{board.fd}") == "/memfd:stallscope (deleted)"
    part = board["one"]
    board.close()
    part.words.run = 1
    del part
    assert len(os.listdir("/proc/self/fd")) == open_files
    assert maps() == before


def test_closing_twice_is_fine(board: Board) -> None:
    board.close()
    board.close()


def test_a_board_cannot_shrink_under_its_readers(board: Board) -> None:
    with pytest.raises(PermissionError):
        os.ftruncate(board.fd, 0)


def test_another_layout_is_refused(board: Board) -> None:
    with pytest.raises(RuntimeError, match="bytes"):
        Board.attach(board.fd, BoardLayout.of([probe("one")]))
    with pytest.raises(RuntimeError, match="digest"):
        Board.attach(board.fd, BoardLayout.of([probe("one"), probe("too")]))
    board.header.version += 1
    with pytest.raises(RuntimeError, match="version"):
        Board.attach(board.fd, LAYOUT)
    os.fstat(board.fd)


def test_memory_that_is_no_board_is_refused() -> None:
    fd = os.memfd_create("other")
    os.ftruncate(fd, LAYOUT.size)
    with pytest.raises(RuntimeError, match="magic"):
        Board.attach(fd, LAYOUT)
    os.close(fd)


def test_a_window_holds_only_what_came_in_it(board: Board) -> None:
    words = board["one"].words
    record(board, CALL, 5, 5000)
    words.iterations, words.missed, words.proof = 2, 3, 10
    push(board, 0, 2)
    earlier = board.snapshot(100)
    record(board, CALL, 40, 50)
    words.iterations, words.missed, words.proof = 4, 3, 17
    push(board, 2, 4)
    window = board.snapshot(300).minus(earlier)["one"]
    assert window.channels[CALL] == Histogram.of([40, 50])
    assert (window.iterations, window.missed, window.proof, window.duration_ns) == (2, 0, 7, 200)
    assert window.samples.tolist() == [(2, 0, 20), (3, 0, 30)]
    assert one(earlier).channels[CALL].count == 2


def test_a_call_in_flight_shows_its_age(board: Board) -> None:
    board["one"].words.inflight_op, board["one"].words.inflight_since_ns, board["one"].words.due_ns = 2, 1000, 900
    assert one(board.snapshot(5000)).in_flight == InFlight(
        op=1, since_ns=1000, age_ns=4000, due_ns=900, allowed_ns=4100
    )
    board["one"].words.inflight_op = 0
    assert one(board.snapshot(5000)).in_flight is None


def test_a_reader_that_loses_its_cpu_does_not_make_a_call_look_older(
    board: Board, monkeypatch: pytest.MonkeyPatch
) -> None:
    board["one"].words.inflight_op, board["one"].words.inflight_since_ns, board["one"].words.due_ns = 2, 1000, 900
    # It reads the words, and the clock again a second later: the call may have returned in between.
    times = iter([5000, 5000])
    monkeypatch.setattr(board, "now", lambda: next(times, 1_000_000_000))
    found = board.snapshot()
    assert found.at_ns == 1_000_000_000
    assert one(found).in_flight == InFlight(op=1, since_ns=1000, age_ns=4000, due_ns=900, allowed_ns=4100)


def test_a_call_that_hangs_counts_as_waited_within_the_window(board: Board) -> None:
    period = 1_000_000
    earlier = board.snapshot(10_000_000)
    words = board["one"].words
    words.inflight_op, words.inflight_since_ns, words.due_ns = 1, 8_000_000, 8_000_000
    window = board.snapshot(30_000_000).minus(earlier)["one"]
    assert window.channels[DUE] == Histogram.of(range(20_000_000, 0, -period))
    assert window.channels[CALL].count == 0
    board["one"].words.due_ns = 25_500_000
    window = board.snapshot(30_000_000).minus(earlier)["one"]
    assert window.channels[DUE] == Histogram.of(range(4_500_000, 0, -period))


def test_a_call_of_ordinary_length_in_flight_counts_only_when_it_ends(board: Board) -> None:
    earlier = board.snapshot(10_000_000)
    words = board["one"].words
    words.inflight_op, words.inflight_since_ns, words.due_ns = 1, 29_900_000, 29_900_000
    assert board.snapshot(30_000_000).minus(earlier)["one"].channels[DUE].count == 0


def test_back_to_back_nothing_was_due_meanwhile(board: Board) -> None:
    earlier = board.snapshot(10)
    board["two"].words.inflight_op, board["two"].words.inflight_since_ns, board["two"].words.due_ns = 1, 10, 10
    window = board.snapshot(10**9).minus(earlier)["two"]
    assert window.channels[DUE].count == 0
    assert window.in_flight is not None


def test_the_ring_keeps_the_newest_in_order(board: Board) -> None:
    push(board, 0, SAMPLES + 100)
    earlier = one(board.snapshot())
    assert earlier.samples["end_ns"].tolist() == list(range(101, SAMPLES + 100))
    push(board, SAMPLES + 100, SAMPLES + 103)
    window = one(board.snapshot()).minus(earlier)
    assert window.samples["end_ns"].tolist() == [SAMPLES + 100, SAMPLES + 101, SAMPLES + 102]
    push(board, SAMPLES + 103, 3 * SAMPLES)
    assert len(one(board.snapshot()).minus(earlier).samples) == SAMPLES - 1


def test_a_wrong_code_is_kept_with_op_and_time(board: Board) -> None:
    words = board["one"].words
    words.state, words.error_code, words.error_op, words.error_ns = 4, 719, -2, 55
    snapshot = one(board.snapshot())
    assert snapshot.state is ProbeState.ERROR
    assert snapshot.error == ProbeErrorCode(code=719, op=-2, at_ns=55)


def test_the_simulated_clock_is_the_time_where_there_is_one(board: Board) -> None:
    real = board.snapshot().at_ns
    assert board.snapshot().at_ns >= real > 10**6
    board.header.clock_ns = 12345
    assert board.snapshot().at_ns == board.now() == 12345


def test_a_snapshot_does_not_change_with_the_board(board: Board) -> None:
    push(board, 0, 5)
    snapshot = board.snapshot()
    before = structs.replace(one(snapshot))
    record(board, CALL, 5)
    push(board, 5, SAMPLES)
    assert one(snapshot).channels[CALL].count == 0
    assert one(snapshot).samples.tolist() == before.samples.tolist()
    assert len(one(snapshot).samples) == 5


def test_the_board_is_as_large_as_it_says(board: Board) -> None:
    assert board.mm is not None
    assert os.fstat(board.fd).st_size == LAYOUT.size == len(board.mm)
