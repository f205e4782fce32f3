"""JSON document of a check, published schema ``stallscope.check/3``: made of a matrix and back.

The reader ignores the figures in the document: the matrix computes them from the histograms. It equals the written
matrix exactly, and writing it again gives the same document.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Annotated, Any, Generic, TypeVar

import numpy as np
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from stallprobes.errors import MalformedJson
from stallprobes.files import codec
from stallprobes.files.codec import Document, Figure, Nanoseconds, Natural, Positive, Text
from stallprobes.latency.histogram import MOST, Histogram, HistogramBlock, Int64s
from stallprobes.latency.ratio import PERCENTILES, BaselineRatio, Quantile
from stallprobes.latency.window import ChannelMap, Window
from stallprobes.matrix.comparing.comparison import Sensitivities
from stallprobes.matrix.matrix import Cell, CellHead, CheckHead, Matrix, MatrixColumn, MatrixRow, Repeat
from stallprobes.matrix.reference import Unusual
from stallprobes.model import Channel, Phase, Source
from stallprobes.native.layouts.histogram import BUCKETS
from stallprobes.records.timeline_summary import TimelineSummary
from stallprobes.units import rounded
from stallprobes.verdicts.verdict import Detectable, PercentileSpreads

if TYPE_CHECKING:
    from stallprobes.matrix.reference import ReferenceComparison
    from stallprobes.matrix.repeat_spool import RepeatSpool, SpooledRepeats

# Schema of the JSON document of a check, with the number of its version.
CHECK_SCHEMA = "stallscope.check/3"
# Limits of a check's JSON document. MOST_CELLS: largest number of cells (each a victim beside aggressors).
# MOST_VERDICTS: largest number of verdicts.
MOST_CELLS, MOST_VERDICTS = 20_000, 20_000
# Limits of the JSON document of a check that is read. MOST_REPEATS: largest number of repeats for each host; a check
# has a tenth of this number. MOST_CHANNELS: largest number of different names of channels (kinds of latency); a probe
# has only some twenty channels.
MOST_REPEATS, MOST_CHANNELS = 30_000, 1_000

# Names of the phases (parts of a call's latency) with which the name of a channel (kind of latency) may begin.
_PHASES = frozenset(map(str, Phase))
CellForm = TypeVar("CellForm")
# JSON Schema of the names of the channels (kinds of latency) in a check's JSON document.
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


# A check has tens of thousands: with the rounding of a Document, reading one would take a tenth longer.
class CheckHistogram(Struct, frozen=True, forbid_unknown_fields=True):
    """Histogram of a channel."""

    max_ns: Natural
    """Exact maximum; it lies in the highest bucket or above."""
    # Decoded many at a time.
    histogram: Annotated[Raw, Meta(extra_json_schema=codec.schema(Pairs))]
    """[[lower bound of the bucket in ns, count], ...], ascending; 64 buckets per octave. The counts of a cell sum to at
    most 2**53."""


Histograms = Annotated[dict[str, CheckHistogram], Meta(extra_json_schema=_CHANNELS)]


class CheckRepeat(Document):
    """One measurement of a cell; in a merged check, that of one host."""

    host: Text
    """Name of one of hosts; empty for a check of one machine."""
    calls: Natural
    """Iterations of the victim that ended in the window."""
    window_ns: Nanoseconds
    channels: Histograms
    """Histograms while the aggressor runs."""
    before: Histograms
    """Baseline right before; empty in the column quiet."""
    after: Histograms
    """Baseline right after; empty in the column quiet."""

    @classmethod
    def of_repeat(cls, repeat: Repeat) -> CheckRepeat:
        """The document of ``repeat``."""
        return cls(
            host=repeat.host,
            calls=repeat.window.iterations,
            window_ns=repeat.window.duration_ns,
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

    source: Source
    """How it is measured. host: clock of the host around the call. events: pairs of CUDA events. timeline: records of
    the GPU's work."""
    p50_ns: Nanoseconds | None
    baseline_p50_ns: Nanoseconds | None
    ratio_p50: Figure | None
    """Ratio to the baseline."""
    detectable_p50: Detectable | None
    p99_ns: Nanoseconds | None
    baseline_p99_ns: Nanoseconds | None
    ratio_p99: Figure | None
    """Ratio to the baseline."""
    detectable_p99: Detectable | None
    calls: Natural
    """Count of the histogram, without the baseline."""


