"""The library in a program that was started with it asleep: it is woken and put to sleep by its control alone."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import platform
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np

from factories.attaching import RunningProgram
from factories.stand_in import StandIn
from factories.waiting import wait_until
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import attaching as layout
from stallprobes.native.layouts import watch_file
from stallprobes.native.layouts.attaching import ControlState
from stallprobes.native.layouts.structure import offset_of
from stallprobes.native.layouts.watch_file import DEFAULT_SLOW_NS, EVERYTHING_PPM
from stallprobes.native.sources import INJECTED
from stallprobes.watch.environment import WatchOptions, asleep_variables

_FUTEX = {"x86_64": 202, "aarch64": 98}
_NOTHING: Mapping[str, str] = MappingProxyType({})


def figure_of(pid: int, name: str) -> int:
    """A figure of a process from /proc/PID/status; of memory in KiB."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)


class Woken(RunningProgram):
    """A program beside the stand-ins whose library can be woken. A context manager."""

    def __init__(
        self,
        stand_in: StandIn,
        *words: str,
        program: str = "attached",
        user: int | None = None,
        settings: Mapping[str, str] = _NOTHING,
    ) -> None:
        self._cupti = stand_in.folder / "libcupti.so.13"
        asleep = asleep_variables(stand_in.folder / INJECTED, WatchOptions(), {})
        super().__init__(stand_in, *words, program=program, user=user, settings={**asleep, **settings})
        self._control: layout.Control | None = None
        self._memory: mmap.mmap | None = None

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    @property
    def proc(self) -> Path:
        """Its folder in /proc."""
        return Path("/proc") / str(self.pid)

    def memfds(self, name: str) -> list[Path]:
        """Its descriptors of memfds whose names begin so."""
        found = []
        for link in (self.proc / "fd").iterdir():
            # A thread may close one meanwhile.
            with suppress(OSError):
                if os.readlink(link).startswith(f"/memfd:{name}"):
                    found.append(link)
        return found

    @property
    def control(self) -> layout.Control:
        """Its control, whose lock is held from then on."""
        if self._control is None:
            wait_until(lambda: self.memfds(layout.CONTROL_NAME), "a control")
            (link,) = self.memfds(layout.CONTROL_NAME)
            descriptor = os.open(link, os.O_RDWR | os.O_CLOEXEC)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._memory = mmap.mmap(descriptor, ctypes.sizeof(layout.Control))
            self._control = layout.Control.from_buffer(self._memory)
            wait_until(lambda: self.control.magic == layout.CONTROL_MAGIC, "a complete control")
        return self._control

    def wake(self, flags: int = 0, cost_ppm: int = EVERYTHING_PPM) -> ControlState:
        """Have it record."""
        control = self.control
        control.wish, control.flags, control.slow_ns, control.cost_ppm = 1, flags, DEFAULT_SLOW_NS, cost_ppm
        control.cupti = os.fsencode(self._cupti)
        return self._ask()

    def put_to_sleep(self) -> ControlState:
        """Have it record no more."""
        self.control.wish = 0
        return self._ask()

    def header(self) -> np.void:
        """The header of its recording."""
        # The library may have it open twice for a moment.
        link = self.memfds(layout.RECORDING_NAME)[0]
        found: np.void = np.fromfile(link, dtype_of(watch_file.FileHeader), 1)[0]
        return found

    def figure(self, name: str) -> int:
        """A figure of /proc/PID/status; of memory in KiB."""
        return figure_of(self.pid, name)

    def recorded(self, calls: int) -> None:
        """Wait until it has made so many launches more."""
        before = self.launches()
        wait_until(lambda: self.launches() > before + calls, "launches")

    def _ask(self) -> ControlState:
        control = self.control
        control.asked = (control.asked + 1) % (1 << 32)
        address = ctypes.addressof(control) + offset_of(layout.Control, "asked")
        ctypes.CDLL(None).syscall(
            ctypes.c_long(_FUTEX[platform.machine()]), ctypes.c_void_p(address), ctypes.c_long(1), ctypes.c_long(1),
            None, None, ctypes.c_long(0),
        )  # fmt: skip
        wait_until(lambda: control.answered == control.asked, "an answer")
        return ControlState(control.state)

    def kill(self) -> None:
        """End it."""
        os.kill(self.pid, signal.SIGKILL)
