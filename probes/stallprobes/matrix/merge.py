"""Merge of the checks of several hosts into one matrix, with the hosts that differ from the others.

A merged matrix has one repeat per host in each cell. Merging is associative: merging a merged matrix with further
checks gives the same result as merging all checks at once. The first pass reads each check once and stores its sums,
the second one reads the sums cell by cell.
"""

from __future__ import annotations

import datetime
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import PurePath
from typing import TypeVar

from stallprobes.errors import CheckFileError, reason_of
from stallprobes.latency.histogram import MOST
from stallprobes.latency.window import ChannelMap, Window, merged_groups
from stallprobes.matrix import outliers
from stallprobes.matrix.matrix import (
    Cell,
    HostStatus,
    Matrix,
    MatrixColumn,
    MatrixRow,
    Repeat,
    Status,
    host_reasons,
)
from stallprobes.matrix.outliers import Outlier
from stallprobes.matrix.repeat_spool import RepeatSpool
from stallprobes.records.timeline_summary import TimelineSummary

# Order in which the statuses on the merged hosts determine the status of a merged cell (a victim beside aggressors).
# The merged cell gets the first status in this list that the cell has on any host.
_ORDER = (Status.STARVED, Status.OK, Status.INVALID, Status.UNSUPPORTED, Status.MISSING)
# Number of cells (each a victim beside aggressors) whose repeats a merge of checks adds up together. A larger number
# needs more memory, and a smaller number more time.
_SUMS_AT_ONCE = 64
Value = TypeVar("Value")


@dataclass(frozen=True, eq=False)
class Merged:
    """The ``matrix`` of all hosts, its ``outliers``, and ``notes``: sentences on the input."""

    matrix: Matrix
    outliers: tuple[Outlier, ...]
    notes: tuple[str, ...] = ()


class _MergedCell:
    """A cell while the checks of its hosts are added: their repeats, the worst one, and the longest call in flight.

    What hosts without a measurement have does not count once another one has measured it.
    """

    __slots__ = ("_spool", "calls", "host", "hosts", "repeats", "status", "stuck", "worst")

    def __init__(self, spool: RepeatSpool) -> None:
        self._spool = spool
        self.status: Status | None = None
        self.hosts: list[HostStatus] = []
        self._begin()

    def _begin(self) -> None:
        self.repeats = self._spool.sequence()
        self.worst: Cell | None = None
        self.stuck: Cell | None = None
        self.host = ""
        self.calls = 0

    def add(self, host: str, part: Cell) -> None:
        """Add the cell of ``host``, which has one repeat or none. Raises CheckFileError and OSError."""
        if part.status is not Status.OK:
            # Most hosts have the same reasons.
            self.hosts.append(HostStatus(host, part.status, sys.intern(part.reason or "")))
        measured = self.status is not None and self.status.measured
        self.status = min(self.status or part.status, part.status, key=_ORDER.index)
        if measured and not part.status.measured:
            return
        if part.status.measured and not measured:
            self._begin()
        for repeat in part.repeats:
            self.repeats.append(replace(repeat, host=host))
            self.calls += repeat.values
            if self.calls > MOST:
                raise CheckFileError(
                    f"The cell {part.row} × {part.column} would hold more than 2**53 calls: merge fewer checks"
                )
        head = part.changed(repeats=())
        if self.worst is None or _weight(head) > _weight(self.worst):
            self.worst, self.host = head, host
        if self.stuck is None or (head.in_flight_ns or 0) > (self.stuck.in_flight_ns or 0):
            self.stuck = head

    def cell(self, row: str, column: str) -> Cell:
        """The cell."""
        blank = Cell(row, column, self.status or Status.MISSING)
        worst, stuck = self.worst or blank, self.stuck or blank
        return blank.changed(
            reason=host_reasons(self.hosts),
            repeats=self.repeats,
            verdicts=tuple(verdict.changed(host=self.host) for verdict in worst.verdicts),
            in_flight_ns=stuck.in_flight_ns,
            in_flight_op=stuck.in_flight_op,
            hosts=tuple(self.hosts),
        )


def merge(
    matrices: Iterable[tuple[str, Matrix]],
    *,
    force: bool = False,
    progress: Callable[[float], None] = lambda _: None,
) -> Merged:
    """The merged matrix of many hosts, with the outliers among them.

    Each matrix comes with the name of its file or of its host: a name without a slash that does not end in ``.json``
    or ``.json.gz`` is a host's. Otherwise the host's name is the fingerprint's ``hostname``, else the file's stem. Two
    checks of one host are named "node-a" and "node-a (2)", with a note.

    The histograms of a host's repeats are summed. A cell is starved if it is on any host, else ok if any host measured
    it; its reason names the other hosts. Hosts on which it is invalid are left out. A cell's verdicts are those of the
    host with the worst one.

    Each matrix is used once and not kept: the sums of each host are in a temporary file, so that memory hardly depends
    on the number of hosts. ``progress`` is called with the share (0 to 1) of the search for outliers that is done.

    Raises CheckFileError for simulated with real GPUs, different periods, one name for different probes, and, unless
    ``force``, different GPU models, and if the temporary file cannot be written.
    """
    try:
        merger = _Merger(force)
        for file, matrix in matrices:
            merger.add(file, matrix)
        return merger.result(progress)
    except OSError as error:
        raise CheckFileError(
            f"The checks cannot be merged in {tempfile.gettempdir()}: {reason_of(error)}; "
            "set TMPDIR to a folder with more space"
        ) from error


