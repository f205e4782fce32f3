"""Phases of a sequence, by the values of bins of time and by programs that change what they do."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from factories.divided_calls import Call, readings
from factories.watch_calls import LAUNCH, SYNC
from factories.watch_moments import findings
from stallprobes.files.codec import attributes
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.instants import KERNEL
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.division.phases import labels_of
from stallprobes.watch.division.result import SequenceDivision
from stallprobes.watch.division_text import step_text, verdict_text
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame

MS, SECOND = 1_000_000, 1_000_000_000

CHANCE = np.random.default_rng(7)
_BEGIN = CHANCE.bit_generator.state


@pytest.fixture(autouse=True)
def same_chance() -> None:
    """Each test has the same numbers, whichever tests ran before."""
    CHANCE.bit_generator.state = _BEGIN


def bins(*parts: tuple[int, float], scatter: float = 0.02, columns: int = 3) -> NDArray[np.float64]:
    """Bins of parts of a run, each with a number of bins and a share; the other columns are its rest and zeros."""
    share = np.repeat([value for _, value in parts], [count for count, _ in parts])
    share = np.clip(share + scatter * CHANCE.standard_normal(len(share)), 0, 1)
    values = np.zeros((len(share), columns))
    values[:, 0], values[:, 1] = share, 1 - share
    return values


def borders(values: NDArray[np.float64]) -> list[tuple[int, int]]:
    """The phases of bins: the first bin of each, and its label."""
    labels = labels_of(values, np.ones(len(values)))
    first = np.flatnonzero(np.append(True, np.diff(labels) != 0))
    return [(int(at), int(labels[at])) for at in first]


def test_a_run_that_is_even_has_no_phases() -> None:
    for scatter in (0.0, 0.02, 0.1, 0.3):
        for _ in range(20):
            assert borders(bins((60, 0.5), scatter=scatter)) == [(0, 0)]


@pytest.mark.parametrize("scatter", [0.0, 0.02, 0.04])
def test_a_change_is_found_where_it_is(scatter: float) -> None:
    assert borders(bins((8, 0.9), (8, 0.2), scatter=scatter)) == [(0, 0), (8, 1)]
    assert borders(bins((6, 0.5), (300, 0.8), scatter=scatter)) == [(0, 0), (6, 1)]
    three = bins((20, 0.2), (20, 0.8), (20, 0.5), scatter=scatter)
    assert borders(three) == [(0, 0), (20, 1), (40, 2)]


def test_a_phase_that_recurs_is_one() -> None:
    parts = [(10, 0.9), (6, 0.3)] * 4
    assert borders(bins(*parts)) == [(0, 0), (10, 1), (16, 0), (26, 1), (32, 0), (42, 1), (48, 0), (58, 1)]


def test_what_is_short_or_small_is_no_phase() -> None:
    assert borders(bins((30, 0.8), (3, 0.1), (30, 0.8))) == [(0, 0)]
    assert borders(bins((30, 0.5), (30, 0.6))) == [(0, 0)]


def test_what_grows_has_no_phases() -> None:
    values = bins(*((1, at / 60) for at in range(60)))
    assert borders(values) == [(0, 0)]


def steps(begin_s: float, count: int, kernel_ms: int, step_ms: int) -> list[Call]:
    """Steps of a kernel that the host waits for, from a time on."""
    begins = [round(begin_s * 1000) + number * step_ms for number in range(count)]
    launches = [Call(LAUNCH, at, at + 1, work=((at + 1, at + kernel_ms, KERNEL),)) for at in begins]
    return [*launches, *(Call(SYNC, at + 1, at + kernel_ms) for at in begins)]


def divided(calls: list[Call], seconds: int, ended: bool) -> ProgramSequence:
    """The division of the first sequence, by readings each half second."""
    divider = ProcessDivider()
    times = [500.0 * number for number in range(1, 2 * seconds + 1)]
    for number, reading in enumerate(readings(calls, times, unit=MS), 1):
        divider.feed(*reading, ended=ended and number == len(times))
    found = divider.division()
    assert found is not None
    return ProgramSequence(**attributes(found.sequences[0], SequenceDivision))


# Sentence at the end of the text of a sequence with phases.
FIGURES = " Figures and lines are of the first of these times."


def sentence(sequence: ProgramSequence, ended: bool) -> str:
    """The first sentences of a report."""
    process = findings(8, ended=ended).processes[0].changed(sequences=(sequence,))
    text = verdict_text(sequence, process)
    assert text.endswith(FIGURES) is bool(sequence.phases)
    return text.removesuffix(FIGURES)


TWO = [*steps(0, 80, 48, 50), *steps(4, 80, 48, 50), *steps(8, 200, 5, 50)]


def test_the_verdict_is_of_the_present_and_then_of_the_longest_phase() -> None:
    now = divided(TWO, 16, ended=False)
    assert (now.verdict, [phase.verdict for phase in now.phases]) == (Bound.HOST, [Bound.HOST, Bound.GPU])
    assert now.phases[1].times == ((SECOND, 8 * SECOND),)
    assert now.phases[0].gpu.share == pytest.approx(0.08, abs=0.01)
    assert now.gpu.share == now.phases[0].gpu.share
    assert sentence(now, ended=False) == (
        "Since 8.00 s, thread 1 is host-bound: the GPU waits for the host. Whether its threads compute or sleep is not "
        "known. From 1.00 s to 8.00 s, it was GPU-bound."
    )
    early = divided(TWO, 10, ended=False)
    assert (early.verdict, early.phases) == (Bound.GPU, ())
    ended = divided([*TWO, *steps(18, 100, 48, 50)], 23, ended=True)
    assert [len(phase.times) for phase in ended.phases] == [2, 1]
    assert ended.verdict is Bound.GPU
    assert sentence(ended, ended=True).startswith("In 55 % of the time, by turns, thread 1 is GPU-bound: ")
    assert sentence(ended, ended=True).endswith(" From 8.00 s to 18.0 s, it is host-bound.")


def test_steps_that_become_longer_are_a_phase_of_the_same_verdict() -> None:
    slower = divided([*steps(0, 160, 48, 50), *steps(8, 100, 96, 100)], 18, ended=True)
    assert {phase.verdict for phase in slower.phases} == {Bound.GPU}
    assert [phase.step_ns for phase in slower.phases] == pytest.approx([100 * MS, 50 * MS], rel=0.05)
    assert "(steps of 100 ms), thread 1 is GPU-bound" in sentence(slower, ended=True)
    assert sentence(slower, ended=True).endswith("to 8.00 s, it is GPU-bound (steps of 50.0 ms).")


def test_a_program_whose_steps_are_long_has_no_phases_within_them() -> None:
    # Eight seconds of the host, then eight of the GPU, in each step.
    calls = [
        call
        for begin in range(0, 96, 16)
        for call in (
            Call(
                LAUNCH,
                1000 * begin + 8000,
                1000 * begin + 8001,
                work=((1000 * begin + 8001, 1000 * begin + 16000, KERNEL),),
            ),
            Call(SYNC, 1000 * begin + 8001, 1000 * begin + 16000),
        )
    ]
    assert divided(calls, 98, ended=True).phases == ()


def test_steps_that_become_ever_longer_are_no_phases() -> None:
    calls, begin = [], 0.0
    while begin < 30:
        length = round(20 + 2 * begin)
        calls += steps(begin, 1, length - 2, length)
        begin += length / 1000
    grown = divided(calls, 31, ended=True)
    assert grown.phases == ()
    assert grown.growth is not None
    assert (grown.growth.first_ns, grown.growth.last_ns) == pytest.approx((27 * MS, 76 * MS), rel=0.1)
    assert "Its steps became ever longer: " in step_text(grown)
    place = StackFrame(kind=FrameKind.PYTHON, function="hook", file="/home/me/train.py", line=12)
    placed = grown.changed(growth=grown.growth.changed(place=place))
    assert "at last, most of the difference at train.py:12 in hook." in step_text(placed)
    assert divided(steps(0, 1500, 18, 20), 31, ended=True).growth is None
