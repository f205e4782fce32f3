"""The compiled loop in real time, in threads of its own: calls of known length, told apart within one run."""

from __future__ import annotations

import resource
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from stallprobes.engine import board as b
from stallprobes.engine import loop, native
from stallprobes.engine.board import Board, Layout, ProbeSnapshot, ProbeState, Snapshot
from stallprobes.model import Channel, Op, Phase, Probe, Program, Role

CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)
MS = 1_000_000
Table = loop.Int64s


def probe(name: str, ops: tuple[Op, ...], period_ns: int) -> Probe:
    return Probe(name, name, Role.HOST, Program(ops, context=None), period_ns, name)


def table_of(ops: tuple[Op, ...], channels: tuple[Channel, ...]) -> Table:
    table = loop.empty_table(len(ops))
    for row, op in zip(table, ops, strict=True):
        kind, name = op.fn.split(":")
        row[loop.COL_FN] = native.address(name) if kind == "native" else native.libc_address(name)
        row[loop.COL_A0 : loop.COL_A0 + len(op.args)] = op.args
        row[loop.COL_CHANNEL] = -1 if op.phase is None else channels.index(Channel(op.phase))
        row[loop.COL_FLAGS] = loop.RETURN_IS_VALUE
    return table


@contextmanager
def running(*probes: Probe, tables: dict[str, Table] | None = None) -> Iterator[Board]:
    board = Board.create(Layout.of(probes))
    nothing = loop.empty_table(0)
    threads = []
    for one in probes:
        part = board[one.name]
        table = (tables or {}).get(one.name)
        if table is None:
            table = table_of(one.program.ops, part.channels)
        runner = loop.ProbeLoop(table, nothing, nothing, part, board.header)
        part.words[b.RUN] = 1
        threads.append(threading.Thread(target=runner, daemon=True))
    for thread in threads:
        thread.start()
    yield board
    board.header[b.QUIT] = 1
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    board.close()


@contextmanager
def busy_python(threads: int = 1) -> Iterator[None]:
    ended = threading.Event()

    def count() -> None:
        number = 0
        while not ended.is_set():
            for _ in range(10_000):
                number += 1

    busy = [threading.Thread(target=count, daemon=True) for _ in range(threads)]
    for thread in busy:
        thread.start()
    yield
    ended.set()
    for thread in busy:
        thread.join()


def until(board: Board, name: str, iterations: int, earlier: Snapshot | None = None) -> ProbeSnapshot:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        snapshot = board.snapshot() if earlier is None else board.snapshot().minus(earlier)
        if snapshot.probes[name].iterations >= iterations:
            return snapshot.probes[name]
        time.sleep(0.01)
    raise AssertionError(f"{name} took fewer than {iterations} turns in a minute")


def p50(seen: ProbeSnapshot, channel: Channel) -> float:
    value = seen.channels[channel].percentile(50)
    assert value is not None
    return value


def test_calls_of_known_length_measure_so() -> None:
    ops = (Op("libc:usleep", (2000,)), Op("native:sleep", (8 * MS,), Phase.WAIT))
    with running(probe("p", ops, 12 * MS)) as board:
        seen = until(board, "p", 40)
    assert 3 < p50(seen, WAIT) / p50(seen, CALL) < 5
    assert seen.channels[CALL].percentile(0) is not None
    assert (seen.channels[CALL].percentile(0) or 0) >= 1_900_000
    # A turn may end while the snapshot is taken.
    assert seen.channels[CALL].count - seen.iterations in (-1, 0)


def test_a_busy_python_thread_does_not_show_in_the_figures() -> None:
    with running(probe("p", (Op("libc:getppid"),), 300_000)) as board:
        until(board, "p", 100)
        before = board.snapshot()
        quiet = until(board, "p", 1500, before)
        with busy_python():
            before = board.snapshot()
            busy = until(board, "p", 1500, before)
    # The GIL is handed over each 5 ms; a call takes some 100 ns.
    assert p50(busy, CALL) < 10 * p50(quiet, CALL)
    assert busy.channels[CALL].share_above(2 * MS) < 0.01


def test_back_to_back_loops_run_side_by_side_beside_python() -> None:
    probes = [probe(name, (Op("libc:getppid"),), 0) for name in ("one", "two")]
    with running(*probes) as board, busy_python():
        for name in ("one", "two"):
            assert until(board, name, 100_000).channels[CALL].count >= 99_000


