"""The graphics engine: one context at a time, in time-slices; room on the SMs within a context."""

from __future__ import annotations

import pytest

from factories.simulated_machine import WAIT, machine, p50_us, program_probe
from stallprobes.catalog import Placement, entries
from stallprobes.model import (
    GREEN,
    MIB,
    MS,
    PRIMARY,
    SECONDARY,
    THIRD,
    Context,
    Kernel,
    KernelArgs,
    Op,
    Phase,
    Probe,
    Stream,
)


def entry(kind: str, context: Context = PRIMARY, **settings: object) -> Probe:
    return entries()[kind].probe(Placement(context), **settings)  # type: ignore[arg-type]


def wait_of(*probes: Probe, **options: object) -> float:
    """The median wait of the first probe, us."""
    seen = machine(*probes, **options).run()
    return p50_us(seen[probes[0].name], WAIT)


def test_a_copy_in_another_context_waits_for_the_slice_and_in_the_same_one_it_does_not() -> None:
    quiet = wait_of(entry("d2d", SECONDARY))
    same = wait_of(entry("d2d"), entry("spin"))
    other = wait_of(entry("d2d", SECONDARY), entry("spin"))
    assert same < 1.1 * quiet
    assert other > 100 * quiet


def test_back_to_back_a_copy_waits_one_whole_slice_and_a_third_context_two() -> None:
    """Right behind its last copy the other contexts begin a slice of their own: 2380 and 4634 us on an H200."""
    one = wait_of(entry("d2d", SECONDARY, period_ns=0), entry("spin"))
    two = wait_of(entry("d2d", THIRD, period_ns=0), entry("spin"), entry("spin", SECONDARY, name="second spin"))
    assert 1.8 < two / one < 2.2
    assert 0.9 < one / 2380 < 1.1


def test_two_contexts_that_take_turns_wait_for_the_change_over_although_the_gpu_is_idle() -> None:
    """140 us each on an H200, where alone each waits 5; a copy engine's work does not change over."""
    launch, d2d, d2h = entry("launch"), entry("d2d", SECONDARY), entry("d2h-pinned")
    seen = machine(launch, d2d, d2h, together=True).run()
    for name in (launch.name, d2d.name):
        assert 0.97 < p50_us(seen[name], WAIT) / 140.3 < 1.03
    assert p50_us(seen["d2h-pinned"], WAIT) < 8
    green = machine(entry("launch", GREEN, name="green"), launch).run()
    assert p50_us(green["launch"], WAIT) < 8


def test_the_wait_follows_the_time_slice() -> None:
    def wait(**options: object) -> float:
        return wait_of(entry("d2d", SECONDARY, period_ns=0), entry("spin"), **options)

    assert 1.7 < wait(sim_set={"timeslice_us": "4096"}) / wait() < 2.1


def test_a_kernel_of_the_whole_gpu_takes_longer_to_pre_empt() -> None:
    few = wait_of(entry("d2d", SECONDARY, period_ns=0), entry("spin"))
    full = wait_of(entry("d2d", SECONDARY, period_ns=0), entry("spin-full"))
    assert 1.1 < full / few < 1.4


def test_a_kernel_of_the_whole_gpu_leaves_no_room_in_its_own_context() -> None:
    for context in (PRIMARY, GREEN):
        blocked = wait_of(entry("d2d", context), entry("spin-full"))
        assert blocked > 10_000
        assert wait_of(entry("d2d", context), entry("spin")) < 10


def test_a_kernel_starts_when_the_one_that_leaves_room_ends() -> None:
    """Two kernels of 60 % of the GPU each, on two streams: one after the other; two of 40 %: at the same time."""

    def both(blocks: int) -> float:
        streams = [Stream(f"stream {number}") for number in range(2)]
        ops = [
            Op("cuLaunchKernel", (Kernel("spin"), blocks, 1024, stream, KernelArgs(2 * MS)), phase=None)
            for stream in streams
        ]
        waits = [Op("cuStreamSynchronize", (stream,), Phase.WAIT) for stream in streams]
        probe = program_probe("pair", [*ops, *waits], period_ns=10 * MS)
        seen = machine(probe).run()
        return p50_us(seen["pair"], WAIT)

    # The lower half of the waits is for the second stream, which is done with the first or as long after it.
    assert both(160) > 100 * both(100)


def test_a_kernel_that_counts_its_own_time_ends_on_time_although_it_was_pre_empted() -> None:
    seen = machine(entry("spin"), entry("spin", SECONDARY, name="other")).run()
    for name in ("spin", "other"):
        assert 18 <= seen[name].proof <= 21


def test_a_copy_engine_does_not_wait_for_the_slice() -> None:
    for name in ("d2h-pinned", "h2d-pinned", "d2d-by-host"):
        probe = entry(name, SECONDARY, size=MIB)
        assert wait_of(probe, entry("spin")) < 1.1 * wait_of(probe)


@pytest.mark.parametrize("profile", ["h200", "v100", "rtx3090x2"])
def test_every_profile_shows_the_first_report(profile: str) -> None:
    quiet = wait_of(entry("d2d", SECONDARY), profile=profile)
    assert wait_of(entry("d2d", SECONDARY), entry("spin"), profile=profile) > 100 * quiet
    assert wait_of(entry("d2d"), entry("spin"), profile=profile) < 1.2 * quiet


def test_the_v100_waits_as_its_report_says() -> None:
    """Report 1: 2.26 ms from the API's return to the start."""
    wait = wait_of(entry("d2d", SECONDARY, period_ns=0), entry("spin"), profile="v100")
    assert 0.95 < wait / 2260 < 1.05
