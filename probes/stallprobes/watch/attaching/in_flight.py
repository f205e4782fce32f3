"""Threads of a process that are inside the CUDA driver, seen from outside: their calls began before the recording.

A thread that is blocked there has addresses of libcuda on its stack. One that runs shows nothing from outside.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from stallprobes.foreign_text import printable
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.reading.kernel_wait import kernel_wait

# Number of bytes of a thread's stack that are searched for a driver call in flight. Reason: a call from Python into the
# driver has frames of some kilobytes.
_STACK_BYTES = 1 << 14
# Largest number of a process's threads, blocked in system calls, whose stacks are searched for a driver call. Further
# threads are left out.
MAX_THREADS = 4096
# Beginnings of the names of libcuda's and stallscope's own threads, whose stacks are not searched for driver calls.
_OWN_THREADS = ("cuda", "stallscope-")


@dataclass(frozen=True)
class ThreadInDriver:
    """A thread that is blocked in a call of the driver: ``wait`` is the function of the kernel in which it waits."""

    thread: int
    name: str
    wait: str


def blocked_threads(target: Target) -> dict[int, int]:
    """Stack pointers of the threads of a process that are blocked in a system call, by thread.

    Raises OSError where there is no such process.
    """
    pointers: dict[int, int] = {}
    for folder in (target.folder / "task").iterdir():
        try:
            name = (folder / "comm").read_text(errors="replace").strip()
            # Number and arguments of the system call, stack pointer, program counter.
            words = (folder / "syscall").read_text().split()
            if len(words) >= 3 and not name.startswith(_OWN_THREADS):
                pointers[int(folder.name)] = int(words[-2], 16)
        except (OSError, ValueError):
            continue
        if len(pointers) == MAX_THREADS:
            break
    return pointers


def threads_in_driver(target: Target, image: ProcessImage, pointers: Mapping[int, int]) -> Iterator[int]:
    """The threads among those with stack ``pointers`` whose stacks have addresses of libcuda. Raises OSError."""
    code = [mapping for mapping in target.mappings() if "x" in mapping.mode and "/libcuda.so" in mapping.path]
    for thread, pointer in pointers.items():
        try:
            stack = image.read(pointer, _STACK_BYTES)
        except OSError:
            continue
        addresses = struct.unpack(f"<{len(stack) // 8}Q", stack[: len(stack) // 8 * 8])
        if any(part.start <= address < part.end for address in addresses for part in code):
            yield thread


def described(target: Target, threads: list[int]) -> list[ThreadInDriver]:
    """``threads`` of a process with their names and the places where they wait."""
    waiting = []
    for thread in sorted(threads):
        folder = target.folder / "task" / str(thread)
        name = Target(thread, target.folder / "task").name
        waiting.append(ThreadInDriver(thread, printable(name), kernel_wait(folder)))
    return waiting
