"""Merge of the checks of several hosts into one matrix, with the hosts that differ from the others.

A merged matrix has one repeat per host in each cell. Merging is associative: merging a merged matrix with further
checks gives the same result as merging all checks at once.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath

from stallprobes.errors import CannotMerge
from stallprobes.latency.sparse import MOST, merged_sparse, sparse, value_count
from stallprobes.latency.window import Window
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
from stallprobes.verdicts.verdict import Verdict

# A measured status counts before all others; of the rest the most informative one comes first.
_MEASURED = (Status.STARVED, Status.OK)
_ORDER = (*_MEASURED, Status.INVALID, Status.UNSUPPORTED, Status.MISSING)


@dataclass(frozen=True, eq=False)
class Merged:
    """The ``matrix`` of all hosts, its ``outliers``, and ``notes``: sentences on the input."""

    matrix: Matrix
    outliers: tuple[Outlier, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class _Part:
    """One host's part of a cell."""

    status: Status
    reason: str = ""
    repeat: Repeat | None = None
    verdicts: tuple[Verdict, ...] = ()
    in_flight_ns: int | None = None
    in_flight_op: str | None = None


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


def merge(matrices: Sequence[tuple[str, Matrix]], *, force: bool = False) -> Merged:
    """The merged matrix of many hosts, with the outliers among them.

    Each matrix comes with the name of its file or of its host: a name without a slash that does not end in ``.json``
    or ``.json.gz`` is a host's. Otherwise the host's name is the fingerprint's ``hostname``, else the file's stem. Two
    checks of one host are named "node-a" and "node-a (2)", with a note.

    The histograms of a host's repeats are summed. A cell is starved if it is on any host, else ok if any host measured
    it; its reason names the other hosts. Hosts on which it is invalid are left out. A cell's verdicts are those of the
    host with the worst one.

    Raises CannotMerge for simulated with real GPUs, different periods, one name for different probes, and, unless
    ``force``, different GPU models.
    """
    if not matrices:
        raise CannotMerge("No checks to merge: name at least one file")
    _check(matrices, force)
    names = _Names()
    renamed = [_name(names, file, matrix) for file, matrix in matrices]
    cells: dict[tuple[str, str], dict[str, _Part]] = {}
    for (_, matrix), new in zip(matrices, renamed, strict=True):
        for key, cell in matrix.cells.items():
            cells.setdefault(key, {}).update(_parts(cell, matrix, new))
    first = matrices[0][1]
    known = [matrix for _, matrix in matrices]
    matrix = Matrix(
        backend=first.backend,
        fingerprint=_common(names.hosts),
        started_at=min((one.started_at for one in known), key=datetime.datetime.fromisoformat),
        seconds=max(one.seconds for one in known),
        rows=_rows(matrices),
        columns=_columns(matrices),
        cells={key: _cell(key, parts, list(names.hosts)) for key, parts in cells.items()},
        seed=first.seed,
        repeats=max(one.repeats for one in known),
        pace_us=first.pace_us,
        quick=any(one.quick for one in known),
        interrupted=any(one.interrupted for one in known),
        timeline=first.timeline,
        profile=first.profile if len({one.profile for one in known}) == 1 else None,
        sim_seed=first.sim_seed if len({one.sim_seed for one in known}) == 1 else None,
        program=", ".join(sorted({part for one in known for part in one.program.split(", ")})),
        hosts=names.hosts,
    )
    notes = [*names.notes, *_twice(matrix)]
    if len({one.quick for one in known}) > 1:
        notes.append("Some of the checks are quick ones: they have fewer calls and so less weight.")
    return Merged(matrix, outliers.find(matrix), tuple(notes))


def _check(matrices: Sequence[tuple[str, Matrix]], force: bool) -> None:
    """Raise CannotMerge if the matrices cannot be merged."""
    first_name, first = matrices[0]
    models: dict[str, str] = {}
    for name, one in matrices:
        if one.timeline != first.timeline:
            with_timeline, without = (name, first_name) if one.timeline else (first_name, name)
            raise CannotMerge(f"{with_timeline} was made with the timeline on and {without} without: merge them apart")
        if one.backend != first.backend:
            raise CannotMerge(f"{first_name} is of a {_gpu(first)} and {name} of a {_gpu(one)}: merge them apart")
        if one.pace_us != first.pace_us:
            raise CannotMerge(
                f"{first_name} calls every {first.pace_us:g} µs and {name} every {one.pace_us:g} µs, which gives other "
                "figures: merge them apart"
            )
        for model in _models(one):
            models.setdefault(model, name)
    if len(models) > 1 and not force:
        (here, there), (this, that) = list(models)[:2], list(models.values())[:2]
        raise CannotMerge(f"{this} is of {here} and {that} of {there}: merge them apart, or with --force")
    totals: dict[tuple[str, str], int] = {}
    for _, one in matrices:
        for key, cell in one.cells.items():
            totals[key] = totals.get(key, 0) + sum(
                value_count(r.window.channels) + value_count(r.before) + value_count(r.after) for r in cell.repeats
            )
    for (row, column), total in totals.items():
        if total > MOST:
            raise CannotMerge(f"The cell {row} × {column} would hold more than 2**53 calls: merge fewer checks")


def _gpu(matrix: Matrix) -> str:
    return "simulated GPU" if matrix.simulated else "real GPU" if matrix.backend == "cuda" else "machine without one"


