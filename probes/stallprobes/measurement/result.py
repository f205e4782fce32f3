"""Result of a run: its variants, their probes with all latencies, and the verdicts; schema ``stallscope.run/3``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from msgspec import UNSET, UnsetType

from stallprobes.files.codec import Document, Integer, Latency, Natural, Positive, Seconds, Text, brief
from stallprobes.files.tables import HtmlCell, Record, aligned, html_table
from stallprobes.latency.columns import latency_columns
from stallprobes.latency.histogram import Histogram
from stallprobes.machine.gpu_state import GpuStates
from stallprobes.machine.origin import Origin
from stallprobes.model import Channel, Kind, Phase, Probe, Role, Source
from stallprobes.records.timeline_summary import TimelineSummary
from stallprobes.units import in_us, times
from stallprobes.verdicts.blame import Blame
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import PercentileSpreads, Verdict, verdict_columns, worst_of

if TYPE_CHECKING:
    from stallprobes.latency.window import ChannelMap
    from stallprobes.verdicts.evidence import Evidence

# Schema of the JSON document of a run, with the number of its version.
RUN_SCHEMA: Final = "stallscope.run/3"
# Smallest number of values with which a p99.9 is stated. With fewer values, the p99.9 would be the maximum.
P999_NEEDS = 1000
# Largest number of characters of a list of patterns in the ``repr`` of a result.
_LONGEST_LIST = 200
# Words for a probe's state in the JSON document, where the document and the screen have different words.
_STATES = {VerdictKind.HOST: "slower", VerdictKind.FAILED: "failed"}


class RunFigures(Document):
    """Latencies of a channel."""

    source: Source
    """How it is measured. host: clock of the host around the call. events: pairs of CUDA events. timeline: records of
    the GPU's work."""
    count: Natural
    first_ns: Latency | None
    """The first call, which is not in the histogram."""
    p50_ns: Latency | None
    p90_ns: Latency | None
    p99_ns: Latency | None
    p999_ns: Latency | None
    """null for fewer than 1000 values."""
    max_ns: Latency | None
    histogram: list[tuple[Natural, Positive]]
    """[[lower bound of the bucket in ns, count], ...], ascending; 64 buckets per octave."""

    def __repr__(self) -> str:
        return brief(self, "count", "p50_ns", "p99_ns", "max_ns")

    @classmethod
    def of_channel(
        cls, probe: Probe, channel: Channel, histogram: Histogram, first_ns: int | None = None, **others: Any
    ) -> Self:
        """The figures of a channel of ``probe``; ``others`` are the members that a subclass adds."""
        first = first_ns if probe.program.measures_first(channel) else None
        return cls(source=probe.program.source(channel.phase), first_ns=first, **_figures(histogram), **others)

    @property
    def distribution(self) -> Histogram:
        """The histogram."""
        return Histogram.read(self.histogram, round(self.max_ns or 0))

    def joined(self, others: Iterable[RunFigures]) -> RunFigures:
        """The figures of these calls and those of ``others`` together."""
        histogram = reduce(Histogram.merge, (figures.distribution for figures in others), self.distribution)
        return RunFigures(source=self.source, first_ns=None, **_figures(histogram))


def _figures(histogram: Histogram) -> dict[str, Any]:
    return {
        "count": histogram.count,
        "p50_ns": histogram.percentile(50),
        "p90_ns": histogram.percentile(90),
        "p99_ns": histogram.percentile(99),
        "p999_ns": histogram.percentile_or_none(99.9, P999_NEEDS),
        "max_ns": histogram.max_ns if histogram.count else None,
        "histogram": [(bound_ns, count) for bound_ns, count in histogram.pairs()],
    }


class RunOp(RunFigures):
    """Latencies of one operation of a program."""

    op: Text
    phase: Phase
    baseline: RunFigures | None


