"""An interrupt ends a measurement in order: what it has is shown, and nothing that is being written is cut off."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class InterruptHandler:
    """While it lasts, the first SIGINT, SIGTERM or SIGHUP asks the run to end with what it has.

    If nobody has looked at ``stop`` within GRACE_S after it, because the engine still starts, or at a second signal,
    KeyboardInterrupt is raised where the main thread is. A signal that is ignored (nohup) stays so.
    """

    GRACE_S = 0.3
    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._asked = False
        self._kept: int | None = None
        self._before: dict[int, Callable[..., object] | int | None] = {}

    def __enter__(self) -> InterruptHandler:
        for number in (*self.SIGNALS, signal.SIGALRM):
            if number == signal.SIGALRM or signal.getsignal(number) is not signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def stop(self) -> bool:
        """Whether the run shall end."""
        if self._asked:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return self._asked

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """While files are written: one signal waits until they are, the next one interrupts at once.

        Raises KeyboardInterrupt at its end when a signal came.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._kept = 0
        try:
            yield
        finally:
            came, self._kept = self._kept, None
        if came:
            raise KeyboardInterrupt

    def _handle(self, number: int, _frame: object) -> None:
        if self._kept is not None:
            if number == signal.SIGALRM:
                return
            self._kept += 1
            if self._kept > 1:
                raise KeyboardInterrupt
        elif self._asked:
            raise KeyboardInterrupt
        else:
            self._asked = True
            signal.setitimer(signal.ITIMER_REAL, self.GRACE_S)
