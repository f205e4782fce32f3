"""Suspension of a measurement by SIGTSTP: its engines stop too, or only the aggressors of a recording."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

# The kernel may deliver a signal to another thread, a moment after the call that sent it.
_STOP_S = 0.05


class Suspension:
    """Context manager in which SIGTSTP stops the engines with the process, and its continuation continues them.

    The measurement repeats what it measured meanwhile. An ignored SIGTSTP stays ignored, and so does one in the leader
    of a session, which no shell could continue.
    """

    def __enter__(self) -> Suspension:
        self._installed = _is_job()
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
            _stop_process(self._suspend)
        finally:
            signal_engines(signal.SIGCONT)


class RequestedSuspension:
    """Context manager in which SIGTSTP requests a suspension; ``suspend`` makes it.

    A recording switches its aggressors off first, and its engine continues: a call in flight while the engine is
    stopped would be a stall. SIGTSTP is ignored where ``Suspension`` ignores it.
    """

    def __init__(self) -> None:
        self.requested = False

    def __enter__(self) -> RequestedSuspension:
        self._installed = _is_job()
        if self._installed:
            signal.signal(signal.SIGTSTP, self._request)
        return self

    def __exit__(self, *_: object) -> None:
        if self._installed:
            signal.signal(signal.SIGTSTP, signal.SIG_DFL)

    def suspend(self) -> None:
        """Stop the process and return once it continues."""
        self.requested = False
        _stop_process(self._request)

    def _request(self, _number: int, _frame: FrameType | None) -> None:
        self.requested = True


def _is_job() -> bool:
    """Whether a shell can suspend and continue this process."""
    return signal.getsignal(signal.SIGTSTP) is signal.SIG_DFL and os.getsid(0) != os.getpid()


def _stop_process(handler: Callable[[int, FrameType | None], None]) -> None:
    """Stop the process by SIGTSTP; ``handler`` handles the next one."""
    try:
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        time.sleep(_STOP_S)
    finally:
        signal.signal(signal.SIGTSTP, handler)
