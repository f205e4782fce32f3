"""py-spy, where it is installed: frames and names of a process's Python threads, read from outside.

The process is not stopped: a thread that runs may be read wrongly, a thread that waits is read well.
"""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from stallprobes.errors import WatchError
from stallprobes.foreign_text import printable
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame

# Name of py-spy's program.
PROGRAM = "py-spy"
# Longest run (s) of py-spy.
TIMEOUT_S = 10.0
# Longest wait (s) for py-spy's exit, after its output was closed or TIMEOUT_S has passed. After a longer wait, py-spy
# is killed.
_ENDING_S = 1.0
# Largest size (bytes) of py-spy's output that is read.
MOST_BYTES = 16 << 20
# Largest number of frames of a thread that are kept of py-spy's output.
MOST_FRAMES = 256
# Largest number of characters of a thread's name that are kept of py-spy's output.
_LONGEST_NAME = 64
# Largest number of characters of a function's name, and of a file's path, that are kept of py-spy's output.
_LONGEST_TEXT = 4096
# Largest number of characters of py-spy's error message.
_LONGEST_PROBLEM = 200


@dataclass(frozen=True)
class PythonThreads:
    """Result of one run of py-spy between two times (ns, CLOCK_MONOTONIC): names and stacks by thread id.

    ``problem`` is a clause that says why it found nothing.
    """

    begin_ns: int
    end_ns: int
    names: Mapping[int, str] = field(default_factory=dict)
    stacks: Mapping[int, CallStack] = field(default_factory=dict)
    problem: str = ""


def find_py_spy() -> Path | None:
    """The program in the folders of PATH, or beside this Python; None without one."""
    in_path = shutil.which(PROGRAM)
    beside = Path(sys.executable).with_name(PROGRAM)
    return Path(in_path) if in_path else beside if os.path.isfile(beside) else None


# Begins py-spy, which writes to two descriptors, and returns what ends it and returns its exit code, None if not known.
SpyStarter = Callable[[int, int], Callable[[], int | None]]


def spy_command(program: Path | str, pid: int) -> list[str]:
    """The command of one run on a process."""
    return [str(program), "dump", "--json", "--nonblocking", "--pid", str(pid)]


def started_here(program: Path, pid: int) -> SpyStarter:
    """The starter of ``program`` as a child of this process."""

    def start(output: int, errors: int) -> Callable[[], int | None]:
        run = subprocess.Popen(
            spy_command(program, pid), stdin=subprocess.DEVNULL, stdout=output, stderr=errors, start_new_session=True
        )
        return partial(end_spy, run)

    return start


def end_spy(run: subprocess.Popen[bytes]) -> int | None:
    """End a run whose output is closed, or which takes too long. Returns its exit code, None if it was ended."""
    try:
        return run.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        run.kill()
        run.wait()
        return None


class PySpyRun:
    """One run of py-spy on a process, in a thread that takes no signal of this program. ``found`` is None meanwhile."""

    def __init__(self, start: SpyStarter) -> None:
        self._start = start
        self.found: PythonThreads | None = None
        self._thread = threading.Thread(target=self._run, name="py-spy", daemon=True)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._thread.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def wait(self, seconds: float) -> None:
        """Wait for its end, at most so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        begin_ns = time.monotonic_ns()
        try:
            output, errors, code = self._output()
        except (OSError, WatchError) as error:
            self.found = PythonThreads(begin_ns, time.monotonic_ns(), problem=_clause(str(error)))
            return
        end_ns = time.monotonic_ns()
        if code:
            lines = errors.decode("utf-8", "replace").strip().splitlines()
            problem = _clause(lines[0] if lines else f"exit code {code}")
            self.found = PythonThreads(begin_ns, end_ns, problem=problem)
        else:
            self.found = parsed(output, begin_ns, end_ns)

    def _output(self) -> tuple[bytes, bytes, int | None]:
        """What py-spy writes to both descriptors until their end, at most MOST_BYTES, and its exit code."""
        pipes = [os.pipe(), os.pipe()]
        written = {reading: bytearray() for reading, _ in pipes}
        try:
            try:
                end = self._start(*(writing for _, writing in pipes))
            finally:
                for _, writing in pipes:
                    os.close(writing)
            try:
                _read_all(written)
            finally:
                code = end()
        finally:
            for reading, _ in pipes:
                os.close(reading)
        output, errors = (bytes(text) for text in written.values())
        return output, errors, code


def _read_all(written: Mapping[int, bytearray]) -> None:
    """Read descriptors until their end, or until the time or the room for what they give is used up."""
    due_s = time.monotonic() + TIMEOUT_S
    with selectors.DefaultSelector() as open_ones:
        for reading in written:
            open_ones.register(reading, selectors.EVENT_READ)
        while open_ones.get_map() and (left_s := due_s - time.monotonic()) > 0:
            for key, _ in open_ones.select(left_s):
                part = os.read(key.fd, 1 << 16)
                text = written[key.fd]
                if not part or len(text) > MOST_BYTES:
                    open_ones.unregister(key.fd)
                text += part


def parsed(text: bytes, begin_ns: int, end_ns: int) -> PythonThreads:
    """Threads in the JSON that py-spy wrote between two times, without unexpected parts."""
    try:
        threads = json.loads(text) if len(text) <= MOST_BYTES else None
    except (ValueError, RecursionError):
        threads = None
    if not isinstance(threads, list):
        return PythonThreads(begin_ns, end_ns, problem="it wrote no list of threads")
    names: dict[int, str] = {}
    stacks: dict[int, CallStack] = {}
    for thread in threads:
        number = thread.get("os_thread_id") if isinstance(thread, dict) else None
        if not isinstance(number, int):
            continue
        if name := _text(thread.get("thread_name"), _LONGEST_NAME):
            names[number] = name
        frames = thread.get("frames")
        if isinstance(frames, list) and frames:
            python = tuple(_python_frame(frame) for frame in frames[:MOST_FRAMES] if isinstance(frame, dict))
            stacks[number] = CallStack(python, (), len(frames) <= MOST_FRAMES)
    return PythonThreads(begin_ns, end_ns, names, stacks)


def _python_frame(frame: Mapping[str, Any]) -> StackFrame:
    line = frame.get("line")
    return StackFrame(
        kind=FrameKind.PYTHON,
        function=_text(frame.get("name"), _LONGEST_TEXT),
        file=_text(frame.get("filename"), _LONGEST_TEXT),
        line=line if isinstance(line, int) and line > 0 else None,
    )


def _text(value: object, most: int) -> str:
    return printable(value[:most]) if isinstance(value, str) else ""


def _clause(text: str) -> str:
    return printable(text)[:_LONGEST_PROBLEM].rstrip(". ")
