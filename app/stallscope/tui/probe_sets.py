"""Probe sets: the initial one, a pattern's variant, one with another probe."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from msgspec import structs

from stallprobes.catalog import Placement, entries
from stallprobes.model import MS, SECONDARY, Kind, Pattern, Probe, Role, Variant
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import parse_probe
from stallprobes.recording.observation import Observation, ProbeSet

# Largest number of probes on the screen.
MOST_PROBES = 16
# SHORTEST_PERIOD_NS: shortest period (ns) of a probe that keys can choose. LONGEST_PERIOD_NS: longest period (ns) of a
# probe that keys can choose.
SHORTEST_PERIOD_NS, LONGEST_PERIOD_NS = 50_000, 1_000 * MS


# Entry and context of a probe.
_Place = tuple[str, str]


def default_probes() -> tuple[Probe, ...]:
    """The probes at startup: three victims, the host control, and three aggressors."""
    known = entries()
    return (
        known["launch"].probe(),
        known["d2d"].probe(Placement(SECONDARY)),
        known["d2h-pinned"].probe(),
        known["host"].probe(),
        known["spin"].probe(),
        known["d2h-pageable-fresh"].probe(),
        known["host-alloc-free"].probe(),
    )


def for_variant(base: ProbeSet, pattern: Pattern, variant: Variant) -> ProbeSet:
    """The probe set of a pattern's variant, on the GPUs of ``base``."""
    return structs.replace(
        base,
        title=f"{pattern.name} · {variant.name}",
        probes=variant.probes,
        pattern=pattern.name,
        variant=variant.name,
        expect=variant.expect,
    )


def next_remedy(probe_set: ProbeSet, victim: Probe | None, aggressors: Sequence[Probe]) -> tuple[str, str] | None:
    """The variant, (pattern, variant), after the current one among the remedies of its pattern and the stall.

    Without a pattern, the first remedy of the first pattern in which ``victim`` stalls beside one of ``aggressors``;
    None where there is none.
    """
    if not probe_set.pattern:
        stalls = [] if victim is None or not aggressors else stalls_of(probe_set, victim, aggressors)
        for pattern in stalls:
            for variant in pattern.variants:
                if variant.kind is Kind.REMEDY:
                    return pattern.name, variant.name
        return None
    variants = patterns()[probe_set.pattern].variants
    cycle = [member.name for member in variants if member.kind is Kind.REMEDY]
    cycle += [member.name for member in variants if member.kind is Kind.STALL][:1]
    position = cycle.index(probe_set.variant) if probe_set.variant in cycle else -1
    return probe_set.pattern, cycle[(position + 1) % len(cycle)]


def stalls_of(probe_set: ProbeSet, probe: Probe, others: Sequence[Probe] | None = None) -> list[Pattern]:
    """The patterns in which ``probe`` stalls beside ``others``; a probe set of a pattern has only this pattern.

    By default ``others`` are all probes of the set.
    """
    if probe_set.pattern in patterns():
        return [patterns()[probe_set.pattern]]
    if probe.role is Role.HOST:
        return []
    disturbs = probe.role is Role.AGGRESSOR
    beside = probe_set.probes if others is None else others
    places = frozenset(_place(other) for other in beside if (other.role is Role.AGGRESSOR) != disturbs)
    return [patterns()[name] for name in _stalls_at(_place(probe), places)]


# The screen asks with each table.
@lru_cache(maxsize=256)
def _stalls_at(place: _Place, others: frozenset[_Place]) -> tuple[str, ...]:
    """The names of the patterns in which the probe at ``place`` stalls beside a probe at a place of ``others``."""
    names = []
    for pattern in patterns().values():
        stalls = ({_place(probe) for probe in v.probes} for v in pattern.variants if v.kind is Kind.STALL)
        if any(place in places and places & others for places in stalls):
            names.append(pattern.name)
    return tuple(names)


def _place(probe: Probe) -> _Place:
    """The entry of ``probe`` with its context: the same pair stalls in one context, or in two."""
    return probe.entry, probe.context


def with_probe(base: ProbeSet, name: str) -> ProbeSet:
    """``base`` and the probe ``name``; a number follows the name if ``base`` already has it.

    Raises ValueError where ``base`` has the maximum number.
    """
    if len(base.probes) >= MOST_PROBES:
        raise ValueError(f"At most {MOST_PROBES} probes: select a pattern, or start again.")
    taken = {probe.name for probe in base.probes}
    free = next(candidate for candidate in (name, *(f"{name} {i}" for i in range(2, 99))) if candidate not in taken)
    probe = parse_probe(name, as_name=free)
    return structs.replace(
        base, title="selected probes", probes=(*base.probes, probe), pattern="", variant="", expect=""
    )


def scaled_period_ns(period_ns: int, factor: float) -> int:
    """A victim's period multiplied by ``factor``, within the limits of the screen or, if it is beyond them, its own.

    Raises ValueError, with a sentence for the user, where that changes nothing.
    """
    shortest, longest = min(SHORTEST_PERIOD_NS, period_ns), max(LONGEST_PERIOD_NS, period_ns)
    scaled = round(min(max(period_ns * factor, shortest), longest))
    if scaled == period_ns:
        raise ValueError(f"This probe has its {'highest' if factor < 1 else 'lowest'} call rate.")
    return scaled


def gpus_needed(probe_set: ProbeSet) -> int:
    """The number of GPUs that the probes or the variant need. Recorded probes have no resources."""
    devices = [getattr(r, "device", 0) for probe in probe_set.probes for r in probe.program.resources]
    named = max((device for device in devices if isinstance(device, int)), default=0) + 1
    known = patterns().get(probe_set.pattern)
    variant = next((v for v in known.variants if v.name == probe_set.variant), None) if known is not None else None
    return max(named, 1 if variant is None else variant.needs.gpus)


def gpu_label(probe_set: ProbeSet) -> str:
    """All GPUs of the probe set: ``2 × NVIDIA H200 (GPU 0, GPU 1)``, with the number of unknown GPUs."""
    known = probe_set.gpus
    missing = gpus_needed(probe_set) - len(known) if known else 0
    if missing > 0:
        return f"{' + '.join(gpu.label for gpu in known)} + {missing} more GPU{'s' if missing > 1 else ''}"
    if len(known) > 1 and len({gpu.model for gpu in known}) == 1:
        indices = ", ".join(f"GPU {gpu.index}" for gpu in known if gpu.index is not None)
        return f"{len(known)} × {known[0].model}" + (f" ({indices})" if indices else "")
    return " + ".join(gpu.label for gpu in known)


def aggressors(probe_set: ProbeSet) -> tuple[str, ...]:
    """The names of the aggressors."""
    return tuple(probe.name for probe in probe_set.probes if probe.role is Role.AGGRESSOR)


def aggressors_on(observation: Observation) -> tuple[Probe, ...]:
    """The switched-on aggressors of ``observation``, with the aggressors that wait for the baseline."""
    parts = {} if observation.snapshot is None else observation.snapshot.probes
    return tuple(
        probe
        for probe in observation.probe_set.probes
        if probe.role is Role.AGGRESSOR
        and (probe.name in observation.waiting or (probe.name in parts and parts[probe.name].on))
    )


def first_victim(probe_set: ProbeSet) -> str | None:
    """The name of the first victim; of the first probe in patterns without one, which are about the aggressor."""
    victims = [probe.name for probe in probe_set.probes if probe.role is Role.VICTIM]
    return next(iter(victims or [probe.name for probe in probe_set.probes]), None)
