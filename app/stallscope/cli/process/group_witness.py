"""Distinction of signals that were sent to this process alone from those that were sent to its process group."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Collection
from pathlib import Path

_SHELL = "/bin/sh"
# Its input has no data: it ends with this process, which has the other end.
_SCRIPT = "read _"
_PENDING = ("SigPnd:", "ShdPnd:")
# The kernel sends to all members of a group at once, others that send to each process take a moment.
_LIMIT_S = 0.1
_STEP_S = 0.002


class GroupWitness:
    """A second process in the group, which blocks all signals: those that are pending there were sent to the group.

    A context manager. The answer does not depend on when the witness runs, as it would if signals ended it. Where there
    is no witness, or /proc does not show its pending signals, no signal counts as sent to the group.
    """

    def __init__(self) -> None:
        self._pid: int | None = None
        self._input: int | None = None
        # Signals that earlier witnesses got, and that were not asked for yet.
        self._earlier: set[int] = set()
        self._late: set[int] = set()

    def __enter__(self) -> GroupWitness:
        self._pid, self._input = _start()
        return self

    def __exit__(self, *_: object) -> None:
        _end(self._pid, self._input)
        self._pid = self._input = None

    def saw(self, numbers: Collection[int]) -> set[int]:
        """Those signals of ``numbers``, which this process has got, that the group got."""
        asked = set(numbers)
        until = time.monotonic() + _LIMIT_S
        while not asked <= (got := self._got()) and self._pid is not None and time.monotonic() < until:
            time.sleep(_STEP_S)
        if seen := asked & got:
            self._forget(seen)
        return seen

    def review(self) -> None:
        """Replace a witness that ended, and forget signals that came to it too late. Call it now and then.

        Such a signal, which this process got long before the witness, would be the answer to a later question.
        """
        late = self._got() - signal.sigpending()
        if late & self._late or self._has_ended():
            self._forget(late & self._late)
        self._late = late - self._late

    def _got(self) -> set[int]:
        return self._earlier | _pending_signals(self._pid)

    def _has_ended(self) -> bool:
        if self._pid is not None and os.waitpid(self._pid, os.WNOHANG)[0]:
            self._pid = None
            return True
        return False

    def _forget(self, numbers: set[int]) -> None:
        """Replace the witness, since no other process can remove a pending signal; keep what else it got."""
        before = self._pid, self._input
        # The second one starts before the first ends, so that there is always one. What both have came afterwards.
        self._pid, self._input = _start()
        earlier = self._earlier | _pending_signals(before[0])
        self._earlier = earlier - numbers - _pending_signals(self._pid)
        self._late -= numbers
        _end(*before)


def _start() -> tuple[int | None, int | None]:
    """A witness and this process's end of its input; None if it cannot be started."""
    reader, writer = os.pipe()
    nowhere = ((os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_WRONLY, 0) for fd in (1, 2))
    actions = [(os.POSIX_SPAWN_DUP2, reader, 0), *nowhere]
    words = [_SHELL, "-c", _SCRIPT]
    try:
        pid = os.posix_spawn(_SHELL, words, os.environ, file_actions=actions, setsigmask=signal.valid_signals())
    except OSError:
        os.close(writer)
        return None, None
    finally:
        os.close(reader)
    return pid, writer


def _end(pid: int | None, writer: int | None) -> None:
    if writer is not None:
        os.close(writer)
    if pid is not None:
        with contextlib.suppress(OSError):
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _pending_signals(pid: int | None) -> set[int]:
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8").splitlines()
    except OSError:
        return set()
    masks = [int(line.split()[1], 16) for line in lines if line.startswith(_PENDING)]
    return {number for number in signal.valid_signals() if any(mask >> (number - 1) & 1 for mask in masks)}
