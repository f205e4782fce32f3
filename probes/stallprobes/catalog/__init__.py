"""The probes, a file for each family. A new probe is one entry in one of these files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType

from stallprobes.catalog import contexts, copies, host, kernels, memory, nvml, peer, streams
from stallprobes.catalog.entry import Cause, Entry, Place, on_null_stream, on_shared_stream
from stallprobes.model import Probe

__all__ = ["Cause", "Entry", "Place", "beside", "cause", "entries", "explanation", "on_null_stream", "on_shared_stream"]


_IN_ORDER = Cause(
    why="Both use one stream, and a stream's work is done in order: what comes later waits for what was there first.",
    helps="A stream for each thread.",
)


_TURNS = Cause(
    why="Another probe works in another context meanwhile, and while this one's context keeps the GPU busy, each of "
    "the other's turns on the graphics engine takes a switch of contexts, during which this one waits.",
    helps="One context for all work.",
)
# A green context is a part of the primary one and has its turns with it.
_ONE_TURN = frozenset({"primary", "green"})


@cache
def entries() -> Mapping[str, Entry]:
    """Every catalogue entry by its name, victims first. Raises ValueError when two share a name."""
    found: dict[str, Entry] = {}
    for family in (kernels, copies, peer, streams, memory, contexts, nvml, host):
        for entry in family.ENTRIES:
            if entry.name in found:
                raise ValueError(f"two catalogue entries are called {entry.name}")
            found[entry.name] = entry
    return MappingProxyType(dict(sorted(found.items(), key=lambda item: item[1].role.value != "victim")))


def cause(victim: Probe, aggressor: Probe) -> Cause | None:
    """Why ``aggressor`` stalls ``victim`` as they stand to each other, or None when the catalogue knows no reason."""
    one = victim.context == aggressor.context
    same_context = "same" if one or {victim.context, aggressor.context} <= _ONE_TURN else "other"
    together = victim.stream == aggressor.stream and victim.stream in ("NULL", "shared")
    same_stream = "same" if together and one else "other"
    for candidate in entries()[aggressor.entry].causes:
        if candidate.context not in (None, same_context) or candidate.stream not in (None, same_stream):
            continue
        if candidate.victims and victim.entry not in candidate.victims:
            continue
        return candidate
    return _IN_ORDER if same_stream == "same" else None


def beside(victim: Probe, others: Sequence[Probe]) -> Cause | None:
    """Why ``victim`` waits because of other victims, where no aggressor explains it: their contexts take turns."""
    if victim.entry not in kernels.ON_THE_ENGINE or victim.program.context is None:
        return None
    for other in others:
        apart = other.program.context is not None and other.context != victim.context
        if apart and other.entry in kernels.ON_THE_ENGINE and not {other.context, victim.context} <= _ONE_TURN:
            return _TURNS
    return None


_UNKNOWN = Cause(
    why="The catalogue knows no reason for this pair.", helps="Compare with another driver, and report it to NVIDIA."
)
_NO_AGGRESSOR = Cause(why="No aggressor ran.", helps="Measure the baseline again.")


def explanation(victim: Probe, aggressors: Sequence[Probe], victims: Sequence[Probe] = ()) -> Cause:
    """Why ``victim`` was slow beside ``aggressors`` and other ``victims``: the first cause that the catalogue knows,
    else one that says that it knows none."""
    if not aggressors:
        return _NO_AGGRESSOR
    known = (cause(victim, aggressor) for aggressor in aggressors)
    return next((one for one in known if one is not None), None) or beside(victim, victims) or _UNKNOWN
