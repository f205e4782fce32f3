"""The catalogue's causes against the checks recorded on H200s: no stall without its cause, no wrong scope of a lock."""

from __future__ import annotations

import re
from collections import defaultdict

import pytest

from factories.agreement import HOST, is_stalled, recorded_checks
from stallprobes.catalog import Cause, cause, entries
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.matrix import QUIET

Pair = tuple[str, str]


@pytest.fixture(scope="module")
def stalled() -> dict[Pair, int]:
    """In how many of the recorded checks each pair is stalled."""
    found: dict[Pair, int] = defaultdict(int)
    for matrix in recorded_checks().values():
        for (row, column), cell in matrix.cells.items():
            if row != HOST and column != QUIET and cell.status.measured and is_stalled(cell):
                found[row, column] += 1
    return found


def causes() -> dict[Pair, Cause | None]:
    whole = plan()
    return {
        (victim.row.name, one.column.name): cause(victim.probe, one.probes[0])
        for victim in whole.victims
        for one in whole.aggressor_sets
    }


def test_every_recorded_stall_has_a_cause(stalled: dict[Pair, int]) -> None:
    known = causes()
    assert len(stalled) > 150
    # Seen on a noisy host only, in 1 of 100 calls or waits, and explained by nothing that was measured.
    unexplained = {
        ("d2h-pinned@secondary", "host-register"),
        ("d2h-pinned@secondary", "scalar-readback"),
        ("d2h-pageable", "alloc-async"),
    }
    assert {pair for pair in stalled if known[pair] is None} <= unexplained


def test_locks_of_a_context_explain_no_stall_in_another() -> None:
    known = causes()
    for aggressor in ("alloc-free", "host-alloc-free", "host-register", "stream-churn", "graph-instantiate"):
        for victim in ("d2d@secondary", "d2h-pinned@secondary"):
            assert known[victim, aggressor] is None
        assert known["launch@green", aggressor] is not None


@pytest.mark.parametrize(
    ("victim", "aggressor", "words"),
    [
        ("d2d@secondary", "module-load", "Loading code"),
        ("d2d@secondary", "d2h-pageable-warm", "in every context"),
        ("d2h-pageable", "d2h-pageable-warm", "wait for each other"),
        ("peer-copy", "d2h-pageable-fresh", "wait for each other"),
        ("d2h-pinned@secondary", "d2h-pageable-fresh", "one copy engine"),
        ("h2d-pinned", "spin@secondary", "command stream"),
        ("h2d-pinned", "context-churn", "one context at a time"),
        ("launch@green", "context-churn", "one context at a time"),
        ("launch/shared", "alloc-async", "grows it again"),
        ("launch/null", "launch-queue-full", "every stream"),
        ("launch/shared", "launch-queue-full", "launch queue is full"),
    ],
)
def test_each_exception_has_its_own_cause(victim: str, aggressor: str, words: str) -> None:
    found = causes()[victim, aggressor]
    assert found is not None
    assert words in found.why


def test_no_cause_names_the_process_or_the_device() -> None:
    for entry in entries().values():
        for one in entry.causes:
            assert not re.search(r"\b(the|whole) (process|device)\b|driver locks", one.why), (entry.name, one.why)
