"""Launches after idle times, on the simulated GPU: what is measured of one call a second, and its baseline."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories import documents
from factories.virtual_session import virtual_sessions
from stallprobes.engine.backend import Options
from stallprobes.files import codec
from stallprobes.live.capture import capture
from stallprobes.measurement import measure
from stallprobes.measurement.plan import plan, selection
from stallprobes.measurement.result import RUN_SCHEMA, RunProbe, RunResult, RunVariant
from stallprobes.model import Channel, Phase
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM, ProbeSet
from stallprobes.recording.recording import Recording
from stallprobes.verdicts.verdict import Verdict
from stallscope.report.run_text import show_run
from stallscope.report.text import TextWriter

PATTERN = patterns()["idle-wakeup"]
CALL, WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)
SLEEPS = {"after-100ms": 0.1, "after-1s": 1.0, "after-5s": 5.0, "warmed": 1.0, "keep-alive": 1.0}
# What the host adds to a wait after a long sleep of its thread.
COLD_US = 10
WAKE_UP = Options(sim_set={"wakeup_us": "400"})


@pytest.fixture(scope="module")
def run() -> Iterator[RunResult]:
    """All variants for 1 s each on a simulated GPU that takes 0.4 ms to wake up."""
    with virtual_sessions():
        yield measure.run(plan(selection([PATTERN.name]), seconds=1.0), backend="sim", options=WAKE_UP)


def variant(run: RunResult, name: str) -> RunVariant:
    return next(one for one in run.variants if one.variant == name)


def probe(run: RunResult, name: str, entry: str) -> RunProbe:
    return next(one for one in variant(run, name).probes if one.entry == entry)


def launch_of(name: str) -> str:
    return "launch-warmed" if name == "warmed" else "launch"


def verdicts(run: RunResult, name: str, phase: Phase) -> list[Verdict]:
    return [one for one in variant(run, name).verdicts if one.probe == "launch" and one.phase is phase]


@pytest.mark.parametrize("name", SLEEPS)
def test_a_window_lasts_for_some_calls_and_a_long_period_is_no_starvation(run: RunResult, name: str) -> None:
    found = variant(run, name)
    assert found.status == "ok"
    assert found.window_s == pytest.approx(max(1.0, 4 * SLEEPS[name]))
    for entry in (launch_of(name), "host"):
        one = probe(run, name, entry)
        assert one.calls >= 3
        assert one.period_ns == SLEEPS[name] * 1e9
        assert not one.starved
        # The baseline has its usual period, 1 s in all.
        assert one.baseline[Phase.CALL].count > 900
    assert not any(one.kind == "starved" for one in found.verdicts)
    assert probe(run, name, "host").state == "quiet"


def test_the_wait_is_compared_with_the_one_in_a_series_and_grows_with_the_idle_time(run: RunResult) -> None:
    waits = {}
    for name in ("after-100ms", "after-1s", "after-5s"):
        (found,) = (one for one in verdicts(run, name, Phase.WAIT) if one.kind == "stalled")
        assert "clocks" in found.cause
        assert "without a call" in found.head
        waits[name] = found.now_ns or 0.0
    assert waits["after-100ms"] == pytest.approx(50_000, rel=0.1)
    assert waits["after-1s"] == pytest.approx(404_000, rel=0.05)
    assert waits["after-5s"] == pytest.approx(waits["after-1s"], rel=0.05)


def test_a_keep_alive_kernel_cures_the_wait_and_not_the_call(run: RunResult) -> None:
    assert probe(run, "keep-alive", "keep-alive").gpu_starts == pytest.approx(400, abs=100)
    assert all((one.now_ns or 0) < 2_000 * COLD_US for one in verdicts(run, "keep-alive", Phase.WAIT))
    (call,) = verdicts(run, "keep-alive", Phase.CALL)
    assert "inside the call, on the host" in call.cause


def test_a_launch_just_before_cures_the_call_and_the_wait(run: RunResult) -> None:
    """On an H200 the call took 3.7 us after 1 s in place of 34 to 44, and the wait 5.0 us in place of 9 to 12."""
    assert {one.kind for one in variant(run, "warmed").verdicts} == {"quiet"}
    warmed = probe(run, "warmed", "launch-warmed")
    for phase in (Phase.CALL, Phase.WAIT):
        assert warmed.phases[phase].p50_ns == pytest.approx(warmed.baseline[phase].p50_ns, rel=0.2)


def test_a_series_is_its_own_baseline(run: RunResult) -> None:
    assert {one.kind for one in variant(run, "after-1ms").verdicts} == {"quiet"}


def test_the_gpus_clocks_are_in_the_document_and_in_the_text(run: RunResult) -> None:
    documents.validator(RUN_SCHEMA).validate(codec.plain(run))
    for name in SLEEPS:
        states = variant(run, name).gpu_state
        assert states
        assert states.window.sm_clock_mhz == (1980, 1980)
        assert states.window.performance_states == ("P0",)
        assert states.window.power_w is not None
        assert states.window.power_w[0] > 0
        assert states.window.utilisation_percent == 0
    written = io.StringIO()
    show_run(TextWriter(written, width=120), run)
    text = " ".join(written.getvalue().split())
    assert "after-5s: the GPU in the baseline SM 1980 MHz, P0, 77 W; between the calls SM 1980 MHz, P0" in text
    assert "after-1ms: the GPU" not in text


def test_a_machine_that_does_not_wake_up_slowly_shows_the_hosts_part_alone() -> None:
    with virtual_sessions():
        found = measure.run(plan(selection([PATTERN.name], ["after-1s"]), seconds=0.5), backend="sim")
    (wait,) = verdicts(found, "after-1s", Phase.WAIT)
    assert (wait.now_ns or 0) < 1_000 * COLD_US
    assert "no longer in the caches" in wait.cause
    (call,) = verdicts(found, "after-1s", Phase.CALL)
    assert "on the host" in call.cause


def test_a_recording_learns_the_baseline_in_a_series_and_keeps_that_period(tmp_path: Path) -> None:
    file = tmp_path / "idle.rec"
    what = PATTERN.variant("after-1s")
    probe_set = ProbeSet(title="idle", probes=what.probes, backend=SIM, pattern=PATTERN.name, variant=what.name)
    with virtual_sessions():
        capture(probe_set, file, options=WAKE_UP, seconds=6.0)
    observations = list(Recording(file).play())
    launch = observations[0].probe_set.probes[0]
    assert (launch.period_ns, launch.baseline_period_ns, launch.idles) == (1_000_000_000, 1_000_000, True)
    periods = [one.snapshot.probes["launch"].period_ns for one in observations if one.snapshot is not None]
    assert list(dict.fromkeys(periods)) == [1_000_000, 1_000_000_000]
    assert periods[-1] == 1_000_000