class RunProbe(Document):
    """A probe of a variant."""

    name: Text
    title: Text
    entry: Text
    """Name in the catalogue."""
    role: Role
    context: Text
    stream: Text
    state: Literal["quiet", "drift", "unsteady", "slower", "STALLED", "STARVED", "running", "off", "failed", "n/a"]
    """That of the worst verdict on a victim or the host control; n/a without a verdict."""
    calls: Natural
    """Iterations that ended in the window."""
    starved: bool
    """Fewer than 3 calls returned in 0.5 s although more were due."""
    in_flight_ns: Latency | None
    """Age of the call in flight at the end of the window."""
    in_flight_op: Text | None
    error: Text | None
    """Op, return code and CUDA's text if an error stopped the probe."""
    window_s: Seconds
    period_ns: Natural
    """Time between scheduled starts; 0 means back to back."""
    baseline_period_ns: Natural
    """The same in the baseline, where calls that are made after idle times have their usual period."""
    gpu_starts: Natural | None
    """Starts that the GPU counted in the window, if the program counts them."""
    phases: dict[Phase, RunFigures]
    baseline: dict[Phase, RunFigures]
    """The same probe with no aggressor running."""
    ops: tuple[RunOp, ...]

    def __repr__(self) -> str:
        return brief(self, "name", "role", "state", "calls")

    def figures(self) -> Iterator[tuple[Channel, RunFigures, RunFigures | None]]:
        """The figures of each phase, then of each operation, each with its baseline; None without one."""
        yield from ((Channel(phase), figures, self.baseline.get(phase)) for phase, figures in self.phases.items())
        yield from ((Channel(op.phase, op.op), op, op.baseline) for op in self.ops)

    @classmethod
    def of_evidence(cls, evidence: Evidence, kind: VerdictKind | None) -> RunProbe:
        """The result for the probe of ``evidence``; ``kind`` is that of its worst verdict, None without one."""
        probe, window = evidence.probe, evidence.window
        return cls.of(
            probe,
            state=_state(evidence, kind),
            calls=window.iterations,
            starved=evidence.starved,
            in_flight_ns=None if window.in_flight is None else window.in_flight.age_ns,
            in_flight_op=evidence.in_flight_op,
            error=evidence.error,
            window_s=window.seconds,
            period_ns=window.period_ns,
            baseline_period_ns=window.period_ns if probe.baseline_period_ns is None else probe.baseline_period_ns,
            gpu_starts=None if probe.program.proof is None else window.proof,
            phases=_phases(probe, window.channels, window.first_ns),
            baseline=_phases(probe, evidence.baseline, {}),
            ops=tuple(_op(evidence, channel) for channel in window.channels if channel.label),
        )

    @property
    def idles(self) -> bool:
        """True if it made its calls after longer idle times than in the baseline."""
        return self.period_ns > self.baseline_period_ns


def _state(evidence: Evidence, kind: VerdictKind | None) -> str:
    if kind is not None:
        return _STATES.get(kind, kind.look.word)
    if evidence.probe.role is not Role.AGGRESSOR:
        return "n/a"
    return "running" if evidence.window.iterations or evidence.window.in_flight is not None else "off"


def _op(evidence: Evidence, channel: Channel) -> RunOp:
    probe, window, quiet = evidence.probe, evidence.window, evidence.baseline.get(channel)
    return RunOp.of_channel(
        probe,
        channel,
        window.channels[channel],
        window.first_ns.get(channel),
        op=channel.label,
        phase=channel.phase,
        baseline=None if quiet is None else RunFigures.of_channel(probe, channel, quiet),
    )


def _phases(probe: Probe, channels: ChannelMap, first_ns: Mapping[Channel, int | None]) -> dict[Phase, RunFigures]:
    return {
        channel.phase: RunFigures.of_channel(probe, channel, histogram, first_ns.get(channel))
        for channel, histogram in channels.items()
        if not channel.label
    }


class RunSpread(PercentileSpreads):
    """Variation of the machine with no aggressor running: the highest over the lowest percentile of the windows of the
    baseline (0.25 s each), of the probe that varies most."""

    probe: Text | None = None
    """Victim whose p50 varies most."""
    phase: Phase | None = None
    """Phase whose p50 varies most."""


