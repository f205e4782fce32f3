"""A verdict as data. Loads neither the rules nor the catalogue, so that a file reader can import it."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr

from stallprobes.files.codec import Document, Latency, Ratio, Rounded, Text, about
from stallprobes.files.tables import Record
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Phase
from stallprobes.verdicts.kinds import VerdictKind

Detectable = Annotated[float, Meta(ge=1, description="Smallest ratio that would have been noticed."), Rounded(3)]
# Description of a verdict's kind in the JSON schemas.
_KIND = about(
    "drift: as slow after the aggressors stopped. unsteady: the machine itself varies by as much with no aggressor "
    "running. host: noise of the machine itself. gpu-time: host time that is GPU time. overhead: host time that no GPU "
    "work explains."
)
# Description of a verdict's proof in the JSON schemas.
_PROOF = about(
    "How the cause is known. rule: the catalogue knows it, and no other aggressor runs that stalls the victim so by "
    "itself. probable: of several aggressors this one is the likeliest. open: it is one or more of several, and not "
    "known which. switching: the slowdown began and ended with the aggressor. blame: an experiment switched each "
    "aggressor on and off. none: it is not known."
)


class Proof(StrEnum):
    """How the cause of a verdict is known.

    ``BLAME``: an experiment switched each aggressor on and off. ``SWITCHING``: the slowdown began and ended with the
    aggressor. ``RULE``: the catalogue knows the cause, and no other running aggressor stalls the victim as much by
    itself. ``PROBABLE``: of several aggressors, the named one is the likeliest. ``OPEN``: the cause is among several
    aggressors. ``NONE``: no cause is known.
    """

    NONE = "none"
    OPEN = "open"
    PROBABLE = "probable"
    RULE = "rule"
    SWITCHING = "switching"
    BLAME = "blame"


class Verdict(Document):
    """A finding about one probe.

    ``short_cause`` and ``short_remedy`` are a clause each, for one line.
    """

    probe: Text
    phase: Phase | None
    quantile: Quantile
    """The figure that is compared."""
    baseline_ns: Latency | None
    now_ns: Latency | None
    ratio: Ratio | None
    kind: Annotated[VerdictKind, _KIND]
    head: Text
    """What was measured."""
    cause: Text = ""
    remedy: Text = ""
    proof: Annotated[Proof, _PROOF] = Proof.NONE
    host: Text = ""
    """Name of one of hosts in a merged check, else empty."""
    range_ns: tuple[Latency, Latency] | None = None
    """Lowest and highest percentile of the baseline's seconds, where they are known."""
    detectable: Detectable | None = None
    label: Text = ""
    """The operation that the figure is of; empty for all operations of the phase."""
    short_cause: Text = ""
    short_remedy: Text = ""
    aggressors: tuple[Text, ...] = ()
    """Aggressors that the cause names; where it is open, those that may be it."""
    sentence: Text = ""
    """Host in a merged check, head and cause."""

    def __post_init__(self) -> None:
        super().__post_init__()
        words = " ".join(part for part in (self.head, self.cause) if part)
        force_setattr(self, "sentence", f"On {self.host}: {words}" if self.host else words)

    @property
    def weight(self) -> tuple[int, float]:
        """Sort key: the severity of the kind, then the ratio; larger is worse."""
        return self.kind.severity, self.ratio or 0.0


def worst_of(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The most severe of ``verdicts``, None where there is none."""
    return max(verdicts, key=lambda verdict: verdict.weight, default=None)


def verdict_columns(verdicts: Iterable[Verdict], phase: Phase) -> Record:
    """Columns of the worst verdict on ``phase``, or on the probe as a whole, in the records of a result."""
    worst = worst_of(verdict for verdict in verdicts if verdict.phase in (None, phase))
    if worst is None:
        return dict.fromkeys(("verdict", "cause", "remedy"))
    return {"verdict": str(worst.kind), "cause": worst.cause, "remedy": worst.remedy}


class PercentileSpreads(Document):
    """Variation of the machine with no aggressor running: the highest over the lowest percentile of a second, of the
    probe that varies most."""

    p50: Annotated[float, Meta(ge=1), Rounded(3)] | None
    p99: Annotated[float, Meta(ge=1), Rounded(3)] | None
