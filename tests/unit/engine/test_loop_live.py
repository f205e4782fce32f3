"""The compiled loop in real time, in threads of its own: calls of known length, told apart within one run."""

from __future__ import annotations

import ctypes
import resource
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from factories.waiting import LIMIT_S, wait_until
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.host_resolver import libc_address
from stallprobes.engine.loop import OpRows, ProbeLoop, op_rows
from stallprobes.engine.snapshot import ProbeSnapshot, Snapshot
from stallprobes.model import Channel, Op, Phase, Probe, Program, Role
from stallprobes.native.layouts.board import ProbeState
from stallprobes.native.layouts.program import OpFlag
from stallprobes.native.library import core

CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)
MS = 1_000_000


def probe(name: str, ops: tuple[Op, ...], period_ns: int) -> Probe:
    return Probe(name, name, Role.HOST, Program(ops, context=None), period_ns, name)


def rows_of(ops: tuple[Op, ...], channels: tuple[Channel, ...]) -> OpRows:
    rows = op_rows(len(ops))
    for row, op in zip(rows, ops, strict=True):
        kind, name = op.fn.split(":")
        row.function = core().helper(name) if kind == "native" else libc_address(name)
        row.arguments[: len(op.args)] = op.args
        row.channel = -1 if op.phase is None else channels.index(Channel(op.phase))
        row.flags = OpFlag.RETURN_IS_VALUE
    return rows


@contextmanager
def running(*probes: Probe, programs: dict[str, OpRows] | None = None) -> Iterator[Board]:
    board = Board.create(BoardLayout.of(probes))
    threads = []
    for one in probes:
        part = board[one.name]
        rows = (programs or {}).get(one.name) or rows_of(one.program.ops, part.channels)
        part.words.run = 1
        threads.append(threading.Thread(target=ProbeLoop(board, part, rows), daemon=True))
    for thread in threads:
        thread.start()
    yield board
    board.header.quit = 1
    for thread in threads:
        thread.join(LIMIT_S)
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
    found: list[ProbeSnapshot] = []

    def reached() -> bool:
        found.append(board.snapshot().probes[name])
        return found[-1].iterations - (0 if earlier is None else earlier.probes[name].iterations) >= iterations

    wait_until(reached, f"{name} made {iterations} iterations")
    return found[-1]


def p50(seen: ProbeSnapshot, channel: Channel) -> float:
    value = seen.channels[channel].percentile(50)
    assert value is not None
    return value


def test_calls_of_known_length_measure_so() -> None:
    ops = (Op("libc:usleep", (2000,)), Op("native:sleep", (8 * MS,), Phase.WAIT))
    with running(probe("p", ops, 12 * MS)) as board:
        seen = until(board, "p", 40)
    # The shortest of 40: a busy machine lengthens some calls, and shortens none.
    shortest = [seen.channels[channel].percentile(0) or 0 for channel in (CALL, WAIT)]
    assert 1.9 * MS < shortest[0] < 7.5 * MS < shortest[1]
    # An iteration may end while the snapshot is taken.
    assert seen.channels[CALL].count - seen.iterations in (-1, 0)


def test_it_runs_while_another_thread_holds_the_interpreters_lock() -> None:
    """What a busy Python thread costs in time is measured by tests/benchmarks/bench_launch.py."""
    usleep_with_the_lock_held = ctypes.PyDLL(None).usleep
    before = sys.getswitchinterval()
    with running(probe("p", (Op("libc:getppid"),), 300_000)) as board:
        until(board, "p", 10)
        words = board["p"].words
        sys.setswitchinterval(1000.0)
        try:
            made = 0
            for _ in range(100):
                first = int(words.iterations)
                usleep_with_the_lock_held(50_000)
                made = int(words.iterations) - first
                if made:
                    break
        finally:
            sys.setswitchinterval(before)
    assert made


def test_back_to_back_loops_run_side_by_side_beside_python() -> None:
    probes = [probe(name, (Op("libc:getppid"),), 0) for name in ("one", "two")]
    with running(*probes) as board, busy_python():
        for name in ("one", "two"):
            assert until(board, name, 100_000).channels[CALL].count >= 99_000


