"""Profiles and settings: what comes with the package is sound, and what is wrong is said in one sentence."""

from __future__ import annotations

from pathlib import Path

import pytest

from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.sim import profile
from stallprobes.engine.sim.backend import SimBackend
from stallprobes.engine.sim.profile import ProfileError
from stallprobes.errors import BackendError

RECORDED = Path(__file__).parents[1] / "gpu" / "recorded"


def test_the_profiles_come_with_the_package_and_the_default_is_first() -> None:
    assert profile.names()[0] == profile.DEFAULT == "h200"
    assert {"h200", "v100", "rtx3090x2"} <= set(profile.names())
    for name in profile.names():
        loaded = profile.load(name)
        assert (loaded.name, loaded.label) == (name, name)
        assert loaded.source
        assert loaded.title


def test_the_fitted_profile_names_its_recordings() -> None:
    source = profile.load("h200").source
    names = [file.name for file in RECORDED.glob("*.json")]
    assert names
    assert [name for name in names if name not in source] == []


def test_the_reports_machines_can_what_they_could() -> None:
    h200, v100, rtx = (profile.load(name).machine for name in ("h200", "v100", "rtx3090x2"))
    assert (h200.gpus, h200.peer_access) == (2, True)
    assert v100.gpus == 1
    assert (rtx.gpus, rtx.peer_access, rtx.staged_copies_block) == (2, False, True)


def test_a_setting_changes_one_figure_and_is_shown() -> None:
    key, value = profile.parse_setting(" timeslice_us = 4000 ")
    loaded = profile.load("h200", {key: value})
    assert loaded.engine.timeslice_us == 4000
    assert loaded.label == "h200 with timeslice_us=4000"
    assert profile.load("h200").engine.timeslice_us == 2048


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("engine.start_us=3", lambda loaded: loaded.engine.start_us == 3),
        ("gpus=1", lambda loaded: loaded.machine.gpus == 1),
        ("peer_access=false", lambda loaded: loaded.machine.peer_access is False),
        ("cuLaunchKernel=5/9", lambda loaded: loaded.calls["cuLaunchKernel"] == (5, 9)),
        ("calls.cuLaunchKernel=6.2", lambda loaded: loaded.calls["cuLaunchKernel"] == (6.2, 16)),
    ],
)
def test_settings_of_every_kind(text: str, read: object) -> None:
    key, value = profile.parse_setting(text)
    assert callable(read)
    assert read(profile.load("h200", {key: value}))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("timeslice_us", "--sim-set takes KEY=VALUE, such as timeslice_us=4000, not 'timeslice_us'"),
        ("=3", "--sim-set takes KEY=VALUE, such as timeslice_us=4000, not '=3'"),
        ("timeslice=3", "the profile has no setting 'timeslice', did you mean timeslice_us?"),
        ("start_us=3", "the setting 'start_us' could be engine.start_us or copy.start_us: write one of them"),
        ("timeslice_us=long", "--sim-set: engine.timeslice_us is 'long', it must be a number"),
        ("timeslice_us=0", "--sim-set: engine.timeslice_us is 0, it must be above 0"),
        ("loop_ns=0", "--sim-set: locks.loop_ns is 0, it must be above 9"),
        ("save_us=-1", "--sim-set: engine.save_us is -1, it must not be below 0"),
        ("timeslice_us=inf", "--sim-set: engine.timeslice_us is inf, it must be a number up to 1000000000"),
        ("timeslice_us=nan", "--sim-set: engine.timeslice_us is nan, it must be a number up to 1000000000"),
        ("gpus=1.5", "--sim-set: machine.gpus is 1.5, it must be a whole number"),
        ("peer_access=maybe", "--sim-set: machine.peer_access is 'maybe', it must be true or false"),
        ("sms=" + "9" * 400, "--sim-set: machine.sms is too large, it must be a whole number up to 1000000000"),
        ("cuLaunchKernel=" + "9" * 400, "--sim-set: cuLaunchKernel is too large, it must be a number up to 1000000000"),
        ("cuLaunchKernel=1e-300/1", "profile h200: calls.cuLaunchKernel is 1e-300, too far below its 99th percentile"),
        ("wake_us=100", "profile h200: locks.wake_us is 100, it must not be above its 99th percentile, 90"),
        ("title=\x1b[31m", "--sim-set: machine.title is '\\x1b[31m', it must be a text"),
        ("cuLaunchKernel=x", "--sim-set: cuLaunchKernel is 'x', it must be MEDIAN or MEDIAN/P99 in us"),
        (
            "cuLaunchKernel=9/5",
            "profile h200: calls.cuLaunchKernel is [9.0, 5.0], it must be [median, 99th percentile]",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ProfileError) as caught:
        profile.load("h200", dict([profile.parse_setting(text)]))
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_an_unknown_profile_is_one_sentence_with_the_nearest() -> None:
    with pytest.raises(ProfileError) as caught:
        profile.load("h20")
    assert str(caught.value) == "there is no profile 'h20', did you mean h200?; there are h200, rtx3090x2, v100"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("base = ", "is damaged: Invalid value"),
        ('base = "nobody"', "its base 'nobody' is not one of"),
        ("", 'the key "source" is missing; base = "h200" takes what is missing from that profile'),
        ('source = "x"', "it has no section machine"),
        ('base = "h200"\nmachines = 3', "unknown key 'machines'"),
        ('base = "h200"\n[engine]\nslice = 3', "unknown key engine.slice"),
        ('base = "h200"\n[engine]\ntimeslice_us = "long"', "engine.timeslice_us is 'long', it must be a number"),
        ('base = "h200"\n[calls]\ncuLaunchKernel = 3', "calls.cuLaunchKernel is 3, it must be [median"),
        (
            'base = "h200"\n[calls]\ncuLunchKernel = [1, 2]',
            "unknown key calls.cuLunchKernel, did you mean cuLaunchKernel?",
        ),
        ('base = "h200"\nsource = "\\u001b[2J"', "source is '\\x1b[2J', it must be a text"),
        ('base = "h200"\n[machine]\nsms = ' + "9" * 5000, "is damaged: Exceeds the limit"),
        ('base = "h200"\n[machine]\nsms = 0x' + "f" * 5000, "machine.sms is too large"),
        ('base = "h200"\nx = ' + "[" * 100_000, "it is nested too deeply"),
        ('base = "h200"\nengine = 3', "it has no section engine"),
        ("\ufffd\x00", "is damaged"),
    ],
)
def test_a_damaged_file_is_one_sentence(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ProfileError) as caught:
        profile.load(str(file))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["calls = 3", "locks = 3", "[calls]\ncuLaunchKernel = [1]"])