def _models(matrix: Matrix) -> list[str]:
    """The known GPU models of a matrix."""
    if matrix.simulated:
        return [matrix.profile] if matrix.profile else []
    found = [of.get("gpu") for of in (matrix.hosts.values() if matrix.hosts else (matrix.fingerprint,))]
    return [model for model in found if isinstance(model, str)]


def _rows(matrices: Sequence[tuple[str, Matrix]]) -> tuple[MatrixRow, ...]:
    found: dict[str, tuple[str, MatrixRow]] = {}
    for file, matrix in matrices:
        for row in matrix.rows:
            before, same = found.setdefault(row.name, (file, row))
            if (same.entry, same.context, same.stream) != (row.entry, row.context, row.stream):
                raise CannotMerge(f"{before} and {file} call different victims “{row.name}”: merge them apart")
    return tuple(row for _, row in found.values())


def _columns(matrices: Sequence[tuple[str, Matrix]]) -> tuple[MatrixColumn, ...]:
    found: dict[str, tuple[str, MatrixColumn]] = {}
    for file, matrix in matrices:
        for column in matrix.columns:
            before, same = found.setdefault(column.name, (file, column))
            if same.aggressors != column.aggressors:
                raise CannotMerge(f"{before} and {file} call different aggressors “{column.name}”: merge them apart")
    return tuple(column for _, column in found.values())


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


def _parts(cell: Cell, matrix: Matrix, new: Mapping[str, str]) -> Iterator[tuple[str, _Part]]:
    """Each host, by its new name, with its part of ``cell``."""
    parts = dict(_host_parts(cell, list(matrix.hosts)))
    worst = next((one.host for one in cell.verdicts), "") or next(iter(parts), "")
    for host, part in parts.items():
        if host == worst:
            verdicts = tuple(replace(verdict, host="") for verdict in cell.verdicts)
            part = replace(part, verdicts=verdicts, in_flight_ns=cell.in_flight_ns, in_flight_op=cell.in_flight_op)
        yield new[host], part if part.repeat is None else replace(part, repeat=replace(part.repeat, host=new[host]))


def _host_parts(cell: Cell, hosts: Sequence[str]) -> Iterator[tuple[str, _Part]]:
    """Each host by its old name, with its status, reason and repeat."""
    if not hosts:
        yield "", _Part(cell.status, cell.reason or "", _total(cell.repeats))
        return
    known = {one.host: one for one in cell.hosts}
    for host in hosts:
        mine = [repeat for repeat in cell.repeats if repeat.host == host]
        if mine or host in known:
            status = known.get(host, HostStatus(host, Status.OK))
            yield host, _Part(status.status, status.reason, repeat=_total(mine) if mine else None)


def _total(repeats: Sequence[Repeat]) -> Repeat:
    """The sum of all ``repeats`` of one host."""
    return Repeat(
        window=Window(
            channels=merged_sparse(repeat.window.channels for repeat in repeats),
            iterations=sum(repeat.window.iterations for repeat in repeats),
            duration_ns=sum(repeat.window.duration_ns for repeat in repeats),
        ),
        before=merged_sparse(repeat.before for repeat in repeats),
        after=merged_sparse(repeat.after for repeat in repeats),
    )


def _cell(key: tuple[str, str], parts: Mapping[str, _Part], hosts: Sequence[str]) -> Cell:
    ordered = {host: parts[host] for host in hosts if host in parts}
    status = min((part.status for part in ordered.values()), key=_ORDER.index, default=Status.MISSING)
    kept = {host: p for host, p in ordered.items() if status not in _MEASURED or p.status in _MEASURED}
    worst = max(kept, key=lambda host: _weight(kept[host].verdicts), default="")
    hosts_not_ok = tuple(
        HostStatus(host, part.status, part.reason) for host, part in ordered.items() if part.status is not Status.OK
    )
    stuck = max(kept.values(), key=lambda part: part.in_flight_ns or 0, default=_Part(status))
    return Cell(
        row=key[0],
        column=key[1],
        status=status,
        reason=host_reasons(hosts_not_ok),
        repeats=tuple(part.repeat for part in kept.values() if part.repeat is not None),
        verdicts=tuple(replace(verdict, host=worst) for verdict in (kept[worst].verdicts if kept else ())),
        in_flight_ns=stuck.in_flight_ns,
        in_flight_op=stuck.in_flight_op,
        hosts=hosts_not_ok,
    )


def _weight(verdicts: Iterable[Verdict]) -> tuple[int, float]:
    return max((verdict.weight for verdict in verdicts), default=(-1, 0.0))


def _twice(matrix: Matrix) -> Iterator[str]:
    """Sentences on hosts with equal maxima in all cells, most likely one check under two names."""
    known: dict[tuple[object, ...], str] = {}
    tops: dict[str, list[object]] = {host: [] for host in matrix.hosts}
    for key, cell in matrix.cells.items():
        for repeat in cell.repeats:
            channels = repeat.window.channels
            maxima = tuple(sparse(channels, channel).max_ns for channel in channels)
            tops[repeat.host] += [(key, maxima)] if any(maxima) else []
    for host, top in tops.items():
        same = known.setdefault(tuple(top), host) if top else host
        if same != host:
            yield f"“{same}” and “{host}” have the same figures to the nanosecond: they may be the same check."
