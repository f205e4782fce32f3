"""What is drawn of a remedy beside the stall before it: heat map, probe table, histograms; and the colors of all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from stallprobes.latency.histogram import Histogram
from stallprobes.live.gpu_history import GPU_VALUES
from stallprobes.live.history import BINS, DECADES, position
from stallprobes.live.view_model import ChannelView, FocusView, MonitorView, ProbeRow, Stretch
from stallprobes.model import MS, Phase, Role
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM, ProbeSet
from stallscope.tui.common.histograms import HistogramsView, histogram_lines, lines_of_each
from stallscope.tui.common.lines import Line, palette
from stallscope.tui.common.plots import decade_label
from stallscope.tui.line_filters import contrast
from stallscope.tui.monitor.heatmap import LABEL, heat_lines
from stallscope.tui.monitor.probe_table import ProbeTable, ProbeTableView, strip_columns

PATTERN = patterns()["secondary-context-d2d"]
STALL, REMEDY = (
    ProbeSet(title="", probes=PATTERN.variant(name).probes, backend=SIM, pattern=PATTERN.name, variant=name)
    for name in ("kernel-other-context", "kernel-same-context")
)
COLUMNS, RULE, FIRST, SPIN = 60, 30, 33, 50
WIDTH = COLUMNS + LABEL + 1
WAS_NS = 2.0 * MS


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def row(name: str = "d2d", **changed: object) -> ProbeRow:
    values: dict[str, object] = {"on": True, "state": "quiet", "mark": "good", "phase": Phase.WAIT}
    values |= {"p50_ns": 5_500.0, "p99_ns": 6_000.0, "baseline_ns": 5_500.0, "ratio": 1.0}
    return ProbeRow(name, Role.VICTIM, **{**values, **changed})  # type: ignore[arg-type]


def remedied(relation: str = "same copy, context of spin") -> FocusView:
    """A stall, then a remedy from the rule on: its calls, and its aggressor later."""
    heat = np.zeros((COLUMNS, BINS), dtype=np.uint32)
    heat[5:RULE, position(WAS_NS, BINS)] = 100
    heat[FIRST:, position(5_500, BINS)] = 100
    gpu = np.full((len(GPU_VALUES), COLUMNS), 50.0, dtype=np.float32)
    gpu[:, RULE:FIRST] = np.nan
    return FocusView(
        row(),
        heat=heat,
        ages_ns=np.zeros(COLUMNS, dtype=np.int64),
        marks=((10, "spin on"), (SPIN, "spin on")),
        gpu=gpu,
        stretches=(
            Stretch(5, 4, "d2d@secondary", STALL),
            Stretch(FIRST, RULE, "d2d", REMEDY, relation),
        ),
        was_ns=WAS_NS,
    )


def drawn(view: FocusView, height: int = 15, width: int = WIDTH) -> list[str]:
    return [text(line) for line in heat_lines(view, width, height, remedy_key="v")]


def test_the_newest_stretch_is_named_with_what_differs_and_older_ones_as_far_as_they_have_room() -> None:
    title = drawn(remedied())[0][LABEL + 1 :]
    assert title[RULE:].startswith("│v a d2d: same copy, context …")
    assert title[4:].startswith("│a d… ▏1 spin on ")
    wider = replace(remedied(), marks=((SPIN, "spin on"),))
    assert drawn(wider)[0][LABEL + 1 :].startswith("    │a d2d@secondary   ")


def test_without_a_relation_the_switch_is_named_and_the_baseline_where_there_is_room() -> None:
    title = drawn(remedied(""))[0][LABEL + 1 :]
    assert title[RULE:].startswith("│a d2d  baseline    ▏1 spin on")


def test_a_line_crosses_all_rows_and_what_starts_has_dots() -> None:
    lines = [line[LABEL + 1 :] for line in drawn(remedied())]
    rows, util = lines[1:-3], lines[-3]
    assert {line[RULE] for line in rows} == {"│"}
    assert {line[SPIN] for line in rows} <= {"▏", "▓", "▒"}
    assert rows[-1][RULE + 1 : FIRST].strip("·") == ""
    assert all(not line[RULE + 1 : FIRST].strip() for line in rows[:-1])
    assert util[RULE:FIRST] == "···"
    assert "·" not in util[:RULE] + util[FIRST:]


def test_the_figures_are_of_now_and_of_where_it_was() -> None:
    lines = drawn(remedied(), width=WIDTH + 8)
    (was,) = (line for line in lines if line.endswith(" was"))
    assert "▓" in was or "▒" in was
    (now,) = (line for line in lines if line.rstrip().endswith("5.50µs"))
    assert lines.index(now) > lines.index(was)


def test_calls_are_slow_by_the_baseline_of_their_own_set() -> None:
    calls = Histogram.of([5_500] * 100)
    view = replace(remedied(), channels=(ChannelView(Phase.WAIT, "", calls, calls),))
    heat = view.heat.copy()
    heat[FIRST:, position(WAS_NS, BINS)] = 100
    earlier = np.full(FIRST, WAS_NS)
    known = heat_lines(replace(view, heat=heat, earlier_slow_ns=earlier * 2), WIDTH, 16)
    hot = {style for line in known for _, style in line if style in ("hot", "heat")}
    assert hot == {"hot", "heat"}
    (slow,) = (line for line in known[1:] if any(style == "hot" for _, style in line))
    past = next(style for part, style in slow if set(part) & set("░▒▓█"))
    assert past == "heat"


def test_a_recording_of_the_timeline_is_marked() -> None:
    assert "●rec" in drawn(replace(remedied(), recorded=True), width=WIDTH + 8)[0]
    assert "●rec" not in drawn(remedied(), width=WIDTH + 8)[0]


@pytest.mark.parametrize("height", range(3, 40))
@pytest.mark.parametrize("decades", [(1, 6), (0, 8), (0, 6), (1, 8)])
def test_the_labels_of_the_latency_axis_step_evenly(height: int, decades: tuple[int, int]) -> None:
    names = [decade_label(decade) for decade in range(DECADES + 1)]
    lines = [text(line) for line in heat_lines(remedied(), WIDTH, height, decades)]
    assert len(lines) <= height
    found = [(at, names.index(line[:LABEL].strip())) for at, line in enumerate(lines) if line[:LABEL].strip() in names]
    steps = {one[1] - other[1] for one, other in pairwise(found)}
    assert len(steps) <= 1
    rows = {other[0] - one[0] for one, other in pairwise(found)}
    assert len(rows) <= 1


def test_what_stalled_has_a_row_that_nothing_selects_above_the_host() -> None:
    host = replace(row("host"), role=Role.HOST)
    before = row("d2d@secondary", state="before v", mark="ghost", p50_ns=WAS_NS, ratio=343.0)
    model = MonitorView((row(), host), None, (), None, None)
    for compact, width, height in ((True, 80, 4), (False, 120, 9), (False, 160, 9)):
        table = ProbeTable()
        table.set_reactive(
            ProbeTable.view, ProbeTableView(model, {"d2d": "a", "host": "h"}, "d2d", "", compact, ("b", before))
        )
        lines = [text(line) for line in table.lines(width, height)]
        (number,) = (number for number, line in enumerate(lines) if line.startswith(" b ▒ d2d@secondary"))
        assert "before v" in lines[number]
        assert "2.00ms" in lines[number]
        assert "343" in lines[number]
        assert lines[number - 1].startswith("▸a ■ d2d")
        assert lines[number + 1].startswith(" h ■ host")
        assert table.targets[number] == []


@pytest.mark.parametrize("width", range(80, 260, 7))
@pytest.mark.parametrize("compact", [True, False])
def test_from_80_columns_on_there_is_the_last_minute_in_equal_parts(width: int, compact: bool) -> None:
    assert 600 % strip_columns(width, compact=compact) == 0
    assert strip_columns(79, compact=compact) == 0


def test_the_histogram_of_the_stall_stays_behind_that_of_the_remedy() -> None:
    now, before = Histogram.of([5_500] * 100), Histogram.of([round(WAS_NS)] * 100)
    channels = (
        ChannelView(Phase.CALL, "", now, now, stalled=now),
        ChannelView(Phase.WAIT, "", now, now, stalled=before),
    )
    view = HistogramsView(row(), channels, stalled="b d2d@secondary, before v")
    for height in (4, 9, 12):
        lines = [text(line) for line in histogram_lines(view, 90, height)]
        wait = next(line for line in lines if line.startswith(" wait"))
        assert wait.index("█") < wait.index("▒")
        assert "▒" not in next(line for line in lines if line.startswith(" call"))
        assert any("▒ stalled: b d2d@secondary, before v" in line for line in lines)
    assert any("was   p50 2.00ms" in line for line in lines)
    plain = histogram_lines(HistogramsView(row(), (ChannelView(Phase.WAIT, "", now, now),)), 90, 9)
    assert not any("▒" in text(line) for line in plain)


@pytest.mark.parametrize("room", range(1, 40))
@pytest.mark.parametrize("phases", [1, 2, 3])
def test_plots_of_phases_do_not_touch_where_there_is_room(room: int, phases: int) -> None:
    each, between = lines_of_each(room, phases, 8)
    assert between or phases == 1 or room < 2 * phases - 1
    assert each >= 1
    assert phases * each + (phases - 1) * between <= max(room, phases)


def test_the_default_themes_keep_apart_what_is_quiet_slow_now_and_before() -> None:
    for name, kinds in (
        ("textual-dark", ("heat", "hot", "live", "ghost", "active")),
        ("textual-light", ("heat", "hot", "live", "ghost")),
    ):
        styles = palette(BUILTIN_THEMES[name].to_color_system().generate())
        colors = [Color.from_rich_color(styles[kind].color) for kind in kinds if styles[kind].color is not None]
        assert len({color.hex for color in colors}) == len(kinds)
        ground = Color.from_rich_color(styles["heat"].bgcolor) if styles["heat"].bgcolor is not None else Color(0, 0, 0)
        assert all(contrast(color, ground) >= 2.9 for color in colors)
