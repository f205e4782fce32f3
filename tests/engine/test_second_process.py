"""The second process: its probes run on the same board, its failures are told, and it never outlives the engine."""

from __future__ import annotations

import os
import signal
import textwrap
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from factories import forked_processes
from factories.host_probes import host_probe
from factories.processes import Parent, children, wait_for_end
from factories.waiting import wait_until
from stallprobes.catalog import Placement, entries
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.process import signal_engines
from stallprobes.engine.protocol import Start
from stallprobes.engine.second_process import SecondProcess, limited
from stallprobes.engine.session import Session
from stallprobes.errors import BackendError, Unsupported
from stallprobes.model import MIB, Buffer, Op, Probe, Process, Program, Role, Space

HUNG = Op("native:sleep", (600_000_000_000,))

pytestmark = pytest.mark.usefixtures("forked_second_processes", "nothing_left")


@pytest.fixture(scope="module")
def forked_second_processes(forked_engines: None) -> Iterator[None]:
    """Engines and their second processes start by a fork."""
    with forked_processes.engines(second=True):
        yield


def second(probe: Probe) -> Probe:
    """The probe, in the second process."""
    return replace(probe, program=replace(probe.program, process=Process.SECOND))


def second_pid(session: Session) -> int:
    engine, pid = session.process_ids
    assert engine == session.engine_pid
    return pid


def wait_for_iterations(session: Session, name: str) -> None:
    last = session.snapshot().probes[name].iterations
    wait_until(lambda: session.snapshot().probes[name].iterations > last, f"{name} runs")


def test_probes_of_both_processes_are_switched_and_counted_alike() -> None:
    probes = (host_probe("a"), second(host_probe("b")), host_probe("c"))
    with Session(probes, "host") as session:
        assert children(session.engine_pid or 0) == [second_pid(session)]
        session.set_running(["b"])
        wait_for_iterations(session, "b")
        assert session.snapshot().probes["a"].iterations == 0
        session.set_running(["a", "b", "c"])
        for name in ("a", "b", "c"):
            wait_for_iterations(session, name)
        threads = {path.read_text().strip() for path in Path(f"/proc/{second_pid(session)}/task").glob("*/comm")}
        assert "b" in threads
        assert not {"a", "c"} & threads
        assert session.snapshot().probes["b"].channels.keys() == session.snapshot().probes["a"].channels.keys()
    assert session.process_ids == ()


def test_a_session_without_such_probes_has_no_second_process() -> None:
    with forked_processes.engines(), Session([host_probe("a")], "host") as session:
        assert session.process_ids == (session.engine_pid,)
        assert children(session.engine_pid or 0) == []


def test_a_failed_probe_of_the_second_process_is_reported_and_the_others_continue() -> None:
    failing = second(host_probe("failing", Op("libc:getpid")))
    with Session([host_probe("a"), failing, second(host_probe("b"))], "host") as session:
        session.set_running(["a", "failing", "b"])
        wait_until(lambda: bool(session.probe_failures()), "the failure arrives")
        assert session.probe_failures()[0].sentence.startswith("failing: libc:getpid returned")
        for name in ("a", "b"):
            wait_for_iterations(session, name)


@pytest.fixture
def engine_side() -> Iterator[Callable[..., SecondProcess]]:
    """Starts a second process as an engine does, with the probes given."""
    made: list[tuple[SecondProcess, Board]] = []

    def start(*probes: Probe) -> SecondProcess:
        board = Board.create(BoardLayout.of(probes))
        made.append((SecondProcess(Start(probes, "host", Options()), board), board))
        return made[-1][0]

    yield start
    for process, board in made:
        process.kill()
        board.close()


def test_what_the_second_process_lacks_is_refused_with_its_reason(engine_side: Callable[..., SecondProcess]) -> None:
    spin = entries()["spin"].probe(Placement(process=Process.SECOND))
    with pytest.raises(Unsupported, match="spin@second-process needs a GPU"):
        engine_side(host_probe("a"), spin).await_ready()


def test_a_second_process_that_cannot_prepare_its_probes_says_why(engine_side: Callable[..., SecondProcess]) -> None:
    wrong = second(host_probe("wrong", Op("native:work", tuple(range(20)))))
    with pytest.raises(BackendError, match="in the second process: internal error of the engine: ValueError"):
        engine_side(wrong).await_ready()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV])
