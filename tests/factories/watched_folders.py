"""Files of watched processes as the tests look at them: whole folders, and records one by one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from stallprobes.errors import WatchError
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import CopyKind, OverheadKind, RecordKind, SwitchOperation
from stallprobes.watch.reading.map_reader import IncompleteFile
from stallprobes.watch.reading.process import RecordBatch, WatchedProcess
from stallprobes.watch.reading.source import FolderSource, WatchSource
from stallprobes.watch.reading.words import MEMORY, Memory


@dataclass(frozen=True)
class FolderContents:
    """The processes of a folder by process id and image, and a sentence for each file that could not be read.

    ``incomplete`` files are still being made, or their processes ended while they made them.
    """

    processes: tuple[WatchedProcess, ...]
    problems: tuple[str, ...]
    incomplete: int


def read_folder(source: WatchSource | Path) -> FolderContents:
    """All processes of a source, or of a folder. Raises WatchError if that is not private."""
    source = FolderSource(source) if isinstance(source, Path) else source
    paths = source.files()
    processes, problems = [], []
    incomplete = 0
    for path in paths:
        try:
            with source.open(path) as file:
                processes.append(file.read())
        except IncompleteFile:
            incomplete += 1
        except WatchError as error:
            problems.append(str(error))
    processes.sort(key=lambda process: (process.pid, process.image))
    return FolderContents(tuple(processes), tuple(problems), incomplete)


def file_header(folder: Path, process: WatchedProcess) -> np.void:
    """The header of the file that ``process`` wrote to ``folder``."""
    path = folder / f"{process.pid}-{process.image}.watch"
    header: np.void = np.fromfile(path, dtype_of(layout.FileHeader), 1)[0]
    return header


@dataclass(frozen=True)
class ActivityRecord:
    """A record of the GPU's work or of the driver's.

    Times are on CLOCK_MONOTONIC, except ``start_ns`` of a context switch, which is the GPU's own clock. ``detail`` is
    the direction of a copy, the reason of an overhead, or the operation of a switch. ``thread`` is that of an overhead
    (0: unknown), ``peer`` the target device of a peer copy.
    """

    kind: RecordKind
    start_ns: int
    end_ns: int
    bytes: int
    source: Memory | None
    target: Memory | None
    detail: CopyKind | OverheadKind | SwitchOperation | int
    correlation: int
    device: int
    context: int
    stream: int
    name: str
    thread: int
    peer: int


_DETAILS: Mapping[int, type[CopyKind] | type[OverheadKind] | type[SwitchOperation]] = {
    RecordKind.COPY: CopyKind,
    RecordKind.PEER_COPY: CopyKind,
    RecordKind.OVERHEAD: OverheadKind,
    RecordKind.CONTEXT_SWITCH: SwitchOperation,
}


def activity_records(batch: RecordBatch) -> Iterator[ActivityRecord]:
    """The records of ``batch`` one by one."""
    for row in batch.rows:
        yield _record(row, batch.names)


def _record(row: Any, names: Mapping[int, str]) -> ActivityRecord:
    kind = int(row["kind"])
    detail: CopyKind | OverheadKind | SwitchOperation | int = int(row["subkind"])
    details = _DETAILS.get(kind)
    if details is not None:
        with suppress(ValueError):
            detail = details(detail)
    peer = kind == RecordKind.PEER_COPY
    return ActivityRecord(
        kind=RecordKind(kind),
        start_ns=int(row["start"]),
        end_ns=int(row["end"]),
        bytes=int(row["bytes"]),
        source=MEMORY.get(int(row["source"])),
        target=MEMORY.get(int(row["target"])),
        detail=detail,
        correlation=int(row["correlation"]),
        device=int(row["device"]),
        context=int(row["context"]),
        stream=int(row["stream"]),
        name=names.get(int(row["name"]), ""),
        thread=0 if peer else int(row["thread"]),
        peer=int(row["thread"]) if peer else 0,
    )
