"""Plan of the demo: for each pattern the quiet step, the stall and the remedy, each with a caption of two lines."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from stallprobes.model import Kind, Pattern, Probe, Variant
from stallprobes.recording.observation import ProbeSet


class DemoPhase(StrEnum):
    """The steps of a pattern in their order: without the aggressors, with them, and with the remedy."""

    QUIET = "quiet"
    STALL = "stall"
    REMEDY = "remedy"


# Words of a step with aggressors, by what its variant is for.
_KIND_WORDS = {Kind.STALL: "Stall", Kind.CONTROL: "Control", Kind.REMEDY: "Remedy"}


@dataclass(frozen=True)
class DemoStep:
    """One step of the demo: ``variant`` of ``pattern``, in the quiet phase with its aggressors off."""

    pattern: Pattern
    phase: DemoPhase
    variant: Variant

    @property
    def aggressors(self) -> tuple[Probe, ...]:
        """The aggressors of the variant."""
        return self.variant.aggressors

    @property
    def aggressors_on(self) -> bool:
        """Whether the aggressors run in this step."""
        return self.phase is not DemoPhase.QUIET and bool(self.aggressors)

    @property
    def word(self) -> str:
        """``Quiet``, ``Stall``, ``Control`` or ``Remedy``."""
        return "Quiet" if self.phase is DemoPhase.QUIET else _KIND_WORDS[self.variant.kind]

    @property
    def runs(self) -> str:
        """First line of the caption: what runs."""
        if self.phase is not DemoPhase.QUIET or not self.aggressors:
            return f"{self.word}: {self.variant.title}"
        victims = [probe.name for probe in self.variant.victims]
        if not victims:
            return f"{self.word}: only the host control runs, which makes no CUDA call"
        return f"{self.word}: {', '.join(victims)}; aggressors off"

    @property
    def look(self) -> str:
        """Second line of the caption: what to look at."""
        if self.phase is not DemoPhase.QUIET or not self.aggressors:
            return self.variant.expect
        if self.variant.victims:
            return "Look at p50 and p99 in the row of the victim: they become the baseline."
        return "Look at the row of the aggressor, which is what this pattern measures: it is still off."


@dataclass(frozen=True)
class PatternPlan:
    """The variants of ``pattern`` that the demo shows.

    ``stalls`` and ``remedies`` are alternatives in their order: the first one that the machine supports is shown. A
    pattern without a stall shows a control in its place. ``control`` is the quiet step of a pattern whose stall has no
    aggressor to switch off, None where the stall itself has a quiet step, or there is none.
    """

    pattern: Pattern
    stalls: tuple[Variant, ...]
    remedies: tuple[Variant, ...]
    control: Variant | None = None

    @classmethod
    def of(cls, pattern: Pattern) -> PatternPlan:
        """The plan of ``pattern``."""
        by_kind = {kind: tuple(one for one in pattern.variants if one.kind is kind) for kind in Kind}
        # A control with an aggressor shows more than one without.
        controls = sorted(by_kind[Kind.CONTROL], key=lambda variant: not variant.aggressors)
        stalls = by_kind[Kind.STALL] or tuple(controls)
        alone = (one for one in by_kind[Kind.CONTROL] if not one.aggressors)
        control = None if not stalls or stalls[0].aggressors else next(alone, None)
        return cls(pattern, stalls, by_kind[Kind.REMEDY], control)

    def quiet_step(self, stall: int) -> DemoStep | None:
        """The step before that of the stall number ``stall``; None where nothing can be switched off."""
        if self.stalls[stall].aggressors:
            return DemoStep(self.pattern, DemoPhase.QUIET, self.stalls[stall])
        if self.control is None or self.control is self.stalls[stall]:
            return None
        return DemoStep(self.pattern, DemoPhase.QUIET, self.control)


def plans(patterns: Iterable[Pattern]) -> tuple[PatternPlan, ...]:
    """The plan of each pattern that has a variant to show."""
    return tuple(plan for plan in map(PatternPlan.of, patterns) if plan.stalls)


def recorded_step(probe_set: ProbeSet, pattern: Pattern, aggressors_on: bool) -> DemoStep | None:
    """The step that a recorded probe set shows; None if ``pattern`` has no such variant any more."""
    variant = next((one for one in pattern.variants if one.name == probe_set.variant), None)
    if variant is None:
        return None
    if variant.kind is Kind.REMEDY:
        return DemoStep(pattern, DemoPhase.REMEDY, variant)
    quiet = bool(variant.aggressors) and not aggressors_on
    return DemoStep(pattern, DemoPhase.QUIET if quiet else DemoPhase.STALL, variant)
