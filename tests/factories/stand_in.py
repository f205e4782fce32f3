"""The stand-ins for libcuda and libcupti and the host programs, built from tests/programs/stand_in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from factories.watched_folders import read_folder
from stallprobes.native.building.compilers import Compiler
from stallprobes.native.building.libraries import ATTACHER_PROGRAM, INJECTED_LIBRARY, write_header
from stallprobes.native.layouts.cupti import SIZES, RecordKind, size_of
from stallprobes.native.library import injected_library
from stallprobes.native.sources import ATTACHER, INJECTED
from stallprobes.watch.environment import INJECTION_VARIABLE, WatchOptions, variables
from stallprobes.watch.reading.process import WatchedProcess

SOURCES = Path(__file__).parents[1] / "programs" / "stand_in"
VERSION = 130100
SLOW_LIBRARY = "slow-library.so"
MEDDLING = "meddling.so"
# Everything, so that no record is missing where the machine is slow.
OPTIONS = WatchOptions(cost=1.0)
NOTHING: Mapping[str, str] = MappingProxyType({})
COMPILER = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
_LIBCUDA = "-l:libcuda.so.1"
# The host programs and the libraries of them: their source and further flags.
PROGRAMS = {
    "host": ("host.c", _LIBCUDA),
    "ranges": ("ranges.c", _LIBCUDA),
    "ranks": ("ranks.c", _LIBCUDA),
    "profiler": ("profiler.c", "-Wl,--no-as-needed", "-l:libcupti.so.13", _LIBCUDA),
    "attached": ("attached.c", _LIBCUDA),
    # Its memory begins at a low address, as that of many a distribution's Python does.
    "attached_low": ("attached.c", "-fno-pie", "-no-pie", _LIBCUDA),
    "odd_stacks": ("odd_stacks.c", _LIBCUDA),
    "forks": ("forks.c", _LIBCUDA, "-rdynamic"),
    # Its entry is not reached before the program's folder has a file "go".
    SLOW_LIBRARY: ("slow_library.c", "-shared"),
    MEDDLING: ("meddling.c", "-shared"),
}
_KINDS = (
    RecordKind.KERNEL, RecordKind.COPY, RecordKind.PEER_COPY, RecordKind.MEMSET, RecordKind.OVERHEAD,
    RecordKind.CONTEXT_SWITCH, RecordKind.STREAM,
)  # fmt: skip


@dataclass(frozen=True)
class Outcome:
    """How a host program ended, and what its library wrote."""

    returncode: int
    output: str
    errors: str
    processes: tuple[WatchedProcess, ...]


@dataclass(frozen=True)
class StandIn:
    """A folder with the stand-ins, the host programs, and the injected library. ``runner`` runs its programs."""

    folder: Path
    runner: tuple[str, ...] = ()

    @classmethod
    def build(
        cls,
        folder: Path,
        flags: Sequence[str] = (),
        compiler: str | None = COMPILER,
        runner: tuple[str, ...] = (),
        programs: Iterable[str] = PROGRAMS,
    ) -> StandIn:
        """Build the libraries and ``programs`` in ``folder``, with further ``flags`` of the compiler.

        Without these, the injected library is that of the installation.
        """
        assert compiler is not None
        folder.mkdir(parents=True, exist_ok=True)
        _compile(compiler, "libcuda.c", folder / "libcuda.so.1", *flags, "-shared", "-Wl,-soname,libcuda.so.1")
        build_cupti(folder / "libcupti.so.13", flags=flags, compiler=compiler)
        for name in programs:
            source, *own = PROGRAMS[name]
            _compile(compiler, source, folder / name, *flags, f"-L{folder}", *own)
        script = folder / "parent.sh"
        script.write_text('#!/bin/sh\n"${0%/*}/attached" "$@"\nexit $?\n')
        script.chmod(0o755)
        write_header(folder)
        used = Compiler((compiler,))
        if flags or compiler != COMPILER:
            INJECTED_LIBRARY.compile(folder / INJECTED, used, folder, flags)
        else:
            shutil.copy(injected_library(), folder / INJECTED)
        ATTACHER_PROGRAM.compile(folder / ATTACHER, used, folder, ("-DSS_ATTACH_STEPS", *flags))
        return cls(folder, runner)

    def environment(
        self,
        folder: Path,
        options: WatchOptions = OPTIONS,
        cupti: Path | None = None,
        settings: Mapping[str, str] = NOTHING,
    ) -> dict[str, str]:
        """The environment of a watched host program that writes to ``folder``; ``cupti`` replaces the stand-in."""
        present = {"PATH": os.environ["PATH"], **settings}
        cupti = cupti or self.folder / "libcupti.so.13"
        library = Path(settings.get(INJECTION_VARIABLE, self.folder / INJECTED))
        return present | variables(library, folder, options, present, cupti)

    def start(
        self, folder: Path, *arguments: str, options: WatchOptions = OPTIONS, settings: Mapping[str, str] = NOTHING
    ) -> subprocess.Popen[str]:
        """Start a host program; the first of ``arguments`` is its case."""
        return subprocess.Popen(
            [str(self.folder / "host"), *arguments],
            env=self.environment(folder, options, settings=settings),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def wait(self, environment: Mapping[str, str], *arguments: str, before: str = "") -> tuple[int, str, str]:
        """Exit code, standard output and standard error of a host program; ``before`` are commands of the shell."""
        done = subprocess.run(
            ["sh", "-c", f'{before} exec "$0" "$@"', str(self.folder / "host"), *arguments],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        return done.returncode, done.stdout, done.stderr

    def run(
        self,
        folder: Path,
        *arguments: str,
        program: str = "host",
        options: WatchOptions = OPTIONS,
        cupti: Path | None = None,
        settings: Mapping[str, str] = NOTHING,
    ) -> Outcome:
        """Run a host program to its end and read the files of all its processes."""
        folder.mkdir(mode=0o700, exist_ok=True)
        done = subprocess.run(
            [*self.runner, str(self.folder / program), *arguments],
            env=self.environment(folder, options, cupti, settings),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        contents = read_folder(folder)
        assert (contents.problems, contents.incomplete) == ((), 0)
        return Outcome(done.returncode, done.stdout, done.stderr, contents.processes)


def build_cupti(
    target: Path, version: int = VERSION, flags: Sequence[str] = (), compiler: str | None = COMPILER
) -> None:
    """Build the stand-in for libcupti of ``version``."""
    assert compiler is not None
    # A version without context switches refuses them; their size then does not matter.
    sizes = {kind.name: size_of(kind, max(version, min(SIZES[kind]))) for kind in _KINDS}
    defined = [f"-D{name}_BYTES={size}" for name, size in sizes.items()]
    defined += [f"-DVERSION={version}", "-shared", "-Wl,-soname,libcupti.so.13"]
    _compile(compiler, "libcupti.c", target, *flags, *defined)


def build_replay(folder: Path, stand_in: StandIn, version: int = VERSION) -> StandIn:
    """``stand_in`` in another folder, with the program that replays streams, and with libcupti of ``version``."""
    assert COMPILER is not None
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("libcuda.so.1", INJECTED):
        shutil.copy(stand_in.folder / name, folder / name)
    build_cupti(folder / "libcupti.so.13", version)
    # The library finds the clock of the program.
    _compile(COMPILER, "replay.c", folder / "replay", f"-L{folder}", "-l:libcuda.so.1", "-rdynamic")
    return StandIn(folder)


def build_with_nvtx(target: Path, headers: Path, stand_in: StandIn) -> None:
    """Build the program with ranges with NVTX itself, whose headers are in a folder."""
    assert COMPILER is not None
    folder = stand_in.folder
    flags = ["-DREAL_NVTX", f"-I{headers}", f"-L{folder}", "-l:libcuda.so.1", f"-Wl,-rpath,{folder}"]
    _compile(COMPILER, "ranges.c", target, *flags)


def _compile(compiler: str, source: str, target: Path, *flags: str) -> None:
    line = [compiler, "-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", "-o", str(target), str(SOURCES / source)]
    subprocess.run([*line, *flags, "-Wl,-rpath,$ORIGIN", "-lpthread", "-ldl"], check=True, capture_output=True)
