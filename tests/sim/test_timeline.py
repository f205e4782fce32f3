"""The simulated GPU's timeline against what the simulation was told: planted delays, slices, and the same samples."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest

from factories.simulated_machine import SimulatedMachine, machine
from factories.timeline_values import ContextTenure, GpuInterval, TimelineSnapshot, snapshot_of
from stallprobes.catalog import Placement, entries
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.engine.timeline.reader import read_rows
from stallprobes.latency.histogram import Histogram
from stallprobes.model import MS, SECONDARY, Channel, Phase, Probe
from stallprobes.native.layouts.cupti import CopyKind, RecordKind
from stallprobes.records.timeline import BEGINNING, TimelineProblem


def probe(name: str, placement: Placement | None = None, period_ns: int | None = None) -> Probe:
    entry = entries()[name]
    return entry.probe(placement) if period_ns is None else entry.probe(placement, period_ns=period_ns)


def timeline(made: SimulatedMachine) -> TimelineSnapshot:
    status = made.backend.timeline()
    assert status is not None
    return snapshot_of(read_rows(made.board, BEGINNING, status), made.board.layout.names)


def traced(*probes: Probe, ns: int = 50 * MS, **options: object) -> tuple[SimulatedMachine, TimelineSnapshot]:
    made = machine(*probes, **options)
    made.backend.switch_timeline(True)
    made.switch(True)
    made.advance(ns)
    return made, timeline(made)


def of(seen: TimelineSnapshot, name: str) -> list[GpuInterval]:
    return [each for each in seen.intervals if each.probe == name]


def delays(intervals: Sequence[GpuInterval]) -> list[int]:
    return [each.delay_ns for each in intervals if each.delay_ns is not None]


def samples(made: SimulatedMachine, name: str, phase: Phase) -> Histogram:
    return made.board.snapshot().probes[name].channels[Channel(phase)]


def test_a_planted_delay_is_the_start_of_every_call() -> None:
    made, seen = traced(probe("launch"), sim_set={"engine.start_us": "50", "engine.empty_us": "3"})
    intervals = of(seen, "launch")
    assert len(intervals) > 40
    assert set(delays(intervals)) == {50_000}
    assert {each.end_ns - each.start_ns for each in intervals} == {3_000}
    # The first iteration is kept apart.
    assert samples(made, "launch", Phase.START) == Histogram.of([50_000] * (len(intervals) - 1))
    assert samples(made, "launch", Phase.GPU) == Histogram.of([3_000] * (len(intervals) - 1))
    assert samples(made, "launch", Phase.EARLY).count == 0
    assert made.board.snapshot().probes["launch"].first_ns[Channel(Phase.START)] == 50_000


def test_every_interval_names_the_call_that_submitted_it() -> None:
    _, seen = traced(probe("launch"), probe("d2d", Placement(SECONDARY)))
    calls = {(call.probe, call.iteration, call.op): call for call in seen.calls}
    assert len(seen.intervals) > 40
    for each in seen.intervals:
        assert each.probe is not None
        assert each.iteration is not None
        assert each.op is not None
        call = calls[each.probe, each.iteration, each.op]
        assert (each.began_ns, each.returned_ns) == (call.began_ns, call.returned_ns)


def within(interval: GpuInterval, tenures: Sequence[ContextTenure]) -> bool:
    return any(
        held.context == interval.context
        and held.start_ns <= interval.start_ns
        and (held.end_ns is None or interval.end_ns <= held.end_ns)
        for held in tenures
    )


def test_a_copy_in_a_secondary_context_waits_for_the_slice_of_the_kernel() -> None:
    slice_us = 2_000
    made, seen = traced(
        probe("d2d", Placement(SECONDARY)), probe("spin"), sim_set={"engine.timeslice_us": str(slice_us)}, ns=200 * MS
    )
    copies = of(seen, "d2d@secondary")
    held = list(seen.tenures())
    names = seen.status.contexts
    assert set(names.values()) == {"primary", "secondary"}
    slices = [
        each.end_ns - each.start_ns
        for each in held
        if each.end_ns is not None and names[each.context] == "primary" and each.end_ns - each.start_ns > MS
    ]
    assert slices
    assert set(slices) == {slice_us * 1_000}
    assert all(within(each, held) for each in copies)
    assert max(delays(copies)) > slice_us * 500
    worst = samples(made, "d2d@secondary", Phase.START).max_ns
    assert worst == max(delays(copies[1:]))


def test_two_contexts_never_hold_the_engine_at_once() -> None:
    _, seen = traced(probe("d2d", Placement(SECONDARY)), probe("spin"), ns=100 * MS)
    held = list(seen.tenures())
    assert len(held) > 20
    for one, other in pairwise(held):
        assert one.end_ns is not None
        assert one.end_ns <= other.start_ns


def test_a_pageable_copy_starts_before_its_call_returns() -> None:
    made, seen = traced(probe("d2h-pageable"))
    intervals = of(seen, "d2h-pageable")
    assert intervals
    assert all(delay < 0 for delay in delays(intervals))
    assert samples(made, "d2h-pageable", Phase.START).count == 0
    early = samples(made, "d2h-pageable", Phase.EARLY)
    assert early == Histogram.of([-delay for delay in delays(intervals)][1:])
    assert {(each.kind, each.copy, each.memory) for each in intervals} == {
        (RecordKind.COPY, CopyKind.DEVICE_TO_HOST, (3, 1))
    }


@pytest.mark.parametrize(
    ("name", "kind", "copy"),
    [
        ("launch", RecordKind.KERNEL, CopyKind.UNKNOWN),
        ("graph-launch", RecordKind.KERNEL, CopyKind.UNKNOWN),
        ("d2d", RecordKind.COPY, CopyKind.DEVICE_TO_DEVICE),
        ("d2h-pinned", RecordKind.COPY, CopyKind.DEVICE_TO_HOST),
        ("h2d-pinned", RecordKind.COPY, CopyKind.HOST_TO_DEVICE),
        ("peer-copy-direct", RecordKind.PEER_COPY, CopyKind.PEER),
    ],
)
def test_work_has_its_kind(name: str, kind: RecordKind, copy: CopyKind) -> None:
    _, seen = traced(probe(name), ns=30 * MS)
    intervals = of(seen, name)
    assert intervals
    assert {(each.kind, each.copy) for each in intervals} == {(kind, copy)}
    assert (kind is RecordKind.KERNEL) == ({each.nbytes for each in intervals} == {0})


def test_a_staged_copy_has_two_halves_as_a_recorded_one() -> None:
    """On an H200 the first half is on the call's stream, the second on one of the driver's in the other context.

    There the first half of some copies behind a kernel waits as well, with CUPTI 13.5, and none did with 13.0.
    """
    made, seen = traced(probe("peer-copy"), probe("peer-copy-behind-kernel"), ns=250 * MS)
    halves = of(seen, "peer-copy")
    assert {(each.kind, each.copy, each.memory, each.device) for each in halves} == {
        (RecordKind.COPY, CopyKind.DEVICE_TO_HOST, (3, 3), 0),
        (RecordKind.COPY, CopyKind.HOST_TO_DEVICE, (3, 3), 1),
    }
    contexts = {device: {each.context for each in halves if each.device == device} for device in (0, 1)}
    assert len(contexts[0]) == len(contexts[1]) == 1
    assert contexts[0] != contexts[1]
    # All second halves are on one stream, in the order of the calls; no first half waits for them.
    second = sorted((each for each in seen.intervals if each.device == 1), key=lambda each: each.start_ns)
    assert {each.probe for each in second} == {"peer-copy", "peer-copy-behind-kernel"}
    assert len({each.stream for each in second}) == 1
    began = [each.began_ns for each in second if each.began_ns is not None]
    assert began == sorted(began)
    first = [each for each in halves if each.device == 0]
    assert max(delays(first)) < MS
    assert max(delays([each for each in halves if each.device == 1])) > 80 * MS
    # The start of a call is that of its first half, and its time on the GPU that of both.
    calls = [each for each in seen.calls if each.probe == "peer-copy" and each.op == 0 and each.measured]
    ended = {each.iteration for each in halves if each.device == 1}
    on_gpu = samples(made, "peer-copy", Phase.GPU)
    assert on_gpu.count == len([each for each in calls if each.iteration in ended]) - 1
    took = {each.iteration: 0 for each in halves}
    for each in halves:
        took[each.iteration] += each.end_ns - each.start_ns
    assert on_gpu.max_ns == max(took[each.iteration] for each in calls if each.iteration in ended)
    assert samples(made, "peer-copy", Phase.START).max_ns < MS
    assert samples(made, "peer-copy", Phase.WAIT).max_ns > 80 * MS


def test_a_copy_from_the_host_to_another_gpu_is_on_a_stream_of_that_gpu_as_a_recorded_one() -> None:
    """On two H200 its record is that of a peer copy from pinned memory, on a stream of the driver's."""
    _, seen = traced(probe("host-relay-naive"), ns=30 * MS)
    work = of(seen, "host-relay-naive")
    assert {(each.op, each.kind, each.copy, each.memory, each.device) for each in work} == {
        (0, RecordKind.COPY, CopyKind.DEVICE_TO_HOST, (3, 2), 0),
        (1, RecordKind.PEER_COPY, CopyKind.PEER, (2, 3), 1),
    }
    assert len({each.context for each in work}) == 2
    assert min(delays([each for each in work if each.op == 1])) > 0


