"""The version with its commit, the scripts for shells, and the manual page."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import stallprobes
from factories.command_line import run
from stallprobes.version import commit_of

MANUAL = Path(__file__).parents[2] / "app" / "man"


def git(folder: Path, *words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True)


def test_the_version_is_that_of_the_package() -> None:
    assert stallprobes.__version__ == metadata.version("stallscope")
    done = run("--version")
    assert re.fullmatch(rf"stallscope {re.escape(metadata.version('stallscope'))}( \([0-9a-f]+\+?\))?\n", done.stdout)


def test_the_commit_is_that_of_a_clone_and_whether_it_has_changes(tmp_path: Path) -> None:
    assert commit_of(tmp_path) == ""
    git(tmp_path, "init")
    assert commit_of(tmp_path) == ""
    (tmp_path / "file").write_text("1")
    git(tmp_path, "add", "file")
    git(tmp_path, "commit", "-m", "first")
    git(tmp_path, "tag", "v1", "-m", "a tag is no commit")
    assert re.fullmatch(r"[0-9a-f]{12,}", found := commit_of(tmp_path))
    (tmp_path / "file").write_text("2")
    assert commit_of(tmp_path) == f"{found}+"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_the_one_that_click_has(shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0
    assert done.stdout == run(env={"_STALLSCOPE_COMPLETE": f"{shell}_source"}).stdout


def test_the_manual_page_is_up_to_date(tmp_path: Path) -> None:
    # In a process of its own: click keeps the help option of a command as its first context asks for it.
    made = tmp_path / "stallscope.1"
    subprocess.run([sys.executable, str(MANUAL / "make.py"), str(made)], check=True)
    assert (MANUAL / made.name).read_text(encoding="utf-8") == made.read_text(encoding="utf-8"), (
        "python app/man/make.py"
    )
