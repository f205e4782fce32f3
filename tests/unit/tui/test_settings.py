"""Settings file: values, defaults and error messages."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallscope.tui.actions import SCREENS, available, key_hints, key_label
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
    for action in SCREENS["monitor"]:
        assert f'# {action.name} = "{action.keys}"' in document()


def test_settings_of_the_file_apply(tmp_path: Path) -> None:
    found = load(written(tmp_path, 'theme = "nord"\nframes_per_second = 20\n[keys]\npause = "P"\n'))
    assert (found.theme, found.frames_per_second, found.keys) == ("nord", 20, {"pause": "P"})


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("frames_per_second = 100", "between 1 and 30"),
        ('frames_per_second = "ten"', "should be like"),
        ("colour = 3", "no setting 'colour'"),
        ('[keys]\njump = "J"', "no action 'jump'"),
        ('[keys]\npause = "q"', 'the key "q"'),
        ('[keys]\npause = "1"', "a probe"),
        ("theme =", "Invalid value"),
        ("ascii = 1", "should be true or false"),
        ("frames_per_second = true", "should be like 10"),
        ('theme = "norde"', "there is no theme 'norde'; did you mean nord?"),
        ('theme = "x"', "there are: textual-dark, "),
        ('remedy_language = "pytorhc"', "'pytorhc' is no language of remedies; did you mean pytorch?"),
        ('remedy_language = "x"', "there are: cuda, pytorch, cupy"),
        ("remedy_language = 1", "should be like 'cuda'"),
        ('[keys]\npause = "pauze"', "pause = 'pauze': no key has this name; did you mean"),
        ('[keys]\npause = "P,"', "pause = '': no key has this name"),
        ('[keys]\npause = "Ctrl+x"', "did you mean ctrl+x?"),
        ('[keys]\nquit = ""', "takes lines like"),
        ('[keys]\nquit = " "', "no key has this name"),
        ('[keys]\npause = "ctrl+q"', 'the key "ctrl+q" is used by quit and by pause'),
        ('[keys]\npause = "ctrl+c"', "used by quit"),
        ('[keys]\npause = "ctrl+z"', "used by suspend"),
        ('[keys]\npause = " q "', 'the key "q"'),
        ('[keys]\nhelp = "/"\npause = "slash"', 'the key "slash"'),
        ('[keys]\npause = "?"', 'the key "question_mark"'),
        ("ascii = " + "[" * 100_000, "nested too deeply"),
        ("frames_per_second = " + "9" * 10_000, "integer"),
        ("frames_per_second = " + "9" * 4_000, "is not between"),
        ("frames_per_second = nan", "is not between"),
        ("#" * 300_000, "larger than 256 KiB"),
        ('theme = "' + "x" * 10_000 + '"', "…"),
    ],
    ids=lambda value: value[:40],
)
def test_an_error_names_the_file_and_the_setting(tmp_path: Path, text: str, words: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as caught:
        load(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)
    assert len(str(caught.value).removeprefix(str(file))) < 400


def test_an_endless_file_is_refused() -> None:
    with pytest.raises(SettingsError, match="neither a regular file nor a pipe"):
        load(Path("/dev/zero"))


@pytest.mark.parametrize(
    ("keys", "names"),
    [
        ("Q", "Q"),
        ("?", "question_mark"),
        ("Q, Z", "Q,Z"),
        ("ctrl+x", "ctrl+x"),
        ("f5", "f5"),
        ("é", "é"),
        ("+", "plus"),
    ],
)
def test_keys_are_those_that_textual_knows(tmp_path: Path, keys: str, names: str) -> None:
    text = f'[keys]\nhelp = "f1"\nfaster = "f2"\nquit = "{keys}"\n'
    assert load(written(tmp_path, text)).keys["quit"] == names


def test_quit_may_have_the_keys_that_always_quit(tmp_path: Path) -> None:
    assert load(written(tmp_path, '[keys]\nquit = "ctrl+q,Q"\n')).keys == {"quit": "ctrl+q,Q"}


def test_the_environment_selects_the_file() -> None:
    assert path({"STALLSCOPE_SETTINGS": "/x/y.toml"}) == Path("/x/y.toml")
    assert path({"XDG_CONFIG_HOME": "/c"}) == Path("/c/stallscope/settings.toml")
    assert path({"HOME": "/h"}) == Path("/h/.config/stallscope/settings.toml")


def test_names_and_keys_of_actions_are_unique_and_hints_follow_the_settings() -> None:
    names = [action.name for action in SCREENS["monitor"]]
    keys = [key for action in SCREENS["monitor"] for key in action.keys.split(",")]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
    assert ("P", "pause", "pause") in key_hints(SCREENS["monitor"], {"pause": "P"})
    assert not {action.name for action in available(True, SCREENS["monitor"])} & {"restart", "patterns", "quiet"}
    assert key_label("question_mark") == "?"
    # In ASCII an arrow would be another key.
    assert (key_label("left"), key_label("left", True), key_label("plus", True)) == ("←", "left", "+")


def test_keys_that_a_user_chose_before_the_timeline_existed_are_valid(tmp_path: Path) -> None:
    """They win over the keys of its screen and of the last victim."""
    text = '[keys]\npause = "z"\ntrap = "F"\ntheme = "t"\n'
    assert load(written(tmp_path, text)).keys == {"pause": "z", "trap": "F", "theme": "t"}
    # Two keys that the file sets itself are still an error.
    with pytest.raises(SettingsError, match='the key "t" is used by'):
        load(written(tmp_path, f'{text}trace_trigger = "t"\n'))


def test_a_home_that_is_no_folder_has_the_default_settings() -> None:
    assert load(Path("/dev/null/.config/stallscope/settings.toml")) == Settings()


def test_a_deep_table_in_place_of_a_value_is_one_short_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load(written(tmp_path, "ascii" + ".a" * 5_000 + " = 1"))
    # Python's reader of TOML follows dotted keys of any depth from 3.13 on.
    assert "nested too deeply" in str(caught.value) or "ascii = " in str(caught.value)
    assert len(str(caught.value)) < 1_000


def test_a_file_that_is_no_text_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError) as caught:
        load(file)
    assert str(caught.value) == f"{file}: it is not text in UTF-8"
