"""Folders of programs whose stallscope was killed: removed once nobody uses them, and no others."""

from __future__ import annotations

import mmap
import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from factories import processes, waiting
from factories.command_line import start
from factories.stand_in import StandIn
from stallprobes.native.layouts.watch_file import LOCK_FILE, PAGE
from stallprobes.watch.reading.folder import PREFIX, create_folder
from stallprobes.watch.reading.folder_lock import FolderLock, places, remove_abandoned
from stallscope.cli import main as cli


def abandoned(parent: Path) -> Path:
    """A folder with the file of a process; nobody uses it."""
    folder = create_folder(parent)
    FolderLock.create(folder).release()
    (folder / "12-0.watch").write_bytes(bytes(PAGE))
    return folder


def test_a_folder_that_nobody_uses_is_removed(tmp_path: Path) -> None:
    abandoned(tmp_path)
    abandoned(tmp_path)
    assert remove_abandoned([tmp_path, tmp_path / "missing"]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [FolderLock.create, FolderLock.join], ids=["create", "join"])
def test_a_folder_that_a_stallscope_uses_is_kept(how: Callable[[Path], FolderLock], tmp_path: Path) -> None:
    folder = abandoned(tmp_path)
    lock = how(folder)
    assert remove_abandoned([tmp_path]) == 0
    lock.release()
    assert remove_abandoned([tmp_path]) == 1


def test_a_folder_that_a_program_uses_is_kept(tmp_path: Path) -> None:
    file = abandoned(tmp_path) / "12-0.watch"
    with file.open("r+b") as opened:
        memory = mmap.mmap(opened.fileno(), PAGE)
    # As in the injected library: in memory, with no descriptor.
    assert remove_abandoned([tmp_path]) == 0
    memory.close()
    assert remove_abandoned([tmp_path]) == 1


def without_lock(folder: Path) -> None:
    (folder / LOCK_FILE).unlink()


def linked_lock(folder: Path) -> None:
    (folder / LOCK_FILE).replace(folder.parent / "lock")
    (folder / LOCK_FILE).symlink_to(folder.parent / "lock")


def linked_file(folder: Path) -> None:
    (folder.parent / "victim").write_text("kept")
    (folder / "13-0.watch").symlink_to(folder.parent / "victim")


def with_other_file(folder: Path) -> None:
    (folder / "notes").write_text("kept")


def open_to_others(folder: Path) -> None:
    folder.chmod(0o750)


def linked_folder(folder: Path) -> None:
    folder.rename(folder.parent / "elsewhere")
    folder.symlink_to(folder.parent / "elsewhere")


def named_otherwise(folder: Path) -> None:
    folder.rename(folder.parent / folder.name.removeprefix(PREFIX))


def pipe(folder: Path) -> None:
    (folder / LOCK_FILE).unlink()
    os.mkfifo(folder / LOCK_FILE)


@pytest.mark.parametrize(
    "change",
    [without_lock, linked_lock, linked_file, with_other_file, open_to_others, linked_folder, named_otherwise, pipe],
)
def test_what_stallscope_did_not_make_as_it_is_is_kept(change: Callable[[Path], None], tmp_path: Path) -> None:
    change(abandoned(tmp_path))
    before = sorted(tmp_path.rglob("*"))
    assert remove_abandoned([tmp_path]) == 0
    assert sorted(tmp_path.rglob("*")) == before


def test_a_folder_for_programs_that_are_started_elsewhere_has_no_lock(tmp_path: Path) -> None:
    folder = create_folder(tmp_path)
    FolderLock.join(folder).release()
    assert list(folder.iterdir()) == []


def test_the_places_are_those_in_which_folders_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert tmp_path in places()
    assert create_folder().parent in places()


def test_the_next_watch_removes_the_folder_of_a_killed_one_once_its_program_has_ended(
    settings: dict[str, str], stand_in: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = Path(settings["XDG_RUNTIME_DIR"])
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    def watch_another() -> None:
        with pytest.raises(SystemExit) as ended:
            cli.main(["watch", "true"])
        assert not ended.value.code

    with start("watch", str(stand_in.folder / "host"), "hang", env=settings) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hung\n"
        (program,) = [pid for pid in processes.children(process.pid) if is_host(pid)]
        (folder,) = runtime.iterdir()
        # A program that runs removes its folder by itself.
        lock = FolderLock.join(folder)
        process.kill()
        processes.wait_for_end(process.pid)
        os.kill(program, signal.SIGSTOP)
        lock.release()
        watch_another()
        assert sorted(path.name for path in folder.iterdir()) == [f"{program}-0.watch", LOCK_FILE]
        os.kill(program, signal.SIGKILL)
        processes.wait_for_end(program)

    def is_removed() -> bool:
        watch_another()
        return list(runtime.iterdir()) == []

    # The kernel releases the files of a killed process a little later than it shows it as ended.
    waiting.wait_until(is_removed, "the folder is removed")


def test_a_program_removes_the_folder_of_its_killed_watch(settings: dict[str, str], stand_in: StandIn) -> None:
    runtime = Path(settings["XDG_RUNTIME_DIR"])
    with start("watch", str(stand_in.folder / "host"), "hang", env=settings) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "hung\n"
        (program,) = [pid for pid in processes.children(process.pid) if is_host(pid)]
        process.kill()
        processes.wait_for_end(process.pid)
        waiting.wait_until(lambda: list(runtime.iterdir()) == [], "the folder is removed")
        assert is_host(program)
        os.kill(program, signal.SIGKILL)
        processes.wait_for_end(program)


def is_host(pid: int) -> bool:
    """Whether a process runs the host program."""
    return Path(f"/proc/{pid}/cmdline").read_bytes().endswith(b"host\0hang\0")


def test_without_a_folder_for_temporary_files_the_others_are_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    def none() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    everywhere = places()
    monkeypatch.setattr(tempfile, "gettempdir", none)
    assert set(places()) < set(everywhere)
