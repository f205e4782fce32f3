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
    BOTH,
    CALLS,
    SECOND_PROCESS,
    WAITS,
    Cause,
    CheckPlacement,
    Entry,
    Hardware,
    Placement,
    Relation,
    in_threads,
    on_null_stream,
    on_shared_stream,
)
from stallprobes.model import GREEN, PRIMARY, Buffer, Phase, Probe, Role

__all__ = [
    "SECOND_PROCESS",
    "UNKNOWN_CAUSE",
    "Cause",
    "CheckPlacement",
    "Entry",
    "Hardware",
    "Placement",
    "Relation",
    "beside_programs",
    "cause",
    "entries",
    "idle_cause",
    "in_threads",
    "on_null_stream",
    "on_shared_stream",
    "size_of",
    "time_slice_cause",
]

# Modules that define the probes of the catalogue. The catalogue lists all victims first, then the other probes,
# both in the order of these modules.
_FAMILIES = (kernels, copies, peer, streams, memory, contexts, nvml, launching, polling, callbacks, profiling, host)

_STREAM_ORDER = Cause(
    phases=WAITS,
    short="both use one stream, which works in order",
    short_remedy="give each thread a stream of its own",
    why="Both probes use one stream. Work in a stream runs in order, so later work waits for all earlier work.",
    remedy="Give each thread its own stream.",
)
_TIME_SLICES = Cause(
    phases=WAITS,
    short="a victim of another context runs too, and one context at a time",
    short_remedy="use one context for all work",
    why="Another victim works in another context. The graphics engine runs one context at a time, and the change-over "
    "takes time although the GPU is idle (0.14 ms on an H200): each of the two victims waits for it.",
    remedy="Use one context for all work.",
)
_COLD_HOST = Cause(
    phases=CALLS,
    short="after a pause the code is no longer in the caches of the CPU",
    short_remedy="make a cheap call of the same kind just before the one that matters",
    why="The time is inside the call, on the host: after an idle time the driver's code and data are no longer in the "
    "caches of the CPU, which may also have entered an idle state.",
    remedy="Make a cheap call of the same kind shortly before the one that matters.",
)
_IDLE_GPU = Cause(
    phases=WAITS,
    short="after a pause the host or the GPU takes longer to wake up",
    short_remedy="make a cheap call just before, or keep the GPU busy",
    why="The work waited after an idle time. The host notices its end some microseconds later, since that code is no "
    "longer in the caches of the CPU (on an H200 that is all). An idle GPU can also lower its clocks and its power "
    "state, and raises them when work arrives.",
    remedy="Make a cheap call of the same kind shortly before the one that matters. Where the GPU lowers its clocks, "
    "keep it active with a small kernel at short intervals, or lock them (nvidia-smi -lgc, as root). "
    "Persistence mode keeps the driver loaded between programs; within one it changes nothing.",
)
_AFTER_WAIT = Cause(
    phases=CALLS,
    short="each call follows a long wait, and finds cold caches",
    short_remedy="shorten the wait: see its own verdict",
    why="The calls follow long waits, in which the driver's code and data leave the caches of the CPU: the time is "
    "inside the call, on the host.",
    remedy="Shorten the wait: it has a verdict of its own.",
)
# Names of the two contexts that run in the same time-slices of the GPU. When a delay's cause is searched, the two
# contexts count as one. Reason: the green context has SMs of the primary context.
_ONE_TIME_SLICE = frozenset({PRIMARY.name, GREEN.name})


@cache
def entries() -> Mapping[str, Entry]:
    """Every entry by name, victims first. Raises ValueError when two entries share a name."""
    by_name: dict[str, Entry] = {}
    for family in _FAMILIES:
        for entry in family.ENTRIES:
            if entry.name in by_name:
                raise ValueError(f"two catalogue entries are called {entry.name}")
            by_name[entry.name] = entry
    return MappingProxyType(dict(sorted(by_name.items(), key=lambda item: item[1].role is not Role.VICTIM)))


def beside_programs() -> tuple[str, ...]:
    """Names of the aggressors that may run beside a watched program, in the order of the keys that switch them."""
    places = {entry.name: entry.beside for entry in entries().values() if entry.beside}
    return tuple(sorted(places, key=lambda name: places[name]))


def cause(victim: Probe, aggressor: Probe, phase: Phase | None = None) -> Cause | None:
    """The known cause for which ``aggressor`` delays ``phase`` of ``victim``, given their contexts, streams, processes.

    None if unknown. Without ``phase`` the first one of any phase.
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
    applying = [
        candidate
        for candidate in (() if source is None else source.causes)
        if candidate.applies(context, stream, process, used, victim.stream == "NULL")
    ]
    applying += [_STREAM_ORDER] if share_stream else []
    explaining = next((candidate for candidate in applying if candidate.explains(phase, used)), None)
    return _AFTER_WAIT if explaining is None and phase is Phase.CALL and applying else explaining


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
    phases=BOTH,
    short="not known: the catalogue has no reason for this pair",
    short_remedy="compare with another driver, and report it to NVIDIA",
    why="The catalogue knows no reason for this pair.",
    remedy="Compare with another driver, and report it to NVIDIA.",
)


def idle_cause(phase: Phase) -> Cause:
    """The cause of a delay of calls that are made after long idle times, in ``phase``: on the host, or on the GPU."""
    return _COLD_HOST if phase is Phase.CALL else _IDLE_GPU


def size_of(probe: Probe) -> int | None:
    """The number of bytes that a probe copies or allocates, None for a probe without a size."""
    known = entries().get(probe.entry)
    usual = 0 if known is None else known.size
    sizes = [resource.nbytes for resource in probe.program.resources if isinstance(resource, Buffer)]
    return max(sizes, default=usual) if usual else None


def _runs_on_graphics_engine(probe: Probe) -> bool:
    known = entries().get(probe.entry)
    return probe.program.context is not None and known is not None and bool(known.uses & Hardware.GRAPHICS_ENGINE)
