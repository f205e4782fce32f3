"""The control of the library in a process: memory of that process by which stallscope wakes it and lets it sleep."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import re
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from stallprobes.errors import WatchError
from stallprobes.native.layouts import attaching as layout
from stallprobes.native.layouts.attaching import ControlState
from stallprobes.native.layouts.structure import offset_of
from stallprobes.native.layouts.watch_file import EVERYTHING_PPM, Flag, Lack, WatchState
from stallprobes.watch.attaching import memory_files
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.lack_text import lack_of

# Number of the system call futex by machine.
_FUTEX = {"x86_64": 202, "aarch64": 98}
# Operation FUTEX_WAKE of futex, which wakes the library's thread.
_FUTEX_WAKE = 1
# The control (the memory for requests to the library) has a lock, which the library holds for short times. _LOCK_TRIES:
# number of attempts to get the lock. After the last attempt, the lock counts as held by another stallscope.
# _LOCK_PAUSE_S: pause (s) between two attempts.
_LOCK_TRIES, _LOCK_PAUSE_S = 20, 0.01
# Period (s) at which the library's answer is polled.
_LOOK_S = 0.002
# Period (s) of the checks, during a wait for the library's answer, whether the process has replaced its program
# (execve). A process that has done so ends the wait.
_REPLACED_S = 0.1
# Size (bytes) of a control, the memory for requests to the library.
_SIZE = ctypes.sizeof(layout.Control)
# Pattern of the name of the function that the library calls, or called last. Any other text from the library is
# ignored.
_FUNCTION = re.compile(r"\w+")


class Control:
    """The control of one process; ``lock`` is held while a stallscope watches it."""

    def __init__(self, descriptor: int, words: layout.Control, memory: mmap.mmap) -> None:
        self._descriptor: int | None = descriptor
        self._words, self._memory = words, memory
        self._sent: Path | None = None
        self._file: int | None = None

    @classmethod
    def of(cls, target: Target) -> Control | None:
        """The control of a process; None without the library. Raises WatchError where it is of another version."""
        try:
            numbers = list(memory_files.numbers_of(target, layout.CONTROL_NAME))
        except OSError:
            return None
        for number, _ in numbers:
            with suppress(OSError):
                control = cls._taken(target, number)
                if control is not None:
                    return control
        return None

    @classmethod
    def _taken(cls, target: Target, number: int) -> Control | None:
        descriptor = memory_files.take(target, number, os.O_RDWR)
        try:
            # With another size, or without its seals, the memory could be cut off while it is read.
            is_sealed = memory_files.seals(descriptor) & fcntl.F_SEAL_SHRINK
            if os.fstat(descriptor).st_size != _SIZE or not is_sealed:
                raise WatchError(f"the library in {target.title} is of another version of stallscope: restart it.")
            try:
                memory = mmap.mmap(descriptor, _SIZE)
            except PermissionError as error:
                # Another seal: nobody can write to it any more, the library neither.
                raise WatchError(f"{target.title} has sealed the memory of the library in it: restart it.") from error
            words = layout.Control.from_buffer(memory)
            owner = (words.magic, words.pid, words.start_ticks)
            # A forked process has the descriptors of its parent.
            if owner != (layout.CONTROL_MAGIC, target.own_pid, target.start_ticks):
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
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if self._descriptor is not None:
            # The mapping has a copy of the descriptor, which would keep the lock.
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            os.close(self._descriptor)
            self._descriptor = None

    @property
    def state(self) -> ControlState | None:
        """What the library does; None for a number that it never writes."""
        with suppress(ValueError):
            return ControlState(self._words.state)
        return None

    @property
    def recording(self) -> WatchState | None:
        """The state of the last recording that was asked for; None for a number that the library never writes."""
        with suppress(ValueError):
            return WatchState(self._words.recording)
        return None

    @property
    def step(self) -> str:
        """The function that the library calls, or called last."""
        name = bytes(self._words.step).decode("ascii", "replace")
        return name if _FUNCTION.fullmatch(name) else "a function of the library"

    @property
    def code(self) -> int:
        """CUPTI's code where a recording could not begin."""
        return int(self._words.code)

    @property
    def lack(self) -> tuple[Lack, int, int]:
        """What the process lacks where it has no file: how much is needed, and is there, by its own account."""
        words = self._words
        return lack_of(words.lack), int(words.lack_needed), int(words.lack_available)

    @property
    def held_ns(self) -> int:
        """The longest time (ns) in which calls may have been held up since the last recording began, by the process."""
        return int(self._words.held_ns)

    @property
    def is_done(self) -> bool:
        """True if the library has done what it was asked for."""
        return int(self._words.answered) == int(self._words.asked)

    def is_free(self) -> bool:
        """True if no other stallscope has the lock."""
        if not self._locked(fcntl.LOCK_SH):
            return False
        fcntl.flock(self._held, fcntl.LOCK_UN)
        return True

    def lock(self) -> bool:
        """Take the lock; False if another stallscope has it."""
        return self._locked(fcntl.LOCK_EX)

    def record(
        self,
        options: WatchOptions,
        cupti: Path | None,
        stub: tuple[int, int] = (0, 0),
        sends_cupti: bool = False,
        beside: bool = False,
    ) -> None:
        """Ask for a recording. Raises WatchError where the path of ``cupti`` is too long.

        ``stub`` is the memory that the attacher left, its address and size. ``sends_cupti``: the process does not see
        the file ``cupti``, which is sent while ``wait`` waits. ``beside``: ``cupti`` may be loaded beside an older
        libcupti of the process.
        """
        self._sent = cupti if sends_cupti else None
        library = os.fsencode("" if cupti is None or sends_cupti else cupti)
        if len(library) >= layout.CUPTI_TEXT:
            raise WatchError(f"the path {cupti} is too long: install nvidia-cuda-cupti in another folder.")
        words = self._words
        flags = Flag.CALLS_ONLY if options.calls_only else 0
        flags |= Flag.YIELD if options.yield_to_profiler else 0
        flags |= Flag.BESIDE if beside else 0
        flags |= 0 if options.stacks else Flag.NO_STACKS
        words.wish, words.flags = 1, int(flags)
        words.slow_ns, words.cost_ppm = options.slow_ns, round(options.cost * EVERYTHING_PPM)
        words.cupti = library
        words.stub_at, words.stub_bytes = stub
        words.sends_cupti = int(self._sent is not None)
        self._ask()

    def sleep(self) -> None:
        """Ask for sleep."""
        self._words.wish = 0
        self._ask()

    def wait(self, seconds: float, target: Target) -> bool:
        """Wait, at most so long, until the library has done what it was asked for; whether it has.

        Where the process has ended, or executes another program, it is not waited for.
        """
        begun = time.monotonic()
        due, look_again = begun + seconds, begun + _REPLACED_S
        while not self.is_done:
            if self._file is None and self._words.file_descriptor:
                self._take_file(target)
            if self._sent is not None and self._words.cupti_descriptor:
                self._send(target, self._sent)
                self._sent = None
            now = time.monotonic()
            if now >= due or target.has_ended:
                return self.is_done
            if now >= look_again:
                look_again = now + _REPLACED_S
                with suppress(OSError):
                    if not target.has_library:
                        return self.is_done
            time.sleep(_LOOK_S)
        return True

    def take_file(self) -> int | None:
        """The descriptor of the recording's file, which passes to the caller; None if there is none (any more)."""
        descriptor, self._file = self._file, None
        return descriptor

    def _take_file(self, target: Target) -> None:
        with suppress(OSError):
            self._file = memory_files.take(target, int(self._words.file_descriptor) - 1, os.O_RDONLY)
        self._words.file_taken = 1

    def _send(self, target: Target, library: Path) -> None:
        """Write a library to the memory that the process has for it; without it, nothing can be recorded there."""
        with suppress(OSError):
            number = int(self._words.cupti_descriptor) - 1
            memory = memory_files.take(target, number, os.O_WRONLY)
            try:
                if os.fstat(memory).st_size:
                    return
                with open(library, "rb") as source:
                    at = 0
                    while part := source.read(1 << 20):
                        written = os.pwrite(memory, part, at)
                        source.seek(at := at + written)
            finally:
                os.close(memory)
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
