"""Input files that are none: refused alike by every command, at once, in a sentence and with the documented code."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from factories import command_help, matrices
from factories.command_line import environment
from stallprobes.matrix import check_file
from stallscope.cli import options

if TYPE_CHECKING:
    from factories.command_line import Command

FIFO, CHECK = "fifo", "check.json"
REASON = "is neither a regular file nor a pipe that is open already: name a file, or /dev/stdin with a pipe"
NO_FILE, NO_FOLDER = f"{FIFO} {REASON}", f"{FIFO} is not a folder"
# The command line in which FIFO is the file of a parameter, by its command and name, and what is said.
COMMANDS = {
    ("check", "--compare"): (("check", "--sim", "--compare", FIFO), NO_FILE),
    ("compare", "old"): (("compare", FIFO, CHECK), NO_FILE),
    ("compare", "new"): (("compare", CHECK, FIFO), NO_FILE),
    ("merge", "files"): (("merge", FIFO), NO_FILE),
    ("replay", "file"): (("replay", "--json", FIFO), NO_FILE),
    ("show", "file"): (("show", FIFO), NO_FILE),
    ("watch", "--attach"): (("watch", "--attach", FIFO), NO_FOLDER),
    ("watch", "--matrix"): (("watch", "--matrix", FIFO, "--headless", "true"), NO_FILE),
}
# What takes the name of something that is known, or a file.
OTHERS = {
    "--reference": (("show", CHECK, "--reference", f"{FIFO}.json"), f"{FIFO}.json {REASON}"),
    "STALLSCOPE_SETTINGS": (("explain", "launch-storm"), f"{FIFO} {REASON}; correct it, or give --lang"),
}


def test_the_parameters_with_an_input_file_are_known() -> None:
    found = {
        (name, parameter.opts[-1])
        for name in ("", *command_help.COMMANDS)
        for parameter in command_help.command(name).params
        if parameter.type is options.INPUT_FILE
    }
    assert found == set(COMMANDS)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory, with a check, and named pipes that have no writer."""
    monkeypatch.chdir(tmp_path)
    for name in (FIFO, f"{FIFO}.json"):
        os.mkfifo(name)
    check_file.save(matrices.made_up(1), CHECK)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [*COMMANDS.values(), *OTHERS.values()],
    ids=[" ".join(key) for key in COMMANDS] + [*OTHERS],
)
def test_a_named_pipe_is_refused_at_once(
    stallscope_command: Command, folder: Path, arguments: tuple[str, ...], sentence: str
) -> None:
    done = stallscope_command(*arguments, mode="never", env={"STALLSCOPE_SETTINGS": FIFO})
    # The codes below 125 are those of the program that watch may start.
    assert (done.returncode, done.stdout) == (125 if arguments[0] == "watch" else 2, "")
    assert done.stderr == f"stallscope: {sentence}\n"


def test_a_check_from_a_pipe_is_shown(folder: Path) -> None:
    words = [sys.executable, "-m", "stallscope", "show", "/dev/stdin"]
    with open(CHECK, "rb") as file, subprocess.Popen(["cat"], stdin=file, stdout=subprocess.PIPE) as pipe:
        done = subprocess.run(words, stdin=pipe.stdout, env=environment(), capture_output=True, text=True, timeout=170)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
