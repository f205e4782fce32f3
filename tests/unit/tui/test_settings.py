"""Settings file: values, defaults and error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.tui.actions import MONITOR_ACTIONS, available, key_hints, key_label
from stallscope.tui.settings import Settings, SettingsError, document, load, path


def written(folder: Path, text: str) -> Path:
    file = folder / "settings.toml"
    file.write_text(text, encoding="utf-8")
    return file


def test_without_a_file_the_defaults_apply(tmp_path: Path) -> None:
    assert load(tmp_path / "none.toml") == Settings()


def test_the_documented_file_is_the_defaults(tmp_path: Path) -> None:
    assert load(written(tmp_path, document())) == Settings()


def test_the_documented_file_names_every_action_with_its_keys() -> None:
    for action in MONITOR_ACTIONS:
        assert f'# {action.name} = "{action.keys}"' in document()


def test_settings_of_the_file_apply(tmp_path: Path) -> None:
    found = load(written(tmp_path, 'theme = "nord"\nframes_per_second = 20\n[keys]\npause = "P"\n'))
    assert (found.theme, found.frames_per_second, found.keys) == ("nord", 20, {"pause": "P"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("frames_per_second = 100", "between 1 and 30"),
        ('frames_per_second = "ten"', "should be like"),
        ("colour = 3", "no setting colour"),
        ('[keys]\njump = "J"', "no action jump"),
        ('[keys]\npause = "q"', 'the key "q"'),
        ('[keys]\npause = "1"', "a probe"),
        ("theme =", "Invalid value"),
        ("ascii = 1", "should be like False"),
    ],
)
def test_an_error_names_the_file_and_the_setting(tmp_path: Path, text: str, words: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)


def test_the_environment_selects_the_file() -> None:
    assert path({"STALLSCOPE_SETTINGS": "/x/y.toml"}) == Path("/x/y.toml")
    assert path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/stallscope/settings.toml")
    assert path({"HOME": "/h"}) == Path("/h/.config/stallscope/settings.toml")


def test_names_and_keys_of_actions_are_unique_and_hints_follow_the_settings() -> None:
    names = [action.name for action in MONITOR_ACTIONS]
    keys = [key for action in MONITOR_ACTIONS for key in action.keys.split(",")]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
    assert ("P", "pause", "pause") in key_hints(False, {"pause": "P"}, MONITOR_ACTIONS)
    assert not {action.name for action in available(True, MONITOR_ACTIONS)} & {"restart", "pick", "quiet"}
    assert key_label("question_mark") == "?"
