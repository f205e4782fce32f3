"""Labels: the words for GPU work, copies, memory and driver overhead in pictures and exports of traces."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from stallprobes.native.layouts.cupti import CopyKind, OverheadKind, RecordKind
from stallprobes.traces.trace import Int64s, OpenWork, Trace

# Words for kinds of records of work.
_KINDS: Mapping[int, str] = {
    RecordKind.KERNEL: "kernel",
    RecordKind.MEMSET: "memset",
    RecordKind.COPY: "copy",
    RecordKind.PEER_COPY: "peer copy",
}
# Words for the directions of copies.
_COPIES: Mapping[int, str] = {
    CopyKind.HOST_TO_DEVICE: "H2D",
    CopyKind.DEVICE_TO_HOST: "D2H",
    CopyKind.DEVICE_TO_DEVICE: "D2D",
    CopyKind.HOST_TO_HOST: "H2H",
    CopyKind.PEER: "P2P",
}
# Kinds of records of copies.
_COPY_KINDS = frozenset({int(RecordKind.COPY), int(RecordKind.PEER_COPY)})
# Words for kinds of memory, by the numbers of CUpti_ActivityMemoryKind.
_MEMORY: Mapping[int, str] = {
    1: "pageable",
    2: "pinned",
    3: "device",
    4: "array",
    5: "managed",
    6: "static device",
    7: "static managed",
}


def work_kind_label(kind: int, copy: int) -> str:
    """The kind of work by its columns ``kind`` and ``subkind``: ``kernel``, ``D2D copy``."""
    if kind == RecordKind.COPY:
        return f"{copy_label(kind, copy)} copy".lstrip()
    return _KINDS.get(kind, "work")


def copy_label(kind: int, copy: int) -> str:
    """The direction of a copy; "" for an unknown one and for other work."""
    return _COPIES.get(copy, "") if kind in _COPY_KINDS else ""


def memory_labels(memory: int) -> tuple[str, str]:
    """The kinds of source and target memory by the column ``memory``; "" for unknown ones."""
    return _MEMORY.get(memory & 255, ""), _MEMORY.get(memory >> 8, "")


def overhead_label(reason: int) -> str:
    """The kind of an overhead of the driver."""
    try:
        return OverheadKind(reason).name.lower().replace("_", " ")
    except ValueError:
        return f"overhead {reason}"


def stream_users(trace: Trace, rows: Int64s, open_work: Iterable[OpenWork]) -> str:
    """The users of a stream, separated with commas: the probes of its work, ``rows`` of ``trace.work``, else of its
    open work."""
    numbers = np.unique(trace.work["probe"][rows]).tolist()
    users = [trace.probes[number].name for number in numbers if number >= 0]
    return ", ".join(users or sorted({trace.probes[work.probe].name for work in open_work}))
