"""What holds for every program: random ones on a few streams of a few contexts, each job of theirs looked at."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.sim import device
from stallprobes.engine.sim.backend import SimBackend
from stallprobes.engine.sim.clock import NEVER, Clock
from stallprobes.engine.sim.copy_engine import CopyEngine
from stallprobes.engine.sim.device import SimStream
from stallprobes.engine.sim.graphics_engine import GraphicsEngine
from stallprobes.engine.sim.jobs import Job
from stallprobes.engine.sim.parameters import EngineParameters
from stallprobes.model import (
    KIB,
    MIB,
    MS,
    PRIMARY,
    SECONDARY,
    THIRD,
    Buffer,
    Context,
    Event,
    Kernel,
    KernelArgs,
    Op,
    Phase,
    Probe,
    Program,
    Role,
    Space,
    Stream,
    StreamKind,
    null_stream,
)

CONTEXTS = (PRIMARY, SECONDARY, THIRD)


def streams(context: Context) -> list[Stream]:
    return [
        Stream("one", context),
        Stream("two", context),
        Stream("blocking", context, StreamKind.BLOCKING),
        null_stream(context),
    ]


@st.composite
def ops(draw: st.DrawFn, context: Context) -> list[Op]:
    """Some ops of one turn, ended by a wait so that no queue grows for ever."""
    found = []
    used = []
    for number in range(draw(st.integers(1, 6))):
        stream = draw(st.sampled_from(streams(context)))
        used.append(stream)
        size = draw(st.sampled_from([4, 64 * KIB, MIB]))
        device, other = (Buffer(name, Space.DEVICE, MIB, context) for name in ("device", "other"))
        host = Buffer("host", draw(st.sampled_from([Space.PINNED, Space.PAGEABLE])), MIB, context)
        event = Event(f"event {number % 2}", context)
        kernel = KernelArgs(draw(st.integers(1, 3_000_000)))
        found.append(
            draw(
                st.sampled_from(
                    [
                        Op("cuLaunchKernel", (Kernel("empty", context), 1, 1, stream, KernelArgs())),
                        Op("cuLaunchKernel", (Kernel("spin", context), 16, 256, stream, kernel)),
                        Op("cuLaunchKernel", (Kernel("spin", context), 0, 256, stream, kernel)),
                        Op("cuMemcpyDtoDAsync", (device, other, size, stream)),
                        Op("cuMemcpyDtoHAsync", (host, device, size, stream)),
                        Op("cuMemcpyHtoDAsync", (device, host, size, stream)),
                        Op("cuEventRecord", (event, stream)),
                        Op("cuStreamWaitEvent", (stream, event, 0)),
                    ]
                )
            )
        )
    return [*found, *(Op("cuStreamSynchronize", (stream,), Phase.WAIT) for stream in dict.fromkeys(used))]


@st.composite
def probes(draw: st.DrawFn) -> list[Probe]:
    found = []
    for number in range(draw(st.integers(1, 3))):
        context = draw(st.sampled_from(CONTEXTS))
        period_ns = draw(st.sampled_from([0, 500_000, MS]))
        program = Program(ops=tuple(draw(ops(context))), context=context)
        name = f"probe {number}"
        found.append(Probe(name, name, Role.VICTIM, program, period_ns, entry=name))
    return found


@contextmanager
def watched() -> Iterator[dict[SimStream, list[Job]]]:
    """Every job by its stream, in the order of submission, as long as this lasts."""
    jobs: dict[SimStream, list[Job]] = defaultdict(list)
    submit = SimStream.submit

    def note(stream: SimStream, job: Job, also_after: Job | None = None) -> None:
        submit(stream, job, also_after)
        jobs[stream].append(job)

    SimStream.submit = note  # type: ignore[method-assign, assignment]
    try:
        yield jobs
    finally:
        SimStream.submit = submit  # type: ignore[method-assign]


@dataclass
class Segment:
    """An uninterrupted piece of a job's time on the graphics engine (ns)."""

    context: str
    job: Job
    start: int
    end: int


