"""One term for each concept, and one spelling, in everything that a user or a reader of the documentation sees."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from factories.command_help import COMMANDS, help_text
from stallprobes.catalog import entries
from stallprobes.patterns import patterns
from stallscope.cli.main import cli
from stallscope.tui.actions import all_actions
from stallscope.tui.settings import document

ROOT = Path(__file__).parents[2]
SOURCES = [*sorted((ROOT / "app").rglob("*.py")), *sorted((ROOT / "probes").rglob("*.py"))]

# A second term for one concept, or a second spelling of a word, each with the one that is used.
BANNED = {
    "time slice": "time-slice",
    "timeslice": "time-slice",
    "page-locked": "pinned",
    "stack trace": "call stack",
    "backtrace": "call stack",
    "disturber": "aggressor",
    "antagonist": "aggressor",
    "initialise": "initialize",
    "serialise": "serialize",
    "synchronise": "synchronize",
}
_PATTERN = re.compile(
    r"\b(?:" + "|".join(r"\s+".join(map(re.escape, phrase.split())) for phrase in BANNED) + r")\b", re.IGNORECASE
)

# A place (file or command) with a line number, and the text there.
Prose = tuple[str, int, str]


def offenders(prose: Iterator[Prose]) -> list[str]:
    """A line for each banned phrase: place, line number, the phrase, and what to write instead."""
    found = []
    for place, line, text in prose:
        for match in _PATTERN.finditer(text):
            phrase = " ".join(match[0].lower().split())
            number = line + text[: match.start()].count("\n")
            found.append(f'{place}:{number}: "{phrase}", better: {BANNED[phrase]}')
    return sorted(set(found))


def strings(path: Path) -> Iterator[Prose]:
    """Docstrings and other string literals of a module that are prose: keys and names have no blank."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and re.search(r"\S\s+\S", node.value):
            yield str(path.relative_to(ROOT)), node.lineno, node.value


def members(place: str, value: Any, keys: frozenset[str] | None = None) -> Iterator[Prose]:
    """Strings in a decoded document, at any depth; with ``keys`` only the values of those."""
    if isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(item, str):
                yield from members(place, item, keys)
            elif keys is None or key in keys:
                yield place, 1, item
    elif isinstance(value, list):
        for item in value:
            yield from members(place, item, keys)


def remedy() -> Iterator[Prose]:
    for name in ("", *COMMANDS):
        yield f"stallscope {name} --help", 1, help_text(name)


def explanations() -> Iterator[Prose]:
    for name in (*patterns(), *entries()):
        done = CliRunner().invoke(cli, ["explain", name], catch_exceptions=False)
        yield f"stallscope explain {name}", 1, done.output


def screen() -> Iterator[Prose]:
    yield "stallscope settings", 1, document()
    for action in all_actions():
        yield f"action {action.name}", 1, f"{action.title}. {action.description}"


def schemas() -> Iterator[Prose]:
    for path in (ROOT / "probes").rglob("*-1.json"):
        text = json.loads(path.read_text(encoding="utf-8"))
        yield from members(str(path.relative_to(ROOT)), text, frozenset(("title", "description")))


def data_files() -> Iterator[Prose]:
    for path in (ROOT / "probes").rglob("*.toml"):
        yield from members(str(path.relative_to(ROOT)), tomllib.loads(path.read_text(encoding="utf-8")))
    for path in (ROOT / "app" / "stallscope" / "cli" / "fleet").iterdir():
        if path.is_file() and path.suffix != ".py":
            yield str(path.relative_to(ROOT)), 1, path.read_text(encoding="utf-8")
    for path in (ROOT / "app").rglob("*.txt"):
        yield str(path.relative_to(ROOT)), 1, path.read_text(encoding="utf-8")
    for path in (ROOT / "app").rglob("*.js"):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            for literal in re.findall(r"\"[^\"]*\"|'[^']*'|`[^`]*`|//.*", line):
                if " " in literal:
                    yield str(path.relative_to(ROOT)), number, literal


def test_no_banned_phrase_in_strings_and_docstrings() -> None:
    found = offenders(prose for path in SOURCES for prose in strings(path))
    assert not found, "\n".join([f"{len(found)} banned phrases", *found])


@pytest.mark.parametrize(
    "source", [remedy, explanations, screen, schemas, data_files], ids=lambda source: source.__name__
)
def test_no_banned_phrase_in_what_is_shown_or_published(source: Any) -> None:
    found = offenders(source())
    assert not found, "\n".join([f"{len(found)} banned phrases", *found])


def test_a_banned_phrase_is_found_across_lines_but_not_inside_words() -> None:
    text = "It disserialises in a time\n  slice.\nThe Backtrace."
    assert offenders(iter([("a.py", 3, text)])) == [
        'a.py:3: "time slice", better: time-slice',
        'a.py:5: "backtrace", better: call stack',
    ]
