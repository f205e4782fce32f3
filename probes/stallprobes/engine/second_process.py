"""The second process: the engine starts it for the probes that name it, and it ends with the engine.

The second process runs the engine's program on the same board, with contexts of its own. The engine passes its failures
on. Each of three events ends it: a signal from the kernel when the engine ends (PR_SET_PDEATHSIG), the end of the
socket to the engine, and a kill by the engine when it does not answer.
"""

from __future__ import annotations

import queue
import time
from dataclasses import replace

from stallprobes.engine.backend import Options, ProbeFailure
from stallprobes.engine.board import Board
from stallprobes.engine.process import EngineProcess
from stallprobes.engine.protocol import Failed, FromEngine, Ready, Refused, Start, Stop
from stallprobes.errors import EXIT_ENGINE, BackendError, Unsupported, reason_of
from stallprobes.model import Buffer, Probe, Process, Space

# Longest wait (s) until the second process is ready. After this wait, the engine kills the second process and fails.
# The wait must be shorter than a session's wait for the start of its engine.
_READY_S = 25.0
# Largest number of consecutive polls (about every 20 ms) without a heartbeat of the second process. After more polls,
# the engine kills the second process. Reason for polls in place of time: a suspension of both processes must not count
# as silence.
_SILENT_POLLS = 500
# Longest wait (s) for the end of the second process after its control socket has closed. Reason: the error message
# states the exit code of the process.
_REAP_S = 0.5


class SecondProcess:
    """The second process of an engine. Raises BackendError if it cannot be created."""

    def __init__(self, start: Start, board: Board) -> None:
        """``start`` is the engine's own first message. The process prepares its probes while the engine does."""
        self._board = board
        self._messages: queue.SimpleQueue[FromEngine | None] = queue.SimpleQueue()
        self._beat, self._silent_polls = -1, 0
        try:
            self._process = EngineProcess.spawn(board.fd, start.backend, of_engine=True)
        except OSError as error:
            raise BackendError(EXIT_ENGINE, f"the second process could not be created: {reason_of(error)}") from error
        options = replace(start.options, timeline=False)
        self._process.connect(
            replace(start, options=limited(options, start.probes, Process.SECOND), process=Process.SECOND),
            self._messages.put,
        )

    @property
    def pid(self) -> int:
        """The id of the process."""
        return self._process.process.pid

    def await_ready(self) -> None:
        """Wait until its probes are parked. Raises Unsupported and BackendError."""
        until = time.monotonic() + _READY_S
        while True:
            try:
                message = self._messages.get(timeout=max(until - time.monotonic(), 0.001))
            except queue.Empty:
                self.kill()
                raise BackendError(
                    EXIT_ENGINE, f"the second process was not ready after {_READY_S:g} s, so it was killed"
                ) from None
            if isinstance(message, Ready):
                return
            self._raise(message)

    def poll(self) -> list[ProbeFailure]:
        """Its probes that failed since the last call. Raises BackendError if it has ended or does not answer."""
        stopped = []
        while True:
            try:
                message = self._messages.get_nowait()
            except queue.Empty:
                break
            if isinstance(message, ProbeFailure):
                stopped.append(message)
            else:
                self._raise(message)
        beat = self._board.header.second_heartbeat_ns
        self._silent_polls = self._silent_polls + 1 if beat == self._beat else 0
        self._beat = beat
        if self._silent_polls > _SILENT_POLLS:
            self.kill()
            raise BackendError(
                EXIT_ENGINE, "the second process did not answer, so it was killed: the driver may hang, see dmesg"
            )
        return stopped

    def begin_stop(self) -> None:
        """Let it stop its probes and end."""
        self._process.send(Stop())

    def end(self, seconds: float) -> None:
        """Wait at most ``seconds`` for it to end, then kill it."""
        self._process.wait(seconds)
        self.kill()

    def kill(self) -> None:
        """Kill it if it runs. A second call does nothing."""
        self._process.close()

    def stderr_tail(self) -> str:
        """The end of its stdout and stderr, such as a traceback; "" if it is empty."""
        return self._process.stderr_tail()

    def _raise(self, message: FromEngine | None) -> None:
        match message:
            case Refused(reason, probes):
                raise Unsupported(reason, *probes)
            case Failed(code, sentence):
                raise BackendError(code, f"in the second process: {sentence}")
            case None:
                self._process.wait(_REAP_S)
                line = self._process.last_line()
                said = f"; its last output: {line}" if line else ""
                raise BackendError(EXIT_ENGINE, f"the second process ended ({self._process.exit_description()}){said}")
            case _:
                pass


def own_probes(probes: tuple[Probe, ...], process: Process) -> tuple[Probe, ...]:
    """The probes whose programs run in ``process``."""
    return tuple(probe for probe in probes if probe.program.process is process)


def limited(options: Options, probes: tuple[Probe, ...], process: Process) -> Options:
    """``options`` with the part of the GPU memory that the probes of other processes leave to those of ``process``."""
    taken: dict[tuple[Process, str, Buffer], int] = {}
    for probe in probes:
        if probe.program.process is process:
            continue
        for resource in probe.program.resources:
            if isinstance(resource, Buffer) and resource.space is Space.DEVICE:
                owner = "" if resource.shared else probe.name
                taken[probe.program.process, owner, resource] = resource.nbytes
    return replace(options, max_memory=max(options.max_memory - sum(taken.values()), 0))
