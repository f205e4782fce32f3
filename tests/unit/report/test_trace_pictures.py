"""Text and SVG pictures of a trace: report 1 is shown as it is, at every width, and only what is known is said."""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.etree import ElementTree

import numpy as np
import pytest

from factories.hostile_text import HOSTILE, forbidden, poisoned
from factories.traces import simulated_trace
from stallprobes.catalog import Placement, entries
from stallprobes.model import MS, SECONDARY, US
from stallprobes.records.timeline import TimelineLosses
from stallprobes.traces.ranking import most_unusual_call
from stallprobes.traces.trace import OpenCall, Trace, TraceTrigger
from stallprobes.wording.trace_wording import TimeScale, TracePicture
from stallscope.report.columns import display_width
from stallscope.report.trace_svg import trace_svg
from stallscope.report.trace_text import trace_text

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def whole() -> Trace:
    """A copy in a secondary context beside the spin kernel in the primary one."""
    copy = entries()["d2d"].probe(Placement(context=SECONDARY))
    return simulated_trace(entries()["spin"].probe(), copy, ns=100 * MS)


@pytest.fixture(scope="module")
def stall(whole: Trace) -> Trace:
    """The slowest copy with 1 ms before it and 4 ms after it."""
    row = most_unusual_call(whole)
    assert row is not None
    probe, began, returned = whole.calls[row][["probe", "began_ns", "returned_ns"]].tolist()
    return whole.between(began - MS, began + 4 * MS).changed(trigger=TraceTrigger(probe, began, returned))


def row_of(text: str, label: str, group: str) -> str:
    """The drawing of a row, from the column where the axis begins."""
    lines = text.splitlines()
    axis = next(line for line in lines if line.strip() and not line.strip(" ─┴-+"))
    left = len(axis) - len(axis.lstrip())
    after = lines[lines.index(group) :]
    return next(line for line in after if line[:left].strip() == label)[left:]


def test_the_text_shows_the_call_the_copy_after_it_and_who_had_the_engine_in_between(stall: Trace) -> None:
    text = trace_text(stall, width=80)
    call = row_of(text, "d2d@secondary", "host calls")
    copy = row_of(text, "secondary/own", "GPU work")
    primary = row_of(text, "primary", "graphics engine")
    at = call.index("▏", 5)
    started = copy.index("▏", at + 3)
    # 5 ms are 65 columns; the copy starts 2.3 ms after the call, and the call's wait is hollow up to there.
    assert 24 < started - at < 34
    assert set(call[at + 1 : started]) == {"░"}
    assert primary[at + 4 : started - 4].strip("█▌▏") == ""
    assert primary[started] == " "
    (bracket,) = [line for line in text.splitlines() if "├" in line]
    assert bracket.index("┤") - bracket.index("├") == started - at
    assert "returned → GPU start 2." in text
    assert "context primary had the engine" in text


def test_the_text_gives_the_exact_times_of_the_call(whole: Trace, stall: Trace) -> None:
    text = trace_text(stall, width=100)
    assert "Trigger: d2d@secondary cuMemcpyDtoDAsync, iteration" in text
    assert re.search(r"^ +0\.000 µs  cuMemcpyDtoDAsync called$", text, re.MULTILINE)
    assert re.search(r"\+\d\.\d{3} µs  cuMemcpyDtoDAsync returned +\d\.\d\d µs in the call", text)
    assert re.search(r"\+2\d{3}\.\d{3} µs  GPU started the D2D copy +2\.\d\d ms after the return", text)
    assert re.search(r"GPU ended the D2D copy +1\.70 µs on the GPU, 1 MiB, device to device memory", text)
    assert "All of the delay: " in text
    assert "the engine changed between contexts" in " ".join(text.split())
    assert "Selected call: " in trace_text(whole)


@pytest.mark.parametrize("width", [40, 79, 80, 81, 120, 160, 250])
@pytest.mark.parametrize("ascii", [False, True])
def test_no_line_is_wider_than_asked_for(stall: Trace, width: int, ascii: bool) -> None:
    text = trace_text(stall, width=width, ascii=ascii)
    assert max(map(display_width, text.splitlines())) <= width
    assert text.isascii() is ascii
    for words in ("host calls", "GPU work", "graphics engine", "d2d@sec", "Slowest calls"):
        assert words in text
    assert not any(line != line.rstrip() for line in text.splitlines())


def test_a_window_of_any_length_has_ticks_and_rows(whole: Trace) -> None:
    for span in (50 * US, 333 * US, 7 * MS, 99 * MS):
        text = trace_text(whole.between(whole.end_ns - span, whole.end_ns), width=80)
        assert text.count("┴") >= 2
        assert "host calls" in text


def test_the_slowest_calls_are_a_table_where_it_fits(stall: Trace) -> None:
    narrow, wide = trace_text(stall, width=80), trace_text(stall, width=160)
    assert "call began" not in narrow
    assert "call began  probe          call               in the call  to GPU start  waited for" in wide
    assert narrow.count("cuMemcpyDtoDAsync: ") == len(
        [line for line in wide.partition("Slowest calls")[2].splitlines() if "d2d@secondary" in line]
    )
    assert "Slowest" not in trace_text(stall, slowest=0)


def test_what_a_trace_does_not_show_is_said(stall: Trace) -> None:
    assert "SIMULATED" in trace_text(stall)
    assert "SIMULATED" not in trace_text(stall.changed(simulated=False))
    unknown = stall.changed(tenures=stall.tenures[:0], context_switches=False)
    for picture in (trace_text(unknown, width=160), trace_svg(unknown)):
        assert "who had the graphics engine is not known" in picture
        assert "graphics engine\n" not in picture
        assert "had the engine" not in picture
    lost = trace_text(stall.changed(losses=TimelineLosses(dropped=3)))
    assert "3 records of calls or GPU work were lost since recording began" in lost
    late = trace_text(stall.changed(collected_ns=stall.end_ns - 2 * MS))
    assert "GPU work of the last 2.00 ms may be missing" in late


