"""Small multiples: which grid they have, and what they show, without a terminal."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stallprobes.latency.histogram import Histogram
from stallprobes.live.view_model import ChannelView, FocusView, ProbeRow
from stallprobes.model import MS, Channel, Phase, Role
from stallscope.report.columns import display_width
from stallscope.tui.common.lines import Line
from stallscope.tui.common.plots import axis_labels
from stallscope.tui.monitor.multiples import Multiples, MultiplesView, grid, places

NOTES = ("follows the stall · ↑↓ selects another", "follows the stall", "follows")
PHASES = (Phase.CALL, Phase.WAIT, Phase.DUE)


def plot(name: str, wait_ns: int = 5_000, phases: tuple[Phase, ...] = PHASES, **changed: object) -> FocusView:
    values: dict[str, object] = {"role": Role.VICTIM, "on": True}
    values |= {
        "state": "quiet",
        "mark": "good",
        "phase": Phase.CALL,
        "p50_ns": 3_000.0,
        "p99_ns": 7_000.0,
        "ratio": 1.0,
    }
    row = ProbeRow(name, **{**values, **changed})  # type: ignore[arg-type]
    usual = Histogram.of([3_000] * 90 + [7_000] * 10)
    live = {Phase.CALL: usual, Phase.WAIT: Histogram.of([wait_ns] * 100), Phase.DUE: usual}
    base = {Phase.CALL: usual, Phase.WAIT: Histogram.of([5_000] * 100), Phase.DUE: usual}
    return FocusView(row, tuple(ChannelView(phase, "", live[phase], base[phase]) for phase in phases))


STALLED = plot(
    "D2D", 2 * MS, state="STALLED", mark="bad", phase=Phase.WAIT, p50_ns=2.0 * MS, p99_ns=2.4 * MS, ratio=346.0
)
FOUR = (plot("launch"), STALLED, plot("pinned"), plot("host", phases=(Phase.CALL, Phase.DUE), role=Role.HOST))


def drawn(view: MultiplesView, width: int, height: int) -> tuple[list[str], Multiples]:
    panel = Multiples()
    panel.set_reactive(Multiples.view, view)
    lines = panel.lines(width, height)
    assert len(lines) <= height
    return [text(line) for line in lines], panel


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


@pytest.mark.parametrize(
    ("size", "count"), [((80, 6), 1), ((80, 24), 6), ((100, 5), 1), ((120, 10), 4), ((68, 20), 6), ((102, 43), 21)]
)
def test_there_are_places_where_there_is_room(size: tuple[int, int], count: int) -> None:
    assert places(*size) == count


@pytest.mark.parametrize("count", range(1, 9))
@pytest.mark.parametrize("size", [(120, 9), (119, 30), (68, 19), (102, 42), (250, 60)])
def test_a_grid_has_room_for_all_of_them_within_the_panel(count: int, size: tuple[int, int]) -> None:
    found = grid(count, 3, *size)
    if found is None:
        assert count > places(size[0], size[1] + 1)
        return
    assert found.across * (found.columns + 1) + 6 <= size[0] + 1
    assert -(-count // found.across) * found.lines <= size[1]


@pytest.mark.parametrize(("width", "height"), [(120, 10), (118, 10), (68, 20), (102, 43), (132, 50)])
def test_each_victim_has_its_name_its_figures_and_the_same_axis(width: int, height: int) -> None:
    lines, _ = drawn(MultiplesView(STALLED, FOUR, NOTES, {"D2D": "b", "launch": "a"}), width, height)
    assert all(display_width(line) <= width for line in lines)
    shown = "\n".join(lines)
    for words in ("▸b D2D", " a launch", "pinned", "host", "STALLED", "p50 2.00ms p99 2.40ms ×346", "░ baseline"):
        assert words in shown
    cells = grid(4, 3, width, height - 1)
    assert cells is not None
    axis = axis_labels(cells.columns).rstrip()
    assert sum(line.count(axis) for line in lines) == 4
    assert "follows the stall" in lines[-1]
    assert shown.count("▸") == 2


def test_a_stall_is_seen_without_colour_behind_it_the_baseline() -> None:
    lines, _ = drawn(MultiplesView(STALLED, FOUR), 120, 10)
    cells = grid(4, 3, 120, 9)
    assert cells is not None
    (row,) = (line for line in lines if line.startswith(" wait"))
    quiet, stalled, *_ = (row[7 + number * (cells.columns + 1) :][: cells.columns] for number in range(4))
    assert quiet.strip() == "█"
    assert stalled.split() == ["░", "█"]


def test_the_baselines_figures_are_shown_where_a_line_is_left() -> None:
    usual, higher = (drawn(MultiplesView(STALLED, FOUR), 120, height)[0] for height in (9, 10))
    assert not any("base p50" in line for line in usual)
    (line,) = (line for line in higher if "base p50" in line)
    assert line.count("base p50") == 4


def test_a_call_in_flight_says_its_age() -> None:
    hangs = plot("gate", state="STARVED", mark="bad", in_flight_ns=1_190 * MS, ratio=350_000.0)
    lines, _ = drawn(MultiplesView(hangs, (hangs, plot("launch"))), 120, 10)
    assert any("in flight 1.19s ×350k" in line for line in lines)
    assert any("◆" in line for line in lines)


def test_later_histograms_of_each_replace_those_of_its_figures() -> None:
    later = {one.row.name: {Channel(Phase.WAIT): Histogram.of([20 * MS] * 10)} for one in FOUR}
    before, after = (drawn(MultiplesView(STALLED, FOUR, live=live), 120, 10)[0] for live in ({}, later))
    changed = [number for number, (one, other) in enumerate(zip(before, after, strict=True)) if one != other]
    assert changed
    assert all("wait" in after[number] or "wait" in after[number + 1] for number in changed)


def test_a_click_reaches_the_probe_whose_plot_it_is() -> None:
    lines, panel = drawn(MultiplesView(STALLED, FOUR), 68, 20)
    assert len(panel.targets) == len(lines) - 1
    names = [[name for _, _, name in spans] for spans in panel.targets]
    assert names[0] == ["launch", "D2D"]
    assert names[-1] == ["pinned", "host"]
    for spans in panel.targets:
        assert all(one[1] < other[0] for one, other in pairwise(spans))


def test_one_histogram_has_all_its_figures_and_says_why_it_is_shown() -> None:
    lines, panel = drawn(MultiplesView(STALLED, (), NOTES), 80, 9)
    assert "D2D  follows the stall" in lines[0]
    assert "STALLED ×346" in lines[0]
    assert any("p50 2.00ms" in line for line in lines)
    assert panel.targets == []


def test_the_times_of_each_operation_are_shown_beside_one_histogram() -> None:
    gpu = ChannelView(Phase.GPU, "D2H 4 bytes", Histogram.of([10_000] * 9), None)
    host = ChannelView(Phase.CALL, "D2H 4 bytes", Histogram.of([5 * MS] * 9), None)
    read_back = FocusView(STALLED.row, (*STALLED.channels, host, gpu))
    lines, _ = drawn(MultiplesView(read_back, (read_back, plot("host"))), 120, 20)
    assert any("p50 per operation" in line for line in lines)
