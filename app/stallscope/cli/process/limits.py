"""Limits of a command: memory and file descriptors, checked before its libraries, and the work of the garbage
collector."""

from __future__ import annotations

import gc

from stallscope.cli.process.diagnostics import CommandError, ExitCode

_MIB = 1 << 20
# Smallest free address space (bytes) with which NumPy is imported. With less free address space, the command ends with
# an error. Reason: a measuring command needs 180 MiB at this point, measured with ulimit -v; the rest is a reserve.
_NUMPY_BYTES = 192 * _MIB
# Smallest free address space (bytes) with which a screen opens. Reason: with a simulated GPU, the monitor takes up to
# 760 MiB. Each of the 9 or 10 threads of the monitor reserves 8 MiB for a stack, and may reserve 64 MiB for a heap in
# the C library.
_SCREEN_BYTES = 896 * _MIB
# Smallest number of free file descriptors with which a screen opens. Reason: the terminal, the event loop, the process
# that runs the probes, and modules that load later need file descriptors.
_SCREEN_FILES = 24
# Number of new objects after which Python's garbage collector runs. A check makes some 50 000 objects without reference
# cycles. More frequent collections would take time without finding garbage.
_COLLECTION_OBJECTS = 50_000


def require_numpy() -> None:
    """Raise CommandError if too little memory is left for numpy and what follows it: numpy would end the process."""
    from stallprobes.machine.shortage import memory_shortage

    _require(memory_shortage(_NUMPY_BYTES))


def screen_shortage() -> str | None:
    """Why the screen cannot have the memory and the files that it needs, as a clause; None if it can."""
    from stallprobes.machine.shortage import descriptor_shortage, memory_shortage

    return memory_shortage(_SCREEN_BYTES) or descriptor_shortage(_SCREEN_FILES)


def require_screen() -> None:
    """Raise CommandError if the screen cannot have the memory and the files that it needs."""
    _require(screen_shortage())


def _require(why: str | None) -> None:
    if why is not None:
        raise CommandError(ExitCode.FAILED, why)


def collect_rarely() -> None:
    """Let the garbage collector examine new objects rarely.

    A check has some 50 000 objects without cycles, as JSON ten times as many; a screen of a watched program makes
    thousands with each reading, and keeps as many. The usual threshold of 700 new objects would have them examined
    again and again.
    """
    gc.set_threshold(_COLLECTION_OBJECTS)
