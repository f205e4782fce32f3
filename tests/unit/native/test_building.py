"""Compiling of the native libraries: compilers that are tried, what a library may need, and pip's backend."""

from __future__ import annotations

import ctypes
import json
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from stallprobes.native.building import backend, compilers, libraries
from stallprobes.native.building.compilers import ZIG, BuildError, Compiler, of_system, zig
from stallprobes.native.building.elf import needed_versions, newest_glibc
from stallprobes.native.building.libraries import INJECTED_LIBRARY, LIBRARIES, NEWEST_GLIBC, build, write_header
from stallprobes.native.layouts.attaching import ENTRY
from stallprobes.native.library import injected_library
from stallprobes.native.sources import (
    ATTACHER,
    CORE,
    INJECTED,
    NATIVE,
    RECORD,
    digest_of_file,
    digest_of_sources,
    sources,
)
from stallprobes.native.sources import LIBRARIES as INSTALLED

# What the driver, the loader of NVTX and programs look up in the injected library, and nothing else is shown to them.
EXPORTED = {
    "InitializeInjection", "InitializeInjectionNvtx2", "cuptiSubscribe", "cuptiSubscribe_v2",
    "cuptiActivityRegisterCallbacks", ENTRY,
}  # fmt: skip
DIFFERENT = [Compiler(("gcc",)), Compiler(("clang",))]


def script(folder: Path, name: str, command: str) -> Compiler:
    """A compiler that runs a command of the shell."""
    program = folder / name
    program.write_text(f"#!/bin/sh\n{command}\n")
    program.chmod(0o755)
    return Compiler((str(program),))


def quick(folder: Path) -> Compiler:
    """A compiler that gives what the installation compiled, for tests of who compiles and not of what."""
    copying = f'while [ "$1" != -o ]; do shift; done; cp "{INSTALLED}/${{2##*/}}" "$2"'
    return script(folder, "quick", copying)


@pytest.mark.parametrize("compiler", DIFFERENT, ids=lambda compiler: compiler.name)
@pytest.mark.parametrize("library", LIBRARIES, ids=lambda library: library.file)
def test_they_compile_without_a_warning(tmp_path: Path, compiler: Compiler, library: libraries.Library) -> None:
    if compiler not in of_system():
        pytest.skip(f"no {compiler.name}")
    write_header(tmp_path)
    target = tmp_path / library.file
    library.compile(target, compiler, tmp_path, ("-Werror",))
    library.check(target)


def test_every_source_belongs_to_a_library() -> None:
    folders = {folder for library in LIBRARIES for folder in library.folders}
    compiled = {path for folder in folders for path in (NATIVE / folder).glob("*.c")}
    assert compiled == {path for path in sources() if path.suffix == ".c"}
    assert compiled == set(NATIVE.rglob("*.c"))


def test_the_injected_library_needs_an_old_c_library_only() -> None:
    path = injected_library()
    assert (0,) < newest_glibc(path) <= NEWEST_GLIBC
    assert all(name.startswith("GLIBC_2.") for name in needed_versions(path))


@pytest.mark.skipif(shutil.which("nm") is None, reason="binutils are not installed")
def test_the_injected_library_shows_programs_nothing_of_its_own() -> None:
    done = subprocess.run(
        ["nm", "--dynamic", "--defined-only", "--format=posix", str(injected_library())],
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    assert {line.split()[0] for line in done.stdout.splitlines()} == EXPORTED


@pytest.mark.skipif(shutil.which("objdump") is None, reason="binutils are not installed")
def test_versions_are_those_that_binutils_reads() -> None:
    libc = next(path for path in map(Path, re.findall(r"/\S*libc\.so\.6", Path("/proc/self/maps").read_text())))
    for path in (injected_library(), libc, Path(sys.executable).resolve()):
        done = subprocess.run(["objdump", "-p", str(path)], capture_output=True, text=True)
        _, _, references = done.stdout.partition("Version References:")
        assert needed_versions(path) == set(re.findall(r"^\s+0x\w+ 0x\w+ \d+ (\S+)$", references, re.MULTILINE)), path


def test_a_file_that_is_no_library_has_no_versions(tmp_path: Path) -> None:
    (tmp_path / "no.so").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="not a 64-bit little-endian ELF object"):
        newest_glibc(tmp_path / "no.so")


