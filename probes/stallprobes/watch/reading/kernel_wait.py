"""Where a thread of another process waits in the kernel, as /proc shows it."""

from __future__ import annotations

import platform
from pathlib import Path

from stallprobes.foreign_text import printable

# A thread in state R has this text in place of a function of the Linux kernel. It runs, or waits for a CPU.
RUNNING = "running"
# Largest number of characters of the name of a function of the Linux kernel.
_LONGEST_FUNCTION = 64
# Names of the system calls in which threads of a CUDA program wait, by architecture and number.
_SYSTEM_CALLS = {
    "x86_64": {
        0: "read", 7: "poll", 16: "ioctl", 23: "select", 24: "sched_yield", 35: "nanosleep", 202: "futex",
        230: "clock_nanosleep", 232: "epoll_wait", 270: "pselect6", 271: "ppoll", 281: "epoll_pwait",
    },
    "aarch64": {
        22: "epoll_pwait", 29: "ioctl", 63: "read", 72: "pselect6", 73: "ppoll", 98: "futex", 101: "nanosleep",
        115: "clock_nanosleep", 124: "sched_yield",
    },
}  # fmt: skip


def kernel_wait(folder: Path | None) -> str:
    """The function of the kernel in which a thread waits, else its system call, or RUNNING; "" if not known.

    ``folder`` is that of the thread in /proc, None where it is not known.
    """
    if folder is None:
        return ""
    try:
        # The name, in parentheses, may contain anything.
        if (folder / "stat").read_bytes().rpartition(b")")[2].split()[0] == b"R":
            return RUNNING
    except (OSError, IndexError):
        return ""
    function = _first_word(folder / "wchan")
    if function not in ("", "0"):
        return printable(function)[:_LONGEST_FUNCTION]
    number = _first_word(folder / "syscall")
    if not number.isdigit() or len(number) > 4:
        return ""
    return _SYSTEM_CALLS.get(platform.machine(), {}).get(int(number), f"system call {number}")


def _first_word(path: Path) -> str:
    try:
        words = path.read_bytes().split()
    except OSError:
        return ""
    return words[0].decode("utf-8", "replace") if words else ""