class CheckCell(CellHead, kw_only=True):
    """A victim with an aggressor."""

    figures: Annotated[dict[str, CheckFigures], Meta(extra_json_schema=_CHANNELS)]
    """All repeats combined, for readers. Derived from the histograms; recomputed when the file is read."""
    repeats: list[CheckRepeat]
    """The measurements of the cell; in a merged check, one per host."""


class CheckDocument(CheckHead, Generic[CellForm], kw_only=True, tag_field="schema", tag=CHECK_SCHEMA):
    """Output of `stallscope check --json` and `--save`: an interference matrix. Keys ending in _ns are nanoseconds.
    null means unknown or without calls. Numbers are finite, integers at most 2**53; strings have no control characters
    but newline and tab."""

    timeline_status: TimelineSummary | UnsetType = UNSET
    detectable: Sensitivities | None
    """Derived; computed again when the file is read."""
    spread: PercentileSpreads | None
    reference: Unusual | None
    """What is unusual compared with recorded checks of other machines; null without a reference, and in a saved
    check."""
    cells: Annotated[list[CellForm], Meta(max_length=MOST_CELLS)]
    """All chosen cells, measured or not; each pair of row and column once."""


# Document of a check.
WholeCheck = CheckDocument[CheckCell]


def lazy_document(matrix: Matrix, reference: ReferenceComparison | None = None) -> dict[str, Any]:
    """``matrix`` as JSON types, without what JSON or a terminal cannot represent (NaN, control characters).

    ``cells`` is an iterator: those of a thousand hosts do not fit into memory. ``reference`` is the comparison of
    ``matrix`` with one.
    """
    head, cells = parts(matrix, reference)
    return {**codec.plain(head), "cells": map(codec.plain, cells)}


def parts(matrix: Matrix, reference: ReferenceComparison | None = None) -> tuple[WholeCheck, Iterator[CheckCell]]:
    """The document of ``matrix`` without its cells, and the cells, which are made one at a time."""
    detectable: dict[tuple[str, str], Mapping[tuple[Channel, Quantile], float | None]] = {}
    sensitivities = None
    # The hosts of a merged check are no repeats of each other.
    if not matrix.hosts:
        # The rules of a comparison load the catalogue, which a reader does without.
        from stallprobes.matrix.comparing.compare import compare

        comparison = compare(matrix, matrix)
        sensitivities = comparison.detectable
        for cell in comparison.cells:
            detectable[cell.row, cell.column] = {(part.channel, part.quantile): part.detectable for part in cell.parts}
    head = WholeCheck.of(
        matrix,
        timeline_status=matrix.timeline_summary or UNSET,
        detectable=sensitivities,
        spread=None,
        reference=None if reference is None else Unusual.of(reference),
        cells=[],
    )
    return head, (_cell(matrix, cell, detectable.get(key, {})) for key, cell in matrix.cells.items())


def _cell(matrix: Matrix, cell: Cell, detectable: Mapping[tuple[Channel, Quantile], float | None]) -> CheckCell:
    entry = matrix.row(cell.row).entry
    return CheckCell.of(
        cell,
        figures={
            channel_name(channel): _figures(cell, channel, _source(entry, channel.phase, matrix.timeline), detectable)
            for channel in cell.channels
        },
        repeats=list(map(CheckRepeat.of_repeat, cell.repeats)),
    )


def _figures(
    cell: Cell, channel: Channel, source: Source, detectable: Mapping[tuple[Channel, Quantile], float | None]
) -> CheckFigures:
    now, baseline = cell.channels[channel], cell.baseline.get(channel, Histogram.empty())
    figures: dict[str, Any] = {}
    for quantile in PERCENTILES:
        ratio = BaselineRatio.of(cell.channels, cell.baseline, channel, quantile)
        for name, histogram in (("", now), ("baseline_", baseline)):
            ns = histogram.percentile(quantile.percent)
            figures[f"{name}{quantile}_ns"] = None if ns is None else round(ns)
        figures[f"ratio_{quantile}"] = None if ratio is None else rounded(ratio.ratio)
        figures[f"detectable_{quantile}"] = detectable.get((channel, quantile))
    return CheckFigures(source=source, calls=now.count, **figures)


@cache
def _source(entry: str, phase: Phase, timeline: bool) -> Source:
    """Instrument that measured a phase of a victim: pairs of events measure a time on the GPU without the timeline."""
    if phase.traits.host or not timeline:
        return Source.HOST if phase.traits.host else Source.EVENTS
    from stallprobes.catalog import entries

    # A victim that is not in the catalogue has no pairs of events.
    catalogued = entries().get(entry)
    return Source.TIMELINE if catalogued is None else catalogued.probe().program.source(phase)


