"""Blame: the result of an experiment that switched each aggressor on and off, and its words. Loads no numpy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr

from stallprobes.catalog import UNKNOWN_CAUSE, cause
from stallprobes.files.codec import Document, Latency, Natural, Ratio, Rounded, Seconds, Share, Text
from stallprobes.latency.ratio import Quantile
from stallprobes.model import Channel, Phase, Probe
from stallprobes.units import duration_ns, times
from stallprobes.verdicts.candidates import aggressor_groups
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict


class Conclusion(StrEnum):
    """Role of an aggressor in the stall of one figure of a victim. The values are those of the JSON documents.

    ``NECESSARY``: the stall ends without the aggressor, but the aggressor alone does not cause it. ``SUFFICIENT``: the
    aggressor alone causes the stall, and the others cause it too. ``CAUSE``: the aggressor alone causes the stall, and
    the others do not. ``TOGETHER``: no aggressor alone causes the stall, and no aggressor is necessary.
    ``CONTRIBUTING``: the aggressor only makes the stall longer. ``INNOCENT``: the aggressor has no effect.
    ``UNDECIDED``: the rounds differ too much.
    """

    CAUSE = "cause"
    NECESSARY = "necessary"
    SUFFICIENT = "sufficient"
    TOGETHER = "only-together"
    CONTRIBUTING = "contributing"
    INNOCENT = "innocent"
    UNDECIDED = "undecided"

    @property
    def text(self) -> str:
        """The conclusion as a person reads it."""
        return _CONCLUSIONS[self][0]

    @property
    def style(self) -> str:
        """Style of the words: "bad", "warn", "dim" or ""."""
        return _CONCLUSIONS[self][1]

    @property
    def named(self) -> bool:
        """True if the aggressor is proven to be a cause."""
        return self in (Conclusion.CAUSE, Conclusion.NECESSARY, Conclusion.SUFFICIENT)


# Words and style of each conclusion of a blame experiment, which switches the aggressors on and off to find the
# cause.
_CONCLUSIONS = {
    Conclusion.CAUSE: ("necessary, sufficient", "bad"),
    Conclusion.NECESSARY: ("necessary, not alone", "bad"),
    Conclusion.SUFFICIENT: ("sufficient", "bad"),
    Conclusion.TOGETHER: ("only together", "warn"),
    Conclusion.CONTRIBUTING: ("makes it longer", "warn"),
    Conclusion.INNOCENT: ("not involved", "dim"),
    Conclusion.UNDECIDED: ("undecided", "warn"),
}


class BlameOutcome(StrEnum):
    """Outcome of the experiment for one figure of a victim. The values are those of the JSON documents.

    ``STALL``: the figure is slower with all aggressors on. ``MASKED``: the figure is slower only with some of them on.
    ``NONE``: the figure is slower in no state. ``UNDECIDED``: the figure looks slower, but in too few rounds.
    """

    STALL = "stall"
    MASKED = "masked"
    NONE = "none"
    UNDECIDED = "undecided"


class Interval(Document):
    """An estimate with its 95 % interval."""

    value: Share
    low: Share
    high: Share


class AggressorBlame(Document):
    """An aggressor's part in a figure of a victim."""

    aggressor: Text
    alone_ns: Latency | None
    """With only this aggressor on."""
    without_ns: Latency | None
    """With only this aggressor off."""
    share: Interval | None
    """Share of the delay, 1 for all of it, with its 95 % interval: the mean of what the aggressor adds when it starts
    alone and of what ends when it stops, 0 if it shortens the delay, scaled so that the shares of all add up to 1. null
    where nothing is slower."""
    conclusion: Conclusion


