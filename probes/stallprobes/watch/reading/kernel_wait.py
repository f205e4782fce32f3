"""Where a thread of another process waits in the kernel, as /proc shows it."""

from __future__ import annotations

import platform
import re
from pathlib import Path

from stallprobes.foreign_text import printable
from stallprobes.watch.reading.proc_files import content, stat_fields

# Text in place of a function of the Linux kernel for a thread in state R (it runs, or waits for a CPU).
RUNNING = "running"
# Largest number of characters of the name of a function of the Linux kernel.
_LONGEST_FUNCTION = 64
# Largest number of digits in the number of a system call.
_MOST_DIGITS = 4
# Pattern of an address as the Linux kernel writes it in /proc.
_ADDRESS = re.compile(r"0x[0-9a-f]{1,16}")
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
    fields = [] if folder is None else stat_fields(folder)
    if folder is None or not fields:
        return ""
    if fields[0] == b"R":
        return RUNNING
    function = _first_word(folder / "wchan")
    if function not in ("", "0"):
        return printable(function)[:_LONGEST_FUNCTION]
    number = _first_word(folder / "syscall")
    if not number.isdecimal() or len(number) > _MOST_DIGITS:
        return ""
    return _SYSTEM_CALLS.get(platform.machine(), {}).get(int(number), f"system call {number}")


def awaited_address(folder: Path) -> int | None:
    """The address of the word for which a thread waits in the system call futex; None in another, or if not known."""
    words = _words(folder / "syscall")
    number = words[0] if words else ""
    names = _SYSTEM_CALLS.get(platform.machine(), {})
    futex = number.isdecimal() and len(number) <= _MOST_DIGITS and names.get(int(number)) == "futex"
    return int(words[1], 16) if futex and len(words) > 1 and _ADDRESS.fullmatch(words[1]) else None


def _first_word(path: Path) -> str:
    return next(iter(_words(path)), "")


def _words(path: Path) -> list[str]:
    return content(path).decode("utf-8", "replace").split()
