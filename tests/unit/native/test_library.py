"""The native libraries of an installation: what is refused before they are loaded, and in which words."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from stallprobes.errors import EXIT_ENGINE, NativeLibraryError
from stallprobes.native import library
from stallprobes.native.library import REMEDY, Core, problem
from stallprobes.native.sources import CORE, INJECTED, LIBRARIES, NATIVE, RECORD, sources


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The libraries of a copy of this installation."""
    for source in sources():
        copy = tmp_path / source.relative_to(NATIVE)
        copy.parent.mkdir(exist_ok=True)
        shutil.copy(source, copy)
    made = tmp_path / LIBRARIES.name
    shutil.copytree(LIBRARIES, made)
    return made


def test_the_libraries_of_this_installation_are_complete(folder: Path) -> None:
    assert (problem(), problem(folder)) == ("", "")


def changed_source(folder: Path) -> None:
    with (folder.parent / "core" / "loop.c").open("a") as file:
        file.write("/* changed */\n")


def new_source(folder: Path) -> None:
    (folder.parent / "core" / "new.c").touch()


def changed_layout(folder: Path) -> None:
    with (folder.parent / "layouts" / "board.py").open("a") as file:
        file.write("MORE = 1\n")


def damaged(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        raw = bytearray((folder / name).read_bytes())
        raw[len(raw) // 2] ^= 1
        (folder / name).write_bytes(raw)

    return change


def cut_off(folder: Path) -> None:
    path = folder / INJECTED
    path.write_bytes(path.read_bytes()[:1000])


def missing(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def not_a_record(folder: Path) -> None:
    (folder / RECORD).write_text("[]")


def half_a_record(folder: Path) -> None:
    record = json.loads((folder / RECORD).read_text())
    del record["libraries"][CORE]
    (folder / RECORD).write_text(json.dumps(record))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (changed_source, "were built from other sources"),
        (new_source, "were built from other sources"),
        (changed_layout, "were built from other sources"),
        (damaged(CORE), f"{CORE} is damaged"),
        (damaged(INJECTED), f"{INJECTED} is damaged"),
        (cut_off, f"{INJECTED} is damaged"),
        (missing(CORE), f"are not built (.*{CORE} is missing)"),
        (missing(RECORD), f"are not built (.*{RECORD} is missing)"),
        (not_a_record, f"{RECORD} is damaged"),
        (half_a_record, f"{RECORD} is damaged"),
    ],
)
def test_what_is_wrong_with_an_installation_is_said(folder: Path, change: Callable[[Path], None], words: str) -> None:
    change(folder)
    begin, _, end = words.partition("(.*")
    assert begin in problem(folder)
    assert end in problem(folder)


def test_a_library_that_cannot_be_used_is_one_sentence_with_the_remedy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing(INJECTED)(folder)
    monkeypatch.setattr(library, "problem", lambda: problem(folder))
    library._checked.cache_clear()
    try:
        with pytest.raises(NativeLibraryError) as caught:
            library.injected_library()
    finally:
        library._checked.cache_clear()
    assert caught.value.exit_code == EXIT_ENGINE
    assert caught.value.sentence.endswith(f"{INJECTED} is missing); {REMEDY}.")
    assert "\n" not in caught.value.sentence


def test_a_file_that_is_no_core_cannot_be_loaded(tmp_path: Path) -> None:
    nothing = tmp_path / "core.so"
    nothing.write_bytes(b"\x7fELF")
    with pytest.raises(NativeLibraryError, match="cannot be loaded"):
        Core(nothing)
    # Without the functions of the core.
    with pytest.raises(NativeLibraryError, match="cannot be loaded"):
        Core(LIBRARIES / INJECTED)
