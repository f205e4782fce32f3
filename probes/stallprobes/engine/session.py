"""Session: starts an engine process for a set of probes, switches them on and off, and reads their statistics.

This module imports no CUDA; the engine process does.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import TracebackType
from typing import Self

from stallprobes.engine import protocol
from stallprobes.engine.backend import Options, ProbeFailure
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.inbox import Inbox
from stallprobes.engine.process import EngineProcess, SpareEngine
from stallprobes.engine.snapshot import ProbeSnapshot, Snapshot
from stallprobes.engine.timeline.reader import TimelineRows, read_losses, read_rows
from stallprobes.errors import EXIT_ENGINE, EngineFailed, EngineLost, NoTimeline, reason_of
from stallprobes.latency.histogram import Histogram
from stallprobes.machine.simulated_telemetry import SENSORS
from stallprobes.model import Channel, Probe
from stallprobes.records.timeline import BEGINNING, UNAVAILABLE, TimelineLosses, TimelinePosition, TimelineStatus

# Longest wait (s) for the engine's end after a Stop. After this wait, the session kills the engine.
_STOP_S = 1.0
# Longest wait (s) for the engine's start. After this wait, ``start`` raises EngineFailed.
_START_S = 30.0
# Additional wait (s) for the start of an engine with a timeline. Reason: the engine waits up to this long until CUPTI
# begins to record.
_TIMELINE_S = 10.0
# Longest time (s) without a change of the engine's heartbeat while a session waits for the engine's answer. After this
# time, the session raises EngineFailed.
_SILENCE_S = 30.0
# Period (s) at which a session checks whether an engine that a signal has stopped runs again.
_STOP_STEP_S = 0.05
# Period (s) at which a session checks whether GPU records have arrived. The engine asks CUPTI for GPU records every 10
# ms.
_RECORDS_S = 0.002
# Time (ns) up to which GPU records count as complete after the end of the engine. This time is later than every real
# time.
_END_NS = 1 << 62


class Session:
    """A set of probes in an engine process of its own. A context manager: entering starts it, leaving stops it.

    Only ``start``, ``stop`` and ``run_for`` block. The kernel ends the engine when this process ends, however that
    happens. All methods are thread-safe.
    """

    def __init__(
        self,
        probes: Sequence[Probe],
        backend: str = "cuda",
        gpu: str | None = None,
        options: Options | None = None,
        spare: SpareEngine | None = None,
    ) -> None:
        """Create a session; ``start`` starts it.

        ``backend`` is "cuda", "sim" or "host". ``gpu`` overrides the one in ``options``. ``spare`` is an engine
        process to take over if it is of the same backend; one that is killed before it is ready is replaced.
        Raises ValueError if two probes have the same name.
        """
        self.probes = tuple(probes)
        self.backend = backend
        given = options or Options()
        self.options = given if gpu is None else replace(given, gpu=gpu)
        self.info: Mapping[str, object] = {}
        self._spare = spare
        self._layout = BoardLayout.of(self.probes)
        self._owner = os.getpid()
        self._inbox = Inbox()
        self._lock = threading.Lock()
        self._started = self._stopped = False
        self._board: Board | None = None
        self._process: EngineProcess | None = None
        self._last: Snapshot | None = None
        self._finalizers: tuple[weakref.finalize[..., Session], ...] = ()
        self._advances = 0
        self._timeline_switches = 0
        # The most by which ``run_for`` took longer than asked for, as after a suspension of this process or the engine.
        self.gap_s = 0.0
        # How often ``run_for`` met an engine that a signal had stopped.
        self.stops = 0

    def __enter__(self) -> Self:
        if not self._started:
            self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self, timeout: float | None = None) -> Mapping[str, object]:
        """Start the engine; on return all probes are parked. Returns the backend's description of its devices.

        Raises Unsupported if this machine lacks something, EngineFailed if the engine could not start, was not ready
        within ``timeout`` seconds (30 by default, 40 with the timeline) or died; everything is released then. Raises
        RuntimeError if it was started before.
        """
        if timeout is None:
            timeout = _START_S + (_TIMELINE_S if self.options.timeline else 0)
        if self._started:
            raise RuntimeError("the session was started before: create a new one")
        self._started = True
        taken = None if self._spare is None else self._spare.take(self.backend)
        if taken is not None:
            try:
                return self._start(timeout, *taken)
            except EngineLost:
                # It may have been killed while it waited to be taken. A crash would come again.
                if self._stopped or taken[0].crashed():
                    raise
                self._inbox = Inbox()
        return self._start(timeout)

    def _start(self, timeout: float, process: EngineProcess | None = None, fd: int = -1) -> Mapping[str, object]:
        """Start the session on ``process``, whose shared memory is ``fd``, or on a new one. Raises as ``start``."""
        try:
            if process is not None:
                self._process = process
                self._board = Board.create(self._layout, fd)
            else:
                self._board = Board.create(self._layout)
                self._process = EngineProcess.spawn(self._board.fd)
        except OSError as error:
            self.stop()
            raise _not_created(error) from error
        except BaseException:
            self.stop()
            raise
        # For a session that is never stopped. The end of this process ends the engine, but leaves the board to threads
        # that still read it: its memory goes with the process.
        self._finalizers = (
            weakref.finalize(self, self._board.close),
            weakref.finalize(self, self._process.close),
        )
        self._finalizers[0].atexit = False
        try:
            self._process.connect(protocol.Start(self.probes, self.backend, self.options), self._inbox.put)
            self.info = self._inbox.await_ready(self._process, timeout)
        except OSError as error:
            self._kill()
            raise _not_created(error) from error
        except BaseException:
            self._kill()
            raise
        return self.info

    def set_running(self, which: Iterable[str] | Mapping[str, bool]) -> None:
        """Switch probes on and off.

        A mapping changes only the probes it names; any other iterable names all probes that are to run. It takes
        effect at once; after ``stop`` it does nothing. Raises KeyError for an unknown name.
        """
        wanted = dict(which) if isinstance(which, Mapping) else dict.fromkeys(which, True)
        for name in wanted:
            self._known(name)
        if not isinstance(which, Mapping):
            wanted = {name: wanted.get(name, False) for name in self._layout.names}
        with self._lock:
            if self._board is not None:
                for name, on in wanted.items():
                    self._board.switch(name, on)

    def running(self) -> dict[str, bool]:
        """States of the probes' switches by name, True for on; empty after ``stop``."""
        with self._lock:
            return {} if self._board is None else self._board.running

    def set_period(self, name: str, period_ns: int) -> None:
        """Set the time in ns between the due times of a probe's iterations; 0 for back to back.

        Raises KeyError for an unknown name and ValueError for a negative period.
        """
        self._known(name)
        if period_ns < 0:
            raise ValueError(f"the period is {period_ns} ns: it must not be negative")
        with self._lock:
            if self._board is not None:
                self._board.set_period(name, period_ns)

    def set_periods(self, idle: bool) -> None:
        """Give the probes with two periods the longer one, or the one of their baselines."""
        for probe in self.probes:
            if probe.baseline_period_ns is not None:
                self.set_period(probe.name, probe.period_ns if idle else probe.baseline_period_ns)

    def snapshot(self) -> Snapshot:
        """The statistics of all probes now; after ``stop``, the last ones.

        Raises RuntimeError if the session was never started.
        """
        with self._lock:
            if self._board is not None:
                return self._board.snapshot()
            if self._last is None:
                raise RuntimeError("the session was not started")
            return self._last

    def probe_snapshots(
        self, names: Iterable[str], with_channels: bool = True, with_timeline: bool = True
    ) -> dict[str, ProbeSnapshot]:
        """The statistics of the probes ``names`` now; faster than ``snapshot``, more so without histograms.

        Without ``with_timeline`` those of the timeline are left out.
        Raises KeyError for an unknown name and RuntimeError after ``stop``.
        """
        with self._open_board() as board:
            return {name: board.probe_snapshot(name, with_channels, with_timeline) for name in names}

    def sensors(self) -> tuple[int, ...]:
        """The values of a simulated GPU's sensors (``SimulatedTelemetry``); zeros on a real one and after ``stop``."""
        with self._lock:
            if self._board is None:
                return (0,) * len(SENSORS)
            return tuple(self._board.header.sensors[: len(SENSORS)])

    def switch_timeline(self, on: bool, timeout: float = 0) -> TimelineStatus | None:
        """Switch the record of the GPU's work on or off, at any time while the engine runs.

        Returns the state once it has taken effect or failed (``TimelineStatus.problem``), None if that takes longer
        than ``timeout`` seconds: ``timeline_status`` has it later. Raises EngineFailed if the engine has ended.
        """
        self._raise_if_gone()
        self._timeline_switches += 1
        number = self._timeline_switches
        if self._process is not None:
            self._process.send(protocol.SwitchTimeline(number, on))
        self._inbox.wait(lambda: self._inbox.timeline_switch >= number, timeout)
        self._raise_if_gone()
        return self.timeline_status()

    def timeline_status(self) -> TimelineStatus | None:
        """The state of the timeline; None while the last switch has not taken effect."""
        inbox = self._inbox
        return inbox.timeline if inbox.timeline_switch >= self._timeline_switches else None

    def require_timeline(self) -> TimelineStatus:
        """The state of a timeline that ``Options.timeline`` asked for. Raises NoTimeline if it is not on."""
        status = self.timeline_status()
        if status is not None and status.on:
            return status
        if status is None or status.problem is None:
            raise NoTimeline(f"{UNAVAILABLE}: CUPTI did not answer in time; the driver may hang, see dmesg")
        raise NoTimeline(status.sentence)

    def timeline_channels(self, names: Iterable[str]) -> dict[str, dict[Channel, Histogram]]:
        """The histograms of the probes ``names`` that the timeline fills.

        Raises KeyError for an unknown name and RuntimeError after ``stop``.
        """
        with self._open_board() as board:
            return {name: board.timeline_channels(name) for name in names}

    def await_records(self, timeout: float) -> bool:
        """Wait until the records of all work that has ended by now have arrived; False after ``timeout`` seconds.

        In virtual time they arrive as it passes.
        """
        with self._lock:
            now_ns = 0 if self._board is None else self._board.now()
        until = time.monotonic() + timeout
        while not self._virtual and self._collected_ns() < now_ns:
            if time.monotonic() > until:
                return False
            self._inbox.wait(lambda: False, _RECORDS_S)
        return True

    def _collected_ns(self) -> int:
        """The time up to which records have arrived; that of the end after ``stop``."""
        with self._lock:
            return _END_NS if self._board is None else self._board.timeline.words.collected_ns

    def timeline_losses(self) -> TimelineLosses:
        """Losses of the timeline since the session began, without records that no reader asked for.

        Raises RuntimeError after ``stop``.
        """
        with self._open_board() as board:
            return read_losses(board)

    def timeline_rows(self, since: TimelinePosition = BEGINNING) -> TimelineRows:
        """The rows that the timeline recorded since ``since``, the position of earlier ones.

        Records that were overwritten in between are counted. Raises RuntimeError after ``stop``.
        """
        with self._open_board() as board:
            return read_rows(board, since, self._inbox.timeline)

    def run_for(self, seconds: float) -> None:
        """Let ``seconds`` of time pass: wall-clock time, or virtual time on a simulated GPU that is not paced.

        While a signal has stopped the engine, it waits: no probe runs. Raises EngineLost or EngineFailed as soon as the
        engine has ended.
        """
        self._raise_if_gone()
        if self._virtual:
            self._advances += 1
            number = self._advances
            if self._process is not None:
                self._process.send(protocol.Advance(number, round(seconds * 1e9)))
            self._await_answer(lambda: self._inbox.advanced >= number)
        else:
            before_s = time.monotonic()
            self._inbox.wait(lambda: False, seconds)
            self.stops += self.is_stopped
            while self.is_stopped:
                self._inbox.wait(lambda: False, _STOP_STEP_S)
            self.gap_s = max(self.gap_s, time.monotonic() - before_s - seconds)
        self._raise_if_gone()

    @property
    def is_stopped(self) -> bool:
        """True if a signal has stopped the engine."""
        return self._process is not None and self.alive and self._process.is_stopped

    @property
    def alive(self) -> bool:
        """True if the engine runs and has reported no fatal error."""
        return self._process is not None and not self._inbox.ended and self._inbox.fatal is None

    @property
    def engine_pid(self) -> int | None:
        """The engine's process id, None if it does not run. Distinguishes it from other users of the GPU."""
        return None if self._process is None or self._inbox.ended else self._process.process.pid

    @property
    def process_ids(self) -> tuple[int, ...]:
        """The ids of the session's processes on the GPU: the engine and its second process; empty if it does not run.

        Before the engine is ready only its own is known.
        """
        answer, pid = self._inbox.answer, self.engine_pid
        second = answer.second_pid if isinstance(answer, protocol.Ready) else None
        return tuple(process_id for process_id in (pid, second) if process_id is not None) if pid is not None else ()

    def probe_failures(self) -> tuple[ProbeFailure, ...]:
        """The probes that stopped with an error, in the order of their failures."""
        return tuple(self._inbox.probe_failures)

    def stderr_tail(self) -> str:
        """The end of the engine's stderr; "" if it is empty."""
        return "" if self._process is None else self._process.stderr_tail()

    def failure(self) -> EngineFailed | None:
        """Why the engine ended; None while it runs or if it was stopped."""
        return self._inbox.failure(self._process)

    def stop(self) -> None:
        """Stop the engine, kill it if it has not ended after 1 s, and release everything.

        It takes at most 2 s, even if a call hangs in the driver or a signal has stopped the engine. A second call
        does nothing, nor does a call in a forked child: the engine belongs to the parent.
        """
        if os.getpid() != self._owner:
            return
        self._stopped = self._inbox.stopping = True
        process = self._process
        if process is not None and not self._inbox.ended and self._board is not None:
            with self._lock:
                if self._board is not None:
                    self._board.header.quit = 1
            try:
                if process.send(protocol.Stop()):
                    process.wait(_STOP_S)
            finally:
                # A second Ctrl-C can interrupt the wait.
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
        for finalizer in self._finalizers:
            finalizer.detach()

    @contextmanager
    def _open_board(self) -> Iterator[Board]:
        """The board, which cannot be closed meanwhile. Raises RuntimeError after ``stop``."""
        with self._lock:
            if self._board is None:
                raise RuntimeError("the session is stopped")
            yield self._board

    @property
    def _virtual(self) -> bool:
        return self.backend == "sim" and not self.options.paced

    def _heartbeat(self) -> int:
        with self._lock:
            return 0 if self._board is None else self._board.header.engine_heartbeat_ns

    def _known(self, name: str) -> None:
        if name not in self._layout.names:
            raise KeyError(name)

    def _await_answer(self, wanted: Callable[[], bool]) -> None:
        """Wait until ``wanted()`` is true.

        Raises EngineFailed if the engine's heartbeat does not change, unless a signal has stopped the engine.
        """
        beat, silent_s = -1, 0.0
        while not wanted() and self.alive:
            before = time.monotonic()
            self._inbox.wait(wanted, 1.0)
            now = self._heartbeat()
            silent = now == beat and not self.is_stopped
            silent_s = silent_s + time.monotonic() - before if silent else 0.0
            beat = now
            if silent_s > _SILENCE_S:
                raise EngineFailed(
                    EXIT_ENGINE, f"the engine has not answered for {_SILENCE_S:g} s: the driver may hang, see dmesg"
                )

    def _raise_if_gone(self) -> None:
        if not self._started:
            raise RuntimeError("the session was not started")
        failure = self.failure()
        if failure is not None:
            raise failure


def _not_created(error: OSError) -> EngineFailed:
    return EngineFailed(EXIT_ENGINE, f"the engine process could not be created: {reason_of(error)}")