def test_samples_are_the_same_with_the_timeline_on_and_off() -> None:
    def run(on: bool) -> list[object]:
        made = machine(
            *(probe(name) for name in ("launch", "spin", "stream-churn", "d2h-pageable-warm")),
            probe("d2d", Placement(SECONDARY)),
            probe("event", period_ns=0),
        )
        made.backend.switch_timeline(on)
        made.switch(True)
        made.advance(60 * MS)
        return [part.samples.tolist() for part in made.board.snapshot().probes.values()]

    assert run(True) == run(False)


def test_intervals_do_not_depend_on_how_the_time_is_cut() -> None:
    def run(*steps: int) -> set[GpuInterval]:
        made = machine(probe("launch"), probe("d2d", Placement(SECONDARY)), probe("spin"))
        made.backend.switch_timeline(True)
        made.switch(True)
        for ns in steps:
            made.advance(ns)
        found = timeline(made).intervals
        return {each for each in found if each.end_ns < 1_000_000_000 + 50 * MS}

    def unnumbered(intervals: set[GpuInterval]) -> set[tuple[object, ...]]:
        return {(each.probe, each.start_ns, each.end_ns, each.returned_ns) for each in intervals}

    assert unnumbered(run(60 * MS)) == unnumbered(run(*[1_234_567] * 40, 60 * MS - 40 * 1_234_567))


