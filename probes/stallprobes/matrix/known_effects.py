"""Known effects of single aggressors: what the package's reference check, and the user's own one, say of each pair."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

from stallprobes.catalog import entries, size_of
from stallprobes.catalog.entry import OWN
from stallprobes.errors import CheckFileError
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.check.plan import AGGRESSORS_STREAM, check_size
from stallprobes.matrix.matrix import Matrix
from stallprobes.matrix.reference import UNUSUAL_FACTORS, CellState, Reference, gpu_model
from stallprobes.matrix.reference_choice import reference_of_gpu
from stallprobes.model import MATRIX_PHASES, Phase, Probe
from stallprobes.patterns.naming import by_name, probe_name
from stallprobes.verdicts.candidates import AggressorGroup, Effect, KnownEffects
from stallprobes.verdicts.evidence import SLOWER, STALLED

# Smallest ratio to the baseline, by percentile, with which an aggressor counts as slowing a victim. A single check of a
# reference (recorded checks) with this ratio suffices.
_LEAST = {Quantile.P50: SLOWER, Quantile.P99: STALLED}
# If a stall exceeds the largest recorded stall by more than this factor, the aggressor alone is no explanation. Both
# stalls are ratios to the baseline, for the same victim, phase and aggressor. If the aggressor has a larger size
# (bytes) than in the check, the limit grows with the size. For 57 mixtures of aggressors, on an H200 and simulated, no
# wrong aggressor was named with a factor of 2 to 4. With a factor of 5, one wrong aggressor was named.
_BEYOND = UNUSUAL_FACTORS[Quantile.P99]


class CellEffect(NamedTuple):
    """Effect on one phase of a cell: whether all checks agree on it, and the largest ratio to the baseline."""

    sure: bool
    ratio: float


@dataclass(frozen=True, eq=False)
class RecordedEffects:
    """Effects in the cells of a check, or of a reference: the cells that were measured, and the phases with an effect.

    ``source`` names the check for a reader.
    """

    source: str
    measured: frozenset[tuple[str, str]]
    effects: Mapping[tuple[str, str, Phase], CellEffect]

    @classmethod
    def of_reference(cls, reference: Reference) -> RecordedEffects:
        """The effects in the checks of ``reference``."""
        effects = {}
        for place, cell in reference.by_place.items():
            for phase in MATRIX_PHASES:
                strong = [
                    (low >= _LEAST[quantile], high)
                    for quantile, (low, high) in cell.ratios.get(phase, {}).items()
                    if high >= _LEAST[quantile]
                ]
                if CellState.STARVED in cell.checks:
                    # Calls that did not return have no ratio.
                    strong.append((False, math.inf))
                if strong:
                    effects[*place, phase] = CellEffect(any(sure for sure, _ in strong), max(r for _, r in strong))
        return cls(f"reference {reference.name}", frozenset(reference.by_place), effects)

    @classmethod
    def of_matrix(cls, matrix: Matrix) -> RecordedEffects:
        """The effects in a single check, whose verdicts rest on several repeats."""
        effects = {}
        for place, cell in matrix.cells.items():
            for verdict in cell.verdicts:
                if verdict.phase is not None and verdict.kind.severity:
                    sure = verdict.kind.is_stall
                    effects[*place, verdict.phase] = CellEffect(sure, verdict.ratio if verdict.ratio else math.inf)
        measured = frozenset(place for place, cell in matrix.cells.items() if cell.status.measured)
        return cls(f"check of {matrix.started_at[:10]}", measured, effects)

    def effect(self, victim: Probe, aggressor: AggressorGroup, phase: Phase, ratio: float | None) -> Effect | None:
        """The effect of ``aggressor`` on ``phase`` of ``victim``; None without a cell of the two."""
        place = _place(victim, aggressor.probes)
        if place not in self.measured:
            return None
        entry = self.effects.get((*place, Phase.WAIT if phase is Phase.START else phase))
        size, usual = size_of(aggressor.probes[0]), check_size(entries()[aggressor.probes[0].entry])
        larger = size / usual if size and usual else 1.0
        if entry is None or (ratio is not None and ratio > _BEYOND * entry.ratio * max(larger, 1.0)):
            return Effect.NONE
        return Effect.STALLS if entry.sure and larger >= 1 else Effect.MAY_STALL


def _place(victim: Probe, aggressors: Sequence[Probe]) -> tuple[str, str]:
    """The row and the column of a check that have the relation of ``victim`` and ``aggressors``."""
    (column,) = by_name([replace(probe, stream=_column_stream(probe.stream)) for probe in aggressors])
    apart = victim.stream == AGGRESSORS_STREAM != aggressors[0].stream
    usual = size_of(victim) in (None, check_size(entries()[victim.entry])) if victim.entry in entries() else False
    return (probe_name(replace(victim, stream=OWN) if apart else victim) if usual else ""), column


def _column_stream(stream: str) -> str:
    """A stream of its own and the one that a check's aggressors share are the same to a victim on another one."""
    return OWN if stream == AGGRESSORS_STREAM else stream


@dataclass(frozen=True, eq=False)
class _FirstKnown:
    """Effects of the first of several checks that has the cell; a check is read once it is needed."""

    checks: Sequence[Callable[[], RecordedEffects | None]]

    @property
    def source(self) -> str:
        """The first check that there is."""
        return next((effects.source for effects in (check() for check in self.checks) if effects is not None), "")

    def effect(self, victim: Probe, aggressor: AggressorGroup, phase: Phase, ratio: float | None) -> Effect | None:
        """The effect by the first check that has the cell."""
        for check in self.checks:
            effects = check()
            effect = None if effects is None else effects.effect(victim, aggressor, phase, ratio)
            if effect is not None:
                return effect
        return None


def known_effects(gpu: str | None, driver: str | None = None, *, simulated: bool = False) -> KnownEffects | None:
    """The effects on the GPU model ``gpu``: of the reference nearest to ``driver``, else of the last saved check.

    None for an unknown GPU.
    """
    if gpu is None:
        return None
    return _FirstKnown((lambda: _of_package(gpu, driver), lambda: _saved(gpu, simulated)))


@cache
def _of_package(gpu: str, driver: str | None) -> RecordedEffects | None:
    reference = reference_of_gpu(gpu, driver)
    return None if reference is None else RecordedEffects.of_reference(reference)


def _saved(gpu: str, simulated: bool) -> RecordedEffects | None:
    # What reads a check takes tens of milliseconds to import.
    from stallprobes.matrix import check_file

    path = check_file.last_saved()
    return None if path is None else _of_file(path, gpu, simulated)


@cache
def _of_file(path: Path, gpu: str, simulated: bool) -> RecordedEffects | None:
    from stallprobes.matrix import check_file

    with suppress(CheckFileError):
        matrix = check_file.load(path)
        if gpu_model(matrix) == gpu and matrix.simulated == simulated and not matrix.hosts:
            return RecordedEffects.of_matrix(matrix)
    return None
