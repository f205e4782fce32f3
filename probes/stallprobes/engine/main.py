"""Main program of the engine process, which owns contexts, buffers and probe threads, and of its second process.

Its command is ``python -m stallprobes.engine.main BOARD_FD CONTROL_FD PARENT_PID [BACKEND]``; BACKEND is imported
while the process waits for the Start message.

A crash or hang of the driver is limited to this process. It ends with its parent for two reasons, each sufficient: a
signal from the kernel (PR_SET_PDEATHSIG), and the end of the control socket.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import gc
import importlib
import os
import queue
import signal
import sys
import threading
import time
import traceback
from multiprocessing.connection import Connection
from typing import NoReturn

from stallprobes.engine import protocol
from stallprobes.engine.backend import Backend
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.second_process import SecondProcess, limited, own_probes
from stallprobes.engine.slots import SlotThread, SlotWriter
from stallprobes.errors import EXIT_ENGINE, EXIT_USAGE, BackendError, Unsupported, kind_and_text
from stallprobes.model import MS, Process
from stallprobes.native.layouts.board import EngineState

# Python module of each backend, by the backend's name.
BACKENDS = {
    "host": "stallprobes.engine.host",
    "cuda": "stallprobes.engine.cuda.backend",
    "sim": "stallprobes.engine.sim.backend",
}
# Longest wait (s) for a message between two polls of the probes. At the start of the timeline, also the period (s) at
# which the engine checks whether CUPTI has begun to record.
TICK_S = 0.02
# Step (ns) in which the engine advances virtual time. After each step, the engine reports failed probes and checks
# whether it has to stop.
VIRTUAL_STEP_NS = 20_000_000
# Longest wait (s) for the end of the probes after a Stop. After this wait, the engine ends although probes still run.
STOP_S = 0.7
# Longest wait (s) for the end of the second process (in which some probes run) after a Stop. After this wait, the
# engine kills the second process. STOP_S + _SECOND_STOP_S must be less than a session's wait for the end of its engine.
_SECOND_STOP_S = 0.1
# Longest wait (s) of the starting engine until CUPTI begins to record. After this wait, the engine reports that it is
# ready, although CUPTI does not record yet. Reason: CUPTI may hang.
TIMELINE_START_S = 10.0

# Operation of prctl(2): the kernel sends this process a signal when its parent ends.
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    """Run an engine until a Stop message, the end of the parent, or a fatal error."""
    board_fd, control_fd, parent = (int(argument) for argument in arguments[:3])
    _end_with_parent(parent)
    # Ctrl-C in the terminal is for the parent, which then stops the engine.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    faulthandler.enable()
    connection = Connection(control_fd)
    preload = threading.Thread(target=_preload, args=arguments[3:4], name="preload", daemon=True)
    if arguments[3:]:
        preload.start()
    code = EXIT_ENGINE
    try:
        start = connection.recv()
        if isinstance(start, protocol.Start):
            board = Board.attach(board_fd, BoardLayout.of(start.probes))
            code = EngineServer(connection, start, board, preload if arguments[3:] else None).run()
    except EOFError:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        # Without exit handlers: a thread or a destructor that hangs in the driver must not block the exit.
        sys.stderr.flush()
        os._exit(code)


class EngineServer:
    """Runs a backend for a session. ``preload`` is the thread that imports the backend, None if there is none.

    In a second process it runs that process's probes, and the engine keeps the slots and the timeline.
    """

    def __init__(
        self, connection: Connection, start: protocol.Start, board: Board, preload: threading.Thread | None = None
    ) -> None:
        self._preload_thread = preload
        self._connection = connection
        self._start = start
        self._board = board
        self._inbox: queue.SimpleQueue[protocol.Advance | protocol.SwitchTimeline | protocol.Stop] = queue.SimpleQueue()
        self._stopping = threading.Event()
        self._slots: SlotThread | None = None
        self._second: SecondProcess | None = None
        self._running = False
        # The number of the last switch of the timeline, and of the last one that was answered.
        self._switched = 0
        self._answered = 0

    def run(self) -> int:
        """Run from Start to Stop; returns the exit code of the process."""
        # Before the first driver call: if that hangs, the end of the parent must still be noticed.
        threading.Thread(target=self._receive, name="control", daemon=True).start()
        backend: Backend | None = None
        try:
            if self._preload_thread is not None:
                self._preload_thread.join()
            backend = _backend(self._start.backend)
            probes, options = self._start.probes, self._start.options
            if not backend.virtual:
                # In virtual time the backend keeps the slots and simulates both processes itself.
                own = own_probes(probes, self._start.process)
                if self._start.process is Process.ENGINE:
                    self._slots = SlotThread(SlotWriter(probes, self._board, options.together))
                    if len(own) < len(probes):
                        self._second = SecondProcess(self._start, self._board)
                        options = limited(options, probes, Process.ENGINE)
                probes = own
            info = backend.prepare(probes, self._board, options)
            backend.start()
            if self._second is not None:
                self._second.await_ready()
            if backend.virtual:
                _relax_collection()
            if self._slots is not None:
                self._slots.start()
            if self._start.options.timeline:
                self._switch_timeline(backend, protocol.SwitchTimeline(0, True))
                self._await_timeline(backend)
            self._running = True
            self._write_heartbeat(EngineState.READY)
            self._send(protocol.Ready(info, None if self._second is None else self._second.pid))
            self._serve(backend)
        except Unsupported as error:
            return self._fail(protocol.Refused(error.reason, error.probes), EXIT_ENGINE)
        except BackendError as error:
            return self._fail(protocol.Failed(error.exit_code, error.sentence, self._running), error.exit_code)
        except Exception as error:
            traceback.print_exc()
            sentence = f"internal error of the engine: {kind_and_text(error)}"
            return self._fail(protocol.Failed(EXIT_ENGINE, sentence, self._running), EXIT_ENGINE)
        if self._slots is not None:
            self._slots.stop()
        self._write_heartbeat(EngineState.STOPPING)
        if self._second is not None:
            self._second.begin_stop()
        backend.stop(STOP_S)
        if self._second is not None:
            self._second.end(_SECOND_STOP_S)
        return 0

    def _serve(self, backend: Backend) -> None:
        """Poll the backend and advance virtual time until Stop. Raises BackendError for a fatal error."""
        paced = backend.virtual and self._start.options.paced
        last = time.monotonic_ns()
        while True:
            self._poll(backend)
            try:
                message = self._inbox.get(timeout=TICK_S)
            except queue.Empty:
                message = None
            if isinstance(message, protocol.Stop) or self._stopping.is_set():
                return
            if isinstance(message, protocol.SwitchTimeline):
                self._switch_timeline(backend, message)
            elif message is not None:
                self._pass(backend, message.ns)
                self._send(message)
            elif paced:
                now = time.monotonic_ns()
                # After a suspension of the whole process the simulation continues without catching up.
                backend.advance(min(now - last, 100 * MS))
                last = now

    def _pass(self, backend: Backend, ns: int) -> None:
        """Let ``ns`` of virtual time pass, less if the engine is to stop."""
        left = ns
        while left > 0 and not self._stopping.is_set():
            step = min(left, VIRTUAL_STEP_NS)
            backend.advance(step)
            left -= step
            self._poll(backend)

    def _poll(self, backend: Backend) -> None:
        self._write_heartbeat(None)
        if self._slots is not None and self._slots.error is not None:
            raise self._slots.error
        self._report_timeline(backend)
        for stopped in [] if self._second is None else self._second.poll():
            self._send(stopped)
        for failure in backend.poll():
            self._send(failure)
            if failure.fatal:
                raise BackendError(
                    EXIT_ENGINE, f"{failure.sentence}; after this error the contexts of all probes are unusable"
                )

    def _switch_timeline(self, backend: Backend, message: protocol.SwitchTimeline) -> None:
        self._switched, self._answered = message.number, message.number - 1
        backend.switch_timeline(message.on)

    def _report_timeline(self, backend: Backend) -> bool:
        """Send the state of the timeline once a switch has taken effect; False while it has not."""
        if self._answered == self._switched:
            return True
        status = backend.timeline()
        if status is None:
            return False
        self._answered = self._switched
        self._send(protocol.TimelineChanged(self._answered, status))
        return True

    def _await_timeline(self, backend: Backend) -> None:
        """Wait until the timeline is on, so that the first call is recorded. The time is limited: CUPTI may hang."""
        until = time.monotonic() + TIMELINE_START_S
        while not self._report_timeline(backend) and time.monotonic() < until:
            time.sleep(TICK_S)

    def _write_heartbeat(self, state: EngineState | None) -> None:
        now_ns = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        if self._start.process is not Process.ENGINE:
            self._board.header.second_heartbeat_ns = now_ns
            return
        if state is not None:
            self._board.header.engine_state = state
        self._board.header.engine_heartbeat_ns = now_ns

    def _receive(self) -> None:
        try:
            while True:
                message = self._connection.recv()
                if isinstance(message, protocol.Stop):
                    self._stopping.set()
                self._inbox.put(message)
        except (EOFError, OSError):
            os._exit(EXIT_ENGINE)

    def _send(self, message: protocol.FromEngine) -> None:
        try:
            self._connection.send(message)
        except OSError:
            os._exit(EXIT_ENGINE)

    def _fail(self, message: protocol.FromEngine, code: int) -> int:
        self._write_heartbeat(EngineState.FAILED)
        if self._second is not None:
            self._second.kill()
            sys.stderr.write(self._second.stderr_tail())
        self._send(message)
        return code


def _relax_collection() -> None:
    """Collect garbage rarely: a simulation frees nearly all of its objects by reference counting."""
    gc.collect()
    # What exists now, most of it modules, lives as long as the process.
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def _preload(name: str) -> None:
    """Do the slow part of the start that does not depend on the probes. Errors are ignored: they occur again later."""
    with contextlib.suppress(Exception):
        preload = getattr(importlib.import_module(BACKENDS[name]), "preload", None)
        if preload is not None:
            preload()


def _backend(name: str) -> Backend:
    if name not in BACKENDS:
        raise BackendError(EXIT_USAGE, f"there is no backend {name!r}: choose {', '.join(BACKENDS)}")
    try:
        backend: Backend = importlib.import_module(BACKENDS[name]).create()
    except ModuleNotFoundError as error:
        what = f"the Python package {error.name} is missing"
        raise BackendError(EXIT_ENGINE, f"{what}; reinstall stallscope (see: stallscope doctor)") from error
    return backend


def _end_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that spawned it ends (prctl(2), PR_SET_PDEATHSIG)."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    # The parent may have ended before the prctl call.
    if os.getppid() != parent:
        os._exit(EXIT_ENGINE)


if __name__ == "__main__":
    main(sys.argv[1:])
