"""Building of the injected library with the machine's C compiler, once for each version of its sources.

The result lies in the user's cache folder under a name made of everything that it depends on, so that a change of the
sources, the flags or the compiler gives another file, and several processes may build at a time.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.files.ending_signals import unwound_by_signals
from stallprobes.foreign_text import printable
from stallprobes.watch.injection import layout

SOURCES = ("activity.c", "calls.c", "host_memory.c", "inject.c", "map.c", "nvtx.c", "stack.c")
HEADERS = ("cupti.h", "inject.h")
MACHINES = ("x86_64", "aarch64")
FLAGS = (
    "-std=c11", "-O2", "-Wall", "-Wextra", "-Wshadow", "-Werror", "-pedantic", "-fPIC", "-fvisibility=hidden",
)  # fmt: skip
# The library is never unloaded: libcupti and the ends of threads hold addresses of it.
LINK_FLAGS = ("-shared", "-Wl,-z,nodelete", "-Wl,-z,now", "-lpthread", "-ldl")
_TIMEOUT_S = 180.0
# Variables that change what a compiler does; the result would not match its name.
_COMPILER_VARIABLES = (
    "CPATH", "C_INCLUDE_PATH", "LIBRARY_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS", "SDKROOT",
)  # fmt: skip


@dataclass(frozen=True)
class Compiler:
    """A C compiler: the beginning of its command line, and what it says of its version."""

    command: tuple[str, ...]
    version: str

    @property
    def name(self) -> str:
        """The compiler as in an error message."""
        return "zig cc" if "ziglang" in self.command else Path(self.command[0]).name


def compilers(search_path: str | None = None) -> list[Compiler]:
    """The compilers of this machine in the order in which they are tried: gcc, cc, clang, and ziglang's.

    ``search_path`` replaces PATH.
    """
    commands = [(path,) for name in ("gcc", "cc", "clang") if (path := shutil.which(name, path=search_path))]
    found = [Compiler(command, version) for command in commands if (version := _version(command))]
    if find_spec("ziglang") is not None:
        command = (sys.executable, "-m", "ziglang", "cc")
        if version := _version(command):
            # Its default flags add checks that end the program.
            found.append(Compiler((*command, "-fno-sanitize=all"), version))
    return found


def library(cache: Path | None = None, available: Sequence[Compiler] | None = None) -> Path:
    """The path of the injected library, which is built if it is not in ``cache``, by default the user's.

    ``available`` replaces ``compilers()``. Raises WatchError if there is no compiler, if none can build it, or if the
    cache is not a folder that only this user can write to and programs can load libraries from.
    """
    if sys.platform != "linux" or platform.machine() not in MACHINES:
        raise WatchError(f"watch works on Linux on {' and '.join(MACHINES)}, not on {platform.machine()}.")
    found = compilers() if available is None else available
    if not found:
        raise WatchError("watch needs a C compiler: install gcc or clang, or run pip install ziglang.")
    folder = private_cache(cache or default_cache())
    if os.statvfs(folder).f_flag & os.ST_NOEXEC:
        # The driver would ignore it without a word.
        raise WatchError(f"nothing can be executed in the cache folder {folder} (noexec); set XDG_CACHE_HOME.")
    first: WatchError | None = None
    for compiler in found:
        target = folder / f"inject-{_hash(compiler)}.so"
        if _is_own_file(target):
            return target
        try:
            with unwound_by_signals():
                _build_at(target, compiler)
        except WatchError as error:
            first = first or error
        else:
            return target
    assert first is not None
    raise first


def compile_library(target: Path, command: Iterable[str], flags: Sequence[str] = ()) -> None:
    """Compile the library to ``target`` with a compiler's ``command`` and further ``flags``.

    Raises WatchError with the compiler's first error.
    """
    line = [*command, *FLAGS, *flags, *SOURCES, "-o", str(target), *LINK_FLAGS]
    with _source_folder() as folder:
        environment = {name: value for name, value in os.environ.items() if name not in _COMPILER_VARIABLES}
        # What the compiler leaves, if a signal ends it, is removed with the folder.
        own = dict.fromkeys(("TMPDIR", "ZIG_LOCAL_CACHE_DIR", "ZIG_GLOBAL_CACHE_DIR"), folder)
        try:
            done = subprocess.run(
                line, cwd=folder, env={**environment, "LC_ALL": "C", **own}, stdin=subprocess.DEVNULL,
                capture_output=True, timeout=_TIMEOUT_S,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WatchError(f"the C compiler {line[0]} could not be run: {printable(str(error))}.") from error
        if done.returncode:
            raise WatchError(f"the C compiler {line[0]} cannot build the library for watch: {_first_error(done)}.")


@contextmanager
def _source_folder() -> Iterator[str]:
    """A folder with the sources, which is removed at the end. Raises WatchError where none can be made."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(
                tempfile.TemporaryDirectory(prefix="stallscope-build-", ignore_cleanup_errors=True)
            )
            for name, text in sources().items():
                Path(folder, name).write_text(text, encoding="utf-8")
        except OSError as error:
            raise WatchError(f"the library for watch cannot be built: {error.strerror}; set TMPDIR.") from error
        yield folder