def channel_name(channel: Channel) -> str:
    """The key of a channel in documents: ``call``, or ``call:LABEL`` for one op."""
    return f"{channel.phase}:{channel.label}" if channel.label else str(channel.phase)


def _histograms_out(channels: ChannelMap) -> Histograms:
    return {
        channel_name(channel): CheckHistogram(histogram.max_ns, Raw(codec.encoded(histogram.pairs())))
        for channel, histogram in channels.items()
    }


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
            self._require_known(cell, where)
            self._cells[cell.key] = Cell.of(cell, repeats=self._repeats_of(cell, where, histograms))

    def _require_known(self, cell: CheckCell, where: str) -> None:
        """Raise MalformedJson unless a cell names known rows, columns and hosts, once, and is within the limits."""
        for key, names in self._names.items():
            if getattr(cell, key) not in names:
                raise MalformedJson(f"{where}.{key} is not among those the check lists")
        if cell.key in self._cells:
            raise MalformedJson(f"{where} is a second cell of its row and column")
        named = (entry.host for part in (cell.verdicts, cell.hosts, cell.repeats) for entry in part)
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
        for stored in cell.repeats:
            channels, before, after = [
                {self._channel(key, where): next(histograms) for key in part} for part in stored.parts
            ]
            window = Window(channels, stored.calls, stored.window_ns)
            repeat = Repeat(window, before, after, stored.host)
            calls += repeat.values
            repeats.append(repeat)  # type: ignore[union-attr]
        if calls > MOST:
            raise MalformedJson(f"{where} has counts above 2**53 in total")
        return tuple(repeats) if self._spool is None else repeats

    def _channel(self, name: str, where: str) -> Channel:
        channel = self._channels.get(name)
        if channel is None:
            phase, colon, label = name.partition(":")
            if phase not in _PHASES or (colon and not label) or len(self._channels) == MOST_CHANNELS:
                raise MalformedJson(f"{where} has the channel “{codec.clean(name[:40])}”, which is none")
            channel = self._channels[name] = Channel(Phase(phase), label)
        return channel

    def matrix(self) -> Matrix:
        """The matrix of the cells that were added."""
        head = self._head
        return Matrix.of(head, cells=self._cells, timeline_summary=head.timeline_status or None, lost_engines=())


def _names(key: str, lines: Collection[MatrixRow | MatrixColumn]) -> set[str]:
    names = {line.name for line in lines}
    if "" in names:
        raise MalformedJson(f"{key} has an empty name")
    if len(names) < len(lines):
        raise MalformedJson(f"{key} has a duplicate name")
    return names


def _histograms(cells: Sequence[CheckCell], places: Sequence[str]) -> Iterable[Histogram]:
    """The histograms of ``cells``, in the order of the document. Raises MalformedJson, which names the place."""
    documents = [item for cell in cells for repeat in cell.repeats for part in repeat.parts for item in part.values()]
    try:
        texts = [bytes(item.histogram) for item in documents]
        sizes = [text.count(b"[") - 1 for text in texts]
        return HistogramBlock.read(_numbers(texts), sizes, [item.max_ns for item in documents]).histograms()
    except ValueError:
        # One by one, which takes ten times as long, to name the first that is not valid.
        return chain.from_iterable(map(_histograms_one_by_one, cells, places))


def _numbers(texts: Sequence[bytes]) -> Int64s:
    """The numbers in several lists of pairs such as ``[[64,1],[65,3]]``, which are valid JSON.

    Raises ValueError for a text of another form, also for one with spaces.
    """
    text = b",".join([item[1:-1] for item in texts if item != b"[]"])
    between = text.translate(None, b"0123456789")
    if between != (b"[,]," * text.count(b"["))[:-1]:
        raise ValueError
    return np.fromstring(text.translate(None, b"[]"), np.int64, sep=",") if text else np.zeros(0, np.int64)


def _histograms_one_by_one(cell: CheckCell, where: str) -> Iterator[Histogram]:
    for number, repeat in enumerate(cell.repeats):
        for name, part in zip(("channels", "before", "after"), repeat.parts, strict=True):
            for key, stored in part.items():
                place = f"{where}.repeats[{number}].{name}[“{codec.clean(key[:40])}”]"
                pairs = codec.decoded(stored.histogram, Pairs, f"{place}.histogram")
                try:
                    yield Histogram.read(pairs, stored.max_ns)
                except ValueError as error:
                    raise MalformedJson(f"{place} {error}") from None
