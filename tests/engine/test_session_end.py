"""The end of a session in its own process: its engine and its threads end too."""

from __future__ import annotations

import gc
import os
import threading

import pytest

from factories.host_probes import host_probe
from factories.processes import Parent, wait_for_end
from factories.waiting import wait_until
from stallprobes.engine import process
from stallprobes.engine.session import Session
from stallprobes.errors import EngineFailed
from stallprobes.model import Op

pytestmark = pytest.mark.usefixtures("forked_engines", "nothing_left")


def test_an_engine_that_hangs_as_it_starts_is_killed_with_a_sentence() -> None:
    hung = host_probe("hung", setup=(Op("native:sleep", (600_000_000_000,)),))
    session = Session([hung], "host")
    with pytest.raises(EngineFailed, match=r"not ready after 1\.5 s, so it was killed") as failed:
        session.start(timeout=1.5)
    assert failed.value.exit_code == 4
    assert session.engine_pid is None


_ENDS_WHILE_IT_STARTS = """
import atexit
import threading

def start():
    try:
        session.start()
    except EngineFailed:
        # What the engine's end leaves readable.
        print(sorted(session.snapshot().probes))

starting = threading.Thread(target=start, daemon=True)
# Exit functions run in reverse order: the thread ends after the session's own ones.
atexit.register(starting.join)

import time
from stallprobes.engine.session import Session
from stallprobes.errors import EngineFailed
from stallprobes.model import Op, Probe, Program, Role

hung = Program((Op("native:nothing"),), context=None, setup=(Op("native:sleep", (600_000_000_000,)),))
session = Session([Probe("hung", "hung", Role.HOST, hung, 1_000_000, "hung")], "host")
starting.start()
while session.engine_pid is None:
    time.sleep(0.001)
"""


def test_a_program_that_ends_while_a_thread_starts_an_engine_writes_no_traceback(parent: Parent) -> None:
    program = parent(_ENDS_WHILE_IT_STARTS)
    out, err = program.communicate()
    assert (program.returncode, out, err) == (0, "['hung']\n", "")


@pytest.mark.parametrize("name", ["engine-receiver", "engine-spawner"])
def test_a_session_without_a_thread_is_one_sentence(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    usual = threading.Thread.start

    def start(thread: threading.Thread) -> None:
        if thread.name == name:
            raise RuntimeError("can't start new thread")
        usual(thread)

    monkeypatch.setattr(process, "_spawner", process._Spawner())
    monkeypatch.setattr(threading.Thread, "start", start)
    session = Session([host_probe("a")], "host")
    with pytest.raises(EngineFailed, match="could not be created: can't start new thread") as failed:
        session.start()
    assert failed.value.exit_code == 4
    assert session.engine_pid is None
    session.stop()


def test_a_session_that_is_dropped_takes_its_engine_along() -> None:
    session: Session | None = Session([host_probe("a")], "host")
    assert session is not None
    session.start()
    engine = session.engine_pid
    assert engine is not None
    session = None
    gc.collect()
    wait_for_end(engine)


def test_a_forked_child_that_exits_leaves_the_engine_alone() -> None:
    with Session([host_probe("a")], "host") as session:
        child = os.fork()
        if child == 0:
            try:
                session.stop()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        session.set_running(["a"])
        wait_until(lambda: session.snapshot().probes["a"].iterations > 0, "the probe runs")
        assert session.alive


def test_sessions_leave_no_thread_behind() -> None:
    with Session([host_probe("a")], "host"):
        pass
    before = set(threading.enumerate())
    for _ in range(2):
        with Session([host_probe("a"), host_probe("b")], "host") as session:
            session.set_running(["a"])
    # Threads of other tests may have ended meanwhile.
    assert set(threading.enumerate()) <= before
