"""Programs and libraries of the tests that are built from the core's sources and those in tests/programs/native."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from pathlib import Path

from stallprobes.native.building.libraries import CORE_LIBRARY, FLAGS, write_header
from stallprobes.native.sources import NATIVE

PROGRAMS = Path(__file__).parents[1] / "programs" / "native"


def build_core_program(folder: Path, compiler: str, flags: Sequence[str] = ()) -> Path:
    """Build the program ``core`` in ``folder`` without a warning; returns its path."""
    return _build(folder, compiler, "core", flags)


def counting_library(folder: Path, compiler: str) -> ctypes.CDLL:
    """Build and load the functions of ``histogram.c``."""
    library = ctypes.CDLL(str(_build(folder, compiler, "histogram", ("-shared",))))
    address, number = ctypes.c_void_p, ctypes.c_int64
    library.bucket_of.argtypes, library.bucket_of.restype = (number,), number
    library.add_all.argtypes, library.add_all.restype = (address, address, address, number, number), None
    library.count_passed.argtypes, library.count_passed.restype = (address, address, number, number), None
    return library


def _build(folder: Path, compiler: str, name: str, flags: Sequence[str]) -> Path:
    write_header(folder)
    target = folder / name
    includes = [f"-I{folder}", *(f"-I{NATIVE / each}" for each in ("common", *CORE_LIBRARY.folders))]
    sources = [str(path) for each in CORE_LIBRARY.folders for path in sorted((NATIVE / each).glob("*.c"))]
    options = [*(flag for flag in FLAGS if flag != "-g0"), "-Werror", "-pthread", *CORE_LIBRARY.flags, *flags]
    line = [compiler, *options, *includes, str(PROGRAMS / f"{name}.c"), *sources, "-o", str(target)]
    subprocess.run(line, check=True, capture_output=True)
    return target
