"""Transfers: copy engines in order, staging warm and fresh, copies between two GPUs."""

from __future__ import annotations

import pytest

from factories.simulated_machine import WAIT, at_us, machine, p50_us, program_probe
from stallprobes.catalog import Placement, entries, on_null_stream, on_shared_stream
from stallprobes.errors import Unsupported
from stallprobes.model import MIB, MS, SECONDARY, Buffer, Channel, Load, Op, Phase, Probe, Space, Stream, Word

SIZE = 16 * MIB
SOURCE = Buffer("source", Space.DEVICE, SIZE)
OWN = Stream()


def fetch(into: Buffer | Load, label: str = "") -> Op:
    return Op("cuMemcpyDtoHAsync", (into, SOURCE, SIZE, OWN), label=label)


def waits(*probes: Probe) -> float:
    """The median wait of the first probe, us."""
    return p50_us(machine(*probes).run()[probes[0].name], WAIT)


def entry(kind: str, place: Placement | None = None, size: int | None = None) -> Probe:
    return entries()[kind].probe(place, size=size)


@pytest.mark.parametrize(("small", "large"), [("d2h-pinned", "d2h-pinned-large"), ("h2d-pinned", "h2d-pinned-large")])
def test_a_copy_waits_for_the_large_one_of_its_direction_only(small: str, large: str) -> None:
    quiet = waits(entry(small, size=MIB))
    assert waits(entry(small, size=MIB), entry(large)) > 30 * quiet
    other = {"d2h-pinned-large": "h2d-pinned-large", "h2d-pinned-large": "d2h-pinned-large"}[large]
    assert waits(entry(small, size=MIB), entry(other)) < 1.2 * quiet


