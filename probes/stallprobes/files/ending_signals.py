"""Signals that end the process by default: within a block they do so after its cleanup."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _EndingSignal(BaseException):
    """Leaves a block because of a signal."""


@contextmanager
def unwound_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP leave the block by an exception and then end the process, instead of at once.

    Only the first one does. Where the caller has a handler, or ignores the signal, or in another thread than the main
    one, nothing changes.
    """
    # Only the main thread can have handlers.
    main = threading.current_thread() is threading.main_thread()
    numbers = [sig for sig in (signal.SIGTERM, signal.SIGHUP) if main and signal.getsignal(sig) is signal.SIG_DFL]
    received: list[int] = []

    def leave(number: int, _frame: object) -> None:
        received.append(number)
        if len(received) == 1:
            raise _EndingSignal

    for number in numbers:
        signal.signal(number, leave)
    try:
        yield
    except _EndingSignal:
        pass
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)
        if received:
            # Also where some code has caught the exception.
            os.kill(os.getpid(), received[0])
