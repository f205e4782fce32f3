"""The core as a program of its own, built from its sources and tests/programs/native/core.c."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from stallprobes.native.building.libraries import CORE_LIBRARY, FLAGS, write_header
from stallprobes.native.sources import NATIVE

SOURCE = Path(__file__).parents[1] / "programs" / "native" / "core.c"


def build_core_program(folder: Path, compiler: str, flags: Sequence[str] = ()) -> Path:
    """Build it in ``folder`` without a warning; returns its path."""
    write_header(folder)
    program = folder / "core"
    includes = [f"-I{folder}", *(f"-I{NATIVE / name}" for name in ("common", *CORE_LIBRARY.folders))]
    sources = [str(path) for name in CORE_LIBRARY.folders for path in sorted((NATIVE / name).glob("*.c"))]
    # Libraries are compiled with other addresses than programs; that is for the linker of libraries only.
    options = [*(flag for flag in FLAGS if flag != "-g0"), "-Werror", "-pthread", *CORE_LIBRARY.flags, *flags]
    subprocess.run(
        [compiler, *options, *includes, str(SOURCE), *sources, "-o", str(program)], check=True, capture_output=True
    )
    return program
