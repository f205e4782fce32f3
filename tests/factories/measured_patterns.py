"""Patterns measured on a real GPU, each once for all tests of a session, and what tests compare of them."""

from __future__ import annotations

from functools import cache

import pytest

from stallprobes.measurement import measure
from stallprobes.measurement.plan import plan, selection
from stallprobes.measurement.result import RunFigures, RunProbe, RunResult, RunVariant
from stallprobes.model import Channel, Needs, Phase, Role
from stallprobes.patterns import patterns
from stallprobes.verdicts.verdict import Proof

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


def variant(pattern: str, name: str) -> RunVariant:
    """A variant that was measured; what this machine cannot do is skipped with the reason."""
    found = next(one for one in ran(pattern).variants if one.variant == name)
    if found.status == "unsupported":
        assert found.reason
        assert patterns()[pattern].variant(name).needs != Needs(), found.reason
        pytest.skip(found.reason)
    assert found.status == "ok", found.reason
    return found


def of_role(found: RunVariant, role: Role) -> list[RunProbe]:
    """The probes of ``found`` with ``role``."""
    return [one for one in found.probes if one.role is role]


def victim(pattern: str, name: str) -> RunProbe:
    """The one victim of a variant."""
    (found,) = of_role(variant(pattern, name), Role.VICTIM)
    return found


def aggressor(pattern: str, name: str) -> RunProbe:
    """The one aggressor of a variant."""
    (found,) = of_role(variant(pattern, name), Role.AGGRESSOR)
    return found


def figures(probe: RunProbe, channel: Channel) -> RunFigures:
    """The latencies of a channel with the aggressors on."""
    if not channel.label:
        return probe.phases[channel.phase]
    return next(op for op in probe.ops if (op.phase, op.op) == (channel.phase, channel.label))


def quiet_figures(probe: RunProbe, channel: Channel) -> RunFigures:
    """The latencies of a channel in quiet."""
    if not channel.label:
        return probe.baseline[channel.phase]
    found = next(op.baseline for op in probe.ops if (op.phase, op.op) == (channel.phase, channel.label))
    assert found is not None, f"{probe.name}: {channel} has no baseline"
    return found


def now(probe: RunProbe, channel: Channel, q: float = 50) -> float:
    """A percentile with the aggressors on, in ns."""
    value = figures(probe, channel).distribution.percentile(q)
    assert value is not None, f"{probe.name}: no {channel} returned"
    return value


def quiet(probe: RunProbe, channel: Channel, q: float = 50) -> float:
    """A percentile in quiet, in ns."""
    value = quiet_figures(probe, channel).distribution.percentile(q)
    assert value is not None, f"{probe.name}: no {channel} returned in the baseline"
    return max(value, 1.0)


def times_quiet(probe: RunProbe, channel: Channel, q: float = 50) -> float:
    """A percentile with the aggressors on over that in quiet."""
    return now(probe, channel, q) / quiet(probe, channel, q)


def undisturbed(found: RunVariant, probe: RunProbe, phase: Phase, times: float) -> bool:
    """Whether the p50 with the aggressors on is less than ``times`` that in quiet, or no verdict calls it slower.

    The p50 of an undisturbed launch was 6.2 to 10.9 us in eight runs of one H200 server within a minute, with and
    without an aggressor: then it is within the machine's variation, which verdicts take into account.
    """
    slower = any(one.probe == probe.name and one.phase is phase and one.kind.is_stall for one in found.verdicts)
    return not slower or times_quiet(probe, Channel(phase)) < times


def of_entry(pattern: str, name: str, entry: str) -> RunProbe:
    """The probe of catalogue entry ``entry`` in a variant."""
    (found,) = (one for one in variant(pattern, name).probes if one.entry == entry)
    return found


def slowest(probe: RunProbe, channel: Channel) -> float:
    """The p99 in ns, or the age of the call in flight if that is more."""
    return max(figures(probe, channel).p99_ns or 0.0, probe.in_flight_ns or 0.0)


def says_stalled(found: RunVariant, probe: RunProbe) -> None:
    """Assert that a verdict names the probe as stalled, with numbers, a cause and what helps.

    Of several aggressors together the cause may be open, and then nothing helps.
    """
    assert probe.state in LOUD
    said = [one for one in found.verdicts if one.probe == probe.name and one.kind in ("stalled", "starved")]
    assert said
    assert all(one.sentence and one.cause and (one.remedy or one.proof == Proof.OPEN) for one in said)
