"""The help of every command: sections, examples, and the modules that it loads."""

from __future__ import annotations

import shlex

import pytest

from factories.command_help import COMMANDS, GROUP, command, help_text
from factories.loaded_modules import loaded_modules, running
from stallprobes.catalog import entries
from stallprobes.patterns import patterns
from stallscope.cli.main import MODULES, SECTIONS, cli


def examples(name: str) -> list[list[str]]:
    """Arguments after ``stallscope`` in the examples of a help text, without redirections."""
    lines = help_text(name).splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip() in ("Example:", "Examples:"))
    found = []
    for line in lines[start + 1 :]:
        if not line.strip():
            break
        program, *arguments = shlex.split(line.partition(" > ")[0])
        assert program == "stallscope"
        found.append(arguments)
    return found


@pytest.mark.parametrize("name", ["", *COMMANDS])
def test_every_help_has_examples_of_that_command_that_parse(name: str) -> None:
    found = examples(name)
    assert found
    for arguments in found:
        used = name
        if name:
            assert arguments[0] == name
        else:
            used = next((argument for argument in arguments if argument in COMMANDS), "")
        if used:
            command(used).make_context(used, arguments[1:], parent=GROUP)
        else:
            cli.make_context("stallscope", arguments)


def test_the_examples_name_patterns_variants_and_probes_that_exist() -> None:
    for arguments in (*examples("run"), *examples("explain")):
        assert {*patterns(), *entries()} & {argument.partition("@")[0] for argument in arguments}
    for _, _, name, option, variant, *_ in examples("record"):
        assert option == "--variant"
        assert variant in {one.name for one in patterns()[name].variants}


def test_the_help_lists_every_command_once_in_its_section() -> None:
    lines = help_text("").splitlines()
    for title, listed in SECTIONS.items():
        start = lines.index(f"{title}:") + 1
        section = lines[start : start + len(listed)]
        assert [line.split()[0] for line in section] == list(listed)
        assert all(line.endswith(summary) for line, summary in zip(section, listed.values(), strict=True))
    assert len(set(COMMANDS)) == len(COMMANDS) == sum(map(len, SECTIONS.values()))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_has_the_name_by_which_it_is_listed(name: str) -> None:
    assert command(name).name == name


@pytest.mark.parametrize("option", ["--help", "--version"])
def test_help_and_version_load_no_command_and_nothing_that_measures(option: str) -> None:
    loaded, _ = loaded_modules(running(option))
    assert "stallscope.cli.main" in loaded
    assert not {name.partition(".")[0] for name in loaded} & {"numpy", "textual", "rich"}
    version = {"stallprobes.version"} if option == "--version" else set()
    ours = {name for name in loaded if name.startswith("stallprobes")}
    assert ours == {"stallprobes", "stallprobes.foreign_text", *version}
    assert not {f"stallscope.cli.{MODULES.get(name, name)}" for name in COMMANDS} & loaded


@pytest.mark.parametrize("name", COMMANDS)
def test_the_help_of_a_command_loads_that_command_alone(name: str) -> None:
    loaded, _ = loaded_modules(running(name, "--help"))
    ours = {command: f"stallscope.cli.{MODULES.get(command, command)}" for command in COMMANDS}
    assert [listed for listed, module in ours.items() if module in loaded] == [name]
    instrument = {module for module in loaded if module.partition(".")[0] == "stallprobes"}
    words = {f"stallprobes{module}" for module in ("", ".errors", ".foreign_text", ".verdicts", ".verdicts.kinds")}
    assert instrument <= words
    assert not {module.partition(".")[0] for module in loaded} & {"numpy", "textual", "rich"}