class _Merger:
    """Merge of one check after the other."""

    def __init__(self, force: bool) -> None:
        self._force = force
        self._first_file = ""
        # The checks without their cells and lines.
        self._heads: list[Matrix] = []
        # Unique names of the hosts, in the order of the checks, with their fingerprints.
        self._hosts: dict[str, Mapping[str, object]] = {}
        self._notes: list[str] = []
        self._models: dict[str, str] = {}
        self._rows: dict[str, tuple[str, MatrixRow]] = {}
        self._columns: dict[str, tuple[str, MatrixColumn]] = {}
        self._spool = RepeatSpool()
        self._cells: dict[tuple[str, str], _MergedCell] = {}

    def add(self, file: str, matrix: Matrix) -> None:
        """Add the check of ``file``. Raises CheckFileError and OSError."""
        self._first_file = self._first_file or file
        self._heads.append(matrix.changed(cells={}, rows=(), columns=(), lost_engines=()))
        self._check(file, matrix)
        self._add_lines(file, matrix)
        new = self._new_names(file, matrix)
        hosts = list(matrix.hosts)
        sums = None if hosts else _totals([cell.repeats for cell in matrix.cells.values()])
        for key, cell in matrix.cells.items():
            merged = self._cells.get(key)
            if merged is None:
                merged = self._cells[key] = _MergedCell(self._spool)
            parts = _host_parts(cell, hosts) if sums is None else {"": cell.changed(repeats=(next(sums),))}
            for host, part in parts.items():
                merged.add(new[host], part)

    def result(self, progress: Callable[[float], None]) -> Merged:
        """The merged matrix. Raises CheckFileError without a check, and OSError."""
        heads = self._heads
        if not heads:
            raise CheckFileError("No checks to merge: name at least one file")
        self._check_models()
        timelines = [head.timeline_summary for head in heads if head.timeline_summary is not None]
        matrix = heads[0].changed(
            fingerprint=_common(self._hosts),
            started_at=min((head.started_at for head in heads), key=datetime.datetime.fromisoformat),
            seconds=max(head.seconds for head in heads),
            rows=tuple(row for _, row in self._rows.values()),
            columns=tuple(column for _, column in self._columns.values()),
            cells={key: cell.cell(*key) for key, cell in self._cells.items()},
            repeats=max(head.repeats for head in heads),
            quick=any(head.quick for head in heads),
            interrupted=any(head.interrupted for head in heads),
            timeline_summary=TimelineSummary.joined(timelines),
            profile=_common_value([head.profile for head in heads]),
            sim_seed=_common_value([head.sim_seed for head in heads]),
            program=", ".join(sorted({name for head in heads for name in head.program.split(", ")})),
            hosts=self._hosts,
        )
        notes = list(self._notes)
        if len({head.quick for head in heads}) > 1:
            notes.append("Some of the checks are quick ones: they have fewer calls and so less weight.")
        return Merged(matrix, outliers.find(matrix, progress), tuple(notes))

    def _check(self, name: str, matrix: Matrix) -> None:
        """Raise CheckFileError if ``matrix`` cannot be merged with the checks before it."""
        first_name, first = self._first_file, self._heads[0]
        if matrix.timeline != first.timeline:
            with_timeline, without = (name, first_name) if matrix.timeline else (first_name, name)
            raise CheckFileError(
                f"{with_timeline} was made with the timeline and {without} without it: merge them apart"
            )
        if matrix.backend != first.backend:
            raise CheckFileError(f"{first_name} is of a {_gpu(first)} and {name} of a {_gpu(matrix)}: merge them apart")
        if matrix.pace_ns != first.pace_ns:
            raise CheckFileError(
                f"{first_name} calls every {first.pace_ns / 1000:g} µs and {name} every {matrix.pace_ns / 1000:g} µs, "
                "which gives other figures: merge them apart"
            )
        # A merged check may have several models; what else differs comes first.
        self._check_models()
        for model in _models(matrix):
            self._models.setdefault(model, name)
        if matrix.hosts:
            return
        self._check_models()

    def _check_models(self) -> None:
        if len(self._models) > 1 and not self._force:
            (here, there), (this, that) = list(self._models)[:2], list(self._models.values())[:2]
            raise CheckFileError(f"{this} is of {here} and {that} of {there}: merge them apart, or with --force")

    def _add_lines(self, file: str, matrix: Matrix) -> None:
        for row in matrix.rows:
            before, same = self._rows.setdefault(row.name, (file, row))
            if (same.entry, same.context, same.stream) != (row.entry, row.context, row.stream):
                raise CheckFileError(f"{before} and {file} call different victims “{row.name}”: merge them apart")
        for column in matrix.columns:
            before, same_column = self._columns.setdefault(column.name, (file, column))
            if same_column.aggressors != column.aggressors:
                raise CheckFileError(f"{before} and {file} call different aggressors “{column.name}”: merge them apart")

    def _new_names(self, file: str, matrix: Matrix) -> dict[str, str]:
        """New names of a matrix's hosts by their old ones; the host of a matrix of one machine has the old name ""."""
        if matrix.hosts:
            return {name: self._new_name(name, fingerprint, file) for name, fingerprint in matrix.hosts.items()}
        hostname = matrix.fingerprint.get("hostname")
        if file and "/" not in file and not file.endswith((".json", ".json.gz")):
            name = file
        elif isinstance(hostname, str) and hostname:
            name = hostname
        else:
            name = PurePath(file.removesuffix(".gz")).stem
        return {"": self._new_name(name, matrix.fingerprint, file)}

    def _new_name(self, wanted: str, fingerprint: Mapping[str, object], file: str) -> str:
        """Add a host and return its unique name, ``wanted`` if it is free; ``file`` is the name of its check."""
        # These characters separate the names in a reason.
        wanted = re.sub(r"[,;:\s]+", " ", wanted).strip() or "host"
        name = wanted
        if name in self._hosts:
            base = re.sub(r" \(\d+\)$", "", wanted)
            name = next(n for i in range(2, len(self._hosts) + 3) if (n := f"{base} ({i})") not in self._hosts)
            self._notes.append(f"{file} is another check of the host “{wanted}”: it is named “{name}”.")
        self._hosts[name] = fingerprint
        return name


