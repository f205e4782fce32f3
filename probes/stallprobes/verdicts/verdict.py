"""A verdict as data. Loads neither the rules nor the catalogue, so that a file reader can import it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase
from stallprobes.verdicts.kinds import VerdictKind


class Proof(StrEnum):
    """How the cause of a verdict is known.

    ``BLAME``: an experiment switched each aggressor on and off. ``SWITCHING``: the slowdown began with the aggressor
    and ended with it. ``RULE``: the catalogue knows the cause, and no other aggressor runs that stalls the victim so by
    itself. ``PROBABLE``: of several aggressors this one is the likeliest. ``OPEN``: it is one or more of several, and
    not known which. ``NONE``: no cause is known.
    """

    NONE = "none"
    OPEN = "open"
    PROBABLE = "probable"
    RULE = "rule"
    SWITCHING = "switching"
    BLAME = "blame"


@dataclass(frozen=True)
class Verdict:
    """One finding about one probe.

    ``quantile`` is the figure that is compared; ``baseline_ns`` and ``now_ns`` are its values, ``ratio`` now over
    baseline, each None if unknown. ``range_ns`` is the lowest and highest percentile of the baseline's seconds,
    ``detectable`` the smallest ratio that would have been noticed, each None if unknown. ``head`` states the
    measurement, ``cause`` its explanation, ``remedy`` the countermeasure; each is one or more sentences, or "".
    ``short_cause`` and ``short_remedy`` are a clause each, for one line. ``proof`` says how the cause is known, and
    ``aggressors`` which aggressors it names, those that may be it where it is ``OPEN``. ``host`` is the
    machine in a merged matrix, else "". ``label`` is the operation that the figure is of, "" where it is of all that
    the phase measures.
    """

    probe: str
    phase: Phase | None
    quantile: Quantile
    baseline_ns: float | None
    now_ns: float | None
    ratio: float | None
    kind: VerdictKind
    head: str
    cause: str = ""
    remedy: str = ""
    proof: Proof = Proof.NONE
    host: str = ""
    range_ns: tuple[float, float] | None = None
    detectable: float | None = None
    label: str = ""
    short_cause: str = ""
    short_remedy: str = ""
    aggressors: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """Host (in a merged matrix), head and cause as text."""
        words = " ".join(part for part in (self.head, self.cause) if part)
        return f"On {self.host}: {words}" if self.host else words

    @property
    def weight(self) -> tuple[int, float]:
        """Sort key: the severity of the kind, then the ratio; larger is worse."""
        return self.kind.severity, self.ratio or 0.0
