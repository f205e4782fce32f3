"""The system calls in which the attacher may borrow a thread, by their arguments."""

from __future__ import annotations

import ctypes
import platform
import subprocess
from pathlib import Path

import pytest

from factories.stand_in import COMPILER
from stallprobes.native.building.libraries import write_header
from stallprobes.native.sources import NATIVE

pytestmark = pytest.mark.skipif(
    COMPILER is None or platform.machine() != "x86_64", reason="attaching works on x86-64 alone"
)
# Numbers of system calls.
POLL, SELECT, ACCEPT, CLOCK_NANOSLEEP, EPOLL_WAIT, FUTEX, PPOLL, EPOLL_PWAIT = 7, 23, 43, 230, 232, 202, 271, 281
ABSOLUTE = 1
MAIN = """\
#include "stub.h"
static struct user_regs_struct in_call(uint64_t call, uint64_t rdi, uint64_t rsi, uint64_t rdx, uint64_t r10)
{
    struct user_regs_struct registers = {.orig_rax = call, .rdi = rdi, .rsi = rsi, .rdx = rdx, .r10 = r10};
    registers.cs = 0x33;
    registers.fs_base = 4096;
    return registers;
}
int may(uint64_t call, uint64_t rdi, uint64_t rsi, uint64_t rdx, uint64_t r10)
{
    struct user_regs_struct registers = in_call(call, rdi, rsi, rdx, r10);
    return ss_may_be_borrowed(&registers);
}
uint64_t anew(uint64_t call, uint64_t rdi, uint64_t rsi, uint64_t rdx, uint64_t r10)
{
    struct user_regs_struct registers = in_call(call, rdi, rsi, rdx, r10);
    return ss_sleep_anew(&registers);
}
"""


@pytest.fixture(scope="module", name="library")
def _library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    folder: Path = tmp_path_factory.mktemp("borrowed")
    write_header(folder)
    (folder / "ask.c").write_text(MAIN)
    includes = [f"-I{path}" for path in (folder, NATIVE / "common", NATIVE / "attach")]
    files = [str(folder / "ask.c"), str(NATIVE / "attach" / "stub.c")]
    target = folder / "ask.so"
    line = [str(COMPILER), "-D_GNU_SOURCE", "-O2", "-shared", "-fPIC", *includes, *files, "-o", str(target)]
    subprocess.run(line, check=True)
    return ctypes.CDLL(str(target))


@pytest.mark.parametrize(
    ("call", "arguments", "may"),
    [
        (POLL, (0x1000, 1, 2**32 - 1, 0), True),
        (POLL, (0x1000, 1, 2**64 - 1, 0), True),
        # As libcuda's own thread does.
        (POLL, (0x1000, 1, 100, 0), True),
        (POLL, (0x1000, 1, 6000, 0), False),
        (EPOLL_WAIT, (4, 0x1000, 8, 2**32 - 1), True),
        (EPOLL_WAIT, (4, 0x1000, 8, 60_000), False),
        (EPOLL_PWAIT, (4, 0x1000, 8, 60_000), False),
        # The kernel keeps what is left of these.
        (SELECT, (4, 0x1000, 0, 0), True),
        (PPOLL, (0x1000, 1, 0x2000, 0), True),
        (ACCEPT, (4, 0, 0, 0), True),
        (CLOCK_NANOSLEEP, (1, ABSOLUTE, 0x1000, 0), True),
        (FUTEX, (0x1000, 0, 0, 0), False),
    ],
)
def test_a_thread_is_borrowed_where_its_sleep_does_not_begin_anew(
    library: ctypes.CDLL, call: int, arguments: tuple[int, ...], may: bool
) -> None:
    assert bool(library.may(*map(ctypes.c_uint64, (call, *arguments)))) is may


@pytest.mark.parametrize(
    ("call", "arguments", "at"),
    [
        (CLOCK_NANOSLEEP, (1, ABSOLUTE, 0x1000, 0), 0),
        # sleep() of the C library: what is left goes where the time was.
        (CLOCK_NANOSLEEP, (1, 0, 0x1000, 0x1000), 0),
        (CLOCK_NANOSLEEP, (1, 0, 0x1000, 0), 0x1000),
        (CLOCK_NANOSLEEP, (1, 0, 0x1000, 0x2000), 0x1000),
        (POLL, (0x1000, 1, 2**64 - 1, 0), 0),
    ],
)
def test_a_sleep_whose_rest_is_lost_is_known_by_its_time(
    library: ctypes.CDLL, call: int, arguments: tuple[int, ...], at: int
) -> None:
    assert library.anew(*map(ctypes.c_uint64, (call, *arguments))) == at
