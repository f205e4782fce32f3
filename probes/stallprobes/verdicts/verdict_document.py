"""A verdict in JSON documents. Latencies are microseconds with three decimals; unknown values are null."""

from __future__ import annotations

from typing import Annotated, Any, Self

from msgspec import Meta, field

from stallprobes.files.codec import Document, Figure, Text, about
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase
from stallprobes.units import rounded, us_of
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict

Detectable = Annotated[float, Meta(ge=1, description="Smallest ratio that would have been noticed.")]
_KIND = about(
    "drift: as slow after the aggressors stopped. unsteady: the machine itself varies by as much with no aggressor "
    "running. host: noise of the machine itself. gpu-time: host time that is GPU time. overhead: host time that no GPU "
    "work explains."
)
_PROOF = about(
    "How the cause is known. rule: the catalogue knows it, and no other aggressor runs that stalls the victim so by "
    "itself. probable: of several aggressors this one is the likeliest. open: it is one or more of several, and not "
    "known which. switching: the slowdown began and ended with the aggressor. blame: an experiment switched each "
    "aggressor on and off. none: it is not known."
)


class PercentileSpreads(Document):
    """Variation of the machine with no aggressor running: the highest over the lowest percentile of a second, of the
    probe that varies most."""

    p50: Annotated[float, Meta(ge=1)] | None
    p99: Annotated[float, Meta(ge=1)] | None

    @classmethod
    def of_ratios(cls, p50: float | None, p99: float | None) -> PercentileSpreads | None:
        """The document of both spreads; None where neither is known."""
        return None if p50 is None and p99 is None else cls(rounded(p50), rounded(p99))


class VerdictDocument(Document, kw_only=True):
    """A finding about one probe."""

    probe: Text
    phase: Phase | None
    quantile: Quantile
    baseline_us: Figure | None
    range_us: Annotated[
        tuple[Figure, Figure] | None,
        about("Lowest and highest percentile of the baseline's seconds, where they are known."),
    ]
    now_us: Figure | None
    ratio: Figure | None
    detectable: Detectable | None
    kind: Annotated[VerdictKind, _KIND]
    proof: Annotated[Proof, _PROOF]
    head: Annotated[Text, about("What was measured.")]
    cause: Text
    remedy: Text
    sentence: Annotated[Text, about("Host in a merged check, head and cause.")]
    aggressors: Annotated[
        list[Text], about("Aggressors that the cause names; where it is open, those that may be it.")
    ] = field(default_factory=list)

    @classmethod
    def of_verdict(cls, verdict: Verdict, **others: Any) -> Self:
        """The document of ``verdict``; ``others`` are the members that a subclass adds."""
        others["range_us"] = None if verdict.range_ns is None else tuple(map(us_of, verdict.range_ns))
        others["aggressors"] = list(verdict.aggressors)
        figures = {"ratio": rounded(verdict.ratio), "detectable": rounded(verdict.detectable)}
        return cls.of(verdict, **figures, **others)
