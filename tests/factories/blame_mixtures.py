"""Mixtures of aggressors drawn at random, and what each has to do with a victim's stall by long runs of each state."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import PERCENTILES, Quantile, phase_channels
from stallprobes.latency.window import Window
from stallprobes.measurement import blame as experiment
from stallprobes.model import JUDGED_PHASES, Channel, Probe, Role
from stallprobes.patterns.naming import parse_probe
from stallprobes.verdicts.blame import Blame, BlameOutcome, Conclusion
from stallprobes.verdicts.evidence import SLOWER, SLOWER_NS, STALLED, TAIL_NS
from stallprobes.verdicts.experiment import ALL_OFF, AggressorState, states_of

# These call thousands of times in a second. Simulating each call takes real time, so they are paced.
_PACED_NS = {"context-sync": 500_000, "launch-queue-full": 60_000_000}
_CONTROL_PERIOD_NS = 500_000
_WARM_S = 0.3
_PAUSE_S = 0.1
_RETURN_STEPS = 10
# A run of the truth is so many times as long at most, until the victim has made enough calls for its percentiles. One
# in which no call returns shows nothing new.
_LONGEST_RUN, _ENOUGH_CALLS = 6, 200
# A truth is borderline if a value is within this factor of the one that decides: the least of a verdict, or half way by
# ratio between all off and all on; or if the percentiles beside it say something else: the latency then has two modes,
# and the share of each decides.
_BORDER_RATIO = 1.1
_BESIDE = {Quantile.P50: (45.0, 55.0), Quantile.P99: (98.5, 99.33)}

FigureKey = tuple[Channel, Quantile]


@dataclass(frozen=True)
class Mixture:
    """One victim and its aggressors."""

    victim: Probe
    aggressors: tuple[Probe, ...]

    @classmethod
    def of(cls, victim: str, *aggressors: str) -> Mixture:
        """The mixture of probes with these names."""
        return cls(parse_probe(victim), tuple(parse_probe(name) for name in aggressors))

    @classmethod
    def drawn(cls, seed: int) -> Mixture:
        """One victim and two to four aggressors of the default check, drawn by ``seed``."""
        rng = random.Random(seed)
        rows, columns = _names(Role.VICTIM), _names(Role.AGGRESSOR)
        return cls.of(rng.choice(rows), *rng.sample(columns, rng.randint(2, 4)))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the aggressors."""
        return tuple(probe.name for probe in self.aggressors)

    def session(self, seed: int, backend: str = "sim") -> Session:
        """A session of the mixture in which the victim runs."""
        options = Options(seed=seed)
        session = Session([self.victim, *self.aggressors], backend=backend, options=options)
        session.start()
        for probe in self.aggressors:
            paced_ns = _CONTROL_PERIOD_NS if entries()[probe.entry].control else _PACED_NS.get(probe.entry)
            if backend == "sim" and paced_ns is not None:
                session.set_period(probe.name, paced_ns)
        session.set_running([self.victim.name])
        session.run_for(_WARM_S)
        return session


def _names(role: Role) -> list[str]:
    """The default check's victims or aggressors that need one GPU and are one thread."""
    return [
        place.probe_name(entry.name)
        for entry in entries().values()
        if entry.role is role and entry.needs.gpus == 1
        for place in entry.check
        # Several threads of an entry are several aggressors.
        if place.threads == 1
    ]


@dataclass(frozen=True)
class Truth:
    """What the long runs say of one figure: whether it stalls, each aggressor's conclusion, and whether it is clear."""

    stalls: bool
    ratio: float
    conclusions: dict[str, Conclusion]
    borderline: frozenset[str]


def runs_of(mixture: Mixture, session: Session, seconds: float) -> dict[AggressorState, Window]:
    """The victim's window of ``seconds`` in each state, of several times as long where it makes few calls."""
    runs = {}
    victim = mixture.victim.name
    for state in states_of(mixture.names):
        session.set_running({name: name in state for name in mixture.names})
        session.run_for(2 * _PAUSE_S)
        begin = session.probe_snapshots([victim])[victim]
        for _ in range(_LONGEST_RUN):
            session.run_for(seconds)
            runs[state] = session.probe_snapshots([victim])[victim].minus(begin)
            if not 0 < runs[state].iterations < _ENOUGH_CALLS:
                break
        session.set_running(dict.fromkeys(mixture.names, False))
        for _ in range(_RETURN_STEPS):
            session.run_for(_PAUSE_S)
            if all(part.in_flight is None for part in session.probe_snapshots(mixture.names, False).values()):
                break
    return runs


def truths(mixture: Mixture, runs: Mapping[AggressorState, Window]) -> dict[FigureKey, Truth]:
    """The truth on every figure, from one long run in each state. No statistics."""
    found = {}
    for phase in JUDGED_PHASES:
        for channel in phase_channels(list(runs[ALL_OFF].channels), phase):
            calls = {state: _calls(mixture.victim, run, channel) for state, run in runs.items()}
            for quantile in PERCENTILES:
                values = {state: one.percentile(quantile.percent) for state, one in calls.items()}
                known = {state: value for state, value in values.items() if value is not None}
                if len(known) == len(values):
                    one = _truth(mixture.names, quantile, known)
                    unsteady = _unsteady(mixture.names, quantile, calls, one)
                    found[channel, quantile] = replace(one, borderline=one.borderline | unsteady)
    return found


