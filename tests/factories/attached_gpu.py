"""Programs on a GPU that are attached while they run, and what they say of it themselves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from factories.watched_programs import PROGRAMS
from stallprobes.watch.attaching.attached_processes import AttachedProcesses
from stallprobes.watch.attaching.attachment import Attachment
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.map_reader import IncompleteFile

# A first subscription may take seconds on a busy GPU.
_ROWS_S = 60.0


@dataclass(frozen=True)
class Answer:
    """What a program says: what it has done so far, the longest since it was last asked, and the median (ns)."""

    done: int
    longest_ns: int
    median_ns: int


@dataclass(frozen=True)
class Attached:
    """One attachment: times (ns, s) as stallscope states them, and as the program measured them.

    ``rows_s`` passed from the begin of attaching until a call was recorded. ``longest_ns`` is the longest launch or
    step meanwhile, ``usual_ns`` the median one; ``records`` were recorded.
    """

    stopped_ns: int
    held_up_ns: int
    attach_s: float
    rows_s: float
    detach_s: float
    longest_ns: int
    usual_ns: int
    calls: int
    records: int


class GpuProgram:
    """A program of ``tests/programs`` that answers lines. A context manager; its end is checked by ``end``."""

    def __init__(self, command: list[str], user: int | None = None) -> None:
        """``user`` is the number of its user and group; None: those of this process.

        A framework finds its own libcupti: not that of stallscope, where this is found by PYTHONPATH.
        """
        self._process = subprocess.Popen(
            command,
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=PROGRAMS if user is None else "/",
            user=user,
            group=user,
            extra_groups=None if user is None else [],
        )
        line = self._line()
        if line != "ready":
            self._process.kill()
            raise RuntimeError(f"{' '.join(command)} does not start: {line} {self._process.communicate()[1][-2000:]}")

    @classmethod
    def python(cls, kind: str) -> GpuProgram:
        """``attached_steps.py``."""
        return cls([sys.executable, str(PROGRAMS / "attached_steps.py"), kind])

    def __enter__(self) -> GpuProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def ask(self) -> Answer:
        """What it answers to a line. Raises RuntimeError where a result is wrong, or it has ended."""
        stdin: IO[str] | None = self._process.stdin
        assert stdin is not None
        try:
            stdin.write("\n")
            stdin.flush()
        except BrokenPipeError:
            pass
        line = self._line()
        words = line.split()
        if len(words) != 4 or words[0] != "ok":
            self._process.kill()
            errors = self._process.communicate()[1]
            raise RuntimeError(f"the program says {line!r}, exit code {self._process.returncode}: {errors[-2000:]}")
        return Answer(*map(int, words[1:]))

    def end(self) -> None:
        """End its input. Raises RuntimeError unless it ends with 0."""
        _, errors = self._process.communicate(timeout=120)
        if self._process.returncode:
            raise RuntimeError(f"exit code {self._process.returncode}: {errors[-2000:]}")

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def build_loop(folder: Path) -> Path:
    """``attached_loop.cu``, compiled by nvcc in a folder."""
    target = folder / "attached_loop"
    subprocess.run(
        ["nvcc", "-O2", "-std=c++17", "-o", str(target), str(PROGRAMS / "attached_loop.cu")],
        check=True,
        capture_output=True,
    )
    return target


def attach_once(
    program: GpuProgram, seconds: float, options: WatchOptions, asks: bool = True, hangs: bool = False
) -> Attached:
    """Attach to a program for so long, and detach. Raises WatchError, and RuntimeError where a result is wrong.

    ``asks``: the program is asked before and after. One that ``hangs`` is asked during the detach, which opens its
    gate: what hangs may hold the driver's lock, for which CUPTI waits.
    """
    if asks:
        program.ask()
    processes = AttachedProcesses()
    try:
        begun_s = time.monotonic()
        attached = processes.attach(program.pid, options)
        attach_s = time.monotonic() - begun_s
        rows_s = _rows_after(processes, begun_s) if asks else 0.0
        time.sleep(max(seconds - (time.monotonic() - begun_s), 0))
        detach_begun_s = time.monotonic()
        if hangs:
            detach_hanging(program, attached)
        else:
            attached.detach()
        detach_s = time.monotonic() - detach_begun_s
        answer = program.ask() if asks else Answer(0, 0, 0)
        calls, records = _recorded(processes)
    finally:
        processes.close()
    return Attached(
        attached.stopped_ns, attached.held_up_ns, attach_s, rows_s, detach_s, answer.longest_ns, answer.median_ns,
        calls, records,
    )  # fmt: skip


def detach_hanging(program: GpuProgram, attached: Attachment) -> None:
    """Detach from a program that hangs, whose gate opens for a moment now and then."""
    with ThreadPoolExecutor(1) as pool:
        detaching = pool.submit(attached.detach)
        while not detaching.done():
            program.ask()
        detaching.result()


def _rows_after(processes: AttachedProcesses, begun_s: float) -> float:
    """How long after the begin a call was recorded first."""
    while time.monotonic() - begun_s < _ROWS_S:
        if _recorded(processes)[0]:
            return time.monotonic() - begun_s
        time.sleep(0.02)
    return _ROWS_S


def _recorded(processes: AttachedProcesses) -> tuple[int, int]:
    """The calls and the records of one process."""
    for path in processes.files():
        try:
            with processes.open(path) as file:
                process = file.read()
        except IncompleteFile:
            continue
        return process.calls, process.records
    return 0, 0
