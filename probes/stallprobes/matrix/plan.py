"""What a check measures: which victims beside which aggressors, from names or from patterns."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from stallprobes.catalog import entries
from stallprobes.errors import UnknownName
from stallprobes.matrix.matrix import QUIET, MatrixColumn, MatrixRow
from stallprobes.model import MIB, Context, Probe, Role
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import ALL, OWN, name_of, named, unknown

# Aggressors of the primary context share one stream, so that a victim can be put on the aggressor's.
AGGRESSORS_STREAM = "shared"
HOST = "host"

# Large enough that a copy takes milliseconds, small enough that all of them together stay below the memory a session
# may take, and that several turns fit in a window.
_LARGEST = 64 * MIB
_VICTIMS = (
    "launch",
    "d2d",
    "d2h-pinned",
    "h2d-pinned",
    "d2h-pageable",
    "event",
    "graph-launch",
    "launch/shared",
    "launch/null",
    "d2d@secondary",
    "d2h-pinned@secondary",
    "launch@green",
    "peer-copy",
)
_AGGRESSORS = (
    "spin",
    "spin-full",
    "spin@secondary",
    "d2h-pageable-warm",
    "d2h-pageable-warm/null",
    "d2h-pageable-fresh",
    "d2h-pinned-large",
    "h2d-pinned-large",
    "h2d-pageable-large",
    "alloc-free",
    "free-beside-kernel",
    "host-alloc-free",
    "host-register",
    "alloc-async",
    "module-load",
    "module-first-launch",
    "graph-instantiate",
    "launch-queue-full",
    "stream-churn",
    "context-churn",
    "context-sync",
    "scalar-readback",
    "gated-copy/null",
    "peer-copy-behind-kernel",
    "nvml-poll",
)
_QUICK_VICTIMS = ("launch", "launch/shared", "d2d", "d2h-pinned", "d2d@secondary")
_QUICK_AGGRESSORS = (
    "spin",
    "d2h-pageable-warm",
    "d2h-pageable-fresh",
    "d2h-pinned-large",
    "alloc-free",
    "free-beside-kernel",
    "host-alloc-free",
    "host-register",
    "alloc-async",
    "module-load",
    "stream-churn",
)


@dataclass(frozen=True)
class AggressorSet:
    """A column with its aggressors."""

    column: MatrixColumn
    probes: tuple[Probe, ...]


@dataclass(frozen=True)
class VictimProbe:
    """A row with its probe."""

    row: MatrixRow
    probe: Probe


@dataclass(frozen=True)
class Plan:
    """Every victim beside every disturbance; ``quick`` says that it is the short choice."""

    victims: tuple[VictimProbe, ...]
    aggressor_sets: tuple[AggressorSet, ...]
    quick: bool = False

    @property
    def rows(self) -> tuple[MatrixRow, ...]:
        """The victims as rows, the host control last."""
        return (*(victim.row for victim in self.victims), _row(entries()[HOST].probe(), HOST))

    @property
    def columns(self) -> tuple[MatrixColumn, ...]:
        """The disturbances as columns, ``quiet`` first."""
        return (MatrixColumn(QUIET, "nothing beside it", ()), *(one.column for one in self.aggressor_sets))

    @property
    def gpus(self) -> int:
        """Number of GPUs that the plan needs."""
        probes = [*(one.probe for one in self.victims), *(p for one in self.aggressor_sets for p in one.probes)]
        return 1 + any(getattr(r, "device", 0) == 1 for probe in probes for r in probe.program.resources())


def plan(
    victims: Sequence[str] = (),
    aggressors: Sequence[str] = (),
    chosen: Sequence[str] = (),
    *,
    quick: bool = False,
) -> Plan:
    """The plan for ``victims`` beside ``aggressors``, each by ``NAME@CONTEXT/STREAM``, and for the patterns ``chosen``.

    "all" stands for every victim or aggressor of the usual check, which is also what is taken where nothing is named.
    An aggressor without a stream is on the one that victims reach as ``/shared``.

    Raises UnknownName, also for a victim among the aggressors and the other way round.
    """
    usual_victims, usual_aggressors = (_QUICK_VICTIMS, _QUICK_AGGRESSORS) if quick else (_VICTIMS, _AGGRESSORS)
    rows: dict[str, VictimProbe] = {}
    columns: dict[str, AggressorSet] = {}
    for name in _spelled(victims, () if chosen else usual_victims):
        _add_victim(rows, _of_role(name, Role.VICTIM))
    for name in _spelled(aggressors, () if chosen else usual_aggressors):
        _add_aggressor_set(columns, (_of_role(name, Role.AGGRESSOR),))
    for pattern in chosen:
        _add_pattern(pattern, rows, columns)
    for name in () if rows else usual_victims:
        _add_victim(rows, _of_role(name, Role.VICTIM))
    for name in () if columns else usual_aggressors:
        _add_aggressor_set(columns, (_of_role(name, Role.AGGRESSOR),))
    return Plan(tuple(rows.values()), tuple(columns.values()), quick)


def enables_peer_access(probe: Probe) -> bool:
    """Whether the probe needs peer access on, which then holds for every probe of its engine."""
    return any(op.fn == "cuCtxEnablePeerAccess" for op in probe.program.setup)


def contexts_of(probes: Iterable[Probe]) -> list[Context]:
    """The contexts that probes name, each once."""
    return list(
        dict.fromkeys(
            resource for probe in probes for resource in probe.program.resources() if isinstance(resource, Context)
        )
    )


def _spelled(names: Sequence[str], usual: Sequence[str]) -> list[str]:
    found: list[str] = []
    for text in names or usual:
        for name in text.split(","):
            if name.strip() == ALL:
                found.extend(_VICTIMS if usual in (_VICTIMS, _QUICK_VICTIMS) else _AGGRESSORS)
            elif name.strip():
                found.append(name.strip())
    return found


def _of_role(name: str, role: Role) -> Probe:
    found = _limited(named(name, stream=OWN if role is Role.VICTIM else AGGRESSORS_STREAM))
    if found.role is not role:
        there = [entry.name for entry in entries().values() if entry.role is role]
        if role is Role.VICTIM and found.role is Role.HOST:
            raise UnknownName("the host control is measured in every check; leave it out of the victims")
        other = "an aggressor" if found.role is Role.AGGRESSOR else "a victim"
        raise UnknownName(
            f'"{name}" is {other}, not {"a victim" if role is Role.VICTIM else "an aggressor"}; '
            f"there are: {', '.join(there)}"
        )
    return found


def _limited(probe: Probe) -> Probe:
    if entries()[probe.entry].size <= _LARGEST:
        return probe
    return named(name_of(probe), size=_LARGEST)


def _add_victim(rows: dict[str, VictimProbe], probe: Probe) -> None:
    name = name_of(probe)
    rows.setdefault(name, VictimProbe(_row(probe, name), replace(probe, name=f"victim {name}")))


def _row(probe: Probe, name: str) -> MatrixRow:
    return MatrixRow(name, probe.title, probe.entry, probe.context, probe.stream)


def _add_aggressor_set(columns: dict[str, AggressorSet], probes: Sequence[Probe]) -> None:
    names = tuple(name_of(probe, stream=AGGRESSORS_STREAM) for probe in probes)
    name = "+".join(names)
    title = " and ".join(_title(probe) for probe in probes)
    own = tuple(replace(probe, name=f"aggressor {name}") for name, probe in zip(names, probes, strict=True))
    columns.setdefault(name, AggressorSet(MatrixColumn(name, title, names), own))


def _title(probe: Probe) -> str:
    """The entry's title, with the place where that is not the usual one."""
    words = [entries()[probe.entry].title]
    if probe.context not in ("primary", "none"):
        words.append(probe.context)
    if probe.stream not in (AGGRESSORS_STREAM, "none"):
        words.append(f"{probe.stream} stream")
    return " · ".join(words)


def _add_pattern(name: str, rows: dict[str, VictimProbe], columns: dict[str, AggressorSet]) -> None:
    if name not in patterns():
        raise UnknownName(unknown("pattern", name, patterns()))
    for variant in patterns()[name].variants:
        for probe in variant.probes:
            if probe.role is Role.VICTIM:
                _add_victim(rows, probe)
        aggressors = [probe for probe in variant.probes if probe.role is Role.AGGRESSOR]
        if aggressors:
            _add_aggressor_set(columns, [_limited(probe) for probe in aggressors])
