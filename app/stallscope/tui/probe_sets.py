"""Which probes stand ready together: the first bench, a pattern's variant, one probe more, another size."""

from __future__ import annotations

from dataclasses import replace

from stallprobes.catalog import Placement, entries
from stallprobes.live.observation import ProbeSet
from stallprobes.model import PRIMARY, SECONDARY, Buffer, Context, Pattern, Probe, Role, Stream, Variant
from stallprobes.patterns import patterns

_NAMES_OF_CONTEXTS = {PRIMARY: "", SECONDARY: "-secondary"}
MOST_PROBES = 16


def first() -> tuple[Probe, ...]:
    """What the screen opens with: three victims, the host control, and three things that may disturb them."""
    known = entries()
    return (
        known["launch"].probe(),
        known["d2d"].probe(Placement(SECONDARY), name="d2d-secondary"),
        known["d2h-pinned"].probe(),
        known["host"].probe(),
        known["spin"].probe(),
        known["d2h-pageable-fresh"].probe(),
        known["host-alloc-free"].probe(),
    )


def of_variant(base: ProbeSet, pattern: Pattern, variant: Variant) -> ProbeSet:
    """The bench of a pattern's variant, on what ``base`` is on."""
    return replace(
        base,
        title=f"{pattern.name} · {variant.name}",
        probes=variant.probes,
        pattern=pattern.name,
        variant=variant.name,
        watch=variant.expect,
    )


def with_probe(base: ProbeSet, entry: str, context: Context = PRIMARY) -> ProbeSet:
    """``base`` and one more probe of the catalogue. Raises ValueError when the bench is full."""
    if len(base.probes) >= MOST_PROBES:
        raise ValueError(f"{MOST_PROBES} probes are enough: pick a pattern, or restart the screen")
    taken = {probe.name for probe in base.probes}
    stem = entry + _NAMES_OF_CONTEXTS.get(context, f"-{context.name}")
    name = next(n for n in (stem, *(f"{stem}-{i}" for i in range(2, 99))) if n not in taken)
    probe = entries()[entry].probe(Placement(context), name=name)
    return replace(base, title="probes of your own", probes=(*base.probes, probe), pattern="", variant="", watch="")


def size_of(probe: Probe) -> int | None:
    """How many bytes a probe copies, None for one whose size means nothing."""
    if not entries()[probe.entry].size:
        return None
    sizes = [resource.nbytes for resource in probe.program.resources() if isinstance(resource, Buffer)]
    if sizes:
        return max(sizes)
    return entries()[probe.entry].size


def with_size(base: ProbeSet, name: str, size: int) -> ProbeSet | None:
    """``base`` with another size of copy in the probe called ``name``; None for a probe that cannot be made anew."""
    probe = base.probe(name)
    old = None if probe is None else size_of(probe)
    if probe is None or old is None or probe.program.context is None:
        return None
    stream = next((r for r in probe.program.resources() if isinstance(r, Stream)), None)
    for place in (Placement(probe.program.context), Placement(probe.program.context, stream)):
        entry = entries()[probe.entry]
        # Only where the catalogue's own recipe gives the very same program is its size what was found.
        if entry.probe(place, size=old, name=name).program == probe.program:
            other = entry.probe(place, size=size, name=name, period_ns=probe.period_ns)
            return replace(base, probes=tuple(other if p.name == name else p for p in base.probes))
    return None


def gpus_needed(probe_set: ProbeSet) -> int:
    """How many GPUs the probes name, or the variant that is on: recorded probes have no resources."""
    devices = [getattr(r, "device", 0) for probe in probe_set.probes for r in probe.program.resources()]
    named = max((device for device in devices if isinstance(device, int)), default=0) + 1
    known = patterns().get(probe_set.pattern)
    variant = next((v for v in known.variants if v.name == probe_set.variant), None) if known is not None else None
    return max(named, 1 if variant is None else variant.needs.gpus)


def gpu_words(probe_set: ProbeSet) -> str:
    """All GPUs that the bench takes: ``2 × NVIDIA H200 (GPU 0, GPU 1)``; a count where not all names are known."""
    names = (probe_set.gpu, *probe_set.more_gpus)
    missing = gpus_needed(probe_set) - len(names) if probe_set.gpu else 0
    if missing > 0:
        return f"{' + '.join(names)} + {missing} more GPU{'s' if missing > 1 else ''}"
    kinds, _, numbers = zip(*(name.partition(" (") for name in names), strict=True)
    if len(names) > 1 and len(set(kinds)) == 1:
        told = ", ".join(number.removesuffix(")") for number in numbers if number)
        return f"{len(names)} × {kinds[0]}" + (f" ({told})" if told else "")
    return " + ".join(names)


def aggressors(probe_set: ProbeSet) -> tuple[str, ...]:
    """The names of those that disturb."""
    return tuple(probe.name for probe in probe_set.probes if probe.role is Role.AGGRESSOR)
