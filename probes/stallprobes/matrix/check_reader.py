"""Reader of a check's document, versions 1 and 2: a matrix, or MalformedJson with the place of the first error."""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from stallprobes.files.json_reader import Node
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.sparse import MOST, SparseChannels, SparseHistogram, value_count
from stallprobes.latency.window import Window
from stallprobes.matrix.matrix import Cell, HostStatus, Matrix, MatrixColumn, MatrixRow, Repeat, Status
from stallprobes.model import Channel, Phase
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict

BACKENDS = ("cuda", "simulated", "host")

# Upper limits of values in a document: thirty years in seconds, and 64 bits of nanoseconds in microseconds.
_SECONDS = 1e9
_MICROSECONDS = 1e13
_RATIO = 1e18
# Version 1: a clause of a merged cell's reason: status, hosts, and the reason where there is one.
_CLAUSE = re.compile(rf"({'|'.join(status for status in Status)}) on ([^:;]+)(?:: (.*))?", re.DOTALL)


@dataclass(frozen=True)
class _Version:
    """Keys and values that differ between the versions of the document; those in a tuple are only in one of them."""

    phases: Mapping[str, Phase]
    kinds: Mapping[str, VerdictKind]
    channels: str
    baseline_us: str
    remedy: str
    of_check: tuple[str, ...] = ()
    of_cell: tuple[str, ...] = ()
    of_verdict: tuple[str, ...] = ()


_VERSIONS = {
    1: _Version(
        phases={phase.name_1: phase for phase in Phase},
        kinds={
            "unsure": VerdictKind.DRIFT,
            **{str(kind): kind for kind in VerdictKind if kind not in (VerdictKind.DRIFT, VerdictKind.UNSTEADY)},
        },
        channels="lanes",
        baseline_us="quiet_us",
        remedy="helps",
    ),
    2: _Version(
        phases={str(phase): phase for phase in Phase},
        kinds={str(kind): kind for kind in VerdictKind},
        channels="channels",
        baseline_us="baseline_us",
        remedy="remedy",
        of_check=("timeline", "detectable", "spread", "reference"),
        of_cell=("hosts",),
        of_verdict=("range_us", "detectable", "proof", "host", "head"),
    ),
}
VERSIONS = tuple(_VERSIONS)


def decoded_object(found: dict[str, Any]) -> Any:
    """``found`` as a sparse histogram if it is one: as JSON types it takes ten times the memory."""
    if found.keys() == {"max_ns", "histogram"}:
        try:
            return SparseHistogram.read(found["histogram"], found["max_ns"])
        except ValueError:
            # The reader reports the error with its place in the document.
            return found
    return found


def read(node: Node, version: int) -> Matrix:
    """The matrix in the document ``node``, whose objects went through ``decoded_object``. Raises MalformedJson."""
    return _Reader(_VERSIONS[version]).matrix(node)


