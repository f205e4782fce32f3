"""An engine process seen from the session: spawn it, exchange messages, kill it.

The kernel kills the engine when the thread that spawned it ends (prctl(2), PR_SET_PDEATHSIG: "the parent is
considered to be the thread that created this process"). Therefore one thread, which lasts as long as the process,
spawns all engines.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path

from stallprobes.engine.protocol import FromEngine, Start, ToEngine
from stallprobes.errors import EngineLost
from stallprobes.native.layouts.board import create_shared_memory

# Largest number of bytes that are read from the end of an engine's output (stdout and stderr). A crash report has some
# hundred bytes for each thread.
_STDERR_TAIL_BYTES = 65536
# First words of faulthandler's report of a crash.
_CRASH_REPORT = "Fatal Python error:"
# Signals that kill a process because of a defect, for example in the driver or a library.
CRASHES = (signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGFPE, signal.SIGILL)
# Longest wait (s) for the end of a killed engine, and then for the end of the thread that reads its messages.
_REAP_S = 0.4
# Longest wait (s) for the end of an engine's process after its control socket has closed. On a busy machine, the
# driver's cleanup can take this long.
_EXIT_S = 2.0
# Smallest number of a file descriptor that is passed on to a process: 0 to 2 are stdin, stdout and stderr.
_FIRST_FREE_FD = 3
# States of a stopped process in /proc: T after a signal, t under a debugger.
_STOPPED = ("T", "t")


class _Spawner:
    """The thread that spawns engine processes. It lasts as long as this process."""

    def __init__(self) -> None:
        self._jobs: queue.SimpleQueue[tuple[Callable[[], EngineProcess], Future[EngineProcess]]] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def spawn(self, job: Callable[[], EngineProcess]) -> EngineProcess:
        """Run ``job`` in the thread and return its result. If the caller is interrupted, the result is closed.

        Raises OSError if no thread can be started.
        """
        with self._lock:
            if self._thread is None:
                self._thread = _started(threading.Thread(target=self._work, name="engine-spawner", daemon=True))
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


def _started(thread: threading.Thread) -> threading.Thread:
    """``thread``, started. Raises OSError if the kernel has no memory for it, or too many run."""
    try:
        thread.start()
    except RuntimeError as error:
        raise OSError(errno.EAGAIN, str(error)) from error
    return thread


def _close_unclaimed(future: Future[EngineProcess]) -> None:
    if future.exception() is None:
        future.result().close()


# Thread that starts the engines of this process.
_spawner = _Spawner()


def _reset_spawner() -> None:
    global _spawner
    _spawner = _Spawner()


# Threads do not survive a fork, so a forked child needs a spawner of its own.
os.register_at_fork(after_in_child=_reset_spawner)

# The engines of this process, to be suspended with it.
_engines: weakref.WeakSet[EngineProcess] = weakref.WeakSet()


def signal_engines(number: signal.Signals) -> None:
    """Send a signal to all engines of this process, with their second processes.

    SIGSTOP before it is suspended, SIGCONT afterwards.
    """
    for engine in list(_engines):
        if not engine.ended.is_set() and engine.process.returncode is None:
            with contextlib.suppress(OSError):
                os.killpg(engine.process.pid, number)


class EngineProcess:
    """One engine process and the socket to it. Created by ``spawn``. ``ended`` is set when the engine has ended."""

    def __init__(self, board_fd: int, backend: str = "", *, of_engine: bool = False) -> None:
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
            # In a process without stdin, stdout or stderr these could be 0, 1 or 2, which the engine uses itself.
            for fd in (board_fd, theirs.fileno()):
                passed.append(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD))
            self.process = subprocess.Popen(
                [*_command(*passed), *([backend] if backend else [])],
                stdin=subprocess.DEVNULL,
                stdout=self._stderr_fd,
                stderr=self._stderr_fd,
                pass_fds=passed,
                # A second process belongs to its engine's process group, so that a signal to the group reaches both.
                # Once this process has ended, the kernel sends SIGHUP and SIGCONT to a group in its session of which a
                # process is stopped: an engine that was stopped before it asked for a signal of its own ends too.
                process_group=None if of_engine else 0,
                env=environment(),
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
        _engines.add(self)

    @staticmethod
    def spawn(board_fd: int, backend: str = "", *, of_engine: bool = False) -> EngineProcess:
        """Spawn an engine process with the shared memory ``board_fd``; it imports ``backend``, if given, at once.

        ``of_engine``: this process is an engine, and the new one its second process. Raises OSError if no process can
        be created.
        """
        return _spawner.spawn(lambda: EngineProcess(board_fd, backend, of_engine=of_engine))

    def connect(self, start: Start, on_message: Callable[[FromEngine | None], None]) -> None:
        """Send ``start`` and receive messages, in a thread, because both can block.

        ``on_message`` is called in that thread with each message, and with None when the engine has ended. Raises
        OSError if no thread can be started.
        """
        arguments = (self._connection, start, on_message, self.ended)
        try:
            self._thread = _started(
                threading.Thread(target=_receive, args=arguments, name="engine-receiver", daemon=True)
            )
        except OSError:
            # Nobody else would notice its end.
            on_message(None)
            raise

    def send(self, message: ToEngine) -> bool:
        """Send a message; False if the engine has ended."""
        try:
            self._connection.send(message)
        except OSError:
            return False
        return True

    @property
    def is_stopped(self) -> bool:
        """True if a signal, such as SIGSTOP, has stopped the process."""
        if self.ended.is_set() or self.process.returncode is not None:
            return False
        try:
            with open(f"/proc/{self.process.pid}/stat", encoding="ascii", errors="replace") as file:
                # The name in parentheses may hold any character.
                return file.read().rpartition(")")[2].split()[0] in _STOPPED
        except (OSError, IndexError):
            return False

    def stderr_tail(self) -> str:
        """The end of the engine's stdout and stderr, such as a traceback; "" if it is empty."""
        with self._closing:
            if self._closed:
                return self._final_stderr
            size = os.fstat(self._stderr_fd).st_size
            return (
                os.pread(self._stderr_fd, _STDERR_TAIL_BYTES, max(size - _STDERR_TAIL_BYTES, 0))
                .decode(errors="replace")
                .strip()
            )

    def last_line(self) -> str:
        """The last line of the engine's stdout and stderr before the report of a crash; "" if there is none."""
        lines = self.stderr_tail().splitlines()
        reports = [number for number, line in enumerate(lines) if line.startswith(_CRASH_REPORT)]
        own = [line.strip() for line in lines[: reports[0] if reports else None] if line.strip()]
        return own[-1] if own else ""

    def crashed(self) -> bool:
        """True if the process was killed by a signal that a defect causes, as in a driver or a library."""
        return -(self.process.poll() or 0) in CRASHES

    def exit_description(self) -> str:
        """The exit code or signal of the process as text."""
        code = self.process.poll()
        if code is None:
            return "the process still exists"
        if code >= 0:
            return f"exit code {code}"
        try:
            name = f"killed by {signal.Signals(-code).name}"
        except ValueError:
            return f"killed by signal {-code}"
        return f"{name}, {(signal.strsignal(-code) or '').lower()}" if self.crashed() else name

    def wait(self, seconds: float) -> bool:
        """Wait at most ``seconds`` for the process to end, and reap it; False if it has not ended."""
        until = time.monotonic() + seconds
        self.ended.wait(seconds)
        try:
            self.process.wait(max(until - time.monotonic(), 0.001))
        except subprocess.TimeoutExpired:
            return False
        return True

    def close(self) -> None:
        """Kill the process if it runs, reap it, and close all descriptors. A second call does nothing.

        In a forked child of the owner it does nothing: the engine belongs to the owner.
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
            # If the process cannot be killed the thread still reads, and its connection must stay open.
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
    """An engine process that is spawned before a session needs it, and imports ``backend`` meanwhile.

    A session can take the process over; otherwise ``close`` ends it. Raises OSError if no process can be created.
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
        """The process and the descriptor of its shared memory, which the caller then owns.

        None if they were taken already, the process has ended, or it is of another backend than ``backend``.
        """
        with self._lock:
            if self._held is None or backend != self.backend or self._held[0].process.poll() is not None:
                return None
            held, self._held = self._held, None
            return held

    def close(self) -> None:
        """End the process unless it was taken. A second call does nothing."""
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            held[0].close()
            os.close(held[1])


