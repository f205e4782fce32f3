"""Plan of a run: the variants that its names select, the slots and windows of each, and its blame experiment."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from stallprobes.catalog import entries
from stallprobes.engine.slots import longest_cycle
from stallprobes.errors import UnknownName
from stallprobes.measurement.blame import plan_of
from stallprobes.model import Kind, Needs, Probe, Role, Variant
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import ALL, parse_probes, unknown_name_message
from stallprobes.verdicts.experiment import BlamePlan

# Name of the pattern, and of its only variant, that a run makes from probes selected by name.
PROBES = "probes"

# Smallest number of calls in the window of a probe that idles between its calls: one more than a verdict needs.
_IDLE_CALLS = 4
# Shortest time (s) for which a run measures baselines.
_SHORTEST_BASELINE_S = 1.0

# Variants of patterns, each with the name of its pattern.
Selection = Sequence[tuple[str, Variant]]


@dataclass(frozen=True)
class VariantPlan:
    """Plan of one variant of ``pattern``.

    ``slots`` is the number of slots of a cycle, by which its times are longer. ``baseline_s`` and ``window_s`` are the
    time in seconds of each victim in the baselines together and in the window. ``blame`` is the plan of the blame
    experiment; None without one.
    """

    pattern: str
    variant: Variant
    slots: int
    baseline_s: float
    window_s: float
    blame: BlamePlan | None

    @property
    def title(self) -> str:
        """The names of the pattern and the variant."""
        return f"{self.pattern} · {self.variant.name}"


@dataclass(frozen=True)
class RunPlan:
    """Plan of a run: its variants, the seconds asked for, and whether victims run together instead of in slots."""

    variants: tuple[VariantPlan, ...]
    seconds: float
    together: bool

    @property
    def gpus(self) -> int:
        """The number of GPUs that the variants need."""
        return max((planned.variant.needs.gpus for planned in self.variants), default=1)


def plan(chosen: Selection, *, seconds: float = 2.0, together: bool = False, blame: bool = False) -> RunPlan:
    """The plan for ``chosen``; the other arguments are those of ``stallprobes.run``.

    Raises ValueError where ``blame`` is impossible with every variant.
    """
    variants = tuple(
        VariantPlan(
            pattern,
            variant,
            longest_cycle(variant.probes, together),
            max(_SHORTEST_BASELINE_S, seconds / 2),
            _window_s(variant, seconds),
            plan_of(variant.aggressors, variant.victims, together)
            if blame and variant.aggressors and variant.victims
            else None,
        )
        for pattern, variant in chosen
    )
    if blame and not any(planned.blame for planned in variants):
        if any(variant.aggressors for _, variant in chosen):
            raise ValueError("blame finds which aggressor delays a victim, but no victim is selected")
        raise ValueError("blame switches aggressors on and off, but no aggressor is selected")
    return RunPlan(variants, seconds, together)


def _window_s(variant: Variant, seconds: float) -> float:
    """``seconds``, or enough for four calls after idle times."""
    longest_ns = max((probe.period_ns for probe in variant.probes if probe.idles), default=0)
    return max(seconds, _IDLE_CALLS * longest_ns / 1e9)


def selection(names: Sequence[str], variants: Sequence[str] = ()) -> list[tuple[str, Variant]]:
    """The variants selected by ``names``: those of patterns (``all`` for every pattern), and one with all named probes.

    A probe may be placed by ``NAME@CONTEXT``, by ``NAME/STREAM`` or by both, in this order. ``variants`` restricts the
    variants of the patterns. Raises UnknownName.
    """
    named = patterns()
    wanted: list[str] = []
    for name in names:
        wanted.extend(named if name == ALL else [name])
    chosen = [(name, variant) for name in dict.fromkeys(wanted) if name in named for variant in named[name].variants]
    for name in variants:
        there = [variant.name for _, variant in chosen]
        if name not in there:
            raise UnknownName(unknown_name_message("variant", name, there))
    if variants:
        chosen = [(name, variant) for name, variant in chosen if variant.name in variants]
    probes = [name for name in wanted if name not in named]
    if probes:
        chosen.append((PROBES, _probes_variant(probes)))
    return chosen


def _probes_variant(names: Iterable[str]) -> Variant:
    probes: dict[str, Probe] = {}
    for name in names:
        probes |= {probe.name: probe for probe in parse_probes(name)}
    if not any(probe.role is Role.HOST for probe in probes.values()):
        probes["host"] = entries()["host"].probe()
    two = any(getattr(r, "device", 0) == 1 for probe in probes.values() for r in probe.program.resources)
    return Variant(
        name=PROBES,
        kind=Kind.CONTROL,
        title="probes chosen by name",
        probes=tuple(probes.values()),
        expect="",
        why="",
        needs=Needs(gpus=2 if two else 1),
    )