class FigureBlame(Document):
    """What the experiment found for one figure of one victim."""

    probe: Text
    phase: Phase
    op: Text | None
    """Label of the operation; null for all operations of the phase."""
    quantile: Quantile
    off_ns: Latency
    """With all aggressors off."""
    on_ns: Latency
    """With all aggressors on."""
    outcome: BlameOutcome
    aggressors: tuple[AggressorBlame, ...]
    ratio: Ratio = 0.0
    """All on over all off."""
    sentence: Text = ""

    def __post_init__(self) -> None:
        if not self.ratio:
            force_setattr(self, "ratio", self.on_ns / max(self.off_ns, 1.0))
        super().__post_init__()
        force_setattr(self, "sentence", _sentence(self))

    @property
    def channel(self) -> Channel:
        """The channel of the figure."""
        return Channel(self.phase, self.op or "")

    @property
    def causes(self) -> tuple[AggressorBlame, ...]:
        """The proven aggressors; first the aggressors that end the stall when switched off."""
        order = (Conclusion.CAUSE, Conclusion.NECESSARY, Conclusion.SUFFICIENT)
        named = [blame for blame in self.aggressors if blame.conclusion.named]
        return tuple(sorted(named, key=lambda blame: order.index(blame.conclusion)))


class Blame(Document):
    """The experiment that switched each aggressor on and off."""

    aggressors: Annotated[tuple[Text, ...], Meta(min_length=1)]
    rounds: Natural
    """Each measures all off, all on, each alone and each off; later ones only what is undecided."""
    seconds: Annotated[Seconds, Rounded(3)]
    figures: tuple[FigureBlame, ...]
    idle: tuple[Text, ...] = ()
    """Aggressors that did not run in some of the windows in which they were on."""

    @property
    def victims(self) -> tuple[str, ...]:
        """Names of the victims."""
        return tuple(dict.fromkeys(figure.probe for figure in self.figures))

    def of_victim(self, victim: str) -> tuple[FigureBlame, ...]:
        """The figures of one victim."""
        return tuple(figure for figure in self.figures if figure.probe == victim)

    def main_figures(self, victim: str) -> tuple[FigureBlame, ...]:
        """The figures of ``victim`` that a report shows: for each channel the median if it stalls, else the tail."""
        main: dict[Channel, FigureBlame] = {}
        for figure in self.of_victim(victim):
            if figure.outcome is BlameOutcome.NONE:
                continue
            old = main.get(figure.channel)
            if old is None or (old.outcome is BlameOutcome.UNDECIDED and figure.outcome is not BlameOutcome.UNDECIDED):
                main[figure.channel] = figure
        return tuple(main.values())

    def verdicts(self, victims: Sequence[Probe], aggressors: Sequence[Probe]) -> tuple[Verdict, ...]:
        """A verdict for each main figure of ``victims`` whose cause is proven."""
        # It loads numpy.
        from stallprobes.verdicts.evidence import STALLED

        result = []
        for victim in victims:
            for figure in self.main_figures(victim.name):
                if figure.outcome is not BlameOutcome.STALL or not figure.causes:
                    continue
                change = f"{duration_ns(figure.off_ns)} → {duration_ns(figure.on_ns)} ({times(figure.ratio)})"
                verdict = Verdict(
                    probe=victim.name,
                    phase=figure.phase,
                    quantile=figure.quantile,
                    baseline_ns=figure.off_ns,
                    now_ns=figure.on_ns,
                    ratio=figure.ratio,
                    kind=VerdictKind.STALLED if figure.ratio >= STALLED else VerdictKind.SLOWER,
                    head=f"{victim.name}: {figure.channel.in_sentence} {figure.quantile} {change} "
                    "with all aggressors on.",
                )
                result.append(_with_cause(verdict, figure, victim, aggressors))
        return tuple(result)

    def find(self, victim: str, phase: Phase, quantile: Quantile) -> FigureBlame | None:
        """The figure with the largest ratio of ``phase`` and ``quantile``; None without one."""
        figures = [figure for figure in self.of_victim(victim) if figure.phase is phase and figure.quantile is quantile]
        return max(figures, key=lambda figure: figure.ratio, default=None)


