"""Engines that are killed, crash or hang: what the session says, and that nothing is left behind."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

import pytest

from factories.host_probes import host_probe
from factories.processes import wait_for_end
from factories.waiting import LIMIT_S, wait_until
from stallprobes.engine import session as sessions
from stallprobes.engine.inbox import Inbox
from stallprobes.engine.process import EngineProcess
from stallprobes.engine.protocol import Ready
from stallprobes.engine.session import Session
from stallprobes.errors import EngineLost
from stallprobes.model import Op

pytestmark = pytest.mark.usefixtures("forked_engines", "nothing_left")


def test_a_killed_engine_is_lost_and_its_figures_are_kept() -> None:
    with Session([host_probe("a")], "host") as session:
        session.set_running(["a"])
        wait_until(lambda: session.snapshot().probes["a"].iterations > 0, "the probe runs")
        assert session.engine_pid is not None
        killer = threading.Timer(0.1, os.kill, (session.engine_pid, signal.SIGKILL))
        killer.start()
        with pytest.raises(EngineLost, match="killed by SIGKILL") as lost:
            session.run_for(600)
        killer.join()
        assert lost.value.exit_code == 4
        assert not session.alive
        assert session.engine_pid is None
        assert session.snapshot().probes["a"].iterations > 0


def lost_engine(*ops: Op) -> EngineLost:
    """The error of a session whose engine ends in one of ``ops``."""
    with Session([host_probe("a", *ops)], "host") as session:
        session.set_running(["a"])
        with pytest.raises(EngineLost) as lost:
            session.run_for(600)
        assert session.stderr_tail() == lost.value.stderr_tail
    assert session.stderr_tail() == lost.value.stderr_tail
    return lost.value


def test_an_engine_that_exits_in_a_call_leaves_its_exit_code() -> None:
    assert lost_engine(Op("libc:_exit", (3,))).sentence == "the engine ended (exit code 3)"


@pytest.mark.parametrize(
    ("number", "name"), [(signal.SIGSEGV, "segmentation fault"), (signal.SIGABRT, "aborted")], ids=["segv", "abort"]
)
def test_an_engine_that_crashes_says_so_and_keeps_the_report(number: signal.Signals, name: str) -> None:
    lost = lost_engine(Op("libc:raise", (int(number),)))
    assert lost.sentence == f"the engine crashed (killed by {number.name}, {name}); see dmesg for errors of the GPU"
    assert f"Fatal Python error: {name.capitalize()}" in lost.stderr_tail
    assert "Extension modules" in lost.stderr_tail


def test_what_a_library_wrote_before_the_crash_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """As glibc and C++ do: a line on stderr, then abort()."""
    tail = "loading\nfree(): invalid pointer\nFatal Python error: Aborted\n\nExtension modules: numpy (total: 1)"
    monkeypatch.setattr(EngineProcess, "stderr_tail", lambda _: tail)
    with Session([host_probe("a", Op("libc:abort"))], "host") as session:
        session.set_running(["a"])
        with pytest.raises(EngineLost, match=r"SIGABRT, aborted\); its last output: free\(\): invalid pointer; see"):
            session.run_for(600)


def test_a_stopped_engine_is_killed() -> None:
    session = Session([host_probe("a")], "host")
    session.start()
    engine = session.engine_pid
    assert engine is not None
    os.kill(engine, signal.SIGSTOP)
    session.stop()
    wait_for_end(engine)


def test_a_session_waits_for_an_engine_that_is_stopped_and_goes_on_when_it_does() -> None:
    with Session([host_probe("a")], "host") as session:
        engine = session.engine_pid
        assert engine is not None
        assert (session.is_stopped, session.stops) == (False, 0)
        os.kill(engine, signal.SIGSTOP)
        wait_until(lambda: session.is_stopped, "the engine is stopped")
        waiting = threading.Thread(target=session.run_for, args=(0.01,), daemon=True)
        waiting.start()
        waiting.join(0.3)
        assert waiting.is_alive()
        os.kill(engine, signal.SIGCONT)
        waiting.join(LIMIT_S)
        assert not waiting.is_alive()
        assert (session.is_stopped, session.stops) == (False, 1)
        assert session.gap_s > 0.2
        session.run_for(0.01)
        assert session.stops == 1


class Stopped:
    """The process of an engine that is stopped; ``then`` is called when it was asked for the third time."""

    def __init__(self, then: Callable[[], None]) -> None:
        self._then = then
        self._asked = 0

    @property
    def is_stopped(self) -> bool:
        self._asked += 1
        if self._asked == 3:
            self._then()
        return True


def test_the_time_in_which_an_engine_is_stopped_while_it_starts_does_not_count() -> None:
    inbox = Inbox()
    process = Stopped(lambda: inbox.put(Ready({"gpu": "made up"})))
    assert inbox.await_ready(process, 0.001) == {"gpu": "made up"}  # type: ignore[arg-type]


def test_an_engine_that_is_stopped_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "_SILENCE_S", 0.0)
    session = Session([host_probe("a")], "sim")
    answered: list[bool] = []
    session._process = Stopped(lambda: answered.append(True))  # type: ignore[assignment]
    monkeypatch.setattr(session._inbox, "wait", lambda *_: None)
    session._await_answer(lambda: bool(answered))
    session._process = None


@pytest.mark.parametrize("op", [Op("native:sleep", (600_000_000_000,)), Op("libc:pause", ok=(-1,))])
def test_a_session_stops_while_a_call_hangs(op: Op) -> None:
    session = Session([host_probe("hung", op), host_probe("a")], "host")
    session.start()
    session.set_running(["hung", "a"])
    wait_until(lambda: session.snapshot().probes["hung"].in_flight is not None, "the call hangs")
    engine = session.engine_pid
    assert engine is not None
    session.stop()
    wait_for_end(engine)
