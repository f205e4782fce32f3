"""Every command in the documents, run as it stands there, with the simulated GPU and short times."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.command_line import TIMEOUT_S, Done, environment, run
from factories.terminal import Terminal
from stallprobes.matrix import reference_maker

TOP = Path(__file__).parents[2]
DOCUMENTS = ("README.md", "app/README.md", "app/WATCH.md", "probes/README.md")
# What `.ci/run` does with a clean clone, and a loop over machines that builds wheels with zig.
ELSEWHERE = ("python3 -m venv", "for machine in")
CHECK = ("--sim", "--victims", "launch", "--aggressors", "spin", "--quick")
# Where there is no GPU, and no time: what each command gets beside what stands in the document.
ADDED = {
    "": ("--sim",),
    "run": ("--sim", "--seconds", "0.5"),
    "record": ("--sim", "--seconds", "0.5"),
    "check": CHECK,
    "demo": ("--sim", "--seconds", "1"),
}
# A pattern of which one variant is enough, where the document runs all.
PATTERN, VARIANT = "secondary-context-d2d", ("--variant", "kernel-other-context")
# Of doctor, where there is none.
NO_GPU = 3
# The process in the documents, for which one of this machine stands that has no libcuda.
PID, REFUSED = "4711", 125
# What a list of the processes on the GPUs says on a machine without a driver.
NO_LIST = "cannot be listed"
RECORDED = TOP / "tests" / "gpu" / "recorded"


def lines() -> list[str]:
    """The lines of all blocks of shell commands, each once, without their comments."""
    found: dict[str, None] = {}
    for name in DOCUMENTS:
        text = (TOP / name).read_text(encoding="utf-8")
        for block in re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                command = re.sub(r"\s+# .*", "", line).replace(".venv/bin/", "").strip()
                if command and not line.startswith(ELSEWHERE):
                    found[command] = None
    return list(found)


def is_screen(words: list[str]) -> bool:
    """Whether a command opens a screen in a terminal."""
    name = words[1] if len(words) > 1 else ""
    if name == "watch":
        return not {"--headless", "--print-env", "--attach", "--pid", "--repeat"} & set(words)
    return name in ("", "demo") or (name == "replay" and "--json" not in words)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the programs of the documents, and what they read."""
    folder = tmp_path_factory.mktemp("documents")
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (
        ("stallscope", f'exec {sys.executable} -m stallscope "$@"\n'),
        ("python", f'exec {sys.executable} "$@"\n'),
        ("torchrun", 'exec python "$@"\n'),
        ("solver", "exit 0\n"),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{text}")
        (programs / name).chmod(0o755)
    (folder / "train.py").write_text("print('trained')\n")
    (folder / "solver").symlink_to(programs / "solver")
    for number in (1, 2):
        shutil.copy(RECORDED / f"check-h200x2-{number}.json.gz", folder)
    for words in (
        ("check", *CHECK, "--save", "before.json"),
        ("record", "stall.rec", PATTERN, *VARIANT, *ADDED["record"]),
        *(("watch", "--headless", "--save", name, "--", "true") for name in ("before.runs", "after.runs")),
        ("watch", "--print-env"),
    ):
        done = run(*words, env={"TMPDIR": str(folder)}, cwd=folder)
        assert done.returncode == 0, done.stderr
    (folder / "watch.env").write_text(done.stdout)
    sleeper = subprocess.Popen(["sleep", "infinity"])
    (folder / "pid").write_text(str(sleeper.pid))
    checks = [str(path) for path in sorted(folder.glob("check-*"))]
    assert reference_maker.main([str(folder / "fleet.json"), *checks]) is None
    yield folder
    sleeper.kill()
    sleeper.wait()


@pytest.fixture
def place(programs: Path, tmp_path: Path) -> Path:
    """A folder of its own for a command, with all that the commands read."""
    for path in programs.iterdir():
        (tmp_path / path.name).symlink_to(path)
    return tmp_path


def written(line: str) -> str | None:
    """The name of the file that a command writes and other commands read."""
    words = line.split()
    options = ("--save", ">", "record", "stallprobes.matrix.reference_maker")
    return next((words[words.index(option) + 1] for option in options if option in words), None)


def added(words: list[str]) -> tuple[str, ...]:
    """What a command gets beside its words."""
    more = ADDED.get("".join(words[:1]), ())
    return (*more, *VARIANT) if words[:2] == ["run", PATTERN] else more


def run_there(line: str, place: Path) -> Done:
    """Run a line of a document: in a shell where it is more than the words of one command."""
    env = {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}", "TMPDIR": str(place)}
    first, *words = line.split()
    if first == "stallscope" and ">" not in words:
        return run(*words, *added(words), env=env, cwd=place)
    return subprocess.run(
        ["bash", "-c", line],
        cwd=place,
        env=environment(**env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def words_there(line: str, place: Path) -> str:
    """The line with the names of this machine, and without what it writes in the folder."""
    recorded = (place / "watch.env").read_text()
    [folder] = re.findall(r"^export STALLSCOPE_WATCH_FOLDER='?([^'\n]*)", recorded, flags=re.MULTILINE)
    if (name := written(line)) is not None:
        (place / name).unlink(missing_ok=True)
    return line.replace("FOLDER", folder).replace(PID, (place / "pid").read_text())


@pytest.mark.parametrize("line", [line for line in lines() if not is_screen(line.split())])
def test_a_command_of_the_documents_works(line: str, place: Path) -> None:
    done = run_there(words_there(line, place), place)
    assert "Traceback" not in done.stderr
    if PID in line:
        assert (done.returncode, "libcuda" in done.stderr) == (REFUSED, True), done.stderr
    else:
        assert done.returncode in ((0, NO_GPU) if "doctor" in line else (0,)), done.stderr
        assert done.stdout or done.stderr or written(line)
    if (name := written(line)) is not None:
        assert (place / name).is_file()


@pytest.mark.parametrize("line", [line for line in lines() if is_screen(line.split())])
def test_a_screen_of_the_documents_opens_and_closes(line: str, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    # A machine may name its interpreter python3 alone.
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    words = line.split()[1:]
    terminal = Terminal([*words, *added(words)], (100, 30), {})
    try:
        terminal.wait_until(
            lambda: "quit" in terminal.text() or NO_LIST in terminal.text(), "a screen, or why there is none"
        )
        if NO_LIST in terminal.text():
            assert (line, terminal.wait_for_end()) == ("stallscope watch", REFUSED)
        else:
            assert terminal.quit() == 0
    finally:
        terminal.close()