def test_a_lost_second_process_is_an_error_of_the_engine(
    engine_side: Callable[..., SecondProcess], number: signal.Signals
) -> None:
    process = engine_side(second(host_probe("b")))
    process.await_ready()
    os.kill(process.pid, number)
    with pytest.raises(BackendError, match=rf"the second process ended \(killed by {number.name}"):
        wait_until(lambda: process.poll() != [], "the loss is noticed")


def test_a_silent_second_process_is_killed_after_a_number_of_polls(
    engine_side: Callable[..., SecondProcess], monkeypatch: pytest.MonkeyPatch
) -> None:
    process = engine_side(second(host_probe("b")))
    process.await_ready()
    os.kill(process.pid, signal.SIGSTOP)
    monkeypatch.setattr("stallprobes.engine.second_process._SILENT_POLLS", 3)
    with pytest.raises(BackendError, match="did not answer, so it was killed"):
        deque((process.poll() for _ in range(10)), maxlen=0)
    wait_for_end(process.pid)


def test_a_lost_second_process_ends_the_session_with_its_reason() -> None:
    with Session([host_probe("a"), second(host_probe("b"))], "host") as session:
        os.kill(second_pid(session), signal.SIGKILL)
        wait_until(lambda: session.failure() is not None, "the loss is noticed")
        assert "the second process ended (killed by SIGKILL" in str(session.failure())


@pytest.mark.parametrize("how", ["hung", "stopped"])
def test_a_second_process_that_does_not_answer_is_gone_when_the_session_has_stopped(how: str) -> None:
    with Session([host_probe("a"), second(host_probe("hung", HUNG))], "host") as session:
        pid = second_pid(session)
        session.set_running(["a", "hung"])
        wait_until(lambda: session.snapshot().probes["hung"].in_flight is not None, "the call hangs")
        if how == "stopped":
            os.kill(pid, signal.SIGSTOP)
    wait_for_end(pid)


PARENT = """
    import os, time
    from stallprobes.model import Op, Probe, Process, Program, Role
    from stallprobes.engine.session import Session
    hung = Op('native:sleep', (600_000_000_000,))
    probes = [
        Probe(name, name, Role.HOST, Program((hung,), context=None, process=process), 1_000_000, name)
        for name, process in (("own", Process.ENGINE), ("other", Process.SECOND))
    ]
    with Session(probes, "host") as session:
        session.set_running(["own", "other"])
        while any(session.snapshot().probes[name].in_flight is None for name in ("own", "other")):
            time.sleep(0.01)
        print(*session.process_ids, flush=True)
        session.run_for(600)
"""


@pytest.mark.parametrize("victim", ["session", "engine"])
def test_a_killed_session_or_engine_takes_a_hung_second_process_along(parent: Parent, victim: str) -> None:
    process = parent(textwrap.dedent(PARENT), forked=victim == "session")
    assert process.stdout is not None
    engine, other = (int(word) for word in process.stdout.readline().split())
    os.kill(process.pid if victim == "session" else engine, signal.SIGKILL)
    wait_for_end(other)
    wait_for_end(engine)


def test_a_signal_to_the_engines_reaches_the_second_process() -> None:
    def state(pid: int) -> str:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]

    with Session([host_probe("a"), second(host_probe("b"))], "host") as session:
        signal_engines(signal.SIGSTOP)
        wait_until(lambda: all(state(pid) == "T" for pid in session.process_ids), "both are stopped")
        signal_engines(signal.SIGCONT)
        session.set_running(["b"])
        wait_for_iterations(session, "b")


def test_each_process_has_the_memory_that_the_other_one_leaves() -> None:
    def probe(name: str, nbytes: int, process: Process, space: Space = Space.DEVICE) -> Probe:
        copy = Op("cuMemcpyDtoDAsync", (Buffer("x", space, nbytes), Buffer("x", space, nbytes), nbytes))
        return Probe(name, name, Role.VICTIM, Program((copy,), process=process), 1_000_000, name)

    probes = (
        probe("a", 5 * MIB, Process.ENGINE),
        probe("b", 7 * MIB, Process.ENGINE),
        probe("pinned", 100 * MIB, Process.ENGINE, Space.PINNED),
        probe("c", 11 * MIB, Process.SECOND),
    )
    options = Options(max_memory=100 * MIB)
    assert limited(options, probes, Process.SECOND).max_memory == 88 * MIB
    assert limited(options, probes, Process.ENGINE).max_memory == 89 * MIB
    assert limited(Options(max_memory=MIB), probes, Process.ENGINE).max_memory == 0
