"""Panels as functions: lines out of frozen data and a width."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.histogram import Histogram
from stallprobes.history import BINS
from stallprobes.model import Phase, Role
from stallprobes.picture import FocusView, LaneView, LogEntry, Picture, Row
from stallprobes.telemetry import FIELDS, NS, Reading, TelemetrySnapshot
from stallprobes.verdict import Verdict
from stallscope.letters import ascii_only
from stallscope.widgets.header import nvml_line
from stallscope.widgets.heatmap import heat_lines
from stallscope.widgets.histograms import axis_letters, histogram_lines
from stallscope.widgets.lists import Lists
from stallscope.widgets.log import entry_lines
from stallscope.widgets.paint import Line, fit, length, runs, spread

NOW = 100 * NS
VALUES = {
    "utilisation_percent": 100,
    "sm_clock_mhz": 1980,
    "power_w": 124.5,
    "temperature_c": 33,
    "memory_used_bytes": 3 << 30,
    "memory_total_bytes": 141 << 30,
    "pcie_to_gpu_kb_s": 100_000,
    "pcie_from_gpu_kb_s": 12_300_000,
    "clock_reasons": ("power cap",),
}


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def telemetry(state: str = "live", why: str | None = None, **changed: Reading) -> TelemetrySnapshot:
    known = {field.name: Reading(VALUES.get(field.name), NOW, None) for field in FIELDS}
    return TelemetrySnapshot("GPU-1", NOW, state, why, MappingProxyType({**known, **changed}))


def row(**changed: object) -> Row:
    values: dict[str, object] = {
        "name": "d2d",
        "title": "D2D · secondary · own stream",
        "role": Role.VICTIM,
        "on": True,
    }
    return Row(**{**values, "state": "quiet", "mark": "good", **changed})  # type: ignore[arg-type]


def test_nvml_values_stand_with_their_window_and_what_holds_the_clocks() -> None:
    line = text(nvml_line(telemetry(), (), [0, 50, 100], 200))
    for words in ("100%", "0.17–1 s window", "3.0/141 GiB", "1980 MHz", "124 W", "33 °C", "↑12.3 GB/s", "power cap"):
        assert words in line


def test_a_value_that_is_not_to_be_had_says_why_and_an_old_one_says_its_age() -> None:
    missing = Reading(None, NOW, "not supported")
    old = Reading(124.5, NOW - 7 * NS, None)
    line = text(nvml_line(telemetry(sm_clock_mhz=missing, power_w=old), (), [], 220))
    assert "n/a (not supported)" in line
    assert "(7 s old)" in line


def test_a_hanging_nvml_is_said_to_hang_and_the_last_values_stay() -> None:
    line = text(nvml_line(telemetry("hanging", "NVML has not answered for 2.0 s (power_w)"), (), [], 220))
    assert "has not answered for 2.0 s" in line
    assert "1980 MHz" in line


def test_without_nvml_the_reason_stands_there() -> None:
    assert "driver/library" in text(nvml_line(telemetry("unavailable", "driver/library mismatch"), (), [], 120))


def test_others_on_the_gpu_come_first() -> None:
    line = text(nvml_line(telemetry(), ("python (pid 77)", "b (pid 8)"), [], 80))
    assert line.strip().startswith("also here: python (pid 77) +1")


def lines_of(rows: tuple[Row, ...], width: int, height: int, focus: str = "d2d") -> list[str]:
    lists = Lists()
    lists.picture = Picture(rows, None, (), 1.0, 1.0, 1.0)
    lists.keys_of = {one.name: "abc"[number % 3] for number, one in enumerate(rows)}
    lists.focus_name = focus
    return [text(fit(line, width)) for line in lists.lines(width, height)]


def test_a_call_in_flight_shows_its_age_in_place_of_figures() -> None:
    (line,) = lines_of((row(state="STARVED", mark="bad", in_flight_us=1_190_000.0, ratio=350_000.0),), 100, 9)[1:]
    for words in ("STARVED", "in flight", "1.19s", "350k"):
        assert words in line


def test_a_long_list_shows_the_part_around_the_focus() -> None:
    rows = tuple(row(name=f"p{number}", title=f"probe {number}") for number in range(16))
    shown = lines_of(rows, 80, 6, focus="p12")
    assert len(shown) == 6
    assert any("probe 12" in line and "▸" in line for line in shown)


@pytest.mark.parametrize("width", [60, 80, 88, 100, 150])
def test_a_row_says_its_state_at_every_width(width: int) -> None:
    head, line = lines_of(
        (row(state="STALLED", mark="bad", calls_per_s=418.0, phase=Phase.WAIT, p50_us=2382.0),), width, 4
    )
    assert len(head) == len(line) == width
    assert "STALLED" in line
    assert "2.38ms" in line


def focus(live: Histogram, quiet: Histogram | None, **changed: object) -> FocusView:
    heat = np.zeros((40, BINS), dtype=np.uint32)
    ages = np.zeros(40, dtype=np.int64)
    return FocusView(row(**changed), (LaneView(Phase.CALL, "", live, quiet),), heat, ages, ((35, "spin on"),))


def test_a_single_late_call_among_a_million_is_seen() -> None:
    def letters(hist: Histogram) -> int:
        (bottom,) = (text(line) for line in histogram_lines(focus(hist, None), 80, 6) if text(line).startswith(" call"))
        return sum(letter != " " for letter in bottom[6:57])

    usual = [3_000] * 100_000
    assert letters(Histogram.of([*usual, 100_000_000])) == letters(Histogram.of(usual)) + 1


def test_quiet_stands_where_nothing_is_now() -> None:
    panel = histogram_lines(focus(Histogram.of([2_000_000] * 50), Histogram.of([5_000] * 50)), 80, 6)
    assert "░" in text(panel[1])
    assert "█" in text(panel[1])


def test_a_call_that_hangs_is_marked_at_its_age() -> None:
    panel = histogram_lines(focus(Histogram.empty(), None, in_flight_us=1_000_000.0), 80, 6)
    assert any("◆" in text(line) for line in panel)


@given(st.integers(20, 300))
def test_the_axis_has_the_width_it_is_given(columns: int) -> None:
    assert len(axis_letters(columns)) == columns


def test_the_heat_map_names_the_switch_and_shows_the_call_in_flight() -> None:
    view = focus(Histogram.of([5_000] * 50), Histogram.of([5_000] * 50))
    view.heat[10, 20] = 100
    view.ages_ns[38] = 3 * NS
    shown = [text(line) for line in heat_lines(view, 60, 12)]
    assert "spin on" in "".join(shown)
    assert "◆" in "".join(shown)
    assert any(letter in "".join(shown) for letter in "▓█")


def test_an_entry_says_when_what_why_and_what_helps() -> None:
    verdict = Verdict(
        "d2d", Phase.WAIT, "p50", 5.6, 2380.0, 427.0, "stalled", "why", "D2D: wait 5.6 µs → 2.38 ms. why", "pin"
    )
    entry = LogEntry(1, 3600.0 * 12 + 61, verdict, onset="It began 41 ms after “spin” went on.")
    shown = " ".join(text(line).strip() for line in entry_lines(entry, 60))
    for words in ("12:01:01", "STALLED", "2.38 ms", "41 ms after", "What helps: pin"):
        assert words in shown


@given(st.text(alphabet=st.characters(max_codepoint=0x2600), max_size=60))
def test_ascii_letters_are_as_many_and_really_ascii(words: str) -> None:
    assert ascii_only(words).isascii()
    assert len(ascii_only(words)) == len(words)


@given(st.lists(st.tuples(st.text("ab", max_size=9), st.sampled_from(["", "dim"])), max_size=6), st.integers(1, 40))
def test_lines_are_cut_or_filled_to_their_width(line: Line, width: int) -> None:
    assert length(fit(line, width)) == width
    assert length(fit(spread(line, [("end", "")], width), width)) == width


def test_runs_join_what_has_one_style() -> None:
    assert runs("aabb", ["x", "x", "x", "y"]) == [("aab", "x"), ("b", "y")]
    assert runs("", []) == []
