"""Frames of Python in stacks, for each version that this machine has: as the interpreter itself knows them."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path

import pytest

from factories.pythons import VERSIONS, python_of
from factories.stand_in import COMPILER, StandIn
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


# The library has no pipe.
NO_PIPE = """\
#include <errno.h>
int pipe2(int ends[2], int flags)
{
    errno = EMFILE;
    return -1;
}
"""
# As a filter of system calls that refuses process_vm_readv (310 on x86-64).
NO_READING = """\
#include <errno.h>
long syscall(long number, long a, long b, long c, long d, long e, long f)
{
    long result;
    register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
    if (number == 310) {
        errno = EPERM;
        return -1;
    }
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) :
                     "rcx", "r11", "memory");
    if (result < 0 && result > -4096) {
        errno = (int)-result;
        return -1;
    }
    return result;
}
"""


def replacing(folder: Path, text: str) -> dict[str, str]:
    """The variable by which functions of the C library are replaced, whose source is ``text``."""
    if not text:
        return {}
    assert COMPILER is not None
    source, library = folder / "replaced.c", folder / "replaced.so"
    source.write_text(text)
    subprocess.run([COMPILER, "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    return {"LD_PRELOAD": str(library)}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("replaced", ["", NO_PIPE, NO_READING], ids=["", "no-pipe", "no-reading"])
def test_frames_are_as_the_interpreter_knows_them(
    stand_in: StandIn, tmp_path: Path, version: str, replaced: str
) -> None:
    if replaced == NO_READING and platform.machine() != "x86_64":
        pytest.skip("the numbers of system calls are those of x86-64")
    python, folder = python_of(version), tmp_path / "out"
    folder.mkdir(mode=0o700)
    settings = replacing(tmp_path, replaced)
    done = subprocess.run(
        [python, str(PROGRAM), str(stand_in.folder / "libcuda.so.1"), *CASES],
        env={**os.environ, **stand_in.environment(folder, settings=settings)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
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
