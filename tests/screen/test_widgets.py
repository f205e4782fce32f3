"""Panels as functions: lines out of frozen data and a width."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from textual.app import App
from textual.color import Color
from textual.theme import BUILTIN_THEMES

from factories.screen import drawn_strips, text_of, until
from stallprobes.latency.histogram import Histogram
from stallprobes.live.history import BINS
from stallprobes.live.view_model import ChannelView, FocusView, MonitorView, ProbeRow, Stretch
from stallprobes.machine.telemetry import NAMES, NS_PER_S, TelemetryReading, TelemetrySnapshot, TelemetryState
from stallprobes.model import Phase, Role
from stallprobes.recording.observation import CUDA, SIM, EngineCondition, EngineStatus, GpuName, Observation, ProbeSet
from stallscope import tui
from stallscope.tui.common.bars import ScreenHead, nvml_line
from stallscope.tui.common.histograms import HistogramsView, histogram_lines
from stallscope.tui.common.lines import (
    DECENT,
    READABLE,
    VISIBLE,
    Line,
    fit,
    length,
    palette,
    runs_of_rows,
    spread,
)
from stallscope.tui.common.plots import axis_labels
from stallscope.tui.line_filters import ascii_only, contrast
from stallscope.tui.monitor.header import head_view
from stallscope.tui.monitor.heatmap import FIRST_DECADES, heat_lines, widened
from stallscope.tui.monitor.probe_table import ProbeTable, ProbeTableView
from stallscope.tui.probe_sets import gpu_label

NOW = 100 * NS_PER_S
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


def telemetry(state: TelemetryState = "live", why: str | None = None, **changed: TelemetryReading) -> TelemetrySnapshot:
    known = {name: TelemetryReading(VALUES.get(name), NOW, None) for name in NAMES}
    return TelemetrySnapshot("GPU-1", NOW, state, why, MappingProxyType({**known, **changed}))


def row(**changed: object) -> ProbeRow:
    values: dict[str, object] = {
        "name": "d2d",
        "role": Role.VICTIM,
        "on": True,
    }
    return ProbeRow(**{**values, "state": "quiet", "mark": "good", **changed})  # type: ignore[arg-type]


def test_nvml_values_stand_with_what_holds_the_clocks() -> None:
    line = text(nvml_line(telemetry(), (), [0, 50, 100], 200))
    for words in ("100%", "3.0/141 GiB", "1980 MHz", "124 W", "33 °C", "↑12.3 GB/s", "power cap"):
        assert words in line


def test_a_value_that_is_not_to_be_had_says_why_and_an_old_one_says_its_age() -> None:
    missing = TelemetryReading(None, NOW, "not supported")
    old = TelemetryReading(124.5, NOW - 7 * NS_PER_S, None)
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
    assert line.strip().startswith("also on this GPU: python (pid 77) +1")


def lines_of(rows: tuple[ProbeRow, ...], width: int, height: int, focus: str = "d2d") -> list[str]:
    lists = ProbeTable()
    keys_of = {one.name: "abc"[number % 3] for number, one in enumerate(rows)}
    lists.view = ProbeTableView(MonitorView(rows, None, (), 1.0, None), keys_of, focus)
    return [text(fit(line, width)) for line in lists.lines(width, height)]


def test_a_call_in_flight_shows_its_age_in_place_of_figures() -> None:
    (line,) = lines_of((row(state="STARVED", mark="bad", in_flight_ns=1_190_000_000, ratio=350_000.0),), 100, 9)[1:]
    for words in ("STARVED", "in flight", "1.19s", "350k"):
        assert words in line


def test_of_a_long_list_the_worst_stays_in_view_and_the_rest_is_counted() -> None:
    rows = tuple(row(name=f"probe {number}") for number in range(16))
    worst = replace(rows[14], state="STALLED", mark="bad")
    slower = replace(rows[9], state="slower", mark="warn")
    shown = lines_of((*rows[:9], slower, *rows[10:14], worst, rows[15]), 80, 4, focus="probe 1")
    assert [words for words in ("probe 1 ", "probe 9 ", "probe 14") if words in "".join(shown)] == [
        "probe 1 ",
        "probe 9 ",
        "probe 14",
    ]
    assert "VICTIMS +13 " in shown[0]


def test_a_long_list_shows_the_part_around_the_focus() -> None:
    rows = tuple(row(name=f"probe {number}") for number in range(16))
    shown = lines_of(rows, 80, 6, focus="probe 12")
    assert len(shown) == 6
    assert any("probe 12" in line and "▸" in line for line in shown)


@pytest.mark.parametrize("width", [60, 80, 88, 100, 150])
def test_a_row_says_its_state_at_every_width(width: int) -> None:
    head, line = lines_of(
        (row(state="STALLED", mark="bad", calls_per_s=418.0, phase=Phase.WAIT, p50_ns=2_382_000.0),), width, 4
    )
    assert len(head) == len(line) == width
    assert "STALLED" in line
    assert "2.38ms" in line


def focus(live: Histogram, quiet: Histogram | None, **changed: object) -> FocusView:
    heat = np.zeros((40, BINS), dtype=np.uint32)
    ages = np.zeros(40, dtype=np.int64)
    found = row(**changed)
    stretches = (Stretch(0, None, found.name, ProbeSet(title="", probes=(), backend=SIM)),)
    channels = (ChannelView(Phase.CALL, "", live, quiet),)
    return FocusView(found, channels, heat, ages, ((35, "spin on"),), stretches=stretches)


def histograms(live: Histogram, quiet: Histogram | None) -> HistogramsView:
    view = focus(live, quiet)
    return HistogramsView(view.row, view.channels)


def test_a_single_late_call_among_a_million_is_seen() -> None:
    def letters(hist: Histogram) -> int:
        (bottom,) = (
            text(line) for line in histogram_lines(histograms(hist, None), 80, 6) if text(line).startswith(" call")
        )
        return sum(letter != " " for letter in bottom[6:57])

    usual = [3_000] * 100_000
    assert letters(Histogram.of([*usual, 100_000_000])) == letters(Histogram.of(usual)) + 1


def test_quiet_stands_where_nothing_is_now() -> None:
    panel = histogram_lines(histograms(Histogram.of([2_000_000] * 50), Histogram.of([5_000] * 50)), 80, 6)
    assert "░" in text(panel[1])
    assert "█" in text(panel[1])


def test_a_call_that_hangs_is_marked_at_its_age_and_its_title_says_how_much_that_is() -> None:
    view = focus(Histogram.empty(), None, in_flight_ns=1_000_000_000, state="STARVED", mark="bad", ratio=350_000.0)
    panel = histogram_lines(HistogramsView(view.row, view.channels), 80, 6)
    assert "STARVED ×350k" in text(panel[0])
    assert any("◆" in text(line) for line in panel)


@pytest.mark.parametrize("height", [6, 8, 14, 30])
def test_each_figure_says_whether_it_is_quiets_or_todays(height: int) -> None:
    live, quiet = Histogram.of([2_000_000] * 1500), Histogram.of([5_000] * 50)
    shown = [text(line) for line in histogram_lines(histograms(live, quiet), 120, height)]
    medians = [line for line in shown if "p50" in line]
    tails = [line for line in shown if "max" in line or "p99.9" in line]
    assert tails
    assert len(medians) == 2
    assert all(("base  p50 5.0" in line) != ("now   p50 2.0" in line) for line in medians)
    for line in tails:
        assert "now " in line
        assert "2.0" in line.partition("now")[2]


def test_the_legend_names_quiet_only_where_there_is_one() -> None:
    live, quiet = Histogram.of([2_000] * 50), Histogram.of([5_000] * 50)
    with_quiet, without = (
        [text(line) for line in histogram_lines(histograms(live, q), 100, 12)] for q in (quiet, None)
    )
    assert any("baseline" in line and "last second" in line for line in with_quiet)
    assert not any("baseline " in line and "last second" in line for line in without)
    assert any("last second" in line for line in without)


@given(st.integers(20, 300))
def test_the_axis_has_the_width_it_is_given(columns: int) -> None:
    assert len(axis_labels(columns)) == columns


def test_the_heat_map_names_the_switch_and_shows_the_call_in_flight() -> None:
    view = focus(Histogram.of([5_000] * 50), Histogram.of([5_000] * 50))
    view.heat[10, 20] = 400
    view.ages_ns[38] = 3 * NS_PER_S
    shown = [text(line) for line in heat_lines(view, 60, 12, widened(view, FIRST_DECADES))]
    assert "spin on" in "".join(shown)
    assert "◆" in "".join(shown)
    assert any(letter in "".join(shown) for letter in "▓█")


@pytest.mark.parametrize("column", [2, 20, 36, 39])
def test_a_mark_stands_over_its_column_wherever_there_is_room_for_its_words(column: int) -> None:
    view = replace(focus(Histogram.empty(), None), marks=((column, "spin on"),))
    words, below = (text(line) for line in heat_lines(view, 49, 12)[:2])
    assert "spin on" in words
    assert words.index("▏") == below.index("▏") == 9 + column


def test_a_column_that_is_not_over_yet_is_as_dark_as_its_neighbours() -> None:
    view = focus(Histogram.empty(), None)
    view.heat[:, 20] = 150
    view.heat[39, 20] = 30
    looked = np.full(40, 0.5)
    looked[39] = 0.1
    lines = [text(line)[-10:] for line in heat_lines(replace(view, observed_s=looked, marks=()), 49, 20)]
    (dark,) = {line for line in lines if any(shade in line for shade in "░▒▓█")}
    assert len(set(dark)) == 1
    assert dark[0] in "▒▓█"


STATES = (
    (EngineStatus(EngineCondition.READY), "", "● live"),
    (EngineStatus(EngineCondition.READY), "PAUSED at 12:00:00, probes keep running", "PAUSED at 12:00:00"),
    (EngineStatus(EngineCondition.LOST), "", "ENGINE LOST"),
    (EngineStatus(EngineCondition.LOST), "PAUSED at 12:00:00", "PAUSED at 12:00:00"),
    (EngineStatus(EngineCondition.SILENT, 2.0), "", "ENGINE SILENT 2.0 s"),
    (EngineStatus(EngineCondition.STARTING, 2.0), "", "starting 2.0 s"),
    (EngineStatus(EngineCondition.REFUSED), "", "NOT POSSIBLE HERE"),
)


@pytest.mark.parametrize(("engine", "view", "words"), STATES)
@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_state_and_simulated_stand_in_the_header_however_much_else_there_is(
    engine: EngineStatus, view: str, words: str, width: int
) -> None:
    facts = ("profile h200 with timeslice_us=4000, copy_gb_s=1.5, launch_us=9, and_so_on=1", "seed 12345678")
    header = ScreenHead()
    observation = Observation(
        wall_s=1e9,
        probe_set=ProbeSet(title="b", probes=(), backend=SIM, gpus=(GpuName("NVIDIA H200"),), details=facts),
        engine=engine,
    )
    header.view = head_view(observation, MonitorView((), None, (), 3.0, 0.0), view)
    line = text(header.lines(width, 2)[0])
    assert len(line) == width
    assert " SIMULATED " in line
    assert words in line
    if width >= 120:
        assert "NVIDIA H200" in line
        assert "profile h200 with" in line


def test_the_header_says_for_how_long_quiet_will_still_be_measured() -> None:
    header = ScreenHead()
    observation = Observation(
        wall_s=1e9,
        probe_set=ProbeSet(title="b", probes=(), backend=CUDA, gpus=(GpuName("NVIDIA H200"),)),
        engine=EngineStatus(EngineCondition.READY),
    )
    header.view = head_view(observation, MonitorView((), None, (), None, 1.3))
    assert "measuring baseline, 2 s" in text(header.lines(100, 2)[0])
    header.view = head_view(observation, MonitorView((), None, (), None, None))
    assert "no baseline" in text(header.lines(100, 2)[0])


def test_both_gpus_are_told() -> None:
    def words(pattern: str, variant: str, *gpus: GpuName) -> str:
        return gpu_label(ProbeSet(title="b", probes=(), backend=CUDA, gpus=gpus, pattern=pattern, variant=variant))

    two, one = ("peer-copy-behind-kernel", "staged"), ("scalar-readback", "pageable")
    h200 = GpuName("NVIDIA H200", 0)
    assert words(*two, h200, GpuName("NVIDIA H200", 3)) == "2 × NVIDIA H200 (GPU 0, GPU 3)"
    assert words(*two, GpuName("A", 0), GpuName("B", 1)) == "A (GPU 0) + B (GPU 1)"
    assert words(*two, GpuName("NVIDIA H200"), GpuName("NVIDIA H200")) == "2 × NVIDIA H200"
    assert words(*two, h200) == "NVIDIA H200 (GPU 0) + 1 more GPU"
    assert words(*one, h200) == "NVIDIA H200 (GPU 0)"
    assert words("", "") == ""


@given(st.text(alphabet=st.characters(max_codepoint=0x2600), max_size=60))
def test_ascii_letters_are_as_wide_and_really_ascii(words: str) -> None:
    assert ascii_only(words).isascii()
    assert len(ascii_only(words)) == sum(cell_len(letter) for letter in words if not letter.isascii()) + sum(
        map(str.isascii, words)
    )


def test_ascii_keeps_the_width_of_what_it_replaces_and_arrows_between_values() -> None:
    assert ascii_only("5.47 µs → 1.89 ms") == "5.47 us ->1.89 ms"
    assert ascii_only("5.47 µs →") == "5.47 us->"
    assert ascii_only("cost ≤ 0.5 %") == "cost <=0.5 %"
    assert ascii_only("🔎 Search") == ">  Search"
    assert ascii_only("語a") == "??a"


@given(st.lists(st.tuples(st.text("ab", max_size=9), st.sampled_from(["", "dim"])), max_size=6), st.integers(1, 40))
def test_lines_are_cut_or_filled_to_their_width(line: Line, width: int) -> None:
    assert length(fit(line, width)) == width
    assert length(fit(spread(line, [("end", "")], width), width)) == width


@pytest.mark.parametrize("name", [name for name in BUILTIN_THEMES if not name.startswith("ansi")])
def test_all_can_be_read_in_every_theme_light_and_dark(name: str) -> None:
    app = App[None]()
    app.theme = name
    for use, style in palette(app.get_css_variables()).items():
        assert style.color is not None
        assert style.bgcolor is not None
        least = (
            DECENT if use == "faint" else VISIBLE if use in ("live", "baseline", "both", "heat", "hot") else READABLE
        )
        assert contrast(Color.from_rich_color(style.color), Color.from_rich_color(style.bgcolor)) >= least * 0.98, use


def test_runs_join_what_has_one_style() -> None:
    letters, styles = np.array([list("aabb"), list("cddd")]), np.array([[0, 0, 0, 1], [1, 1, 1, 1]])
    assert runs_of_rows(letters, styles, ("x", "y")) == [[("aab", "x"), ("b", "y")], [("cddd", "y")]]
    assert runs_of_rows(np.zeros((2, 0), dtype="<U1"), np.zeros((2, 0), dtype=int), ()) == [[], []]


def test_a_blank_takes_the_style_before_it_unless_its_background_shows() -> None:
    letters = np.array([list(" a  b  ")])
    styles = np.array([[0, 1, 0, 0, 1, 0, 0]])
    assert runs_of_rows(letters, styles, ("", "live")) == [[(" ", ""), ("a  b  ", "live")]]
    backed = [[(" ", ""), ("a", "both"), ("  ", ""), ("b", "both"), ("  ", "")]]
    assert runs_of_rows(letters, styles, ("", "both")) == backed


@pytest.mark.parametrize("columns", [60, 80])
async def test_a_message_does_not_fold_the_name_of_a_file(columns: int) -> None:
    name = "stallscope-trace-20261130-173314.json"

    class Shown(App[None]):
        CSS_PATH = Path(tui.__file__).parent / "common" / "dialog.tcss"

    async with Shown().run_test(size=(columns, 18), notifications=True) as pilot:
        pilot.app.notify(f"Saved {name}")
        await until(pilot, lambda: name in text_of(drawn_strips(pilot.app)))
