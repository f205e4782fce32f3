"""Pairs and triples of the quick check's aggressors beside five victims, and how a named cause compares with blame."""

from __future__ import annotations

import gzip
import itertools
import json
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.latency.ratio import Quantile
from stallprobes.live.analyzer import Analyzer
from stallprobes.matrix.known_effects import known_effects
from stallprobes.model import Phase
from stallprobes.patterns.naming import parse_probe
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, GpuName, Observation, ProbeSet
from stallprobes.verdicts.blame import AggressorBlame, Blame, BlameOutcome, Conclusion, FigureBlame
from stallprobes.verdicts.candidates import KnownEffects
from stallprobes.verdicts.explanations import beside_aggressors
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict

VICTIMS = ("launch", "d2d", "d2h-pinned", "h2d-pinned", "d2d@secondary")
AGGRESSORS = (
    "spin",
    "d2h-pageable-warm",
    "d2h-pageable-fresh",
    "d2h-pinned-large",
    "alloc-free",
    "free-beside-kernel",
    "host-alloc-free",
    "host-register",
    "module-load",
    "stream-churn",
)
PAIRS = tuple(itertools.combinations(AGGRESSORS, 2))
_TRIPLES, _TRIPLES_SEED = 12, 54
TRIPLES = tuple(random.Random(_TRIPLES_SEED).sample(list(itertools.combinations(AGGRESSORS, 3)), _TRIPLES))
MIXTURES: tuple[tuple[str, ...], ...] = (*PAIRS, *TRIPLES)
APART_S = 3.0
_STEP_S, _BASELINE_S = 0.1, 6.0
# Blame of each of MIXTURES on an H200, with its fingerprint.
RECORDED = Path(__file__).parents[1] / "gpu" / "recorded" / "mixtures-h200.json.gz"


class Score(StrEnum):
    """A verdict's cause compared with what blame proves of the same figure."""

    BECAUSE_RIGHT = "because of, right"
    BECAUSE_WRONG = "because of, WRONG"
    PROBABLY_RIGHT = "probably, right"
    PROBABLY_WRONG = "probably, WRONG"
    NOT_KNOWN = "not known"
    UNDECIDED = "blame does not decide"


@dataclass(frozen=True)
class Scored:
    """The score of one verdict; ``clear``: blame proves a single culprit."""

    score: Score
    clear: bool
    line: str


def named(verdict: Verdict) -> tuple[str, ...]:
    """The aggressors that the cause of ``verdict`` names."""
    return () if verdict.proof in (Proof.NONE, Proof.OPEN) else verdict.aggressors


def scored(verdict: Verdict, figure: FigureBlame | None, aggressors: Sequence[str]) -> Scored:
    """The score of ``verdict`` by ``figure``, what blame found of it. It names one aggressor, or says that it is one of
    several: one of those has to be a cause."""
    conclusions = {} if figure is None else {one.aggressor: one.conclusion for one in figure.aggressors}
    guilty = {name for name, one in conclusions.items() if one.named or one is Conclusion.TOGETHER}
    found = named(verdict)
    probable = verdict.proof is Proof.PROBABLE
    if figure is None or figure.outcome is not BlameOutcome.STALL or not guilty:
        score = Score.UNDECIDED
    elif not found:
        score = Score.NOT_KNOWN
    elif guilty & set(found):
        score = Score.PROBABLY_RIGHT if probable else Score.BECAUSE_RIGHT
    else:
        score = Score.PROBABLY_WRONG if probable else Score.BECAUSE_WRONG
    blamed = ", ".join(f"{name} {one}" for name, one in conclusions.items())
    line = (
        f"{verdict.probe} {verdict.phase} {verdict.quantile} ×{verdict.ratio or 0:.3g} beside {', '.join(aggressors)}: "
        f"{score}: named {', '.join(found) or 'none'}; blame: {blamed or 'no figure'}"
    )
    return Scored(score, sum(one is Conclusion.CAUSE for one in conclusions.values()) == 1, line)


def figure_of(verdict: Verdict, found: Blame) -> FigureBlame | None:
    """The figure of ``found`` that ``verdict`` is about."""
    quantile = Quantile.P50 if verdict.quantile is Quantile.IN_FLIGHT else verdict.quantile
    return None if verdict.phase is None else found.find(verdict.probe, verdict.phase, quantile)


def recorded() -> Iterator[tuple[tuple[str, ...], FigureBlame]]:
    """The aggressors and each main figure that stalls of the recorded mixtures."""
    for mixture in _document()["mixtures"]:
        figures = tuple(map(_figure, mixture["figures"]))
        found = Blame(tuple(mixture["aggressors"]), mixture["rounds"], mixture["seconds"], figures)
        for victim in found.victims:
            for figure in found.main_figures(victim):
                if figure.outcome is BlameOutcome.STALL:
                    yield found.aggressors, figure


@cache
def _document() -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(gzip.decompress(RECORDED.read_bytes()))
    return document


def _figure(told: Mapping[str, Any]) -> FigureBlame:
    return FigureBlame(
        told["victim"],
        Phase(told["phase"]),
        None,
        Quantile(told["quantile"]),
        told["off_ns"],
        told["on_ns"],
        BlameOutcome(told["outcome"]),
        tuple(
            AggressorBlame(name, alone_ns, without_ns, None, Conclusion(conclusion))
            for name, (conclusion, alone_ns, without_ns) in told["aggressors"].items()
        ),
    )


def scores_of_recorded() -> Iterator[Scored]:
    """The scores of what `run` says, without blame, of the recorded mixtures."""
    document = _document()

    def effects() -> KnownEffects | None:
        return known_effects(document["gpu"], document["driver"])

    for aggressors, figure in recorded():
        probes, victim = [parse_probe(name) for name in aggressors], parse_probe(figure.probe)
        phase, ratio = figure.channel.phase, figure.ratio
        reason = beside_aggressors(victim, probes, effects=effects, phase=phase, ratio=ratio)._asdict()
        kind = VerdictKind.STALLED
        yield scored(
            Verdict(victim.name, phase, figure.quantile, figure.off_ns, figure.on_ns, ratio, kind, "", **reason),
            figure,
            aggressors,
        )


def switched_one_by_one(
    order: Sequence[str], options: Options, made: type[Session], victims: Sequence[str] = VICTIMS
) -> Analyzer:
    """The analyzer of a screen on which the aggressors were switched on in ``order``, APART_S apart."""
    probes = (*map(parse_probe, (*victims, *order)), entries()["host"].probe())
    session = made(probes, backend=SIM, options=options)
    info = session.start()
    probe_set = ProbeSet(title="mixture", probes=probes, backend=SIM, gpus=(GpuName(str(info["gpu_model"])),))
    analyzer = Analyzer(probe_set)

    def run_for(seconds: float) -> None:
        for _ in range(round(seconds / _STEP_S)):
            session.run_for(_STEP_S)
            now = session.snapshot()
            analyzer.feed(
                Observation(
                    wall_s=now.at_ns / 1e9,
                    probe_set=probe_set,
                    engine=EngineStatus(EngineCondition.READY),
                    snapshot=now,
                )
            )

    try:
        session.set_running([*victims, "host"])
        run_for(_BASELINE_S)
        for name in order:
            session.set_running({name: True})
            run_for(APART_S)
        return analyzer
    finally:
        session.stop()
