"""The choice of the victim that the panels show while none is selected: a pure function of stalls and time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallscope.tui.monitor.following import QUIET_S, WORSE, WORSE_S, Following, Weight

SLOWER, STALLED, STARVED = 5, 7, 8
# A judgement takes place every 0.2 s.
STEP_S = 0.2


def run(stalls: Iterable[Mapping[str, Weight]], begin: Following | None = None, at_s: float = 100.0) -> list[Following]:
    """The choices after judgements one STEP_S apart."""
    out, now = [], begin or Following()
    for number, one in enumerate(stalls):
        now = now.after(one, at_s + number * STEP_S)
        out.append(now)
    return out


def names(choices: Iterable[Following]) -> list[str | None]:
    return [one.name for one in choices]


def test_nothing_is_chosen_before_the_first_stall_and_then_at_once() -> None:
    assert names(run([{}, {}, {"d2d": (STALLED, 300.0)}, {}])) == [None, None, "d2d", "d2d"]


def test_the_victim_that_stalled_last_stays_when_its_stall_has_ended() -> None:
    assert set(names(run([{"d2d": (STALLED, 300.0)}, *[{}] * 500]))) == {"d2d"}


def test_of_several_the_one_with_the_most_severe_verdict_and_the_largest_ratio_is_chosen() -> None:
    several = {"a": (SLOWER, 900.0), "b": (STALLED, 3.5), "c": (STALLED, 40.0)}
    assert names(run([several])) == ["c"]
    assert names(run([{**several, "d": (STARVED, 0.0)}])) == ["d"]


def test_another_stall_is_chosen_once_the_first_one_has_been_quiet_for_a_while() -> None:
    quiet = round(QUIET_S / STEP_S)
    found = names(run([{"a": (STALLED, 50.0)}, *[{"b": (STALLED, 4.0)}] * (2 * quiet)]))
    assert found[:quiet] == ["a"] * quiet
    assert found[-1] == "b"
    assert found.count("b") >= quiet - 1


def test_one_that_is_clearly_worse_is_chosen_after_it_has_lasted() -> None:
    lasting = round(WORSE_S / STEP_S)
    both = {"a": (STALLED, 10.0), "b": (STALLED, 10.0 * WORSE)}
    found = names(run([{"a": (STALLED, 10.0)}, *[both] * (2 * lasting)]))
    assert found[:lasting] == ["a"] * lasting
    assert found[-1] == "b"
    # One judgement in between begins the time anew.
    broken = [both] * (lasting - 1) + [{"a": (STALLED, 10.0)}]
    assert set(names(run([{"a": (STALLED, 10.0)}, *broken * 5]))) == {"a"}


@pytest.mark.parametrize("ratio", [5.0, 9.0, 12.0, 25.0])
def test_two_of_about_the_same_ratio_do_not_take_turns(ratio: float) -> None:
    turns = [{"a": (STALLED, 10.0), "b": (STALLED, ratio)}, {"a": (STALLED, ratio), "b": (STALLED, 10.0)}] * 100
    assert len(set(names(run(turns)))) == 1


def test_two_that_stall_by_turns_do_not_take_turns_on_the_screen() -> None:
    turns = [*[{"a": (STALLED, 10.0)}] * 5, *[{"b": (STALLED, 200.0)}] * 5] * 20
    assert set(names(run(turns))) == {"a"}


@given(
    st.lists(
        st.dictionaries(
            st.sampled_from("abc"), st.tuples(st.sampled_from((SLOWER, STALLED, STARVED)), st.floats(1.5, 1e6))
        ),
        max_size=60,
    )
)
def test_no_choice_lasts_less_than_the_shortest_time_of_the_rule(stalls: list[dict[str, Weight]]) -> None:
    found = names(run(stalls))
    changes = [number for number in range(1, len(found)) if found[number] != found[number - 1]]
    # The first stall is chosen at once.
    apart = [later - earlier for earlier, later in pairwise(changes)]
    assert all(steps * STEP_S >= WORSE_S - STEP_S / 2 for steps in apart)
    for number, name in enumerate(found):
        assert name is None or any(name in one for one in stalls[: number + 1])


def test_a_clock_that_was_set_back_does_not_hold_the_choice() -> None:
    (before,) = run([{"a": (STALLED, 10.0)}], at_s=1000.0)
    assert before.after({"b": (STALLED, 10.0)}, 10.0).name == "b"


def test_with_other_probes_a_choice_that_is_not_among_them_ends() -> None:
    (found,) = run([{"a": (STALLED, 10.0)}])
    assert found.within(("a", "b")) is found
    assert found.within(("b",)).name is None