def _gpu(matrix: Matrix) -> str:
    return "simulated GPU" if matrix.simulated else "real GPU" if matrix.backend == "cuda" else "machine without one"


def _models(matrix: Matrix) -> list[str]:
    """The known GPU models of a matrix."""
    if matrix.simulated:
        return [matrix.profile] if matrix.profile else []
    models = [host.get("gpu") for host in (matrix.hosts.values() if matrix.hosts else (matrix.fingerprint,))]
    return [model for model in models if isinstance(model, str)]


def _common(hosts: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """The common fingerprint of all hosts: a value that differs is None, with the reason in ``unknown``."""
    if len(hosts) == 1:
        return dict(*hosts.values())
    keys = {key: None for fingerprint in hosts.values() for key in fingerprint if key != "unknown"}
    common: dict[str, object] = {}
    unknown: dict[str, str] = {}
    for key in keys:
        values = [fingerprint.get(key) for fingerprint in hosts.values()]
        common[key] = _common_value(values)
        if common[key] is None:
            unknown[key] = "not known on any host" if values[0] is None else f"not the same on all {len(hosts)} hosts"
    return {**common, "unknown": unknown}


def _common_value(values: Sequence[Value]) -> Value | None:
    return values[0] if all(value == values[0] for value in values) else None


def _host_parts(cell: Cell, hosts: Sequence[str]) -> dict[str, Cell]:
    """The part of each of ``hosts`` in ``cell``, by the host's old name; that of the worst has the verdicts."""
    statuses = {entry.host: entry for entry in cell.hosts}
    repeats: dict[str, list[Repeat]] = {}
    for repeat in cell.repeats:
        repeats.setdefault(repeat.host, []).append(repeat)
    parts = {}
    for host in hosts:
        mine = repeats.get(host, [])
        if mine or host in statuses:
            status = statuses.get(host, HostStatus(host, Status.OK))
            totals = tuple(_totals([mine])) if mine else ()
            parts[host] = Cell(cell.row, cell.column, status.status, status.reason, repeats=totals)
    worst = next((verdict.host for verdict in cell.verdicts), "") or next(iter(parts), "")
    if worst in parts:
        stuck = {"in_flight_ns": cell.in_flight_ns, "in_flight_op": cell.in_flight_op}
        parts[worst] = parts[worst].changed(verdicts=cell.verdicts, **stuck)
    return parts


def _totals(groups: Iterable[Sequence[Repeat]]) -> Iterator[Repeat]:
    """The sum of all repeats of each of ``groups``, those of one host. Many at once take less time than one by one."""
    left = iter(groups)
    while some := list(islice(left, _SUMS_AT_ONCE)):
        yield from _some_totals(some)


def _some_totals(groups: Sequence[Sequence[Repeat]]) -> Iterator[Repeat]:
    parts: list[list[ChannelMap]] = []
    for repeats in groups:
        parts.append([repeat.window.channels for repeat in repeats])
        parts.append([repeat.before for repeat in repeats])
        parts.append([repeat.after for repeat in repeats])
    sums = iter(merged_groups(parts))
    for repeats in groups:
        window = Window(
            channels=next(sums),
            iterations=sum([repeat.window.iterations for repeat in repeats]),
            duration_ns=sum([repeat.window.duration_ns for repeat in repeats]),
        )
        yield Repeat(window, before=next(sums), after=next(sums))


def _weight(cell: Cell) -> tuple[int, float]:
    return max((verdict.weight for verdict in cell.verdicts), default=(-1, 0.0))