def test_a_copy_waits_for_a_time_slice_of_a_large_one_of_another_context_then_for_the_rest_of_it() -> None:
    """1008 to 1065 us and 106 to 162 us in turn on an H200, beside copies of 1187 us."""
    small, large = entry("d2h-pinned", Placement(SECONDARY)), entry("d2h-pinned-large", size=64 * MIB)
    made = machine(small, large)
    made.set_period(small.name, MS // 20)
    seen = made.run(300 * MS)[small.name]
    assert 100 < at_us(seen, 10, WAIT) < at_us(seen, 40, WAIT) < 170
    assert 1_000 < at_us(seen, 60, WAIT) <= at_us(seen, 99, WAIT) < 1_070
    # The large copies are interrupted and still move as many bytes.
    alone = machine(large).run(300 * MS)["d2h-pinned-large"]
    beside = machine(small, large).run(300 * MS)["d2h-pinned-large"]
    assert beside.iterations > 0.9 * alone.iterations


def test_memory_that_was_freed_is_cleared_by_the_engine_of_copies_to_the_gpu() -> None:
    """On an H200 1 MiB to the GPU waits 130 to 190 us beside cuMemFree in another context, and 25 alone."""
    beside = entry("alloc-free", Placement(SECONDARY))
    assert 80 < waits(entry("h2d-pinned", size=MIB), beside) < 200
    for unaffected in (entry("d2h-pinned", size=MIB), entry("h2d-pinned"), entry("launch")):
        assert waits(unaffected, beside) < 1.1 * waits(unaffected)


def test_a_small_upload_passes_the_large_one_in_the_command_stream_over_the_same_bus() -> None:
    """4.8 and 9.7 us on an H200; a small copy to the host 6.0 and 10.4 us."""
    for small, slower in (("h2d-pinned", 2.0), ("d2h-pinned", 1.7)):
        assert waits(entry(small), entry("h2d-pinned-large")) / waits(entry(small)) == pytest.approx(slower, rel=0.15)


def test_a_staged_copy_delays_what_other_contexts_see_of_the_gpu_but_not_their_calls() -> None:
    """19 us in place of 5.5 on an H200."""
    for kind in ("d2d", "d2h-pinned"):
        probe = entry(kind, Placement(SECONDARY))
        alone = machine(probe).run()[probe.name]
        beside = machine(probe, entry("d2h-pageable-warm")).run()[probe.name]
        assert 2.5 < p50_us(beside, WAIT) / p50_us(alone, WAIT) < 6
        assert p50_us(beside) < 1.2 * p50_us(alone)


def test_small_pageable_copies_and_staged_peer_copies_wait_for_the_staging_buffers() -> None:
    for kind in ("d2h-pageable", "peer-copy"):
        seen = machine(entry(kind), entry("d2h-pageable-warm")).run()[kind]
        assert seen.iterations < 3
        assert machine(entry(kind), entry("h2d-pageable-large")).run()[kind].iterations > 150


def test_a_copy_twice_as_large_takes_twice_as_long() -> None:
    for kind in ("d2h-pinned", "h2d-pinned"):
        ratio = waits(entry(kind, size=64 * MIB)) / waits(entry(kind, size=32 * MIB))
        assert 1.9 < ratio < 2.1


def test_memory_is_fresh_once() -> None:
    mapping = Word("mapping")
    probe = program_probe(
        "twice",
        [
            Op("libc:mmap", (0, SIZE, 3, 0x22, -1, 0), phase=None, into=mapping),
            fetch(Load(mapping), "first"),
            fetch(Load(mapping), "second"),
            Op("libc:munmap", (Load(mapping), SIZE), phase=None),
        ],
        period_ns=20 * MS,
    )
    seen = machine(probe).run()["twice"]
    assert 7 < p50_us(seen, Channel(Phase.CALL, "first")) / p50_us(seen, Channel(Phase.CALL, "second")) < 12


def test_registered_memory_is_pinned() -> None:
    memory = Buffer("memory", Space.PAGEABLE, SIZE)
    probe = program_probe(
        "registered",
        [
            fetch(memory, "pageable"),
            Op("cuMemHostRegister", (memory, SIZE, 0), phase=None),
            fetch(memory, "pinned"),
            Op("cuStreamSynchronize", (OWN,), Phase.WAIT),
            Op("cuMemHostUnregister", (memory,), phase=None),
        ],
        period_ns=20 * MS,
    )
    seen = machine(probe).run()["registered"]
    assert p50_us(seen, Channel(Phase.CALL, "pageable")) > 50 * p50_us(seen, Channel(Phase.CALL, "pinned"))
    assert p50_us(seen, WAIT) > 200


def test_a_copy_to_pageable_memory_returns_when_the_bytes_are_there() -> None:
    seen = machine(entry("d2h-pageable", size=SIZE)).run()["d2h-pageable"]
    assert p50_us(seen) > 500
    assert p50_us(seen, WAIT) < 20


def test_a_pinned_copy_slips_between_the_chunks_of_a_staged_one() -> None:
    quiet = waits(entry("d2h-pinned"))
    assert waits(entry("d2h-pinned"), entry("d2h-pageable-warm")) < 10 * quiet


def test_a_staged_copy_keeps_its_stream_and_on_the_null_stream_its_context() -> None:
    """As measured on an H200: which launch starves, which waits for a copy, which is little disturbed."""
    victim = entries()["launch"]
    places = {"other": Placement(), "X": on_shared_stream(), "NULL": on_null_stream()}
    starved = {("warm", "X", "X"), ("warm", "X", "NULL"), ("warm", "NULL", "NULL")}
    delayed = {("warm", "NULL", "other"): 14_300, ("warm", "NULL", "X"): 14_300}
    for copy in ("warm", "fresh"):
        for copies_on in ("X", "NULL"):
            for launches_on, place in places.items():
                key = (copy, copies_on, launches_on)
                aggressor, launch = entry(f"d2h-pageable-{copy}", places[copies_on]), victim.probe(place)
                seen = machine(launch, aggressor).run(2_000 * MS)[launch.name]
                if key in starved:
                    assert seen.iterations < 3, key
                elif key in delayed:
                    assert 0.8 < p50_us(seen) / delayed[key] < 1.2, key
                elif copy == "fresh" and (copies_on == "NULL" or launches_on != "other"):
                    assert 100_000 < at_us(seen, 100) < 150_000, key
                else:
                    assert p50_us(seen) < 10, key


def test_two_staged_peer_copies_go_in_order_of_submission() -> None:
    quiet = waits(entry("peer-copy"))
    behind = waits(entry("peer-copy"), entry("peer-copy-behind-kernel"))
    assert behind > 1_000 * quiet
    assert waits(entry("peer-copy"), entry("long-kernel")) < 1.2 * quiet
    # The kernel and the copy behind it hold up no transfer to the host.
    pinned = waits(entry("d2h-pinned"))
    assert waits(entry("d2h-pinned"), entry("peer-copy-behind-kernel")) < 1.2 * pinned


def test_direct_peer_copies_do_not_wait_for_each_others_kernels() -> None:
    quiet = waits(entry("peer-copy-direct"))
    assert waits(entry("peer-copy-direct"), entry("peer-copy-direct-behind-kernel")) < 1.2 * quiet


def test_a_relay_stalls_on_one_stream_and_not_on_two() -> None:
    for name, factor in (("host-relay-naive", 1_000.0), ("host-relay", 0.0)):
        quiet = waits(entry(name))
        stalled = waits(entry(name), entry(f"{name}-behind-kernel"))
        assert stalled > factor * quiet
        assert factor > 0 or stalled < 1.5 * quiet


def test_where_staged_copies_block_the_call_itself_waits() -> None:
    """Report 2: neither call returns at once, and the next operation on the device waits too."""
    made = machine(entry("peer-copy"), entry("peer-copy-behind-kernel"), entry("launch"), profile="rtx3090x2")
    seen = made.run()
    assert p50_us(seen["peer-copy"]) > 50_000
    assert at_us(seen["launch"], 100) > 50_000


def test_a_machine_says_what_it_has_not() -> None:
    for kind, profile, word in (
        ("peer-copy-direct", "rtx3090x2", "cannot reach"),
        ("peer-copy", "v100", "2 GPUs"),
        ("d2d-batch", "v100", "cuMemcpyBatchAsync"),
    ):
        with pytest.raises(Unsupported, match=word):
            machine(entry(kind), profile=profile)
