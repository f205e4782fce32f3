"""Distinction of signals that were sent to this process alone from those that were sent to its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

_SHELL = "/bin/sh"
# It ends with this process, when nobody holds the other end of its input; it leaves no core file.
_SCRIPT = "ulimit -c 0; exec cat"
# The pending signals that the witness cannot survive: neither stops nor continuations.
_FATAL = ~sum(1 << (number - 1) for number in (signal.SIGCONT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU))
# The kernel sends to all members of a group at once, others that send to each process take a moment.
_LIMIT_S = 0.1
_STEP_S = 0.002


class GroupWitness:
    """A second process in the group, which each of ``numbers`` ends: a signal that ended it was sent to the group.

    A context manager. Where it cannot be started, no signal counts as sent to the group.
    """

    def __init__(self, numbers: Iterable[signal.Signals]) -> None:
        self._numbers = frozenset(numbers)
        self._pid: int | None = None
        self._input: int | None = None
        self._seen: set[int] = set()

    def __enter__(self) -> GroupWitness:
        self._start()
        return self

    def __exit__(self, *_: object) -> None:
        self._close()
        if self._pid is not None:
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)

    def saw(self, number: int) -> bool:
        """Whether the group got signal ``number``, which this process has got."""
        until = time.monotonic() + _LIMIT_S
        while self._pid is not None and number not in self._seen:
            pid, status = os.waitpid(self._pid, 0 if self._is_ending() else os.WNOHANG)
            if pid:
                # Another signal than the one that is asked for may have been the first.
                self._seen |= {os.WTERMSIG(status)} if os.WIFSIGNALED(status) else set()
                self._start()
            elif time.monotonic() >= until:
                break
            else:
                time.sleep(_STEP_S)
        seen = number in self._seen
        self._seen.discard(number)
        return seen

    def _is_ending(self) -> bool:
        """Whether a signal waits for the witness to run: on a busy machine that may take long."""
        try:
            lines = Path(f"/proc/{self._pid}/status").read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        pending = (line.split()[1] for line in lines if line.startswith(("SigPnd:", "ShdPnd:")))
        return any(int(one, 16) & _FATAL for one in pending)

    def _start(self) -> None:
        self._close()
        self._pid = None
        reader, self._input = os.pipe()
        nowhere = ((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2))
        try:
            self._pid = os.posix_spawn(
                _SHELL,
                [_SHELL, "-c", _SCRIPT],
                os.environ,
                file_actions=[(os.POSIX_SPAWN_DUP2, reader, 0), *nowhere],
                setsigmask=(),
                setsigdef=self._numbers,
            )
        except OSError:
            self._close()
        finally:
            os.close(reader)

    def _close(self) -> None:
        if self._input is not None:
            os.close(self._input)
            self._input = None
