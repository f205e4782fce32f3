"""Building of the injected library: where it lies, what is refused, and what a user reads if it cannot be built."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from factories import command_line
from factories.stand_in import COMPILER, StandIn
from stallprobes.engine.timeline.library import LibraryFile
from stallprobes.errors import WatchError
from stallprobes.watch import environment
from stallprobes.watch.environment import (
    INJECTION_VARIABLE,
    PRELOAD_VARIABLE,
    WatchOptions,
    find_cupti,
    variables,
)
from stallprobes.watch.injection import building, layout
from stallprobes.watch.injection.building import Compiler, compilers, library

Script = Callable[[str], Compiler]


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache folder that does not exist yet."""
    return tmp_path / "cache" / "stallscope"


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A compiler that notes its calls in ``calls`` and runs a command of the shell with its output file as ``$out``."""

    def make(command: str) -> Compiler:
        program = tmp_path / "cc"
        find_output = 'while [ "$1" != -o ]; do shift; done; out=$2'
        program.write_text(f'#!/bin/sh\necho call >> "{tmp_path}/calls"\n{find_output}\n{command}\n')
        program.chmod(0o755)
        return Compiler((str(program),), "version 1")

    return make


def test_the_library_is_built_once(cache: Path, script: Script, tmp_path: Path) -> None:
    compiler = script('echo built > "$out"')
    first = library(cache, [compiler])
    assert first.read_text() == "built\n"
    assert (first.parent, library(cache, [compiler])) == (cache, first)
    assert (tmp_path / "calls").read_text() == "call\n"
    assert [path.name for path in cache.iterdir()] == [first.name]
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert not first.stat().st_mode & 0o077
    # Another version of the compiler gives another file.
    other = library(cache, [Compiler(compiler.command, "version 2")])
    assert other != first


def test_a_change_of_the_sources_gives_another_file(
    cache: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = script('echo built > "$out"')
    first = library(cache, [compiler])
    monkeypatch.setattr(layout, "header_text", lambda: "/* another layout */\n")
    assert library(cache, [compiler]) != first


def test_a_link_in_place_of_the_library_is_replaced(cache: Path, script: Script, tmp_path: Path) -> None:
    compiler = script('echo built > "$out"')
    path = library(cache, [compiler])
    victim = tmp_path / "victim"
    victim.write_text("kept")
    path.unlink()
    path.symlink_to(victim)
    assert library(cache, [compiler]) == path
    assert not path.is_symlink()
    assert (path.read_text(), victim.read_text()) == ("built\n", "kept")


def test_a_library_that_others_can_write_is_replaced(cache: Path, script: Script, tmp_path: Path) -> None:
    compiler = script('echo built > "$out"')
    path = library(cache, [compiler])
    path.chmod(0o666)
    assert library(cache, [compiler]) == path
    assert not path.stat().st_mode & 0o022
    assert (tmp_path / "calls").read_text() == "call\n" * 2


@pytest.mark.parametrize("what", ["open to others", "link", "file"])
def test_a_cache_that_is_not_private_is_refused(cache: Path, script: Script, tmp_path: Path, what: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cache.parent.mkdir()
    if what == "open to others":
        cache.mkdir()
        cache.chmod(0o777)
    elif what == "link":
        cache.symlink_to(elsewhere)
    else:
        cache.touch()
    with pytest.raises(WatchError, match=r"cache folder .*; set XDG_CACHE_HOME\.$"):
        library(cache, [script("exit 1")])
    assert list(elsewhere.iterdir()) == []


def test_a_compiler_that_fails_is_quoted_and_leaves_nothing(cache: Path, script: Script) -> None:
    compiler = script("echo 'inject.c:1: fatal error: dlfcn.h: No such file or directory' >&2; exit 1")
    with pytest.raises(WatchError, match=r"cannot build .* fatal error: dlfcn.h: No such file or directory\.$"):
        library(cache, [compiler])
    assert list(cache.iterdir()) == []


def test_the_next_compiler_is_tried(cache: Path, script: Script, tmp_path: Path) -> None:
    good = script('echo built > "$out"')
    bad = Compiler((str(tmp_path / "missing"),), "version 1")
    assert library(cache, [bad, good]).read_text() == "built\n"
    with pytest.raises(WatchError, match="could not be run"):
        library(cache, [bad])


def test_without_a_compiler_the_error_says_what_to_install(cache: Path, tmp_path: Path) -> None:
    with pytest.raises(WatchError, match="install gcc or clang, or run pip install ziglang"):
        library(cache, [])
    assert [found for found in compilers(str(tmp_path)) if "ziglang" not in found.command] == []


def test_the_users_cache_is_the_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert building.default_cache() == tmp_path / "stallscope"
    # A relative one is invalid by the specification.
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert building.default_cache() == tmp_path / ".cache" / "stallscope"


def test_every_source_is_built_and_packaged() -> None:
    folder = Path(building.__file__).parent / "library"
    assert {path.name for path in folder.iterdir()} == {*building.SOURCES, *building.HEADERS}


def test_the_built_library_works(cache: Path, stand_in: StandIn, tmp_path: Path) -> None:
    assert COMPILER is not None
    found = [compiler for compiler in compilers() if compiler.command[0] == COMPILER or "ziglang" in compiler.command]
    for number, compiler in enumerate(found):
        built = library(cache, [compiler])
        folder = tmp_path / str(number)
        outcome = stand_in.run(folder, "threads", "2", "10", settings={INJECTION_VARIABLE: str(built)})
        assert [process.calls for process in outcome.processes] == [20], compiler.name


@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
def test_ziglang_builds_for_both_machines(tmp_path: Path) -> None:
    for machine, number in (("x86_64", 62), ("aarch64", 183)):
        target = tmp_path / f"{machine}.so"
        building.compile_library(
            target, [sys.executable, "-m", "ziglang", "cc", "-target", f"{machine}-linux-gnu", "-fno-sanitize=all"]
        )
        assert target.read_bytes()[18] == number


def test_the_environment_of_a_program_names_library_and_folder() -> None:
    built, folder = Path("/cache/inject.so"), Path("/run/folder")
    options = WatchOptions(slow_ns=5000, calls_only=True)
    assert variables(built, folder, options, {}, Path("/lib/libcupti.so.13")) == {
        "CUDA_INJECTION64_PATH": "/cache/inject.so",
        "STALLSCOPE_WATCH_FOLDER": "/run/folder",
        "STALLSCOPE_WATCH_SLOW_NS": "5000",
        "STALLSCOPE_WATCH_CALLS_ONLY": "1",
        "STALLSCOPE_WATCH_YIELD": "0",
        "STALLSCOPE_WATCH_NO_STACKS": "0",
        "NVTX_INJECTION64_PATH": "/cache/inject.so",
        "STALLSCOPE_WATCH_CUPTI": "/lib/libcupti.so.13",
    }
    yields = WatchOptions(yield_to_profiler=True)
    assert variables(built, folder, yields, {PRELOAD_VARIABLE: "/lib/a.so"})[PRELOAD_VARIABLE] == f"{built}:/lib/a.so"
    with pytest.raises(WatchError, match="another tool's library"):
        variables(built, folder, options, {INJECTION_VARIABLE: "/opt/nsys.so"})
    # A program that is watched and starts itself again has them already.
    assert variables(built, folder, options, {INJECTION_VARIABLE: str(built)})


def test_the_libcupti_of_the_drivers_cuda_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [LibraryFile(f"/lib/libcupti.so.{major}", major, "test") for major in (13, 12)]
    monkeypatch.setattr(environment, "found_libraries", lambda: found)
    assert find_cupti(12_090) == Path("/lib/libcupti.so.12")
    assert find_cupti(13_010) == Path("/lib/libcupti.so.13")
    assert find_cupti(11_080) is None


def test_a_folder_in_which_nothing_is_executed_is_refused(
    cache: Path, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.statvfs

    def no_execution(path: Path) -> os.statvfs_result:
        fields = list(real(path))
        fields[8] |= os.ST_NOEXEC
        return os.statvfs_result(fields)

    monkeypatch.setattr(os, "statvfs", no_execution)
    with pytest.raises(WatchError, match=r"nothing can be executed in the cache folder .* set XDG_CACHE_HOME\.$"):
        library(cache, [script('echo built > "$out"')])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_build_and_leaves_nothing(
    cache: Path, script: Script, tmp_path: Path, number: signal.Signals
) -> None:
    """In a process of its own, which the signal ends."""
    compiler = script(f'echo part > "$out"; echo part > "$TMPDIR/part"; kill -{int(number)} $PPID; exec sleep 1000')
    temporary = tmp_path / "t"
    temporary.mkdir()
    code = (
        "import sys; from pathlib import Path; from stallprobes.watch.injection.building import Compiler, library\n"
        "library(Path(sys.argv[1]), [Compiler((sys.argv[2],), 'version 1')])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(cache), compiler.command[0]],
        env=command_line.environment(TMPDIR=str(temporary)),
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (-number, "")
    assert [*cache.iterdir(), *temporary.iterdir()] == []
