"""Effects of aggressors by the turns of a program: ratios with intervals, percentiles, clocks, and what grew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from stallprobes.watch.beside.result import BesideOutcome, BesideRow, BesideUnit, GrownLine, RatioInterval
from stallprobes.watch.beside.turn_statistics import NO_TURN, Turn, row_of
from stallprobes.watch.beside_text import change_text, factor_text, grown_label, interval_text, row_text
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import NUMBERS, ORDER, Part
from stallprobes.watch.division.turns import NO_AGGRESSOR
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame

MS = 1_000_000
S = 1_000 * MS


def turn(aggressor: str, step_ms: float, at: int, *, steps: int = 40, counts: bool = True, mhz: float = 1980) -> Turn:
    durations = int64s([round(step_ms * MS * (1 + 0.001 * (number % 5 - 2))) for number in range(steps)])
    return Turn(aggressor, at * S, at * S + int(durations.sum()), durations, 0, (mhz,), counts)


def turns(pairs: Sequence[tuple[float, float]], aggressor: str = "spin", mhz: float = 1980) -> list[Turn]:
    """Turns without and with an aggressor by turns, with these steps (ms), and a last one without."""
    made = []
    for number, (off, on) in enumerate(pairs):
        made += [turn(NO_AGGRESSOR, off, 2 * number), turn(aggressor, on, 2 * number + 1, mhz=mhz)]
    return [*made, turn(NO_AGGRESSOR, pairs[-1][0], 2 * len(pairs))]


def parts(**shares: float) -> Int64s:
    made = np.zeros(len(ORDER), dtype=np.int64)
    for name, share in shares.items():
        made[NUMBERS[Part[name]]] = round(share * S)
    return int64s(made)


def row(
    made: Sequence[Turn],
    of: Mapping[str, Int64s] = {},
    unit: BesideUnit = BesideUnit.STEP,
    lines: Mapping[str, Mapping[StackFrame, Figure]] = {},
) -> BesideRow:
    return row_of("spin", made, unit, of, lines)


def test_a_step_of_twice_the_time_is_slower_by_two() -> None:
    found = row(turns([(14.0, 28.1), (14.1, 28.0), (14.0, 28.0), (13.9, 27.9)]))
    assert found.ratio is not None
    assert found.ratio.ratio == pytest.approx(2.0, rel=0.01)
    assert found.ratio.low < found.ratio.ratio < found.ratio.high
    assert found.ratio.high - found.ratio.low < 0.05
    assert (found.outcome, found.turns) == (BesideOutcome.SLOWER, 4)
    assert (found.off.steps, found.on.steps) == (200, 160)
    assert found.on.p99_ns is not None
    assert change_text(found.off.p50_ns, found.on.p50_ns) == "14.0 → 28.0 ms"
    assert (found.off.sm_clock_mhz, found.on.sm_clock_mhz) == (1980, 1980)


def test_steps_as_long_as_before_are_the_same() -> None:
    found = row(turns([(14.0, 14.05), (14.1, 14.0), (14.0, 14.1)]))
    assert found.outcome is BesideOutcome.SAME
    assert "as long as without it: ×1.0" in row_text(found, BesideUnit.STEP)


def test_drift_of_the_program_is_no_effect() -> None:
    """Each step is 10 % longer than two turns before, with and without an aggressor."""
    lengths = [10 * 1.1 ** (number / 2) for number in range(13)]
    made = [turn("spin" if number % 2 else NO_AGGRESSOR, length, number) for number, length in enumerate(lengths)]
    found = row(made)
    assert found.ratio is not None
    assert found.ratio.ratio == pytest.approx(1.0, abs=0.002)
    assert found.outcome is BesideOutcome.SAME


def test_turns_that_differ_widen_the_interval() -> None:
    wide, narrow = row(turns([(10, 12), (10, 30), (10, 11)])), row(turns([(10, 16), (10, 17), (10, 16)]))
    assert wide.ratio is not None
    assert narrow.ratio is not None
    assert wide.ratio.low < 1 < wide.ratio.high
    # Twice as long in one turn of three: that is not "as long as without it".
    assert (wide.outcome, wide.reason) == (BesideOutcome.UNKNOWN, "its turns differ too much")
    assert row_text(wide, BesideUnit.STEP).startswith("Beside spin: not known (its turns differ too much): ×1.")
    assert narrow.ratio.low > 1.4


def test_an_effect_is_not_known_with_fewer_than_three_turns() -> None:
    assert row([]).reason == NO_TURN
    few = row(turns([(14, 28), (14, 28)]))
    assert (few.ratio, few.outcome, few.turns) == (None, BesideOutcome.UNKNOWN, 2)
    assert row_text(few, BesideUnit.STEP) == "Beside spin: not known (2 of at least 3 turns)."
    assert (factor_text(few), interval_text(few)) == ("–", "")


def test_turns_that_do_not_count_and_those_of_others_have_no_part() -> None:
    made = turns([(14, 28)] * 4)
    made[1] = turn("spin", 99, 1, counts=False)
    made[4] = turn("dram", 50, 4)
    found = row(made)
    assert found.turns == 3
    assert found.on.p50_ns == pytest.approx(28 * MS, rel=0.01)


def test_the_part_that_grew_most_in_a_step_is_named() -> None:
    of = {NO_AGGRESSOR: parts(KERNELS=0.9, HOST=0.1), "spin": parts(KERNELS=0.45, SHARED=0.5, HOST=0.05)}
    found = row(turns([(14, 28)] * 4), of)
    assert found.grew is not None
    assert (found.grew.part, found.grew.off, found.grew.on) == (Part.SHARED, 0.0, 0.5)
    assert "others' time-slices grew most: from 0 to 50 %." in row_text(found, BesideUnit.STEP)
    assert row(turns([(14, 14)] * 4), of).grew is None
    # Of what is not known, it is not said that it grew.
    unknown = {NO_AGGRESSOR: parts(KERNELS=1), "spin": parts(KERNELS=0.5, UNKNOWN=0.5)}
    assert row(turns([(14, 28)] * 4), unknown).grew is None


def test_the_line_that_certainly_grew_most_in_a_step_is_named() -> None:
    wait, launch = (StackFrame(FrameKind.PYTHON, "step", "train.py", line=number) for number in (42, 31))
    off = {wait: Figure(0.4, 0.35, 0.45), launch: Figure(0.6, 0.55, 0.65)}
    on = {wait: Figure(0.7, 0.65, 0.75), launch: Figure(0.3, 0.25, 0.35)}
    slower, same = turns([(14, 28)] * 4), turns([(14, 14)] * 4)
    found = row(slower, lines={NO_AGGRESSOR: off, "spin": on, "dram": off})
    assert found.line == GrownLine(wait, 0.4, 0.7)
    text = "Of its lines, train.py:42 in step grew most: 5.60 → 19.6 ms."
    assert row_text(found, BesideUnit.STEP).endswith(text)
    assert grown_label(found) == "train.py:42 in step 5.60 → 19.6 ms"
    # In as long a step nothing grew; with few samples it is not certain; a line without samples beside is not known.
    wide = {wait: Figure(0.7, 0.1, 0.9), launch: Figure(0.3, 0.1, 0.9)}
    for made, beside in ((same, on), (slower, wide), (slower, {})):
        assert row(made, lines={NO_AGGRESSOR: off, "spin": beside}).line is None


def test_a_lower_clock_is_said_with_slower_steps() -> None:
    assert "1980 to 1410 MHz" in row_text(row(turns([(14, 28)] * 3, mhz=1410)), BesideUnit.STEP)
    assert "MHz" not in row_text(row(turns([(14, 28)] * 3, mhz=1975)), BesideUnit.STEP)


def test_without_regular_steps_the_rate_of_waits_is_compared() -> None:
    made = [
        Turn("spin" if number % 2 else NO_AGGRESSOR, number * S, (number + 1) * S, int64s([]), 40 if number % 2 else 80)
        for number in range(9)
    ]
    found = row(made, unit=BesideUnit.WAIT)
    assert found.ratio == RatioInterval(2.0, 2.0, 2.0)
    assert (found.off.p50_ns, found.on.p50_ns, found.on.p99_ns) == (12_500_000, 25_000_000, None)
    assert "from one wait to the next in 12.5 → 25.0 ms, ×2.00" in row_text(found, BesideUnit.WAIT)


def test_a_program_that_stands_still_has_a_finite_ratio() -> None:
    made = [
        Turn("spin" if number % 2 else NO_AGGRESSOR, number * S, (number + 1) * S, int64s([]), 0 if number % 2 else 500)
        for number in range(9)
    ]
    found = row(made, unit=BesideUnit.WAIT)
    assert found.ratio is not None
    assert found.ratio.ratio == 500


@pytest.mark.parametrize("count", [3, 6])
@pytest.mark.parametrize("others", [0, 2])
def test_intervals_hold_the_truth_in_95_of_100_programs(count: int, others: int) -> None:
    """The steps of each turn are longer or shorter by chance, and beside the aggressor by ×1.3."""
    chance, held, programs = np.random.default_rng(5), 0, 600
    for _ in range(programs):
        made = []
        for number in range(count * (others + 1)):
            name = "spin" if number % (others + 1) == 0 else "dram"
            lengths = np.exp(0.05 * chance.standard_normal(2)) * (14.0, 14.0 * (1.3 if name == "spin" else 2.0))
            made += [turn(NO_AGGRESSOR, lengths[0], number, steps=3), turn(name, lengths[1], number, steps=3)]
        found = row([*made, turn(NO_AGGRESSOR, 14.0 * np.exp(0.05 * chance.standard_normal()), 0, steps=3)]).ratio
        assert found is not None
        held += found.low <= 1.3 <= found.high
    assert 0.93 <= held / programs <= 0.98
