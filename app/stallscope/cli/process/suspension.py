"""Suspension of a measurement by SIGTSTP: its engines stop too, or only the aggressors of a recording."""

from __future__ import annotations

import os
import signal
import time
from types import FrameType
from typing import Self

# Time (s) to sleep after this process has sent SIGTSTP to itself, before the handler of SIGTSTP is restored. Reason:
# the kernel may deliver the signal to another thread after the call has returned.
_STOP_S = 0.05


class Suspension:
    """Context manager in which SIGTSTP stops the engines with the process, and its continuation continues them.

    The measurement repeats what it measured meanwhile. An ignored SIGTSTP stays ignored, and so does one in the leader
    of a session, which no shell could continue.
    """

    def __enter__(self) -> Self:
        self._installed = signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL and os.getsid(0) != os.getpid()
        if self._installed:
            signal.signal(signal.SIGTSTP, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        from stallprobes.engine.process import signal_engines

        signal_engines(signal.SIGSTOP)
        try:
            self._stop_process()
        finally:
            signal_engines(signal.SIGCONT)

    def _stop_process(self) -> None:
        try:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGTSTP)
            time.sleep(_STOP_S)
        finally:
            signal.signal(signal.SIGTSTP, self._handle)


class RequestedSuspension(Suspension):
    """Context manager in which SIGTSTP requests a suspension; ``suspend`` makes it.

    A recording switches its aggressors off first, and its engine continues: a call in flight while the engine is
    stopped would be a stall.
    """

    requested = False

    def suspend(self) -> None:
        """Stop the process and return once it continues."""
        self.requested = False
        self._stop_process()

    def _handle(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True
