"""Several threads of one kind on the simulated GPU: launches that meet in a lock, and polls that take none."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from factories.simulated_machine import CALL, WAIT, at_us, machine, p50_us, program_probe
from stallprobes.catalog import Placement, entries
from stallprobes.latency.window import Window
from stallprobes.model import (
    GREEN,
    MS,
    SECONDARY,
    THIRD,
    Channel,
    Event,
    Kernel,
    KernelArgs,
    Op,
    Phase,
    Stream,
)
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import parse_probes

RECORD = Channel(Phase.CALL, "cuEventRecord")
NS = 500 * MS


@cache
def windows(pattern: str, variant: str) -> Mapping[str, Window]:
    """The windows of a variant with everything on. The first 0.1 s pass before."""
    return machine(*patterns()[pattern].variant(variant).probes, rings=False).run(NS)


@cache
def alone(pattern: str) -> Mapping[str, Window]:
    """The windows of the victims of a pattern with no aggressor on."""
    made = machine(*patterns()[pattern].variants[0].probes, rings=False)
    made.switch(True, [probe.name for probe in made.probes if probe.role.value == "victim"])
    made.advance(100 * MS)
    return made.window(NS)


def tail(pattern: str, variant: str, victim: str, channel: Channel = CALL) -> float:
    """The p99 beside the aggressors over that without."""
    return at_us(windows(pattern, variant)[victim], 99, channel) / at_us(alone(pattern)[victim], 99, channel)


def median(pattern: str, variant: str, victim: str, channel: Channel = CALL) -> float:
    return p50_us(windows(pattern, variant)[victim], channel) / p50_us(alone(pattern)[victim], channel)


def test_three_threads_delay_each_other_as_on_an_h200() -> None:
    """A launch each 20 us in three threads in place of one: there p50 2.8 -> 3.5 us and p99 5.1 -> 8 us. Periods that
    differ a little let every thread meet the others at all times."""

    def launches(threads: int) -> tuple[float, float]:
        probes = [entries()["launch"].probe(name=f"{one}", period_ns=20_000 + 700 * one) for one in range(threads)]
        seen = machine(*probes, rings=False).run(50 * MS)
        middle, tail = (sum(at_us(seen[probe.name], q) for probe in probes) / threads for q in (50, 99))
        return middle, tail

    (one_middle, one_tail), (middle, tail) = launches(1), launches(3)
    assert 1.05 < middle / one_middle < 1.6
    assert 1.1 < tail / one_tail < 2


def test_launches_wait_for_those_of_16_threads_and_hardly_for_those_of_one() -> None:
    assert tail("launch-storm", "x1", "launch") < 1.5
    assert tail("launch-storm", "x4", "launch") < 3
    assert 4 < tail("launch-storm", "x16", "launch") < 15
    # Each of the 16 threads waits for the others too, for about 3 us each, and none starves.
    storm = windows("launch-storm", "x16")
    assert 20 < p50_us(storm["launch-burst 7"], Channel(Phase.CALL, "launches")) < 60
    assert len({storm[f"launch-burst {number}"].iterations for number in range(1, 17)}) <= 2


def test_event_records_wait_for_launches_and_launches_little_for_records() -> None:
    assert tail("launch-storm", "x16", "event", RECORD) > 40
    assert tail("launch-storm", "records-x16", "launch") < 1.5


@pytest.mark.parametrize("remedy", ["graphs-x16", "one-thread"])
def test_graphs_and_one_launching_thread_cure_it(remedy: str) -> None:
    assert tail("launch-storm", remedy, "launch") < 2
    assert median("launch-storm", remedy, "launch") < 1.2


def test_the_lock_of_launches_belongs_to_a_context() -> None:
    def launches(placement: Placement) -> float:
        victim = entries()["launch"].probe(placement)
        return at_us(machine(victim, *parse_probes("launch-burst-x16"), rings=False).run(NS)["launch"], 99)

    quiet = at_us(alone("launch-storm")["launch"], 99)
    assert launches(Placement(SECONDARY)) < 2 * quiet
    assert launches(Placement(GREEN)) > 4 * quiet


@pytest.mark.parametrize("variant", ["x1", "x16", "streams-x16", "back-off-x16", "blocking-x16"])
def test_threads_that_poll_hold_no_lock(variant: str) -> None:
    """That a query needs none is measured on an H200; what many of them cost is a guess, and a small one."""
    for victim in ("launch", "d2h-pinned"):
        assert median("event-poll-storm", variant, victim) < 1.3
        assert median("event-poll-storm", variant, f"{victim}", WAIT) < 1.1


def test_the_cost_of_polling_grows_with_the_threads_and_is_a_parameter() -> None:
    launch = entries()["launch"].probe(period_ns=100_000)

    def calls(name: str, **settings: str) -> float:
        return p50_us(machine(launch, *parse_probes(name), sim_set=settings, rings=False).run(50 * MS)["launch"])

    one, many = calls("event-poll-x2"), calls("event-poll-x16")
    assert 1.05 < many / one < 1.4
    assert calls("event-poll-x16", poll="0.1") > 2 * one
    assert calls("event-backoff-x16", poll="0.1") < 1.1 * one


def test_how_soon_a_thread_notices_the_end_of_its_kernel() -> None:
    """By polling within a query, with pauses within a pause and the timer's delay, asleep after a wake-up."""
    kernel = 4_000.0
    polled, paused, slept = (
        machine(entries()[name].probe(), rings=False).run(NS)[name]
        for name in ("event-poll", "event-backoff", "event-block")
    )
    assert kernel < p50_us(polled, WAIT) < kernel + 20
    assert p50_us(polled, WAIT) < p50_us(slept, WAIT) < kernel + 100
    assert kernel < at_us(paused, 99, WAIT) < kernel + 250


def test_a_poll_gives_up_after_its_time() -> None:
    stream, event = Stream("own"), Event("end")
    ops = [
        Op("cuLaunchKernel", (Kernel("spin"), 1, 32, stream, KernelArgs(20 * MS)), phase=None),
        Op("cuEventRecord", (event, stream), phase=None),
        Op("native:poll", (event, 0, 5 * MS), Phase.WAIT, ok=(600,)),
        Op("native:poll", (stream, 100_000, 60_000 * MS), Phase.CALL),
    ]
    made = machine(program_probe("impatient", ops, period_ns=50 * MS))
    seen = made.run()["impatient"]
    assert made.probe_failures == []
    assert 5_000 <= p50_us(seen, WAIT) < 5_030
    assert 14_900 < p50_us(seen) < 15_300


def test_an_event_in_a_busy_context_is_waited_for_in_several_iterations() -> None:
    """Two other contexts keep the graphics engine for longer than a poll lasts; that is no failure."""
    poll = entries()["event-poll"].probe(Placement(SECONDARY))
    busy = [entries()["long-kernel"].probe(Placement(context), name=context.name) for context in (THIRD, GREEN)]
    made = machine(poll, *busy)
    assert made.run()[poll.name].iterations > 5
    assert made.probe_failures == []


def test_sixteen_polling_threads_end_when_the_engine_stops() -> None:
    made = machine(*parse_probes("event-poll-x16"))
    made.run(20 * MS)
    assert made.backend.stop(5.0)
