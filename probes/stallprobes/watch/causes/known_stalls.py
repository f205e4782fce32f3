"""Pairs of a call and a call of another thread that are known to stall: by a check of this machine, or a reference."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import CheckFileError
from stallprobes.machine import fingerprint
from stallprobes.matrix.matrix import Matrix
from stallprobes.matrix.reference import Reference, gpu_model
from stallprobes.matrix.reference_choice import reference_of_gpu
from stallprobes.model import Phase
from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.verdicts.evidence import STALLED
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.watch.reading.process import DriverCall
from stallprobes.watch.reading.words import Memory

# The NULL stream as a handle: 0, or CU_STREAM_LEGACY.
NULL_STREAMS = frozenset({0, 1})
# Kinds of verdicts of a check that show that an aggressor stalls calls of a victim.
_STALLS = (VerdictKind.STALLED, VerdictKind.STARVED)
# Row of the check's matrix for a copy, by the memory at its source and its target.
_COPY_ROWS: dict[tuple[Memory | None, Memory | None], str] = {
    (Memory.DEVICE, Memory.DEVICE): "d2d",
    (Memory.DEVICE, Memory.PINNED): "d2h-pinned",
    (Memory.PINNED, Memory.DEVICE): "h2d-pinned",
    (Memory.DEVICE, Memory.PAGEABLE): "d2h-pageable",
}


@dataclass(frozen=True)
class KnownStalls:
    """The cells (row, column) of a check or a reference in which the call itself stalls or starves.

    ``source`` names it for a reader.
    """

    cells: frozenset[tuple[str, str]]
    source: str

    @classmethod
    def of_matrix(cls, matrix: Matrix) -> KnownStalls:
        """The stalls of a saved check."""
        stalls = {
            place
            for place, cell in matrix.cells.items()
            for verdict in cell.verdicts
            if cell.status.measured and verdict.phase is Phase.CALL and verdict.kind in _STALLS
        }
        return cls(frozenset(stalls), f"the check of {matrix.started_at[:10]}")

    @classmethod
    def of_reference(cls, reference: Reference) -> KnownStalls:
        """The stalls on which all checks of ``reference`` agree."""
        stalls = set()
        for place, cell in reference.by_place.items():
            if cell.stalls and any(low >= STALLED for low, _ in cell.ratios.get(Phase.CALL, {}).values()):
                stalls.add(place)
        return cls(frozenset(stalls), f"the reference {reference.name}")

    def contains(self, victim: DriverCall, columns: Iterable[str], culprit: DriverCall) -> bool:
        """True if calls such as ``victim`` stall beside ``culprit``, a call of another thread in the same context.

        ``columns`` are those of a check in which aggressors make such calls.
        """
        columns = tuple(columns)
        return any((row, column) in self.cells for row in _rows(victim, culprit) for column in columns)


def _rows(victim: DriverCall, culprit: DriverCall) -> Iterator[str]:
    """The rows of a check that measure calls such as ``victim``."""
    if victim.function.startswith("cuGraphLaunch"):
        yield "graph-launch"
    elif victim.family is CallFamily.LAUNCH:
        if victim.stream in NULL_STREAMS:
            yield "launch/null"
        elif victim.stream is not None and victim.stream == culprit.stream:
            yield "launch/shared"
        else:
            yield "launch"
    elif victim.family is CallFamily.EVENT and victim.function.startswith("cuEventRecord"):
        yield "event"
    elif victim.family is CallFamily.COPY:
        if "Peer" in victim.function:
            yield "peer-copy"
        elif (victim.source, victim.target) in _COPY_ROWS:
            yield _COPY_ROWS[victim.source, victim.target]


def stalls_of_this_machine(check: Path | None = None) -> KnownStalls | None:
    """The pairs that stall by the saved ``check``, without one by the shipped reference of this machine's GPUs.

    None without either, or if the GPUs are of several models. Raises CheckFileError for a check that cannot be read, or
    that is of a simulated GPU, of several machines or of another GPU than this machine has.
    """
    models = set(fingerprint.kernel_module_gpus())
    if check is not None:
        return KnownStalls.of_matrix(_fitting(check, models))
    reference = reference_of_gpu(models.pop(), fingerprint.kernel_module_version()) if len(models) == 1 else None
    return None if reference is None else KnownStalls.of_reference(reference)


def _fitting(path: Path, models: set[str]) -> Matrix:
    # What reads a check takes tens of milliseconds to import, and most watches name none.
    from stallprobes.matrix import check_file

    matrix = check_file.load(path)
    if matrix.simulated:
        raise CheckFileError(f"{path} is of a simulated GPU: name a check of this machine")
    if matrix.hosts:
        raise CheckFileError(f"{path} is of several machines: name the check of this one")
    gpu = gpu_model(matrix)
    if models and gpu not in models:
        raise CheckFileError(f"{path} is of {gpu or 'no GPU'}, this machine has {', '.join(sorted(models))}")
    return matrix
