"""What is drawn where there is little room, and where there is much: marks of cuts, distinct names, aggressors."""

from __future__ import annotations

import pytest

from stallprobes.live.view_model import MonitorView, ProbeRow
from stallprobes.model import Role
from stallscope.tui.common.lines import Line, fit, shortened
from stallscope.tui.common.plots import axis_labels, decade_label
from stallscope.tui.monitor.layout import layout
from stallscope.tui.monitor.probe_table import ProbeTable, ProbeTableView

_KEYS = "1234567890abcdefg"


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def test_a_line_that_is_cut_says_so_wherever_the_cut_falls() -> None:
    line: Line = [("abcd", ""), ("efgh", "dim"), ("  ", "")]
    assert text(fit(line, 10)) == "abcdefgh  "
    assert text(fit(line, 8)) == "abcdefgh"
    assert text(fit(line, 6)) == "abcde…"
    assert text(fit(line, 4)) == "abc…"


@pytest.mark.parametrize("width", range(4, 24))
def test_shortened_names_stay_different(width: int) -> None:
    names = [
        "d2h-pageable-warm",
        "d2h-pageable-fresh",
        "d2h-pageable",
        "spin",
        "spin-full",
        "spin@second",
        "spin@third",
    ]
    short = shortened(names, width)
    assert len(set(short)) == len(names)
    assert all(len(name) <= width for name in short)
    assert [one for one, name in zip(short, names, strict=True) if len(name) <= width] == [
        name for name in names if len(name) <= width
    ]


def test_equal_names_stay_equal() -> None:
    assert shortened(["spin kernel", "spin kernel"], 6) == ["spin …", "spin …"]


def _table(rows: list[ProbeRow], focus: str, width: int, height: int) -> tuple[list[str], ProbeTable]:
    table = ProbeTable()
    keys_of = {row.name: key for row, key in zip(rows, _KEYS, strict=False)}
    table.view = ProbeTableView(MonitorView(tuple(rows), None, (), None, None), keys_of, focus)
    return [text(line) for line in table.lines(width, height)], table


def _row(name: str, role: Role, mark: str = "") -> ProbeRow:
    return ProbeRow(name, role, mark != "dim", "state", mark)


@pytest.mark.parametrize("aggressors", [1, 3, 7, 10])
def test_the_keys_of_all_aggressors_stay_visible_in_the_lowest_screen(aggressors: int) -> None:
    rows = [_row(f"pageable D2H {number}", Role.AGGRESSOR, "dim") for number in range(aggressors)]
    victims = [_row(f"victim {number}", Role.VICTIM, "bad" if number == 5 else "") for number in range(6)]
    sizes = layout(18, aggressors + 9)
    assert sizes.table is not None
    lines, table = _table([*rows, *victims], "victim 0", 60, sizes.table)
    assert len(lines) <= sizes.table
    assert all(len(line) <= 60 for line in lines)
    whole = "\n".join(lines)
    for number in range(aggressors):
        assert f"{_KEYS[number]} □ " in whole
    assert "▸" in whole
    if sizes.table - len([line for line in lines if "□ " in line]) > 2:
        assert "VICTIMS +" in whole
    spans = [span for line in table.targets for span in line]
    assert {name for _, _, (name, _) in spans} >= {row.name for row in rows}


def test_labels_of_the_axis_are_whole() -> None:
    known = {decade_label(decade).replace(" ", "") for decade in range(9)}
    for columns in range(10, 140):
        labels = axis_labels(columns)
        assert len(labels) == columns
        assert {part.strip() for part in labels.split("╵")[1:]} <= known


def test_a_large_screen_shows_higher_plots_and_a_longer_log() -> None:
    small, large = layout(48, 10), layout(70, 10)
    assert large.log > small.log
    assert large.histograms > small.histograms
    assert large.heat_map > small.heat_map
    assert large.table + large.histograms + large.log + large.heat_map == 67
