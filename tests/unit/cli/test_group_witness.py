"""Tests of the process that shows which signals were sent to the whole process group."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from factories.command_line import environment
from stallscope.cli.process.group_witness import GroupWitness

# A process group of its own, which sends signals to itself and prints the answers.
PRELUDE = """\
import json, os, signal
from signal import SIGHUP, SIGINT, SIGKILL, SIGQUIT, SIGSTOP, SIGTERM, SIGTSTP
from factories.processes import children
from stallscope.cli.process.group_witness import GroupWitness

SENT = {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP}
signal.pthread_sigmask(signal.SIG_BLOCK, {*SENT, signal.SIGCHLD})
answers = []

def group(*numbers):
    for number in numbers:
        os.killpg(0, number)

def alone(number):
    os.kill(os.getpid(), number)

def the_witness():
    (pid,) = children(os.getpid())
    return pid

def asked(*numbers):
    for number in numbers:
        assert signal.sigtimedwait({number}, 0) is not None
        answers.append(witness.saw({number}) == {number})

def together(*numbers):
    seen = witness.saw(set(numbers))
    answers.extend(number in seen for number in numbers)

with GroupWitness() as witness:
"""


def answers_to(script: str) -> list[bool]:
    indented = "".join(f"    {line}\n" for line in script.splitlines())
    source = f"{PRELUDE}{indented}print(json.dumps(answers))\nassert not children(os.getpid(), ended=True)\n"
    done = subprocess.run(
        [sys.executable, "-c", source], env=environment(), capture_output=True, text=True, process_group=0
    )
    assert done.returncode == 0, done.stderr
    answers: list[bool] = json.loads(done.stdout)
    return answers


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        pytest.param("alone(SIGTERM); asked(SIGTERM)", [False], id="to this process"),
        pytest.param("group(SIGTERM); asked(SIGTERM)", [True], id="to the group"),
        pytest.param(
            "group(SIGTERM); asked(SIGTERM); alone(SIGTERM); asked(SIGTERM); group(SIGTERM); asked(SIGTERM)",
            [True, False, True],
            id="one after the other",
        ),
        pytest.param(
            "group(SIGQUIT, SIGHUP, SIGINT); asked(SIGINT, SIGHUP, SIGQUIT); alone(SIGHUP); asked(SIGHUP)",
            [True, True, True, False],
            id="three at once",
        ),
        pytest.param("group(SIGTERM); alone(SIGINT); asked(SIGINT, SIGTERM)", [False, True], id="both kinds at once"),
        pytest.param("group(SIGTERM); alone(SIGINT); together(SIGINT, SIGTERM)", [False, True], id="one question"),
        pytest.param(
            "group(SIGTSTP, SIGINT); asked(SIGINT)", [True], id="after ctrl+z, which a program may ignore"
        ),
        pytest.param(
            "os.kill(the_witness(), SIGSTOP); group(SIGTERM); asked(SIGTERM); group(SIGTERM); asked(SIGTERM)",
            [True, True],
            id="a witness that does not run",
        ),
        pytest.param("witness.review(); witness.review(); group(SIGINT); asked(SIGINT)", [True], id="reviewed"),
        pytest.param(
            "group(SIGINT); witness.review(); witness.review(); asked(SIGINT)", [True], id="asked after reviews"
        ),
        pytest.param(
            "os.kill(the_witness(), SIGTERM); witness.review(); witness.review(); alone(SIGTERM); asked(SIGTERM)",
            [False],
            id="a signal that came too late",
        ),
        pytest.param(
            "pid = the_witness()\n"
            "os.kill(pid, SIGKILL)\n"
            "os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)\n"
            "witness.review()\n"
            "group(SIGTERM); asked(SIGTERM)",
            [True],
            id="a witness that was killed",
        ),
    ],
)  # fmt: skip
def test_a_signal_to_the_group_is_distinguished_from_one_to_this_process(script: str, expected: list[bool]) -> None:
    assert answers_to(script) == expected


def test_without_a_shell_no_signal_was_sent_to_the_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallscope.cli.process.group_witness._SHELL", "/missing/sh")
    with GroupWitness() as witness:
        witness.review()
        assert not witness.saw({15})
