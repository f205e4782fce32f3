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
        # A profile has every parameter, and its pairs are those that a setting may have.
        for key, value, what in profile.settable(name):
            assert what
            assert profile.load(name, dict([profile.parse_setting(f"{key}={value}")])).calls == loaded.calls


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
        ("cuLaunchKernel=1e-300/1", "--sim-set: cuLaunchKernel is 1e-300, too far below its 99th percentile"),
        ("wake_us=100", "--sim-set: locks.wake_us is 100, it must not be above its 99th percentile, 90"),
        ("title=\x1b[31m", "--sim-set: machine.title is '\\x1b[31m', it must be a text"),
        ("cuLaunchKernel=x", "--sim-set: cuLaunchKernel is 'x', it must be MEDIAN or MEDIAN/P99 in us"),
        ("cuLaunchKernel=9/5", "--sim-set: cuLaunchKernel is 9, it must not be above its 99th percentile, 5"),
        ("cuLaunchKernel=0/5", "--sim-set: cuLaunchKernel is 0, and its 99th percentile 5: both must be 0, or neither"),
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


def test_the_engine_ends_with_exit_code_2() -> None:
    probes = [entries()["launch"].probe()]
    board = Board.create(BoardLayout.of(probes))
    for options in (Options(profile="none"), Options(sim_set={"timeslice_us": "0"})):
        with pytest.raises(BackendError) as caught:
            SimBackend().prepare(probes, board, options)
        assert caught.value.exit_code == 2
