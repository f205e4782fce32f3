"""An engine's process that was started ahead: a session takes it over, or nothing is left of it."""

from __future__ import annotations

import contextlib
import os
import signal
import textwrap
import threading

import pytest

from factories import forked_processes
from factories.host_probes import host_probe
from factories.processes import Parent, wait_for_end
from factories.waiting import wait_until
from stallprobes.engine.process import EngineProcess, SpareEngine
from stallprobes.engine.session import Session
from stallprobes.errors import EngineLost
from stallprobes.model import Op

pytestmark = pytest.mark.usefixtures("forked_engines", "nothing_left")


def pid_of(spare: SpareEngine) -> int:
    assert spare._held is not None
    return spare._held[0].process.pid


@pytest.mark.parametrize("loaded", [False, True])
def test_a_session_takes_it_over_whether_it_has_loaded_or_not(loaded: bool) -> None:
    # An interpreter of its own has imported nothing yet; a fork of the server has everything from its beginning.
    with contextlib.nullcontext() if loaded else forked_processes.none():
        spare = SpareEngine("host")
    pid = pid_of(spare)
    with Session([host_probe("a")], "host", spare=spare) as session:
        assert session.engine_pid == pid
        session.set_running(["a"])
        wait_until(lambda: session.snapshot().probes["a"].iterations > 0, "the probe runs")
        spare.close()
        assert session.alive
        # It is taken once.
        with Session([host_probe("b")], "host", spare=spare) as other:
            assert other.engine_pid not in (None, pid)


def test_for_another_backend_a_new_one_is_started() -> None:
    spare = SpareEngine("cuda")
    pid = pid_of(spare)
    with Session([host_probe("a")], "host", spare=spare) as session:
        assert session.engine_pid not in (None, pid)
    spare.close()
    spare.close()
    wait_for_end(pid)


def test_in_the_place_of_one_that_died_a_new_one_is_started() -> None:
    spare = SpareEngine("host")
    assert spare._held is not None
    process, pid = spare._held[0].process, pid_of(spare)
    os.kill(pid, signal.SIGKILL)
    # A process whose first thread is a zombie can have others that have not ended.
    wait_until(lambda: process.poll() is not None, "the process has ended")
    with Session([host_probe("a")], "host", spare=spare) as session:
        assert session.engine_pid not in (None, pid)
    spare.close()


def test_one_that_is_killed_as_it_is_taken_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that a signal ends is seen to have ended a moment later only: the session has it by then."""
    spare = SpareEngine("host")
    pid = pid_of(spare)
    take = spare.take

    def kill_and_take(backend: str) -> tuple[EngineProcess, int] | None:
        taken = take(backend)
        os.kill(pid, signal.SIGKILL)
        return taken

    monkeypatch.setattr(spare, "take", kill_and_take)
    with Session([host_probe("a")], "host", spare=spare) as session:
        assert session.engine_pid not in (None, pid)
        assert session.alive
        session.set_running(["a"])
        wait_until(lambda: session.snapshot().probes["a"].iterations > 0, "the probe runs")
    spare.close()


def test_one_that_is_killed_while_it_prepares_the_probes_is_replaced() -> None:
    spare = SpareEngine("host")
    pid = pid_of(spare)
    os.kill(pid, signal.SIGSTOP)
    # The message that starts it waits in its socket.
    killer = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with Session([host_probe("a")], "host", spare=spare) as session:
        assert session.engine_pid not in (None, pid)
        assert session.snapshot().probes["a"].iterations == 0
    killer.join()
    spare.close()


def test_one_that_crashes_is_not_replaced() -> None:
    spare = SpareEngine("host")
    with pytest.raises(EngineLost, match=r"crashed while it started \(killed by SIGABRT"):
        Session([host_probe("a", setup=(Op("libc:abort"),))], "host", spare=spare).start()
    spare.close()


def test_a_session_that_is_stopped_while_it_starts_starts_no_other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    spare = SpareEngine("host")
    pid = pid_of(spare)
    os.kill(pid, signal.SIGSTOP)
    session = Session([host_probe("a")], "host", spare=spare)
    stopping = threading.Timer(0.1, session.stop)
    stopping.start()
    with pytest.raises(EngineLost):
        session.start()
    stopping.join()
    assert session.engine_pid is None
    wait_for_end(pid)
    spare.close()


def test_killed_outright_the_parent_takes_it_along(parent: Parent) -> None:
    process = parent(
        textwrap.dedent("""
            import time
            from stallprobes.engine.process import SpareEngine
            spare = SpareEngine("host")
            print(spare._held[0].process.pid, flush=True)
            time.sleep(600)
        """)
    )
    assert process.stdout is not None
    pid = int(process.stdout.readline())
    process.kill()
    wait_for_end(pid)
