"""An engine's process that was started ahead: a session takes it over, or nothing is left of it."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from collections.abc import Callable
from subprocess import Popen

import pytest

from stallprobes.engine.process import SpareEngine
from stallprobes.engine.session import Session
from stallprobes.model import Probe

pytestmark = pytest.mark.usefixtures("nothing_left")

MakeProbe = Callable[..., Probe]
Gone = Callable[[int], bool]
Parent = Callable[[str], "Popen[str]"]


def pid_of(spare: SpareEngine) -> int:
    assert spare._held is not None
    return spare._held[0].process.pid


@pytest.mark.parametrize("loaded_s", [0.0, 0.7])
def test_a_session_takes_it_over_whether_it_has_loaded_or_not(make_probe: MakeProbe, loaded_s: float) -> None:
    spare = SpareEngine("host")
    pid = pid_of(spare)
    time.sleep(loaded_s)
    with Session([make_probe("a")], "host", spare=spare) as session:
        assert session.engine_pid == pid
        session.set_running(["a"])
        session.run_for(0.2)
        assert session.snapshot().probes["a"].iterations > 0
        spare.close()
        assert session.alive
        # It is taken once.
        with Session([make_probe("b")], "host", spare=spare) as other:
            assert other.engine_pid not in (None, pid)


def test_for_another_backend_a_new_one_is_started(make_probe: MakeProbe, gone: Gone) -> None:
    spare = SpareEngine("cuda")
    pid = pid_of(spare)
    with Session([make_probe("a")], "host", spare=spare) as session:
        assert session.engine_pid not in (None, pid)
    spare.close()
    spare.close()
    assert gone(pid)


def test_in_the_place_of_one_that_died_a_new_one_is_started(make_probe: MakeProbe, gone: Gone) -> None:
    spare = SpareEngine("host")
    pid = pid_of(spare)
    os.kill(pid, signal.SIGKILL)
    assert gone(pid)
    with Session([make_probe("a")], "host", spare=spare) as session:
        assert session.engine_pid not in (None, pid)
    spare.close()


def test_killed_outright_the_parent_takes_it_along(parent: Parent, gone: Gone) -> None:
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
    assert gone(pid)