def test_a_gap_of_another_process_has_a_row_and_a_name(stall: Trace) -> None:
    own = stall.tenures[stall.tenures["context"] != 1]
    foreign = stall.changed(tenures=own, others=("python (pid 7)",))
    text = trace_text(foreign, width=120)
    assert "▒" * 20 in row_of(text, "another process", "graphics engine")
    assert "another process had the engine: python (pid 7)" in text
    assert "x" * 20 in trace_text(foreign, ascii=True)
    assert 'class="foreign"' in trace_svg(foreign)


def test_a_call_that_has_not_returned_is_drawn_and_named(stall: Trace) -> None:
    end = stall.end_ns + 3_000 * MS
    flight = OpenCall(0, 0, end - 2_300 * MS)
    hung = stall.changed(end_ns=end, open_calls=(flight,), trigger=TraceTrigger(0, flight.since_ns, end))
    text = trace_text(hung, width=100)
    assert "spin cuLaunchKernel has not returned after 2.30 s." in text
    assert row_of(text, "spin", "host calls").endswith("█" * 50)
    assert "cuLaunchKernel has not returned" in trace_svg(hung)


def test_an_empty_trace_is_a_picture(stall: Trace) -> None:
    empty = stall.between(1, 1)
    empty = empty.changed(trigger=None)
    assert "host calls" in trace_text(empty)
    ElementTree.fromstring(trace_svg(empty))


def test_the_svg_has_every_row_the_delay_and_the_times(stall: Trace) -> None:
    root = ElementTree.fromstring(trace_svg(stall, title="NVIDIA H200 · secondary-context-d2d"))
    words = [element.text for element in root.iter(f"{SVG}text")]
    for label in ("host calls", "d2d@secondary", "secondary/own", "graphics engine", "primary", "0", "1 ms"):
        assert label in words
    assert words[0] == "NVIDIA H200 · secondary-context-d2d"
    assert any(text and text.startswith("returned → GPU start 2.") for text in words)
    assert any(text == "cuMemcpyDtoDAsync called" for text in words)
    assert {"call", "wait", "work", "engine", "arrow", "guide"} <= {
        element.get("class") for element in root.iter(f"{SVG}path")
    }
    assert "context primary had the engine" in (root.get("aria-label") or "")


def boxes(path: str) -> Iterator[tuple[float, float]]:
    for x, wide in re.findall(r"M([\d.]+) [\d.]+h([\d.]+)v14", path):
        yield float(x), float(x) + float(wide)


def test_the_svg_draws_the_copy_where_it_is(stall: Trace) -> None:
    root = ElementTree.fromstring(trace_svg(stall, width=1100))
    call, work = (
        [
            box
            for element in root.iter(f"{SVG}path")
            if element.get("class") == name
            for box in boxes(element.get("d") or "")
        ]
        for name in ("call", "work")
    )
    called = min(call)[0]
    copy = min(begin for begin, _ in work if begin > called + 20)
    assert TracePicture(stall).delay is not None
    # 5 ms are 946 pixels.
    assert 2.0 < (copy - called) / 946 * 5 < 2.6
    assert all(end - begin >= 1 for begin, end in (*call, *work))


def test_the_svg_is_dark_or_light_as_asked_for_or_as_the_reader_is(stall: Trace) -> None:
    both, dark, light = trace_svg(stall), trace_svg(stall, dark=True), trace_svg(stall, dark=False)
    assert "prefers-color-scheme: dark" in both
    assert "prefers-color-scheme" not in dark + light
    assert "#16181b" in dark
    assert "#16181b" not in light


def test_many_events_do_not_make_a_large_image(whole: Trace) -> None:
    calls = np.repeat(whole.calls, 40, axis=0)
    for column in ("began_ns", "returned_ns"):
        calls[column] += np.tile(np.arange(40) * 20_000, len(whole.calls))
    many = whole.changed(calls=calls[np.argsort(calls["began_ns"], kind="stable")])
    assert len(many.calls) > 3000
    assert len(trace_svg(many)) < 100_000


def test_names_from_outside_cannot_leave_their_place(stall: Trace) -> None:
    named = poisoned(stall.changed(others=("python",)))
    picture, text = trace_svg(named, title=HOSTILE), trace_text(named, title=HOSTILE, width=100)
    assert forbidden(picture + text) == set()
    tags = {element.tag for element in ElementTree.fromstring(picture).iter()}
    assert tags == {element.tag for element in ElementTree.fromstring(trace_svg(stall)).iter()}


@pytest.mark.parametrize(
    ("begin", "end", "most", "labels"),
    [
        (-MS, 4 * MS, 6, ["-1 ms", "0", "1 ms", "2 ms", "3 ms", "4 ms"]),
        (0, 50_000, 6, ["0", "10 µs", "20 µs", "30 µs", "40 µs", "50 µs"]),
        (0, 10_000_000_000, 3, ["0", "5 s", "10 s"]),
        (-1_200_000, 3_300_000, 3, ["0", "2 ms"]),
        (0, 999, 2, ["0", "500 ns"]),
    ],
)
def test_ticks_are_at_round_times(begin: int, end: int, most: int, labels: list[str]) -> None:
    assert [label for _, label in TimeScale(begin + 7, end + 7, 7).ticks(most)] == labels
