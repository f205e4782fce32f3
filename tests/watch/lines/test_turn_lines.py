"""Lines by turns of an experiment: the samples of its threads that lie in turns of each kind."""

from __future__ import annotations

import numpy as np

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import SampledTime, TimeSample
from stallprobes.watch.division.turns import CHANGING, NO_AGGRESSOR, TurnTimes
from stallprobes.watch.lines.turn_lines import TurnLines
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.process import SampleBatch

WAIT, LAUNCH = (StackFrame(FrameKind.PYTHON, "step", "/home/user/train.py", line=number) for number in (42, 31))
STACKS = {1: CallStack(python=(WAIT,)), 2: CallStack(python=(LAUNCH,))}


def samples(*given: tuple[int, int, int], kind: SampledTime = SampledTime.INSIDE, thread: int = 7) -> SampleBatch:
    """Samples of a thread: when, with which stack, and for how long each stands."""
    rows = np.zeros(len(given), dtype_of(TimeSample))
    rows["at_ns"], rows["stack"], rows["ns"] = np.array(given).T
    rows["sampled"], rows["thread"] = int(kind), thread
    return SampleBatch(rows, {}, 0, 0)


def test_lines_have_their_share_of_the_time_in_the_turns_of_each_kind() -> None:
    turns, lines = TurnTimes(), TurnLines()
    for kind, begin_ns in ((NO_AGGRESSOR, 100), (CHANGING, 200), ("spin", 300)):
        turns.begin(kind, begin_ns)
    lines.add(samples((50, 1, 99), (150, 1, 30), (160, 2, 70), (250, 2, 99), (310, 1, 80)), turns)
    lines.add(samples((320, 2, 20)), turns)
    lines.add(samples((320, 2, 500), kind=SampledTime.WAITS), turns)
    lines.add(samples((320, 2, 500), thread=8), turns)
    found = lines.shares({7}, STACKS)
    shares = {kind: {place.line: round(each.share, 3) for place, each in of.items()} for kind, of in found.items()}
    assert shares == {NO_AGGRESSOR: {42: 0.3, 31: 0.7}, "spin": {42: 0.8, 31: 0.2}}
    assert all(figure.low < figure.share < figure.high for of in found.values() for figure in of.values())


def test_a_line_without_a_sample_in_a_kind_of_turn_has_an_interval_there() -> None:
    turns, lines = TurnTimes(), TurnLines()
    turns.begin(NO_AGGRESSOR, 0)
    turns.begin("spin", 100)
    lines.add(samples((50, 2, 10), (150, 1, 10), (160, 9, 10)), turns)
    found = lines.shares({7}, STACKS)
    assert (found[NO_AGGRESSOR][WAIT].share, found["spin"][WAIT].share) == (0.0, 0.5)
    assert found[NO_AGGRESSOR][WAIT].high > 0.3
    assert lines.shares({8}, STACKS) == {}
