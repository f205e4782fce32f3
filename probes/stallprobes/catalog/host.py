"""Probes without CUDA, which measure the noise of the host."""

from __future__ import annotations

from stallprobes.catalog.entry import BOTH, VICTIM_PERIOD_NS, Cause, Entry, ProgramMaker
from stallprobes.model import Op, Program, Role

# Number of steps of the computation that the host control times instead of a CUDA call. Each step needs the result of
# the step before. All steps together take 5 to 8 µs on servers with an H200.
_ITERATIONS = 5_000
# Number of steps in an iteration of the host's load, about 1 ms.
_LOAD_ITERATIONS = 1_000_000


def _work(iterations: int) -> ProgramMaker:
    return lambda *_: Program(ops=(Op("native:work", (iterations,)),), context=None)


# Name of the host control, the probe that makes no CUDA calls.
HOST = "host"
HOST_CONTROL = Entry(
    name=HOST,
    title="host control",
    role=Role.HOST,
    program=_work(_ITERATIONS),
    period_ns=VICTIM_PERIOD_NS,
    what="A fixed amount of arithmetic without CUDA, once a millisecond. Its latency changes only with the host.",
    source="cyclictest and jHiccup, which measure the noise of the host beside the program",
)

ENTRIES = (
    HOST_CONTROL,
    Entry(
        name="host-load",
        title="load of a CPU",
        role=Role.AGGRESSOR,
        program=_work(_LOAD_ITERATIONS),
        beside=6,
        what="Arithmetic without CUDA and without a pause, which keeps one CPU of the host busy.",
        source="data loaders and other processes that compute beside the thread that submits work",
        causes=(
            Cause(
                phases=BOTH,
                short="other threads compute on the CPUs of the host",
                short_remedy="leave a CPU to each thread that submits or waits",
                why="Threads that compute take CPUs, caches and clock rate from the thread that submits work or "
                "waits for it.",
                remedy="Start fewer threads that compute than the host has CPUs, or pin the thread that submits.",
            ),
        ),
        note="host-load-x8 are 8 threads of it: one for each of 8 CPUs.",
    ),
)
