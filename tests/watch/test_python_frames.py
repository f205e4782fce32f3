"""Frames of Python in stacks, for each version that this machine has: as the interpreter itself knows them."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from factories.pythons import VERSIONS, python_of
from factories.stand_in import StandIn
from factories.watched_programs import PROGRAMS
from stallprobes.foreign_text import printable
from stallprobes.watch.reading.map_reader import MapFile, watch_files
from stallprobes.watch.reading.stack_reader import StackReader

PROGRAM = PROGRAMS / "framed_calls.py"
CASES = (
    "c", "comprehension", "coroutine", "deep", "end", "exception", "generator", "init", "long", "long_name", "names",
    "one_name",
)  # fmt: skip
MOST_FRAMES, MOST_CHARACTERS = 100, 500


def shown(text: str) -> str:
    """A name as it is recorded."""
    return printable(text[:MOST_CHARACTERS] + ("..." if len(text) > MOST_CHARACTERS else ""))


@pytest.mark.parametrize("version", VERSIONS)
def test_frames_are_as_the_interpreter_knows_them(stand_in: StandIn, tmp_path: Path, version: str) -> None:
    python, folder = python_of(version), tmp_path / "out"
    folder.mkdir(mode=0o700)
    done = subprocess.run(
        [python, str(PROGRAM), str(stand_in.folder / "libcuda.so.1"), *CASES],
        env={**os.environ, **stand_in.environment(folder)}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    (path,) = watch_files(folder)
    reader = StackReader()
    with MapFile(path) as file:
        process = file.read()
        reader.read(file, process)
    slow = sorted((call for thread in process.threads for call in thread.slow_calls), key=lambda call: call.end_ns)
    for case, call, frames in zip(CASES, slow, json.loads(done.stdout), strict=True):
        expected = [(shown(file), line, shown(name)) for file, line, name in frames]
        stack = reader.stacks[call.stack]
        found = [(frame.file, frame.line, frame.function) for frame in stack.python]
        if case == "deep":
            assert not stack.complete, case
            assert 50 <= len(found) <= MOST_FRAMES, case
            assert found == expected[: len(found)], case
        else:
            assert stack.complete, case
            assert found == expected, case
