"""Access to a process: what needs its memory, or names that it controls.

For a process of the caller's own, stallscope does it itself, since it has no rights that the process lacks. For one of
another user, and as root for one with another root, a helper that has become that user does it: see ``helper``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from stallprobes.errors import NativeLibraryError, WatchError
from stallprobes.native.library import attacher, injected_library
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.in_flight import threads_in_driver
from stallprobes.watch.attaching.loading import Loaded, Programs, load_library
from stallprobes.watch.attaching.module_files import open_module
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.reading.code_files import open_regular
from stallprobes.watch.reading.process_rank import environment_of
from stallprobes.watch.reading.py_spy import PySpyRun, find_py_spy, started_here
from stallprobes.watch.reading.source import NO_PY_SPY


def native_programs() -> tuple[Path, Path]:
    """The attacher and the injected library. Raises WatchError where they are missing or damaged."""
    try:
        return attacher(), injected_library()
    except NativeLibraryError as error:
        raise WatchError(error.sentence) from error


class OwnAccess:
    """Access by this process itself, to processes of its own user."""

    problem = ""

    def __init__(self) -> None:
        self._py_spy = find_py_spy()

    def load(self, target: Target, image: ProcessImage, threads: Sequence[int]) -> Loaded:
        """Run the attacher."""
        with ExitStack() as opened:
            descriptors = [os.open(path, os.O_RDONLY | os.O_CLOEXEC) for path in native_programs()]
            for descriptor in descriptors:
                opened.callback(os.close, descriptor)
            return load_library(target, image, Programs(*descriptors), threads)

    def in_driver(self, target: Target, image: ProcessImage, pointers: Mapping[int, int]) -> list[int]:
        """Search the stacks."""
        try:
            return list(threads_in_driver(target, image, pointers))
        except OSError:
            return []

    def environment(self, target: Target) -> Mapping[str, str]:
        """Read it."""
        return environment_of(target.pid, target.proc)

    def open_module(self, target: Target, path: str) -> int | None:
        """Open it by its name here, or within another root."""
        if target.shares_files():
            return open_regular(path)
        with suppress(OSError):
            return open_module(target.pid, path)
        return None

    @property
    def no_spy(self) -> str:
        """A clause where py-spy is not installed."""
        return "" if self._py_spy is not None else NO_PY_SPY

    def spy(self, target: Target) -> PySpyRun:
        """Run it."""
        assert self._py_spy is not None, NO_PY_SPY
        return PySpyRun(started_here(self._py_spy, target.pid))

    def close(self) -> None:
        """Nothing was taken."""
