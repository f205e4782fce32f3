"""The catalogue of probes, one file per family; a new probe is one ``Entry`` in the ``ENTRIES`` of one file.

Belongs here: programs, their traits and their known causes. May import: ``model``, ``units``, ``errors``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from stallprobes.catalog import (
    callbacks,
    contexts,
    copies,
    host,
    kernels,
    launching,
    memory,
    nvml,
    peer,
    polling,
    profiling,
    streams,
)
from stallprobes.catalog.entry import (
    OWN,
    SECOND_PROCESS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Placement,
    Relation,
    in_threads,
    on_null_stream,
    on_shared_stream,
    placed_name,
)
from stallprobes.model import GREEN, PRIMARY, Phase, Probe, Role

__all__ = [
    "OWN",
    "SECOND_PROCESS",
    "UNKNOWN_CAUSE",
    "Cause",
    "CheckPlacement",
    "Entry",
    "Hardware",
    "Placement",
    "Relation",
    "cause",
    "entries",
    "explanation",
    "idle_cause",
    "in_threads",
    "on_null_stream",
    "on_shared_stream",
    "placed_name",
    "time_slice_cause",
]

_FAMILIES = (kernels, copies, peer, streams, memory, contexts, nvml, launching, polling, callbacks, profiling, host)

_STREAM_ORDER = Cause(
    why="Both probes use one stream. Work in a stream runs in order, so later work waits for all earlier work.",
    remedy="Give each thread its own stream.",
)
_TIME_SLICES = Cause(
    why="Another victim works in another context. The graphics engine runs one context at a time, and the change-over "
    "takes time although the GPU is idle (0.14 ms on an H200): each of the two victims waits for it.",
    remedy="Use one context for all work.",
)
_COLD_HOST = Cause(
    why="The time is inside the call, on the host: after an idle time the driver's code and data are no longer in the "
    "caches of the CPU, which may also have entered an idle state.",
    remedy="Make a cheap call of the same kind shortly before the one that matters.",
)
_IDLE_GPU = Cause(
    why="The work waited after an idle time. The host notices its end some microseconds later, since that code is no "
    "longer in the caches of the CPU (on an H200 that is all). An idle GPU can also lower its clocks and its power "
    "state, and raises them when work arrives.",
    remedy="Make a cheap call of the same kind shortly before the one that matters. Where the GPU lowers its clocks, "
    "keep it active with a small kernel at short intervals, or lock them (nvidia-smi -lgc, as root). "
    "Persistence mode keeps the driver loaded between programs; within one it changes nothing.",
)
# A green context has SMs of the primary context and runs in its time-slice.
_ONE_TIME_SLICE = frozenset({PRIMARY.name, GREEN.name})


@cache
def entries() -> Mapping[str, Entry]:
    """Every entry by name, victims first. Raises ValueError when two entries share a name."""
    found: dict[str, Entry] = {}
    for family in _FAMILIES:
        for entry in family.ENTRIES:
            if entry.name in found:
                raise ValueError(f"two catalogue entries are called {entry.name}")
            found[entry.name] = entry
    return MappingProxyType(dict(sorted(found.items(), key=lambda item: item[1].role is not Role.VICTIM)))


def cause(victim: Probe, aggressor: Probe) -> Cause | None:
    """The known cause for which ``aggressor`` stalls ``victim``, given their contexts, streams and processes.

    None if unknown.
    """
    one_context = victim.context == aggressor.context
    share_time_slice = one_context or {victim.context, aggressor.context} <= _ONE_TIME_SLICE
    share_stream = one_context and victim.stream == aggressor.stream and victim.stream in ("NULL", "shared")
    context = Relation.SAME if share_time_slice else Relation.OTHER
    stream = Relation.SAME if share_stream else Relation.OTHER
    process = Relation.SAME if victim.program.process is aggressor.program.process else Relation.OTHER
    known, source = entries().get(victim.entry), entries().get(aggressor.entry)
    used = Hardware.NONE if known is None else known.uses
    # A recording may be of another version, with probes that this one does not know.
    for candidate in () if source is None else source.causes:
        if candidate.applies(context, stream, process, used, victim.stream == "NULL"):
            return candidate
    return _STREAM_ORDER if share_stream else None


def time_slice_cause(victim: Probe, others: Sequence[Probe]) -> Cause | None:
    """The cause of a delay of ``victim`` by ``others``, victims too: two contexts alternate on the graphics engine."""
    if not _runs_on_graphics_engine(victim):
        return None
    for other in others:
        apart = other.context != victim.context and not {other.context, victim.context} <= _ONE_TIME_SLICE
        if apart and _runs_on_graphics_engine(other):
            return _TIME_SLICES
    return None


UNKNOWN_CAUSE = Cause(
    why="The catalogue knows no reason for this pair.", remedy="Compare with another driver, and report it to NVIDIA."
)

_NO_AGGRESSOR = Cause(why="No aggressor ran.", remedy="Measure the baseline again.")


def explanation(victim: Probe, aggressors: Sequence[Probe], victims: Sequence[Probe] = ()) -> Cause:
    """Why ``victim`` was slow beside ``aggressors`` and other ``victims``: the first cause that the catalogue knows,
    else one that says that it knows none."""
    if not aggressors:
        return _NO_AGGRESSOR
    known = (cause(victim, aggressor) for aggressor in aggressors)
    return next((one for one in known if one is not None), None) or time_slice_cause(victim, victims) or UNKNOWN_CAUSE


def idle_cause(phase: Phase) -> Cause:
    """The cause of a delay of calls that are made after long idle times, in ``phase``: on the host, or on the GPU."""
    return _COLD_HOST if phase is Phase.CALL else _IDLE_GPU


def _runs_on_graphics_engine(probe: Probe) -> bool:
    known = entries().get(probe.entry)
    return probe.program.context is not None and known is not None and bool(known.uses & Hardware.GRAPHICS_ENGINE)
