"""Output files that cannot be written: refused alike by every option of every command, before anything is measured."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
import pytest

from factories import command_help
from factories.command_line import environment
from stallprobes.errors import FileNotWritten
from stallprobes.files import atomic
from stallscope.cli import options, output_files
from stallscope.cli.process.diagnostics import CommandError

if TYPE_CHECKING:
    from factories.command_line import Command

FIFO, FOLDER, SLASH, NOWHERE, SYSTEM, FULL, STDOUT = "fifo", "folder", "name/", "nowhere/x", "/proc/x", "/dev/full", "-"

# Each command that writes files, as it would work if the file could be written. READ is never read.
COMMANDS = {
    "check": ("check",),
    "compare": ("compare", "READ", "READ"),
    "show": ("show", "READ"),
    "merge": ("merge", "READ"),
    "replay": ("replay", "READ"),
    "run": ("run", "launch"),
    "watch": ("watch", "--attach", "READ"),
}
# Those that open the screen ask for a terminal first.
SCREENS = ("", "demo")
RECORD = ("record", "FILE", "secondary-context-d2d", "--variant", "kernel-other-context", "--sim")


def output_options() -> list[tuple[str, str]]:
    """Every parameter with an output file: the command ("" for none) and the option."""
    found = []
    for name in ("", *command_help.COMMANDS):
        for parameter in command_help.command(name).params:
            if parameter.type is options.OUTPUT_FILE:
                found.append((name, parameter.opts[-1]))
    return found


def test_the_options_with_an_output_file_are_known() -> None:
    assert {name for name, _ in output_options()} == {*SCREENS, "record", *COMMANDS}
    assert len(output_options()) == 24


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a FIFO and a folder."""
    monkeypatch.chdir(tmp_path)
    os.mkfifo(FIFO)
    os.mkdir(FOLDER)
    Path("READ").write_text("not read before the files are refused", encoding="utf-8")
    return tmp_path


REASONS = {
    FIFO: "fifo is not a regular file: name a regular file or a new one",
    FOLDER: "folder is a folder: name a file in it",
    SLASH: "name/ is a folder: name a file in it",
    NOWHERE: "nowhere/x cannot be written: the folder FOLDER/nowhere does not exist",
    SYSTEM: "/proc/x cannot be written: no file can be created in /proc (No such file or directory)",
    FULL: "/dev/full is not a regular file: name a regular file or a new one",
    STDOUT: " needs a file; ",
}


@pytest.mark.parametrize("target", REASONS)
@pytest.mark.parametrize("force", [False, True], ids=["new", "force"])
def test_a_file_that_cannot_be_written_is_refused_alike(
    stallscope_command: Command, folder: Path, target: str, force: bool
) -> None:
    reason = REASONS[target].replace("FOLDER", str(folder))
    for name, option in output_options():
        if name in SCREENS:
            continue
        if name == "record":
            arguments = tuple(target if word == "FILE" else word for word in RECORD)
        else:
            words = ("watch", "true") if option == "--output" else COMMANDS[name]
            given = (option, target, *(["--force"] if force else []))
            arguments = (words[0], *given, *words[1:]) if words[-1] == "true" else (*words, *given)
        # What is refused must be refused before anything is measured.
        done = stallscope_command(*arguments, mode="never")
        # The codes below 125 are those of the program that it may start.
        assert (done.returncode, done.stdout) == (125 if name == "watch" else 2, ""), arguments
        assert len(done.stderr.splitlines()) == 1
        shown = "FILE" if name == "record" else option
        assert (f"{shown}{reason}" if target == STDOUT else f"{shown}: {reason}") in done.stderr
    assert sorted(os.listdir(folder)) == ["READ", FIFO, FOLDER]


def test_an_existing_file_is_no_file_to_record_to(stallscope_command: Command, folder: Path) -> None:
    done = stallscope_command(*("READ" if word == "FILE" else word for word in RECORD), mode="never")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "stallscope: READ exists; a recording never overwrites a file: name another one\n"


@pytest.mark.parametrize("target", [FIFO, FOLDER, SLASH, NOWHERE, FULL, STDOUT])
def test_the_screen_refuses_the_same_files(folder: Path, target: str) -> None:
    """By the function that it calls before it opens, and by the type of its option."""
    with pytest.raises((CommandError, click.BadParameter)) as refused:
        output_files.require_new_file("--record", options.OUTPUT_FILE.convert(target, None, None))
    assert REASONS[target].replace("FOLDER", str(folder)) in str(refused.value)


def test_a_file_in_a_folder_without_permission_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """By an attempt: what os.access says does not hold for root, nor for a file system that is mounted read-only."""

    def refused(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(FileNotWritten, match=r"no file can be created in .* \(Permission denied\)"):
        atomic.ready(tmp_path / "check.json", force=False)


def test_the_attempt_leaves_nothing(tmp_path: Path) -> None:
    atomic.ready(tmp_path / "check.json", force=False)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(("name", "known"), [("", "empty"), ("a/", "folder"), ("/", "folder")])
def test_the_name_of_a_folder_is_no_file(name: str, known: str) -> None:
    with pytest.raises(FileNotWritten, match=known):
        atomic.named_file(name)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_file_is_written_leaves_none(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path; from stallprobes.files import atomic\n"
        "def chunks():\n"
        "    yield b'part'\n"
        "    assert len(os.listdir(sys.argv[1])) == 1\n"
        "    os.kill(os.getpid(), int(sys.argv[2]))\n"
        "    yield b'rest'\n"
        "atomic.write(Path(sys.argv[1], 'check.json'), chunks(), force=False)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), str(int(number))], env=environment())
    assert done.returncode == -number
    assert os.listdir(tmp_path) == []


def test_a_working_folder_that_was_removed_is_one_sentence(tmp_path: Path) -> None:
    """In a process of its own: nothing else here has such a working folder."""
    code = (
        "import os, sys; from pathlib import Path; from stallprobes.files import atomic\n"
        "from stallprobes.errors import FileNotWritten; from stallscope.cli import output_files\n"
        "from stallscope.cli.process.diagnostics import CommandError\n"
        "os.mkdir('gone'); os.chdir('gone'); os.rmdir('../gone')\n"
        "for attempt in (lambda: atomic.ready(Path('x'), force=True),\n"
        "                lambda: atomic.write(Path('x'), [], force=True),\n"
        "                lambda: output_files.require_different({'A': Path('x')})):\n"
        "    try:\n"
        "        attempt()\n"
        "    except (FileNotWritten, CommandError) as error:\n"
        "        print('refused')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("refused\n" * 3, "")


@pytest.mark.parametrize(
    "arguments", [("compare", "READ", "other"), ("compare", "other", "READ"), ("show", "READ")], ids=" ".join
)
def test_the_page_of_a_check_is_another_file(
    stallscope_command: Command, folder: Path, arguments: tuple[str, ...]
) -> None:
    Path("other").write_text("not read", encoding="utf-8")
    before = Path("READ").read_bytes()
    done = stallscope_command(*arguments, "--html", "READ", "--force", mode="never")
    assert (done.returncode, done.stdout) == (2, "")
    assert "name the same file READ" in done.stderr
    assert Path("READ").read_bytes() == before
