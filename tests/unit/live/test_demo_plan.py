"""The plan of the demo: which variants it shows, and what its captions say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stallprobes.catalog import entries
from stallprobes.demo.plan import DemoPhase, DemoStep, PatternPlan, plans, recorded_step
from stallprobes.model import SYMPTOM_TITLES, Kind, Pattern, Variant
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM, ProbeSet

PATTERN = patterns()["secondary-context-d2d"]
_ALONE, _STALL = PATTERN.variant("secondary-alone"), PATTERN.variant("kernel-other-context")


def pattern_of(*kinds: tuple[Kind, Variant]) -> Pattern:
    """A pattern with variants of ``kinds`` that have the probes of the given variants."""
    variants = tuple(replace(one, name=f"v{number}", kind=kind) for number, (kind, one) in enumerate(kinds))
    return replace(PATTERN, variants=variants)


def phases(plan: PatternPlan) -> list[tuple[str, str]]:
    """Phase and variant of each step."""
    quiet = plan.quiet_step(0)
    steps = [quiet] if quiet else []
    steps.append(DemoStep(plan.pattern, DemoPhase.STALL, plan.stalls[0]))
    steps += [DemoStep(plan.pattern, DemoPhase.REMEDY, one) for one in plan.remedies[:1]]
    return [(str(step.phase), step.variant.name) for step in steps]


@pytest.mark.parametrize(
    ("kinds", "expected"),
    [
        (
            ((Kind.REMEDY, _STALL), (Kind.CONTROL, _ALONE), (Kind.STALL, _STALL), (Kind.STALL, _STALL)),
            [("quiet", "v2"), ("stall", "v2"), ("remedy", "v0")],
        ),
        # Nothing to switch off in the stall: the control is the quiet step.
        (((Kind.STALL, _ALONE), (Kind.CONTROL, _STALL), (Kind.CONTROL, _ALONE)), [("quiet", "v2"), ("stall", "v0")]),
        (((Kind.STALL, _ALONE), (Kind.REMEDY, _ALONE)), [("stall", "v0"), ("remedy", "v1")]),
        # This machine showed no stall: a control with an aggressor is shown in its place.
        (((Kind.CONTROL, _ALONE), (Kind.CONTROL, _STALL)), [("quiet", "v1"), ("stall", "v1")]),
        (((Kind.CONTROL, _ALONE),), [("stall", "v0")]),
    ],
    ids=["usual", "without-aggressors", "nothing-quiet", "controls", "one-control"],
)
def test_the_steps_follow_from_the_kinds(
    kinds: Sequence[tuple[Kind, Variant]], expected: list[tuple[str, str]]
) -> None:
    assert phases(PatternPlan.of(pattern_of(*kinds))) == expected


def test_a_pattern_with_remedies_alone_has_nothing_to_show() -> None:
    assert plans([pattern_of((Kind.REMEDY, _STALL))]) == ()


def test_every_pattern_has_a_plan_and_a_symptom() -> None:
    assert [plan.pattern for plan in plans(patterns().values())] == list(patterns().values())
    assert {pattern.symptom for pattern in patterns().values()} <= set(SYMPTOM_TITLES)


@pytest.mark.parametrize("plan", plans(patterns().values()), ids=lambda plan: plan.pattern.name)
def test_every_step_says_what_runs_and_what_to_look_at(plan: PatternPlan) -> None:
    quiet = plan.quiet_step(0)
    steps = [DemoStep(plan.pattern, DemoPhase.STALL, one) for one in plan.stalls]
    steps += [DemoStep(plan.pattern, DemoPhase.REMEDY, one) for one in plan.remedies]
    for step in (*([quiet] if quiet else ()), *steps):
        assert step.runs.startswith(f"{step.word}: ")
        assert step.look
        assert not (step.phase is DemoPhase.QUIET and step.aggressors_on)


def test_the_step_of_a_recorded_probe_set_follows_from_its_variant_and_its_aggressors() -> None:
    def step(variant: str, on: bool) -> DemoStep | None:
        return recorded_step(ProbeSet("", (), SIM, pattern=PATTERN.name, variant=variant), PATTERN, on)

    assert step("kernel-other-context", False) == DemoStep(PATTERN, DemoPhase.QUIET, _STALL)
    assert step("kernel-other-context", True) == DemoStep(PATTERN, DemoPhase.STALL, _STALL)
    remedy = PATTERN.variant("kernel-same-context")
    assert step("kernel-same-context", False) == DemoStep(PATTERN, DemoPhase.REMEDY, remedy)
    assert step("of another version", True) is None


def test_the_quiet_step_of_a_pattern_without_a_victim_names_the_host_control() -> None:
    plan = PatternPlan.of(patterns()["scalar-readback"])
    quiet = plan.quiet_step(0)
    assert quiet is not None
    assert "only the host control" in quiet.runs
    assert entries()["host"].role not in [probe.role for probe in quiet.aggressors]
