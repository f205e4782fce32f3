"""Signal handling of a measurement: the first signal stops it in order, the second ends it at once."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class InterruptHandler:
    """Context manager in which the first SIGINT, SIGTERM or SIGHUP requests a stop that keeps the results so far.

    Raises KeyboardInterrupt in the main thread at a second signal, or if ``stop_requested`` is not called within
    GRACE_S after the first, for example because the engine is still starting. Ignored signals (nohup) stay ignored.
    """

    GRACE_S = 0.3
    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._requested = False
        # Signals received in ``deferred``; None outside it.
        self._deferred: int | None = None
        self._previous: dict[int, Callable[..., object] | int | None] = {}

    def __enter__(self) -> InterruptHandler:
        for number in (*self.SIGNALS, signal.SIGALRM):
            if number == signal.SIGALRM or signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def stop_requested(self) -> bool:
        """Whether a signal requested a stop. The caller then has to stop by itself."""
        if self._requested:
            signal.setitimer(signal.ITIMER_REAL, 0)
        return self._requested

    @contextmanager
    def deferred(self) -> Iterator[None]:
        """Defers one signal until the end of the block, for writing files; a second one interrupts at once.

        Raises KeyboardInterrupt at the end of the block after a signal.
        """
        signal.setitimer(signal.ITIMER_REAL, 0)
        self._deferred = 0
        try:
            yield
        finally:
            received, self._deferred = self._deferred, None
        if received:
            raise KeyboardInterrupt

    def _handle(self, number: int, _frame: object) -> None:
        if self._deferred is not None:
            if number == signal.SIGALRM:
                return
            self._deferred += 1
            if self._deferred > 1:
                raise KeyboardInterrupt
        elif self._requested:
            raise KeyboardInterrupt
        else:
            self._requested = True
            signal.setitimer(signal.ITIMER_REAL, self.GRACE_S)
