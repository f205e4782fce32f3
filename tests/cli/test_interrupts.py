"""SIGINT at any moment of a command, once and several times: exit code 130, one sentence, no traceback."""

from __future__ import annotations

import subprocess
import sys

import pytest

from factories import interrupted_command
from factories.command_line import environment
from factories.waiting import LIMIT_S

RUN = ("run", "launch", "--sim", "--seconds", "0.5")
LIST = ("list",)


def interrupted(moment: str, count: int, arguments: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, interrupted_command.__file__, moment, str(count), *arguments],
        env=environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


@pytest.mark.parametrize(
    ("moment", "arguments", "count"),
    [
        # The first module after the entry module.
        ("import:stallscope.cli.process.signals", LIST, 1),
        ("import:stallscope.cli.process.signals", LIST, 3),
        ("import:click", LIST, 1),
        ("import:stallprobes.catalog", LIST, 3),
        # The table is written.
        ("import:stallscope.report.catalog_text", LIST, 3),
        (interrupted_command.EXIT, LIST, 1),
        (interrupted_command.EXIT, LIST, 3),
        # A module of C, and the code of dataclasses, which exec runs.
        ("import:numpy", RUN, 1),
        ("exec:<string>", RUN, 1),
        # The start of the engine, its first message, the end of the measurement, the report.
        ("subprocess.Popen:" + sys.executable, RUN, 3),
        ("pickle.find_class:stallprobes.engine.protocol", RUN, 3),
        ("open:/proc/cpuinfo", RUN, 3),
        ("import:stallscope.report.run_text", RUN, 2),
        (interrupted_command.EXIT, RUN, 3),
    ],
)
def test_an_interrupt_at_any_moment_is_one_sentence(moment: str, arguments: tuple[str, ...], count: int) -> None:
    done = interrupted(moment, count, arguments)
    assert done.returncode == 130, (done.returncode, done.stderr)
    assert done.stderr.startswith("stallscope: interrupted")
    assert len(done.stderr.splitlines()) == 1


def test_the_entry_module_handles_sigint_and_loads_nothing_else_before() -> None:
    program = (
        "import os, signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler); before = set(sys.modules); "
        "import stallscope.cli.entry; print(*sorted(set(sys.modules) - before), flush=True); "
        "os.kill(os.getpid(), signal.SIGINT); print('still here')"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.stdout.split() == ["stallscope", "stallscope.cli", "stallscope.cli.entry"]
    assert (done.returncode, done.stderr) == (130, "stallscope: interrupted\n")


def test_an_ignored_sigint_stays_ignored_by_the_entry_module() -> None:
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN); import stallscope.cli.entry; "
        "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, timeout=LIMIT_S
    )
    assert done.stdout == "True\n"


def test_a_moment_that_never_comes_interrupts_nothing() -> None:
    """So that the test above does not pass for commands that were never interrupted."""
    done = interrupted("import:nothing", 3, LIST)
    assert (done.returncode, done.stderr) == (0, "")
