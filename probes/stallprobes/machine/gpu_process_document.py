"""JSON document of the processes that use the GPUs, published schema ``stallscope.processes/1``.

Unknown values are null.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from stallprobes.files import codec
from stallprobes.files.codec import Document, Natural, Positive, Text, about
from stallprobes.machine.gpu_processes import ContextKind, GpuProcessList, ListedProcess, ProcessSource

_Percent = Annotated[int, Meta(ge=0, le=100)]


class GpuOfList(Document):
    """A GPU that was asked; ``index`` is NVML's, as in nvidia-smi."""

    index: Natural
    name: Text


class UseDocument(Document):
    """Use of one GPU by a process."""

    gpu: Annotated[Natural, about("NVML's index; without NVML the number of the device /dev/nvidiaN.")]
    memory_bytes: Natural | None
    utilization_percent: Annotated[
        _Percent | None,
        about(
            "NVML's share of its last sample, of at most a second, in which the SMs worked for the process; null where "
            "NVML has none: in MIG mode, before its first sample, and of processes known by their open devices."
        ),
    ]


class ProcessDocument(Document):
    """A process that uses GPUs."""

    pid: Positive
    user: Text | None
    command: Annotated[Text | None, about("The command with its arguments, cut after 4096 bytes.")]
    kinds: Annotated[list[ContextKind], about("Of its contexts, by NVML's lists; empty for open devices.")]
    gpus: list[UseDocument]
    own: Annotated[bool, about("It was started by the stallscope that made this list.")]
    refusal: Annotated[Text | None, about("Why it cannot be attached and what to do, a sentence; null if it can.")]


class ProcessesDocument(Document):
    """Output of `stallscope watch --json` without a program: the processes that use the GPUs of this machine. The
    process that made the list is left out."""

    schema: Literal["stallscope.processes/1"]
    at: Annotated[Text, Meta(description="Time of the list, UTC.", extra_json_schema={"format": "date-time"})]
    source: Annotated[
        ProcessSource, about("nvml: NVML lists them. devices: they have /dev/nvidia* open, and NVML lists none.")
    ]
    gpus: list[GpuOfList]
    problems: Annotated[list[Text], about("A sentence for whatever could not be read.")]
    processes: list[ProcessDocument]


def document(listing: GpuProcessList, problems: Sequence[str] = ()) -> dict[str, Any]:
    """The document of a list; ``problems`` are sentences about it."""
    at = datetime.datetime.fromtimestamp(listing.at_s, datetime.UTC)
    plain: dict[str, Any] = codec.plain(
        ProcessesDocument(
            schema="stallscope.processes/1",
            at=at.isoformat(timespec="milliseconds"),
            source=listing.source,
            gpus=[GpuOfList(index, name) for index, name in sorted(listing.gpus.items())],
            problems=list(problems),
            processes=[_process(process) for process in listing.processes],
        )
    )
    return plain


def _process(process: ListedProcess) -> ProcessDocument:
    return ProcessDocument(
        pid=process.pid,
        user=None if process.status is None else process.status.user,
        command=None if process.status is None else process.status.command,
        kinds=list(process.kinds),
        gpus=[UseDocument.of(use) for use in process.uses],
        own=process.own,
        refusal=process.refusal,
    )
