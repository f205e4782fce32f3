"""The file for Perfetto: it follows the format's rules, and shows what the trace holds, to the nanosecond."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from factories.chrome_traces import ReadTrace, Slice, read_chrome_trace
from factories.traces import simulated_trace
from stallprobes import save_trace
from stallprobes.catalog import Placement, entries
from stallprobes.errors import FileNotWritten
from stallprobes.model import MS, SECONDARY
from stallprobes.native.layouts.cupti import OverheadKind, RecordKind
from stallprobes.recording.recording import Recording
from stallprobes.records.rows import CALL, OVERHEAD, TENURE, WORK, Rows
from stallprobes.traces import chrome
from stallprobes.traces.chrome import TitledTrace
from stallprobes.traces.ranking import most_unusual_call
from stallprobes.traces.trace import (
    OPEN,
    CounterSample,
    CounterTrack,
    Int64s,
    OpenCall,
    Trace,
    TracedProbe,
    TraceNames,
    TraceTrigger,
    callers_of,
)


@pytest.fixture(scope="module")
def report_1() -> Trace:
    """A copy in a secondary context beside the spin kernel in the primary one, for two slots."""
    probes = (
        entries()["spin"].probe(),
        entries()["d2d"].probe(Placement(context=SECONDARY)),
        entries()["launch"].probe(),
    )
    trace = simulated_trace(*probes, ns=200 * MS)
    row = most_unusual_call(trace)
    assert row is not None
    call = trace.calls[row]
    return trace.changed(trigger=TraceTrigger(int(call["probe"]), int(call["began_ns"]), int(call["returned_ns"])))


@pytest.fixture(scope="module")
def shown(report_1: Trace) -> ReadTrace:
    """The file of ``report_1``."""
    return read(TitledTrace(report_1))


def text(*traces: TitledTrace) -> str:
    return b"".join(chrome.chunks(traces, {"gpu": "NVIDIA H200"})).decode()


def read(*traces: TitledTrace) -> ReadTrace:
    return read_chrome_trace(text(*traces))


def works(*rows: Sequence[int]) -> Trace:
    """A trace of kernels on one stream from and to the given times in µs."""
    table = np.zeros(len(rows), WORK)
    for number, (begin, end) in enumerate(rows):
        row = table[number]
        row["sequence"], row["kind"], row["context"] = number, RecordKind.KERNEL, 1
        row["start_ns"], row["end_ns"], row["probe"] = begin * 1000, end * 1000, -1
    return Trace(
        begin_ns=0,
        end_ns=100_000,
        collected_ns=100_000,
        probes=(TracedProbe("launch", ("cuLaunchKernel",)),),
        names=TraceNames(),
        calls=np.empty(0, CALL),
        work=table,
        tenures=np.empty(0, TENURE),
        overheads=np.empty(0, OVERHEAD),
        context_switches=False,
    )


def test_every_call_and_all_work_is_in_the_file_to_the_nanosecond(report_1: Trace, shown: ReadTrace) -> None:
    zero = shown.about["traces"][0]["begin_monotonic_ns"]

    def times(slices: Sequence[Slice]) -> list[tuple[int, int]]:
        return sorted((each.begin_ns + zero, each.end_ns + zero) for each in slices)

    calls = [each for each in shown.of("call") if "in_flight" not in each.args]
    assert times(calls) == sorted(map(tuple, report_1.calls[["began_ns", "returned_ns"]].tolist()))
    assert times(shown.of("gpu")) == sorted(map(tuple, report_1.work[["start_ns", "end_ns"]].tolist()))
    assert len(shown.of("engine")) == len(report_1.tenures)


RECORDED = sorted((Path(__file__).parents[3] / "screenshots" / "recordings").glob("*-timeline.rec"))


@pytest.mark.parametrize("file", RECORDED, ids=lambda file: file.stem)
def test_traces_of_real_gpus_follow_the_rules_of_the_format(file: Path) -> None:
    recording = Recording(file)
    assert recording.traces()
    for known in recording.traces():
        trace = recording.trace(known.number)
        found = read(TitledTrace(trace))
        assert len(found.of("call")) >= len(trace.calls)
        assert len(found.of("gpu")) == len(trace.work)
        assert len(found.arrows) == int((callers_of(trace) >= 0).sum())
        # All work of a call that is in the trace has an arrow.
        lonely = (trace.work["probe"] < 0) | (trace.work["began_ns"] < trace.calls["began_ns"][0])
        assert len(found.arrows) >= int((~lonely).sum())
    recording.close()


def test_both_halves_of_a_recorded_copy_to_another_gpu_have_an_arrow_from_its_call() -> None:
    (file,) = (file for file in RECORDED if "peer-copy" in file.name)
    recording = Recording(file)
    trace = recording.trace(0)
    recording.close()
    found = read(TitledTrace(trace))
    waited = [each for each in found.arrows if each.target.args["delay_us"] > 90_000]
    (late,) = [each for each in waited if each.target.name.startswith("peer-copy: ")]
    assert late.target.process == "GPU 1, context 2"
    assert late.target.thread == "stream 17 (peer-copy, peer-copy-behind-kernel)"
    assert late.target.args["delay_cause"].startswith("peer-copy-behind-kernel (cuMemcpyPeerAsync")
    halves = [arrow.target.name for arrow in found.arrows if arrow.source == late.source]
    assert halves == ["peer-copy: D2H copy", "peer-copy: H2D copy"]


def valid() -> dict[str, Any]:
    """A small file that follows all rules: a call, its work, the arrow between them, and a trigger."""
    names: list[dict[str, Any]] = []
    for process in (1, 3):
        names.append({"ph": "M", "pid": process, "name": "process_name", "args": {"name": f"process {process}"}})
        thread = {"ph": "M", "pid": process, "tid": process + 1, "name": "thread_name"}
        names.append({**thread, "args": {"name": f"thread {process}"}})

    def event(phase: str, process: int, at: str, **more: object) -> dict[str, Any]:
        return {"ph": phase, "pid": process, "tid": process + 1, "ts": at, "name": "launch", "cat": "x", **more}

    events = [
        *names,
        event("i", 1, "1.000", s="g"),
        event("X", 1, "1.000", dur="2.000"),
        event("s", 1, "1.000", id=1),
        event("X", 3, "4.000", dur="2.000"),
        event("f", 3, "4.000", id=1, bp="e"),
    ]
    return {"traceEvents": events, "otherData": {}, "displayTimeUnit": "ns"}


def as_text(document: object) -> str:
    """Times as numbers, with their three decimals."""
    return re.sub(r'"(-?[0-9]+[.][0-9]+|NaN)"', r"\1", json.dumps(document))


def test_a_small_valid_file_is_accepted() -> None:
    assert len(read_chrome_trace(as_text(valid())).arrows) == 1


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (5, {"dur": None}),
        (5, {"ts": "NaN"}),
        (5, {"ts": "1.0"}),
        (5, {"dur": "-2.000"}),
        (5, {"pid": "one"}),
        (5, {"tid": 9}),
        (5, {"name": ""}),
        (5, {"ph": "B"}),
        (5, {"stack": [1]}),
        (4, {"s": None}),
        (4, {"s": "x"}),
        (6, {"id": 2}),
        (6, {"ts": "3.500"}),
        (6, {"name": "other"}),
        (8, {"bp": None}),
        (8, {"ts": "6.500"}),
        (7, {"pid": 1, "tid": 2, "ts": "2.000"}),
        (0, {"name": "process"}),
        (3, {"tid": 1}),
    ],
)
def test_a_file_that_breaks_a_rule_is_refused(number: int, changes: dict[str, Any]) -> None:
    document = valid()
    event = document["traceEvents"][number]
    for key, value in changes.items():
        if value is None:
            del event[key]
        else:
            event[key] = value
    with pytest.raises((AssertionError, KeyError)):
        read_chrome_trace(as_text(document))


def test_an_arrow_never_leads_back_in_time() -> None:
    """The GPU's clock is converted with an error: work can seem to start, or even to end, before its call began."""
    call = np.array([(0, 0, 1, 10_000, 20_000, 1)], CALL)
    for start, end, arrows in ((9_600, 12_000, 1), (9_000, 9_900, 0)):
        work = works((0, 1)).work
        work["start_ns"], work["end_ns"], work["probe"], work["began_ns"] = start, end, 0, 10_000
        assert len(read(TitledTrace(works().changed(calls=call, work=work))).arrows) == arrows


