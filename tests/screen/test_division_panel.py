"""The panel of what bounds a watched program: what fits into its lines, and which sequences it shows."""

from __future__ import annotations

import pytest

from factories.watch_moments import findings
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.cost import WatchCost
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.live.live_view import NO_FINDINGS
from stallprobes.watch.ranks.result import Partners, RankWait, SequenceRanks
from stallscope.report.columns import display_width
from stallscope.tui.watch.division_panel import DivisionView, division_lines
from stallscope.tui.watch.layout import WIDE_COLUMNS, watch_layout

COST = WatchCost(low=0.021, high=0.043, recorded=0.5, followed=1.0, budget=0.05, compared=40)


def training_of(*sequences: ProgramSequence, **of: object) -> WatchFindings:
    """A training that has ended, with these sequences; ``of`` replaces fields of the process."""
    found = findings(8, ended=True)
    (process,) = found.processes
    return found.changed(processes=(process.changed(**({"sequences": sequences, "cost": COST} | of)),))


def training(sequences: int = 1, **of: object) -> WatchFindings:
    """One with as many equal sequences, without lines."""
    (one,) = findings(8, ended=True).processes[0].sequences
    return training_of(*(one.changed(lines=()),) * sequences, **of)


def drawn(found: WatchFindings | None, width: int, height: int) -> list[str]:
    lines = division_lines(DivisionView(found), width, height)
    texts = ["".join(text for text, _ in line) for _, line in lines]
    assert all(display_width(text) <= width for text in texts)
    assert len(texts) <= height
    return texts


@pytest.mark.parametrize(("width", "height"), [(60, 2), (80, 3), (160, 4), (250, 4)])
def test_the_verdict_and_the_bar_fit_every_size(width: int, height: int) -> None:
    texts = drawn(training(), width, height)
    assert len(texts) == height
    assert texts[0].startswith(" MainThread (with 1 more thread) is host-bound")
    assert texts[1].strip().count("█") >= 1
    assert display_width(texts[1]) == width
    assert ("█ kernels 5 %" in " ".join(texts)) == (height >= 3)
    assert ("Its waits cost at most" in texts[-1]) == (height >= 4)


@pytest.mark.parametrize(("width", "height"), [(80, 3), (160, 4)])
def test_the_cost_of_watching_is_said(width: int, height: int) -> None:
    assert " watching costs 2.1–4.3 % " in "".join(f"{text} " for text in drawn(training(), width, height))
    at_most = COST.changed(compared=0, high=0.116)
    assert "watching may cost 11.6 %" in " ".join(drawn(training(cost=at_most), width, height))
    assert "watching" not in " ".join(drawn(training(cost=None), width, height))


def test_the_longest_verdict_that_fits_is_shown() -> None:
    found = training()
    one = found.processes[0].sequences[0].changed(threads=(100,), second=Bound.WAIT)
    found = training_of(one)
    heads = [drawn(found, width, 3)[0].split("  ")[0].strip() for width in (60, 84, 160)]
    assert heads == [
        "MainThread is host-bound.",
        "MainThread is host-bound: the GPU waits for the host.",
        "MainThread is host-bound: the GPU waits for the host. It is wait-bound too, or nearly.",
    ]


@pytest.mark.parametrize("height", [3, 5, 7])
def test_the_rank_that_others_wait_for_is_the_first_line(height: int) -> None:
    share = Figure(0.4, 0.3, 0.5)
    wait = RankWait(name="rank 1", pid=2, image=0, device=0, share=share, rounds=9, back=0.0, sure=True, blamed=True)
    ranks = SequenceRanks(partners=Partners.WATCHED, collectives=9, matched=9, waits=(wait,))
    found = training_of(*(each.changed(ranks=ranks) for each in with_lines(2).processes[0].sequences))
    assert DivisionView(found).height == 5
    texts = drawn(found, 160, height)
    assert texts[0].startswith(" train (pid 100) waits in NCCL for rank 1, ")
    assert texts[1].startswith(" MainThread (with 1 more thread) is host-bound")
    assert sum(".py:" in text for text in texts) == height - 3 - (height > 4) - (height > 6)


def test_further_sequences_have_two_lines_each_where_there_is_room() -> None:
    found = training(3)
    assert DivisionView(found).height == 8
    assert sum("host-bound" in text for text in drawn(found, 160, 8)) == 3
    assert sum("host-bound" in text for text in drawn(found, 160, 5)) == 1
    assert DivisionView(training(40)).height == 10


def with_lines(count: int, sequences: int = 1) -> WatchFindings:
    """The training with so many lines of the first sequence."""
    first, *others = training(sequences).processes[0].sequences
    line = findings(8, ended=True).processes[0].sequences[0].lines[0]
    return training_of(first.changed(lines=tuple(line.changed(samples=number) for number in range(count))), *others)


@pytest.mark.parametrize(("height", "figures", "lines"), [(2, 0, 0), (3, 0, 0), (5, 0, 2), (8, 0, 5), (9, 1, 5)])
def test_lines_of_the_program_stand_below_the_bar(height: int, figures: int, lines: int) -> None:
    texts = drawn(with_lines(7), 80, height)
    assert sum("train.py:31 in forward: host time before cuLaunchKernel" in text for text in texts) == lines
    assert sum("The GPU works for it" in text for text in texts) == figures
    assert len(DivisionView(with_lines(7)).program_lines) == 5


def test_other_sequences_stand_below_the_lines() -> None:
    texts = drawn(with_lines(1, sequences=3), 160, 9)
    assert sum("host-bound" in text for text in texts) == 3
    assert sum("train.py:31" in text for text in texts) == 1


def test_a_program_in_its_start_up_is_divided_so_far() -> None:
    found = findings(2)
    assert drawn(found, 80, 3)[0].startswith(" So far: MainThread ")


def test_nothing_is_shown_of_a_program_without_a_division() -> None:
    for found in (None, NO_FINDINGS, training(division=None)):
        assert DivisionView(found).height == 0
        assert drawn(found, 80, 3) == []


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (149, 29), (160, 48), (250, 70)])
@pytest.mark.parametrize(("division", "lines"), [(0, 0), (0, 5), (4, 0), (4, 1), (4, 5), (10, 5)])
def test_the_panels_take_exactly_the_room_of_the_screen(size: tuple[int, int], division: int, lines: int) -> None:
    for pane in (False, True):
        found = watch_layout(*size, division, 3, 12, pane, False, lines)
        left = found["division"] + found["lost"] + found["calls"] + found["slow"]
        left += 0 if size[0] >= WIDE_COLUMNS else found["histograms"] + found["output"]
        # Header and keys.
        assert left == size[1] - 3
        assert min(found["calls"], found["slow"], found["output"]) >= 2
        assert found["division"] <= division + lines
        assert (found["division"] > 0) == (division > 0)
        # None on a low screen, two on one that is not roomy.
        shown = {18: 0, 24: min(lines, 2), 29: min(lines, 2)}.get(size[1], lines)
        without = watch_layout(*size, division, 3, 12, pane, False)["division"]
        assert without + (shown if division else 0) == found["division"]