class LoggedEngine(GraphicsEngine):
    """A graphics engine that keeps the segments of all jobs."""

    def __init__(self, clock: Clock, parameters: EngineParameters, threads: int, sms: int) -> None:
        super().__init__(clock, parameters, threads, sms)
        self.segments: list[Segment] = []

    def _start(self, job: Job, ready: int) -> None:
        start = max(self._available, ready)
        super()._start(job, ready)
        assert job.queue is not None
        self.segments.append(Segment(job.queue.name, job, start, job.end))

    def _preempt(self) -> None:
        for job in self._running:
            last = next(segment for segment in reversed(self.segments) if segment.job is job)
            last.end = max(self._clock.now, last.start)
        super()._preempt()


def run(chosen: list[Probe], seed: int) -> tuple[dict[SimStream, list[Job]], list[Segment], Board]:
    board = Board.create(BoardLayout.of(chosen))
    backend = SimBackend()
    with watched() as jobs, patch.object(device, "GraphicsEngine", LoggedEngine):
        backend.prepare(chosen, board, Options(seed=seed))
        graphics = backend._simulation.gpus[0].graphics
        assert isinstance(graphics, LoggedEngine)
        backend.start()
        for probe in chosen:
            board[probe.name].words.run = 1
        last = board.now()
        for _ in range(6):
            backend.advance(5 * MS)
            assert board.now() == last + 5 * MS
            last = board.now()
        assert not backend.poll()
    return jobs, graphics.segments, board


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(chosen=probes(), seed=st.integers(0, 1_000))
def test_what_holds_for_every_program(chosen: list[Probe], seed: int) -> None:
    jobs, segments, board = run(chosen, seed)
    now = board.now()
    for line in jobs.values():
        for job in line:
            if job.start < NEVER:
                assert job.start >= job.submitted, "no op starts before it is submitted"
            if job.end < NEVER:
                assert job.end >= job.start, "time only goes forward"
        for earlier, later in pairwise(line):
            if later.start <= now:
                assert earlier.end <= later.start, "streams stay in order"
    _one_context_at_a_time(segments, now)
    _one_transfer_at_a_time(jobs)
    _rings_go_forward(board, chosen)


def _one_context_at_a_time(segments: list[Segment], now: int) -> None:
    seen = sorted((part for part in segments if part.start < now), key=lambda part: part.start)
    latest: dict[str, int] = {}
    for part in seen:
        for context, end in latest.items():
            assert context == part.context or end <= part.start, "one context on the engine at a time"
        latest[part.context] = max(latest.get(part.context, 0), part.end)


def _one_transfer_at_a_time(jobs: dict[SimStream, list[Job]]) -> None:
    by_engine: dict[object, list[Job]] = defaultdict(list)
    for line in jobs.values():
        for job in line:
            if isinstance(job.engine, CopyEngine) and job.start < NEVER:
                by_engine[job.engine].append(job)
    for transfers in by_engine.values():
        ordered = sorted(transfers, key=lambda job: job.start)
        for context in {job.queue for job in ordered}:
            for earlier, later in pairwise([job for job in ordered if job.queue is context]):
                assert earlier.end <= later.start, "one transfer of a context on an engine at a time"
        # One that another context interrupts lasts longer, by what the engine does meanwhile.
        for number, first in enumerate(ordered):
            inside = [job for job in ordered[number:] if job.end <= first.end]
            assert sum(job.ns for job in inside) <= first.end - first.start, "one transfer on an engine at a time"


def _rings_go_forward(board: Board, chosen: list[Probe]) -> None:
    for probe in chosen:
        samples = board.snapshot().probes[probe.name].samples
        assert (np.diff(samples["end_ns"]) >= 0).all()
        assert (samples["value_ns"] >= 0).all()
        assert (samples["end_ns"] <= board.now()).all()
