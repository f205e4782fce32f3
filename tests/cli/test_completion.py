"""Shell completion: which words complete a line, what is loaded for it, and the scripts in real shells."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.shell_completion import FishComplete, ZshComplete

from factories import shells
from factories.command_line import command, environment
from factories.loaded_modules import loaded_modules, running
from stallprobes.catalog import entries
from stallprobes.engine.sim import profile
from stallprobes.matrix import references
from stallprobes.model import Role
from stallprobes.patterns import patterns
from stallprobes.verdicts.kinds import FAILURES
from stallscope.cli.command import COMPLETION_VARIABLE
from stallscope.cli.completers import FILE_TYPE
from stallscope.cli.main import SECTIONS, cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from factories.command_line import Command
    from factories.shells import InteractiveShell

COMMANDS = [name for listed in SECTIONS.values() for name in listed]
VICTIMS = [entry.name for entry in entries().values() if entry.role is Role.VICTIM]
AGGRESSORS = [entry.name for entry in entries().values() if entry.role is Role.AGGRESSOR]
NAMES = list(dict.fromkeys((*patterns(), *entries())))
RUN_NAMES = list(dict.fromkeys((*patterns(), "all", *entries())))
READBACKS = [variant.name for variant in patterns()["scalar-readback"].variants]
FILES = object()


def answered(line: str) -> list[object]:
    """What completes ``line`` after its last blank."""
    args, incomplete = line.split(" ")[1:-1], line.split(" ")[-1]
    items = ZshComplete(cli, {}, "stallscope", COMPLETION_VARIABLE).get_completions(args, incomplete)
    return [FILES if item.type == FILE_TYPE else item.value for item in items]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("stallscope ", COMMANDS),
        ("stallscope re", ["replay", "record"]),
        ("stallscope explain ", NAMES),
        ("stallscope run ", RUN_NAMES),
        ("stallscope run scalar-readback --variant ", READBACKS),
        ("stallscope run --variant kernel-o", ["kernel-other-context"]),
        ("stallscope record ", [FILES]),
        ("stallscope record a.rec s", ["secondary-context-d2d", "scalar-readback", "second-process"]),
        (
            "stallscope record a.rec scalar-readback --variant ",
            [v.name for v in patterns()["scalar-readback"].variants],
        ),
        ("stallscope check --victims ", ["all", *VICTIMS]),
        ("stallscope check --aggressors spin,", [f"spin,{name}" for name in ("all", *AGGRESSORS) if name != "spin"]),
        ("stallscope check --pattern p", ["peer-copy-behind-kernel", "pageable-d2h-vs-launch", "profiler-on"]),
        ("stallscope check --sim ", [*profile.names()]),
        ("stallscope check --sim v", ["v100"]),
        ("stallscope demo --pattern peer", ["peer-copy-behind-kernel"]),
        ("stallscope --sim r", ["rtx3090x2", "replay", "run", "record"]),
        ("stallscope --sim run scalar-o", ["scalar-on-device"]),
        ("stallscope run --sim scalar-o", ["scalar-on-device"]),
        ("stallscope list --sim h", ["h200"]),
        ("stallscope check --reference ", [FILES, *references.names(), "none"]),
        ("stallscope check --fail-on ", [*FAILURES, "unusual", "none"]),
        ("stallscope check --fail-on worse,s", ["worse,starved"]),
        ("stallscope compare --fail-on ", [*FAILURES, "none"]),
        ("stallscope check --save ", [FILES]),
        ("stallscope compare old.json ", [FILES]),
        ("stallscope merge a b ", [FILES]),
        ("stallscope replay ", [FILES]),
        ("stallscope fleet k", ["kubernetes"]),
        ("stallscope explain scalar-readback --lang ", ["cuda", "pytorch", "cupy"]),
        ("stallscope explain scalar-readback --lang p", ["pytorch"]),
        ("stallscope run --to", ["--together"]),
        ("stallscope doctor ", ["--json", "-h", "--help"]),
        # What is wrong already has no completion, and no error.
        ("stallscope nonsense ", COMMANDS),
        ("stallscope run --nope x", []),
        ("stallscope run --seconds two sc", [name for name in NAMES if name.startswith("sc")]),
    ],
)
def test_a_line_is_completed(line: str, expected: list[object]) -> None:
    assert answered(line) == expected


def test_every_name_can_be_completed() -> None:
    """So that a new pattern, variant, probe or profile is not forgotten."""
    for name in (*patterns(), *entries()):
        assert name in answered(f"stallscope run {name}")
        assert name in answered(f"stallscope explain {name}")
    for pattern in patterns().values():
        for variant in pattern.variants:
            assert answered(f"stallscope run {pattern.name} --variant {variant.name}")
    for name in profile.names():
        assert name in answered(f"stallscope run launch --sim {name}")


@pytest.mark.parametrize(
    ("shell", "words", "place", "expected"),
    [
        ("bash", "stallscope run scalar-o", 2, "plain,scalar-on-device"),
        # A whole word in zsh and several in bash, of which the scripts would replace too much or too little.
        ("zsh", "stallscope run launch --sim=v", 3, ""),
        ("bash", "stallscope run launch --sim = v", 5, ""),
        ("bash", "stallscope run d2d @ s", 4, ""),
    ],
)
def test_a_shell_gets_words_that_it_can_replace(
    stallscope_command: Command, shell: str, words: str, place: int, expected: str
) -> None:
    asked = {COMPLETION_VARIABLE: f"{shell}_complete", "COMP_WORDS": words, "COMP_CWORD": str(place)}
    done = stallscope_command(env=asked)
    assert (done.returncode, done.stdout.strip(), done.stderr) == (0, expected, "")


def test_zsh_and_fish_get_titles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMP_WORDS", "stallscope explain spin-f")
    for shell, word in ((ZshComplete, "2"), (FishComplete, "spin-f")):
        monkeypatch.setenv("COMP_CWORD", word)
        answer = shell(cli, {}, "stallscope", COMPLETION_VARIABLE).complete()
        assert entries()["spin-full"].title in answer


@pytest.mark.parametrize("shell", shells.SHELLS)
def test_the_script_is_printed(stallscope_command: Command, shell: str) -> None:
    done = stallscope_command(env={COMPLETION_VARIABLE: f"{shell}_source"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "_stallscope_completion" in done.stdout
    assert f"{COMPLETION_VARIABLE}={shell}_complete" in done.stdout


@pytest.mark.parametrize("instruction", ["csh_source", "bash", "bash_", "bash_nothing"])
def test_another_instruction_is_one_sentence(stallscope_command: Command, instruction: str) -> None:
    done = stallscope_command(env={COMPLETION_VARIABLE: instruction})
    assert (done.returncode, done.stdout) == (2, "")
    assert len(done.stderr.splitlines()) == 1
    assert "bash_source, fish_source, zsh_source" in done.stderr


@pytest.mark.parametrize(
    "line", ["stallscope ", "stallscope run ", "stallscope check --reference ", "stallscope run --sim "]
)
def test_a_completion_loads_nothing_that_measures(line: str) -> None:
    """What a Tab costs is what it loads."""
    asked = environment(
        **{COMPLETION_VARIABLE: "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(line.count(" "))}
    )
    loaded, out = loaded_modules(running(), asked)
    assert out.count("plain,") > 1
    heavy = {"numpy", "textual", "rich", "simpy", "cuda", "pynvml", "multiprocessing", "subprocess"}
    assert not {name.partition(".")[0] for name in loaded} & heavy
    if line == "stallscope ":
        ours = {name for name in loaded if name.partition(".")[0] == "stallprobes"}
        assert ours <= {"stallprobes", "stallprobes.foreign_text"}
        assert "stallscope.cli.run" not in loaded


@pytest.fixture(params=shells.SHELLS)
def shell(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[InteractiveShell]:
    """An interactive shell with the script, ``stallscope`` on its PATH and the file ``fleet-1.json`` in its folder."""
    program = shutil.which(request.param)
    if program is None:
        pytest.skip(f"{request.param} is not installed")
    tool = tmp_path / "bin" / "stallscope"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {" ".join(command(None))} "$@"\n', encoding="utf-8")
    tool.chmod(0o755)
    script = tmp_path / "script"
    known = environment(PATH=f"{tool.parent}{os.pathsep}{os.environ['PATH']}", HOME=str(tmp_path))
    source = {**known, COMPLETION_VARIABLE: f"{request.param}_source"}
    script.write_bytes(subprocess.run([tool], env=source, stdout=subprocess.PIPE, check=True).stdout)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    Path("fleet-1.json").touch()
    with shells.InteractiveShell(program, script, known) as opened:
        yield opened


def test_tab_completes_in_a_real_shell(shell: InteractiveShell) -> None:
    for line, expected in (
        ("stallscope compa", "stallscope compare"),
        ("stallscope run secondary-c", "stallscope run secondary-context-d2d"),
        ("stallscope run launch --sim v1", "stallscope run launch --sim v100"),
        # Nothing, rather than a word that replaces too much.
        ("stallscope run launch --sim=v", "stallscope run launch --sim=v"),
        (
            "stallscope run secondary-context-d2d --variant kernel-o",
            "stallscope run secondary-context-d2d --variant kernel-other-context",
        ),
        ("stallscope explain scalar-readback --lang py", "stallscope explain scalar-readback --lang pytorch"),
        ("stallscope explain default-s", "stallscope explain default-stream-gate"),
        ("stallscope fleet kub", "stallscope fleet kubernetes"),
        ("stallscope show fle", "stallscope show fleet-1.json"),
        ("stallscope check --compare fle", "stallscope check --compare fleet-1.json"),
        ("stallscope check --reference fle", "stallscope check --reference fleet-1.json"),
    ):
        assert shell.completed(line) == expected
