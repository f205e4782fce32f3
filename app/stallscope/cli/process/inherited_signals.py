"""Signals that Python ignores from its start: their action in a program that this process starts.

A program inherits ignored signals from whoever starts it. Python ignores two before any of its code runs, so that the
kernel no longer knows the inherited action. A shell ignores neither by itself and passes on what it ignores by ``trap
'' PIPE`` or has inherited: where the parent is a shell, its signals are those that this process got. Other parents
reset them for their children (subprocess of Python, Rust, Node.js), whatever they ignore.
"""

from __future__ import annotations

import os
import signal

# Signals that Python ignores from its start. A program that watch starts gets the default action of these signals,
# unless the parent shell ignores the signal too.
IGNORED_BY_PYTHON = (signal.SIGPIPE, signal.SIGXFSZ)
# Executable names of shells whose commands inherit the ignored signals. fish is not in the set: fish ignores SIGPIPE,
# but its commands do not.
_SHELLS = frozenset({"sh", "ash", "bash", "busybox", "dash", "ksh", "ksh93", "mksh", "yash", "zsh"})
# Field of /proc/PID/status with the ignored signals.
_IGNORED_FIELD = "SigIgn:"


def signals_to_reset() -> tuple[signal.Signals, ...]:
    """The signals that Python ignores and a program of this process is to have with their default action."""
    passed_on = _ignored_by_shell(os.getppid())
    return tuple(number for number in IGNORED_BY_PYTHON if not passed_on >> (number - 1) & 1)


def _ignored_by_shell(pid: int) -> int:
    """The signals that the process ``pid`` ignores, a bit for each from 1 on; 0 if it is no shell, or has ended."""
    try:
        name = os.path.basename(os.readlink(f"/proc/{pid}/exe")).removesuffix(" (deleted)")
        if name not in _SHELLS:
            return 0
        with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
            return next((int(line.split()[1], 16) for line in file if line.startswith(_IGNORED_FIELD)), 0)
    except (OSError, ValueError, IndexError):
        return 0
