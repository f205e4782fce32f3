"""Recordings to a folder whose stallscope was killed: the library itself ends them, and removes what it has there."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from factories.stand_in import OPTIONS, StandIn
from factories.waiting import wait_until
from factories.watched_folders import read_folder
from stallprobes.native.layouts.watch_file import LOCK_FILE
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.folder_lock import FolderLock

pytestmark = pytest.mark.trust

ALL_OPTIONS = [OPTIONS, WatchOptions(), WatchOptions(calls_only=True)]


@contextmanager
def running(stand_in: StandIn, folder: Path, options: WatchOptions) -> Iterator[subprocess.Popen[str]]:
    """A program that records to a folder, and ends well behind the test."""
    program = stand_in.start(folder, "threads-until-stopped", "4", "20", options=options)
    try:
        wait_until(lambda: any(one.calls > 100 for one in read_folder(folder).processes), "calls")
        yield program
    finally:
        program.terminate()
        output = program.communicate()
    assert (program.returncode, *output) == (0, "", "")


def threads_of(program: subprocess.Popen[str]) -> set[str]:
    """The names of the library's threads in a program."""
    found = set()
    for task in Path(f"/proc/{program.pid}/task").iterdir():
        # A thread may end meanwhile.
        with suppress(OSError):
            found.add((task / "comm").read_text().strip())
    return {name for name in found if name.startswith("stallscope")}


def is_recorded(program: subprocess.Popen[str]) -> bool:
    """Whether the program has a file of a recording in its memory."""
    return ".watch" in Path(f"/proc/{program.pid}/maps").read_text()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A private folder."""
    found = tmp_path / "out"
    found.mkdir(mode=0o700)
    return found


@pytest.mark.parametrize("options", ALL_OPTIONS, ids=["all", "windows", "calls"])
def test_a_folder_that_nobody_uses_any_more_is_removed(stand_in: StandIn, folder: Path, options: WatchOptions) -> None:
    lock = FolderLock.create(folder)
    with running(stand_in, folder, options) as program:
        wait_until(lambda: "stallscope-wait" in threads_of(program), "a thread that looks")
        # As the kernel does when a stallscope is killed.
        lock.release()
        wait_until(lambda: not folder.exists(), "no folder")
        assert not is_recorded(program)
        wait_until(lambda: not threads_of(program), "no thread of the library")


def test_what_others_have_in_the_folder_stays(stand_in: StandIn, folder: Path) -> None:
    lock = FolderLock.create(folder)
    with running(stand_in, folder, OPTIONS) as program:
        (folder / "1-0.watch").touch()
        lock.release()
        wait_until(lambda: not is_recorded(program), "no recording")
        wait_until(lambda: not threads_of(program), "no thread of the library")
        assert sorted(os.listdir(folder)) == ["1-0.watch", LOCK_FILE]


def test_a_recording_whose_folder_was_removed_ends(stand_in: StandIn, folder: Path) -> None:
    lock = FolderLock.create(folder)
    with running(stand_in, folder, OPTIONS) as program:
        shutil.rmtree(folder)
        wait_until(lambda: not is_recorded(program), "no recording")
    lock.release()


def test_a_folder_that_another_stallscope_uses_is_kept(stand_in: StandIn, folder: Path) -> None:
    locks = [FolderLock.create(folder), FolderLock.join(folder)]
    with running(stand_in, folder, OPTIONS) as program:
        locks[0].release()
        (before,) = read_folder(folder).processes
        wait_until(lambda: read_folder(folder).processes[0].calls > before.calls + 1000, "calls")
        assert is_recorded(program)
    locks[1].release()


def test_a_folder_without_a_lock_is_kept(stand_in: StandIn, folder: Path) -> None:
    with running(stand_in, folder, OPTIONS) as program:
        # Nobody looks.
        assert "stallscope-wait" not in threads_of(program)
    assert len(read_folder(folder).processes) == 1
