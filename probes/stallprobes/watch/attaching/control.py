"""The control of the library in a process: memory of that process by which stallscope wakes it and lets it sleep."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import shutil
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from stallprobes.errors import WatchError
from stallprobes.native.layouts import attaching as layout
from stallprobes.native.layouts.attaching import ControlState
from stallprobes.native.layouts.structure import offset_of
from stallprobes.native.layouts.watch_file import EVERYTHING_PPM, Flag, WatchState
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.environment import WatchOptions

_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1
# The library itself tries the lock for a moment now and then.
_LOCK_TRIES, _LOCK_PAUSE_S = 20, 0.01
_LOOK_S = 0.002
_SIZE = ctypes.sizeof(layout.Control)


class Control:
    """The control of one process; ``lock`` is held while a stallscope watches it."""

    def __init__(self, descriptor: int, words: layout.Control, memory: mmap.mmap) -> None:
        self._descriptor: int | None = descriptor
        self._words, self._memory = words, memory
        self._sent: Path | None = None

    @classmethod
    def of(cls, target: Target) -> Control | None:
        """The control of a process; None without the library. Raises WatchError where it is of another version."""
        with suppress(OSError):
            for link in (target.folder / "fd").iterdir():
                with suppress(OSError):
                    if os.readlink(link).startswith(f"/memfd:{layout.CONTROL_NAME}"):
                        found = cls._opened(link, target)
                        if found is not None:
                            return found
        return None

    @classmethod
    def _opened(cls, path: Path, target: Target) -> Control | None:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if os.fstat(descriptor).st_size != _SIZE:
                raise WatchError(f"the library in {target.title} is of another version of stallscope: restart it.")
            memory = mmap.mmap(descriptor, _SIZE)
            words = layout.Control.from_buffer(memory)
            known = (words.magic, words.pid, words.start_ticks)
            # A forked process has the descriptors of its parent.
            if known != (layout.CONTROL_MAGIC, target.own_pid, target.start_ticks):
                os.close(descriptor)
                return None
            if words.format != layout.CONTROL_FORMAT:
                raise WatchError(f"the library in {target.title} is of another version of stallscope: restart it.")
        except BaseException:
            with suppress(OSError):
                os.close(descriptor)
            raise
        return cls(descriptor, words, memory)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the lock and the memory. A library that still records falls asleep then."""
        if self._descriptor is not None:
            # The mapping has a copy of the descriptor, which would keep the lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def state(self) -> ControlState:
        """What the library does."""
        return ControlState(self._words.state)

    @property
    def recording(self) -> WatchState:
        """The state of the last recording that was asked for."""
        return WatchState(self._words.recording)

    @property
    def step(self) -> str:
        """The function that the library calls, or called last."""
        return bytes(self._words.step).decode(errors="replace")

    @property
    def code(self) -> int:
        """CUPTI's code where a recording could not begin."""
        return int(self._words.code)

    @property
    def held_ns(self) -> int:
        """The longest time (ns) in which calls may have been held up since the last recording began."""
        return int(self._words.held_ns)

    @property
    def is_done(self) -> bool:
        """Whether the library has done what it was asked for."""
        return int(self._words.answered) == int(self._words.asked)

    def is_free(self) -> bool:
        """Whether no other stallscope has the lock."""
        if not self._locked(fcntl.LOCK_SH):
            return False
        fcntl.flock(self._held, fcntl.LOCK_UN)
        return True

    def lock(self) -> bool:
        """Take the lock; False if another stallscope has it."""
        return self._locked(fcntl.LOCK_EX)

    def record(
        self,
        folder: Path,
        options: WatchOptions,
        cupti: Path | None,
        stub: tuple[int, int] = (0, 0),
        sends_cupti: bool = False,
    ) -> None:
        """Ask for a recording to ``folder``, by its path in the process. Raises WatchError for a path that is too long.

        ``stub`` is the memory that the attacher left, its address and size. ``sends_cupti``: the process does not see
        the file ``cupti``, which is sent while ``wait`` waits.
        """
        self._sent = cupti if sends_cupti else None
        name, library = os.fsencode(folder), os.fsencode("" if cupti is None or sends_cupti else cupti)
        if len(name) >= layout.FOLDER_TEXT or len(library) >= layout.CUPTI_TEXT:
            raise WatchError(f"the path {folder} is too long: set TMPDIR to a shorter one.")
        words = self._words
        flags = Flag.CALLS_ONLY if options.calls_only else 0
        flags |= Flag.YIELD if options.yield_to_profiler else 0
        flags |= 0 if options.stacks else Flag.NO_STACKS
        words.wish, words.flags = 1, int(flags)
        words.slow_ns, words.cost_ppm = options.slow_ns, round(options.cost * EVERYTHING_PPM)
        words.folder, words.cupti = name, library
        words.stub_at, words.stub_bytes = stub
        words.sends_cupti = int(self._sent is not None)
        self._ask()

    def sleep(self) -> None:
        """Ask for sleep."""
        self._words.wish = 0
        self._ask()

    def wait(self, seconds: float, target: Target) -> bool:
        """Wait, at most so long, until the library has done what it was asked for; whether it has."""
        due = time.monotonic() + seconds
        while not self.is_done:
            if self._sent is not None and self._words.cupti_descriptor:
                self._send(target, self._sent)
                self._sent = None
            if time.monotonic() >= due or target.has_ended:
                return self.is_done
            time.sleep(_LOOK_S)
        return True

    def _send(self, target: Target, library: Path) -> None:
        """Write a library to the memory that the process has for it; without it, nothing can be recorded there."""
        with suppress(OSError):
            memory = target.folder / "fd" / str(int(self._words.cupti_descriptor) - 1)
            with open(library, "rb") as source, open(memory, "wb", buffering=0) as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
            self._words.cupti_sent = 1

    @property
    def _held(self) -> int:
        assert self._descriptor is not None, "the control is closed"
        return self._descriptor

    def _locked(self, kind: int) -> bool:
        for _ in range(_LOCK_TRIES):
            with suppress(BlockingIOError):
                fcntl.flock(self._held, kind | fcntl.LOCK_NB)
                return True
            time.sleep(_LOCK_PAUSE_S)
        return False

    def _ask(self) -> None:
        self._words.asked = (int(self._words.asked) + 1) % (1 << 32)
        address = ctypes.addressof(self._words) + offset_of(layout.Control, "asked")
        library = ctypes.CDLL(None)
        library.syscall(
            ctypes.c_long(_FUTEX[platform.machine()]), ctypes.c_void_p(address), ctypes.c_long(_FUTEX_WAKE),
            ctypes.c_long(1), None, None, ctypes.c_long(0),
        )  # fmt: skip
