"""What a command needs of memory and file descriptors, asked for before a library or the terminal is touched."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType

from stallscope.cli.process.diagnostics import CommandError, ExitCode

_MIB = 1 << 20
# Measured with ulimit -v: a command that measures works with 200 MiB in all, of which Python has 30. A screen has some
# 15 threads, for each of which the C library maps a stack of 8 MiB and a heap of 64 MiB.
_NUMPY_BYTES = 192 * _MIB
_SCREEN_BYTES = 896 * _MIB
# The terminal, the event loop, the engine with its board and socket, and modules that are loaded meanwhile.
_SCREEN_FILES = 24


class _BeforeNumpy:
    """Finder of no module, which Python asks for every module that it does not have.

    Raises CommandError when numpy is to be loaded and too little memory is left for it and what follows.
    """

    def find_spec(self, name: str, _path: object = None, _target: ModuleType | None = None) -> None:
        """None: other finders know the module."""
        if name == "numpy":
            from stallprobes.machine.shortage import memory_shortage

            _require(memory_shortage(_NUMPY_BYTES))
            # Another thread may have passed here too.
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)


def guard_numpy() -> None:
    """Let the command end with one sentence where numpy would fail for lack of memory."""
    if "numpy" not in sys.modules:
        sys.meta_path.insert(0, _BeforeNumpy())


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
