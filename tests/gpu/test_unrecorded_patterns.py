"""On a real GPU: the patterns without recorded figures. What must hold whatever the driver does, and their figures.

To record them, on an idle GPU:

    stallscope run launch-storm event-poll-storm host-callback vmm-churn --json > tests/gpu/recorded/h200-threads.json
    stallscope run second-process idle-wakeup --json > tests/gpu/recorded/h200-processes.json

Then add the file to FILES in tests/sim/test_agreement.py, which holds the simulated GPU against it, name it in the
source of the profile h200, and move the patterns to RECORDED in test_patterns.py with the relations that the figures
show. Remove "not recorded yet" from their texts. Their aggressors join the default check by a CheckPlacement each.
``pytest -s`` prints the same figures as a table.
"""

from __future__ import annotations

from functools import cache

import pytest

from stallprobes.measurement import measure
from stallprobes.measurement.result import ProbeResult, RunResult, VariantResult
from stallprobes.measurement.selection import selection
from stallprobes.model import Channel, Kind, Phase, Role
from stallprobes.patterns import patterns

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(300)]

SECONDS = 2.0
NAMES = ("launch-storm", "event-poll-storm", "host-callback", "vmm-churn", "second-process", "idle-wakeup")
PHASES = (Phase.CALL, Phase.WAIT)
QUERY_TIMEOUT_US = 100_000


@cache
def ran(pattern: str) -> RunResult:
    return measure.run(selection([pattern]), seconds=SECONDS)


def variants(pattern: str) -> list[VariantResult]:
    """The variants that this GPU supports."""
    found = [one for one in ran(pattern).variants if one.status == "ok"]
    if not found:
        pytest.skip("; ".join(str(one.reason) for one in ran(pattern).variants))
    return found


def of_role(found: VariantResult, role: Role) -> list[ProbeResult]:
    return [one for one in found.probes if one.probe.role is role]


def figures(found: VariantResult) -> list[str]:
    """A line for each phase of each victim: p50 and p99 in us without and with the aggressors."""
    lines = []
    for one in of_role(found, Role.VICTIM):
        for channel in (Channel(phase) for phase in PHASES):
            if channel not in one.window.channels or channel not in one.baseline:
                continue
            base, now = one.baseline[channel], one.window.channels[channel]
            texts = [
                f"{name} {(base.percentile(q) or 0) / 1000:9.2f} -> {(now.percentile(q) or 0) / 1000:9.2f}"
                for name, q in (("p50", 50), ("p99", 99))
            ]
            lines.append(f"{found.variant:14} {one.probe.name:12} {channel.phase:5} {'  '.join(texts)}  {one.state}")
    host = of_role(found, Role.HOST)[0]
    return [*lines, f"{found.variant:14} {host.probe.name:12} {host.state}"]


@pytest.mark.parametrize("pattern", NAMES)
def test_each_variant_runs_and_shows_its_figures(pattern: str) -> None:
    print(f"\n{pattern}")
    for found in variants(pattern):
        print(*figures(found), sep="\n")
        for probe in found.probes:
            assert probe.error is None, (found.variant, probe.probe.name)
        for aggressor in of_role(found, Role.AGGRESSOR):
            assert aggressor.state == "running", (found.variant, aggressor.probe.name)


@pytest.mark.parametrize("pattern", NAMES)
def test_no_victim_is_starved_by_a_remedy_and_every_verdict_on_a_stall_has_a_cause(pattern: str) -> None:
    for found in variants(pattern):
        if found.kind is Kind.REMEDY:
            assert not any(one.starved for one in of_role(found, Role.VICTIM)), found.variant
        loud = [one for one in found.verdicts if one.kind in ("stalled", "starved")]
        assert all(one.sentence and one.cause and one.remedy for one in loud)