def test_off_leaves_no_trace_and_on_again_continues() -> None:
    made = machine(probe("launch"))
    made.switch(True)
    made.advance(10 * MS)
    assert not timeline(made).intervals
    assert Channel(Phase.START) not in made.board.snapshot().probes["launch"].channels
    made.backend.switch_timeline(True)
    made.advance(10 * MS)
    made.backend.switch_timeline(False)
    count = len(timeline(made).intervals)
    assert count > 5
    made.advance(10 * MS)
    assert len(timeline(made).intervals) == count
    assert not timeline(made).status.on
    made.backend.switch_timeline(True)
    made.advance(10 * MS)
    assert len(timeline(made).intervals) > count


def test_the_timeline_of_an_engine_is_switched_and_read_by_its_session() -> None:
    with Session([probe("launch")], "sim", options=Options(timeline=True)) as session:
        status = session.timeline_status()
        assert status is not None
        assert status.on
        session.set_running(["launch"])
        session.run_for(0.02)
        first = snapshot_of(session.timeline_rows(), ("launch",))
        assert len(first.intervals) > 10
        off = session.switch_timeline(False, timeout=30)
        assert off is not None
        assert not off.on
        before = session.timeline_rows().position
        session.run_for(0.02)
        assert not snapshot_of(session.timeline_rows(before), ("launch",)).intervals
        on = session.switch_timeline(True, timeout=30)
        assert on is not None
        assert on.on
        session.run_for(0.02)
        assert {each.probe for each in snapshot_of(session.timeline_rows(before), ("launch",)).intervals} == {"launch"}


def test_a_session_without_a_gpu_says_that_there_is_none() -> None:
    with Session([entries()["host"].probe()], "host", options=Options(timeline=True)) as session:
        status = session.timeline_status()
        assert status is not None
        assert status.problem is TimelineProblem.NO_GPU
        assert status.sentence
