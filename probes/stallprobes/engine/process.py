"""The wire to one engine process: spawn it, hear it, kill it.

The kernel kills the engine when the thread that spawned it ends (prctl(2), PR_SET_PDEATHSIG: "the parent is
considered to be the thread that created this process"). So all engines are spawned by one thread that never ends
before the process does, whichever thread asks for them.
"""

from __future__ import annotations

import fcntl
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path

from stallprobes.engine.protocol import FromEngine, Start, ToEngine, create_shared_memory

_STDERR_TAIL_BYTES = 4096
_REAP_S = 0.4
_FIRST_FREE_FD = 3


class _Spawner:
    """A thread that starts processes for others and lasts as long as this process."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], EngineProcess], Future[EngineProcess]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def spawn(self, job: Callable[[], EngineProcess]) -> EngineProcess:
        """Run ``job`` in the thread. If the caller is interrupted meanwhile, the link is closed once it is there."""
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="engine-spawner", daemon=True)
                self._thread.start()
        future: Future[EngineProcess] = Future()
        self._jobs.put((job, future))
        try:
            return future.result()
        except BaseException:
            future.add_done_callback(_close_unclaimed)
            raise

    def _work(self) -> None:
        while True:
            job, future = self._jobs.get()
            try:
                future.set_result(job())
            except BaseException as error:
                future.set_exception(error)
            del job, future


def _close_unclaimed(future: Future[EngineProcess]) -> None:
    if future.exception() is None:
        future.result().close()


_spawner = _Spawner()


def _reset_spawner() -> None:
    global _spawner
    _spawner = _Spawner()


# Threads do not survive a fork, so a forked child needs a spawner of its own.
os.register_at_fork(after_in_child=_reset_spawner)


class EngineProcess:
    """One engine process and the socket to it. Made by ``spawn``.

    ``on_message`` is called from the link's own thread with every message of the engine, and with None when it has
    closed its end, which it does by ending.
    """

    def __init__(self, board_fd: int, backend: str = "") -> None:
        self._owner = os.getpid()
        self._closing = threading.RLock()
        self._closed = False
        self._final_stderr = ""
        self._thread: threading.Thread | None = None
        self.ended = threading.Event()
        self._stderr_fd = os.memfd_create("stallscope-stderr", os.MFD_CLOEXEC)
        ours, theirs = socket.socketpair()
        passed: list[int] = []
        try:
            # In a process without stdin, stdout or stderr these could be 0, 1 or 2, which are the engine's own.
            for fd in (board_fd, theirs.fileno()):
                passed.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD))
            self.process = subprocess.Popen(
                [*_command(*passed), *([backend] if backend else [])],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr_fd,
                stderr=self._stderr_fd,
                pass_fds=passed,
                start_new_session=True,
                env=_environment(),
            )
        except BaseException:
            ours.close()
            os.close(self._stderr_fd)
            raise
        finally:
            theirs.close()
            for fd in passed:
                os.close(fd)
        self._connection = Connection(ours.detach())

    @staticmethod
    def spawn(board_fd: int, backend: str = "") -> EngineProcess:
        """Start an engine on the board behind ``board_fd``; it loads ``backend`` while it waits for what to do.

        Raises OSError when no process can be made.
        """
        return _spawner.spawn(lambda: EngineProcess(board_fd, backend))

    def connect(self, start: Start, on_message: Callable[[FromEngine | None], None]) -> None:
        """Send ``start`` and hear the engine from now on; both in a thread, since either may wait for the engine."""
        self._thread = threading.Thread(
            target=_receive, args=(self._connection, start, on_message, self.ended), name="engine-link", daemon=True
        )
        self._thread.start()

    def send(self, message: ToEngine) -> bool:
        """Send a message; False when the engine is gone."""
        try:
            self._connection.send(message)
        except OSError:
            return False
        return True

    def stderr_tail(self) -> str:
        """The end of what the engine wrote to stdout and stderr, such as a traceback; "" if nothing."""
        with self._closing:
            if self._closed:
                return self._final_stderr
            size = os.fstat(self._stderr_fd).st_size
            return (
                os.pread(self._stderr_fd, _STDERR_TAIL_BYTES, max(size - _STDERR_TAIL_BYTES, 0))
                .decode(errors="replace")
                .strip()
            )

    def exit_description(self) -> str:
        """How the process ended, in words."""
        code = self.process.poll()
        if code is None:
            return "it is still there"
        if code >= 0:
            return f"exit code {code}"
        try:
            return f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"

    def wait(self, seconds: float) -> bool:
        """Wait for the process to end and take it off the process table; False when it has not ended in time."""
        until = time.monotonic() + seconds
        self.ended.wait(seconds)
        try:
            self.process.wait(max(until - time.monotonic(), 0.001))
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Kill the engine if it lives, reap it, and give back all that the link held. Does nothing the second time.

        In a forked child of the owner it does nothing at all: the engine is not the child's to kill.
        """
        if os.getpid() != self._owner:
            return
        with self._closing:
            if self._closed:
                return
            self.process.kill()
            self.wait(_REAP_S)
            if self._thread is not None:
                self._thread.join(_REAP_S)
            # If the process cannot be killed the thread still reads, and nothing is closed under it.
            if self._thread is None or not self._thread.is_alive():
                self._connection.close()
            self._final_stderr = self.stderr_tail()
            self._closed = True
            os.close(self._stderr_fd)


def _receive(
    connection: Connection, start: Start, on_message: Callable[[FromEngine | None], None], ended: threading.Event
) -> None:
    try:
        connection.send(start)
        while True:
            on_message(connection.recv())
    except (EOFError, OSError):
        pass
    finally:
        ended.set()
        on_message(None)


class SpareEngine:
    """An engine's process that is started ahead: it loads ``backend`` while nobody knows yet what it is to run.

    A session that gets it takes it over; ``close`` ends it where none did. Raises OSError when no process can be made.
    """

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self._lock = threading.Lock()
        fd = create_shared_memory()
        try:
            self._held: tuple[EngineProcess, int] | None = (EngineProcess.spawn(fd, backend), fd)
        except BaseException:
            os.close(fd)
            raise

    def take(self, backend: str) -> tuple[EngineProcess, int] | None:
        """The process and its empty block, to be owned by the caller, the first time ``backend`` is the right one and
        it lives; else None."""
        with self._lock:
            if self._held is None or backend != self.backend or self._held[0].process.poll() is not None:
                return None
            held, self._held = self._held, None
            return held

    def close(self) -> None:
        """End it, unless somebody took it. Again does nothing."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held[0].close()
            os.close(held[1])


def _command(board_fd: int, control_fd: int) -> Sequence[str]:
    # -P: the working directory's files must not stand in for the standard library's.
    return [
        sys.executable, "-P", "-m", "stallprobes.engine.main", str(board_fd), str(control_fd), str(os.getpid())
    ]  # fmt: skip


def _environment() -> dict[str, str]:
    """This process's environment, in which the engine finds the package where this process found it."""
    environment = dict(os.environ)
    # Without compiled code there is no loop.
    environment.pop("NUMBA_DISABLE_JIT", None)
    root = Path(__file__).resolve().parents[2]
    # An installed package is found anyway, and site-packages must not come before the standard library.
    if root.name not in ("site-packages", "dist-packages"):
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(root) if not known else f"{root}{os.pathsep}{known}"
    return environment