def test_a_damaged_file_is_one_whatever_is_set(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(f'base = "h200"\n{text}\n')
    for key, value in (("cuLaunchKernel", "3"), ("wake_us", "3")):
        with pytest.raises(ProfileError, match="profile mine"):
            profile.load(str(file), {key: value})


def test_a_profile_says_what_every_call_takes(tmp_path: Path) -> None:
    whole = Path(profile.__file__).with_name("profiles") / "h200.toml"
    lines = whole.read_text().splitlines()
    file = tmp_path / "mine.toml"
    file.write_text("\n".join(line for line in lines if not line.startswith("cuLaunchKernel")))
    with pytest.raises(ProfileError, match=r"calls\.cuLaunchKernel is missing"):
        profile.load(str(file))


def test_a_file_of_ones_own_is_a_profile(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text('base = "h200"\nsource = "a guess"\n[engine]\ntimeslice_us = 1000\n')
    loaded = profile.load(str(file))
    assert (loaded.name, loaded.engine.timeslice_us, loaded.source) == ("mine", 1000, "a guess")


def test_a_file_of_ones_own_does_not_pass_for_a_fitted_one(tmp_path: Path) -> None:
    file = tmp_path / "h200.toml"
    file.write_text('base = "h200"\n[engine]\ntimeslice_us = 1000\n')
    loaded = profile.load(str(file))
    assert (loaded.name, loaded.source) == (str(file), "not given; unspecified parameters are those of h200")


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match="cannot be read: No such file"):
        profile.load(str(tmp_path / "none.toml"))
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="is damaged"):
        profile.load(str(binary))


def test_the_engine_ends_with_exit_code_2() -> None:
    probes = [entries()["launch"].probe()]
    board = Board.create(BoardLayout.of(probes))
    for options in (Options(profile="none"), Options(sim_set={"timeslice_us": "0"})):
        with pytest.raises(BackendError) as caught:
            SimBackend().prepare(probes, board, options)
        assert caught.value.exit_code == 2


def test_every_setting_can_be_set() -> None:
    """Each figure by its full key, to the value it has."""
    settings = profile.settable("v100")
    assert len(settings) > 100
    for key, value, what in settings:
        assert what
        loaded = profile.load("v100", dict([profile.parse_setting(f"{key}={value}")]))
        assert profile.settable("v100") == settings
        assert loaded.name == "v100"


def test_a_profile_that_is_a_folder_or_no_text_is_one_sentence(tmp_path: Path) -> None:
    folder, binary, large = tmp_path / "a.toml", tmp_path / "b.toml", tmp_path / "c.toml"
    folder.mkdir()
    binary.write_bytes(b"\xff\xfe")
    large.write_bytes(b"#" * (1 << 19))
    for file, words in (
        (folder, "is a folder: name a file in it"),
        (binary, "is damaged: it is not text in UTF-8"),
        (large, "is not a profile: it has more than 256 KiB, which no profile has"),
    ):
        with pytest.raises(ProfileError) as caught:
            profile.load(str(file))
        assert str(caught.value) == f"{file} {words}"
