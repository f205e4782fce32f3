"""Merge of the checks of several hosts into one matrix, with the hosts that differ from the others.

A merged matrix has one repeat per host in each cell. Merging is associative: merging a merged matrix with further
checks gives the same result as merging all checks at once. The first pass reads each check once and stores its sums,
the second one reads the sums cell by cell.
"""

from __future__ import annotations

import datetime
import hashlib
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import PurePath

from stallprobes.errors import CannotMerge, reason_of
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
from stallprobes.verdicts.verdict import Verdict

# A measured status counts before all others; of the rest the most informative one comes first.
_MEASURED = (Status.STARVED, Status.OK)
_ORDER = (*_MEASURED, Status.INVALID, Status.UNSUPPORTED, Status.MISSING)
# Cells of a check that are summed at once, which limits the memory for it.
_SUMS_AT_ONCE = 64


@dataclass(frozen=True, eq=False)
class Merged:
    """The ``matrix`` of all hosts, its ``outliers``, and ``notes``: sentences on the input."""

    matrix: Matrix
    outliers: tuple[Outlier, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _HostPart:
    """One host's part of a cell."""

    status: Status
    reason: str = ""
    repeat: Repeat | None = None
    verdicts: tuple[Verdict, ...] = ()
    in_flight_ns: int | None = None
    in_flight_op: str | None = None


class _Parts:
    """Parts of several hosts: their repeats, the verdicts of the worst one, and the longest call in flight."""

    __slots__ = ("host", "repeats", "stuck", "verdicts", "weight")

    def __init__(self, spool: RepeatSpool) -> None:
        self.repeats = spool.sequence()
        self.verdicts: tuple[Verdict, ...] = ()
        self.weight: tuple[int, float] | None = None
        self.host = ""
        self.stuck: _HostPart | None = None

    def add(self, host: str, part: _HostPart, repeat: int | None) -> None:
        """Add the part of ``host``; ``repeat`` is the number of its repeat in the spool."""
        if repeat is not None:
            self.repeats.append_number(repeat)
        weight = _weight(part.verdicts)
        if self.weight is None or weight > self.weight:
            self.weight, self.host, self.verdicts = weight, host, part.verdicts
        if self.stuck is None or (part.in_flight_ns or 0) > (self.stuck.in_flight_ns or 0):
            self.stuck = _HostPart(part.status, in_flight_ns=part.in_flight_ns, in_flight_op=part.in_flight_op)


class _MergedCell:
    """A cell while the checks of its hosts are added."""

    __slots__ = ("calls", "every", "hosts", "measured", "status")

    def __init__(self, spool: RepeatSpool) -> None:
        self.status: Status | None = None
        self.hosts: list[HostStatus] = []
        self.every, self.measured = _Parts(spool), _Parts(spool)
        self.calls = 0

    def cell(self, row: str, column: str) -> Cell:
        """The cell; what hosts without a measurement have does not count if another one has measured it."""
        status = self.status or Status.MISSING
        kept = self.measured if status in _MEASURED else self.every
        stuck = kept.stuck or _HostPart(status)
        return Cell(
            row=row,
            column=column,
            status=status,
            reason=host_reasons(self.hosts),
            repeats=kept.repeats,
            verdicts=tuple(verdict.changed(host=kept.host) for verdict in kept.verdicts),
            in_flight_ns=stuck.in_flight_ns,
            in_flight_op=stuck.in_flight_op,
            hosts=tuple(self.hosts),
        )


@dataclass
class _Names:
    """Unique names of the hosts, in the order of the checks, with their fingerprints."""

    hosts: dict[str, Mapping[str, object]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def add(self, wanted: str, fingerprint: Mapping[str, object], file: str) -> str:
        """Add a host and return its unique name, ``wanted`` if it is free; ``file`` is the name of its check."""
        # These characters separate the names in a reason.
        wanted = re.sub(r"[,;:\s]+", " ", wanted).strip() or "host"
        name = wanted
        if name in self.hosts:
            base = re.sub(r" \(\d+\)$", "", wanted)
            name = next(n for i in range(2, len(self.hosts) + 3) if (n := f"{base} ({i})") not in self.hosts)
            self.notes.append(f"{file} is another check of the host “{wanted}”: it is named “{name}”.")
        self.hosts[name] = fingerprint
        return name


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

    Raises CannotMerge for simulated with real GPUs, different periods, one name for different probes, and, unless
    ``force``, different GPU models, and if the temporary file cannot be written.
    """
    try:
        merger = _Merger(force)
        for file, matrix in matrices:
            merger.add(file, matrix)
        return merger.result(progress)
    except OSError as error:
        raise CannotMerge(
            f"The checks cannot be merged in {tempfile.gettempdir()}: {reason_of(error)}; "
            "set TMPDIR to a folder with more space"
        ) from error


class _Merger:
    """Merge of one check after the other."""

    def __init__(self, force: bool) -> None:
        self._force = force
        self._first: tuple[str, Matrix] | None = None
        self._names = _Names()
        self._models: dict[str, str] = {}
        self._rows: dict[str, tuple[str, MatrixRow]] = {}
        self._columns: dict[str, tuple[str, MatrixColumn]] = {}
        self._spool = RepeatSpool()
        self._cells: dict[tuple[str, str], _MergedCell] = {}
        self._started_at: list[str] = []
        self._seconds = 0.0
        self._repeats = 0
        self._interrupted = False
        self._quick: set[bool] = set()
        self._profiles: set[str | None] = set()
        self._sim_seeds: set[int | None] = set()
        self._programs: set[str] = set()
        self._timelines: list[TimelineSummary] = []
        # Most hosts have the same reasons.
        self._reasons: dict[str, str] = {}

    def add(self, file: str, matrix: Matrix) -> None:
        """Add the check of ``file``. Raises CannotMerge and OSError."""
        if self._first is None:
            self._first = file, matrix.changed(cells={})
        self._check(file, matrix)
        self._add_lines(file, matrix)
        new = _name(self._names, file, matrix)
        hosts = list(matrix.hosts)
        sums = None if hosts else _totals([cell.repeats for cell in matrix.cells.values()])
        for key, cell in matrix.cells.items():
            merged = self._cells.get(key)
            if merged is None:
                merged = self._cells[key] = _MergedCell(self._spool)
            whole = None if sums is None else next(sums)
            parts = (
                _host_parts(cell, hosts) if whole is None else {"": _HostPart(cell.status, cell.reason or "", whole)}
            )
            self._add_cell(merged, cell, parts, new)
        self._started_at = (
            [min(*self._started_at, matrix.started_at, key=datetime.datetime.fromisoformat)]
            if (self._started_at)
            else [matrix.started_at]
        )
        self._seconds = max(self._seconds, matrix.seconds)
        self._repeats = max(self._repeats, matrix.repeats)
        self._interrupted |= matrix.interrupted
        self._quick.add(matrix.quick)
        self._profiles.add(matrix.profile)
        self._sim_seeds.add(matrix.sim_seed)
        self._programs.update(matrix.program.split(", "))
        self._timelines += [] if matrix.timeline_summary is None else [matrix.timeline_summary]

    def result(self, progress: Callable[[float], None]) -> Merged:
        """The merged matrix. Raises CannotMerge without a check, and OSError."""
        if self._first is None:
            raise CannotMerge("No checks to merge: name at least one file")
        self._check_models()
        first, hosts = self._first[1], self._names.hosts
        matrix = Matrix(
            backend=first.backend,
            fingerprint=_common(hosts),
            started_at=self._started_at[0],
            seconds=self._seconds,
            rows=tuple(row for _, row in self._rows.values()),
            columns=tuple(column for _, column in self._columns.values()),
            cells={key: cell.cell(*key) for key, cell in self._cells.items()},
            seed=first.seed,
            repeats=self._repeats,
            pace_ns=first.pace_ns,
            quick=any(self._quick),
            interrupted=self._interrupted,
            timeline=first.timeline,
            timeline_summary=TimelineSummary.joined(self._timelines),
            profile=first.profile if len(self._profiles) == 1 else None,
            sim_seed=first.sim_seed if len(self._sim_seeds) == 1 else None,
            program=", ".join(sorted(self._programs)),
            hosts=hosts,
        )
        notes = [*self._names.notes, *_twice(matrix)]
        if len(self._quick) > 1:
            notes.append("Some of the checks are quick ones: they have fewer calls and so less weight.")
        return Merged(matrix, outliers.find(matrix, progress), tuple(notes))

    def _check(self, name: str, one: Matrix) -> None:
        """Raise CannotMerge if ``one`` cannot be merged with the checks before it."""
        assert self._first is not None
        first_name, first = self._first
        if one.timeline != first.timeline:
            with_timeline, without = (name, first_name) if one.timeline else (first_name, name)
            raise CannotMerge(f"{with_timeline} was made with the timeline and {without} without it: merge them apart")
        if one.backend != first.backend:
            raise CannotMerge(f"{first_name} is of a {_gpu(first)} and {name} of a {_gpu(one)}: merge them apart")
        if one.pace_ns != first.pace_ns:
            raise CannotMerge(
                f"{first_name} calls every {first.pace_ns / 1000:g} µs and {name} every {one.pace_ns / 1000:g} µs, "
                "which gives other figures: merge them apart"
            )
        # A merged check may have several models; what else differs comes first.
        self._check_models()
        for model in _models(one):
            self._models.setdefault(model, name)
        if one.hosts:
            return
        self._check_models()

    def _check_models(self) -> None:
        if len(self._models) > 1 and not self._force:
            (here, there), (this, that) = list(self._models)[:2], list(self._models.values())[:2]
            raise CannotMerge(f"{this} is of {here} and {that} of {there}: merge them apart, or with --force")

    def _add_lines(self, file: str, matrix: Matrix) -> None:
        for row in matrix.rows:
            before, same = self._rows.setdefault(row.name, (file, row))
            if (same.entry, same.context, same.stream) != (row.entry, row.context, row.stream):
                raise CannotMerge(f"{before} and {file} call different victims “{row.name}”: merge them apart")
        for column in matrix.columns:
            before, same_column = self._columns.setdefault(column.name, (file, column))
            if same_column.aggressors != column.aggressors:
                raise CannotMerge(f"{before} and {file} call different aggressors “{column.name}”: merge them apart")

    def _add_cell(
        self, merged: _MergedCell, cell: Cell, parts: Mapping[str, _HostPart], new: Mapping[str, str]
    ) -> None:
        """Add the part of each host, by its old name, of ``cell``; ``new`` has the new names."""
        worst = next((one.host for one in cell.verdicts), "") or next(iter(parts), "")
        for old, part in parts.items():
            host = new[old]
            if old == worst:
                verdicts = tuple([verdict.changed(host="") for verdict in cell.verdicts])
                part = replace(part, verdicts=verdicts, in_flight_ns=cell.in_flight_ns, in_flight_op=cell.in_flight_op)
            number = None
            if part.repeat is not None:
                repeat = replace(part.repeat, host=host)
                number = self._spool.add(repeat)
                merged.calls += repeat.values
                if merged.calls > MOST:
                    raise CannotMerge(
                        f"The cell {cell.row} × {cell.column} would hold more than 2**53 calls: merge fewer checks"
                    )
            if part.status is not Status.OK:
                reason = self._reasons.setdefault(part.reason, part.reason)
                merged.hosts.append(HostStatus(host, part.status, reason))
            merged.status = min(merged.status or part.status, part.status, key=_ORDER.index)
            merged.every.add(host, part, number)
            if part.status in _MEASURED:
                merged.measured.add(host, part, number)


def _gpu(matrix: Matrix) -> str:
    return "simulated GPU" if matrix.simulated else "real GPU" if matrix.backend == "cuda" else "machine without one"


def _models(matrix: Matrix) -> list[str]:
    """The known GPU models of a matrix."""
    if matrix.simulated:
        return [matrix.profile] if matrix.profile else []
    found = [of.get("gpu") for of in (matrix.hosts.values() if matrix.hosts else (matrix.fingerprint,))]
    return [model for model in found if isinstance(model, str)]


def _name(names: _Names, file: str, matrix: Matrix) -> dict[str, str]:
    """The new names of a matrix's hosts by their old ones; the host of a matrix of one machine has the old name ""."""
    if matrix.hosts:
        return {name: names.add(name, of, file) for name, of in matrix.hosts.items()}
    hostname = matrix.fingerprint.get("hostname")
    if file and "/" not in file and not file.endswith((".json", ".json.gz")):
        name = file
    elif isinstance(hostname, str) and hostname:
        name = hostname
    else:
        name = PurePath(file.removesuffix(".gz")).stem
    return {"": names.add(name, matrix.fingerprint, file)}


def _common(hosts: Mapping[str, Mapping[str, object]]) -> dict[str, object]:
    """The common fingerprint of all hosts: a value that differs is None, with the reason in ``unknown``."""
    if len(hosts) == 1:
        return dict(*hosts.values())
    keys = {key: None for of in hosts.values() for key in of if key != "unknown"}
    found: dict[str, object] = {}
    unknown: dict[str, str] = {}
    for key in keys:
        values = [of.get(key) for of in hosts.values()]
        found[key] = values[0] if all(value == values[0] for value in values) else None
        if found[key] is None:
            unknown[key] = "not known on any host" if values[0] is None else f"not the same on all {len(hosts)} hosts"
    return {**found, "unknown": unknown}


def _host_parts(cell: Cell, hosts: Sequence[str]) -> dict[str, _HostPart]:
    """Status, reason and repeat of each of ``hosts`` that ``cell`` has, by the host's old name."""
    known = {one.host: one for one in cell.hosts}
    repeats: dict[str, list[Repeat]] = {}
    for repeat in cell.repeats:
        repeats.setdefault(repeat.host, []).append(repeat)
    found = {}
    for host in hosts:
        mine = repeats.pop(host, [])
        if mine or host in known:
            status = known.get(host, HostStatus(host, Status.OK))
            total = next(_totals([mine])) if mine else None
            found[host] = _HostPart(status.status, status.reason, total)
    return found


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


def _weight(verdicts: Iterable[Verdict]) -> tuple[int, float]:
    return max((verdict.weight for verdict in verdicts), default=(-1, 0.0))


def _twice(matrix: Matrix) -> Iterator[str]:
    """Sentences on hosts with equal maxima in all cells, most likely one check under two names."""
    digests = {host: hashlib.blake2b() for host in matrix.hosts}
    empty = hashlib.blake2b().digest()
    for key, cell in matrix.cells.items():
        for repeat in cell.repeats:
            maxima = tuple(one.max_ns for one in repeat.window.channels.values())
            if any(maxima):
                digests[repeat.host].update(repr((key, maxima)).encode(errors="surrogatepass"))
    known: dict[bytes, str] = {}
    for host, digest in digests.items():
        found = digest.digest()
        same = host if found == empty else known.setdefault(found, host)
        if same != host:
            yield f"“{same}” and “{host}” have the same figures to the nanosecond: they may be the same check."
