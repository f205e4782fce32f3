"""The time of a process that is divided: all of it, or a part of each slice of time with many calls."""

from __future__ import annotations

import pytest

from stallprobes.watch.division.divided_time import PERIOD_NS, SECOND_NS, DividedTime, most_of_each
from stallprobes.watch.division.instants import Spans
from stallprobes.watch.intervals import int64s

BEGIN_NS = 7_000_000_000


def test_a_slice_with_few_calls_is_divided_in_full() -> None:
    time = DividedTime(most_events=1000)
    time.choose(BEGIN_NS, BEGIN_NS + SECOND_NS, 1000)
    time.choose(BEGIN_NS + SECOND_NS, BEGIN_NS + 3 * SECOND_NS, 2000)
    assert time.within(BEGIN_NS, BEGIN_NS + 3 * SECOND_NS) == [(BEGIN_NS, BEGIN_NS + 3 * SECOND_NS)]
    assert time.share == 1.0


def test_of_a_slice_with_many_calls_a_part_is_divided_whose_place_moves() -> None:
    time, places = DividedTime(most_events=1000), []
    for number in range(50):
        begin = BEGIN_NS + number * SECOND_NS
        time.choose(begin, begin + SECOND_NS, 8000)
        ((first, last),) = time.within(begin, begin + SECOND_NS)
        assert last - first == pytest.approx(SECOND_NS / 32, abs=1)
        places.append((first - begin) / (SECOND_NS - (last - first)))
    assert time.share == pytest.approx(1 / 32)
    # Each tenth of the possible places has about as many.
    assert [sum(low / 10 <= place < (low + 1) / 10 for place in places) for low in range(10)] == pytest.approx(
        [5] * 10, abs=1
    )


