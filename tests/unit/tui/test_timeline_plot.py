"""The plot of a trace: each cell, each label, and what of it a click finds."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from factories.timeline_traces import (
    PRIMARY,
    SECONDARY,
    US,
    limits_of,
    report_1,
    trace_of,
)
from stallprobes.model import MS
from stallprobes.traces.rows import RowKey, RowKind
from stallprobes.traces.trace import CounterSample, CounterTrack, Trace
from stallprobes.traces.trigger import TriggerLimits
from stallscope.tui.common.help import sections
from stallscope.tui.common.lines import length, paragraph_lines
from stallscope.tui.timeline.details import clock_text, detail_texts, offset_text
from stallscope.tui.timeline.glyphs import ASCII_GLYPHS, BLOCK_GLYPHS, Glyphs, help_words
from stallscope.tui.timeline.time_axis import SPANS_NS, Viewport, fitting, span_text, stepped, ticks
from stallscope.tui.timeline.trace_plot import plot_layout, plot_lines
from stallscope.tui.timeline.view_model import (
    RowBook,
    RowIntervals,
    Selection,
    TraceView,
    find,
    intervals,
    longest_call,
    nearest,
    selected_delay,
    selection_of_call,
)

D2D = RowKey(RowKind.CALLS, 0)
# Ten columns of 100 µs behind names of 14.
NAMES, COLUMNS = 14, 10


def view_of(trace: Trace, selection: Selection | None = None, limits: TriggerLimits | None = None) -> TraceView:
    book = RowBook().with_trace(trace)
    return TraceView(trace, book.rows, Viewport(0, 1_000 * US), 0, selection, limits)


def drawn(view: TraceView, width: int = NAMES + COLUMNS, height: int = 9, glyphs: Glyphs = BLOCK_GLYPHS) -> list[str]:
    lines = plot_lines(view, width, height, glyphs)
    assert all(length(line) <= width for line in lines)
    return ["".join(text for text, _ in line) for line in lines]


def row(trace: Trace, name: str, limits: TriggerLimits | None = None, glyphs: Glyphs = BLOCK_GLYPHS) -> str:
    """The cells of the row called ``name``."""
    found = next(line for line in drawn(view_of(trace, None, limits), glyphs=glyphs) if line[1:].startswith(name))
    return found[NAMES:]


def test_work_of_the_gpu_is_unknown_where_it_was_not_recorded() -> None:
    trace = trace_of([(1, 0, 100, 150)], [(1, 0, 100, 150, 150, 300)])
    off = trace.changed(unrecorded=((200 * US, 500 * US),))
    known, marked = drawn(view_of(trace)), drawn(view_of(off))
    (changed,) = (number for number, line in enumerate(known) if line != marked[number])
    assert known[changed][1:].startswith("primary")
    before, after = known[changed][NAMES:], marked[changed][NAMES:]
    # Work that was recorded stays.
    assert before[2] != " "
    assert after == before[:3] + 2 * BLOCK_GLYPHS.unknown + before[5:]


def test_work_of_the_gpu_is_unknown_where_its_records_have_not_come() -> None:
    trace = trace_of([(1, 0, 100, 150)], [(1, 0, 100, 150, 150, 300)])
    known, marked = drawn(view_of(trace)), drawn(view_of(trace.changed(collected_ns=500 * US)))
    ((before, after),) = ((old, new) for old, new in zip(known, marked, strict=True) if old != new)
    assert before[1:].startswith("primary")
    assert after[NAMES + 5 : NAMES + 9] == 4 * BLOCK_GLYPHS.unknown
    assert after[: NAMES + 5] == before[: NAMES + 5]


def test_counters_have_the_level_of_each_cell_where_there_is_room() -> None:
    trace = trace_of([(1, 0, 100, 150)], [(1, 0, 100, 150, 150, 300)])
    samples = [(0, 300, 100.0), (300, 500, 50.0), (700, 900, 0.0)]
    tracks = (
        CounterTrack("SM active", "%", tuple(CounterSample(at * US, end * US, value) for at, end, value in samples)),
        CounterTrack(
            "PCIe to GPU", "MiB/s", (CounterSample(0, 500 * US, 4000.0), CounterSample(500 * US, US * 900, 500.0))
        ),
    )
    view = view_of(trace.changed(counters=tracks))
    lines = {line[1:NAMES].strip(): line[NAMES:] for line in drawn(view, height=16)}
    assert lines["SM active"] == "███▄▄··  ·"
    assert lines["PCIe to GPU"] == "█████▁▁▁▁·"
    wide = "\n".join(drawn(view, width=100, height=16))
    assert "full: 100 %, 4000 MiB/s" in wide
    assert not any("SM active" in line for line in drawn(view, height=7))


def test_spans_are_steps_of_1_2_5_from_50_us_to_10_s() -> None:
    assert (SPANS_NS[0], SPANS_NS[-1], len(SPANS_NS)) == (50_000, 10_000_000_000, 17)
    assert [span_text(span) for span in SPANS_NS[:4]] == ["50 µs", "100 µs", "200 µs", "500 µs"]
    assert (stepped(50_000, -1, SPANS_NS), stepped(10 * MS, 1, SPANS_NS), stepped(10_000 * MS, 1, SPANS_NS)) == (
        50_000,
        20 * MS,
        10_000 * MS,
    )
    assert (fitting(0), fitting(11 * MS), fitting(1e12)) == (50_000, 20 * MS, 10_000 * MS)


def test_a_zoom_keeps_a_time_at_its_place() -> None:
    view = Viewport(1_000, 10 * MS).zoomed(-1, 1_000 + 4 * MS)
    assert view.span_ns == 5 * MS
    assert (1_000 + 4 * MS - view.begin_ns) / view.span_ns == pytest.approx(0.4)
    assert view.with_inside(view.begin_ns, view.end_ns) is view
    assert view.with_inside(90 * MS, 91 * MS).center_ns == pytest.approx(90.5 * MS, abs=2)


def test_ticks_count_from_zero_in_round_steps() -> None:
    assert ticks(Viewport(0, 10 * MS), 7 * MS, 60) == [(12, "-5 ms"), (42, "0")]
    assert [label for _, label in ticks(Viewport(3, 500 * US), 250 * US, 70)] == [
        "-200 µs", "-100 µs", "0", "+100 µs", "+200 µs",
    ]  # fmt: skip


def test_calls_are_solid_and_waits_hollow() -> None:
    trace = trace_of([(0, 0, 100, 300), (0, 1, 300, 600)])
    assert row(trace, "d2d") == " ██░░░    "
    assert row(trace, "d2d", glyphs=ASCII_GLYPHS) == " ##---    "


def test_a_call_ends_and_begins_within_a_cell_as_precisely_as_blocks_allow() -> None:
    assert row(trace_of([(0, 0, 100, 350)]), "d2d") == " ██▌      "
    assert row(trace_of([(0, 0, 100, 325)]), "d2d") == " ██▎      "
    assert row(trace_of([(0, 0, 150, 300)]), "d2d") == " ▐█       "
    assert row(trace_of([(0, 0, 190, 300)]), "d2d") == " ▕█       "


def test_a_short_call_is_in_its_half_of_the_cell() -> None:
    assert row(trace_of([(0, 0, 110, 113), (0, 0, 390, 392)]), "d2d") == " ▌ ▐      "
    # With its wait behind it in the same cell.
    assert row(trace_of([(0, 0, 110, 113), (0, 1, 113, 390)]), "d2d") == " ▌░░      "


def test_several_calls_in_a_cell_show_their_share_of_it() -> None:
    calls = [(0, 0, float(at), at + 5.0) for at in range(100, 200, 10)]
    assert row(trace_of(calls), "d2d") == " ▄        "
    few = [(0, 0, 210.0, 211.0), (0, 0, 250.0, 251.0)]
    assert row(trace_of(few), "d2d") == "  ▁       "


def test_the_slowest_call_of_a_cell_keeps_its_mark() -> None:
    calls = [(0, 0, float(at), at + (15.0 if at == 150 else 1.0)) for at in range(100, 200, 10) if at != 160]
    trace, limits = trace_of(calls), limits_of(10.0)
    assert row(trace, "d2d", limits) == " ◆        "
    line = next(
        line for line in plot_lines(view_of(trace, None, limits), 24, 9, BLOCK_GLYPHS) if line[1][0][:3] == "d2d"
    )
    assert "◆" in "".join(text for text, style in line if style == "hot")
    # A slow wait of several cells is not a mark but a run.
    assert row(trace_of([(0, 1, 100, 400)]), "d2d", limits_of(1e9, 50)) == " ▒▒▒      "
    assert row(trace_of([(0, 1, 100, 400)]), "d2d", limits_of(1e9, 50), ASCII_GLYPHS) == " ===      "


def test_what_is_outside_of_the_span_is_not_drawn_at_its_edges() -> None:
    trace = trace_of([(0, 0, 100, 103), (0, 0, 2_000, 2_003)], end_us=3_000)
    view = replace(view_of(trace), viewport=Viewport(500 * US, 1_000 * US))
    assert next(line for line in drawn(view) if line[1:].startswith("d2d"))[NAMES:].strip() == ""
    # Where there is room, it says so.
    (line,) = [line for line in drawn(view, 120) if line[1:].startswith("d2d")]
    assert line.split(maxsplit=1)[1].rstrip() == "no call in this span"
    (line,) = [line for line in drawn(replace(view, slow_only=True), 120) if line[1:].startswith("d2d")]
    assert line.split(maxsplit=1)[1].rstrip() == "no slow call in this span"
    (line,) = [line for line in drawn(replace(view, off=frozenset({0})), 120) if line[1:].startswith("d2d")]
    assert line.split(maxsplit=1)[1].rstrip() == "off"


def test_what_was_not_recorded_is_marked() -> None:
    trace = trace_of([(0, 0, 100, 103), (0, 0, 800, 803)])
    view = replace(view_of(trace), viewport=Viewport(-500 * US, 2_000 * US))
    for line in drawn(view):
        if line[1:].startswith(("d2d", "launch")):
            cells = line[NAMES:]
            assert (cells[:2], cells[8:]) == ("··", "··")
            assert "·" not in cells[3:7]


def test_a_label_of_the_axis_is_whole_or_missing() -> None:
    shown = set()
    for width in range(24, 140, 5):
        for at_us in (100, 210, 640):
            view = view_of(trace_of([(0, 0, at_us, at_us + 3)]), Selection(D2D, at_us * US))
            found = {label.strip() for label in re.split("[▼╵]", drawn(view, width)[0])} - {""}
            assert found <= {
                label for _, label in ticks(view.viewport, 0, plot_layout(view.rows, D2D, width, 9).columns)
            }
            shown |= found
    assert {"0", "+500 µs", "+200 µs"} <= shown


def test_a_call_in_flight_reaches_the_end_of_the_trace() -> None:
    assert row(trace_of(flights=[(0, 1, 600)]), "d2d") == "      ░░░░"
    text = dict(detail_texts(view_of(trace_of(flights=[(0, 1, 600)]), Selection(D2D, 600 * US))))["d2d"]
    assert "cuStreamSynchronize · in flight for 400 µs, has not returned" in text


def test_streams_and_contexts_have_rows_in_order() -> None:
    trace = trace_of(
        [(0, 0, 100, 110)],
        [(0, 0, 100, 110, 500, 600), (1, 0, 0, 10, 20, 480)],
        [(PRIMARY, 10, 490), (SECONDARY, 495, None)],
    )
    book = RowBook().with_trace(trace)
    assert list(book.rows.values()) == [
        "d2d", "launch", "secondary · own · d2d", "primary · own · launch", "primary", "secondary",
    ]  # fmt: skip
    lines = drawn(view_of(trace), width=34)
    assert any(line[1:].startswith("primary ") and "███" in line for line in lines)
    # A row stays when a later trace has nothing in it.
    book = book.with_trace(trace_of())
    assert len(book.rows) == 6


def test_the_delay_is_an_arrow_with_its_cause() -> None:
    trace = trace_of(
        [(0, 0, 100, 200), (0, 1, 200, 900)], [(0, 0, 100, 200, 800, 850)], [(PRIMARY, 0, 780), (SECONDARY, 790, None)]
    )
    lines = drawn(view_of(trace, Selection(D2D, 100 * US)), width=134, height=14)
    arrow = next(line for line in lines if line.startswith(" delay"))[28:]
    assert "returned → GPU start 600 µs: context primary had the engine" in arrow
    plain = arrow.rstrip()
    assert plain.strip().startswith("│─")
    assert plain.endswith("─▶")
    # The wait of the same iteration leads to the same delay.
    found = RowIntervals(trace, None)
    assert selected_delay(trace, found, Selection(D2D, 100 * US)) is not None


def test_a_label_without_room_in_the_arrow_is_beside_it_and_shorter() -> None:
    trace = trace_of([(0, 0, 100, 150)], [(0, 0, 100, 150, 260, 300)], [(PRIMARY, 0, 250), (SECONDARY, 252, None)])
    line = next(line for line in drawn(view_of(trace, Selection(D2D, 100 * US)), 80, 12) if line.startswith(" delay"))
    assert line.rstrip().endswith("│─────▶ 110 µs: context primary had the engine")


def test_an_early_start_points_to_the_left() -> None:
    trace = trace_of([(0, 0, 100, 600)], [(0, 0, 100, 600, 300, 500)])
    line = next(line for line in drawn(view_of(trace, Selection(D2D, 100 * US)), 94, 12) if line.startswith(" delay"))
    assert "◀──" in line
    assert "│" in line
    assert line.rstrip().endswith("│ 300 µs before the return")
    wide = drawn(view_of(trace, Selection(D2D, 100 * US)), 160, 12)
    assert any("the GPU started 300 µs before the return" in line for line in wide)


def test_a_gap_in_which_work_waits_names_the_other_processes() -> None:
    trace = trace_of(
        [(0, 0, 0, 10)],
        [(0, 0, 0, 10, 950, 960)],
        [(PRIMARY, 0, 100), (SECONDARY, 940, None)],
        others=("python (pid 7)",),
    )
    line = next(line for line in drawn(view_of(trace), 114, 14) if line[1:].startswith("another process"))
    assert "another process: python (pid 7)" in line[28:]
    gap = view_of(trace, Selection(RowKey(RowKind.FOREIGN), 100 * US))
    assert "NVML names python (pid 7)" in detail_texts(gap)[0][1]


def test_nothing_is_said_of_the_engine_before_its_first_change() -> None:
    trace = trace_of(
        [(0, 0, 0, 10)], [(0, 0, 0, 10, 950, 960)], [(SECONDARY, 940, None)], engine_since_us=940, others=("x",)
    )
    lines = drawn(view_of(trace), 34, 14)
    assert next(line for line in lines if line[1:].startswith("secondary "))[NAMES:].startswith("··········")
    assert "█" not in next(line for line in lines if line[1:].startswith("another"))
    delay = selected_delay(trace, RowIntervals(trace, None), Selection(D2D, 0))
    assert delay is not None
    assert {str(part.cause) for part in delay.parts} == {"unknown"}


def test_without_context_switches_the_section_says_so() -> None:
    trace = trace_of([(0, 0, 0, 10)], tenures=[(PRIMARY, 0, 10)], context_switches=False)
    assert any("who has it was not recorded" in line for line in drawn(view_of(trace), 80, 14))


def test_report_1_reads_as_nsight_systems_shows_it() -> None:
    trace = report_1()
    assert trace.trigger is not None
    book = RowBook().with_trace(trace)
    began = trace.trigger.began_ns
    view = TraceView(trace, book.rows, Viewport(began - 3 * MS, 10 * MS), began, Selection(D2D, began))
    lines = drawn(view, 120, 18)
    by_name = {line[1:28].strip(): line[30:] for line in lines if line[:1] in " ▸"}
    calls, copies, engine = by_name["d2d@secondary"], by_name["secondary/own/d2d@secondary"], by_name["primary"]
    arrow = next(line for line in lines if line.startswith(" delay"))[30:]
    first, last = arrow.index("│"), arrow.index("▶")
    assert 1.5 * MS < (last - first) * 10 * MS / 90 < 2.6 * MS
    assert "context primary had the engine" in arrow
    # During the delay the call waits, no copy runs, and the primary context has the engine.
    assert set(calls[first + 1 : last]) == {"▒"}
    assert copies[first + 2 : last - 1].strip() == ""
    assert copies[last - 1 : last + 2].strip() != ""
    assert engine[first + 4 : last - 4].count("█") == len(engine[first + 4 : last - 4])


def test_the_details_name_call_time_copy_and_delay() -> None:
    trace = trace_of(
        [(0, 0, 100, 200), (0, 1, 200, 900)], [(0, 0, 100, 200, 800, 850)], [(PRIMARY, 0, 780), (SECONDARY, 790, None)]
    )
    texts = dict(detail_texts(view_of(trace, Selection(D2D, 100 * US))))
    assert texts["d2d"].startswith("cuMemcpyDtoDAsync · iteration 0 · call 100 µs · began ")
    assert texts["d2d"].endswith(", +100.000 µs")
    assert texts["delay"].startswith("returned → GPU start 600 µs: context primary had the engine")
    assert texts["GPU"].startswith("D2D copy, 1 MiB, device to device memory on secondary · own · started +800.000 µs")
    work = dict(detail_texts(view_of(trace, Selection(RowKey(RowKind.WORK, SECONDARY, 7), 800 * US))))
    assert work["call"] == "d2d: cuMemcpyDtoDAsync · iteration 0"
    tenure = detail_texts(view_of(trace, Selection(RowKey(RowKind.TENURES, PRIMARY), 0)))
    assert tenure[0][1].startswith("had the graphics engine for 780 µs")
    details = detail_texts(view_of(trace, Selection(D2D, 100 * US)))
    assert len(paragraph_lines([(title, "strong", text) for title, text in details], 60, 4, "    ", edge=2)) == 4
    assert offset_text(-1_200) == "-1.200 µs"
    assert clock_text(1_770_000_000.000001).endswith(":00.000001")


def test_a_row_without_a_selected_interval_says_how_to_select_one() -> None:
    trace = trace_of([(0, 0, 100, 200)])
    assert "; 1 call in the trace; , and . select one" in detail_texts(view_of(trace, Selection(D2D)))[0][1]
    live = replace(view_of(trace, Selection(D2D)), live=True)
    assert "t freezes on the next slow call" in detail_texts(live)[0][1]
    assert detail_texts(TraceView()) == ()


def test_intervals_are_found_by_start_and_by_time() -> None:
    found = intervals(trace_of([(0, 0, 100, 200), (0, 1, 200, 900)]), D2D, None)
    assert find(found, 200 * US) == 1
    assert find(found, 201 * US) is None
    assert nearest(found, 150 * US) == 0
    assert nearest(found, 5_000 * US) == 1
    assert nearest(intervals(trace_of(), D2D, None), 0) is None
    assert selection_of_call(trace_of(), 0, 5) == Selection(D2D)


def test_the_longest_call_of_a_victim_is_the_worst_without_limits() -> None:
    trace = trace_of([(0, 0, 100, 200), (0, 1, 200, 900), (1, 0, 0, 50)])
    assert longest_call(trace) == Selection(D2D, 200 * US)
    assert longest_call(trace_of()) is None


def test_the_selected_row_and_the_delay_are_visible_in_few_lines() -> None:
    trace = report_1()
    book = RowBook().with_trace(trace)
    for selected in book.rows:
        for height in range(3, 20):
            at = plot_layout(book.rows, selected, 80, height)
            assert selected in at.lines
            assert "" in at.titles
            assert len(at.lines) <= height - 1


@pytest.mark.parametrize("width", [30, 60, 80, 250])
@pytest.mark.parametrize("span_ns", SPANS_NS[::4])
def test_lines_fit_at_any_width_and_span_and_ascii_is_ascii(width: int, span_ns: int) -> None:
    trace = report_1()
    assert trace.trigger is not None
    book = RowBook().with_trace(trace)
    began = trace.trigger.began_ns
    view = TraceView(trace, book.rows, Viewport(began - span_ns // 2, span_ns), began, Selection(D2D, began))
    for glyphs in (BLOCK_GLYPHS, ASCII_GLYPHS):
        lines = drawn(view, width, 20, glyphs)
        assert len(lines) <= 20
    cells = {letter for line in drawn(view, width, 20, ASCII_GLYPHS) if line[1:4] == "d2d" for letter in line[20:]}
    assert all(letter.isascii() for letter in cells)


def test_an_empty_trace_has_its_rows_and_sentences_replace_a_trace() -> None:
    assert [line[1:7].strip() for line in drawn(view_of(trace_of()), 40, 4)][1:3] == ["d2d", "launch"]
    text = " ".join(drawn(TraceView(sentences=("The timeline is not available: no libcupti.",)), 60, 12)).split()
    assert " ".join(text) == "The timeline is not available: no libcupti."


def test_thousands_of_calls_in_a_cell_show_their_share() -> None:
    calls = [(0, 0, at * 0.05, at * 0.05 + 0.02) for at in range(20_000)]
    cells = np.array(list(row(trace_of(calls), "d2d")))
    assert set(cells) == {"▄"}


@pytest.mark.parametrize("glyphs", [BLOCK_GLYPHS, ASCII_GLYPHS], ids=["blocks", "ascii"])
def test_the_help_names_the_letters_that_are_drawn(glyphs: Glyphs) -> None:
    rows, cells = (text.format_map(help_words(glyphs)) for _, text in sections("timeline")[:2])
    assert f"{glyphs.left[-1]} is a call, {glyphs.wait} a wait for the GPU" in rows
    assert f"{glyphs.unknown} is a time that was not recorded" in rows
    assert f"{glyphs.slow_wait} while they wait, and {glyphs.slow} where" in cells
    assert rows.isascii() == cells.isascii() == (glyphs is ASCII_GLYPHS)