@pytest.mark.parametrize("variant", ["x1", "x4", "x16", "streams-x16", "back-off-x16", "blocking-x16"])
def test_each_waiting_thread_sees_the_end_of_its_kernel(variant: str) -> None:
    (found,) = (one for one in variants("event-poll-storm") if one.variant == variant)
    for aggressor in of_role(found, Role.AGGRESSOR):
        waits = aggressor.window.channels[Channel(Phase.WAIT)]
        middle = waits.percentile(50)
        assert middle is not None
        assert 3_000 < middle / 1000 < QUERY_TIMEOUT_US
        assert aggressor.window.proof > 0


def test_a_short_host_function_beside_a_long_one_waits_at_most_as_long() -> None:
    """Whether it waits at all is up to the driver; that it waits for more than one would be a stall of another kind."""
    for found in variants("host-callback"):
        (callback,) = (one for one in of_role(found, Role.VICTIM) if one.probe.name == "callback")
        longest_us = {"busy-1ms": 1_000, "busy-10ms": 10_000, "mutex": 250_000}.get(found.variant, 10_000)
        middle = callback.window.channels[Channel(Phase.WAIT)].percentile(50)
        assert middle is not None
        assert middle / 1000 < 2 * longest_us, found.variant


def of_entry(pattern: str, variant: str, entry: str) -> ProbeResult:
    (found,) = (one for one in variants(pattern) if one.variant == variant)
    (probe,) = (one for one in found.probes if one.probe.entry == entry)
    return probe


def p50_ns(probe: ProbeResult, phase: Phase) -> float:
    middle = probe.window.channels[Channel(phase)].percentile(50)
    assert middle is not None
    return middle


def ratio(probe: ProbeResult, phase: Phase) -> float:
    """The median over that of the baseline."""
    return p50_ns(probe, phase) / max(probe.baseline[Channel(phase)].percentile(50) or 0, 1.0)


@pytest.mark.parametrize("entry", ["launch", "d2d"])
@pytest.mark.parametrize("variant", ["other-process", "other-context"])
def test_work_waits_for_the_time_slices_of_another_process_as_for_those_of_a_context(variant: str, entry: str) -> None:
    """Beside another program a D2D waited 2.35 ms on an H200, beside another context 2.38 ms."""
    found = of_entry("second-process", variant, entry)
    assert found.state == "STALLED"
    assert ratio(found, Phase.WAIT) >= 100
    assert p50_ns(found, Phase.CALL) < p50_ns(found, Phase.WAIT) / 100
    other = of_entry("second-process", "other-context", entry)
    assert 0.5 < p50_ns(found, Phase.WAIT) / p50_ns(other, Phase.WAIT) < 2


@pytest.mark.parametrize(
    ("variant", "entry"),
    [
        *(("copy-engine", entry) for entry in ("d2h-pinned", "h2d-pinned")),
        *(("one-process", entry) for entry in ("launch", "d2d", "d2h-pinned", "h2d-pinned")),
    ],
)
def test_copy_engines_and_one_process_do_not_wait_for_a_time_slice(variant: str, entry: str) -> None:
    assert ratio(of_entry("second-process", variant, entry), Phase.WAIT) < 1.5


@pytest.mark.parametrize("variant", ["after-100ms", "after-1s", "after-5s", "keep-alive"])
def test_calls_after_idle_times_are_counted_never_starved_and_have_the_gpus_clocks_beside_them(variant: str) -> None:
    """Whether this GPU needs time to wake up is what the figures show."""
    for entry in ("launch", "host"):
        probe = of_entry("idle-wakeup", variant, entry)
        assert probe.window.iterations >= 3
        assert probe.state not in ("STARVED", "failed")
    (found,) = (one for one in variants("idle-wakeup") if one.variant == variant)
    assert found.gpu_states is not None
    print(f"\n{variant}: {found.gpu_states}")
    for state in (found.gpu_states.baseline, found.gpu_states.window):
        assert state.sm_clock_mhz is not None
        assert state.power_w is not None
        assert state.performance_states


def test_the_patterns_are_those_without_recorded_figures() -> None:
    assert set(NAMES) <= set(patterns())
