"""``explain``: the remedies of a pattern as code, in the language of ``--lang`` or of the settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from factories.command_line import Command
from stallprobes.patterns import patterns
from stallprobes.patterns.remedy_code import CodeLanguage, remedy_code
from stallscope.cli.main import cli
from stallscope.report import remedy_text

PATTERN = "default-stream-gate"


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of the settings file, which does not exist."""
    path = tmp_path / "settings.toml"
    monkeypatch.setenv("STALLSCOPE_SETTINGS", str(path))
    return path


def explained(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["explain", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def shown(text: str) -> list[CodeLanguage]:
    """The languages of which ``text`` has the code."""
    lines = text.splitlines()
    return [
        language
        for language, codes in remedy_code(PATTERN).items()
        if all(f"    {line}".rstrip() in lines for code in codes for line in code.lines)
    ]


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("language", list(CodeLanguage))
def test_lang_chooses_the_language(language: CodeLanguage) -> None:
    text = explained(PATTERN, "--lang", language)
    assert shown(text) == [language]
    assert f"\nRemedy in {language.label}\n" in text
    others = [one for one in CodeLanguage if one is not language]
    assert f"In other languages: {', '.join(f'--lang {one}' for one in others)}\n" in text


@pytest.mark.usefixtures("settings")
def test_without_lang_it_is_cuda() -> None:
    assert shown(explained(PATTERN)) == [CodeLanguage.CUDA]
    assert shown(explained(PATTERN, "--lang", "PyTorch")) == [CodeLanguage.PYTORCH]


def test_the_settings_have_the_default(settings: Path) -> None:
    settings.write_text('remedy_language = "cupy"\n', encoding="utf-8")
    assert shown(explained(PATTERN)) == [CodeLanguage.CUPY]
    assert shown(explained(PATTERN, "--lang", "cuda")) == [CodeLanguage.CUDA]


def test_a_wrong_settings_file_is_named_unless_lang_is_given(settings: Path, stallscope_command: Command) -> None:
    settings.write_text('remedy_language = "pytorhc"\n', encoding="utf-8")
    done = stallscope_command("explain", PATTERN)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        f"stallscope: {settings}: remedy_language = 'pytorhc' is no language of remedies; did you mean pytorch?; "
        "correct it, or give --lang\n"
    )
    assert shown(explained(PATTERN, "--lang", "cuda")) == [CodeLanguage.CUDA]


@pytest.mark.parametrize("value", ["julia", "", "cuda,cupy", "\x1b[31m"])
def test_a_wrong_language_is_one_sentence(stallscope_command: Command, value: str) -> None:
    done = stallscope_command("explain", PATTERN, "--lang", value)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith("is not one of cuda, pytorch, cupy; see: stallscope explain --help\n")
    assert len(done.stderr.splitlines()) == 1
    assert "\x1b" not in done.stderr


@pytest.mark.usefixtures("settings")
def test_a_pattern_without_code_has_the_sentence_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remedy_text, "remedy_code", lambda _name: {})
    text = explained(PATTERN)
    assert patterns()[PATTERN].remedy.split(",")[0] in text
    assert "Remedy in" not in text
    assert "--lang" not in text


@pytest.mark.usefixtures("settings")
def test_a_pattern_without_code_in_the_language_names_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {CodeLanguage.PYTORCH: remedy_code(PATTERN)[CodeLanguage.PYTORCH]}
    monkeypatch.setattr(remedy_text, "remedy_code", lambda _name: found)
    text = explained(PATTERN)
    assert "This pattern has no code in CUDA C++." in text
    assert "In other languages: --lang pytorch\n" in text


@pytest.mark.usefixtures("settings")
def test_a_probe_names_where_the_code_is() -> None:
    assert "`stallscope explain PATTERN` shows their remedies as code." in explained("gated-copy")
    assert "remedies as code" not in explained("module-load")


def test_code_is_folded_only_where_it_must_be(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for width, folded in ((80, False), (40, True)):
        monkeypatch.setenv("COLUMNS", str(width))
        text = explained(PATTERN, "--lang", "cuda")
        assert max(map(len, text.splitlines())) <= width
        assert (shown(text) == []) is folded
        assert "cudaEventCreateWithFlags(&copied," in text