def _unsteady(
    names: Sequence[str], quantile: Quantile, calls: Mapping[AggressorState, Histogram], truth: Truth
) -> set[str]:
    """The aggressors whose conclusion is another one at the percentiles beside that of ``quantile``."""
    found = set()
    for percent in _BESIDE[quantile]:
        values = {state: one.percentile(percent) or 1.0 for state, one in calls.items()}
        beside = _truth(names, quantile, values)
        found |= {name for name in names if beside.conclusions[name] is not truth.conclusions[name]}
    return found


def _calls(victim: Probe, run: Window, channel: Channel) -> Histogram:
    calls = run.channels.get(channel, Histogram.empty())
    flight = run.in_flight
    if flight is not None and victim.program.ops[flight.op].phase is channel.phase:
        return calls.merge(Histogram.of([min(flight.age_ns, run.duration_ns)]))
    return calls


def _truth(names: Sequence[str], quantile: Quantile, values: dict[AggressorState, float]) -> Truth:
    every = frozenset(names)
    off, on = values[ALL_OFF], values[every]
    least = max(SLOWER * off, off + SLOWER_NS) if quantile is Quantile.P50 else max(STALLED * off, off + TAIL_NS)
    stalls = on >= least
    unclear = 1 / _BORDER_RATIO < on / least < _BORDER_RATIO
    conclusions, borderline = {}, set()
    for name in names:
        alone, without = values[frozenset({name})], values[every - {name}]
        if not stalls and not unclear:
            conclusions[name] = Conclusion.INNOCENT
            if max(alone, without) > least / _BORDER_RATIO:
                # Slow without all on: the experiment may say so.
                borderline.add(name)
            continue
        half = math.sqrt(off * on)
        conclusion = _CONCLUSIONS[alone > half, without > half]
        conclusions[name] = conclusion if stalls else Conclusion.INNOCENT
        near = any(1 / _BORDER_RATIO < value / half < _BORDER_RATIO for value in (alone, without))
        if near or (unclear and conclusion.named):
            borderline.add(name)
    if stalls and all(one is Conclusion.INNOCENT for one in conclusions.values()):
        conclusions = dict.fromkeys(names, Conclusion.TOGETHER)
    return Truth(stalls, on / off, conclusions, frozenset(borderline))


_CONCLUSIONS = {
    # (slow alone, slow without it)
    (True, False): Conclusion.CAUSE,
    (True, True): Conclusion.SUFFICIENT,
    (False, False): Conclusion.NECESSARY,
    (False, True): Conclusion.INNOCENT,
}


def blamed(mixture: Mixture, seed: int, backend: str = "sim") -> Blame:
    """The result of the experiment."""
    session = mixture.session(seed, backend)
    try:
        return experiment.measure(session, mixture.aggressors, [mixture.victim])
    finally:
        session.stop()


@dataclass(frozen=True)
class AggressorScore:
    """One aggressor of one mixture: its true conclusion at the figure that shows it best, and the one found there.

    ``named``: the experiment names it in some figure. ``borderline``: the truth itself is near a limit.
    """

    aggressor: str
    truth: Conclusion
    found: Conclusion | None
    named: bool
    borderline: bool

    @property
    def decided(self) -> bool:
        """Whether the experiment says something of it at that figure."""
        return self.found is not None and self.found is not Conclusion.UNDECIDED

    @property
    def right(self) -> bool:
        """Whether a cause is named as what it is, or an innocent aggressor is not named."""
        return self.found is self.truth if self.truth.named else not self.named


def scores(mixture: Mixture, truth: dict[FigureKey, Truth], found: Blame) -> list[AggressorScore]:
    """The score of each aggressor; one that is innocent in every figure counts as innocent."""
    results = {(one.channel, one.quantile): one for one in found.figures}
    out = []
    for name in mixture.names:
        parts = {key: part for key, one in results.items() for part in one.aggressors if part.aggressor == name}
        named = any(part.conclusion.named and results[key].outcome is BlameOutcome.STALL for key, part in parts.items())
        causes = [key for key, one in truth.items() if one.conclusions[name].named]
        clear = [key for key in causes if name not in truth[key].borderline]
        # The figure that a report shows: the median if it stalls.
        key = max(clear or causes, key=lambda one: (one[1] is Quantile.P50, truth[one].ratio), default=None)
        if key is None:
            together = any(one.conclusions[name] is Conclusion.TOGETHER for one in truth.values())
            border = together or any(name in one.borderline for one in truth.values())
            kind = Conclusion.TOGETHER if together else Conclusion.INNOCENT
            out.append(AggressorScore(name, kind, None, named, border))
        else:
            here = parts[key].conclusion if key in parts else None
            out.append(AggressorScore(name, truth[key].conclusions[name], here, named, not clear))
    return out
