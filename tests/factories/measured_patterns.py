"""Patterns measured on a real GPU, each once for all tests of a session, and what tests compare of them."""

from __future__ import annotations

from functools import cache

import pytest

from stallprobes.latency.ratio import Quantile
from stallprobes.measurement import measure
from stallprobes.measurement.plan import plan, selection
from stallprobes.measurement.result import ProbeResult, RunResult, VariantResult
from stallprobes.model import Channel, Needs, Phase, Role
from stallprobes.patterns import patterns

SECONDS = 1.0
# A profiler attaches itself 2 or 3 times a second, and the gate stays shut for a quarter of one.
LONGER_S = {"profiler-on": 2.0, "default-stream-gate": 2.0}
# Its four calls take 20 s, and on H200s they show what those after 1 s do.
LEFT_OUT = {"idle-wakeup": ("after-5s",)}
CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)
LOUD = ("STALLED", "STARVED")


def chosen(pattern: str) -> list[str]:
    """The names of the variants that are measured."""
    return [one.name for one in patterns()[pattern].variants if one.name not in LEFT_OUT.get(pattern, ())]


@cache
def ran(pattern: str) -> RunResult:
    """The chosen variants of ``pattern``. Raises KeyboardInterrupt where ctrl+c ended the run: the tests end too."""
    result = measure.run(plan(selection([pattern], chosen(pattern)), seconds=LONGER_S.get(pattern, SECONDS)))
    if result.interrupted:
        raise KeyboardInterrupt
    return result


def variant(pattern: str, name: str) -> VariantResult:
    """A variant that was measured; what this machine cannot do is skipped with the reason."""
    found = next(one for one in ran(pattern).variants if one.variant == name)
    if found.status == "unsupported":
        assert found.reason
        assert patterns()[pattern].variant(name).needs != Needs(), found.reason
        pytest.skip(found.reason)
    assert found.status == "ok", found.reason
    return found


def of_role(found: VariantResult, role: Role) -> list[ProbeResult]:
    """The probes of ``found`` with ``role``."""
    return [one for one in found.probes if one.probe.role is role]


def victim(pattern: str, name: str) -> ProbeResult:
    """The one victim of a variant."""
    (found,) = of_role(variant(pattern, name), Role.VICTIM)
    return found


def aggressor(pattern: str, name: str) -> ProbeResult:
    """The one aggressor of a variant."""
    (found,) = of_role(variant(pattern, name), Role.AGGRESSOR)
    return found


def now(probe: ProbeResult, channel: Channel, q: float = 50) -> float:
    """A percentile with the aggressors on, in ns."""
    value = probe.window.channels[channel].percentile(q)
    assert value is not None, f"{probe.probe.name}: no {channel} returned"
    return value


def quiet(probe: ProbeResult, channel: Channel, q: float = 50) -> float:
    """A percentile in quiet, in ns."""
    value = probe.baseline[channel].percentile(q)
    assert value is not None, f"{probe.probe.name}: no {channel} returned in the baseline"
    return max(value, 1.0)


def times_quiet(probe: ProbeResult, channel: Channel, q: float = 50) -> float:
    """A percentile with the aggressors on over that in quiet."""
    return now(probe, channel, q) / quiet(probe, channel, q)


def undisturbed(probe: ProbeResult, channel: Channel, times: float) -> bool:
    """Whether the p50 with the aggressors on is less than ``times`` that in quiet, or within the machine's variation.

    The p50 of an undisturbed launch was 6.2 to 10.9 us in eight runs of one H200 server within a minute, with and
    without an aggressor.
    """
    assert probe.variation is not None
    limit_ns = probe.variation.limit_ns(channel, Quantile.P50)
    assert limit_ns is not None
    return now(probe, channel) < max(times * quiet(probe, channel), limit_ns)


def of_entry(pattern: str, name: str, entry: str) -> ProbeResult:
    """The probe of catalogue entry ``entry`` in a variant."""
    (found,) = (one for one in variant(pattern, name).probes if one.probe.entry == entry)
    return found


def slowest(probe: ProbeResult, channel: Channel) -> float:
    """The p99 in ns, or the age of the call in flight if that is more."""
    returned = probe.window.channels[channel].percentile(99) or 0.0
    flight = probe.window.in_flight
    return max(returned, 0.0 if flight is None else flight.age_ns)


def says_stalled(found: VariantResult, probe: ProbeResult) -> None:
    """Assert that a verdict names the probe as stalled, with numbers, a cause and what helps."""
    assert probe.state in LOUD
    said = [one for one in found.verdicts if one.probe == probe.probe.name and one.kind in ("stalled", "starved")]
    assert said
    assert all(one.sentence and one.cause and one.remedy for one in said)
