"""Mapping of GPU memory on the simulated GPU: whom it delays, what it checks, and that nothing is lost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

import pytest

from factories.simulated_machine import CALL, SimulatedMachine, at_us, machine, p50_us, program_probe
from stallprobes.catalog import Placement, entries
from stallprobes.latency.window import Window
from stallprobes.model import MIB, MS, SECONDARY, Load, MemoryStruct, MemoryStructKind, Op, Role, Word
from stallprobes.patterns import patterns

NS = 300 * MS
PATTERN = patterns()["vmm-churn"]
HANDLE, RANGE = Word("handle"), Word("range")
RESERVE = Op("cuMemAddressReserve", (RANGE, 4 * MIB, 0, 0, 0), phase=None)
CREATE = Op("cuMemCreate", (HANDLE, 4 * MIB, MemoryStruct(MemoryStructKind.ALLOCATION), 0))
MAP = Op("cuMemMap", (Load(RANGE), 4 * MIB, 0, Load(HANDLE), 0))
ACCESS = Op("cuMemSetAccess", (Load(RANGE), 4 * MIB, MemoryStruct(MemoryStructKind.ACCESS), 1))
UNMAP = Op("cuMemUnmap", (Load(RANGE), 4 * MIB))
RELEASE = Op("cuMemRelease", (Load(HANDLE),))


@cache
def windows(variant: str) -> Mapping[str, Window]:
    return machine(*PATTERN.variant(variant).probes).run(NS)


@cache
def alone() -> Mapping[str, Window]:
    victims = [probe for probe in PATTERN.variants[0].probes if probe.role is Role.VICTIM]
    return machine(*victims).run(NS)


def tail(variant: str, victim: str) -> float:
    return at_us(windows(variant)[victim], 99) / at_us(alone()[victim], 99)


@pytest.mark.parametrize("victim", ["launch", "d2d", "d2h-pinned"])
def test_cumemalloc_delays_launches_and_copies_and_mapping_and_a_pool_do_not(victim: str) -> None:
    assert tail("alloc-free", victim) > 5
    for variant in ("one-piece", "pieces", "create-only", "pool"):
        assert tail(variant, victim) < 1.3


def test_a_pool_grows_once_and_without_a_threshold_each_time() -> None:
    keeping = entries()["pool-alloc"].probe()
    trimmed = program_probe(
        "trimmed",
        keeping.program.ops,
        period_ns=MS,
        setup=tuple(op for op in keeping.program.setup if op.fn == "cuMemPoolCreate"),
    )
    seen = machine(keeping, trimmed).run(NS)
    waits = {name: next(c for c in seen[name].channels if c.phase.value == "wait") for name in seen}
    assert p50_us(seen["trimmed"], waits["trimmed"]) > 200
    assert p50_us(seen["pool-alloc"], waits["pool-alloc"]) < 10


def test_another_context_keeps_its_calls() -> None:
    victim = entries()["d2h-pinned"].probe(Placement(SECONDARY))
    quiet = p50_us(machine(victim).run(NS)[victim.name])
    assert p50_us(machine(victim, entries()["map-unmap"].probe()).run(NS)[victim.name]) < 1.3 * quiet


def run(*ops: Op) -> SimulatedMachine:
    made = machine(program_probe("map", ops, setup=(RESERVE,)))
    made.run(20 * MS)
    return made


def test_all_memory_is_free_again() -> None:
    made = run(CREATE, MAP, ACCESS, RELEASE, UNMAP)
    assert made.probe_failures == []
    whole = machine(program_probe("none", [Op("native:nothing")])).backend._simulation
    now = made.backend._simulation
    assert whole is not None
    assert now is not None
    assert now.gpus[0].free_bytes in (whole.gpus[0].free_bytes, whole.gpus[0].free_bytes - 4 * MIB)


@pytest.mark.parametrize(
    ("ops", "failed"),
    [
        ((CREATE, MAP, MAP), "cuMemMap"),
        ((CREATE, MAP, UNMAP, UNMAP), "cuMemUnmap"),
        ((CREATE, RELEASE, RELEASE), "cuMemRelease"),
        ((CREATE, RELEASE, MAP), "cuMemMap"),
        ((CREATE, ACCESS), "cuMemSetAccess"),
        ((Op("cuMemCreate", (HANDLE, 200 << 30, MemoryStruct(MemoryStructKind.ALLOCATION), 0)),), "cuMemCreate"),
        ((Op("cuMemCreate", (HANDLE, MIB, MemoryStruct(MemoryStructKind.ALLOCATION, 7), 0)),), "cuMemCreate"),
        ((Op("cuMemAllocFromPoolAsync", (HANDLE, MIB, Load(RANGE), 0)),), "cuMemAllocFromPoolAsync"),
    ],
)
def test_a_wrong_call_is_refused(ops: tuple[Op, ...], failed: str) -> None:
    (failure,) = run(*ops).probe_failures
    assert failure.op == failed
    assert failure.code in (1, 2)


def test_stopping_frees_the_addresses() -> None:
    made = machine(*PATTERN.variant("pieces").probes)
    made.run(20 * MS)
    assert made.backend.stop(5.0)
    assert CALL in made.board.snapshot().probes["launch"].channels
