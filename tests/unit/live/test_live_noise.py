"""The analyzer on a made-up noisy machine. ``tests/benchmarks/bench_live_noise.py`` has the rates over many seeds."""

from __future__ import annotations

import pytest

from factories.live_noise import Scenario, analyzed

SHORT = Scenario(quiet_s=8.0, on_s=4.0, after_s=3.0)


def test_a_noisy_machine_is_never_slower_or_stalled() -> None:
    kinds = {entry.verdict.kind for seed in (1, 2) for entry in analyzed(seed, SHORT).log}
    assert kinds <= {"unsteady", "host"}


def test_a_planted_stall_is_found_within_a_second_and_proven_by_its_switch() -> None:
    log = analyzed(1, Scenario(30.0, SHORT.quiet_s, SHORT.on_s, SHORT.after_s)).log
    (entry,) = (entry for entry in log if entry.verdict.kind == "stalled")
    assert (entry.verdict.probe, entry.verdict.proof) == ("launch", "switching")
    assert entry.began_s == pytest.approx(SHORT.quiet_s, abs=1.0)
    assert entry.ended_s == pytest.approx(SHORT.quiet_s + SHORT.on_s + 1.6, abs=0.5)


def test_what_stays_slower_after_the_aggressor_is_drift() -> None:
    log = analyzed(3, Scenario(2.2, 12.0, SHORT.on_s, SHORT.after_s, lasts=True, deviation=0.05)).log
    assert "slower" not in {entry.verdict.kind for entry in log}
    assert "drift" in {entry.verdict.kind for entry in log}


def test_stalled_seconds_never_enter_the_baseline() -> None:
    """A stall without an aggressor: the host control's baseline grows, the launch's does not."""
    scenario = Scenario(30.0, 4.0, 0.2, 6.0, lasts=True)
    baselines = analyzed(1, scenario).baselines
    assert baselines["host"].duration_ns > baselines["launch"].duration_ns + 3 * 10**9
