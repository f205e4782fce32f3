"""Frames of Python in stacks, for each version that this machine has: as the interpreter itself knows them."""

from __future__ import annotations

import itertools
import json
import os
import platform
import subprocess
from collections.abc import Iterator
from contextlib import suppress
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


REPLACED = {"": "", "no-pipe": NO_PIPE, "no-reading": NO_READING}


@pytest.fixture(scope="module")
def started(
    stand_in: StandIn, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], tuple[subprocess.Popen[str], Path]]]:
    """The program in each version, with each of REPLACED, and the folder of its file.

    They run side by side, since they rest most of the time.
    """
    programs = {}
    for name, version in itertools.product(REPLACED, VERSIONS):
        with suppress(pytest.skip.Exception):
            python, folder = python_of(version), tmp_path_factory.mktemp("out")
            folder.chmod(0o700)
            settings = replacing(tmp_path_factory.mktemp("replaced"), REPLACED[name])
            programs[name, version] = subprocess.Popen(
                [python, str(PROGRAM), str(stand_in.folder / "libcuda.so.1"), *CASES],
                env={**os.environ, **stand_in.environment(folder, settings=settings)},
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            ), folder  # fmt: skip
    yield programs
    for program, _ in programs.values():
        program.kill()
        program.communicate()


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("replaced", REPLACED)
def test_frames_are_as_the_interpreter_knows_them(
    started: dict[tuple[str, str], tuple[subprocess.Popen[str], Path]], version: str, replaced: str
) -> None:
    if replaced == "no-reading" and platform.machine() != "x86_64":
        pytest.skip("the numbers of system calls are those of x86-64")
    python_of(version)
    program, folder = started[replaced, version]
    output, errors = program.communicate()
    assert (program.returncode, errors) == (0, "")
    (path,) = watch_files(folder)
    reader = StackReader()
    with MapFile(path) as file:
        process = file.read()
        reader.read(file, process)
    slow = sorted((call for thread in process.threads for call in thread.slow_calls), key=lambda call: call.end_ns)
    for case, call, frames in zip(CASES, slow, json.loads(output), strict=True):
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
