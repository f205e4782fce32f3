"""Opening of the files that the user names: none waits for a writer, and no device is opened."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from factories.command_line import environment
from stallprobes.errors import FileMissing, FileNotRead, OversizedData
from stallprobes.files import input_file

NO_FILE = "is neither a regular file nor a pipe that is open already: name a file, or /dev/stdin with a pipe"


def fifo(folder: Path) -> Path:
    os.mkfifo(folder / "fifo")
    return folder / "fifo"


def bound(folder: Path) -> Path:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "socket"))
    return folder / "socket"


def link(folder: Path) -> Path:
    (folder / "link").symlink_to(fifo(folder))
    return folder / "link"


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (fifo, NO_FILE),
        (link, NO_FILE),
        (bound, NO_FILE),
        (lambda _: Path("/dev/zero"), NO_FILE),
        (lambda _: Path("/dev/tty"), NO_FILE),
        (lambda folder: folder, "is a folder: name a file in it"),
        (lambda folder: folder / "none", "cannot be read: No such file or directory"),
        (lambda folder: folder / "a\0b", "cannot be read: embedded null byte"),
    ],
    ids=["named pipe", "link to one", "socket", "device", "terminal", "folder", "missing", "null byte"],
)
def test_what_is_no_file_is_refused_at_once(make: Callable[[Path], Path], reason: str, tmp_path: Path) -> None:
    path = make(tmp_path)
    before = os.listdir("/proc/self/fd")
    for _ in range(2):
        with pytest.raises(FileNotRead) as refused:
            input_file.opened(path)
        assert str(refused.value) == f"{path} {reason}"
    assert len(os.listdir("/proc/self/fd")) == len(before)


@pytest.mark.parametrize("name", ["none", "file/none"])
def test_a_missing_file_is_known_as_such(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FileMissing):
        input_file.opened(tmp_path / name)


def test_a_file_and_a_link_to_one_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    for name in ("file", "link"):
        with input_file.opened(tmp_path / name) as file:
            assert file.read() == b"content"
            assert os.get_blocking(file.fileno())
            assert not os.get_inheritable(file.fileno())


def test_no_more_is_read_than_is_allowed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"x" * 2048)
    assert input_file.read(tmp_path / "file", 2048) == b"x" * 2048
    with pytest.raises(OversizedData, match="it has more than 1 KiB"):
        input_file.read(tmp_path / "file", 1024)


def test_the_null_device_is_an_empty_file() -> None:
    assert input_file.read(os.devnull, 10) == b""


def test_another_file_of_the_same_name_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.touch()
    system_open = os.open

    def replaced(name: object, flags: int, *rest: int) -> int:
        if not flags & os.O_PATH:
            path.unlink()
            os.mkfifo(path)
        return system_open(str(name), flags, *rest)

    monkeypatch.setattr(os, "open", replaced)
    with pytest.raises(FileNotRead, match="was replaced while it was opened: try again"):
        input_file.opened(path)


READER = "import sys; from stallprobes.files import input_file; print(input_file.read(sys.argv[1], 100))"


@pytest.mark.parametrize("kind", ["pipe", "named pipe", "file"])
def test_standard_input_is_read(kind: str, tmp_path: Path) -> None:
    words = [sys.executable, "-c", READER, "/dev/stdin"]
    shell = {
        "pipe": 'echo content | "$@"',
        "named pipe": f'mkfifo {tmp_path}/p; echo content > {tmp_path}/p & "$@" < {tmp_path}/p',
        "file": f'echo content > {tmp_path}/p; "$@" < {tmp_path}/p',
    }
    done = subprocess.run(
        ["sh", "-c", shell[kind], "sh", *words], env=environment(), capture_output=True, text=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("b'content\\n'\n", "")


def test_a_pipe_of_the_shell_is_waited_for(tmp_path: Path) -> None:
    script = f"{sys.executable} -c '{READER}' <(sleep 0.2; echo content)"
    done = subprocess.run(["bash", "-c", script], env=environment(), capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("b'content\\n'\n", "")
