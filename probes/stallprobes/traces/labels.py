"""Labels: the words for GPU work, copies, memory and driver overhead in pictures and exports of traces."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from stallprobes.engine.timeline.records import CopyKind, OverheadKind, RecordKind
from stallprobes.engine.timeline.work import SUBMITTING, SYNCHRONIZING
from stallprobes.traces.trace import WORK_COPY, WORK_KIND, WORK_MEMORY, WORK_PROBE, Int64s, Trace, TracedProbe

_KINDS: Mapping[int, str] = {
    RecordKind.KERNEL: "kernel",
    RecordKind.MEMSET: "memset",
    RecordKind.COPY: "copy",
    RecordKind.PEER_COPY: "peer copy",
}
_COPIES: Mapping[int, str] = {
    CopyKind.HOST_TO_DEVICE: "H2D",
    CopyKind.DEVICE_TO_HOST: "D2H",
    CopyKind.DEVICE_TO_DEVICE: "D2D",
    CopyKind.HOST_TO_HOST: "H2H",
    CopyKind.PEER: "P2P",
}
# As in CUpti_ActivityMemoryKind.
_MEMORY: Mapping[int, str] = {
    1: "pageable",
    2: "pinned",
    3: "device",
    4: "array",
    5: "managed",
    6: "static device",
    7: "static managed",
}


def work_kind_label(work: Int64s) -> str:
    """The kind of the work in row ``work``: ``kernel``, ``D2D copy``."""
    kind = int(work[WORK_KIND])
    if kind == RecordKind.COPY:
        return f"{copy_label(work)} copy" if copy_label(work) else "copy"
    return _KINDS.get(kind, "work")


def copy_label(work: Int64s) -> str:
    """The direction of the copy in row ``work``; "" for an unknown one and for other work."""
    if work[WORK_KIND] not in (RecordKind.COPY, RecordKind.PEER_COPY):
        return ""
    return _COPIES.get(int(work[WORK_COPY]), "")


def memory_labels(work: Int64s) -> tuple[str, str]:
    """The kinds of source and target memory of the copy in row ``work``; "" for unknown ones."""
    memory = int(work[WORK_MEMORY])
    return _MEMORY.get(memory & 255, ""), _MEMORY.get(memory >> 8, "")


def overhead_label(reason: int) -> str:
    """What the driver spent the time of an overhead on."""
    try:
        return OverheadKind(reason).name.lower().replace("_", " ")
    except ValueError:
        return f"overhead {reason}"


def waits(probe: TracedProbe) -> tuple[bool, ...]:
    """For each operation of ``probe`` whether its calls wait for GPU work that the probe submitted."""
    functions = [name.partition(" ")[0] for name in probe.ops]
    submits = not SUBMITTING.isdisjoint(functions)
    return tuple(submits and function in SYNCHRONIZING for function in functions)


def probe_label(probe: TracedProbe) -> str:
    """``d2d@secondary``; the name alone for a probe without a context."""
    return probe.name if probe.context in ("", "none") or "@" in probe.name else f"{probe.name}@{probe.context}"


def stream_users(trace: Trace, rows: Int64s) -> str:
    """The names of the probes whose work ``rows`` of ``trace.work`` are, separated with commas."""
    numbers = np.unique(trace.work[rows, WORK_PROBE]).tolist()
    return ", ".join(trace.probes[number].name for number in numbers if number >= 0)
