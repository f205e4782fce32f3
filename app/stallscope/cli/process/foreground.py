"""A program in the foreground: it has this process's streams and terminal, and gets its signals.

The program has a process group of its own and gets each signal once: this process forwards its signals, whether they
were sent to it alone, to its group, or by the terminal. A program that needs the terminal stops, and becomes the
terminal's foreground group: until then the other processes of the job, a pager for example, have the terminal too. When
the program stops otherwise, the job stops too, so that ``fg`` and ``bg`` of the shell work.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from enum import IntEnum

from stallprobes.errors import reason_of
from stallscope.cli.process.diagnostics import CommandError
from stallscope.cli.process.inherited_signals import signals_to_reset


class WatchExit(IntEnum):
    """Exit codes of a command that starts a program, if the command itself fails.

    In all other cases, the command exits with the program's code, as env and timeout do.
    """

    FAILED = 125
    NOT_EXECUTABLE = 126
    NOT_FOUND = 127


# Number that is added to a signal's number for the exit code. If signal n ended the program, this command exits with
# _SIGNAL_BASE + n, as shells do.
_SIGNAL_BASE = 128
# Signal that asks watch for a report while the program runs.
REPORT_SIGNAL = signal.SIGUSR1
# Signals that this process forwards to the program, among them the signals of terminal keys. Reason: the terminal sends
# the signals of keys only to its foreground process group. The program has a process group of its own, which is not in
# the foreground at first.
_FORWARDED = frozenset(
    {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGUSR2, signal.SIGWINCH}
)
# Signals that suspend the program. After SIGTTIN or SIGTTOU, this process hands the terminal to the program if
# possible. After SIGTSTP, or if the terminal cannot be handed over, this process suspends itself too.
_STOPS = frozenset({signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU})
# Signals that this process blocks while the program runs. A blocked signal stays pending until the loop that waits for
# the program takes the signal.
_HELD = _FORWARDED | _STOPS | {REPORT_SIGNAL, signal.SIGCHLD, signal.SIGCONT}


def shell_exit_code(code: int) -> int:
    """Exit code of shells for a program that ended with ``code``: 128 + n for -n."""
    return code if code >= 0 else _SIGNAL_BASE - code


@contextmanager
def held_signals() -> Iterator[set[signal.Signals]]:
    """Blocks the signals that ``ForegroundProgram`` waits for; yields the signals blocked before.

    Threads started inside the block inherit it, so that they take no signal from the main thread.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        yield {signal.Signals(number) for number in before}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def ignore_signals() -> None:
    """Ignore the signals of ``held_signals`` from now on, also the ones that have arrived.

    For a process with a known exit code: a signal too late for the program must not change it.
    """
    for number in (*_FORWARDED, *_STOPS, REPORT_SIGNAL):
        signal.signal(number, signal.SIG_IGN)


class ForegroundProgram:
    """A started program. Create and wait for it inside ``held_signals``, whose value is ``blocked``."""

    def __init__(self, arguments: Sequence[str], environment: Mapping[str, str], blocked: set[signal.Signals]) -> None:
        """Start the program. Raises CommandError with a WatchExit if there is none or it cannot be executed."""
        from stallprobes.machine.processes import spawn

        self.name = arguments[0]
        try:
            self.pid = spawn(arguments, environment, setpgroup=0, setsigmask=blocked, setsigdef=signals_to_reset())
        except (OSError, ValueError) as error:
            raise not_started(self.name, error) from error

    def wait(self, every_s: float, poll: Callable[[], float], report: Callable[[], None]) -> int:
        """Wait for the end of the program and return its exit code, -n if signal n ended it.

        Calls ``poll`` every ``every_s`` seconds, or after the number of seconds that it returns; ``report`` at each
        REPORT_SIGNAL.
        """
        due = time.monotonic() + every_s
        while True:
            pid, status = os.waitpid(self.pid, os.WNOHANG | os.WUNTRACED)
            if pid and os.WIFSTOPPED(status):
                self._stopped(os.WSTOPSIG(status))
            elif pid:
                _hand_over(self.pid, os.getpgrp())
                return os.waitstatus_to_exitcode(status)
            received = _take(_HELD, max(due - time.monotonic(), 0))
            for number in sorted(received & _FORWARDED):
                self._send(number)
            if signal.SIGCONT in received:
                self._send(signal.SIGCONT)
            if REPORT_SIGNAL in received:
                report()
            # Also while signals keep coming.
            if time.monotonic() >= due:
                rest_s = poll()
                due = time.monotonic() + max(every_s, rest_s)

    def _stopped(self, number: int) -> None:
        """Continue the program, which signal ``number`` stopped, in the foreground if it can, else stop the job too."""
        if number not in _STOPS:
            # The stop of a debugger, or of somebody who continues the program in the same way.
            return
        if number != signal.SIGTSTP and _hand_over(os.getpgrp(), self.pid):
            self._send(signal.SIGCONT)
            return
        was_foreground = _hand_over(self.pid, os.getpgrp())
        _take(_STOPS)
        os.killpg(0, number)
        # This process stops here. SIGCONT, which stays blocked, continues it all the same.
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {number})
        signal.pthread_sigmask(signal.SIG_BLOCK, {number})
        _take({signal.SIGCONT})
        if was_foreground:
            _hand_over(os.getpgrp(), self.pid)
        self._send(signal.SIGCONT)

    def _send(self, number: int) -> None:
        # Until it is waited for, its number is no other process's.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def _hand_over(group: int, other: int) -> bool:
    """Make ``other`` the foreground group of the terminal if ``group`` is that. Returns whether it was."""
    with contextlib.suppress(OSError):
        terminal = os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.tcgetpgrp(terminal) == group:
                os.tcsetpgrp(terminal, other)
                return True
        finally:
            os.close(terminal)
    return False


def not_started(name: str, error: OSError | ValueError) -> CommandError:
    """The error of the command for a program called ``name`` that could not be started."""
    if isinstance(error, FileNotFoundError) or not name:
        if os.path.sep in name and os.path.exists(name):
            return CommandError(WatchExit.NOT_EXECUTABLE, f"{name} cannot be executed: its interpreter does not exist")
        where = "" if os.path.sep in name else " in the folders of PATH"
        return CommandError(WatchExit.NOT_FOUND, f"the program {name or '(an empty name)'} was not found{where}")
    reason = reason_of(error)
    return CommandError(WatchExit.NOT_EXECUTABLE, f"{name} cannot be executed: {reason}")


def _take(numbers: Collection[int], wait_s: float = 0) -> set[int]:
    """All of ``numbers`` that are pending, at least one unless none comes within ``wait_s``.

    One at a time, the lowest would come first: another could stay pending, and a second of its kind would be lost.
    """
    taken: set[int] = set()
    while (received := signal.sigtimedwait(numbers, 0 if taken else wait_s)) is not None:
        taken.add(received.si_signo)
    return taken
