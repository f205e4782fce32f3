"""Suspension of a measurement: at SIGTSTP its engines stop too, and with them the aggressors."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType

from stallscope.cli import diagnostics

# The kernel may deliver a signal to another thread, a moment after the call that sent it.
_STOP_S = 0.05


class RefusedSuspension:
    """Context manager in which SIGTSTP prints ``sentence`` and stops nothing, for what cannot continue after a gap."""

    def __init__(self, sentence: str) -> None:
        self._sentence = sentence

    def __enter__(self) -> RefusedSuspension:
        self._earlier = signal.getsignal(signal.SIGTSTP)
        if self._earlier not in (signal.SIG_IGN, None):
            signal.signal(signal.SIGTSTP, lambda _number, _frame: diagnostics.print_message(self._sentence))
        return self

    def __exit__(self, *_: object) -> None:
        # None stands for a handler that was not set from Python and cannot be set again.
        if self._earlier is not None:
            signal.signal(signal.SIGTSTP, self._earlier)


class Suspension:
    """Context manager in which SIGTSTP stops the engines with the process, and its continuation continues them.

    The measurement repeats what it measured meanwhile. An ignored SIGTSTP stays ignored, and so does one in the leader
    of a session, which no shell could continue.
    """

    def __enter__(self) -> Suspension:
        self._installed = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL and os.getsid(0) != os.getpid()
        if self._installed:
            signal.signal(signal.SIGTSTP, self._suspend)
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _suspend(self, _number: int, _frame: FrameType | None) -> None:
        from stallprobes.engine.process import signal_engines

        signal_engines(signal.SIGSTOP)
        try:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            time.sleep(_STOP_S)
        finally:
            signal.signal(signal.SIGTSTP, self._suspend)
            signal_engines(signal.SIGCONT)