def test_the_newest_version_counts_and_one_without_a_number_is_newer_than_any(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    needed = {"GLIBC_2.2.5", "GLIBC_2.9", "GLIBC_2.17"}
    monkeypatch.setattr("stallprobes.native.building.elf.needed_versions", lambda path: needed)
    INJECTED_LIBRARY.check(Path("a.so"))
    needed.add("GLIBC_2.34")
    with pytest.raises(BuildError, match=rf"{INJECTED} would need glibc 2.34, and may need 2.17"):
        INJECTED_LIBRARY.check(Path("a.so"))
    needed.discard("GLIBC_2.34")
    needed.add("GLIBC_ABI_DT_RELR")
    with pytest.raises(BuildError):
        INJECTED_LIBRARY.check(Path("a.so"))


def test_compilers_are_tried_in_order_and_each_library_has_the_first_that_can(tmp_path: Path) -> None:
    good = quick(tmp_path)
    calls = tmp_path / "calls"
    # It builds all but an injected library, which it says it cannot.
    compiling = f'case "$*" in *{INJECTED}*) exit 1;; esac; exec {good.name} "$@"'
    half = script(tmp_path, "half", f'echo call >> "{calls}"; {compiling}')
    missing = Compiler((str(tmp_path / "missing"),))
    folder = tmp_path / "lib"
    build(folder, compilers=[missing, half, good])
    record = json.loads((folder / RECORD).read_text())
    assert record["compilers"] == {CORE: half.name, INJECTED: good.name, ATTACHER: half.name}
    assert record["sources"] == digest_of_sources()
    assert record["libraries"] == {name: digest_of_file(folder / name) for name in (CORE, INJECTED, ATTACHER)}
    assert {path.name for path in folder.iterdir()} == {CORE, INJECTED, ATTACHER, RECORD}
    assert calls.read_text() == "call\n" * 3
    ctypes.CDLL(str(folder / CORE))


def test_the_first_error_is_quoted_and_a_failed_build_leaves_nothing(tmp_path: Path) -> None:
    first = script(tmp_path, "first", "echo 'a.c:1: fatal error: dlfcn.h: No such file' >&2; exit 1")
    second = script(tmp_path, "second", "echo 'another error' >&2; exit 1")
    with pytest.raises(BuildError, match=r"first fails: a\.c:1: fatal error: dlfcn\.h: No such file$"):
        build(tmp_path / "lib", compilers=[first, second])
    assert list((tmp_path / "lib").iterdir()) == []
    silent = script(tmp_path, "silent", "exit 3")
    with pytest.raises(BuildError, match="exit code 3"):
        build(tmp_path / "lib", compilers=[silent])
    with pytest.raises(BuildError, match="cannot be run"):
        build(tmp_path / "lib", compilers=[Compiler((str(tmp_path / "missing"),))])


def test_the_users_compiler_comes_first(tmp_path: Path) -> None:
    for name in ("clang", "cc"):
        script(tmp_path, name, "exit 0")
    path = {"PATH": str(tmp_path)}
    assert [each.command for each in of_system(path)] == [("cc",), ("clang",)]
    assert of_system(path | {"CC": "ccache my-cc"})[0].command == ("ccache", "my-cc")
    assert of_system({"PATH": str(tmp_path / "empty")}) == []


def test_a_machine_without_a_compiler_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(libraries, "of_system", list)
    monkeypatch.setattr(libraries, "zig", lambda target: [])
    with pytest.raises(BuildError, match="there is no C compiler"):
        build(tmp_path / "lib")
    monkeypatch.setattr("platform.machine", lambda: "riscv64")
    with pytest.raises(BuildError, match="works on Linux on x86_64 and aarch64, not on riscv64"):
        compilers.machine()


@pytest.mark.skipif(find_spec("ziglang") is None, reason="ziglang is not installed")
@pytest.mark.parametrize(("machine", "number"), [("x86_64", 62), ("aarch64", 183)])
def test_ziglang_builds_for_both_machines(tmp_path: Path, machine: str, number: int) -> None:
    build(tmp_path, target=machine)
    for name in (CORE, INJECTED):
        assert (tmp_path / name).read_bytes()[18] == number
        assert newest_glibc(tmp_path / name) <= NEWEST_GLIBC
    assert zig(machine)[0].name == "zig cc"


class NoSetuptools:
    """In place of setuptools' backend, which may not be installed: it requires nothing."""

    def get_requires_for_build_wheel(self, settings: object) -> list[str]:
        return []

    get_requires_for_build_editable = get_requires_for_build_wheel


def test_pip_installs_ziglang_only_where_no_compiler_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", " ".join(quick(tmp_path).command))
    monkeypatch.setattr(backend, "_setuptools", NoSetuptools)
    assert ZIG not in backend.get_requires_for_build_wheel()
    assert ZIG not in backend.get_requires_for_build_editable()
    # A wheel for another machine, or for many systems, is zig's.
    assert ZIG in backend.get_requires_for_build_wheel({"target": "aarch64"})
    with pytest.raises(SystemExit, match="the target of a wheel is x86_64 or aarch64, not riscv64"):
        backend.get_requires_for_build_wheel({"target": "riscv64"})
    # A compiler that is there and builds nothing, as one without the C library's headers.
    script(tmp_path, "gcc", "exit 1")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    assert ZIG in backend.get_requires_for_build_wheel()
    assert ZIG in backend.get_requires_for_build_editable()


def test_an_editable_installation_has_no_target(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="an editable installation has no target"):
        backend.build_editable(str(tmp_path), {"target": "aarch64"})
