"""The plan of the demo: which variants it shows, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from stallprobes.demo import DemoPhase, steps
from stallprobes.model import SYMPTOM_TITLES, Kind, Pattern, Variant
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM, ProbeSet

PATTERN = patterns()["secondary-context-d2d"]
_ALONE, _STALL = PATTERN.variant("secondary-alone"), PATTERN.variant("kernel-other-context")


def pattern_of(*kinds: tuple[Kind, Variant]) -> Pattern:
    """A pattern with variants of ``kinds`` that have the probes of the given variants."""
    variants = tuple(replace(one, name=f"v{number}", kind=kind) for number, (kind, one) in enumerate(kinds))
    return replace(PATTERN, variants=variants)


def phases(pattern: Pattern) -> list[tuple[str, str]]:
    """Phase and variant of each step."""
    return [(str(step.phase), step.variant.name) for step in steps([pattern])]


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
    assert phases(pattern_of(*kinds)) == expected


def test_a_pattern_with_remedies_alone_has_nothing_to_show() -> None:
    assert steps([pattern_of((Kind.REMEDY, _STALL))]) == ()


def test_every_pattern_has_its_steps_in_their_order() -> None:
    for pattern in patterns().values():
        found = steps([pattern])
        assert [step.phase for step in found] == list(DemoPhase)
        assert [step.aggressors_on for step in found if step.phase is DemoPhase.QUIET] == [False]
        assert pattern.symptom in SYMPTOM_TITLES


def test_the_next_alternative_takes_the_place_of_a_variant() -> None:
    pattern = pattern_of((Kind.STALL, _STALL), (Kind.STALL, _STALL), (Kind.REMEDY, _ALONE), (Kind.REMEDY, _ALONE))
    first, second, remedy, other = pattern.variants

    def shown(*refused: Variant) -> list[str]:
        return [step.variant.name for step in steps([pattern], refused)]

    assert shown(first) == ["v1", "v1", "v2"]
    assert shown(remedy) == ["v0", "v0", "v3"]
    assert shown(remedy, other) == ["v0", "v0"]
    assert shown(first, second) == []


def test_a_step_is_shown_by_the_probe_set_of_its_variant() -> None:
    first = steps([PATTERN])[0]
    assert first.is_shown_by(
        ProbeSet(title="", probes=(), backend=SIM, pattern=PATTERN.name, variant=first.variant.name)
    )
    assert not first.is_shown_by(
        ProbeSet(title="", probes=(), backend=SIM, pattern=PATTERN.name, variant="of another version")
    )