def _sentence(figure: FigureBlame) -> str:
    """The result for one figure in words."""
    if figure.outcome is BlameOutcome.NONE:
        return "None of them: it is no slower with all aggressors on than with all off."
    if figure.outcome is BlameOutcome.UNDECIDED:
        return "Undecided: it is slower with some or all of the aggressors on, but not in enough rounds."

    def names(*conclusions: Conclusion) -> list[str]:
        return [blame.aggressor for blame in figure.aggressors if blame.conclusion in conclusions]

    if figure.outcome is BlameOutcome.MASKED:
        alone = names(Conclusion.SUFFICIENT)
        who = f"with {' or '.join(alone)} alone" if alone else "with some of them on"
        return f"It is no slower with all aggressors on, but it is {who}: they hold up each other."
    parts = []
    both, sufficient = names(Conclusion.CAUSE), names(Conclusion.SUFFICIENT)
    necessary, undecided = names(Conclusion.NECESSARY), names(Conclusion.UNDECIDED)
    if both:
        parts.append(f"{' and '.join(both)} alone makes the stall, and the stall ends without it.")
    if sufficient:
        ends = ", but the stall does not end without it" if len(sufficient) == 1 else ""
        each = "alone makes" if len(sufficient) == 1 else "each make"
        parts.append(f"{' and '.join(sufficient)} {each} the stall{' alone' if len(sufficient) > 1 else ''}{ends}.")
    if len(necessary) > 1:
        parts.append(f"{' and '.join(necessary)} make the stall only together: it ends when one of them is off.")
    elif necessary:
        parts.append(f"The stall ends without {necessary[0]}, which alone does not make it.")
    if names(Conclusion.TOGETHER):
        parts.append("Only several aggressors together make the stall: none makes it alone, and no single one ends it.")
    for blame in figure.aggressors:
        if blame.conclusion is Conclusion.CONTRIBUTING and blame.without_ns is not None:
            parts.append(f"Without {blame.aggressor} it takes {duration_ns(blame.without_ns)}, which is a stall too.")
    if undecided:
        parts.append(f"Undecided for {' and '.join(undecided)}: the rounds differ too much.")
    return " ".join(parts)


def proven(
    verdicts: Iterable[Verdict], blame: Blame, victims: Sequence[Probe], aggressors: Sequence[Probe]
) -> tuple[Verdict, ...]:
    """``verdicts`` in which proven causes of the experiment replace causes that a rule assumes."""
    by_name = {victim.name: victim for victim in victims}
    out = []
    for verdict in verdicts:
        figure = None
        if verdict.kind.is_stall and verdict.phase is not None and verdict.probe in by_name:
            quantile = Quantile.P50 if verdict.quantile is Quantile.IN_FLIGHT else verdict.quantile
            figure = blame.find(verdict.probe, verdict.phase, quantile)
        if figure is not None and figure.outcome is BlameOutcome.STALL and figure.causes:
            out.append(_with_cause(verdict, figure, by_name[verdict.probe], aggressors))
        else:
            out.append(verdict)
    return tuple(out)


def _with_cause(verdict: Verdict, figure: FigureBlame, victim: Probe, aggressors: Sequence[Probe]) -> Verdict:
    """``verdict`` with the proven cause, and the catalogue's explanation of the aggressors that are proven."""
    blamed = [next(probe for probe in aggressors if probe.name == blame.aggressor) for blame in figure.causes]
    causes = [entry for entry in (cause(victim, probe, verdict.phase) for probe in blamed) if entry is not None]
    why = dict.fromkeys(entry.why for entry in causes)
    return verdict.changed(
        cause=" ".join((f"Proven by blame: {figure.sentence}", *why)),
        remedy=causes[0].remedy if causes else "",
        short_cause=causes[0].short if causes else UNKNOWN_CAUSE.short,
        short_remedy=causes[0].short_remedy if causes else UNKNOWN_CAUSE.short_remedy,
        proof=Proof.BLAME,
        aggressors=tuple(group.name for group in aggressor_groups(blamed)),
    )
