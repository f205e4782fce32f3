"""The timeline on a real GPU: starts and tenures of report 1, other delays, switching, and an engine that is killed."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace

import numpy as np
import pytest

from factories.timeline_values import snapshot_of
from stallprobes.catalog import Placement, entries
from stallprobes.engine.backend import Options
from stallprobes.engine.gpu_work import submissions
from stallprobes.engine.session import Session
from stallprobes.errors import EngineFailed, Unsupported
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import Window
from stallprobes.model import MS, SECONDARY, Channel, Phase, Probe, Role
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.patterns import patterns
from stallprobes.records.libcupti import without_context_switches
from stallprobes.records.timeline import TimelineProblem
from stallprobes.traces.delay import DelayCause, delay_of
from stallprobes.traces.history import TraceHistory
from stallprobes.traces.trace import Trace

# The first switch compiles the collector.
SWITCH_S = 90.0
COPY = "copy"
# Everything else that keeps the timeline off is a failure: the dependencies bring libcupti.
NOT_FOR_THIS_GPU = (TimelineProblem.CONFIDENTIAL_COMPUTING, TimelineProblem.VIRTUAL_GPU)

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]


def probe(entry: str, placement: Placement | None = None, name: str | None = None) -> Probe:
    return replace(entries()[entry].probe(placement or Placement()), name=name or entry)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """A copy in a secondary context, a launch and the spin kernel in the primary one, with the timeline on."""
    probes = [probe("d2d", Placement(context=SECONDARY), COPY), probe("launch"), probe("spin")]
    probes += [probe("d2h-pageable"), probe("graph-launch"), probe("h2d-pinned"), probe("event")]
    with Session(probes, "cuda", options=Options()) as made:
        status = made.switch_timeline(True, SWITCH_S)
        assert status is not None
        if status.problem in NOT_FOR_THIS_GPU:
            pytest.skip(status.sentence)
        assert status.on, status.sentence
        yield made


def windows(session: Session, *names: str, seconds: float = 1.0) -> Mapping[str, Window]:
    session.set_running({probe.name: probe.name in names for probe in session.probes})
    session.run_for(0.5)
    before = session.snapshot()
    session.run_for(seconds)
    return session.snapshot().minus(before)


def histogram(window: Window, phase: Phase) -> Histogram:
    return window.channels[Channel(phase)]


def p50(window: Window, phase: Phase) -> float:
    value = histogram(window, phase).percentile(50)
    assert value is not None
    return value


def trace(session: Session, seconds: float = 0.5) -> Trace:
    history = TraceHistory(session.probes)
    history.position = session.timeline_rows().position
    begin = None
    for _ in range(round(seconds / 0.1)):
        session.run_for(0.1)
        history.feed(session.timeline_rows(history.position), 0.0)
        begin = begin or history.collected_ns
    assert begin is not None
    return history.trace(begin, history.collected_ns)


def require_context_switches(session: Session, found: Trace) -> None:
    """Skip with a libcupti that has no records of context switches; fail if it has them and none arrived."""
    status = session.timeline_status()
    assert status is not None
    if without_context_switches(status.version)[0]:
        pytest.skip(status.note)
    assert found.context_switches, status.note


def test_alone_every_copy_starts_within_microseconds(session: Session) -> None:
    window = windows(session, COPY)[COPY]
    started, early = histogram(window, Phase.START), histogram(window, Phase.EARLY)
    assert started.count + early.count >= 0.9 * histogram(window, Phase.CALL).count
    assert (started.percentile(50) or 0) < 30_000
    # 1 MiB at some TB/s.
    assert 500 < p50(window, Phase.GPU) < 50_000


def test_beside_a_kernel_in_another_context_a_copy_starts_a_time_slice_later(session: Session) -> None:
    window = windows(session, COPY, "spin", seconds=2)[COPY]
    start, wait = p50(window, Phase.START), p50(window, Phase.WAIT)
    assert 1 * MS < start < 4 * MS
    # What the host waits for is the start, and the copy itself.
    assert abs(wait - start) < 0.2 * wait


def test_the_delay_is_due_to_the_context_of_the_kernel(session: Session) -> None:
    windows(session, COPY, "spin", seconds=0.1)
    found = trace(session)
    require_context_switches(session, found)
    rows = found.work[found.work["probe"] == 0]
    slow = rows[rows["start_ns"] - rows["returned_ns"] > MS]
    assert len(slow) > 20
    causes = []
    for row in slow[2:]:
        delay = delay_of(found, row)
        assert delay is not None
        main = delay.main()
        assert main is not None
        causes.append(main.cause)
    assert causes.count(DelayCause.CONTEXT) >= 0.9 * len(causes)


def test_contexts_have_the_engine_in_turn(session: Session) -> None:
    windows(session, COPY, "spin", seconds=0.1)
    found = trace(session)
    require_context_switches(session, found)
    lengths: dict[int, list[int]] = {}
    for context, start, end in found.tenures.tolist():
        if end < found.end_ns:
            lengths.setdefault(context, []).append(end - start)
    assert len(lengths) == 2
    longest = max(np.median(each) for each in lengths.values())
    assert 1.5 * MS < longest < 3 * MS


def test_a_pageable_copy_starts_before_its_call_returns(session: Session) -> None:
    window = windows(session, "d2h-pageable")["d2h-pageable"]
    assert histogram(window, Phase.EARLY).count > 0.9 * histogram(window, Phase.CALL).count


def test_nothing_is_lost_at_the_usual_rates(session: Session) -> None:
    windows(session, COPY, "launch", "d2h-pageable", seconds=3)
    rows = session.timeline_rows()
    assert rows.losses.dropped == 0
    assert rows.losses.exhausted == 0
    assert rows.cost.records > 1000
    assert RecordKind.KERNEL in (rows.status.kinds if rows.status else ())


SUBMITTING = [
    entry.probe() for entry in entries().values() if entry.needs.gpus == 1 and submissions(entry.probe().program)
]


# More of them need too much memory of the GPU together.
AT_ONCE = 4


@pytest.mark.parametrize("first", range(0, len(SUBMITTING), AT_ONCE))
def test_the_work_of_every_probe_has_its_records(first: int) -> None:
    """One probe after the other: CUPTI 13.5 had no records of peer copies."""
    probes = SUBMITTING[first : first + AT_ONCE]
    without = {}
    with Session(probes, "cuda", options=Options(timeline=True)) as made:
        for one in probes:
            made.set_running([one.name])
            made.run_for(0.1)
            position = made.timeline_rows().position
            made.run_for(0.3)
            made.set_running([])
            made.run_for(0.1)
            seen = snapshot_of(made.timeline_rows(position), tuple(each.name for each in probes))
            ops = {work.op for work in submissions(one.program)}
            calls = {(call.iteration, call.op) for call in seen.calls if call.probe == one.name and call.op in ops}
            found = {(work.iteration, work.op) for work in seen.intervals if work.probe == one.name}
            # The records of the first calls came before the position.
            missing = len(calls - found)
            if not calls or missing > 2 + len(calls) // 20:
                without[one.name] = f"{missing} of {len(calls)}"
    assert without == {}


@pytest.mark.parametrize("name", ["staged", "direct", "host-relay-naive", "host-relay"])
def test_copies_between_two_gpus_have_their_records(name: str) -> None:
    """The second half of a staged copy and a copy from the host to another GPU are on streams of the driver's."""
    variant = patterns()["peer-copy-behind-kernel"].variant(name)
    [victim] = [one.name for one in variant.probes if one.role is Role.VICTIM]
    with ExitStack() as stack:
        try:
            made = stack.enter_context(Session(variant.probes, "cuda", options=Options(timeline=True)))
        except Unsupported as reason:
            pytest.skip(str(reason))
        found = windows(made, victim)[victim]
        rows = made.timeline_rows()
    if rows.status.problem in NOT_FOR_THIS_GPU:
        pytest.skip(rows.status.sentence)
    calls = histogram(found, Phase.CALL).count
    assert calls > 100
    # Those of the last calls come with the next flush.
    assert abs(histogram(found, Phase.START).count + histogram(found, Phase.EARLY).count - calls) < 10
    assert abs(histogram(found, Phase.GPU).count - calls) < 10
    delay = histogram(found, Phase.START).percentile(50)
    assert delay is None or delay < MS
    assert rows.losses.unmatched == 0


def test_a_hundred_switches_leave_the_engine_alive(session: Session) -> None:
    """Calls of all kinds are under way whenever CUPTI is attached or detached."""
    session.set_running({probe.name: probe.name != "spin" for probe in session.probes})
    for number in range(100):
        status = session.switch_timeline(number % 2 == 1, SWITCH_S)
        assert status is not None
        assert status.problem is None
        assert status.on == (number % 2 == 1)
    assert session.alive
    found = windows(session, "launch", "graph-launch", COPY)
    for name in ("launch", "graph-launch", COPY):
        assert histogram(found[name], Phase.START).count + histogram(found[name], Phase.EARLY).count > 100


def test_an_engine_that_is_killed_with_the_timeline_on_is_reported() -> None:
    with Session([probe("launch")], "cuda", options=Options(timeline=True)) as made:
        made.set_running(["launch"])
        made.run_for(0.2)
        assert made.engine_pid is not None
        os.kill(made.engine_pid, signal.SIGKILL)
        with pytest.raises(EngineFailed):
            made.run_for(5)
