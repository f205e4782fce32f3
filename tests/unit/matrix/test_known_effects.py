"""Known effects of single aggressors: by the package's reference, else by the user's own check."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.matrices import made_up
from stallprobes.catalog import Placement, entries
from stallprobes.matrix import check_file
from stallprobes.matrix.known_effects import RecordedEffects, known_effects
from stallprobes.matrix.reference_choice import shipped
from stallprobes.model import MIB, Phase
from stallprobes.patterns.naming import parse_probe, parse_probes
from stallprobes.verdicts.candidates import AggressorGroup, Effect, aggressor_groups

REFERENCE = RecordedEffects.of_reference(shipped("h200-580.159.04"))


def group(name: str) -> AggressorGroup:
    (found,) = aggressor_groups(parse_probes(name))
    return found


@pytest.mark.parametrize(
    ("victim", "aggressor", "phase", "ratio", "effect"),
    [
        ("launch", "host-alloc-free", Phase.CALL, 800.0, Effect.STALLS),
        ("launch", "host-alloc-free", Phase.WAIT, 800.0, Effect.NONE),
        ("launch", "spin", Phase.CALL, 800.0, Effect.NONE),
        # By itself it makes a call nine times as long, so it is not what makes it 800 times as long.
        ("launch", "spin-full", Phase.CALL, 800.0, Effect.NONE),
        ("launch", "spin-full", Phase.CALL, 8.0, Effect.STALLS),
        ("launch", "spin-full", Phase.CALL, None, Effect.STALLS),
        ("launch", "spin-full", Phase.START, 5000.0, Effect.STALLS),
        ("d2d@secondary", "spin", Phase.WAIT, 400.0, Effect.STALLS),
        # In two of four checks the NULL stream's calls starved.
        ("launch/null", "d2h-pageable-warm/null", Phase.CALL, 1e9, Effect.STALLS),
        # Its tail is longer in some of the checks.
        ("d2d@secondary", "d2h-pageable-fresh", Phase.WAIT, 5.0, Effect.MAY_STALL),
        # An aggressor on a stream of its own is beside a victim on another one as those of a check are.
        ("launch/shared", "spin/shared", Phase.WAIT, 9000.0, Effect.STALLS),
        ("launch/shared", "spin", Phase.WAIT, 9000.0, Effect.NONE),
        ("launch", "event-poll", Phase.CALL, 9.0, None),
        ("launch", "launch-burst-x15", Phase.CALL, 9.0, None),
        ("d2d@third", "spin", Phase.WAIT, 9.0, None),
    ],
)
def test_the_reference_knows_each_phase_of_each_cell(
    victim: str, aggressor: str, phase: Phase, ratio: float | None, effect: Effect | None
) -> None:
    assert REFERENCE.effect(parse_probe(victim), group(aggressor), phase, ratio) is effect


def test_a_larger_copy_has_a_larger_effect_than_in_a_check() -> None:
    victim = parse_probe("d2h-pinned")
    (usual,) = aggressor_groups([entries()["d2h-pinned-large"].probe(size=64 * MIB)])
    (larger,) = aggressor_groups([entries()["d2h-pinned-large"].probe(size=256 * MIB)])
    assert REFERENCE.effect(victim, usual, Phase.WAIT, 2000.0) is Effect.NONE
    assert REFERENCE.effect(victim, larger, Phase.WAIT, 2000.0) is Effect.STALLS


def test_nothing_is_known_of_a_victim_of_another_size() -> None:
    large = entries()["d2h-pinned"].probe(Placement(), size=1 * MIB)
    assert REFERENCE.effect(large, group("spin"), Phase.WAIT, 9.0) is None


def test_the_user_s_own_check_is_asked_where_the_package_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert known_effects(None) is None
    none = known_effects("A GPU that the package does not have")
    assert none is not None
    assert none.effect(parse_probe("launch"), group("spin"), Phase.CALL, 9.0) is None
    own = made_up(1, times={("launch", "spin"): 9.0})
    path = tmp_path / "own.json"
    check_file.save(own, path)
    check_file.remember(path)
    known = known_effects(str(own.fingerprint["gpu"]), simulated=own.simulated)
    assert known is not None
    assert known.effect(parse_probe("launch"), group("spin"), Phase.CALL, 9.0) is Effect.STALLS
    assert known.effect(parse_probe("launch"), group("spin"), Phase.WAIT, 9.0) is Effect.NONE
