"""JSON document of a check, published schema ``stallscope.check/2``: its types, made of a matrix and back.

A matrix that was read ignores the figures in the document and computes them from the histograms. It equals the one
that was written exactly, and writing it again gives the same document.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, Self, TypeVar

import numpy as np
from msgspec import UNSET, Meta, Raw, UnsetType, field

from stallprobes.errors import MalformedJson
from stallprobes.files import codec
from stallprobes.files.codec import Document, Figure, Integer, Natural, Positive, Seconds, Text, about
from stallprobes.latency.histogram import MOST, Histogram, HistogramBlock, Int64s
from stallprobes.latency.ratio import PERCENTILES, BaselineRatio, Quantile
from stallprobes.latency.window import ChannelMap, Window
from stallprobes.matrix.comparing.compare_document import Sensitivities, detectable_shares
from stallprobes.matrix.matrix import Cell, HostStatus, Matrix, MatrixColumn, MatrixRow, Repeat, Status
from stallprobes.matrix.reference_document import FoundByReference
from stallprobes.model import Channel, Phase, Source
from stallprobes.native.layouts.histogram import BUCKETS
from stallprobes.records.timeline_summary import TimelineSummary
from stallprobes.units import rounded, us_of
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import _KIND, _PROOF, Detectable, PercentileSpreads, Proof, Verdict

if TYPE_CHECKING:
    from stallprobes.matrix.reference import ReferenceComparison
    from stallprobes.matrix.repeat_spool import RepeatSpool, SpooledRepeats

CHECK_SCHEMA = "stallscope.check/2"
MOST_CELLS, MOST_LINES, MOST_VERDICTS = 20_000, 2_000, 20_000
# Repeats of one machine, ten times as many as a check has; a probe has some twenty channels.
MOST_REPEATS, MOST_CHANNELS = 30_000, 1_000

_PHASES = frozenset(map(str, Phase))
CellForm = TypeVar("CellForm")
Fingerprint = Annotated[
    dict[str, Any], about("GPU, driver, settings and host. The key unknown gives the reason for each null.")
]
_CHANNELS = {
    "propertyNames": {
        "pattern": f"^({'|'.join(Phase)})(:.+)?$",
        "description": "A phase, or phase:label for one op. call: time inside the driver call. wait: from its return "
        "until the host sees the work complete. start: from its return until the GPU starts the work. early: from the "
        "GPU's start of the work until the return, where the GPU starts first. gpu: time on the GPU. due: from when "
        "the call was due.",
    }
}


Pairs = Annotated[list[tuple[Natural, Positive]], Meta(max_length=BUCKETS)]


class CheckHistogram(Document):
    """Histogram of a channel."""

    max_ns: Annotated[Natural, about("Exact maximum; it lies in the highest bucket or above.")]
    # Decoded many at a time.
    histogram: Annotated[
        Raw,
        Meta(
            description="[[lower bound of the bucket in ns, count], ...], ascending; 64 buckets per octave. The counts "
            "of a cell sum to at most 2**53.",
            extra_json_schema=codec.schema(Pairs),
        ),
    ]

    @classmethod
    def of_histogram(cls, histogram: Histogram) -> CheckHistogram:
        """The document of ``histogram``."""
        return cls(histogram.max_ns, Raw(codec.encoded(histogram.pairs())))


Histograms = Annotated[dict[str, CheckHistogram], Meta(extra_json_schema=_CHANNELS)]


class CheckRepeat(Document):
    """One measurement of a cell; in a merged check, that of one host."""

    host: Annotated[Text, about("Name of one of hosts; empty for a check of one machine.")]
    calls: Annotated[Natural, about("Iterations of the victim that ended in the window.")]
    window_s: Seconds
    channels: Annotated[Histograms, about("Histograms while the aggressor runs.")]
    before: Annotated[Histograms, about("Baseline right before; empty in the column quiet.")]
    after: Annotated[Histograms, about("Baseline right after; empty in the column quiet.")]

    @classmethod
    def of_repeat(cls, repeat: Repeat) -> CheckRepeat:
        """The document of ``repeat``."""
        return cls(
            host=repeat.host,
            calls=repeat.window.iterations,
            window_s=repeat.window.seconds,
            channels=_histograms_out(repeat.window.channels),
            before=_histograms_out(repeat.before),
            after=_histograms_out(repeat.after),
        )

    @property
    def parts(self) -> tuple[Histograms, Histograms, Histograms]:
        """The histograms with the aggressor running, and those of the baselines."""
        return self.channels, self.before, self.after


class CheckFigures(Document):
    """Percentiles of a channel in all repeats."""

    source: Annotated[
        Source,
        about(
            "How it is measured. host: clock of the host around the call. events: pairs of CUDA events. timeline: "
            "records of the GPU's work."
        ),
    ]
    p50_us: Figure | None
    baseline_p50_us: Figure | None
    ratio_p50: Annotated[Figure | None, about("Ratio to the baseline.")]
    detectable_p50: Detectable | None
    p99_us: Figure | None
    baseline_p99_us: Figure | None
    ratio_p99: Annotated[Figure | None, about("Ratio to the baseline.")]
    detectable_p99: Detectable | None
    calls: Annotated[Natural, about("Count of the histogram, without the baseline.")]


class _VerdictDocument(Document, kw_only=True):
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


class CheckVerdict(_VerdictDocument):
    """A verdict of a cell."""

    host: Annotated[Text, about("Name of one of hosts; empty for a check of one machine.")]

    def verdict(self) -> Verdict:
        """The verdict that the document was made of."""
        low_high = None if self.range_us is None else (self.range_us[0] * 1000, self.range_us[1] * 1000)
        return Verdict(
            probe=self.probe,
            phase=self.phase,
            quantile=self.quantile,
            baseline_ns=_ns(self.baseline_us),
            now_ns=_ns(self.now_us),
            ratio=self.ratio,
            kind=self.kind,
            head=self.head,
            cause=self.cause,
            remedy=self.remedy,
            proof=self.proof,
            aggressors=tuple(self.aggressors),
            host=self.host,
            range_ns=low_high,
            detectable=self.detectable,
        )


class CheckCell(Document):
    """A victim with an aggressor."""

    row: Annotated[Text, about("Name of one of rows.")]
    column: Annotated[Text, about("Name of one of columns.")]
    status: Annotated[
        Status,
        about(
            "starved: fewer than 3 calls returned in 0.5 s. unsupported: this machine cannot run it. invalid: it ran, "
            "and the result does not count. missing: not reached before an interrupt."
        ),
    ]
    reason: Annotated[str | None, about("Reason for the status; in a merged check, that of each of hosts.")]
    hosts: Annotated[list[HostStatus], about("Hosts of a merged check whose status is not ok.")]
    in_flight_us: Annotated[Figure | None, about("Longest age of a call that had not returned at the end of a window.")]
    in_flight_op: Annotated[Text | None, about("Function of that call.")]
    figures: Annotated[
        dict[str, CheckFigures],
        Meta(
            description="All repeats combined, for readers. Derived from the histograms; recomputed when the file is "
            "read.",
            extra_json_schema=_CHANNELS,
        ),
    ]
    verdicts: list[CheckVerdict]
    repeats: Annotated[list[CheckRepeat], about("The measurements of the cell; in a merged check, one per host.")]


class CheckDocument(Document, Generic[CellForm], kw_only=True):
    """Output of `stallscope check --json` and `--save`: an interference matrix. Keys ending in _us are microseconds, in
    _s seconds, in _ns nanoseconds. null means unknown or without calls. Numbers are finite, integers at most 2**53;
    strings have no control characters but newline and tab."""

    schema: Literal["stallscope.check/2"]
    program: Annotated[
        Text, about("Version of stallscope; of a merged check, all versions, separated by commas and spaces.")
    ]
    backend: Annotated[
        Literal["cuda", "simulated", "host"], about("simulated: a model, no GPU. host: probes without CUDA.")
    ]
    profile: Annotated[Text | None, about("Profile of the simulated GPU; null on a real GPU.")]
    sim_seed: Annotated[Integer | None, about("Seed of the simulated GPU; null on a real GPU.")]
    seed: Annotated[Integer, about("Seed of the measurement order; of a merged check, that of the first one.")]
    quick: Annotated[bool, about("Whether it was a quick check, with fewer calls per cell.")]
    interrupted: Annotated[bool, about("Whether it was stopped early; cells not reached have the status missing.")]
    started_at: Annotated[
        Text,
        Meta(
            description="ISO 8601 with UTC offset; of a merged check, the earliest.",
            extra_json_schema={"format": "date-time"},
        ),
    ]
    seconds: Annotated[Seconds, about("Duration of the check; of a merged check, the longest.")]
    repeats: Annotated[
        Natural,
        about(
            "Number of repeats of a cell that every cell has unless the check was interrupted; cells that gain "
            "precision by additional repeats have more."
        ),
    ]
    pace_us: Annotated[Figure, about("Time between two scheduled calls of a victim.")]
    timeline: Annotated[bool, about("Whether the timeline was on, which adds to each call.")]
    timeline_status: TimelineSummary | UnsetType = UNSET
    detectable: Annotated[Sensitivities | None, about("Derived; computed again when the file is read.")]
    spread: PercentileSpreads | None
    reference: Annotated[
        FoundByReference | None,
        about(
            "What is unusual compared with recorded checks of other machines; null without a reference, and in a saved "
            "check."
        ),
    ]
    fingerprint: Annotated[
        Fingerprint, about("In a merged check, the values common to all hosts; the others are null.")
    ]
    hosts: Annotated[
        dict[Annotated[str, Meta(min_length=1, max_length=1024)], Fingerprint],
        about("Fingerprint of each host of a merged check, by host name; empty for a check of one machine."),
    ]
    rows: Annotated[list[MatrixRow], Meta(max_length=MOST_LINES, description="The victims; each name is unique.")]
    columns: Annotated[
        list[MatrixColumn], Meta(max_length=MOST_LINES, description="The aggressors; each name is unique.")
    ]
    cells: Annotated[
        list[CellForm],
        Meta(
            max_length=MOST_CELLS,
            description="All chosen cells, measured or not; each pair of row and column once.",
        ),
    ]


WholeCheck = CheckDocument[CheckCell]


def document(matrix: Matrix, reference: ReferenceComparison | None = None) -> dict[str, Any]:
    """``matrix`` as JSON types, without what JSON or a terminal cannot represent (NaN, control characters).

    ``reference`` is its comparison with a reference.
    """
    lazy = lazy_document(matrix, reference)
    return {**lazy, "cells": list(lazy["cells"])}


def lazy_document(matrix: Matrix, reference: ReferenceComparison | None = None) -> dict[str, Any]:
    """What ``document`` returns, but ``cells`` is an iterator: those of a thousand hosts do not fit into memory."""
    written = WrittenCheck(matrix, reference)
    head: dict[str, Any] = codec.plain(written.head)
    return {**head, "cells": map(codec.plain, written.cells())}


class WrittenCheck:
    """The document of ``matrix``: ``head`` is all of it but its cells, which ``cells`` makes one at a time."""

    def __init__(self, matrix: Matrix, reference: ReferenceComparison | None = None) -> None:
        self._matrix = matrix
        self._detectable = _Detectable.of(matrix)
        self._sources = _Sources(matrix)
        self.head = WholeCheck.of(
            matrix,
            schema=CHECK_SCHEMA,
            seconds=float(matrix.seconds),
            pace_us=float(matrix.pace_us),
            timeline_status=matrix.timeline_summary or UNSET,
            detectable=self._detectable.summary,
            spread=None,
            reference=None if reference is None else FoundByReference.of_comparison(reference),
            cells=[],
        )

    def cells(self) -> Iterator[CheckCell]:
        """The cells."""
        for cell in self._matrix.cells.values():
            ratios = self._detectable.ratios.get((cell.row, cell.column), {})
            yield CheckCell.of(
                cell,
                figures={channel_name(channel): self._figures(cell, channel, ratios) for channel in cell.channels},
                verdicts=list(map(CheckVerdict.of_verdict, cell.verdicts)),
                repeats=list(map(CheckRepeat.of_repeat, cell.repeats)),
            )

    def _figures(
        self, cell: Cell, channel: Channel, detectable: Mapping[tuple[Channel, Quantile], float | None]
    ) -> CheckFigures:
        now, baseline = cell.channels[channel], cell.baseline.get(channel, Histogram.empty())
        figures: dict[str, float | None] = {}
        for quantile in PERCENTILES:
            ratio = BaselineRatio.of(cell.channels, cell.baseline, channel, quantile)
            figures[f"{quantile}_us"] = us_of(now.percentile(quantile.percent))
            figures[f"baseline_{quantile}_us"] = us_of(baseline.percentile(quantile.percent))
            figures[f"ratio_{quantile}"] = None if ratio is None else rounded(ratio.ratio)
            figures[f"detectable_{quantile}"] = rounded(detectable.get((channel, quantile)))
        return CheckFigures(source=self._sources.of(cell.row, channel.phase), calls=now.count, **figures)


@dataclass(frozen=True)
class _Detectable:
    """The ratios that a comparison with another check like ``matrix`` could detect: by cell, and the summary."""

    ratios: Mapping[tuple[str, str], Mapping[tuple[Channel, Quantile], float | None]]
    summary: Sensitivities | None

    @classmethod
    def of(cls, matrix: Matrix) -> _Detectable:
        """Those of ``matrix``; none for a merged one, whose hosts are no repeats of each other."""
        if matrix.hosts:
            return cls({}, None)
        # The rules of a comparison load the catalogue, which a reader does without.
        from stallprobes.matrix.comparing.compare import compare

        comparison = compare(matrix, matrix)
        ratios = {
            (cell.row, cell.column): {(part.channel, part.quantile): part.detectable for part in cell.parts}
            for cell in comparison.cells
        }
        return cls(ratios, detectable_shares(comparison))


class _Sources:
    """What measured the phases of a matrix. Without the timeline, a time on the GPU is that of pairs of events."""

    def __init__(self, matrix: Matrix) -> None:
        self._timeline = matrix.timeline
        self._entries = {row.name: row.entry for row in matrix.rows}
        self._known: dict[tuple[str, Phase], Source] = {}

    def of(self, row: str, phase: Phase) -> Source:
        """The source of ``phase`` in the cells of a row."""
        if phase.traits.host or not self._timeline:
            return Source.HOST if phase.traits.host else Source.EVENTS
        key = (self._entries[row], phase)
        if key not in self._known:
            from stallprobes.catalog import entries

            # A victim that is not in the catalogue has no pairs of events.
            entry = entries().get(key[0])
            self._known[key] = Source.TIMELINE if entry is None else entry.probe().program.source(phase)
        return self._known[key]


def channel_name(channel: Channel) -> str:
    """The key of a channel in documents: ``call``, or ``call:LABEL`` for one op."""
    return f"{channel.phase}:{channel.label}" if channel.label else str(channel.phase)


def _histograms_out(channels: ChannelMap) -> Histograms:
    return {channel_name(channel): CheckHistogram.of_histogram(one) for channel, one in channels.items()}


class ReadCheck:
    """The matrix of a document whose cells are read one at a time; ``head`` is all of it but its cells."""

    def __init__(self, head: CheckDocument[Any]) -> None:
        """Raises MalformedJson unless names are unique and the time has an offset."""
        self._head = head
        self._cells: dict[tuple[str, str], Cell] = {}
        self._channels: dict[str, Channel] = {}
        self._repeats = self._verdicts = 0
        self._names = {"row": _names("rows", head.rows), "column": _names("columns", head.columns)}
        self._hosts = {"", *head.hosts}
        self._spool: RepeatSpool | None = None
        try:
            offset = datetime.datetime.fromisoformat(head.started_at).utcoffset()
        except ValueError:
            offset = None
        if offset is None:
            raise MalformedJson("started_at is not an ISO 8601 time with an offset from UTC")
        if head.hosts:
            # Its temporary file needs modules that the check of one machine does without.
            from stallprobes.matrix.repeat_spool import RepeatSpool

            self._spool = RepeatSpool()

    def add(self, cells: Sequence[CheckCell], places: Sequence[str]) -> None:
        """Add cells, which are at ``places`` in the document; it takes less time for several. Raises MalformedJson."""
        histograms = iter(_histograms(cells, places))
        for cell, where in zip(cells, places, strict=True):
            self._add(cell, where, histograms)

    def _add(self, cell: CheckCell, where: str, histograms: Iterator[Histogram]) -> None:
        self._require_known(cell, where)
        in_flight_ns = _ns(cell.in_flight_us)
        self._cells[cell.row, cell.column] = Cell(
            row=cell.row,
            column=cell.column,
            status=cell.status,
            reason=cell.reason,
            repeats=self._repeats_of(cell, where, histograms),
            verdicts=tuple(one.verdict() for one in cell.verdicts),
            in_flight_ns=None if in_flight_ns is None else round(in_flight_ns),
            in_flight_op=cell.in_flight_op,
            hosts=tuple(cell.hosts),
        )

    def _require_known(self, cell: CheckCell, where: str) -> None:
        """Raise MalformedJson unless a cell names known rows, columns and hosts, once, and is within the limits."""
        for key, names in self._names.items():
            if getattr(cell, key) not in names:
                raise MalformedJson(f"{where}.{key} is not among those the check lists")
        if (cell.row, cell.column) in self._cells:
            raise MalformedJson(f"{where} is a second cell of its row and column")
        named = (one.host for part in (cell.verdicts, cell.hosts, cell.repeats) for one in part)
        for host in named:
            if host not in self._hosts:
                raise MalformedJson(f"{where} names the host “{codec.clean(host)}”, which is not among the hosts")
        self._verdicts += len(cell.verdicts)
        self._repeats += len(cell.repeats)
        for number, most, what in (
            (self._verdicts, MOST_VERDICTS, "verdicts"),
            (self._repeats, MOST_REPEATS * max(len(self._hosts) - 1, 1), "repeats"),
        ):
            if number > most:
                raise MalformedJson(f"{where} is beyond {most} {what} in total")

    def _repeats_of(self, cell: CheckCell, where: str, histograms: Iterator[Histogram]) -> Sequence[Repeat]:
        """The repeats of ``cell``: in memory, those of a merged check in a temporary file. Raises MalformedJson."""
        repeats: Sequence[Repeat] | SpooledRepeats = [] if self._spool is None else self._spool.sequence()
        calls = 0
        for one in cell.repeats:
            channels, before, after = [
                {self._channel(key, where): next(histograms) for key in part} for part in one.parts
            ]
            window = Window(channels, one.calls, round(one.window_s * 1e9))
            repeat = Repeat(window, before, after, one.host)
            calls += repeat.values
            repeats.append(repeat)  # type: ignore[union-attr]
        if calls > MOST:
            raise MalformedJson(f"{where} has counts above 2**53 in total")
        return tuple(repeats) if self._spool is None else repeats

    def _channel(self, name: str, where: str) -> Channel:
        known = self._channels.get(name)
        if known is None:
            phase, colon, label = name.partition(":")
            if phase not in _PHASES or (colon and not label) or len(self._channels) == MOST_CHANNELS:
                raise MalformedJson(f"{where} has the channel “{codec.clean(name[:40])}”, which is none")
            known = self._channels[name] = Channel(Phase(phase), label)
        return known

    def matrix(self) -> Matrix:
        """The matrix of the cells that were added."""
        head = self._head
        return Matrix(
            backend=head.backend,
            fingerprint=head.fingerprint,
            started_at=head.started_at,
            seconds=head.seconds,
            rows=tuple(head.rows),
            columns=tuple(head.columns),
            cells=self._cells,
            seed=head.seed,
            repeats=head.repeats,
            pace_us=head.pace_us,
            quick=head.quick,
            interrupted=head.interrupted,
            timeline=head.timeline,
            timeline_summary=head.timeline_status or None,
            profile=head.profile,
            sim_seed=head.sim_seed,
            program=head.program,
            hosts=head.hosts,
        )


def _names(key: str, lines: Collection[MatrixRow | MatrixColumn]) -> set[str]:
    names = {line.name for line in lines}
    if "" in names:
        raise MalformedJson(f"{key} has an empty name")
    if len(names) < len(lines):
        raise MalformedJson(f"{key} has a duplicate name")
    return names


def _histograms(cells: Sequence[CheckCell], places: Sequence[str]) -> Iterable[Histogram]:
    """The histograms of ``cells``, in the order of the document. Raises MalformedJson, which names the place."""
    documents = [one for cell in cells for repeat in cell.repeats for part in repeat.parts for one in part.values()]
    try:
        texts = [bytes(one.histogram) for one in documents]
        sizes = [text.count(b"[") - 1 for text in texts]
        return HistogramBlock.read(_numbers(texts), sizes, [one.max_ns for one in documents]).histograms()
    except ValueError:
        # One by one, which takes ten times as long, to name the first that is not valid.
        return chain.from_iterable(map(_histograms_one_by_one, cells, places))


def _numbers(texts: Sequence[bytes]) -> Int64s:
    """The numbers in several lists of pairs such as ``[[64,1],[65,3]]``, which are valid JSON.

    Raises ValueError for a text of another form, also for one with spaces.
    """
    text = b",".join([one[1:-1] for one in texts if one != b"[]"])
    between = text.translate(None, b"0123456789")
    if between != (b"[,]," * text.count(b"["))[:-1]:
        raise ValueError
    return np.fromstring(text.translate(None, b"[]"), np.int64, sep=",") if text else np.zeros(0, np.int64)


def _histograms_one_by_one(cell: CheckCell, where: str) -> Iterator[Histogram]:
    for number, repeat in enumerate(cell.repeats):
        for name, part in zip(("channels", "before", "after"), repeat.parts, strict=True):
            for key, one in part.items():
                place = f"{where}.repeats[{number}].{name}[“{codec.clean(key[:40])}”]"
                pairs = codec.decoded(one.histogram, Pairs, f"{place}.histogram")
                try:
                    yield Histogram.read(pairs, one.max_ns)
                except ValueError as error:
                    raise MalformedJson(f"{place} {error}") from None


def _ns(us: float | None) -> float | None:
    return None if us is None else us * 1000
