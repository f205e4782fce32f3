"""CONTRIBUTING.md: its recipes are followed in copies of the tree, and what it names exists."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MOST_LINES = 130
RECIPES = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", TEXT, re.MULTILINE | re.DOTALL))
# What is true in the tree in which recipes were followed, those of the app and of probes first.
PROBES = """
from click.testing import CliRunner
from stallscope.cli.main import cli

def stallscope(*words):
    done = CliRunner().invoke(cli, words, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output

listed = stallscope("list")
assert "launch-twice" in listed
assert "late-launch" in listed
assert "Two launches of an empty kernel" in stallscope("explain", "launch-twice")
assert "launch after an idle time" in stallscope("explain", "late-launch")
assert "STALLED" in stallscope("run", "launch-twice", "spin@secondary", "--sim", "--seconds", "0.5")
assert "--names" in stallscope("list", "--help")
assert {"late-launch", "launch-twice"} <= {*stallscope("list", "--names").splitlines()}
"""
WATCH = """
import json
from factories.watch_calls import LAUNCH, MAIN, at_ns, batch, call_batch, kernel, process, slow, thread
from stallprobes.files import codec, schemas
from stallprobes.native.layouts.driver_calls import CallFamily, family_of, prefixes, shapes
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.causes.order import cause_of
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.parts import Part
from stallprobes.watch.division_text import figures_text
from test_holding_functions import holders

SHARE = "cuTextureShare"
assert family_of(SHARE) is CallFamily.OTHER
assert SHARE in prefixes()
assert {shape.name for shape in shapes()} >= {SHARE}
assert holders(SHARE, False, 1) == (WaitCause.SHARING, True, True)
assert cause_of(WaitCause.SHARING).helps(SHARE)[0]

calls = [call for begin in range(0, 1_000_000, 10_000) for call in (
    slow(LAUNCH, begin, begin + 5, correlation=begin + 1, stream=5),
    slow(SHARE, begin + 1_000, begin + 9_000, correlation=begin + 2),
)]
work = [kernel(begin + 5, begin + 10, correlation=begin + 1) for begin in range(0, 1_000_000, 10_000)]
divider = ProcessDivider()
divider.feed(process(thread(MAIN), ended=1_000_000), batch(work), call_batch(calls), at_ns(1_000_000), ended=True)
(sequence,) = divider.division().sequences
assert sequence.parts[Part.WORKING] > 0.7 * sequence.covered_ns, sequence.parts

(name,) = [name for name in schemas.names() if name.startswith("stallscope.watch/")]
described = json.dumps(schemas.schema(name))
assert "sharing: sharing a texture in another thread." in described
assert "That work as a share of the covered time." in described
assert figures_text(sequence).endswith(" Known too late: 0 %.")
assert json.loads(codec.encoded(sequence))["late"] == 0
assert "working: inside calls in which the driver works on the host." in described
"""


def blocks(recipe: str) -> Iterator[tuple[str, str]]:
    """Language and text of each block of a recipe."""
    yield from re.findall(r"^```(\w+)\n(.*?)^```", RECIPES[recipe], re.MULTILINE | re.DOTALL)


def hunks(diff: str) -> Iterator[tuple[str, list[str], list[str]]]:
    """The file of each place in a diff, its lines before, and after: added lines follow what is there."""
    file, before, after, added = "", list[str](), list[str](), False
    for line in diff.splitlines():
        mark, text = line[:1], line[1:]
        if added and mark != "+":
            yield file, before, after
            before, after, added = [], [], False
        if mark == "#":
            file = text.strip()
            continue
        if mark in (" ", "-"):
            before.append(text)
        if mark in (" ", "+"):
            after.append(text)
        added = mark == "+"
    yield file, before, after


def follow(recipe: str, tree: Path) -> None:
    """Do in a tree what a recipe says."""
    for language, text in blocks(recipe):
        if language == "sh":
            subprocess.run(["sh", "-ec", text], cwd=tree, check=True)
            continue
        for file, before, after in hunks(text):
            path = tree / file
            old, new = ("".join(f"{line}\n" for line in lines) for lines in (before, after))
            source = path.read_text(encoding="utf-8")
            assert f"\n{old}" in source, f"{recipe}: {file} has no\n{old}"
            path.write_text(source.replace(old, new, 1), encoding="utf-8")


@pytest.mark.parametrize(
    ("recipes", "checks"),
    [
        (["A probe", "A pattern", "An option of a command"], PROBES),
        (
            [
                "A driver function that is watched",
                "A part of the time",
                "A figure of a report",
                "A cause of slow calls",
            ],
            WATCH,
        ),
    ],
    ids=["probes", "watch"],
)
def test_recipes_work_as_they_stand_there(tmp_path: Path, recipes: list[str], checks: str) -> None:
    for folder in ("app", "probes"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    for recipe in recipes:
        follow(recipe, tmp_path)
    tests = ROOT / "tests"
    path = os.pathsep.join(map(str, (tmp_path / "app", tmp_path / "probes", tests, tests / "watch" / "lines")))
    environment = {**os.environ, "PYTHONPATH": path, "COLUMNS": "120"}
    done = subprocess.run([sys.executable, "-c", checks], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_recipe_is_followed() -> None:
    followed = {"A probe", "A pattern", "An option of a command", "A driver function that is watched"}
    assert followed | {"A part of the time", "A figure of a report", "A cause of slow calls"} == set(RECIPES)


def test_it_is_a_page_and_names_what_exists() -> None:
    assert len(TEXT.splitlines()) <= MOST_LINES
    prose = re.sub(r"^```.*?^```", "", TEXT, flags=re.MULTILINE | re.DOTALL)
    named = re.findall(r"`((?:app|probes|tests)/[\w./]+)", prose)
    assert named
    missing = [
        path for path in named if not any(word in path for word in ("NAME", "SLUG")) and not (ROOT / path).exists()
    ]
    assert missing == []


def test_its_commands_are_those_of_ci() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for command in ("ruff check .", "ruff format --check .", "mypy", "lint-imports"):
        assert f"$bin/{command}" in script
        assert f".venv/bin/{command}" in TEXT


def test_quick_tests_are_most_modules_of_folders_that_exist(pytestconfig: pytest.Config) -> None:
    conftest = pytestconfig.pluginmanager.get_plugin(str(ROOT / "tests" / "conftest.py"))
    assert conftest is not None
    assert all((conftest.TESTS / place).exists() for place in (*conftest.QUICK, *conftest.NOT_QUICK))
    # Some three thousand tests.
    assert sum(map(conftest.is_quick, conftest.TESTS.rglob("test_*.py"))) > 100
    assert "-m quick" in TEXT
