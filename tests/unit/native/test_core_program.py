"""The core as a program of its own: plain, under the sanitizers, and as built for AArch64, in an emulator."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from factories.core_program import build_core_program
from factories.sanitizers import OPTIONS, SANITIZERS, UNOPTIMIZED, works

CALLS, PROBES = 1500, 3
# What it counts at the ends of the range: eight values, and a start each microsecond of an hour but the last.
COUNTED = 8 + 3_600_000_000 - 1
LIBRARIES = "/usr/aarch64-linux-gnu"


def check(program: Path, *runner: str, **environment: str) -> None:
    done = subprocess.run(
        [*runner, str(program), str(CALLS)], env=os.environ | environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    measured, records, matched, counted = map(int, done.stdout.split())
    # Neither the first call of each probe is measured, nor the one after each hold.
    assert 0 < measured <= PROBES * (CALLS - 1)
    assert (records, matched, counted) == (PROBES * CALLS, measured, COUNTED)


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_every_call_has_its_record(tmp_path: Path, compiler: str) -> None:
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}")
    check(build_core_program(tmp_path, compiler))


@pytest.mark.parametrize("name", SANITIZERS)
def test_no_sanitizer_finds_anything(tmp_path: Path, name: str) -> None:
    compiler = shutil.which("gcc")
    if compiler is None or not works(compiler, SANITIZERS[name], tmp_path):
        pytest.skip(f"no compiler with the {name} sanitizer")
    check(build_core_program(tmp_path, compiler, (*SANITIZERS[name], *UNOPTIMIZED)), **OPTIONS)


def test_it_works_on_aarch64(tmp_path: Path) -> None:
    compiler, emulator = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
    if compiler is None or emulator is None or not Path(LIBRARIES).is_dir():
        pytest.skip("no cross compiler and emulator for AArch64")
    check(build_core_program(tmp_path, compiler), emulator, "-L", LIBRARIES)
