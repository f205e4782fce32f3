"""Threads of a process that are inside the CUDA driver, seen from outside: their calls began before the recording.

A thread that is blocked there has addresses of libcuda on its stack. One that runs shows nothing from outside.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stallprobes.foreign_text import printable
from stallprobes.watch.attaching.target import Mapping, Target
from stallprobes.watch.process_inspector import kernel_wait

# Frames of a call from Python into the driver take some kilobytes.
_STACK_BYTES = 1 << 14
_OWN_THREADS = ("cuda", "stallscope-")


@dataclass(frozen=True)
class ThreadInDriver:
    """A thread that is blocked in a call of the driver: ``wait`` is the function of the kernel in which it waits."""

    thread: int
    name: str
    wait: str


def threads_in_driver(target: Target) -> list[ThreadInDriver]:
    """The threads of a process that are blocked inside the driver; none where its memory cannot be read."""
    try:
        code = [one for one in target.mappings() if "x" in one.mode and "/libcuda.so" in one.path]
        with open(target.folder / "mem", "rb", buffering=0) as memory:
            return sorted(_blocked(target, code, memory.fileno()), key=lambda one: one.thread)
    except OSError:
        return []


def _blocked(target: Target, code: Sequence[Mapping], memory: int) -> Iterator[ThreadInDriver]:
    for folder in (target.folder / "task").iterdir():
        try:
            name = (folder / "comm").read_text(errors="replace").strip()
            # Number and arguments of the system call, stack pointer, program counter.
            words = (folder / "syscall").read_text().split()
            if len(words) < 3 or name.startswith(_OWN_THREADS):
                continue
            stack = os.pread(memory, _STACK_BYTES, int(words[-2], 16))
        except (OSError, ValueError):
            continue
        addresses = struct.unpack(f"<{len(stack) // 8}Q", stack[: len(stack) // 8 * 8])
        if any(one.start <= address < one.end for address in addresses for one in code):
            thread = int(folder.name)
            yield ThreadInDriver(thread, printable(name), kernel_wait(target.pid, thread))