class RunVariant(Document, kw_only=True):
    """Result of a variant."""

    pattern: Text
    variant: Text
    kind: Kind
    status: Literal["ok", "unsupported", "invalid"]
    reason: Text | None
    """Reason why it is unsupported or invalid."""
    baseline_s: Seconds
    """Length of the baseline."""
    window_s: Seconds
    """Length of the window with the aggressors running."""
    slots: bool
    """Whether victims of different contexts ran in slots, one context at a time."""
    together: bool
    """Whether --together switched slots off."""
    probes: tuple[RunProbe, ...]
    verdicts: tuple[Verdict, ...]
    blame: Blame | None
    spread: RunSpread | None
    gpu_state: GpuStates | UnsetType = UNSET

    def __repr__(self) -> str:
        return f"<RunVariant {self.pattern} {self.variant}: {self.word}>"

    @property
    def word(self) -> str:
        """Its status where it is not ok, else the word of its worst verdict."""
        worst = worst_of(self.verdicts)
        return self.status if self.status != "ok" else (VerdictKind.QUIET if worst is None else worst.kind).look.word

    def iter_records(self) -> Iterator[Record]:
        """The records of its probes; one without a probe where there is none, as where it is unsupported."""
        head: Record = {
            "pattern": self.pattern,
            "variant": self.variant,
            "kind": str(self.kind),
            "status": self.status,
            "reason": self.reason,
        }
        for probe in self.probes:
            mine: Record = {
                "probe": probe.name,
                "role": str(probe.role),
                "context": probe.context,
                "stream": probe.stream,
                "state": probe.state,
                "calls": probe.calls,
                "in_flight_ns": None if probe.in_flight_ns is None else round(probe.in_flight_ns),
                "error": probe.error,
            }
            of_probe = [verdict for verdict in self.verdicts if verdict.probe == probe.name]
            for channel, now, before in probe.figures():
                baseline = Histogram.empty() if before is None else before.distribution
                latencies = latency_columns(channel, now.distribution, baseline)
                yield {**head, **mine, **latencies, **verdict_columns(of_probe, channel.phase)}
        if not self.probes:
            yield head

    def rows(self) -> Iterator[tuple[HtmlCell | str, ...]]:
        """Rows of a notebook's table: of victims, of a host control that is not quiet, and of probes that failed."""
        if self.status != "ok":
            yield self.variant, "", HtmlCell(self.status, "warn"), "", "", "", "", "", self.reason or ""
        for probe in self.probes:
            if (probe.role is not Role.VICTIM and probe.error is None) and probe.state in ("quiet", "running", "off"):
                continue
            worst = worst_of(verdict for verdict in self.verdicts if verdict.probe == probe.name)
            style, ratio, cause = "", "", HtmlCell(probe.error or "")
            if worst is not None:
                style, ratio = worst.kind.look.style, "" if worst.ratio is None else times(worst.ratio)
                cause = HtmlCell(worst.short_cause or worst.cause, hover=f"{worst.sentence} {worst.remedy}".rstrip())
            medians = (
                "" if (figures := phases.get(phase)) is None else in_us(figures.p50_ns)
                for phase in (Phase.CALL, Phase.WAIT)
                for phases in (probe.baseline, probe.phases)
            )
            yield self.variant, probe.name, HtmlCell(probe.state, style), *medians, ratio, cause


class RunResult(Origin, kw_only=True, tag_field="schema", tag=RUN_SCHEMA):
    """Output of `stallscope run --json`. Latencies are nanoseconds (keys ending in _ns); null means unknown or too few
    values."""

    seed: Integer | None
    """Seed of the simulated GPU; null on a real GPU."""
    seconds: Seconds
    """Requested window length per variant."""
    timeline_status: TimelineSummary | UnsetType = UNSET
    variants: tuple[RunVariant, ...]

    def __repr__(self) -> str:
        return f"<{self._headline}>"

    def _repr_html_(self) -> str:
        titles = ("variant", "probe", "state", *("call p50, µs: baseline", "now", "wait p50, µs: baseline", "now"))
        several = len({variant.pattern for variant in self.variants}) > 1
        rows = (
            (f"{variant.pattern} {name}" if several else name, *cells)
            for variant in self.variants
            for name, *cells in variant.rows()
        )
        return html_table(self._headline, (*titles, "×", "cause"), rows)

    @property
    def _headline(self) -> str:
        patterns = ", ".join(dict.fromkeys(variant.pattern for variant in self.variants))
        words = ", ".join(f"{count} {word}" for word, count in Counter(each.word for each in self.variants).items())
        cut = ", interrupted" if self.interrupted else ""
        return f"RunResult of {patterns[:_LONGEST_LIST]} on {self.machine}: {words or 'nothing measured'}{cut}"

    def to_records(self) -> list[Record]:
        """A record for each variant, probe, phase and operation, for pandas, polars or Arrow.

        Latencies are in nanoseconds (``p50_ns``), ratios are those to the baseline (``p50_ratio``), None is unknown.
        ``op`` is empty for all operations of the phase together. All records have the same columns.
        """
        records = aligned(record for variant in self.variants for record in variant.iter_records())
        return [record | self.origin_columns for record in records]
