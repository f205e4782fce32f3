"""Causes on the screen while several aggressors run, on the simulated GPU."""

from __future__ import annotations

import pytest

from factories.aggressor_mixtures import switched_one_by_one
from factories.virtual_session import VirtualSession
from stallprobes.engine.backend import Options
from stallprobes.model import Phase
from stallprobes.verdicts.verdict import Proof, Verdict


def verdict(*order: str, victim: str = "launch", phase: Phase = Phase.CALL) -> tuple[Verdict, str]:
    """The verdict after the switches, and the aggressor at whose switch the current entry of the log began."""
    analyzer = switched_one_by_one(order, Options(seed=3), VirtualSession, [victim])
    found = next(one for one in analyzer.verdicts if (one.probe, one.phase) == (victim, phase))
    entry = next(one for one in analyzer.log if one.ended_s is None and one.verdict.phase is phase)
    return found, entry.since


@pytest.mark.parametrize("order", [("host-register", "host-alloc-free"), ("host-alloc-free", "host-register")])
def test_of_two_that_stall_by_themselves_the_one_with_whose_switch_it_began_is_probable(order: tuple[str, str]) -> None:
    found, since = verdict(*order)
    assert (found.proof, found.aggressors, since) == (Proof.PROBABLE, order[:1], order[0])
    assert found.cause.startswith(f"Probably because of {order[0]}, at whose switch it began: ")


def test_one_that_makes_no_such_stall_by_itself_is_no_candidate_wherever_it_was_switched() -> None:
    for order in (("spin-full", "host-alloc-free"), ("host-alloc-free", "spin-full")):
        found, _ = verdict(*order)
        assert (found.proof, found.aggressors) == (Proof.RULE, ("host-alloc-free",))
        assert found.cause.startswith("Because of host-alloc-free: Pinning pages")


@pytest.mark.parametrize("first", ["alloc-free", "spin"])
def test_a_stall_that_takes_both_is_not_known(first: str) -> None:
    other = {"alloc-free": "spin", "spin": "alloc-free"}[first]
    found, _ = verdict(first, other)
    assert found.proof is Proof.OPEN
    assert found.cause.startswith("Not known yet: 2 aggressors run.")
    assert found.remedy == ""
