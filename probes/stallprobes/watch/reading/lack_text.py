"""Sentences about what a process lacks for a recording: the cause with its figures, and the remedy."""

from __future__ import annotations

from stallprobes.native.layouts.watch_file import Lack

# Words for each resource that a process lacks for a recording, if the needed and available bytes are known. Each entry:
# what there is too little of, and the remedy.
_AMOUNTS = {
    Lack.MEMORY: (
        "of memory left on its machine",
        "end other programs, or use --calls-only",
    ),
    Lack.CGROUP: (
        "left of its container's memory limit (cgroup)",
        "raise the limit, or use --calls-only",
    ),
    Lack.FOLDER: (
        "left in the file system of its private folder",
        "make room there, or set TMPDIR to a folder of a larger one",
    ),
    Lack.ADDRESSES: (
        "of address space left (ulimit -v, ulimit -d)",
        "raise the limit before it starts",
    ),
    Lack.FILE_SIZE: (
        "as its limit of file sizes (ulimit -f)",
        "raise the limit before it starts",
    ),
}
# Words for each resource that a process lacks for a recording, if no amounts are known. Each entry: the cause, and the
# remedy.
_CAUSES = {
    Lack.MEMORY: ("the kernel has no memory for it", "end other programs"),
    Lack.CGROUP: ("its container's memory limit (cgroup) is reached", "raise the limit"),
    Lack.FOLDER: ("its private folder has no space, or cannot be written to", "make room there, or set TMPDIR"),
    Lack.ADDRESSES: (
        "it has no address space left (ulimit -v, ulimit -d, or vm.overcommit_memory)",
        "raise the limit before it starts",
    ),
    Lack.FILE_SIZE: ("its limit of file sizes (ulimit -f) is too low", "raise the limit before it starts"),
    Lack.LOCKED: (
        "it locks all that it maps (mlockall), and its limit of locked memory (ulimit -l) is reached",
        "raise the limit before it starts",
    ),
    Lack.DESCRIPTORS: ("it has no free file descriptor", "raise its limit (ulimit -n), or have it close some"),
    Lack.MEMFD: (
        "it may not make memory with a name (memfd_create)",
        "allow that in its seccomp filter, or start it with stallscope watch",
    ),
    Lack.THREADS: (
        "it can start no further thread",
        "raise its limit of threads (pids of its cgroup, ulimit -u)",
    ),
    Lack.UNKNOWN: ("the library cannot begin in it", "start it with stallscope watch"),
}


def lack_sentence(title: str, lack: Lack, needed: int = 0, available: int = 0) -> str:
    """Why nothing of a process is recorded, with the remedy.

    ``title`` names the process, ``x (process 1)``. ``needed`` and ``available`` are bytes, both 0 where they are not
    known.
    """
    if lack in _AMOUNTS and needed:
        what, remedy = _AMOUNTS[lack]
        return (
            f"{title} has {_size(available)} {what}, and recording takes {_size(needed)}, so nothing of it is recorded:"
            f" {remedy}."
        )
    cause, remedy = _CAUSES[lack]
    return f"{title} cannot be recorded: {cause}; {remedy}."


def _size(count: int) -> str:
    """A number of bytes as it is written."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            value = count / unit
            return f"{value:.1f} {name}" if value < 10 and name == "GiB" else f"{value:.0f} {name}"
    return f"{count} bytes"


def lack_of(number: int) -> Lack:
    """The lack with a number that a process wrote; UNKNOWN for another number."""
    return Lack(number) if number in Lack.__members__.values() else Lack.UNKNOWN
