"""The two libraries and the attacher: their sources, the flags of their compilation, what is checked of the result."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stallprobes.native.building.compilers import BuildError, Compiler, machine, of_system, zig
from stallprobes.native.building.elf import newest_glibc
from stallprobes.native.layouts import header
from stallprobes.native.sources import ATTACHER, CORE, INJECTED, NATIVE, RECORD, digest_of_file, digest_of_sources

# Flags of the compiler for all libraries.
FLAGS = (
    "-std=c11", "-O2", "-g0", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Wshadow", "-pedantic", "-fPIC",
    "-fvisibility=hidden",
)  # fmt: skip
# Flags of the linker for a library. -Bsymbolic: each library calls its own functions, also when another library in the
# process has functions of the same names.
LINK_FLAGS = ("-shared", "-Wl,-z,now", "-Wl,-Bsymbolic")
# Flags of the linker for the attacher, which is a program.
PROGRAM_LINK_FLAGS = ("-pie", "-Wl,-z,now")
# Newest glibc (major, minor) that the injected library may need. Programs in containers of other people load the
# library, and the glibc there may be old.
NEWEST_GLIBC = (2, 17)


@dataclass(frozen=True)
class Library:
    """One of the libraries, or a program: its file, the folders of its sources, and its own flags.

    ``parts`` are the linked parts of the C library, files of their own before glibc 2.34. ``is_portable``: it may need
    NEWEST_GLIBC at most. ``is_program``: it is a program, not a library.
    """

    file: str
    folders: tuple[str, ...]
    flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    parts: tuple[str, ...] = ()
    is_portable: bool = False
    is_program: bool = False

    def compile(self, target: Path, compiler: Compiler, generated: Path, more: Sequence[str] = ()) -> None:
        """Compile it to ``target``; ``generated`` is the folder of ``layout.h``, ``more`` are further flags.

        Raises BuildError.
        """
        includes = [f"-I{generated}", *(f"-I{NATIVE / folder}" for folder in ("common", *self.folders))]
        files = [str(path) for folder in self.folders for path in sorted((NATIVE / folder).glob("*.c"))]
        link_flags = PROGRAM_LINK_FLAGS if self.is_program else LINK_FLAGS
        compiler.run([*FLAGS, *self.flags, *more, *includes, *files, "-o", str(target), *link_flags,
                      *self.link_flags, *self._parts(compiler)])  # fmt: skip

    def check(self, path: Path) -> None:
        """Raise BuildError if the file needs a newer C library than it may."""
        if self.is_portable and newest_glibc(path) > NEWEST_GLIBC:
            needed = ".".join(map(str, newest_glibc(path)))
            raise BuildError(f"{self.file} would need glibc {needed}, and may need {'.'.join(map(str, NEWEST_GLIBC))}")

    def _parts(self, compiler: Compiler) -> list[str]:
        if compiler.has_libraries:
            return [f"-l{name}" for name, _ in map(_split, self.parts)]
        files = [f"-l:lib{name}.so.{number}" for name, number in map(_split, self.parts)]
        # Named although nothing of them is needed where the C library has them itself.
        return ["-Wl,--no-as-needed", *files, "-Wl,--as-needed"] if files else []


# Core library. Its loop makes the calls of a probe and counts them. With gcc, -O3 shortens the counting of a call by
# 0.8 ns.
CORE_LIBRARY = Library(CORE, ("core", "cupti"), flags=("-DSS_CORE", "-O3"))
# Library that ``stallscope watch`` loads into programs.
INJECTED_LIBRARY = Library(
    INJECTED,
    ("inject", "cupti"),
    flags=("-U_FORTIFY_SOURCE",),
    # The library is never unloaded: libcupti and the handlers for the end of a thread hold addresses in it.
    link_flags=("-Wl,-z,nodelete",),
    parts=("pthread.0", "dl.2"),
    is_portable=True,
)
# Program that loads the injected library into a running process.
ATTACHER_PROGRAM = Library(ATTACHER, ("attach",), is_program=True)
# Libraries and programs that a build compiles.
LIBRARIES = (CORE_LIBRARY, INJECTED_LIBRARY, ATTACHER_PROGRAM)


def write_header(folder: Path) -> None:
    """Write ``layout.h`` to the folder."""
    (folder / "layout.h").write_text(header.text(), encoding="utf-8")


def build(folder: Path, target: str | None = None, compilers: Sequence[Compiler] | None = None) -> None:
    """Compile all to ``folder``, each with the first compiler that can, and leave the record of the build.

    ``target`` is the machine, by default this one; for another one, and for a wheel that works on many systems, the
    compiler is zig's. ``compilers`` replaces those of the machine. Raises BuildError with the first reason.
    """
    available = compilers
    if available is None:
        available = zig(target) if target else [*of_system(), *zig(machine())]
    if not available:
        raise BuildError("there is no C compiler")
    folder.mkdir(parents=True, exist_ok=True)
    used = {}
    with tempfile.TemporaryDirectory(prefix="stallscope-build-") as temporary:
        generated = Path(temporary)
        write_header(generated)
        for library in LIBRARIES:
            used[library.file] = _compile_with_first(library, available, generated)
        for library in LIBRARIES:
            # Beside the file and renamed: a process that has the former one mapped keeps it.
            part = folder / f".{library.file}.part"
            part.write_bytes((generated / library.file).read_bytes())
            part.chmod(0o755)
            os.replace(part, folder / library.file)
    record = {
        "sources": digest_of_sources(),
        "compilers": {file: compiler.name for file, compiler in used.items()},
        "libraries": {library.file: digest_of_file(folder / library.file) for library in LIBRARIES},
    }
    (folder / RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _compile_with_first(library: Library, compilers: Sequence[Compiler], generated: Path) -> Compiler:
    first: BuildError | None = None
    for compiler in compilers:
        path = generated / library.file
        try:
            library.compile(path, compiler, generated)
            library.check(path)
        except BuildError as error:
            first = first or error
        else:
            return compiler
    assert first is not None
    raise first


def _split(part: str) -> tuple[str, str]:
    name, _, number = part.partition(".")
    return name, number
