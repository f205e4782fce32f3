"""A measurement whose engine is stopped says so, waits for it, and says that it continues."""

from __future__ import annotations

import os
import signal
import sys
import threading
import types
from pathlib import Path

import pytest

from factories.command_line import Process, start
from factories.processes import children
from factories.waiting import LIMIT_S, wait_until
from stallscope.cli.process.stopped_engines import stopped_engines_named

RECORD = ("record", "{file}", "secondary-context-d2d", "--variant", "kernel-other-context", "--seconds", "600")
COMMANDS = {
    "run": ("run", "launch", "--seconds", "600"),
    "check": ("check", "--victims", "launch,d2d"),
    "record": RECORD,
}


def line_with(process: Process, words: str) -> str:
    """The next line on stderr with ``words``."""
    assert process.stderr is not None
    for line in process.stderr:
        if words in line:
            return line
    raise AssertionError(f"it ended without {words!r}")


@pytest.mark.parametrize("name", COMMANDS)
def test_a_measurement_names_its_stopped_engine_and_goes_on_with_it(name: str, tmp_path: Path) -> None:
    words = [word.format(file=tmp_path / "a.rec") for word in COMMANDS[name]]
    with start(*words, "--sim") as process:
        wait_until(lambda: children(process.pid), "an engine exists")
        engine = children(process.pid)[0]
        os.kill(engine, signal.SIGSTOP)
        assert f"the engine (pid {engine}) is stopped" in line_with(process, "is stopped")
        os.kill(engine, signal.SIGCONT)
        assert f"the engine (pid {engine}) is no longer stopped" in line_with(process, "no longer")
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 130
    assert "interrupted" in err


def test_the_notice_waits_for_a_module_that_the_main_thread_still_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine may be so busy that a thread looks at it meanwhile."""
    asked = threading.Event()

    class Loading(types.ModuleType):
        def __getattr__(self, name: str) -> object:
            asked.set()
            raise AttributeError(name)

    failed: list[object] = []
    monkeypatch.setattr(threading, "excepthook", failed.append)
    monkeypatch.setitem(sys.modules, "stallprobes.engine.process", Loading("stallprobes.engine.process"))
    with stopped_engines_named():
        assert asked.wait(LIMIT_S)
    assert failed == []
