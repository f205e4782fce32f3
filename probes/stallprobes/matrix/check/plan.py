"""The plan of a check: its victims and its sets of aggressors, from the catalogue, from names or from patterns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stallprobes.catalog import CheckPlacement, Entry, Placement, entries, in_threads
from stallprobes.catalog.entry import OWN
from stallprobes.catalog.host import HOST
from stallprobes.errors import UnknownName
from stallprobes.matrix.matrix import QUIET, MatrixColumn, MatrixRow
from stallprobes.model import MIB, Context, Probe, Role
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import (
    ALL,
    by_name,
    in_several_threads,
    parse_probe,
    parse_probes,
    probe_name,
    unknown_name_message,
)

# Name of the stream that the aggressors of a context share in a check, unless an aggressor's name states another
# stream. A check can place a victim on the same stream. Exception: an aggressor in several threads has a stream for
# each thread.
AGGRESSORS_STREAM = "shared"

# Largest size (bytes) of the copies and allocations of a probe in a check. Reason: a copy of this size takes
# milliseconds, and a window has several copies. The limit also keeps all buffers below the session's memory limit.
_MAX_SIZE = 64 * MIB


@dataclass(frozen=True)
class AggressorSet:
    """A column of the matrix with its aggressors."""

    column: MatrixColumn
    probes: tuple[Probe, ...]


@dataclass(frozen=True)
class VictimProbe:
    """A row of the matrix with its victim."""

    row: MatrixRow
    probe: Probe


@dataclass(frozen=True)
class Plan:
    """All victims and all sets of aggressors of a check. ``quick``: those of the quick check."""

    victims: tuple[VictimProbe, ...]
    aggressor_sets: tuple[AggressorSet, ...]
    quick: bool = False

    @property
    def rows(self) -> tuple[MatrixRow, ...]:
        """The victims as rows, the host control last."""
        return (*(victim.row for victim in self.victims), _row(entries()[HOST].probe(), HOST))

    @property
    def columns(self) -> tuple[MatrixColumn, ...]:
        """The sets of aggressors as columns, after the column ``quiet``."""
        return (MatrixColumn(QUIET, "nothing beside it", ()), *(column.column for column in self.aggressor_sets))

    @property
    def gpus(self) -> int:
        """Number of GPUs that the plan needs."""
        probes = [*(row.probe for row in self.victims), *(p for column in self.aggressor_sets for p in column.probes)]
        return 1 + any(getattr(r, "device", 0) == 1 for probe in probes for r in probe.program.resources)


def plan(
    victims: Sequence[str] = (),
    aggressors: Sequence[str] = (),
    pattern_names: Sequence[str] = (),
    *,
    quick: bool = False,
) -> Plan:
    """The plan for ``victims`` with ``aggressors`` (``NAME@CONTEXT/STREAM``), and for the patterns ``pattern_names``.

    Without names it has the entries of the default check; "all" names each of them. An aggressor without a stream is
    placed on the stream that victims reach as ``/shared``, or with several threads on streams of its own.

    Raises UnknownName, also for a victim among the aggressors, for an aggressor among the victims, and for a pattern
    whose victims make their calls after idle times.
    """
    rows: dict[str, VictimProbe] = {}
    columns: dict[str, AggressorSet] = {}

    def add_victims(names: Iterable[str]) -> None:
        for name in names:
            _add_victim(rows, _probes_of_role(name, Role.VICTIM)[0])

    def add_aggressors(names: Iterable[str]) -> None:
        for name in names:
            _add_aggressor_set(columns, _probes_of_role(name, Role.AGGRESSOR))

    add_victims(_split_names(victims, Role.VICTIM))
    add_aggressors(_split_names(aggressors, Role.AGGRESSOR))
    if not victims and not pattern_names:
        add_victims(default_names(Role.VICTIM, quick=quick))
    if not aggressors and not pattern_names:
        add_aggressors(default_names(Role.AGGRESSOR, quick=quick))
    for pattern in pattern_names:
        _add_pattern(pattern, rows, columns)
    if not rows:
        add_victims(default_names(Role.VICTIM, quick=quick))
    if not columns:
        add_aggressors(default_names(Role.AGGRESSOR, quick=quick))
    return Plan(tuple(rows.values()), tuple(columns.values()), quick)


def default_names(role: Role, *, quick: bool = False) -> list[str]:
    """Names of the default check's probes of ``role``, in the order of its rows or columns."""

    def position(placement: CheckPlacement) -> int | None:
        return placement.quick_position if quick else placement.position

    ranked = [
        (where, placement.probe_name(entry.name))
        for entry in entries().values()
        if entry.role is role
        for placement in entry.check
        if (where := position(placement)) is not None
    ]
    return [name for _, name in sorted(ranked, key=lambda item: item[0])]


