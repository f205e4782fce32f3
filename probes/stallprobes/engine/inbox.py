"""Inbox of a session: the messages of its engine, and the reason of the engine's end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping

from stallprobes.engine import protocol
from stallprobes.engine.backend import ProbeFailure
from stallprobes.engine.process import EngineProcess, engine_lost
from stallprobes.errors import EXIT_ENGINE, EngineFailed, Unsupported
from stallprobes.records.timeline import OFF

# Period (s) at which a thread that waits for the engine's start checks whether a signal has stopped the engine. Time in
# which the engine is stopped does not count as waiting.
_STEP_S = 0.5


class Inbox:
    """The messages received from the engine. The receiver thread writes it; it must not reference the session."""

    def __init__(self) -> None:
        self.answer: protocol.Ready | protocol.Refused | protocol.Failed | None = None
        self.fatal: protocol.Failed | None = None
        self.probe_failures: list[ProbeFailure] = []
        self.advanced = 0
        self.timeline = OFF
        self.timeline_switch = 0
        self.ended = False
        self.stopping = False
        self._changed = threading.Condition()

    def put(self, message: protocol.FromEngine | None) -> None:
        """Store a message; None says that the engine has ended."""
        with self._changed:
            match message:
                case None:
                    self.ended = True
                case protocol.Failed(after_ready=True):
                    self.fatal = self.fatal or message
                case protocol.Ready() | protocol.Refused() | protocol.Failed():
                    self.answer = message
                case ProbeFailure():
                    self.probe_failures.append(message)
                case protocol.Advance(number):
                    self.advanced = number
                case protocol.TimelineChanged(number, status):
                    self.timeline_switch, self.timeline = number, status
            self._changed.notify_all()

    def wait(self, wanted: Callable[[], bool], seconds: float) -> None:
        """Wait at most ``seconds`` until ``wanted()`` holds or the engine has ended or failed."""
        until = time.monotonic() + seconds
        with self._changed:
            while not wanted() and not self.ended and self.fatal is None:
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)

    def await_ready(self, process: EngineProcess, timeout: float) -> Mapping[str, object]:
        """The description of its devices that the engine ``process`` sends once it is ready.

        Raises Unsupported or EngineFailed as it says; EngineFailed after ``timeout`` seconds, without those in which a
        signal has stopped the process, EngineLost at its end.
        """
        left = timeout
        while self.answer is None and not self.ended and left > 0:
            before = time.monotonic()
            self.wait(lambda: self.answer is not None, min(left, _STEP_S))
            if not process.is_stopped:
                left -= time.monotonic() - before
        match self.answer:
            case protocol.Ready(info=info):
                return info
            case protocol.Refused(reason, probes):
                raise Unsupported(reason, *probes)
            case protocol.Failed(exit_code, sentence):
                raise EngineFailed(exit_code, sentence)
            case _ if self.ended:
                raise engine_lost(process, " while it started")
            case _:
                raise EngineFailed(
                    EXIT_ENGINE,
                    f"the engine was not ready after {timeout:g} s, so it was killed: "
                    "the driver may hang, or the machine is overloaded",
                )

    def failure(self, process: EngineProcess | None) -> EngineFailed | None:
        """Why the engine ``process`` ended; None while it runs or if it was stopped."""
        if self.stopping:
            return None
        if self.fatal is not None:
            return EngineFailed(self.fatal.exit_code, self.fatal.sentence)
        if self.ended and process is not None:
            return engine_lost(process)
        return None