class _Reader:
    """Reader of one version of the document."""

    def __init__(self, version: _Version) -> None:
        self._version = version

    def matrix(self, node: Node) -> Matrix:
        fields = node.fields(
            "schema", "program", "backend", "profile", "sim_seed", "seed", "quick", "interrupted", "started_at",
            "seconds", "repeats", "pace_us", "fingerprint", "hosts", "rows", "columns", "cells",
            *self._version.of_check,
        )  # fmt: skip
        if "timeline" in fields:
            # These are derived from the histograms.
            fields["detectable"].free_or_none()
            fields["spread"].free_or_none()
            fields["reference"].free_or_none()
        rows = [_row(one) for one in fields["rows"].items()]
        columns = [_column(one) for one in fields["columns"].items()]
        hosts = {name: one.free() for name, one in fields["hosts"].members().items()}
        _require_unique(fields["rows"], [row.name for row in rows])
        _require_unique(fields["columns"], [column.name for column in columns])
        if "" in hosts:
            raise fields["hosts"].wrong("has a host without a name")
        cells: dict[tuple[str, str], Cell] = {}
        known = {row.name for row in rows}, {column.name for column in columns}
        for one in fields["cells"].items():
            cell = self._cell(one, known, list(hosts))
            if (cell.row, cell.column) in cells:
                raise one.wrong("is a second cell of its row and column")
            cells[cell.row, cell.column] = cell
        return Matrix(
            backend=fields["backend"].one_of(BACKENDS),
            fingerprint=fields["fingerprint"].free(),
            started_at=_time(fields["started_at"]),
            seconds=fields["seconds"].number(_SECONDS),
            rows=tuple(rows),
            columns=tuple(columns),
            cells=cells,
            seed=fields["seed"].whole(-MOST, MOST),
            repeats=fields["repeats"].whole(0, MOST),
            pace_us=fields["pace_us"].number(_MICROSECONDS),
            quick=fields["quick"].flag(),
            interrupted=fields["interrupted"].flag(),
            timeline="timeline" in fields and fields["timeline"].flag(),
            profile=fields["profile"].text_or_none(),
            sim_seed=None if fields["sim_seed"].value is None else fields["sim_seed"].whole(-MOST, MOST),
            program=fields["program"].text(),
            hosts=hosts,
        )

    def _cell(self, node: Node, known: tuple[set[str], set[str]], hosts: Sequence[str]) -> Cell:
        fields = node.fields(
            "row", "column", "status", "reason", "in_flight_us", "in_flight_op", "figures", "verdicts", "repeats",
            *self._version.of_cell,
        )  # fmt: skip
        for key, names in zip(("row", "column"), known, strict=True):
            if fields[key].text() not in names:
                raise fields[key].wrong("is not among those the check lists")
        fields["figures"].members()
        repeats = tuple(self._repeat(one, {"", *hosts}) for one in fields["repeats"].items())
        counts = (
            value_count(channels)
            for repeat in repeats
            for channels in (repeat.window.channels, repeat.before, repeat.after)
        )
        if sum(counts) > MOST:
            raise node.wrong("has counts above 2**53 in total")
        status, reason = fields["status"].choice(Status), fields["reason"].text_or_none()
        if "hosts" in fields:
            statuses = [_host_status(one, set(hosts)) for one in fields["hosts"].items()]
        else:
            statuses = list(_statuses_of_reason(reason or "")) if hosts else []
        in_flight_ns = _ns(fields["in_flight_us"].number_or_none(_MICROSECONDS))
        return Cell(
            row=fields["row"].text(),
            column=fields["column"].text(),
            status=status,
            reason=reason,
            repeats=repeats,
            verdicts=tuple(self._verdict(one, hosts) for one in fields["verdicts"].items()),
            in_flight_ns=None if in_flight_ns is None else round(in_flight_ns),
            in_flight_op=fields["in_flight_op"].text_or_none(),
            hosts=tuple(statuses),
        )

    def _repeat(self, node: Node, hosts: set[str]) -> Repeat:
        fields = node.fields("host", "calls", "window_s", self._version.channels, "before", "after")
        return Repeat(
            window=Window(
                channels=self._channels(fields[self._version.channels]),
                iterations=fields["calls"].whole(0, MOST),
                duration_ns=round(fields["window_s"].number(_SECONDS) * 1e9),
            ),
            before=self._channels(fields["before"]),
            after=self._channels(fields["after"]),
            host=_one_of_hosts(fields["host"], hosts),
        )

    def _channels(self, node: Node) -> SparseChannels:
        held = {}
        for key, one in node.members().items():
            phase, colon, label = key.partition(":")
            if colon and not label:
                raise one.wrong("has an empty label")
            channel = Channel(self._phase(Node(phase, f"the phase in {one.where}")), label)
            if not isinstance(one.value, SparseHistogram):
                fields = one.fields("max_ns", "histogram")
                try:
                    one.value = SparseHistogram.read(fields["histogram"].value, fields["max_ns"].value)
                except ValueError as error:
                    raise one.wrong(str(error)) from error
            held[channel] = one.value
        return SparseChannels(held)

    def _verdict(self, node: Node, hosts: Sequence[str]) -> Verdict:
        version = self._version
        fields = node.fields(
            "probe", "phase", "quantile", version.baseline_us, "now_us", "ratio", "kind", "cause", "sentence",
            version.remedy, *version.of_verdict,
        )  # fmt: skip
        kind = version.kinds.get(fields["kind"].text())
        if kind is None:
            raise fields["kind"].wrong("is not a verdict kind")
        cause, sentence = fields["cause"].text(), fields["sentence"].text()
        if "head" in fields:
            host, head = _one_of_hosts(fields["host"], {"", *hosts}), fields["head"].text()
        else:
            host, head = _split_sentence(sentence, cause, hosts)
        return Verdict(
            probe=fields["probe"].text(),
            phase=None if fields["phase"].value is None else self._phase(fields["phase"]),
            quantile=Quantile(fields["quantile"].one_of(tuple(Quantile))),
            baseline_ns=_ns(fields[version.baseline_us].number_or_none(_MICROSECONDS)),
            now_ns=_ns(fields["now_us"].number_or_none(_MICROSECONDS)),
            ratio=fields["ratio"].number_or_none(_RATIO),
            kind=kind,
            head=head,
            cause=cause,
            remedy=fields[version.remedy].text(),
            proof=fields["proof"].choice(Proof) if "proof" in fields else Proof.NONE,
            host=host,
            range_ns=_range_ns(fields["range_us"]) if "range_us" in fields else None,
            detectable=fields["detectable"].number_or_none(_RATIO) if "detectable" in fields else None,
        )

    def _phase(self, node: Node) -> Phase:
        return self._version.phases[node.one_of(self._version.phases)]


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


def _statuses_of_reason(reason: str) -> Iterator[HostStatus]:
    """The hosts in the reason of a merged cell, as ``host_reasons`` writes it.

    Version 1 of the document has no other field for the status and reason of each host.
    """
    for clause in reason.split("; "):
        match = _CLAUSE.fullmatch(clause)
        if match is not None:
            for host in match[2].split(", "):
                yield HostStatus(host, Status(match[1]), match[3] or "")


def _split_sentence(sentence: str, cause: str, hosts: Sequence[str]) -> tuple[str, str]:
    """The host and the head of a verdict's sentence, as ``Verdict.sentence`` composes it.

    Version 1 of the document has no other fields for them.
    """
    host = next((one for one in hosts if sentence.startswith(f"On {one}: ")), "")
    head = sentence.removeprefix(f"On {host}: ") if host else sentence
    return host, head.removesuffix(cause).rstrip() if cause else head


def _ns(us: float | None) -> float | None:
    return None if us is None else us * 1000
