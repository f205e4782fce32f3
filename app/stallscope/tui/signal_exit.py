"""End of the screen by a signal: in order if that succeeds, and otherwise within a limit."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable

# Signals that would end the process without restoring the terminal, except SIGKILL and signals of a defect, such as
# SIGSEGV.
SIGNALS = tuple(
    signal.Signals[f"SIG{name}"]
    for name in ("TERM", "HUP", "INT", "QUIT", "USR1", "USR2", "ALRM", "VTALRM", "PROF", "IO", "PWR", "XCPU")
)
# Signals that end the screen even if the process was started with these signals ignored. Reason: without these signals,
# nobody could end a screen whose terminal is gone.
_NEVER_IGNORED = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
# Number that is added to a signal's number for the exit code. A program that signal n ended has the exit code
# SIGNAL_BASE + n, as in shells.
SIGNAL_BASE = 128
# Longest time (s), by signal, that the screen may take to end in order. After this time, the screen is ended by force.
# The time is shorter for SIGHUP: the terminal is gone, and the last writes to the terminal can hang.
LIMITS_S = dict.fromkeys(SIGNALS, 1.5) | {signal.SIGHUP: 0.9}


class SignalExit:
    """Handlers of SIGNALS, for the main thread.

    The first signal calls ``end`` with its number, in the handler: it runs even while the event loop is busy, so it
    may only hand the work over. A thread calls ``last_resort`` and ends the process if that is still there after the
    limit. It waits at a pipe, because a handler must not wait for a lock.
    """

    def __init__(self, end: Callable[[int], None], last_resort: Callable[[int], None]) -> None:
        self._end = end
        self._last_resort = last_resort
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self._reading, True)
        threading.Thread(target=self._watch, name="signal exit", daemon=True).start()
        for number in SIGNALS:
            if number in _NEVER_IGNORED or signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, self._handle)

    def _handle(self, number: int, _frame: object) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writing, bytes([number]))
        self._end(number)

    def _watch(self) -> None:
        number = os.read(self._reading, 1)[0]
        time.sleep(LIMITS_S[signal.Signals(number)])
        try:
            self._last_resort(number)
        finally:
            os._exit(SIGNAL_BASE + number)
