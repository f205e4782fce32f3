"""Probes without CUDA, which measure the noise of the host."""

from __future__ import annotations

from stallprobes.catalog.entry import VICTIM_PERIOD_NS, Entry, Placement
from stallprobes.model import Op, Program, Role

# Number of steps of the computation that the host control times instead of a CUDA call. Each step needs the result of
# the step before. All steps together take 5 to 8 µs on servers with an H200.
_ITERATIONS = 5_000


def _control(_place: Placement, _size: int) -> Program:
    return Program(ops=(Op("native:work", (_ITERATIONS,)),), context=None)


# Name of the host control, the probe that makes no CUDA calls.
HOST = "host"
HOST_CONTROL = Entry(
    name=HOST,
    title="host control",
    role=Role.HOST,
    program=_control,
    period_ns=VICTIM_PERIOD_NS,
    what="A fixed amount of arithmetic without CUDA, once a millisecond. Its latency changes only with the host.",
    source="cyclictest and jHiccup, which measure the noise of the host beside the program",
)

ENTRIES = (HOST_CONTROL,)
