"""py-spy, where it is installed: the frames and names of a process's Python threads, read from outside.

The process is not stopped for it, so what it does meanwhile may be read wrongly; a thread that waits is read well.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stallprobes.foreign_text import printable
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame

PROGRAM = "py-spy"
TIMEOUT_S = 10.0
MOST_BYTES = 16 << 20
MOST_FRAMES = 256
_LONGEST_NAME = 64
_LONGEST_TEXT = 4096
_LONGEST_PROBLEM = 200


@dataclass(frozen=True)
class PythonThreads:
    """What one run of py-spy found between two times (ns, CLOCK_MONOTONIC): names and stacks by thread id.

    ``problem`` is a clause that says why it found nothing.
    """

    begin_ns: int
    end_ns: int
    names: Mapping[int, str] = field(default_factory=dict)
    stacks: Mapping[int, CallStack] = field(default_factory=dict)
    problem: str = ""


def find_py_spy() -> Path | None:
    """The program in the folders of PATH, or beside this Python; None without one."""
    found = shutil.which(PROGRAM)
    beside = Path(sys.executable).with_name(PROGRAM)
    return Path(found) if found else beside if beside.is_file() else None


class PySpyRun:
    """One run of py-spy on a process, in a thread that takes no signal of this program. ``found`` is None meanwhile."""

    def __init__(self, program: Path, pid: int) -> None:
        self._command = (str(program), "dump", "--json", "--nonblocking", "--pid", str(pid))
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
            done = subprocess.run(
                self._command, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT_S, start_new_session=True
            )
        except (OSError, subprocess.SubprocessError) as error:
            self.found = PythonThreads(begin_ns, time.monotonic_ns(), problem=_clause(str(error)))
            return
        end_ns = time.monotonic_ns()
        if done.returncode:
            lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
            problem = _clause(lines[0] if lines else f"exit code {done.returncode}")
            self.found = PythonThreads(begin_ns, end_ns, problem=problem)
        else:
            self.found = parsed(done.stdout, begin_ns, end_ns)


def parsed(text: bytes, begin_ns: int, end_ns: int) -> PythonThreads:
    """What py-spy wrote as JSON between two times. What is not as expected is left out."""
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
            found = tuple(_python_frame(frame) for frame in frames[:MOST_FRAMES] if isinstance(frame, dict))
            stacks[number] = CallStack(found, (), len(frames) <= MOST_FRAMES)
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
