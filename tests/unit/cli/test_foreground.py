"""Tests of the program in the foreground that a command starts and whose signals it forwards."""

from __future__ import annotations

import subprocess
import sys

from factories.command_line import TIMEOUT_S, environment

# A report that waits for the program's answer to the first SIGTERM before it sends the second.
SCRIPT = """\
import os, select, signal, sys
from stallscope.cli.process.foreground import REPORT_SIGNAL, ForegroundProgram, held_signals

PROGRAM = '''
import os, signal
for answer in (b"first", b"second"):
    signal.sigwait({signal.SIGTERM})
    os.write(1, answer)
'''
reader, writer = os.pipe()
os.set_inheritable(writer, True)
answers = []

def answer():
    assert select.select([reader], [], [], 60)[0], "the program got no signal"
    answers.append(os.read(reader, 100).decode())

def report():
    answer()
    os.kill(os.getpid(), signal.SIGTERM)

with held_signals():
    os.dup2(writer, 1)
    # Blocked from its start, a signal does not end it.
    program = ForegroundProgram([sys.executable, "-c", PROGRAM], dict(os.environ), {signal.SIGTERM})
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), REPORT_SIGNAL)
        code = program.wait(10.0, lambda: None, report)
    except BaseException:
        os.kill(program.pid, signal.SIGKILL)
        raise
answer()
assert (code, answers) == (0, ["first", "second"]), (code, answers)
"""


def test_no_signal_stays_pending_behind_another() -> None:
    # A second one of its kind would be lost.
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# A signal comes each millisecond.
STORM = """\
import os, signal, sys
from stallscope.cli.process.foreground import ForegroundProgram, held_signals, ignore_signals

PROGRAM = '''
import os, signal
parent = os.getppid()
while signal.sigtimedwait({signal.SIGTERM}, 0.001) is None and os.getppid() == parent:
    os.kill(parent, signal.SIGUSR2)
'''
polls = 0

def poll():
    global polls
    polls += 1
    if polls == 3:
        os.kill(program.pid, signal.SIGTERM)
    return 0

with held_signals():
    program = ForegroundProgram([sys.executable, "-c", PROGRAM], dict(os.environ), {signal.SIGUSR2, signal.SIGTERM})
    code = program.wait(0.05, poll, lambda: None)
    # The last one may have come when the program had ended.
    ignore_signals()
assert code == 0, code
assert polls >= 3
"""


def test_it_polls_also_while_signals_keep_coming() -> None:
    done = subprocess.run(
        [sys.executable, "-c", STORM], env=environment(), capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert done.returncode == 0, done.stderr
