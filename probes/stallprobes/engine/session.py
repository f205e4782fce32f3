"""The only way in: start an engine, say which probes run, look at them, stop.

This module loads neither CUDA nor the compiler: all of that lives in the engine, a process of its own.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Self

from stallprobes.engine.backend import Options, ProbeFailure
from stallprobes.engine.board import ENGINE_HEARTBEAT_NS, PERIOD_NS, QUIT, RUN, Board, Layout, ProbeSnapshot, Snapshot
from stallprobes.engine.process import EngineProcess, SpareEngine
from stallprobes.engine.protocol import (
    Advance,
    Advanced,
    Failed,
    Fatal,
    FromEngine,
    ProbeStopped,
    Ready,
    Refused,
    Start,
    Stop,
)
from stallprobes.errors import EXIT_ENGINE, EngineFailed, EngineLost, Unsupported
from stallprobes.model import Probe

_STOP_S = 1.0
_START_S = 30.0
_SILENCE_S = 30.0


class Session:
    """A set of probes in an engine of their own. A context manager: entering starts it, leaving stops it.

    Only ``start``, ``stop`` and ``run_for`` wait. The engine ends with this process, however this process ends; a
    process that handles signals has nothing to do for that. Any thread may call.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        backend: str = "cuda",
        gpu: str | None = None,
        options: Options | None = None,
        spare: SpareEngine | None = None,
    ) -> None:
        """Nothing is started yet. ``gpu``, if given, goes before the one in ``options``. ``spare`` is a process that
        was started ahead; where it is not fit, a new one is started.

        Raises ValueError when two probes have the same name.
        """
        self.probes = tuple(probes)
        self.backend = backend
        given = options or Options()
        self.options = given if gpu is None else replace(given, gpu=gpu)
        self.info: Mapping[str, object] = {}
        self._spare = spare
        self._layout = Layout.of(self.probes)
        self._owner = os.getpid()
        self._inbox = _Inbox()
        self._lock = threading.Lock()
        self._started = False
        self._board: Board | None = None
        self._process: EngineProcess | None = None
        self._last: Snapshot | None = None
        self._advances = 0

    def __enter__(self) -> Self:
        if not self._started:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self, timeout: float = _START_S) -> Mapping[str, object]:
        """Start the engine; on return all probes stand parked. Returns what the backend tells about itself.

        Raises Unsupported when this machine cannot do it and EngineFailed when the engine could not start, did not
        within ``timeout`` seconds, or died; nothing is left then. Raises RuntimeError when it was started before.
        """
        if self._started:
            raise RuntimeError("a session starts once")
        self._started = True
        try:
            taken = None if self._spare is None else self._spare.take(self.backend)
            if taken is not None:
                self._process, fd = taken
                self._board = Board.create(self._layout, fd)
            else:
                self._board = Board.create(self._layout)
                self._process = EngineProcess.spawn(self._board.fd)
        except OSError as error:
            self.stop()
            raise EngineFailed(EXIT_ENGINE, f"the engine's process could not be made: {error}") from error
        except BaseException:
            self.stop()
            raise
        # Also when nobody stops it: at garbage collection and at the end of the process.
        self._finalizer = weakref.finalize(self, _release, self._process, self._board)
        try:
            self._process.connect(Start(self.probes, self.backend, self.options), self._inbox.put)
            self.info = self._await_ready(self._process, timeout)
        except BaseException:
            self._kill()
            raise
        return self.info

    def set_running(self, which: Iterable[str] | Mapping[str, bool]) -> None:
        """Switch probes: a mapping changes those it names; any other iterable of names is all that shall run.

        It takes effect at once, and nothing happens after ``stop``. Raises KeyError for a name that is no probe's.
        """
        wanted = dict(which) if isinstance(which, Mapping) else dict.fromkeys(which, True)
        for name in wanted:
            self._known(name)
        if not isinstance(which, Mapping):
            wanted = {name: wanted.get(name, False) for name in self._layout.names}
        with self._lock:
            if self._board is not None:
                for name, on in wanted.items():
                    self._board[name].words[RUN] = int(on)

    def set_period(self, name: str, period_ns: int) -> None:
        """Change a probe's pace: ``period_ns`` between intended starts, 0 for back to back.

        Raises KeyError for a name that is no probe's and ValueError for a negative time.
        """
        self._known(name)
        if period_ns < 0:
            raise ValueError(f"a period of {period_ns} ns")
        with self._lock:
            if self._board is not None:
                self._board[name].words[PERIOD_NS] = period_ns

    def snapshot(self) -> Snapshot:
        """What the board says now; after ``stop``, or when the engine died, what it said last.

        Raises RuntimeError when the session was never started.
        """
        with self._lock:
            if self._board is not None:
                return self._board.snapshot()
            if self._last is None:
                raise RuntimeError("the session was not started")
            return self._last

    def probe_snapshots(self, names: Iterable[str], with_channels: bool = True) -> dict[str, ProbeSnapshot]:
        """What the board says now of the probes ``names`` alone, which takes less time than ``snapshot``, and less
        still without their histograms.

        Raises KeyError for a name that is no probe's and RuntimeError after ``stop``.
        """
        with self._lock:
            if self._board is None:
                raise RuntimeError("the session is stopped")
            return {name: self._board.probe_snapshot(name, with_channels) for name in names}

    def run_for(self, seconds: float) -> None:
        """Let ``seconds`` pass: on the clock of the wall or, on a simulated GPU that is not paced, in virtual time.

        Raises EngineLost or EngineFailed as soon as the engine is gone.
        """
        self._raise_if_gone()
        if self._virtual:
            self._advances += 1
            number = self._advances
            if self._process is not None:
                self._process.send(Advance(number, round(seconds * 1e9)))
            self._await_answer(lambda: self._inbox.advanced >= number)
        else:
            self._inbox.wait(lambda: False, seconds)
        self._raise_if_gone()

    @property
    def alive(self) -> bool:
        """Whether the engine is there and has nothing fatal to report."""
        return self._process is not None and not self._inbox.ended and self._inbox.fatal is None

    @property
    def engine_pid(self) -> int | None:
        """The engine's process id while there is one, to tell it from other users of the GPU."""
        return None if self._process is None or self._inbox.ended else self._process.process.pid

    def probe_failures(self) -> tuple[ProbeFailure, ...]:
        """The probes that stopped by an error, in the order in which they did."""
        return tuple(self._inbox.probe_failures)

    def stderr_tail(self) -> str:
        """The end of what the engine wrote to stderr; "" if nothing."""
        return "" if self._process is None else self._process.stderr_tail()

    def failure(self) -> EngineFailed | None:
        """Why the engine is gone, None while it lives or when it was stopped."""
        if self._inbox.stopping:
            return None
        if self._inbox.fatal is not None:
            return EngineFailed(self._inbox.fatal.exit_code, self._inbox.fatal.sentence)
        if self._inbox.ended and self._process is not None:
            return _engine_lost(self._process, "the engine ended")
        return None

    def stop(self) -> None:
        """End the engine, by force if it has not ended in a second, and give everything back. Again does nothing.

        Takes at most 2 s, also while a call hangs in the driver or the engine is stopped by a signal. In a forked
        child it does nothing: the engine is its parent's.
        """
        if os.getpid() != self._owner:
            return
        self._inbox.stopping = True
        process = self._process
        if process is not None and not self._inbox.ended and self._board is not None:
            with self._lock:
                if self._board is not None:
                    self._board.header[QUIT] = 1
            try:
                if process.send(Stop()):
                    process.wait(_STOP_S)
            finally:
                # Also when a second Ctrl-C interrupts the wait.
                self._kill()
        self._kill()

    def _kill(self) -> None:
        self._inbox.stopping = True
        if self._process is not None:
            self._process.close()
        with self._lock:
            board, self._board = self._board, None
            if board is not None:
                self._last = board.snapshot()
                board.close()
        finalizer = getattr(self, "_finalizer", None)
        if finalizer is not None:
            finalizer.detach()

    @property
    def _virtual(self) -> bool:
        return self.backend == "sim" and not self.options.paced

    def _heartbeat(self) -> int:
        with self._lock:
            return 0 if self._board is None else int(self._board.header[ENGINE_HEARTBEAT_NS])

    def _known(self, name: str) -> None:
        if name not in self._layout.names:
            raise KeyError(name)

    def _await_ready(self, process: EngineProcess, timeout: float) -> Mapping[str, object]:
        inbox = self._inbox
        inbox.wait(lambda: inbox.answer is not None, timeout)
        match inbox.answer:
            case Ready(info):
                return info
            case Refused(reason, probe):
                raise Unsupported(reason, probe)
            case Failed(exit_code, sentence):
                raise EngineFailed(exit_code, sentence)
            case _ if inbox.ended:
                raise _engine_lost(process, "the engine ended while it started")
            case _:
                raise EngineFailed(
                    EXIT_ENGINE,
                    f"the engine was not ready after {timeout:g} s, so it was killed: "
                    "the driver may be hung, or the machine very busy",
                )

    def _await_answer(self, wanted: Callable[[], bool]) -> None:
        """Wait for an answer that takes as long as it takes, while the engine shows that it works on it."""
        beat, silent_s = -1, 0.0
        while not wanted() and self.alive:
            before = time.monotonic()
            self._inbox.wait(wanted, 1.0)
            now = self._heartbeat()
            silent_s = silent_s + time.monotonic() - before if now == beat else 0.0
            beat = now
            if silent_s > _SILENCE_S:
                raise EngineFailed(EXIT_ENGINE, f"the engine has not answered for {_SILENCE_S:g} s")

    def _raise_if_gone(self) -> None:
        if not self._started:
            raise RuntimeError("the session was not started")
        failure = self.failure()
        if failure is not None:
            raise failure


