"""Processes that parse names and files, started for tests: real ones whose memory is measured, and hostile ones."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from stallprobes.watch.reading.untrusted_parser import spawn_parser

# Time (s) between two looks at the memory of a process.
LOOK_S = 0.01


class ParserChildren:
    """Starts real processes. ``peak_bytes`` is the largest resident size that any had, ``signals`` what ended them."""

    def __init__(self) -> None:
        self.pids: list[int] = []
        self.signals: list[int] = []
        self._peak_kib = 0

    def start(self) -> tuple[socket.socket, int, Callable[[], None]]:
        """A new process, as ``start_parser`` starts it."""
        connection, process = spawn_parser()
        self.pids.append(process.pid)
        # The kernel's figure of one that has ended is at least the size of the process that started it.
        threading.Thread(target=self._watch, args=(process.pid,), daemon=True).start()

        def end() -> None:
            self._look(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            process.returncode = os.waitstatus_to_exitcode(os.waitpid(process.pid, 0)[1])
            self.signals.append(-process.returncode)

        return connection, process.pid, end

    @property
    def peak_bytes(self) -> int:
        """The largest resident size of all processes, those that run included."""
        for pid in self.pids:
            self._look(pid)
        return self._peak_kib << 10

    def _watch(self, pid: int) -> None:
        while self._look(pid):
            time.sleep(LOOK_S)

    def _look(self, pid: int) -> bool:
        """Note the largest resident size of a process until now; False if it has ended."""
        peak_kib = _peak_kib(pid)
        self._peak_kib = max(self._peak_kib, peak_kib)
        return peak_kib > 0


def _peak_kib(pid: int) -> int:
    """The largest resident size of a process that runs; 0 for another one."""
    with suppress(OSError, StopIteration):
        return int(status_of(pid, "VmHWM").split()[0])
    return 0


def status_of(pid: int, field: str) -> str:
    """A field of the status of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(value for name, _, value in (line.partition(":\t") for line in lines) if name == field)


class ScriptedChildren:
    """Starts threads in place of processes, each of which does with its connection what ``script`` says."""

    def __init__(self, script: Callable[[socket.socket], None], pid: int = 0) -> None:
        """``pid`` is that of the process for which each is taken."""
        self._script, self.pid = script, pid
        self.started = self.ended = 0

    def start(self) -> tuple[socket.socket, int, Callable[[], None]]:
        """A new thread, and what counts that it was to end."""
        ours, theirs = socket.socketpair()
        self.started += 1

        def run() -> None:
            with theirs, suppress(OSError):
                self._script(theirs)

        threading.Thread(target=run, daemon=True).start()
        return ours, self.pid, self._end

    def _end(self) -> None:
        self.ended += 1