def enables_peer_access(probe: Probe) -> bool:
    """True if the probe enables peer access, which then holds for every probe of its engine."""
    return any(op.fn == "cuCtxEnablePeerAccess" for op in probe.program.setup)


def contexts_of(probes: Iterable[Probe]) -> list[Placement]:
    """The contexts of ``probes`` with their processes, each once."""
    return list(
        dict.fromkeys(
            Placement(resource, process=probe.program.process)
            for probe in probes
            for resource in probe.program.resources
            if isinstance(resource, Context)
        )
    )


def _split_names(names: Sequence[str], role: Role) -> list[str]:
    """The names in ``names``, separated by commas or not; the names of the default check replace "all"."""
    selected: list[str] = []
    for text in names:
        for name in text.split(","):
            if name.strip() == ALL:
                selected.extend(default_names(role))
            elif name.strip():
                selected.append(name.strip())
    return selected


def _probes_of_role(name: str, role: Role) -> list[Probe]:
    # Several threads on one stream would wait for each other, and no victim for all of them.
    alone = role is Role.AGGRESSOR and not in_several_threads(name)
    probes = [_size_limited(parsed) for parsed in parse_probes(name, stream=AGGRESSORS_STREAM if alone else OWN)]
    probe = probes[0]
    if probe.role is not role:
        there = [entry.name for entry in entries().values() if entry.role is role]
        if role is Role.VICTIM and probe.role is Role.HOST:
            raise UnknownName("every check measures the host control; leave it out of the victims")
        other = "an aggressor" if probe.role is Role.AGGRESSOR else "a victim"
        raise UnknownName(
            f'"{name}" is {other}, not {"a victim" if role is Role.VICTIM else "an aggressor"}; '
            f"there are: {', '.join(there)}"
        )
    return probes


def check_size(entry: Entry) -> int:
    """Size in bytes with which a check measures probes of ``entry``, 0 for probes without a size."""
    return min(entry.size, _MAX_SIZE)


def _size_limited(probe: Probe) -> Probe:
    entry = entries()[probe.entry]
    return probe if entry.size <= _MAX_SIZE else parse_probe(probe_name(probe), size=check_size(entry))


def _add_victim(rows: dict[str, VictimProbe], probe: Probe) -> None:
    name = probe_name(probe)
    rows.setdefault(name, VictimProbe(_row(probe, name), replace(probe, name=name)))


def _row(probe: Probe, name: str) -> MatrixRow:
    return MatrixRow(name, probe.title, probe.entry, probe.context, probe.stream)


def _add_aggressor_set(columns: dict[str, AggressorSet], probes: Sequence[Probe]) -> None:
    named = by_name(probes, stream=AGGRESSORS_STREAM)
    title = " and ".join(_title(each[0], len(each)) for each in named.values())
    own: list[Probe] = []
    for called, each in named.items():
        own += [replace(each[0], name=called)] if len(each) == 1 else in_threads(each[0], len(each), called)
    name = "+".join(named)
    columns.setdefault(name, AggressorSet(MatrixColumn(name, title, tuple(named)), tuple(own)))


def _title(probe: Probe, threads: int) -> str:
    """The entry's title, with context and stream unless they are the default, and the number of several threads."""
    parts = [entries()[probe.entry].title]
    if threads > 1:
        parts.append(f"{threads} threads")
    if probe.context not in ("primary", "none"):
        parts.append(probe.context)
    if probe.stream not in (AGGRESSORS_STREAM, "none"):
        parts.append(f"{probe.stream} stream")
    return " · ".join(parts)


def _add_pattern(name: str, rows: dict[str, VictimProbe], columns: dict[str, AggressorSet]) -> None:
    if name not in patterns():
        raise UnknownName(unknown_name_message("pattern", name, patterns()))
    if any(probe.idles for variant in patterns()[name].variants for probe in variant.probes):
        raise UnknownName(
            f"{name} measures calls after idle times, and a check has none between its calls; "
            f'use "stallscope run {name}"'
        )
    for variant in patterns()[name].variants:
        for probe in variant.victims:
            _add_victim(rows, probe)
        if variant.aggressors:
            _add_aggressor_set(columns, [_size_limited(probe) for probe in variant.aggressors])
