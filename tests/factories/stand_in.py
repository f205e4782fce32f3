"""The stand-ins for libcuda and libcupti and the host programs, built from tests/programs/stand_in."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from stallprobes.engine.timeline.records import SIZES, RecordKind, size_of
from stallprobes.watch.building import compile_library
from stallprobes.watch.environment import WatchOptions, variables
from stallprobes.watch.folder import read_folder
from stallprobes.watch.process import WatchedProcess

SOURCES = Path(__file__).parents[1] / "programs" / "stand_in"
VERSION = 130100
OPTIONS = WatchOptions()
COMPILER = shutil.which("gcc") or shutil.which("cc") or shutil.which("clang")
_KINDS = (
    RecordKind.KERNEL, RecordKind.COPY, RecordKind.PEER_COPY, RecordKind.MEMSET, RecordKind.OVERHEAD,
    RecordKind.CONTEXT_SWITCH,
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
    """A folder with the stand-ins, the host programs, and the injected library."""

    folder: Path

    @classmethod
    def build(cls, folder: Path, flags: Sequence[str] = (), version: int = VERSION) -> StandIn:
        """Build everything in ``folder``, with further ``flags`` of the compiler."""
        assert COMPILER is not None
        folder.mkdir(parents=True, exist_ok=True)
        # A version without context switches refuses them; their size then does not matter.
        bytes_of = {kind: size_of(kind, max(version, min(SIZES[kind]))) for kind in _KINDS}
        sizes = [f"-D{kind.name}_BYTES={size}" for kind, size in bytes_of.items()]
        sizes += [f"-DSYNCHRONIZATION_BYTES={56 if version >= 26 else 40}", f"-DVERSION={version}"]
        common = [COMPILER, "-std=gnu11", "-O1", "-Wall", "-Werror", "-fPIC", *flags, "-o"]
        link = [f"-L{folder}", "-Wl,-rpath,$ORIGIN", "-lpthread", "-ldl"]
        for source, target, further in (
            ("libcuda.c", "libcuda.so.1", ["-shared", "-Wl,-soname,libcuda.so.1"]),
            ("libcupti.c", "libcupti.so.13", ["-shared", "-Wl,-soname,libcupti.so.13", *sizes]),
            ("host.c", "host", ["-l:libcuda.so.1"]),
            ("profiler.c", "profiler", ["-Wl,--no-as-needed", "-l:libcupti.so.13", "-l:libcuda.so.1"]),
        ):
            line = [*common, str(folder / target), str(SOURCES / source), *further, *link]
            subprocess.run(line, check=True, capture_output=True)
        compile_library(folder / "inject.so", [COMPILER], flags)
        return cls(folder)

    def environment(self, folder: Path, options: WatchOptions = OPTIONS, **more: str) -> dict[str, str]:
        """The environment of a watched host program that writes to ``folder``."""
        present = {"PATH": os.environ["PATH"], **more}
        cupti = self.folder / "libcupti.so.13"
        return present | variables(self.folder / "inject.so", folder, options, present, cupti)

    def start(
        self, folder: Path, *arguments: str, options: WatchOptions = OPTIONS, **more: str
    ) -> subprocess.Popen[str]:
        """Start a host program; the first of ``arguments`` is its case."""
        return subprocess.Popen(
            [str(self.folder / "host"), *arguments],
            env=self.environment(folder, options, **more),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(
        self, folder: Path, *arguments: str, program: str = "host", options: WatchOptions = OPTIONS, **more: str
    ) -> Outcome:
        """Run a host program to its end and read the files of all its processes."""
        folder.mkdir(mode=0o700, exist_ok=True)
        done = subprocess.run(
            [str(self.folder / program), *arguments],
            env=self.environment(folder, options, **more),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        contents = read_folder(folder)
        assert contents.problems == ()
        return Outcome(done.returncode, done.stdout, done.stderr, contents.processes)
