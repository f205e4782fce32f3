"""The hold of all probes of a process: it begins once each loop rests, and gives up where a call lasts."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from factories.waiting import LIMIT_S, wait_until
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.workers import ProbeHold
from stallprobes.model import Op, Probe, Program, Role
from stallprobes.native.layouts.board import ProbeState

NAMES = ("a", "b")
MS = 1_000_000


@pytest.fixture(name="board")
def _board() -> Iterator[Board]:
    probes = [Probe(name, name, Role.HOST, Program((Op("x"),), context=None), MS, name) for name in NAMES]
    board = Board.create(BoardLayout.of(probes))
    for name in NAMES:
        board[name].words.state = ProbeState.RUNNING
    yield board
    board.close()


def test_it_begins_when_all_loops_rest(board: Board) -> None:
    hold = ProbeHold(board, NAMES)
    begun: list[bool] = []
    thread = threading.Thread(target=lambda: begun.append(hold.begin(LIMIT_S)), daemon=True)
    thread.start()
    wait_until(lambda: board.header.hold == 1, "the hold")
    board["a"].words.held = 1
    assert not begun
    board["b"].words.held = 1
    thread.join(LIMIT_S)
    assert begun == [True]
    assert board.header.hold == 1
    hold.end()
    assert board.header.hold == 0


def test_it_gives_up_where_a_loop_does_not_come_to_rest(board: Board) -> None:
    board["a"].words.held = 1
    assert not ProbeHold(board, NAMES).begin(0)
    assert board.header.hold == 0


def test_the_rest_of_an_earlier_hold_does_not_count(board: Board) -> None:
    hold = ProbeHold(board, NAMES)
    for name in NAMES:
        board[name].words.held = 1
    assert hold.begin(0)
    hold.end()
    assert not hold.begin(0)


@pytest.mark.parametrize("state", [ProbeState.ENDED, ProbeState.ERROR])
def test_a_loop_that_has_ended_is_not_awaited(board: Board, state: ProbeState) -> None:
    for name in NAMES:
        board[name].words.state = state
    assert ProbeHold(board, NAMES).begin(0)


def test_it_knows_of_a_call_that_lasts(board: Board) -> None:
    hold = ProbeHold(board, NAMES, clock_ns=lambda: 1_000 * MS)
    words = board["b"].words
    assert not hold.has_call_longer_than(0.25)
    words.inflight_since_ns = 700 * MS
    assert not hold.has_call_longer_than(0.25)
    words.inflight_op = 1
    assert hold.has_call_longer_than(0.25)
    words.inflight_since_ns = 800 * MS
    assert not hold.has_call_longer_than(0.25)


def test_a_hold_that_lasts_too_long_is_ended(board: Board) -> None:
    now = [0]
    for name in NAMES:
        board[name].words.state = ProbeState.ENDED
    hold = ProbeHold(board, NAMES, clock_ns=lambda: now[0])
    assert hold.begin(1)
    now[0] = 4_000 * MS
    hold.end_if_longer_than(5)
    assert board.header.hold
    now[0] = 6_000 * MS
    hold.end_if_longer_than(5)
    assert not board.header.hold