def sources() -> dict[str, str]:
    """The text of each source and header by file name."""
    folder = files("stallprobes.watch.injection") / "library"
    texts = {name: (folder / name).read_text(encoding="utf-8") for name in (*SOURCES, *HEADERS)}
    return texts | {"layout.h": layout.header_text()}


def default_cache() -> Path:
    """The user's cache folder of stallscope. Raises WatchError for a user without a home folder."""
    root = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(root) if os.path.isabs(root) else Path.home() / ".cache") / "stallscope"
    except RuntimeError as error:
        raise WatchError("watch finds no home folder for its library: set HOME or XDG_CACHE_HOME.") from error


def private_cache(folder: Path) -> Path:
    """``folder``, created if needed. Raises WatchError unless it is a folder that only this user can write to."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        status = folder.lstat()
    except OSError as error:
        raise WatchError(f"the cache folder {folder} cannot be used: {error.strerror}; set XDG_CACHE_HOME.") from error
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise WatchError(f"the cache folder {folder} is not one that only you can write to; set XDG_CACHE_HOME.")
    return folder


def _hash(compiler: Compiler) -> str:
    parts = [*compiler.command, compiler.version, platform.machine(), *FLAGS, *LINK_FLAGS]
    for name, text in sources().items():
        parts += [name, text]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def _build_at(target: Path, compiler: Compiler) -> None:
    """Compile beside ``target`` and rename, so that nobody loads half a library."""
    try:
        descriptor, name = tempfile.mkstemp(prefix=".inject-", suffix=".so", dir=target.parent)
        os.close(descriptor)
    except OSError as error:
        raise WatchError(f"the cache folder {target.parent} cannot be written to: {error.strerror}.") from error
    try:
        compile_library(Path(name), compiler.command)
        os.chmod(name, 0o700)
        os.replace(name, target)
    except OSError as error:
        raise WatchError(f"the cache folder {target.parent} cannot be written to: {error.strerror}.") from error
    finally:
        Path(name).unlink(missing_ok=True)


def _is_own_file(path: Path) -> bool:
    try:
        status = path.lstat()
    except OSError:
        return False
    own = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return own and status.st_size > 0


def _version(command: Sequence[str]) -> str:
    try:
        done = subprocess.run(
            [*command, "--version"], stdin=subprocess.DEVNULL, capture_output=True, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return "" if done.returncode else done.stdout.decode(errors="replace")


def _first_error(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").splitlines()
    found = next((line for line in lines if "error" in line), lines[0] if lines else f"exit code {done.returncode}")
    return printable(found)[:300].rstrip(".")
