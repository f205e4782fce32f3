"""The C compilers of a machine, and zig's, which the build requires where none of them works."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

# Machines (as in ``platform.machine``) for which the libraries can be built.
MACHINES = ("x86_64", "aarch64")
# Python package of the C compiler zig, with its oldest version. The build requires zig if no C compiler of the system
# works, and for a wheel for a given machine.
ZIG = "ziglang>=0.14"
# Version of glibc with which zig links. Reason: the injected library must need no newer glibc (NEWEST_GLIBC).
_ZIG_GLIBC = "2.17"
# Longest run (s) of a compiler. A longer run counts as a failure of the compiler.
_TIMEOUT_S = 300.0


class BuildError(Exception):
    """The libraries cannot be built; the message is a clause that says why."""


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the beginning of its command line.

    ``has_libraries``: the C library's parts are linked by their names, as zig has them, and not by their files.
    """

    command: tuple[str, ...]
    has_libraries: bool = False

    @property
    def name(self) -> str:
        """The compiler as in a message."""
        return "zig cc" if self.has_libraries else " ".join(self.command)

    def run(self, arguments: Sequence[str]) -> None:
        """Run it. Raises BuildError with its first error."""
        try:
            done = subprocess.run(
                [*self.command, *arguments], env=os.environ | {"LC_ALL": "C"}, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise BuildError(f"{self.name} cannot be run: {error}") from error
        if done.returncode:
            lines = done.stderr.decode(errors="replace").splitlines() or [f"exit code {done.returncode}"]
            raise BuildError(f"{self.name} fails: {next((line for line in lines if 'error' in line), lines[0])[:300]}")


def machine() -> str:
    """This machine as in the names of wheels. Raises BuildError for one that is not supported."""
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise BuildError(f"stallscope works on Linux on {' and '.join(MACHINES)}, not on {platform.machine()}")
    return platform.machine()


def of_system(environment: Mapping[str, str] | None = None) -> list[Compiler]:
    """The compilers to be tried, in order: CC of the environment, cc, gcc and clang."""
    environment = os.environ if environment is None else environment
    chosen = environment.get("CC")
    names = [name for name in ("cc", "gcc", "clang") if shutil.which(name, path=environment.get("PATH"))]
    return [*([Compiler(tuple(shlex.split(chosen)))] if chosen else []), *(Compiler((name,)) for name in names)]


def zig(target: str) -> list[Compiler]:
    """zig's compiler for a machine, if it is installed."""
    if find_spec("ziglang") is None:
        return []
    # Its default flags add checks that end the program.
    options = ("-target", f"{target}-linux-gnu.{_ZIG_GLIBC}", "-fno-sanitize=all")
    return [Compiler((sys.executable, "-m", "ziglang", "cc", *options), has_libraries=True)]
