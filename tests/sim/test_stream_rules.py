"""Streams, events, the legacy default stream, launch queues, gates."""

from __future__ import annotations

from factories.simulated_machine import CALL, WAIT, at_us, machine, p50_us, program_probe
from stallprobes.catalog import Placement, entries, on_null_stream
from stallprobes.catalog.streams import gated_copy_placement
from stallprobes.model import (
    MS,
    PRIMARY,
    SECONDARY,
    THIRD,
    Channel,
    Event,
    Kernel,
    KernelArgs,
    Op,
    Phase,
    Probe,
    Stream,
    StreamKind,
    Word,
    null_stream,
)

A, B = Stream("A"), Stream("B")
SPIN_NS = 3 * MS


def spin(stream: Stream, label: str = "") -> Op:
    return Op("cuLaunchKernel", (Kernel("spin"), 1, 32, stream, KernelArgs(SPIN_NS)), label=label)


def launch(stream: Stream) -> Op:
    return Op("cuLaunchKernel", (Kernel("empty"), 1, 1, stream, KernelArgs()))


def wait(stream: Stream) -> Op:
    return Op("cuStreamSynchronize", (stream,), Phase.WAIT)


def waited(*ops: Op) -> float:
    """The median of the only wait in ``ops``, us."""
    seen = machine(program_probe("probe", ops, period_ns=10 * MS)).run()
    return p50_us(seen["probe"], WAIT)


def test_a_stream_is_in_order_and_two_streams_are_not() -> None:
    assert waited(spin(A), launch(A), wait(A)) > 2_900
    assert waited(spin(A), launch(B), wait(B)) < 30


def test_an_event_ties_two_streams() -> None:
    event = Event("tie")
    tie = (Op("cuEventRecord", (event, A), phase=None), Op("cuStreamWaitEvent", (B, event, 0), phase=None))
    assert waited(spin(A), *tie, launch(B), wait(B)) > 2_900
    assert waited(*tie, spin(A), launch(B), wait(B)) < 30


def test_the_null_stream_waits_for_blocking_streams_and_they_for_it_but_not_the_others() -> None:
    blocking, null = Stream("blocking", kind=StreamKind.BLOCKING), null_stream()
    assert waited(spin(blocking), launch(null), wait(null)) > 2_900
    assert waited(spin(null), launch(blocking), wait(blocking)) > 2_900
    assert waited(spin(A), launch(null), wait(null)) < 30
    assert waited(spin(null), launch(A), wait(A)) < 30


def test_elapsed_time_is_the_time_between_two_events_on_the_gpu() -> None:
    before, after, ms = Event("before", timing=True), Event("after", timing=True), Word("ms")
    probe = program_probe(
        "timed",
        [
            Op("cuEventRecord", (before, A), phase=None),
            spin(A),
            Op("cuEventRecord", (after, A), phase=None),
            wait(A),
            Op("cuEventElapsedTime", (ms, before, after), Phase.GPU, value=ms),
        ],
        period_ns=10 * MS,
    )
    seen = machine(probe).run()
    assert 0.98 < p50_us(seen["timed"], Channel(Phase.GPU)) / 3_000 < 1.02


def test_an_event_that_has_not_come_is_not_ready() -> None:
    event = Event("end")
    ops = [spin(A), Op("cuEventRecord", (event, A), phase=None), Op("cuEventQuery", (event,)), wait(A)]
    made = machine(program_probe("impatient", ops, period_ns=10 * MS))
    made.run()
    (failure,) = made.probe_failures
    assert (failure.code, failure.text, failure.fatal) == (600, "CUDA_ERROR_NOT_READY", False)


def test_a_scalar_left_on_a_busy_gpu_is_read_later_and_no_failure() -> None:
    """Two other contexts' kernels of 96 ms: a turn begins while the events of the one before are still to come."""
    scalar = entries()["scalar-on-device"].probe(Placement(SECONDARY))
    busy = [entries()["long-kernel"].probe(Placement(context), name=context.name) for context in (PRIMARY, THIRD)]
    made = machine(scalar, *busy)
    seen = made.run()[scalar.name]
    assert made.probe_failures == []
    assert seen.iterations > 10
    assert seen.channels[Channel(Phase.GPU)].count < seen.channels[Channel(Phase.CALL)].count


def test_a_full_launch_queue_blocks_its_own_thread_and_no_other_stream() -> None:
    victim, full = entries()["launch"].probe(), entries()["launch-queue-full"].probe()
    quiet = p50_us(machine(victim).run()["launch"])
    seen = machine(victim, full).run()
    assert p50_us(seen["launch"]) < 1.5 * quiet
    assert seen["launch-queue-full"].channels[Channel(Phase.CALL, "launches")].max_ns > 5 * MS


def test_the_queue_takes_as_many_launches_as_the_profile_says() -> None:
    def longest(pending: int) -> int:
        ops = [spin(A), Op("cuLaunchKernel", (Kernel("empty"), 1, 1, A, KernelArgs()), repeat=pending), wait(A)]
        seen = machine(program_probe("many", ops, period_ns=20 * MS), sim_set={"queue": "100"}).run()
        return seen["many"].channels[CALL].max_ns

    assert longest(90) < MS
    assert longest(110) > MS


def test_a_pageable_copy_behind_a_gate_deadlocks_with_a_launch_until_the_watchdog() -> None:
    def slowest_launch(copy: str, own_stream: bool, watchdog_ns: int) -> float:
        opener = entries()["launch-then-open"].probe()
        copier = entries()[copy].probe(gated_copy_placement(own_stream))
        seen = machine(opener, copier, watchdog_ns=watchdog_ns).run(2_000 * MS)
        return at_us(seen["launch-then-open"], 100)

    for watchdog in (100 * MS, 250 * MS):
        assert 0.7 < slowest_launch("gated-copy", False, watchdog) * 1000 / watchdog <= 1.01
    assert slowest_launch("gated-copy-pinned", False, 250 * MS) < 200
    assert slowest_launch("gated-copy", True, 250 * MS) < 200


def test_a_gate_counts_that_it_opened_by_itself() -> None:
    made = machine(
        entries()["launch-then-open"].probe(),
        entries()["gated-copy"].probe(gated_copy_placement(False)),
        watchdog_ns=50 * MS,
    )
    made.run()
    (gate,) = made.backend._machine._gates
    assert gate.forced.value >= 3


def test_stopping_opens_every_gate() -> None:
    made = machine(entries()["gated-copy"].probe(gated_copy_placement(False)), watchdog_ns=60_000 * MS)
    made.run(100 * MS)
    assert made.backend.stop(5.0)


def test_probes_on_one_shared_null_stream_share_it() -> None:
    """What the NULL stream of pageable-d2h-vs-launch stands on: two probes that name it mean the same stream."""
    place = on_null_stream()
    victim = entries()["launch"].probe(place)
    other: Probe = entries()["d2h-pinned-large"].probe(place)
    shared = p50_us(machine(victim, other).run()[victim.name], WAIT)
    apart = p50_us(machine(entries()["launch"].probe(Placement()), other).run()["launch"], WAIT)
    assert shared > 100 * apart