def test_an_arrow_leads_from_each_call_to_its_work(report_1: Trace, shown: ReadTrace) -> None:
    assert len(shown.arrows) == len([row for row in range(len(report_1.calls)) if len(report_1.work_of(row))])
    for arrow in shown.arrows:
        assert (arrow.source.process, arrow.source.category) == ("host (SIMULATED)", "call")
        assert arrow.target.category == "gpu"
        assert arrow.source.begin_ns < arrow.target.begin_ns
        assert arrow.source.args["iteration"] == arrow.target.args["iteration"]


def test_the_delayed_copy_says_what_it_waited_for(report_1: Trace, shown: ReadTrace) -> None:
    (trigger,) = shown.instants
    assert trigger["args"] == {
        "probe": "d2d@secondary",
        "call": "cuMemcpyDtoDAsync",
        "phase": "start",
        "duration": trigger["args"]["duration"],
        "delay_cause": "context primary had the engine",
    }
    at = int(trigger["ts"] * 1000)
    arrow = next(each for each in shown.arrows if each.source.begin_ns == at)
    copy = arrow.target
    assert (copy.process, copy.thread) == ("GPU 0, context secondary (SIMULATED)", "stream own (d2d@secondary)")
    assert copy.name == "d2d@secondary: D2D copy"
    assert copy.args["delay_cause"] == "context primary had the engine"
    assert copy.args["delay_us"] * 1000 == copy.begin_ns - arrow.source.end_ns
    assert copy.args["delay_us"] > 1500
    assert {name: copy.args[name] for name in ("bytes", "direction", "from", "to")} == {
        "bytes": 1 << 20,
        "direction": "D2D",
        "from": "device",
        "to": "device",
    }
    # In between, the other context has the engine.
    holder = next(
        each for each in shown.of("engine") if arrow.source.end_ns < each.begin_ns and each.end_ns < copy.begin_ns
    )
    assert (holder.process, holder.thread) == ("GPU 0, context primary (SIMULATED)", "has the graphics engine")


