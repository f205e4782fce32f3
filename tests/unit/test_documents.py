"""The documents: short enough, with links that lead somewhere and commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from factories.command_help import COMMANDS
from unit.test_language import offenders

ROOT = Path(__file__).parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "app" / "README.md",
    ROOT / "app" / "WATCH.md",
    ROOT / "probes" / "README.md",
    ROOT / "probes" / "MEASUREMENTS.md",
    ROOT / "PATTERNS.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "SECURITY.md",
    ROOT / "screenshots" / "README.md",
]
# Lines of the documents that have a limit.
LIMITS = {"README.md": 120, "app/README.md": 330, "app/WATCH.md": 210, "SECURITY.md": 80}


def anchors(path: Path) -> set[str]:
    """Anchors of a document's headings, as Markdown renderers make them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("name", LIMITS)
def test_a_document_is_short(name: str) -> None:
    assert len((ROOT / name).read_text(encoding="utf-8").splitlines()) <= LIMITS[name]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(document: Path) -> None:
    for link in re.findall(r"\]\(([^)]+)\)", document.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = (document.parent / name).resolve() if name else document
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_named_in_the_text_exist(document: Path) -> None:
    for name in re.findall(r"`((?:tests|screenshots)/[\w./-]+)", document.read_text(encoding="utf-8")):
        # NAME is that of a package.
        assert "NAME" in name or (ROOT / name).exists(), name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_in_the_text_exist(document: Path) -> None:
    text = document.read_text(encoding="utf-8")
    code = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL) + re.findall(r"`([^`\n]+)`", text)
    used = {name for part in code for name in re.findall(r"\bstallscope ([a-z]+)\b", part)}
    assert used <= set(COMMANDS)


def test_each_test_with_a_gpu_is_in_one_part_and_those_that_share_a_measurement_are_in_the_same() -> None:
    commands = re.findall(
        r"`python -m pytest -m gpu (\S+)`", (ROOT / "probes" / "README.md").read_text(encoding="utf-8")
    )
    parts = [[one for path in ROOT.glob(command) for one in (path, *path.rglob("*.py"))] for command in commands]
    tests = [{path for path in part if path.name.startswith("test_")} for part in parts]
    assert len(tests) == 2
    assert sorted([*tests[0], *tests[1]]) == sorted((ROOT / "tests" / "gpu").rglob("test_*.py"))
    sharing = [any("measured_patterns" in path.read_text(encoding="utf-8") for path in part) for part in tests]
    assert sharing == [True, False]


def test_documents_have_no_banned_phrase() -> None:
    texts = ((str(path.relative_to(ROOT)), 1, path.read_text(encoding="utf-8")) for path in DOCUMENTS)
    assert offenders(texts) == []
