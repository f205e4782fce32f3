"""The history of earlier probe sets on the axis of the present one."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec import structs

from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import FocusView
from stallprobes.recording.observation import Observation
from stallprobes.recording.recording import Recording

VICTIM, COLUMNS, SPAN_S = "d2d@secondary", 60, 60.0
GAP_S = 3.0


@pytest.fixture
def frames(stall: Recording) -> list[Observation]:
    return list(stall.play())


def ended(frames: list[Observation]) -> Analyzer:
    analyzer = Analyzer(frames[0].probe_set)
    for observation in frames:
        analyzer.feed(observation)
    return analyzer


def later(frames: list[Observation]) -> list[Observation]:
    """The same measurements GAP_S after the last one, of a probe set of its own."""
    by_s = frames[-1].wall_s - frames[0].wall_s + GAP_S
    probe_set = structs.replace(frames[0].probe_set)
    return [structs.replace(one, probe_set=probe_set, wall_s=one.wall_s + by_s) for one in frames]


def successor(before: Analyzer, frames: list[Observation]) -> Analyzer:
    return Analyzer(frames[0].probe_set, earlier=before.earlier_sets(VICTIM))


def view(analyzer: Analyzer) -> FocusView:
    focus = analyzer.monitor_view(VICTIM, columns=COLUMNS, span_s=SPAN_S).focus
    assert focus is not None
    return focus


def test_the_past_stands_left_of_a_rule_with_the_victims_name(frames: list[Observation]) -> None:
    first = ended(frames)
    alone = view(first)
    second = successor(first, later(frames))
    for observation in later(frames):
        second.feed(observation)
    both = view(second)
    before, own_stretch = both.stretches
    own = own_stretch.first
    assert both.heat[own:].sum() == alone.heat.sum()
    assert both.heat[:own].sum() == alone.heat.sum()
    # The start of the engine is a gap, of as many seconds as there were.
    assert not both.heat[own - int(GAP_S) + 1 : own].any()
    assert both.heat[own - int(GAP_S)].any()
    assert [text for _, text in both.marks].count("spin on") == 2
    assert (before.name, own_stretch.name) == (VICTIM, VICTIM)
    # The line follows the last call of the past at once; from there to the first call of the present nothing ran.
    assert own_stretch.rule is not None
    assert before.first < own_stretch.rule < own
    assert both.heat[own_stretch.rule - 1].any()
    assert [column for column, _ in both.marks] == sorted(column for column, _ in both.marks)
    # Calls of the past are slow by the baseline of their own set.
    assert len(both.earlier_slow_ns) == own
    assert np.nanmax(both.earlier_slow_ns) == alone.slow_ns


def test_while_the_engine_starts_the_past_moves_on(frames: list[Observation]) -> None:
    first = ended(frames)
    second = successor(first, later(frames))
    starting = structs.replace(frames[-1], probe_set=second.probe_set, snapshot=None)
    places = []
    for passed_s in (0.2, 5.0):
        second.feed(structs.replace(starting, wall_s=frames[-1].wall_s + passed_s))
        shown = view(second)
        places.append((int(np.flatnonzero(shown.heat.sum(axis=1))[-1]), shown.first))
    (soon, first_column), (then, moved) = places
    # A column for the line, and one for the start.
    assert soon == COLUMNS - 3
    assert soon - then == 3
    assert moved - first_column in (4, 5)


def test_what_is_older_than_the_axis_is_left_out(frames: list[Observation]) -> None:
    first = ended(frames)
    second = successor(first, later(frames))
    for observation in later(frames):
        second.feed(structs.replace(observation, wall_s=observation.wall_s + 3600))
    shown = view(second)
    assert shown.heat.sum() == view(first).heat.sum()
    assert len(shown.stretches) == 1


def test_several_sets_keep_their_order_and_the_oldest_is_dropped(frames: list[Observation]) -> None:
    analyzer, measured = ended(frames), frames
    for _ in range(6):
        measured = later(measured)
        analyzer = successor(analyzer, measured)
        for observation in measured:
            analyzer.feed(observation)
    sets = analyzer.earlier_sets(VICTIM)
    assert len(sets) == 5
    assert [one.wall_s for one in sets] == sorted(one.wall_s for one in sets)
    assert all(not one.history.earlier for one in sets)
    whole = analyzer.monitor_view(VICTIM, columns=200, span_s=200.0).focus
    assert whole is not None
    assert whole.heat.sum() == 5 * view(ended(frames)).heat.sum()


def test_a_set_that_never_ran_leaves_what_was_before(frames: list[Observation]) -> None:
    first = ended(frames)
    never = successor(first, later(frames))
    assert len(never.earlier_sets(VICTIM)) == 1
    assert len(first.earlier_sets("unknown")) == 0


def test_observations_without_calls_do_not_shift_the_past(frames: list[Observation]) -> None:
    first = ended(frames)
    first.feed(structs.replace(frames[-1], snapshot=None, wall_s=frames[-1].wall_s + 2))
    assert first.earlier_sets(VICTIM)[0].wall_s == frames[-1].wall_s
