"""Hostile text in a result, a machine, a file and an argument: no command writes any of it raw."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from factories import hostile_recording
from factories.hostile_text import DECEPTIONS, HOSTILE, MARKUP, WIDE, forbidden

if TYPE_CHECKING:
    from factories.command_line import Command, Done
    from factories.terminal import OpenTerminal

# What a command line can hold: no NUL, and as lone surrogates only bytes that are no UTF-8.
ARGUMENT = HOSTILE.replace("\x00", "").replace("\ud800", "\udcff")
# A reader refuses control characters, but no others.
READABLE = f"{DECEPTIONS}{MARKUP}{WIDE}".replace("\ud800", "")


def clean(done: Done) -> str:
    """Both outputs, which hold no forbidden character."""
    assert not forbidden(done.stdout), repr(done.stdout)
    assert not forbidden(done.stderr), repr(done.stderr)
    return f"{done.stdout}{done.stderr}"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "all", "--allow-shared"), 4),
        (("run", "all", "--allow-shared", "--json"), 4),
        (("run", "all"), 2),
        (("doctor",), None),
        (("doctor", "--json"), None),
        (("run", "all", "--gpu", "9"), 3),
    ],
    ids=str,
)
def test_a_hostile_machine(stallscope_command: Command, arguments: tuple[str, ...], code: int | None) -> None:
    done = stallscope_command(*arguments, mode="hostile")
    text = clean(done)
    assert code in (None, done.returncode)
    assert "[red]" in text or code == 3


@pytest.mark.parametrize("mode", ["hostile-failure", "hostile-defect"])
def test_an_error_and_a_traceback(stallscope_command: Command, mode: str) -> None:
    done = stallscope_command("run", "all", "--allow-shared", mode=mode)
    assert done.returncode == 4
    assert "[red]" in clean(done)


def test_a_hostile_check_and_its_files(stallscope_command: Command, tmp_path: Path) -> None:
    check, page, metrics = (tmp_path / f"{WIDE}{name}" for name in ("a.json", "a.html", "a.prom"))
    files = ("--save", str(check), "--html", str(page), "--prometheus", str(metrics))
    assert "[red]" in clean(stallscope_command("check", "--full", "--allow-shared", *files, mode="hostile"))
    for file in (check, page, metrics):
        assert not forbidden(file.read_bytes().decode())
    document = json.loads(check.read_text(encoding="utf-8"))
    again = tmp_path / "again.json"
    again.write_text(json.dumps(document).replace("[red]", json.dumps(READABLE)[1:-1]), encoding="utf-8")
    others = ("show", "--full"), ("show", "--json"), ("compare", str(check), "--force")
    for arguments in others:
        done = stallscope_command(*arguments, str(again))
        assert done.returncode in (0, 1), done.stderr
        assert "[link=" in clean(done)
    damaged = tmp_path / f"{ARGUMENT.replace('/', '')[:60]}.json"
    damaged.write_text(json.dumps({**document, HOSTILE: 1}), encoding="utf-8")
    done = stallscope_command("show", str(damaged))
    assert done.returncode == 2
    assert "forged" in clean(done)


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", ARGUMENT),
        ("run", "all", "--gpu", ARGUMENT),
        ("run", "launch", "--sim", ARGUMENT),
        ("run", "launch", "--sim", "--sim-set", f"{ARGUMENT}=1"),
        ("run", f"launch@{ARGUMENT}"),
        ("explain", ARGUMENT),
        ("list", "--sim", ARGUMENT),
        ("show", ARGUMENT),
        ("replay", "--json", ARGUMENT),
        ("check", "--victims", ARGUMENT),
        ("check", "--hostname", ARGUMENT),
        ("check", "--save", f"/nowhere/{ARGUMENT}"),
        ("check", "--quick", f"--{ARGUMENT}"),
        ("fleet", ARGUMENT),
        (ARGUMENT,),
    ],
    ids=lambda arguments: f"{arguments[0][:8].strip(chr(27))} {len(arguments)}",
)
def test_a_hostile_argument(stallscope_command: Command, arguments: tuple[str, ...]) -> None:
    done = stallscope_command(*arguments, mode="never")
    assert done.returncode in (2, 3)
    assert len(done.stderr.splitlines()) == 1
    assert clean(done)


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A recording with every forbidden character, and one with those that JSON readers accept."""
    folder = tmp_path_factory.mktemp("hostile")
    hostile_recording.write(folder / "every.rec", HOSTILE)
    hostile_recording.write(folder / "readable.rec", READABLE)
    return folder / "every.rec", folder / "readable.rec"


def test_traces_of_a_hostile_recording(
    stallscope_command: Command, recordings: tuple[Path, Path], tmp_path: Path
) -> None:
    """The first one may be refused: then the message is clean too."""
    path = tmp_path / "traces.json"
    assert clean(stallscope_command("replay", str(recordings[0]), "--trace", str(path)))
    done = stallscope_command("replay", str(recordings[1]), "--trace", str(path), "--force")
    assert done.returncode == 0, done.stderr
    assert clean(done)
    assert READABLE in json.loads(path.read_bytes())["otherData"]["patterns"][0]


def test_a_hostile_recording_in_a_terminal(terminal: OpenTerminal, recordings: tuple[Path, Path]) -> None:
    screen = terminal("replay", str(recordings[1]))
    screen.wait_for("STALLED")
    since = screen.press("e")
    screen.wait_for("Calls and their phases", since)
    screen.press("q")
    screen.read(0.5)
    own = re.compile(r"\x1b\[[0-9;?<>=:$]*[a-zA-Z]|\x1b\[[0-9;?]*\$[a-z]|\x1b\]22;[a-z]*\x07|\x1b[78=>]|\r")
    text = own.sub("", screen.raw.decode(errors="strict"))
    assert "[red]" in text
    assert not forbidden(text)


def test_hostile_settings(terminal: OpenTerminal, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(f"{json.dumps(READABLE)} = 1\n", encoding="utf-8")
    screen = terminal("--sim", STALLSCOPE_SETTINGS=str(file))
    screen.wait_for("stallscope:")
    screen.read(0.5)
    assert not forbidden(screen.raw.decode().replace("\r\n", "\n"))
