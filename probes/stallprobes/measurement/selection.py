"""Selection of a run: the variants of the patterns that its names select, and one variant with all named probes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stallprobes.catalog import entries
from stallprobes.errors import UnknownName
from stallprobes.model import Kind, Needs, Probe, Role, Variant
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import ALL, parse_probes, unknown_name_message

# The name that stands for a pattern where probes are selected by name.
PROBES = "probes"

Selection = Sequence[tuple[str, Variant]]


def selection(names: Sequence[str], variants: Sequence[str] = ()) -> list[tuple[str, Variant]]:
    """The variants selected by ``names``: those of patterns (``all`` for every pattern), and one with all named probes.

    A probe may be placed by ``NAME@CONTEXT``, by ``NAME/STREAM`` or by both, in this order. ``variants`` restricts the
    variants of the patterns. Raises UnknownName.
    """
    known = patterns()
    wanted: list[str] = []
    for name in names:
        wanted.extend(known if name == ALL else [name])
    found = [(name, variant) for name in dict.fromkeys(wanted) if name in known for variant in known[name].variants]
    for name in variants:
        there = [variant.name for _, variant in found]
        if name not in there:
            raise UnknownName(unknown_name_message("variant", name, there))
    if variants:
        found = [(name, variant) for name, variant in found if variant.name in variants]
    probes = [name for name in wanted if name not in known]
    if probes:
        found.append((PROBES, _probes_variant(probes)))
    return found


def _probes_variant(names: Iterable[str]) -> Variant:
    probes: dict[str, Probe] = {}
    for name in names:
        probes |= {probe.name: probe for probe in parse_probes(name)}
    if not any(probe.role is Role.HOST for probe in probes.values()):
        probes["host"] = entries()["host"].probe()
    two = any(getattr(r, "device", 0) == 1 for probe in probes.values() for r in probe.program.resources())
    return Variant(
        name=PROBES,
        kind=Kind.CONTROL,
        title="probes chosen by name",
        probes=tuple(probes.values()),
        expect="",
        why="",
        needs=Needs(gpus=2 if two else 1),
    )
