"""Causes beside several aggressors: what is named for sure, as probable, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from stallprobes.catalog import UNKNOWN_CAUSE, cause
from stallprobes.model import Phase, Probe
from stallprobes.patterns.naming import parse_probe, parse_probes
from stallprobes.verdicts.candidates import AggressorGroup, Effect, aggressor_groups
from stallprobes.verdicts.explanations import Explained, beside_aggressors
from stallprobes.verdicts.verdict import Proof

STALLS, MAY, NONE = Effect.STALLS, Effect.MAY_STALL, Effect.NONE


@dataclass
class Checks:
    """Known effects by the name of the aggressor."""

    effects: Mapping[str, Effect]
    source = "reference x"

    def effect(self, _victim: Probe, aggressor: AggressorGroup, _phase: Phase, _ratio: float | None) -> Effect | None:
        return self.effects.get(aggressor.name)


def explained(effects: Mapping[str, Effect], *aggressors: str, phase: Phase = Phase.CALL) -> Explained:
    probes = [probe for name in aggressors for probe in parse_probes(name)]
    return beside_aggressors(parse_probe("launch"), probes, effects=lambda: Checks(effects), phase=phase, ratio=100.0)


@pytest.mark.parametrize(
    ("effects", "proof", "named"),
    [
        ({"spin-full": NONE, "host-alloc-free": STALLS}, Proof.RULE, ("host-alloc-free",)),
        ({"spin-full": NONE, "host-alloc-free": MAY}, Proof.PROBABLE, ("host-alloc-free",)),
        ({"spin-full": NONE}, Proof.PROBABLE, ("host-alloc-free",)),
        ({"spin-full": STALLS, "host-alloc-free": STALLS}, Proof.OPEN, ("spin-full", "host-alloc-free")),
        ({"host-alloc-free": STALLS}, Proof.OPEN, ("spin-full", "host-alloc-free")),
        ({}, Proof.OPEN, ("spin-full", "host-alloc-free")),
        ({"spin-full": NONE, "host-alloc-free": NONE}, Proof.OPEN, ()),
    ],
)
def test_an_aggressor_is_named_where_checks_leave_no_other(
    effects: Mapping[str, Effect], proof: Proof, named: tuple[str, ...]
) -> None:
    found = explained(effects, "spin-full", "host-alloc-free")
    assert (found.proof, found.aggressors) == (proof, named)
    assert found.cause.startswith(
        {Proof.RULE: "Because of", Proof.PROBABLE: "Probably because of"}.get(proof, "Not known")
    )
    # A remedy of a cause that is not known helps by chance.
    assert bool(found.remedy) == bool(found.short_remedy) == (proof is not Proof.OPEN)


def test_what_is_ruled_out_is_said_with_its_source() -> None:
    found = explained({"stream-churn": NONE}, "stream-churn", "host-alloc-free", "module-load")
    assert found.cause == (
        "Not known yet: 3 aggressors run. It may be host-alloc-free or module-load; stream-churn does not stall it so "
        "alone (reference x)."
    )


def test_aggressors_that_share_a_cause_are_named_together_as_probable() -> None:
    found = explained({}, "host-alloc-free", "host-alloc-free@secondary", "spin")
    assert found.proof is Proof.OPEN
    shared = beside_aggressors(
        parse_probe("d2d@third"), [parse_probe("spin"), parse_probe("spin@secondary")], phase=Phase.WAIT
    )
    assert (shared.proof, shared.aggressors) == (Proof.PROBABLE, ("spin", "spin@secondary"))
    assert shared.cause.startswith("Probably because of spin or spin@secondary: ")


def test_a_single_aggressor_is_the_cause_whatever_checks_say() -> None:
    found = explained({"host-alloc-free": NONE}, "host-alloc-free")
    assert (found.proof, found.aggressors) == (Proof.RULE, ("host-alloc-free",))
    unknown = explained({}, "host-alloc-free", phase=Phase.WAIT)
    assert (unknown.cause, unknown.proof) == (UNKNOWN_CAUSE.why, Proof.NONE)


def test_threads_of_one_aggressor_are_one() -> None:
    (group,) = aggressor_groups(parse_probes("launch-burst-x3"))
    assert group.name == "launch-burst-x3"
    assert len(group.probes) == 3
    assert explained({}, "launch-burst-x3").proof is Proof.RULE


def test_a_cause_explains_only_its_phases() -> None:
    launch, spin, pageable = (parse_probe(name) for name in ("launch", "spin-full", "d2h-pageable-warm"))
    wait, call = cause(launch, spin, Phase.WAIT), cause(launch, spin, Phase.CALL)
    assert wait is not None
    assert "every SM" in wait.why
    assert call is not None
    assert "caches" in call.why
    assert cause(launch, spin, Phase.START) is wait
    copy = parse_probe("d2h-pinned")
    queue, lock = cause(copy, pageable, Phase.WAIT), cause(copy, pageable, Phase.CALL)
    assert queue is not None
    assert "one copy engine" in queue.why
    assert lock is not None
    assert "locks" in lock.why
    # A copy through staging buffers waits for its engine inside the call.
    staged = cause(parse_probe("d2h-pageable"), parse_probe("d2h-pinned-large"), Phase.CALL)
    assert staged is not None
    assert "one copy engine" in staged.why
