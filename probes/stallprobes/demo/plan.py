"""Plan of the demo: for each pattern the quiet step, the stall and the remedy."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from stallprobes.model import Kind, Pattern, Variant
from stallprobes.recording.observation import ProbeSet


class DemoPhase(StrEnum):
    """The steps of a pattern in their order: without the aggressors, with them, and with the remedy."""

    QUIET = "quiet"
    STALL = "stall"
    REMEDY = "remedy"


@dataclass(frozen=True)
class DemoStep:
    """One step of the demo: a variant of ``pattern``, in the quiet phase with its aggressors off.

    ``variants`` are alternatives, at least one: the first one that the machine supports is shown.
    """

    pattern: Pattern
    phase: DemoPhase
    variants: tuple[Variant, ...]

    @property
    def variant(self) -> Variant:
        """The variant that is shown."""
        return self.variants[0]

    @property
    def aggressors_on(self) -> bool:
        """Whether the aggressors run in this step."""
        return self.phase is not DemoPhase.QUIET and bool(self.variant.aggressors)

    def is_shown_by(self, probe_set: ProbeSet) -> bool:
        """Whether ``probe_set`` has the probes of the variant."""
        return (probe_set.pattern, probe_set.variant) == (self.pattern.name, self.variant.name)

    def without(self, variant: Variant) -> DemoStep | None:
        """The step without one of its alternatives; None if there is no other one."""
        left = tuple(one for one in self.variants if one is not variant)
        return replace(self, variants=left) if left else None


def steps(patterns: Iterable[Pattern]) -> tuple[DemoStep, ...]:
    """The steps of all ``patterns``, none of a pattern that has remedies only."""
    return tuple(step for pattern in patterns for step in _steps_of(pattern))


def _steps_of(pattern: Pattern) -> list[DemoStep]:
    """A pattern without a stall shows a control in its place, and one whose stall has no aggressor to switch off a
    control in the quiet step."""
    stalls, controls, remedies = (
        tuple(one for one in pattern.variants if one.kind is kind) for kind in (Kind.STALL, Kind.CONTROL, Kind.REMEDY)
    )
    # A control with an aggressor shows more than one without.
    stalls = stalls or tuple(sorted(controls, key=lambda one: not one.aggressors))
    if not stalls:
        return []
    alone = tuple(one for one in controls if not one.aggressors and one is not stalls[0])
    by_phase = (stalls if stalls[0].aggressors else alone, stalls, remedies)
    return [DemoStep(pattern, phase, variants) for phase, variants in zip(DemoPhase, by_phase, strict=True) if variants]
