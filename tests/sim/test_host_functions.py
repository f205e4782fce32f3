"""Host functions on the simulated GPU: one at a time in a context, and in nobody else's way."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, partial

import pytest

from factories.simulated_machine import WAIT, at_us, machine, p50_us, program_probe
from stallprobes.catalog import Placement, entries, on_shared_stream
from stallprobes.engine.sim.clock import Clock, Wait
from stallprobes.engine.sim.host_functions import HostFunctionThread
from stallprobes.engine.sim.jobs import CallingEngine, Job
from stallprobes.latency.window import Window
from stallprobes.model import GREEN, MS, SECONDARY, HostFunction, Op, Phase, Stream, Word
from stallprobes.patterns import patterns

NS = 500 * MS
# The driver's thread sleeps between host functions: on an H200 p50 50 to 65 us and p99 0.5 ms.
QUIET_WAIT_US = 100
QUIET_TAIL_US = 1_000


@cache
def windows(variant: str) -> Mapping[str, Window]:
    return machine(*patterns()["host-callback"].variant(variant).probes).run(NS)


@pytest.mark.parametrize(("variant", "longest_us"), [("busy-1ms", 1_000), ("busy-10ms", 10_000), ("mutex", 5_000)])
def test_a_short_host_function_waits_for_a_long_one_of_another_stream(variant: str, longest_us: float) -> None:
    waits = windows(variant)["callback"]
    assert 0.9 * longest_us < at_us(waits, 99, WAIT) < 1.1 * longest_us


@pytest.mark.parametrize("variant", [one.name for one in patterns()["host-callback"].variants])
def test_launches_and_copies_wait_for_no_host_function(variant: str) -> None:
    seen, quiet = windows(variant), windows("event")
    for victim in ("launch", "d2h-pinned"):
        for channel in seen[victim].channels:
            if channel.phase in (Phase.CALL, Phase.WAIT):
                assert p50_us(seen[victim], channel) < 1.3 * p50_us(quiet[victim], channel)


@pytest.mark.parametrize("remedy", ["short", "event"])
def test_a_short_host_function_and_an_event_cure_it(remedy: str) -> None:
    waits = windows(remedy)["callback"]
    assert p50_us(waits, WAIT) < QUIET_WAIT_US
    assert at_us(waits, 99, WAIT) < QUIET_TAIL_US


def test_host_functions_of_another_context_do_not_wait() -> None:
    def waits(placement: Placement) -> float:
        victim, long = entries()["callback"].probe(placement), entries()["callback-10ms"].probe()
        return p50_us(machine(victim, long).run(NS)[victim.name], WAIT)

    assert waits(Placement(SECONDARY)) < QUIET_WAIT_US
    assert waits(Placement(GREEN)) > 5_000


def test_work_behind_a_host_function_in_its_stream_waits() -> None:
    place = on_shared_stream()
    launch, long = entries()["launch"].probe(place), entries()["callback-10ms"].probe(place)
    assert p50_us(machine(launch, long).run(NS)[launch.name], WAIT) > 5_000


def test_the_thread_calls_one_at_a_time_in_the_order_in_which_they_are_ready() -> None:
    clock = Clock()
    thread, spans = HostFunctionThread(clock), []
    began = clock.now

    def call(ns: int) -> Wait:
        start = clock.now - began
        yield ns
        spans.append((start, clock.now - began))

    def submit(ns: int, ready: int) -> Job:
        job = Job(clock, CallingEngine(partial(thread.add, call=partial(call, ns), wake_ns=7)), 0)
        job.engine.enqueue(job, began + ready)
        return job

    jobs = [submit(1_000, 50), submit(300, 10), submit(10, 5_000)]
    clock.run(until=began + 10_000)
    # It wakes up for the first one only.
    assert spans == [(57, 1_057), (1_057, 1_357), (5_000, 5_010)]
    assert [(job.start - began, job.end - began) for job in jobs] == spans


def test_a_mutex_that_nobody_releases_is_given_up_and_counted() -> None:
    """A driver that stopped the holder's launch meanwhile would be a deadlock; the watchdog bounds it."""
    mutex, forced, stream = Word("held"), Word("forced"), Stream("own")
    ops = [
        Op("native:store", (mutex, 1), phase=None),
        Op("cuLaunchHostFunc", (stream, HostFunction("mutex", mutex, forced, 60_000 * MS))),
        Op("cuStreamSynchronize", (stream,), Phase.WAIT),
    ]
    made = machine(program_probe("stuck", ops), watchdog_ns=20 * MS)
    seen = made.run(NS)["stuck"]
    assert 20_000 < p50_us(seen, WAIT) < 20_100
    (bound,) = made.backend._machine._gates
    assert bound.forced.value >= 20
    assert bound.word.value == 1


def test_a_mutex_that_is_not_released_in_time_is_reported_to_the_program() -> None:
    mutex = Word("held")
    ops = [Op("native:store", (mutex, 1), phase=None), Op("native:lock", (mutex, 5 * MS))]
    made = machine(program_probe("impatient", ops))
    made.run(NS)
    assert [failure.code for failure in made.probe_failures] == [1]


def test_stopping_ends_every_host_function_that_waits() -> None:
    probes = patterns()["host-callback"].variant("mutex").probes
    made = machine(*probes, watchdog_ns=600_000 * MS)
    made.run(20 * MS)
    assert made.backend.stop(5.0)
