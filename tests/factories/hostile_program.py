"""Programs that mean harm to who attaches to them, as forked processes of a user without rights."""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from factories.attaching import NOBODY
from stallprobes.native.layouts import attaching as layout
from stallprobes.native.layouts.attaching import ControlState
from stallprobes.native.layouts.structure import offset_of
from stallprobes.native.layouts.watch_file import WatchState
from stallprobes.watch.attaching.target import Target

_PR_SET_DUMPABLE = 4
_SEALED = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class ForgedControl:
    """Memory as that of the injected library, in this process. ``words`` are its fields."""

    def __init__(self, seals: int = _SEALED, size: int = ctypes.sizeof(layout.Control)) -> None:
        self.descriptor = os.memfd_create(layout.CONTROL_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        words = layout.Control()
        own = Target(os.getpid())
        words.magic, words.format = layout.CONTROL_MAGIC, layout.CONTROL_FORMAT
        words.pid, words.start_ticks = os.getpid(), own.start_ticks
        os.pwrite(self.descriptor, bytes(words), 0)
        os.ftruncate(self.descriptor, size)
        fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, seals)
        # As the library has it, seen in the memory of the process.
        self._mapped = mmap.mmap(self.descriptor, size, mmap.MAP_SHARED, mmap.PROT_READ)

    def read(self, field: str) -> int:
        """A field."""
        words = layout.Control.from_buffer_copy(os.pread(self.descriptor, ctypes.sizeof(layout.Control), 0))
        return int(getattr(words, field))

    def write(self, field: str, value: int) -> None:
        """Change a field."""
        described: Any = getattr(layout.Control, field)
        os.pwrite(
            self.descriptor, (value % (1 << 8 * described.size)).to_bytes(described.size, "little"), described.offset
        )

    def scramble(self, seed: int) -> None:
        """Answer requests, and change bytes of the memory all the time: those that make it a control less often."""
        self.serve({})
        dice, size = random.Random(seed), ctypes.sizeof(layout.Control)
        first = offset_of(layout.Control, "asked")

        def change() -> None:
            while True:
                at = dice.randrange(0 if dice.random() < 0.01 else first, size - 8)
                number = dice.choice((0, 1, 2, 3, 77, 2**31, 2**32 - 1, 2**63, 2**64 - 1, dice.randrange(2**64)))
                before = os.pread(self.descriptor, 8, at)
                os.pwrite(self.descriptor, number.to_bytes(8, "little"), at)
                if at < first:
                    os.pwrite(self.descriptor, before, at)
                time.sleep(0.0005)

        threading.Thread(target=change, daemon=True).start()

    def serve(self, fields: dict[str, int]) -> None:
        """Answer each request with ``fields`` in the memory, as a library that records."""

        def answer() -> None:
            while True:
                if self.read("asked") != self.read("answered"):
                    self.write("state", ControlState.AWAKE if self.read("wish") else ControlState.ASLEEP)
                    self.write("recording", WatchState.RECORDING)
                    for field, value in fields.items():
                        self.write(field, value)
                    # What is offered is looked at before the answer.
                    time.sleep(0.1)
                    self.write("answered", self.read("asked"))
                time.sleep(0.001)

        threading.Thread(target=answer, daemon=True).start()


@contextmanager
def hostile(act: Callable[[], None], user: int = NOBODY) -> Iterator[int]:
    """A process of ``user`` that has done ``act`` and then sleeps: its number."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.setgroups([])
            os.setgid(user)
            os.setuid(user)
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 1, 0, 0, 0)
            act()
            os.write(writing, b"r")
            while True:
                signal.pause()
        finally:
            os._exit(1)
    os.close(writing)
    try:
        assert os.read(reading, 1) == b"r"
        yield child
    finally:
        os.close(reading)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