def test_a_hanging_call_shows_its_age_and_counts_as_waited() -> None:
    word = np.zeros(1, dtype=np.int64)
    ops = (Op("libc:getppid"), Op("native:wait", (word.ctypes.data, 1, 60_000 * MS), Phase.WAIT))
    with running(probe("p", ops, MS)) as board:
        while board["p"].words.inflight_op != 2:
            time.sleep(0.001)
        earlier = board.snapshot()
        time.sleep(0.2)
        window = board.snapshot().minus(earlier)["p"]
        flight = window.in_flight
        assert flight is not None
        assert flight.op == 1
        # The two are read one after the other, and a busy machine does something else in between.
        assert min(flight.age_ns, window.duration_ns) >= 200 * MS
        assert window.iterations == window.channels[WAIT].count == 0
        waited = window.channels[DUE]
        # What is read of a call in flight is a moment older than the snapshot where the machine is busy.
        assert waited.count == pytest.approx(waited.max_ns / MS, abs=1)
        assert 199 * MS <= waited.max_ns <= window.duration_ns
        word[0] = 1
        seen = until(board, "p", 50)
    assert seen.state is ProbeState.RUNNING
    assert seen.missed >= 200
    assert (seen.first_ns[WAIT] or 0) >= 200 * MS


def test_it_quits_while_other_probes_go_on_and_says_ended() -> None:
    with running(probe("p", (Op("native:nothing"),), 10**12)) as board:
        until(board, "p", 1)
        part = board["p"]
        board.header.quit = 1
        wait_until(lambda: part.words.state == ProbeState.ENDED, "the loop has ended")
        assert board.snapshot().probes["p"].state is ProbeState.ENDED


def test_switching_off_and_on_works_while_it_runs() -> None:
    with running(probe("p", (Op("native:nothing"),), 200_000)) as board:
        until(board, "p", 10)
        board["p"].words.run = 0
        while board["p"].words.state != ProbeState.PARKED:
            time.sleep(0.001)
        iterations = board.snapshot().probes["p"].iterations
        since = board.snapshot().probes["p"].heartbeat_ns
        wait_until(lambda: board.snapshot().probes["p"].heartbeat_ns > since, "a parked loop shows that it lives")
        parked = board.snapshot().probes["p"]
        assert (parked.iterations, parked.on) == (iterations, False)
        assert parked.heartbeat_ns > since
        board["p"].words.run = 1
        assert until(board, "p", iterations + 10).on_since_ns > parked.heartbeat_ns


@pytest.mark.parametrize("period_ns", [50_000, 500_000])
def test_the_pace_is_kept(period_ns: int) -> None:
    with running(probe("p", (Op("native:nothing"),), period_ns)) as board:
        until(board, "p", 2000 * 50_000 // period_ns)

        def every_period_is_an_iteration_or_missed() -> bool:
            # Since it was switched on: a window may begin while the thread is late, and has its late starts too.
            probe = board.snapshot().probes["p"]
            due = (probe.at_ns - probe.on_since_ns) / period_ns
            assert probe.iterations + probe.missed <= due + 2
            return probe.iterations + probe.missed >= 0.95 * due

        wait_until(every_period_is_an_iteration_or_missed, "the pace is kept")


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
    rows = rows_of(ops, one.program.channels)
    rows[0].into = at
    rows[1].load_mask = rows[2].load_mask = 1
    rows[2].flags = 0
    before = mapped_bytes()
    with running(one, programs={"p": rows}) as board:
        seen = until(board, "p", 200)
    assert seen.error is None
    assert p50(seen, WAIT) > p50(seen, CALL)
    assert mapped_bytes() - before < 50 * size


def test_a_failing_call_stops_its_probe_and_leaves_the_others() -> None:
    ops = (Op("libc:close", (-1,)),)
    bad, good = probe("bad", ops, MS), probe("good", (Op("libc:getppid"),), MS)
    rows = rows_of(ops, bad.program.channels)
    rows[0].flags = 0
    with running(bad, good, programs={"bad": rows}) as board:
        wait_until(lambda: board["bad"].words.state == ProbeState.ERROR, "the bad probe has stopped")
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
            window = board.snapshot().minus(earlier)["p"]
            assert window.iterations >= last
            assert (np.diff(window.samples["end_ns"]) >= 0).all()
            last = window.iterations
        board.header.quit = 1
        while board["p"].words.state != ProbeState.ENDED:
            time.sleep(0.001)
        seen = board.snapshot().probes["p"]
    assert seen.channels[CALL].count == seen.channels[DUE].count == seen.iterations - 1