class _Inbox:
    """What the engine said so far. Written by the link's thread; it must not keep the session alive."""

    def __init__(self) -> None:
        self.answer: Ready | Refused | Failed | None = None
        self.fatal: Fatal | None = None
        self.probe_failures: list[ProbeFailure] = []
        self.advanced = 0
        self.ended = False
        self.stopping = False
        self._changed = threading.Condition()

    def put(self, message: FromEngine | None) -> None:
        with self._changed:
            match message:
                case None:
                    self.ended = True
                case Ready() | Refused() | Failed():
                    self.answer = message
                case ProbeStopped(failure):
                    self.probe_failures.append(failure)
                case Fatal():
                    self.fatal = self.fatal or message
                case Advanced(number):
                    self.advanced = number
            self._changed.notify_all()

    def wait(self, wanted: Callable[[], bool], seconds: float) -> None:
        """Wait until ``wanted()`` holds, the engine is gone or failed, or ``seconds`` are over."""
        until = time.monotonic() + seconds
        with self._changed:
            while not wanted() and not self.ended and self.fatal is None:
                left = until - time.monotonic()
                if left <= 0:
                    return
                self._changed.wait(left)


def _engine_lost(process: EngineProcess, what: str) -> EngineLost:
    process.wait(0.2)
    words = process.stderr_tail()
    sentence = f"{what} ({process.exit_description()})"
    if words:
        sentence += f"; its last words: {words.splitlines()[-1]}"
    return EngineLost(sentence, words)


def _release(process: EngineProcess, board: Board) -> None:
    process.close()
    board.close()
