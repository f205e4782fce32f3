"""Traces of watched processes: calls, GPU work and tenures, as the timeline and Perfetto show them."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from factories.watch_calls import (
    D2H,
    MAIN,
    OTHER,
    at_ns,
    batch,
    call_batch,
    copy,
    kernel,
    overhead,
    process,
    slow,
    slow_batch,
    switch,
    thread,
)
from factories.watch_moments import SECOND_US, history, step, training
from stallprobes.model import Phase
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import OverheadKind, SwitchOperation
from stallprobes.native.layouts.watch_file import Window
from stallprobes.traces import chrome, codec
from stallprobes.traces.delay import calls_beside
from stallprobes.traces.trace import Trace
from stallprobes.watch.live import trace_history
from stallprobes.watch.live.trace_history import TriggeringCall, WatchTraceHistory
from stallprobes.watch.reading.record_windows import RecordWindows


def called(made: Trace, name: str) -> list[int]:
    """When the calls of a thread began, in µs."""
    number = [probe.name for probe in made.probes].index(name)
    begins = made.calls["began_ns"][made.calls["probe"] == number].tolist()
    return [(begin - at_ns(0)) // 1000 for begin in begins]


def test_it_has_slow_calls_calls_in_flight_and_the_work_of_the_gpu() -> None:
    made = history(2).trace()
    assert [probe.name for probe in made.probes] == ["MainThread", "loader"]
    assert called(made, "MainThread") == [step(number).begin_ns // 1000 - at_ns(0) // 1000 for number in range(20)]
    assert len(called(made, "loader")) == 4
    (flight,) = made.open_calls
    main = made.probes[flight.probe]
    assert (main.ops[flight.op], main.phases[flight.op]) == ("cuStreamSynchronize", Phase.WAIT)
    # 20 kernels and the 20 copies of slow calls.
    assert len(made.work) == 40
    submitted = made.work[made.work["probe"] >= 0]
    assert len(submitted) == 20
    assert set(submitted["began_ns"].tolist()) <= set(made.calls["began_ns"].tolist())
    assert list(made.kernels.values()) == ["add"] * 20
    assert (np.diff(made.work["start_ns"]) >= 0).all()


def test_a_span_and_its_trigger() -> None:
    one = step(12)
    trigger = TriggeringCall(MAIN, one.begin_ns, one.end_ns)
    made = history(2).trace(one.begin_ns - 10_000_000, one.end_ns + 10_000_000, trigger)
    assert called(made, "MainThread") == [1_201_000]
    assert made.trigger is not None
    assert made.trigger_call() == 0
    assert made.wall_s(one.begin_ns) == pytest.approx(1_700_000_001.201)
    assert history(2).trace(0, at_ns(0), trigger).trigger is None


def test_a_call_in_flight_is_a_trigger_too() -> None:
    kept = history(2)
    (flight,) = kept.trace().open_calls
    made = kept.trace(0, at_ns(2 * SECOND_US), TriggeringCall(MAIN, flight.since_ns, at_ns(2 * SECOND_US)))
    assert made.trigger is not None
    assert made.trigger.began_ns == flight.since_ns


def test_tenures_and_overheads() -> None:
    kept, offset = WatchTraceHistory(), 5_000_000_000
    work, switches = [], []
    # At irregular times, so that only one offset of the clocks fits.
    begin, rng = 1000.0, np.random.default_rng(3)
    for number in range(60):
        context = 1 + number % 2
        work.append(kernel(begin, begin + 50, context=context))
        gpu_ns = at_ns(begin) - 3840 + offset
        switches.append(switch(gpu_ns, context))
        switches.append(switch(gpu_ns + 60_000, context, SwitchOperation.END))
        begin += float(rng.integers(200, 900))
    records = batch([*work, *switches, overhead(OverheadKind.DRIVER_COMPILER, 10, 500)])
    watched = process(thread(MAIN, [slow(D2H, 0, 5000)]))
    kept.feed(watched, records, slow_batch(watched), at_ns(begin))
    made = kept.trace()
    assert made.context_switches
    assert set(made.tenures["context"].tolist()) == {1, 2}
    assert len(made.overheads) == 1


def test_contexts_and_threads_of_several_processes_are_kept_apart() -> None:
    kept = WatchTraceHistory()
    for pid in (100, 200):
        one = process(thread(pid, [slow(D2H, 0, 5000, thread=pid)], name="MainThread")).changed(pid=pid)
        kept.feed(one, batch([kernel(10, 20)]), slow_batch(one), at_ns(6000))
    made = kept.trace()
    assert [probe.name for probe in made.probes] == ["train 100 MainThread", "train 200 MainThread"]
    contexts = made.work["context"].tolist()
    assert len(set(contexts)) == 2
    assert [made.names.context(number) for number in contexts] == ["context 1 of train 100", "context 1 of train 200"]
    # Their calls overlap, and have nothing to do with each other.
    assert [probe.process for probe in made.probes] == [1, 2]
    assert calls_beside(made, 0) == []


def test_calls_of_two_threads_of_a_process_are_beside_each_other() -> None:
    kept = WatchTraceHistory()
    calls = [slow(D2H, 0, 5000, thread=one) for one in (MAIN, OTHER)]
    watched = process(thread(MAIN, calls[:1], name="MainThread"), thread(OTHER, calls[1:], name="loader"))
    kept.feed(watched, batch([kernel(10, 20)]), slow_batch(watched), at_ns(6000))
    made = kept.trace()
    assert [text.partition(" ")[0] for text, _ in calls_beside(made, 0)] == ["loader"]
    assert made.probes[0].shared == "process"


def test_threads_of_one_name_are_told_apart_by_their_numbers() -> None:
    kept = WatchTraceHistory()
    calls = [slow(D2H, 0, 5000, thread=one) for one in (MAIN, OTHER)]
    watched = process(thread(MAIN, calls[:1], name="work"), thread(OTHER, calls[1:], name="work"))
    kept.feed(watched, batch([kernel(10, 20)]), slow_batch(watched), at_ns(6000))
    assert [probe.name for probe in kept.trace().probes] == [f"work {MAIN}", f"work {OTHER}"]


def test_what_is_old_or_too_much_is_dropped_and_the_latter_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = WatchTraceHistory(keep_ns=1_020_000_000)
    for second in range(5):
        base = second * SECOND_US
        watched = process(thread(MAIN, [slow(D2H, base, base + 5000)]))
        kept.feed(watched, batch([kernel(base, base + 10)]), slow_batch(watched), at_ns(base + 10_000))
    made = kept.trace()
    assert (called(made, "thread-100"), kept.left_out_ns) == ([3 * SECOND_US, 4 * SECOND_US], 0)
    assert len(made.work) == 2
    monkeypatch.setattr(trace_history, "MOST_RECORDS", 10)
    monkeypatch.setattr(trace_history, "MOST_CALLS", 3)
    kept = WatchTraceHistory(keep_ns=None)
    for second in range(5):
        base = second * SECOND_US
        records = batch([kernel(base + at, base + at + 1) for at in range(4)])
        watched = process(thread(MAIN, [slow(D2H, base, base + 5000)]))
        kept.feed(watched, records, slow_batch(watched), at_ns(base + 10_000))
    made = kept.trace()
    assert (len(made.work), len(made.calls)) == (8, 3)
    assert kept.left_out_ns == at_ns(2 * SECOND_US + 10_000)


def test_a_trace_without_a_slow_call_has_the_work_of_the_gpu() -> None:
    kept = WatchTraceHistory()
    kept.feed(process(thread(OTHER)), batch([kernel(10, 20), copy(30, 40)]), call_batch(), at_ns(50))
    made = kept.trace()
    assert (made.probes, len(made.calls), len(made.work)) == ((), 0, 2)
    assert WatchTraceHistory().trace().span_ns == 0


def test_it_is_stored_and_written_for_perfetto_with_the_names_of_kernels() -> None:
    made = history(1).trace()
    read = codec.StoredTrace.of(made).trace()
    assert read.kernels == made.kernels
    assert read.work["sequence"].tolist() == made.work["sequence"].tolist()
    assert (read.calls["returned_ns"] == made.calls["returned_ns"]).all()
    text = b"".join(chrome.chunks([chrome.TitledTrace(made)], {})).decode()
    names = [event["name"] for event in json.loads(text)["traceEvents"] if event.get("cat") == "gpu"]
    assert sorted(set(names)) == ["MainThread: D2H copy", "add"]


def test_times_without_records_are_marked_stored_and_written() -> None:
    kept, (watched, records) = WatchTraceHistory(), training(1)
    begin_ns, end_ns = at_ns(300_000), at_ns(600_000)
    rows = np.zeros(2, dtype_of(Window))
    rows["began_ns"], rows["ended_ns"], rows["records"] = (at_ns(0), begin_ns), (begin_ns, end_ns), (1, 0)
    watched = watched.changed(windows=RecordWindows.of(rows))
    kept.feed(watched, records, slow_batch(watched), at_ns(SECOND_US))
    made = kept.trace()
    assert made.unrecorded == ((begin_ns, end_ns),)
    assert kept.trace(at_ns(400_000), at_ns(500_000)).unrecorded == ((at_ns(400_000), at_ns(500_000)),)
    assert made.recorded_share(at_ns(500_000), at_ns(900_000)) == pytest.approx(0.75)
    assert codec.StoredTrace.of(made).trace().unrecorded == made.unrecorded
    text = b"".join(chrome.chunks([chrome.TitledTrace(made)], {})).decode()
    assert [event["dur"] for event in json.loads(text)["traceEvents"] if event.get("cat") == "unrecorded"] == [300_000]


def test_work_whose_records_have_not_come_is_not_known() -> None:
    watched = process(thread(MAIN, [slow(D2H, 0, 5000)])).changed(ended_ns=None)
    kept = WatchTraceHistory()
    kept.feed(watched, batch([kernel(100_000, 400_000)]), slow_batch(watched), at_ns(600_000))
    made = kept.trace()
    assert made.collected_ns == at_ns(400_000)
    assert made.recorded_share(at_ns(200_000), at_ns(600_000)) == pytest.approx(0.5)
    # No record takes longer than a second.
    kept.feed(watched, batch([]), slow_batch(watched), at_ns(2_400_000))
    assert kept.trace().collected_ns == at_ns(1_400_000)
    assert kept.trace(end_ns=at_ns(500_000)).collected_ns == at_ns(500_000)
    # A program that has ended has no more work.
    kept.feed(watched.changed(ended_ns=at_ns(2_000_000)), batch([]), slow_batch(watched), at_ns(2_500_000))
    assert kept.trace().collected_ns == at_ns(2_500_000)


def test_hostile_records_make_no_impossible_rows() -> None:
    _, records = training(1)
    rows = records.rows.copy()
    rows["bytes"][:] = 2**64 - 1
    rows["end"][0] = 0
    rows["start"][1] = 2**64 - 1
    kept = WatchTraceHistory()
    kept.feed(training(1)[0], replace(records, rows=rows), call_batch(), at_ns(SECOND_US))
    codec.StoredTrace.of(codec.cut(kept.trace())).trace()
