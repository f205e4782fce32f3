"""Probes without CUDA: the machine's own noise."""

from __future__ import annotations

from stallprobes.catalog.entry import VICTIM_PERIOD_NS, Entry, Place
from stallprobes.model import Op, Program, Role

_ITERATIONS = 40_000


def _control(_place: Place, _size: int) -> Program:
    return Program(ops=(Op("native:work", (_ITERATIONS,)),), context=None)


HOST_CONTROL = Entry(
    name="host",
    title="host control",
    role=Role.HOST,
    program=_control,
    period_ns=VICTIM_PERIOD_NS,
    what="A fixed piece of arithmetic without CUDA, once a millisecond: whatever it sees is the machine's own noise.",
    source="the practice of cyclictest and jHiccup: measure the idle machine beside the thing measured",
)

ENTRIES = (HOST_CONTROL,)
