"""Signal handling: SIGINT of every command, and of a measurement, which keeps its results at the first signal.

A process handles SIGINT in three ways, one after the other. During the first imports, and again from the moment its
exit code is known, ``end_at_once`` ends it. While a command runs, the first SIGINT raises KeyboardInterrupt and the
second ends the process (``CommandSignals``). A measurement first requests a stop (``InterruptHandler``).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

# Exit code of an interrupted command: 128 and the number of SIGINT.
_INTERRUPTED = 130
# Sentence on stderr of an interrupted command.
_MESSAGE = b"stallscope: interrupted\n"

_Handler = Callable[..., object] | int | None

# True once a message has said that the command was interrupted.
_announced = False


def end_at_sigint(first: _Handler) -> None:
    """End the process at a SIGINT, without a traceback, until the end of the process or another handler.

    ``first`` is the handler of the first imports, which it replaces. An ignored SIGINT (of a shell's background job)
    stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is not first:
        return
    signal.signal(signal.SIGINT, end_at_once)
    # Exit functions run in reverse order, so this is the last one. The interpreter then resets handlers to the default
    # action, with which a SIGINT would change the exit code of a command that is complete.
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def end_at_once(*_: object) -> NoReturn:
    """Signal handler that ends the process with exit code 130 and one sentence, without cleaning up."""
    if not _announced:
        with contextlib.suppress(OSError):
            os.write(2, _MESSAGE)
    os._exit(_INTERRUPTED)


def wait_for_children() -> None:
    """Let this process learn the exit codes of its children, as after any start.

    A parent that ignores SIGCHLD passes that on; the kernel then keeps no exit code.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def after_interrupt() -> None:
    """Let the process end with its exit code, once the user has read that the command was interrupted.

    ``end_at_once`` then prints nothing. CPython notes a KeyboardInterrupt that leaves the code of ``exec`` (as
    dataclasses use it) and kills the process by SIGINT at its end, though the exception was handled later. The next
    ``exec`` removes the note.
    """
    global _announced
    _announced = True
    exec("")


class CommandSignals:
    """Context manager in which the first SIGINT raises KeyboardInterrupt and the second ends the process at once.

    ``interrupted`` is True after the first SIGINT, so that no caught KeyboardInterrupt is lost. A KeyboardInterrupt in
    a finalizer, where no code can catch it, ends the process.
    """

    def __init__(self) -> None:
        self.interrupted = False
        self._previous: _Handler = None
        self._previous_hook = sys.unraisablehook

    def __enter__(self) -> CommandSignals:
        self._previous = signal.getsignal(signal.SIGINT)
        if self._previous is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._handle)
        sys.unraisablehook = self._unraisable
        return self

    def __exit__(self, *_: object) -> None:
        # A command that knows its exit code may ignore it.
        if signal.getsignal(signal.SIGINT) == self._handle:
            signal.signal(signal.SIGINT, self._previous)
        sys.unraisablehook = self._previous_hook

    def _handle(self, _number: int, _frame: object) -> None:
        if self.interrupted:
            end_at_once()
        self.interrupted = True
        raise KeyboardInterrupt

    def _unraisable(self, unraisable: UnraisableHookArgs) -> None:
        if issubclass(unraisable.exc_type, KeyboardInterrupt):
            end_at_once()
        self._previous_hook(unraisable)


class InterruptHandler:
    """Context manager in which the first SIGINT, SIGTERM or SIGHUP requests a stop; the results so far stay.

    Raises KeyboardInterrupt in the main thread at a second signal, or if ``stop_requested`` is not called within
    ``grace_s`` (0 for any time) after the first, for example because the engine is still starting, and at the end of
    the block if it was not called at all. A further signal ends the process at once. Ignored signals (nohup) stay
    ignored.
    """

    # Default of ``grace_s``: longest time (s) from the first signal until the code in the ``with`` block calls
    # ``stop_requested``. After this time, the main thread gets a KeyboardInterrupt.
    GRACE_S = 0.3
    # Signals that request a stop.
    SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._requested = False
        self._answered = False
        self._raised = False
        # Signals received in ``deferred``; None outside it.
        self._deferred: int | None = None
        self._previous: dict[int, _Handler] = {}

    def __enter__(self) -> InterruptHandler:
        for number in (*self.SIGNALS, signal.SIGALRM):
            if number == signal.SIGALRM or signal.getsignal(number) is not signal.SIG_IGN:
                self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        if kind is None and self._requested and not self._answered:
            raise KeyboardInterrupt

    def stop_requested(self) -> bool:
        """True if a signal requested a stop. The caller then has to stop by itself."""
        if self._requested:
            self._answered = True
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
            self._interrupt()

    def _handle(self, number: int, _frame: object) -> None:
        if number == signal.SIGALRM and (self._deferred is not None or self._raised):
            return
        if self._deferred is not None:
            self._deferred += 1
            if self._deferred > 1:
                self._interrupt()
        elif self._requested:
            self._interrupt()
        else:
            self._requested = True
            signal.setitimer(signal.ITIMER_REAL, self._grace_s)

    def _interrupt(self) -> NoReturn:
        if self._raised:
            end_at_once()
        self._raised = True
        raise KeyboardInterrupt