def test_a_hanging_call_shows_its_age_and_counts_as_waited() -> None:
    word = np.zeros(1, dtype=np.int64)
    ops = (Op("libc:getppid"), Op("native:wait", (word.ctypes.data, 1, 60_000 * MS), Phase.WAIT))
    with running(probe("p", ops, MS)) as board:
        while board["p"].words[b.INFLIGHT_OP] != 2:
            time.sleep(0.001)
        earlier = board.snapshot()
        time.sleep(0.2)
        window = board.snapshot().minus(earlier).probes["p"]
        flight = window.in_flight
        assert flight is not None
        assert flight.op == 1
        assert flight.age_ns >= (window.window_ns or 0) >= 200 * MS
        assert window.iterations == window.channels[WAIT].count == 0
        waited = window.channels[DUE]
        assert waited.count == pytest.approx((window.window_ns or 0) / MS, abs=1)
        assert waited.max_ns == window.window_ns
        word[0] = 1
        seen = until(board, "p", 50)
    assert seen.state is ProbeState.RUNNING
    assert seen.missed >= 200
    assert (seen.first_ns[WAIT] or 0) >= 200 * MS


def test_it_quits_while_other_probes_go_on_and_says_ended() -> None:
    with running(probe("p", (Op("native:nothing"),), 10**12)) as board:
        until(board, "p", 1)
        part = board["p"]
        board.header[b.QUIT] = 1
        deadline = time.monotonic() + 20
        while part.words[b.STATE] != ProbeState.ENDED and time.monotonic() < deadline:
            time.sleep(0.005)
        assert board.snapshot().probes["p"].state is ProbeState.ENDED


def test_switching_off_and_on_works_while_it_runs() -> None:
    with running(probe("p", (Op("native:nothing"),), 200_000)) as board:
        until(board, "p", 10)
        board["p"].words[b.RUN] = 0
        while board["p"].words[b.STATE] != ProbeState.PARKED:
            time.sleep(0.001)
        iterations = board.snapshot().probes["p"].iterations
        since = board.snapshot().probes["p"].heartbeat_ns
        time.sleep(0.1)
        parked = board.snapshot().probes["p"]
        assert (parked.iterations, parked.on) == (iterations, False)
        assert parked.heartbeat_ns > since
        board["p"].words[b.RUN] = 1
        assert until(board, "p", iterations + 10).on_since_ns > parked.heartbeat_ns


@pytest.mark.parametrize("period_ns", [50_000, 500_000])
def test_the_pace_is_kept(period_ns: int) -> None:
    with running(probe("p", (Op("native:nothing"),), period_ns)) as board:
        until(board, "p", 20)
        earlier = board.snapshot()
        window = until(board, "p", 2000, earlier)
    due = (window.window_ns or 0) / period_ns
    assert window.iterations + window.missed == pytest.approx(due, rel=0.05)


def mapped_bytes() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[0]) * resource.getpagesize()


def test_memory_that_one_call_maps_another_unmaps() -> None:
    kept = np.zeros(1, dtype=np.int64)
    at = kept.ctypes.data
    private_anonymous, read_write = 0x22, 3
    size = 4 << 20
    ops = (
        Op("libc:mmap", (0, size, read_write, private_anonymous, -1, 0)),
        Op("libc:memset", (at, 1, size), Phase.WAIT),
        Op("libc:munmap", (at, size)),
    )
    one = probe("p", ops, 0)
    table = table_of(ops, one.program.channels())
    table[0, loop.COL_INTO] = at
    table[1:, loop.COL_LOAD_MASK] = 1
    table[2, loop.COL_FLAGS] = 0
    before = mapped_bytes()
    with running(one, tables={"p": table}) as board:
        seen = until(board, "p", 200)
    assert seen.error is None
    assert p50(seen, WAIT) > p50(seen, CALL)
    assert mapped_bytes() - before < 50 * size


def test_a_failing_call_stops_its_probe_and_leaves_the_others() -> None:
    ops = (Op("libc:close", (-1,)),)
    bad, good = probe("bad", ops, MS), probe("good", (Op("libc:getppid"),), MS)
    table = table_of(ops, bad.program.channels())
    table[0, loop.COL_FLAGS] = 0
    with running(bad, good, tables={"bad": table}) as board:
        until(board, "good", 20)
        snapshot = board.snapshot()
        assert snapshot.probes["bad"].state is ProbeState.ERROR
        assert snapshot.probes["bad"].error is not None
        assert snapshot.probes["bad"].error.code == -1
        until(board, "good", snapshot.probes["good"].iterations + 20)


def test_reading_all_the_time_disturbs_no_count() -> None:
    with running(probe("p", (Op("native:nothing"),), 0)) as board:
        earlier = board.snapshot()
        last = 0
        for _ in range(300):
            window = board.snapshot().minus(earlier).probes["p"]
            assert window.iterations >= last
            assert (np.diff(window.ring[:, 0]) >= 0).all()
            last = window.iterations
        board.header[b.QUIT] = 1
        while board["p"].words[b.STATE] != ProbeState.ENDED:
            time.sleep(0.001)
        seen = board.snapshot().probes["p"]
    assert seen.channels[CALL].count == seen.channels[DUE].count == seen.iterations - 1