def _command(board_fd: int, control_fd: int) -> Sequence[str]:
    # -P: files in the working directory must not shadow modules of the standard library.
    return [
        sys.executable, "-P", "-m", "stallprobes.engine.main", str(board_fd), str(control_fd), str(os.getpid())
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """This process's environment, with PYTHONPATH set so that the engine imports the same package."""
    environment = dict(os.environ)
    # A profiler that the user injects into CUDA programs would take CUPTI's only subscription, and slow the calls down.
    environment.pop("CUDA_INJECTION64_PATH", None)
    root = Path(__file__).resolve().parents[2]
    # An installed package is found without it, and site-packages must not come before the standard library.
    if root.name not in ("site-packages", "dist-packages"):
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = str(root) if not known else f"{root}{os.pathsep}{known}"
    return environment


def engine_lost(process: EngineProcess, when: str = "") -> EngineLost:
    """The error that ``process`` ended by itself, with its last output; ``when`` says in which state."""
    process.wait(_EXIT_S)
    crashed = process.crashed()
    sentence = f"the engine {'crashed' if crashed else 'ended'}{when} ({process.exit_description()})"
    line = process.last_line()
    if line:
        sentence += f"; its last output: {line}"
    if crashed:
        sentence += "; see dmesg for errors of the GPU"
    return EngineLost(sentence, process.stderr_tail())
