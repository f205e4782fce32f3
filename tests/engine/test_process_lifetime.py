"""Real processes and real signals: whatever ends, and whatever hangs, nothing is left behind."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import threading
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from factories.host_probes import host_probe
from factories.processes import Parent, children, wait_for_end
from factories.waiting import LIMIT_S, wait_until
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.protocol import Ready, Start
from stallprobes.engine.session import Session
from stallprobes.model import Op

HANGS = {
    "native": "Op('native:sleep', (600_000_000_000,))",
    "libc": "Op('libc:pause', ok=(-1,))",
}

pytestmark = pytest.mark.usefixtures("forked_engines", "nothing_left")


def parent_source(then: str, setup: str = "()") -> str:
    """A program with a session of two probes, which hang in code of ours and in the C library."""
    return textwrap.dedent(f"""
        import os, sys, time, threading
        from stallprobes.model import Op, Probe, Program, Role
        from stallprobes.engine.session import Session
        probes = [
            Probe(name, name, Role.HOST, Program((op,), context=None, setup={setup}), 1_000_000, name)
            for name, op in {{{", ".join(f"{name!r}: {op}" for name, op in HANGS.items())}}}.items()
        ]
        session = Session(probes, "host")
        def begin():
            if not session.alive:
                session.start()
            session.set_running([probe.name for probe in probes])
            while any(session.snapshot().probes[probe.name].in_flight is None for probe in probes):
                time.sleep(0.01)
    """) + textwrap.dedent(then)


WAITS = """
    with session:
        begin()
        print(session.engine_pid, flush=True)
        session.run_for(600)
"""


def is_program(pid: int) -> bool:
    """Whether a new child is the engine's program, no longer a copy of its parent."""
    return b"stallprobes.engine.main" in Path(f"/proc/{pid}/cmdline").read_bytes()


@pytest.mark.parametrize("ready", [False, True], ids=["starting", "ready"])
def test_a_stopped_engine_ends_with_its_parent(parent: Parent, ready: bool) -> None:
    """Also one that was stopped before it could ask the kernel for a signal at its parent's end."""
    process = parent(parent_source(WAITS))
    assert process.stdout is not None
    if ready:
        engine = int(process.stdout.readline())
    else:
        wait_until(lambda: any(map(is_program, children(process.pid))), "the engine's interpreter starts")
        (engine,) = children(process.pid)
    os.kill(engine, signal.SIGSTOP)
    stat = Path(f"/proc/{engine}/stat")
    wait_until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the engine is stopped")
    process.kill()
    wait_for_end(engine)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_parent_ended_by_a_signal_takes_its_engine_along(parent: Parent, number: signal.Signals) -> None:
    # Two of them with interpreters of their own, as a user's program and its engine.
    process = parent(parent_source(WAITS), forked=number in (signal.SIGTERM, signal.SIGHUP))
    assert process.stdout is not None
    engine = int(process.stdout.readline())
    process.send_signal(number)
    wait_for_end(engine)
    wait_for_end(process.pid)


def test_a_parent_killed_while_the_engine_starts_takes_it_along(parent: Parent) -> None:
    then = """
        threading.Thread(target=session.start, daemon=True).start()
        while session.engine_pid is None:
            time.sleep(0.01)
        print(session.engine_pid, flush=True)
        time.sleep(600)
    """
    process = parent(parent_source(then, setup=f"({HANGS['native']},)"), forked=True)
    assert process.stdout is not None
    engine = int(process.stdout.readline())
    process.kill()
    wait_for_end(engine)


def test_the_kernel_ends_the_engine_even_if_its_socket_stays_open(parent: Parent) -> None:
    then = """
        begin()
        engine = session.engine_pid
        sibling = os.fork()
        if sibling == 0:
            time.sleep(600)
            os._exit(0)
        print(engine, sibling, flush=True)
        time.sleep(600)
    """
    process = parent(parent_source(then), forked=True)
    assert process.stdout is not None
    engine, sibling = (int(word) for word in process.stdout.readline().split())
    try:
        process.kill()
        wait_for_end(engine)
    finally:
        os.kill(sibling, signal.SIGKILL)


def test_a_closed_socket_alone_ends_the_engine() -> None:
    probes = (host_probe("hung", Op("native:sleep", (600_000_000_000,))),)
    board = Board.create(BoardLayout.of(probes))
    ours, theirs = socket.socketpair()
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2] / "probes")}
    process = subprocess.Popen(
        [sys.executable, "-m", "stallprobes.engine.main", str(board.fd), str(theirs.fileno()), str(os.getpid())],
        pass_fds=(board.fd, theirs.fileno()),
        env=environment,
    )
    theirs.close()
    connection = Connection(ours.detach())
    connection.send(Start(probes, "host", Options()))
    assert isinstance(connection.recv(), Ready)
    connection.close()
    board.close()
    assert process.wait(LIMIT_S) != 0


def test_a_parent_that_just_exits_takes_its_engine_along(parent: Parent) -> None:
    process = parent(parent_source("begin()\nprint(session.engine_pid, flush=True)\n"))
    output, errors = process.communicate(timeout=LIMIT_S)
    wait_for_end(int(output))
    assert process.returncode == 0
    assert errors == ""


def test_an_engine_outlives_the_thread_that_asked_for_it() -> None:
    session = Session([host_probe("a")], "host")
    thread = threading.Thread(target=session.start)
    thread.start()
    thread.join()
    with session:
        session.set_running(["a"])
        wait_until(lambda: session.snapshot().probes["a"].iterations > 0, "the probe runs")
        assert session.alive


def test_an_interrupted_start_leaves_nothing() -> None:
    hung = host_probe("hung", setup=(Op("native:sleep", (600_000_000_000,)),))
    session = Session([hung], "host")

    def interrupt() -> None:
        wait_until(lambda: session.engine_pid is not None, "the engine is started")
        os.kill(os.getpid(), signal.SIGINT)

    # Any other handler may end the tests.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    with pytest.raises(KeyboardInterrupt):
        session.start()
    interrupting.join()
    assert session.engine_pid is None