def test_the_part_lies_where_work_is_recorded() -> None:
    """In a slice with times in which it is, in each of them by turns."""
    time, chosen = DividedTime(most_events=1000), []
    for number in range(12):
        begin = BEGIN_NS + number * SECOND_NS
        times = Spans(
            int64s([begin + SECOND_NS // 10, begin + SECOND_NS // 2]),
            int64s([begin + SECOND_NS // 4, begin + SECOND_NS * 51 // 100]),
        )
        time.choose(begin, begin + SECOND_NS, 8000, recorded=times)
        ((first, last),) = time.within(begin, begin + SECOND_NS)
        assert last - first == pytest.approx(SECOND_NS / 32, abs=1)
        chosen.append(int(times.begins[1]) <= first)
        assert times.begins[int(chosen[-1])] <= first
        # One that is shorter than the part is within it.
        assert last <= max(times.ends[int(chosen[-1])], times.begins[int(chosen[-1])] + SECOND_NS // 32 + 1)
    assert sum(chosen) == 6


def test_of_the_last_slice_the_end_is_divided() -> None:
    time = DividedTime(most_events=1000)
    time.choose(BEGIN_NS, BEGIN_NS + SECOND_NS, 8000, last=True)
    ((first, last),) = time.within(BEGIN_NS, BEGIN_NS + SECOND_NS)
    assert last == BEGIN_NS + SECOND_NS
    assert last - first == pytest.approx(SECOND_NS / 32, abs=1)


def test_a_program_of_less_than_a_second_is_divided_as_one_of_a_second() -> None:
    time = DividedTime(most_events=1000)
    time.choose(BEGIN_NS, BEGIN_NS + SECOND_NS // 20, 1000)
    assert time.within(BEGIN_NS, BEGIN_NS + SECOND_NS) == [(BEGIN_NS, BEGIN_NS + SECOND_NS // 20)]
    assert time.share == 1.0


def test_a_slice_without_length_has_no_part() -> None:
    time = DividedTime(most_events=1000)
    time.choose(BEGIN_NS, BEGIN_NS, 0)
    assert time.within(BEGIN_NS - 1, BEGIN_NS + 1) == []
    assert time.share == 1.0


@pytest.mark.parametrize(
    ("rates", "most"),
    [
        ([], 1000),
        ([900.0], 1000),
        ([5000.0], 1000),
        ([5000.0, 5000.0], 500),
        # What the small one leaves is that of the others.
        ([200.0, 5000.0, 5000.0], 400),
        ([300.0, 300.0, 300.0], 1000),
        ([0.0, 0.0, 1200.0], 1000),
    ],
)
def test_processes_share_what_is_divided_in_full(rates: list[float], most: float) -> None:
    assert most_of_each(rates, 1000) == pytest.approx(most)


def test_beside_other_processes_a_smaller_part_is_divided() -> None:
    # All together make eight times as many, of which each may have an eighth.
    time = DividedTime(most_events=1000)
    time.choose(BEGIN_NS, BEGIN_NS + SECOND_NS, 1000, beside=[1000.0] * 7)
    ((first, last),) = time.within(BEGIN_NS, BEGIN_NS + SECOND_NS)
    assert last - first == pytest.approx(SECOND_NS / 32, abs=1)
    # One that makes few calls is divided in full beside them.
    time.choose(BEGIN_NS + SECOND_NS, BEGIN_NS + 2 * SECOND_NS, 120, beside=[1000.0] * 7)
    assert (BEGIN_NS + SECOND_NS, BEGIN_NS + 2 * SECOND_NS) in time.within(BEGIN_NS + SECOND_NS, 2**62)


def compared_parts(events: int, slices: int, first_ns: int) -> list[tuple[int, int]]:
    """The parts of a process that is compared with others, whose slices of a second begin at a time of its own."""
    time = DividedTime(most_events=1000)
    for number in range(slices):
        begin = first_ns + number * SECOND_NS
        time.choose(begin, begin + SECOND_NS, events, compared=True)
    found = time.within(0, 2**62)
    assert time.share == pytest.approx(sum(last - first for first, last in found) / (slices * SECOND_NS))
    return found


def test_processes_that_are_compared_have_their_parts_at_the_same_time() -> None:
    small, large = compared_parts(3000, 80, BEGIN_NS), compared_parts(2000, 80, BEGIN_NS + 300_000_000)
    lengths = [last - first for first, last in small[1:-1]]
    assert lengths == pytest.approx([PERIOD_NS / 3 ** (5 / 3)] * len(lengths), abs=2)
    assert len(small) >= 80 * SECOND_NS // PERIOD_NS - 1
    for first, last in small[1:-1]:
        assert any(begin <= first and last <= end for begin, end in large)
    # The place in the period is another one each time.
    places = [(first % PERIOD_NS) / (PERIOD_NS - (last - first)) for first, last in small[1:-1]]
    assert sum(place < 0.5 for place in places) == pytest.approx(len(places) / 2, abs=1)


def test_of_what_is_compared_at_least_an_eighth_is_divided() -> None:
    parts = compared_parts(100_000, 80, BEGIN_NS)
    assert {last - first for first, last in parts[1:-1]} == {PERIOD_NS // 8}


def test_of_the_last_slice_of_what_is_compared_the_end_is_divided_too() -> None:
    time = DividedTime(most_events=1000)
    time.choose(BEGIN_NS, BEGIN_NS + 2 * PERIOD_NS, 80_000, last=True, compared=True)
    *parts, (first, last) = time.within(BEGIN_NS, 2**62)
    assert last == BEGIN_NS + 2 * PERIOD_NS
    assert last - first == pytest.approx(2 * PERIOD_NS / 10 ** (5 / 3), abs=1)
    assert parts


def test_times_that_are_done_are_forgotten() -> None:
    time = DividedTime(most_events=1000)
    time.choose(BEGIN_NS, BEGIN_NS + SECOND_NS, 10)
    time.choose(BEGIN_NS + 2 * SECOND_NS, BEGIN_NS + 3 * SECOND_NS, 10)
    time.drop_before(BEGIN_NS + SECOND_NS)
    assert time.within(0, 2**62) == [(BEGIN_NS + 2 * SECOND_NS, BEGIN_NS + 3 * SECOND_NS)]
