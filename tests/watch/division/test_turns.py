"""Turns of an experiment beside a program: the time of each part in them, and the time without aggressors."""

from __future__ import annotations

import numpy as np
import pytest

from factories.divided_calls import Call, readings
from factories.watch_calls import BASE_NS, LAUNCH, SYNC
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.instants import KERNEL, Instants
from stallprobes.watch.division.parts import NUMBERS, Part
from stallprobes.watch.division.turns import NO_AGGRESSOR, TurnTimes
from stallprobes.watch.intervals import FOREVER, int64s

KEY = (7, 0)
MS = 1_000_000


def instants(*spans: tuple[int, int, Part]) -> Instants:
    begins, ends, parts = zip(*spans, strict=True)
    return Instants(int64s(begins), int64s(ends), np.array([NUMBERS[part] for part in parts], dtype=np.int8), ())


def test_the_time_of_each_part_is_summed_up_by_kind_of_turn() -> None:
    turns = TurnTimes()
    turns.begin(NO_AGGRESSOR, 100)
    turns.end(200)
    turns.begin("spin", 250)
    turns.add(KEY, instants((0, 150, Part.KERNELS), (150, 300, Part.HOST)))
    turns.end(400)
    turns.add(KEY, instants((300, 500, Part.SHARED)))
    sums = turns.sums(KEY)
    assert {kind: {part for part in Part if of[NUMBERS[part]]} for kind, of in sums.items()} == {
        NO_AGGRESSOR: {Part.KERNELS, Part.HOST},
        "spin": {Part.HOST, Part.SHARED},
    }
    assert [int(sums[NO_AGGRESSOR][NUMBERS[part]]) for part in (Part.KERNELS, Part.HOST)] == [50, 50]
    assert [int(sums["spin"][NUMBERS[part]]) for part in (Part.HOST, Part.SHARED)] == [50, 100]
    assert turns.sums((8, 0)) == {}


def test_a_turn_that_begins_ends_the_one_before() -> None:
    turns = TurnTimes()
    turns.begin(NO_AGGRESSOR, 100)
    turns.begin("dram", 200)
    assert turns.last() == ((NO_AGGRESSOR, 100, 200), ("dram", 200, FOREVER))
    turns.end(300)
    turns.end(400)
    assert turns.last()[-1] == ("dram", 200, 300)


def test_the_time_without_aggressors_leaves_out_their_turns_and_what_is_before_them() -> None:
    turns = TurnTimes()
    for kind, begin, end in (
        (NO_AGGRESSOR, 100, 200),
        ("spin", 200, 300),
        (NO_AGGRESSOR, 300, 400),
        ("spin", 400, 450),
    ):
        turns.begin(kind, begin)
        turns.end(end)
    assert list(turns.without([(0, 1000)], NO_AGGRESSOR, 10)) == [(0, 190), (300, 390), (450, 1000)]
    assert list(turns.without([(0, 1000)], NO_AGGRESSOR, 200)) == [(450, 1000)]
    assert list(TurnTimes().without([(0, 1000)], NO_AGGRESSOR, 10)) == [(0, 1000)]


def steps(begin_s: float, count: int, kernel_ms: int, step_ms: int) -> list[Call]:
    """Steps of a kernel that the host waits for, from a time on."""
    begins = [round(begin_s * 1000) + number * step_ms for number in range(count)]
    launches = [Call(LAUNCH, at, at + 1, work=((at + 1, at + kernel_ms, KERNEL),)) for at in begins]
    return [*launches, *(Call(SYNC, at + 1, at + kernel_ms) for at in begins)]


def test_what_bounds_a_program_is_of_the_time_without_an_aggressor() -> None:
    """With one, which runs from 6 s to 9 s, the GPU works for half of the time only."""
    calls = [*steps(0, 120, 45, 50), *steps(6, 60, 25, 50), *steps(9, 60, 45, 50)]
    divider = ProcessDivider()
    for number, reading in enumerate(readings(calls, [500.0 * number for number in range(1, 25)], unit=MS), 1):
        if number == 12:
            divider.turns.begin("spin", BASE_NS + 6_000 * MS)
        if number == 18:
            divider.turns.end(BASE_NS + 9_000 * MS)
        divider.feed(*reading, ended=number == 24)
    found = divider.division()
    assert found is not None
    (sequence,) = found.sequences
    assert sequence.phases == ()
    assert sequence.step is not None
    # From 4 s on, when it is known that it is steady.
    assert sequence.step.steps == pytest.approx(100, abs=5)
    assert sequence.share(Part.KERNELS) == pytest.approx(0.88, abs=0.02)
    inside = divider.parts_in_turns(sequence.threads, 0)["spin"]
    assert int(inside.sum()) == pytest.approx(3_000 * MS, rel=0.01)
    assert inside[NUMBERS[Part.KERNELS]] / inside.sum() == pytest.approx(0.48, abs=0.02)
    # Where there is no other time, it is of all.
    divider.turns.begin("spin", 0)
    found = divider.division()
    assert found is not None
    assert found.sequences[0].share(Part.KERNELS) < 0.84