def test_each_row_has_a_name_and_simulated_is_said(shown: ReadTrace) -> None:
    assert {(each.process, each.thread) for each in shown.slices} == {
        ("host (SIMULATED)", "spin"),
        ("host (SIMULATED)", "d2d@secondary"),
        ("host (SIMULATED)", "launch"),
        ("GPU 0, context primary (SIMULATED)", "has the graphics engine"),
        ("GPU 0, context primary (SIMULATED)", "stream own (spin)"),
        ("GPU 0, context primary (SIMULATED)", "stream own (launch)"),
        ("GPU 0, context secondary (SIMULATED)", "has the graphics engine"),
        ("GPU 0, context secondary (SIMULATED)", "stream own (d2d@secondary)"),
    }
    assert shown.about["gpu"] == "NVIDIA H200"
    (about,) = shown.about["traces"]
    assert about["simulated"] is True
    assert about["begin"].startswith("2026-02-02T")


def test_counters_are_events_of_their_own_process(report_1: Trace) -> None:
    begin_ns = report_1.begin_ns
    samples = tuple(CounterSample(begin_ns + at * MS, begin_ns + (at + 100) * MS, at / 2 + 0.25) for at in (-50, 50))
    trace = report_1.changed(counters=(CounterTrack("SM active", "%", samples),))
    (name, values) = next(iter(read(TitledTrace(trace)).counters.items()))
    assert name == "SM active (%)"
    assert {process for process, _, _ in values} == {"counters of the GPU (SIMULATED)"}
    # A value that holds at the begin of the trace is there from then on.
    (_, first_ns, first), (_, second_ns, second) = values
    assert (first, second) == (-24.75, 25.25)
    assert second_ns - first_ns <= 100 * MS


def test_short_delays_have_no_cause(shown: ReadTrace) -> None:
    short = [each for each in shown.of("gpu") if each.args.get("delay_us", 0) < 10]
    assert short
    assert all("delay_cause" not in each.args for each in short)


def test_nothing_is_said_of_the_engine_before_the_trace(shown: ReadTrace) -> None:
    """The delay of the first kernel began long before: who had the engine then is not recorded."""
    first = shown.of("gpu")[0]
    assert first.args["delay_us"] > 10_000
    assert "delay_cause" not in first.args


