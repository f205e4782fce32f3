"""Fragments of the CHANGELOG in app/changes, and what CI requires of commits."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAGMENTS = sorted((ROOT / "app" / "changes").iterdir()) if (ROOT / "app" / "changes").is_dir() else []
FRAGMENT = re.compile(r"(Added|Changed|Fixed|Removed)\n\S[^\n]*[.)]\n")
needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git")
PRODUCT, CHANGES = "app/stallscope/a.py", "app/changes/a.md"


@pytest.mark.parametrize("path", FRAGMENTS, ids=lambda path: path.name)
def test_a_fragment_is_a_section_and_a_sentence(path: Path) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*\.md", path.name)
    assert FRAGMENT.fullmatch(path.read_text(encoding="utf-8"))


def git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=folder, check=True, capture_output=True
    )


def commit(folder: Path, file: str, message: str) -> None:
    """Change a file, and commit that."""
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{path.read_text() if path.exists() else ''}{message}\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-m", message)


def refusal(folder: Path) -> str:
    """What the check of .ci/run says of the commits in a folder; "" if they pass."""
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    function = re.search(r"^require_fragments\(\) \{\n.*?^\}\n", script, re.MULTILINE | re.DOTALL)
    assert function
    words = ["bash", "-euo", "pipefail", "-c", f"{function[0]}require_fragments"]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == (not done.stderr)
    return done.stderr


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A tree with commits from before the first fragment."""
    folder = tmp_path / "tree"
    folder.mkdir()
    git(folder, "init", "-b", "main")
    commit(folder, PRODUCT, "Before")
    return folder


@needs_git
def test_commits_before_the_first_fragment_need_none(clone: Path) -> None:
    assert refusal(clone) == ""


@needs_git
def test_a_change_of_the_product_needs_a_fragment(clone: Path) -> None:
    commit(clone, CHANGES, "First")
    commit(clone, "tests/a.py", "Test")
    assert refusal(clone) == ""
    commit(clone, PRODUCT, "Change")
    assert "Change" in refusal(clone)
    commit(clone, "app/changes/b.md", "Fragment")
    assert refusal(clone) == ""


@needs_git
def test_a_change_that_no_user_notices_needs_none(clone: Path) -> None:
    commit(clone, CHANGES, "First")
    commit(clone, PRODUCT, "Faster imports\n\nNo user can notice.")
    assert refusal(clone) == ""


@needs_git
def test_a_merge_is_one_change(clone: Path) -> None:
    commit(clone, CHANGES, "First")
    git(clone, "checkout", "-b", "side")
    commit(clone, PRODUCT, "Part")
    commit(clone, "app/changes/b.md", "Fragment of the part")
    commit(clone, PRODUCT, "Other part")
    git(clone, "checkout", "main")
    commit(clone, "tests/a.py", "Test")
    git(clone, "merge", "--no-ff", "side", "-m", "Merge")
    assert refusal(clone) == ""


@needs_git
def test_a_shallow_clone_passes(clone: Path, tmp_path: Path) -> None:
    commit(clone, CHANGES, "First")
    commit(clone, PRODUCT, "Change")
    git(tmp_path, "clone", "--depth", "1", f"file://{clone}", "shallow")
    assert refusal(tmp_path / "shallow") == ""
