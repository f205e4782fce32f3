"""The stall that a remedy is compared with, and what differs between the two."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from stallprobes.live.analyzer import Analyzer
from stallprobes.live.before import operation
from stallprobes.model import Phase
from stallprobes.patterns import patterns
from stallprobes.recording.observation import Observation, ProbeSet
from stallprobes.recording.recording import Recording

PATTERN, VICTIM, GAP_S = "secondary-context-d2d", "d2d@secondary", 2.0


@pytest.fixture
def frames(stall: Recording) -> list[Observation]:
    return list(stall.play())


@pytest.fixture
def stalled(frames: list[Observation]) -> Analyzer:
    """An analyzer whose victim stalls now."""
    analyzer = Analyzer(frames[0].probe_set)
    for observation in frames:
        analyzer.feed(observation)
        row = analyzer.monitor_view(VICTIM).row(VICTIM)
        if row is not None and row.mark == "bad":
            return analyzer
    raise AssertionError("nothing stalls in this recording")


def variant(before: Analyzer, name: str, pattern: str = PATTERN) -> ProbeSet:
    found = patterns()[pattern].variant(name)
    return structs.replace(before.probe_set, probes=found.probes, pattern=pattern, variant=name)


def after(before: Analyzer, probe_set: ProbeSet) -> Analyzer:
    return Analyzer(probe_set, earlier=before.earlier_sets(VICTIM))


def test_a_remedy_keeps_the_row_and_the_histograms_of_what_stalled(stalled: Analyzer) -> None:
    row = stalled.monitor_view(VICTIM).row(VICTIM)
    view = after(stalled, variant(stalled, "kernel-same-context")).monitor_view("d2d")
    assert view.before is not None
    assert row is not None
    assert (view.before.counterpart, view.before.relation) == ("d2d", "same copy, context of spin")
    assert (view.before.row.ratio, view.before.row.now_ns) == (row.ratio, row.now_ns)
    assert {channel.phase for channel in view.before.channels} >= {Phase.CALL, Phase.WAIT}
    assert view.focus is not None
    assert view.focus.was_ns == row.now_ns


def test_another_operation_has_no_counterpart_and_is_named(stalled: Analyzer) -> None:
    view = after(stalled, variant(stalled, "copy-engine")).monitor_view("d2h-pinned@secondary")
    assert view.before is not None
    assert view.before.counterpart is None
    assert view.before.relation == "another operation: pinned D2H of 1 MiB"
    assert view.focus is not None
    assert view.focus.was_ns is None


def test_the_next_remedies_are_compared_with_the_same_stall(stalled: Analyzer, frames: list[Observation]) -> None:
    analyzer = stalled
    for name, relation in (
        ("kernel-same-context", "same copy, context of spin"),
        ("copy-engine", "another operation: pinned D2H of 1 MiB"),
        ("green-context", "same copy, green context"),
    ):
        analyzer = after(analyzer, variant(stalled, name))
        assert analyzer.before is not None
        assert (analyzer.before.row.name, analyzer.before.relation) == (VICTIM, relation)


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        (PATTERN, "kernel-other-context"),
        (PATTERN, "secondary-alone"),
        ("pageable-d2h-vs-launch", "pinned-other-stream"),
    ],
)
def test_nothing_else_is_compared_with_a_stall(stalled: Analyzer, pattern: str, name: str) -> None:
    assert after(stalled, variant(stalled, name, pattern)).before is None


def test_a_remedy_without_a_stall_before_it_has_none(frames: list[Observation]) -> None:
    quiet = Analyzer(frames[0].probe_set)
    quiet.feed(frames[0])
    quiet.feed(frames[1])
    assert after(quiet, variant(quiet, "kernel-same-context")).before is None


def test_other_probes_in_between_end_the_comparison(stalled: Analyzer, frames: list[Observation]) -> None:
    first = after(stalled, structs.replace(frames[0].probe_set, pattern="", variant=""))
    for observation in frames[:2]:
        first.feed(structs.replace(observation, probe_set=first.probe_set))
    assert after(first, variant(stalled, "kernel-same-context")).before is None


def test_strips_join_a_probe_over_its_sets_and_keep_that_of_the_stall(
    stalled: Analyzer, frames: list[Observation]
) -> None:
    remedy = after(stalled, variant(stalled, "kernel-same-context"))
    remedy.feed(
        structs.replace(frames[-1], probe_set=remedy.probe_set, snapshot=None, wall_s=frames[-1].wall_s + GAP_S)
    )
    view = remedy.monitor_view("d2d", strip=60)
    assert view.before is not None
    own, before = view.row("d2d"), view.before.row
    assert own is not None
    assert set(own.strip) == {-1}
    known = np.flatnonzero(np.array(before.strip) >= 0)
    assert len(known)
    # The line and the start of the engine stand to the right of it.
    assert known[-1] < 59 - 1
    spin, past = view.row("spin"), stalled.monitor_view(VICTIM, strip=60).row("spin")
    assert spin is not None
    assert past is not None
    assert sorted(level for level in spin.strip if level >= 0) == sorted(level for level in past.strip if level >= 0)


def test_an_operation_is_named_with_its_size(stalled: Analyzer) -> None:
    probes = patterns()[PATTERN].variant("copy-engine").probes
    assert operation(probes[0]) == "pinned D2H of 1 MiB"
    assert " of " not in operation(probes[-1])