def test_overlapping_work_of_a_stream_is_on_further_threads() -> None:
    found = read(TitledTrace(works((0, 10), (5, 8), (8, 20), (9, 12), (20, 30))))
    lanes: dict[str, list[tuple[int, int]]] = {}
    for each in found.of("gpu"):
        lanes.setdefault(each.thread, []).append((each.begin_ns // 1000, each.end_ns // 1000))
    assert lanes == {
        "stream 0": [(0, 10), (20, 30)],
        "stream 0, overlap 1": [(5, 8), (8, 20)],
        "stream 0, overlap 2": [(9, 12)],
    }


def test_a_call_in_flight_lasts_until_the_end_of_the_trace(report_1: Trace) -> None:
    since = int(report_1.calls["returned_ns"].max()) + 1000
    end = since + 5 * MS
    found = read(TitledTrace(report_1.changed(end_ns=end, open_calls=(OpenCall(1, 0, since),))))
    (flight,) = [each for each in found.of("call") if "in_flight" in each.args]
    assert (flight.thread, flight.name) == ("d2d@secondary", "cuMemcpyDtoDAsync")
    assert flight.end_ns - flight.begin_ns == 5 * MS


def test_a_context_that_keeps_the_engine_has_it_until_the_end(report_1: Trace) -> None:
    tenures = np.array([(1, report_1.begin_ns - 60 * MS, OPEN)], TENURE)
    found = read(TitledTrace(report_1.changed(tenures=tenures)))
    (held,) = [each for each in found.of("engine") if each.process != "another process (SIMULATED)"]
    assert held.args == {"since_before_the_trace": True, "until_after_the_trace": True}
    assert held.begin_ns == 0


def test_another_process_has_a_row_of_its_own(report_1: Trace) -> None:
    found = read(TitledTrace(report_1.changed(tenures=np.empty(0, TENURE), others=("python (pid 7)",))))
    gaps = [each for each in found.of("engine") if each.name == "another process"]
    assert gaps
    assert {each.process for each in gaps} == {"another process (SIMULATED)"}
    assert gaps[0].args == {"candidates": "python (pid 7)"}


def test_the_time_of_the_driver_itself_is_shown() -> None:
    overheads = np.array([(1, OverheadKind.MODULE_LOADING, 1000, 5000), (2, 77, 3000, 6000)], OVERHEAD)
    found = read(TitledTrace(works((1, 2)).changed(overheads=overheads)))
    assert [each.name for each in found.of("overhead")] == ["module loading", "overhead 77"]


def test_several_traces_stand_one_after_the_other_under_their_titles(report_1: Trace) -> None:
    part = report_1.between(report_1.begin_ns, report_1.begin_ns + 60 * MS)
    found = read(TitledTrace(part, "first"), TitledTrace(report_1, "second"))
    ends = max(each.end_ns for each in found.slices if each.process.startswith("first: "))
    begins = min(each.begin_ns for each in found.slices if each.process.startswith("second: "))
    assert ends < begins
    assert [about["title"] for about in found.about["traces"]] == ["first", "second"]
    assert found.about["traces"][1]["begin_us"] * 1000 == begins


def test_names_from_outside_are_escaped(report_1: Trace) -> None:
    hostile = 'x"},{"ph":"X"\n\x1b[2J\u202e'
    probes = (replace(report_1.probes[0], name=hostile), *report_1.probes[1:])
    names = TraceNames({1: hostile, 2: "secondary"}, {})
    raw = text(TitledTrace(report_1.changed(probes=probes, names=names), hostile))
    assert "\x1b" not in raw
    assert "\u202e" not in raw
    found = read_chrome_trace(raw)
    assert any(each.thread == hostile for each in found.slices)
    assert len(found.slices) == len(read(TitledTrace(report_1)).slices)


def test_an_empty_trace_is_a_valid_file() -> None:
    assert read(TitledTrace(works())).slices == ()


def test_the_file_of_many_events_is_written_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory that a file takes does not depend on its size: rows are converted as the pieces are taken."""
    count, taken = 20_000, 0
    trace = works(*((0, 0) for _ in range(count)))
    trace.work["start_ns"] = np.arange(count) * 1000
    trace.work["end_ns"] = trace.work["start_ns"] + 500
    converted: list[int] = []
    numbered = chrome._numbered

    def counted(table: Rows, rows: Int64s) -> Iterator[tuple[int, tuple[int, ...]]]:
        for row, values in numbered(table, rows):
            converted.append(row)
            yield row, values

    monkeypatch.setattr(chrome, "_numbered", counted)
    sizes = []
    for piece in chrome.chunks([TitledTrace(trace)], {}):
        sizes.append(len(piece))
        assert len(converted) - taken < 4000
        taken = len(converted)
    assert len(converted) == count
    assert sum(sizes) > 50 * count
    assert max(sizes) < 2 * chrome.CHUNK


def test_a_name_in_gz_is_compressed_and_nothing_is_overwritten_unasked(report_1: Trace, tmp_path: Path) -> None:
    plain, packed = tmp_path / "trace.json", tmp_path / "trace.json.gz"
    save_trace(report_1, plain)
    save_trace(report_1, packed)
    assert gzip.decompress(packed.read_bytes()) == plain.read_bytes()
    assert json.loads(plain.read_text("utf-8"))["displayTimeUnit"] == "ns"
    with pytest.raises(FileNotWritten, match="already exists"):
        save_trace(report_1, plain)
    save_trace(report_1, plain, force=True)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["trace.json", "trace.json.gz"]
