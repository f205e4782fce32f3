"""The atomic writer, killed at each of its system calls, and on file systems that lack what it uses."""

from __future__ import annotations

import errno
import os
import signal
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stallprobes.errors import FileNotWritten
from stallprobes.files import atomic, user_state

OLD, PARTS = b"old", (b"new " * 1000, b"content " * 20_000)
NEW = b"".join(PARTS)
CALLS = ("open", "write", "fchmod", "fsync", "link", "replace", "unlink", "close", "stat", "lstat", "getxattr")
FILE, LINK = "check.json", "link.json"


@pytest.fixture(params=["links", "no links"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The way in which files get their names: as the file system has it, or as one without hard links."""
    if request.param == "no links":
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
    return str(request.param)


def failing(number: int) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def killed_at(step: int, work: Callable[[Callable[[], None]], None]) -> bool:
    """Whether a child was killed that does ``work``, at its system call number ``step``: it is killed before that.

    ``work`` gets a function that is called as a system call is.
    """
    child = os.fork()
    if not child:
        try:
            _kill_at(step, work)
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or os.waitstatus_to_exitcode(status) == 0
    return os.WIFSIGNALED(status)


def _kill_at(step: int, work: Callable[[Callable[[], None]], None]) -> None:
    done = 0

    def count() -> None:
        nonlocal done
        done += 1
        if done == step:
            os.kill(os.getpid(), signal.SIGKILL)

    def counting(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            count()
            return function(*arguments, **named)

        return call

    for name in CALLS:
        setattr(os, name, counting(getattr(os, name)))
    work(count)


def chunks(count: Callable[[], None]) -> Iterator[bytes]:
    for part in PARTS:
        count()
        yield part


def folders_of_kills(folder: Path, work: Callable[[Path, Callable[[], None]], None], old: bytes) -> Iterator[Path]:
    """The folder after each kill of ``work``, and at the end after none. ``old`` is the content before, if any."""
    for step in range(1, 200):
        place = folder / str(step)
        place.mkdir()
        if old:
            (place / FILE).write_bytes(old)
        killed = killed_at(step, lambda count, place=place: work(place, count))  # type: ignore[misc]
        yield place
        if not killed:
            assert step > 3
            return
    raise AssertionError("it did not end")


def temporary(place: Path) -> list[Path]:
    return [path for path in place.iterdir() if path.name != FILE]


def test_a_kill_leaves_all_of_a_new_file_or_nothing(way: str, tmp_path: Path) -> None:
    def work(place: Path, count: Callable[[], None]) -> None:
        atomic.write(place / FILE, chunks(count), force=False)

    places = list(folders_of_kills(tmp_path, work, b""))
    assert {(place / FILE).read_bytes() for place in places if (place / FILE).exists()} == {NEW}
    assert (places[-1] / FILE).exists()
    assert not (places[0] / FILE).exists()
    assert temporary(places[-1]) == []


def test_a_kill_leaves_the_old_file_or_the_new_one(way: str, tmp_path: Path) -> None:
    def work(place: Path, count: Callable[[], None]) -> None:
        atomic.write(place / FILE, chunks(count), force=True)

    places = list(folders_of_kills(tmp_path, work, OLD))
    assert {(place / FILE).read_bytes() for place in places} == {OLD, NEW}
    assert (places[-1] / FILE).read_bytes() == NEW
    assert temporary(places[-1]) == []


def test_a_file_is_written_with_the_umask(way: str, tmp_path: Path) -> None:
    for umask in (0o022, 0o077, 0o027):
        before = os.umask(umask)
        try:
            atomic.write(tmp_path / FILE, PARTS, force=True)
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o666 & ~umask
    atomic.write(tmp_path / FILE, PARTS, force=True, mode=0o640)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o640
    assert os.listdir(tmp_path) == [FILE]


def test_a_symbolic_link_stays_and_its_file_is_replaced(way: str, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    (tmp_path / "else" / FILE).write_bytes(OLD)
    (tmp_path / LINK).symlink_to(Path("else", FILE))
    with pytest.raises(FileNotWritten, match="already exists"):
        atomic.write(tmp_path / LINK, PARTS, force=False)
    atomic.write(tmp_path / LINK, PARTS, force=True)
    assert (tmp_path / LINK).is_symlink()
    assert (tmp_path / "else" / FILE).read_bytes() == NEW
    assert sorted(os.listdir(tmp_path)) == ["else", LINK]
    assert os.listdir(tmp_path / "else") == [FILE]


def test_a_file_that_appears_meanwhile_is_kept_without_force(way: str, tmp_path: Path) -> None:
    def appears() -> Iterator[bytes]:
        yield NEW
        (tmp_path / FILE).write_bytes(OLD)

    with pytest.raises(FileNotWritten, match="already exists"):
        atomic.write(tmp_path / FILE, appears(), force=False)
    assert (tmp_path / FILE).read_bytes() == OLD
    with pytest.raises(FileNotWritten, match="already exists"), atomic.created(tmp_path / "new", force=False):
        (tmp_path / "new").write_bytes(OLD)
    assert sorted(os.listdir(tmp_path)) == [FILE, "new"]
    (tmp_path / FILE).unlink()
    atomic.write(tmp_path / FILE, appears(), force=True)
    assert (tmp_path / FILE).read_bytes() == NEW
    assert sorted(os.listdir(tmp_path)) == [FILE, "new"]


@pytest.mark.parametrize("force", [False, True])
def test_what_fails_keeps_the_old_file(way: str, force: bool, tmp_path: Path) -> None:
    def full() -> Iterator[bytes]:
        yield NEW
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if force:
        (tmp_path / FILE).write_bytes(OLD)
    with pytest.raises(FileNotWritten, match="No space left"):
        atomic.write(tmp_path / FILE, full(), force=force)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [OLD] * force


def test_a_created_file_has_its_name_at_the_end(way: str, tmp_path: Path) -> None:
    with atomic.created(tmp_path / FILE, force=False) as descriptor:
        os.write(descriptor, NEW)
        assert not (tmp_path / FILE).exists()
    assert (tmp_path / FILE).read_bytes() == NEW
    for error in (ZeroDivisionError, FileNotFoundError):
        with pytest.raises(error), atomic.created(tmp_path / FILE, force=True):
            raise error
    assert (tmp_path / FILE).read_bytes() == NEW
    assert os.listdir(tmp_path) == [FILE]


def test_a_small_file_of_the_user_is_whole_after_a_kill(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(place: Path, _: Callable[[], None]) -> None:
        os.environ["XDG_STATE_HOME"] = str(place)
        user_state.write("last", "text")

    found = set()
    for place in folders_of_kills(tmp_path, work, b""):
        monkeypatch.setenv("XDG_STATE_HOME", str(place))
        found.add(user_state.read("last") if (place / "stallscope" / "last").exists() else None)
    assert found == {None, "text"}
