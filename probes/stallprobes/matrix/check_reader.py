"""Reader of a check's document: its cells, or MalformedJson with the place of the first error."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

from stallprobes.errors import MalformedJson
from stallprobes.files.json_reader import LONGEST_TEXT, Node
from stallprobes.latency.histogram import MOST, Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import ChannelMap, Window
from stallprobes.matrix.matrix import Cell, HostStatus, Matrix, MatrixColumn, MatrixRow, Repeat, Status
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict

if TYPE_CHECKING:
    from stallprobes.matrix.repeat_spool import RepeatSpool
    from stallprobes.records.timeline_summary import TimelineSummary

BACKENDS = ("cuda", "simulated", "host")

# Upper limits of values in a document: thirty years in seconds, and 64 bits of nanoseconds in microseconds.
_SECONDS = 1e9
_MICROSECONDS = 1e13
_RATIO = 1e18


class CheckSize:
    """Largest size of a document of ``hosts`` machines: bytes, histograms, repeats and cells.

    A check of one machine has 6 MB, 13 000 histograms, 1500 repeats and 360 cells, a merged one less per host. Ten
    times as much is accepted, so that no file takes more than some 250 MB for one machine.
    """

    BYTES = 48 << 20
    CELLS = 20_000
    LINES = 2_000
    HOSTS = 10_000
    FINGERPRINT = 2_000
    VERDICTS = 20_000

    def __init__(self, hosts: int) -> None:
        machines = max(hosts, 1)
        self.bytes = self.BYTES + (8 << 20) * hosts
        self.histograms = 100_000 * machines
        self.repeats = 30_000 * machines
        # The names of the hosts are in it.
        self.reason = LONGEST_TEXT + 256 * hosts


# Members of the document that are computed again from the histograms.
DERIVED = ("detectable", "spread", "reference")
# More members than these are another kind of document.
MOST_MEMBERS = 64
_HISTOGRAM = {Histogram}
_PHASES = {str(phase): phase for phase in Phase}


class CheckReader:
    """Reader of the document."""

    def __init__(self, root: Node, size: CheckSize) -> None:
        """Raises MalformedJson unless ``root`` has valid rows, columns and hosts."""
        self._size = size
        self._cells: dict[tuple[str, str], Cell] = {}
        self._histograms = self._verdicts = 0
        self._channel_of: dict[str, Channel] = {}
        if not {"rows", "columns", "hosts"} <= root.value.keys():
            # The document has been read to its end: this says which of all keys is the first missing one.
            self._fields(root)
        fields = {key: root.field(key, root.value[key]) for key in ("rows", "columns", "hosts")}
        for key in ("rows", "columns"):
            if len(fields[key].items()) > CheckSize.LINES:
                raise fields[key].wrong(f"has more than {CheckSize.LINES} items")
        self._rows = [_row(one) for one in fields["rows"].items()]
        self._columns = [_column(one) for one in fields["columns"].items()]
        self._hosts = {name: one.free() for name, one in fields["hosts"].members().items()}
        _require_unique(fields["rows"], [row.name for row in self._rows])
        _require_unique(fields["columns"], [column.name for column in self._columns])
        if "" in self._hosts:
            raise fields["hosts"].wrong("has a host without a name")
        self._known = {row.name for row in self._rows}, {column.name for column in self._columns}
        self._names = set(self._hosts)
        self._spool: RepeatSpool | None = None
        if self._hosts:
            # Its temporary file needs modules that the check of one machine does without.
            from stallprobes.matrix.repeat_spool import RepeatSpool

            self._spool = RepeatSpool()

    def matrix(self, node: Node) -> Matrix:
        """The matrix of the document ``node`` and of the cells added before."""
        fields = self._fields(node)
        for key in DERIVED:
            fields[key].free_or_none()
        fields["cells"].items()
        return Matrix(
            backend=fields["backend"].one_of(BACKENDS),
            fingerprint=fields["fingerprint"].free(CheckSize.FINGERPRINT),
            started_at=_time(fields["started_at"]),
            seconds=fields["seconds"].number(_SECONDS),
            rows=tuple(self._rows),
            columns=tuple(self._columns),
            cells=self._cells,
            seed=fields["seed"].whole(-MOST, MOST),
            repeats=fields["repeats"].whole(0, MOST),
            pace_us=fields["pace_us"].number(_MICROSECONDS),
            quick=fields["quick"].flag(),
            interrupted=fields["interrupted"].flag(),
            timeline=fields["timeline"].flag(),
            timeline_summary=_timeline(fields["timeline_status"]) if "timeline_status" in fields else None,
            profile=fields["profile"].text_or_none(),
            sim_seed=None if fields["sim_seed"].value is None else fields["sim_seed"].whole(-MOST, MOST),
            program=fields["program"].text(),
            hosts=self._hosts,
        )

    def _fields(self, node: Node) -> dict[str, Node]:
        return node.fields(
            "schema", "program", "backend", "profile", "sim_seed", "seed", "quick", "interrupted", "started_at",
            "seconds", "repeats", "pace_us", "fingerprint", "hosts", "rows", "columns", "cells", "timeline", *DERIVED,
            *(["timeline_status"] if "timeline_status" in node.value else []),
        )  # fmt: skip

    def add_cell(self, node: Node) -> None:
        """Convert the cell ``node``."""
        cell = self._cell(node)
        if (cell.row, cell.column) in self._cells:
            raise node.wrong("is a second cell of its row and column")
        self._cells[cell.row, cell.column] = cell

    def _cell(self, node: Node) -> Cell:
        fields = node.fields(
            "row", "column", "status", "reason", "in_flight_us", "in_flight_op", "figures", "verdicts", "repeats",
            "hosts",
        )  # fmt: skip
        for key, names in zip(("row", "column"), self._known, strict=True):
            if fields[key].text() not in names:
                raise fields[key].wrong("is not among those the check lists")
        fields["figures"].members()
        repeats: Sequence[Repeat] = self._repeats(node, fields["repeats"])
        status, reason = fields["status"].choice(Status), fields["reason"].text_or_none(self._size.reason)
        verdicts = fields["verdicts"].items()
        self._verdicts += len(verdicts)
        if self._verdicts > CheckSize.VERDICTS:
            raise node.wrong(f"is beyond {CheckSize.VERDICTS} verdicts in total")
        in_flight_ns = _ns(fields["in_flight_us"].number_or_none(_MICROSECONDS))
        return Cell(
            row=fields["row"].text(),
            column=fields["column"].text(),
            status=status,
            reason=reason,
            repeats=repeats,
            verdicts=tuple(_verdict(one, self._hosts) for one in verdicts),
            in_flight_ns=None if in_flight_ns is None else round(in_flight_ns),
            in_flight_op=fields["in_flight_op"].text_or_none(),
            hosts=tuple(_host_status(one, self._names) for one in fields["hosts"].items()),
        )

    def _repeats(self, cell: Node, node: Node) -> Sequence[Repeat]:
        """The repeats of ``cell``: in memory, those of a merged check in a temporary file."""
        allowed = {"", *self._names}
        spooled = None if self._spool is None else self._spool.sequence()
        held = []
        calls = 0
        for number, value in enumerate(node.listed()):
            repeat = self._valid_repeat(value, allowed) or self._repeat(node.item(number, value), allowed)
            calls += repeat.values
            self._histograms += len(repeat.window.channels) + len(repeat.before) + len(repeat.after)
            if spooled is None:
                held.append(repeat)
            else:
                spooled.append(repeat)
        if calls > MOST:
            raise cell.wrong("has counts above 2**53 in total")
        if self._histograms > self._size.histograms:
            raise cell.wrong(f"is beyond {self._size.histograms} histograms in total")
        return tuple(held) if spooled is None else spooled

    def _valid_repeat(self, value: Any, hosts: set[str]) -> Repeat | None:
        """The repeat ``value``; None if it is not valid or not of the usual types, which ``_repeat`` then examines.

        A check has 1500 of them: the nodes of ``_repeat`` take twice as long.
        """
        try:
            host, calls, seconds = value["host"], value["calls"], value["window_s"]
            maps = value["channels"], value["before"], value["after"]
        except (KeyError, TypeError):
            return None
        if (
            len(value) != 6
            or (type(host), type(calls), type(seconds)) != (str, int, float)
            or host not in hosts
            or not 0 <= calls <= MOST
            or not 0 <= seconds <= _SECONDS
        ):
            return None
        channels, before, after = map(self._known_channels, maps)
        if channels is None or before is None or after is None:
            return None
        return Repeat(Window(channels, calls, round(seconds * 1e9)), before, after, host)

    def _repeat(self, node: Node, hosts: set[str]) -> Repeat:
        fields = node.fields("host", "calls", "window_s", "channels", "before", "after")
        return Repeat(
            window=Window(
                channels=self._channels(fields["channels"]),
                iterations=fields["calls"].whole(0, MOST),
                duration_ns=round(fields["window_s"].number(_SECONDS) * 1e9),
            ),
            before=self._channels(fields["before"]),
            after=self._channels(fields["after"]),
            host=_one_of_hosts(fields["host"], hosts),
        )

    def _known_channels(self, value: Any) -> ChannelMap | None:
        """The histograms ``value`` of channels that occurred before; None for anything else."""
        try:
            found = {self._channel_of[key]: one for key, one in value.items()}
        except (KeyError, AttributeError):
            return None
        return found if set(map(type, found.values())) <= _HISTOGRAM else None

    def _channels(self, node: Node) -> ChannelMap:
        return {self._channel(key, one): _histogram(one) for key, one in node.members().items()}

    def _channel(self, key: str, node: Node) -> Channel:
        known = self._channel_of.get(key)
        if known is not None:
            return known
        phase, colon, label = key.partition(":")
        if colon and not label:
            raise node.wrong("has an empty label")
        found = _PHASES.get(phase)
        if found is None:
            raise MalformedJson(f"the phase in {node.where} is not one of {', '.join(_PHASES)}")
        if len(self._channel_of) < MOST_MEMBERS:
            self._channel_of[key] = Channel(found, label)
        return Channel(found, label)


def _verdict(node: Node, hosts: Collection[str]) -> Verdict:
    fields = node.fields(
        "probe", "phase", "quantile", "baseline_us", "now_us", "ratio", "kind", "cause", "sentence", "remedy",
        "range_us", "detectable", "proof", "host", "head",
    )  # fmt: skip
    fields["sentence"].text()
    return Verdict(
        probe=fields["probe"].text(),
        phase=None if fields["phase"].value is None else fields["phase"].choice(Phase),
        quantile=fields["quantile"].choice(Quantile),
        baseline_ns=_ns(fields["baseline_us"].number_or_none(_MICROSECONDS)),
        now_ns=_ns(fields["now_us"].number_or_none(_MICROSECONDS)),
        ratio=fields["ratio"].number_or_none(_RATIO),
        kind=fields["kind"].choice(VerdictKind),
        head=fields["head"].text(),
        cause=fields["cause"].text(),
        remedy=fields["remedy"].text(),
        proof=fields["proof"].choice(Proof),
        host=_one_of_hosts(fields["host"], {"", *hosts}),
        range_ns=_range_ns(fields["range_us"]),
        detectable=fields["detectable"].number_or_none(_RATIO),
    )


def _histogram(node: Node) -> Histogram:
    if isinstance(node.value, Histogram):
        return node.value
    fields = node.fields("max_ns", "histogram")
    try:
        return Histogram.read(fields["histogram"].value, fields["max_ns"].value)
    except ValueError as error:
        raise node.wrong(str(error)) from error


def _timeline(node: Node) -> TimelineSummary:
    # Few checks have a timeline, and these modules take as long to load as a third of a check.
    from stallprobes.native.layouts.cupti import RecordKind
    from stallprobes.records.timeline import TimelineLosses
    from stallprobes.records.timeline_summary import TimelineSummary

    record_kinds = {kind.word: kind for kind in RecordKind}
    fields = node.fields("library", "kinds", "context_switches", "note", "losses")
    kinds = [one.one_of(tuple(record_kinds)) for one in fields["kinds"].items()]
    fields["context_switches"].flag()
    losses = fields["losses"].fields(*(one.name for one in dataclasses.fields(TimelineLosses)))
    return TimelineSummary(
        library=fields["library"].text(),
        kinds=tuple(record_kinds[kind] for kind in kinds),
        note=fields["note"].text_or_none() or "",
        losses=TimelineLosses(**{name: one.whole(0, MOST) for name, one in losses.items()}),
    )


def _row(node: Node) -> MatrixRow:
    fields = node.fields("name", "title", "entry", "context", "stream")
    name = fields.pop("name").name()
    return MatrixRow(name=name, **{key: one.text() for key, one in fields.items()})


def _column(node: Node) -> MatrixColumn:
    fields = node.fields("name", "title", "aggressors")
    aggressors = tuple(one.name() for one in fields["aggressors"].items())
    return MatrixColumn(fields["name"].name(), fields["title"].text(), aggressors)


def _require_unique(node: Node, names: list[str]) -> None:
    if len(set(names)) < len(names):
        raise node.wrong("has a duplicate name")


def _time(node: Node) -> str:
    text = node.text()
    try:
        at = datetime.datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise node.wrong("is not an ISO 8601 time with an offset from UTC")
    return text


def _one_of_hosts(node: Node, hosts: set[str]) -> str:
    if node.text() not in hosts:
        raise node.wrong("is not among the hosts")
    return node.text()


def _host_status(node: Node, hosts: set[str]) -> HostStatus:
    fields = node.fields("host", "status", "reason")
    return HostStatus(_one_of_hosts(fields["host"], hosts), fields["status"].choice(Status), fields["reason"].text())


def _range_ns(node: Node) -> tuple[float, float] | None:
    if node.value is None:
        return None
    bounds = node.items()
    if len(bounds) != 2:
        raise node.wrong("is not a list of two numbers")
    low, high = (one.number(_MICROSECONDS) * 1000 for one in bounds)
    return low, high


def _ns(us: float | None) -> float | None:
    return None if us is None else us * 1000
