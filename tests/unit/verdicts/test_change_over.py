"""The verdict on victims of different contexts that wait for each other's change-over."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stallprobes.catalog import Placement, entries
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import Window
from stallprobes.model import GREEN, SECONDARY, THIRD, US, Channel, Context, Phase, Probe
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.rules import judge
from stallprobes.verdicts.verdict import Proof, Verdict

WAIT = Channel(Phase.WAIT)
SECOND = 1_000_000_000


def waits(entry: str, context: Context, wait_us: float, baseline_us: float | None = None) -> Evidence:
    of = entries()[entry].probe(Placement(context), name=f"{entry}@{context.name}{context.device}")
    window = Window({WAIT: Histogram.of([round(wait_us * US)] * 1000)}, 1000, SECOND, period_ns=of.period_ns)
    base = () if baseline_us is None else ({WAIT: Histogram.of([round(baseline_us * US)] * 1000)},)
    return Evidence(of, window, base)


def running(entry: str) -> Evidence:
    of: Probe = entries()[entry].probe()
    return Evidence(of, Window({}, 100, SECOND))


LAUNCH, COPY = waits("launch", Context(), 140), waits("d2d", SECONDARY, 141)


def found(*evidence: Evidence) -> list[Verdict]:
    return [verdict for verdict in judge(evidence) if verdict.kind is VerdictKind.OVERHEAD]


def test_two_contexts_outside_slots_get_one_verdict_that_names_both_and_the_way_out() -> None:
    (verdict,) = found(LAUNCH, COPY, waits("d2h-pinned", Context(), 5))
    assert verdict.head == (
        "launch@primary0 and d2d@secondary0: each waits for the other context's change-over (wait p50 140 µs)."
    )
    assert "--together" in verdict.remedy
    assert verdict.proof is Proof.RULE


def test_three_contexts_get_one_verdict() -> None:
    (verdict,) = found(LAUNCH, COPY, waits("d2d", THIRD, 139), waits("d2d", GREEN, 142))
    assert "d2d@third" in verdict.head
    assert "@green" not in verdict.head


def test_a_baseline_measured_so_says_it_while_an_aggressor_runs() -> None:
    stalled = waits("d2d", SECONDARY, 1900, baseline_us=140)
    assert found(waits("launch", Context(), 5, baseline_us=140), stalled, running("spin"))
    assert not found(LAUNCH, COPY, running("spin"))


@pytest.mark.parametrize(
    "other",
    [
        waits("d2d", SECONDARY, 5),
        waits("d2d", SECONDARY, 2300),
        waits("d2d", SECONDARY, 350),
        waits("d2d", GREEN, 140),
        waits("d2d", Context("secondary", 1), 140),
        waits("d2h-pinned", SECONDARY, 140),
        replace(COPY, window=replace(COPY.window, in_slots=True)),
    ],
    ids=["quiet", "time-slice", "unequal", "one group", "another GPU", "copy engine", "in slots"],
)
def test_nothing_else_gets_it(other: Evidence) -> None:
    assert not found(LAUNCH, other)
