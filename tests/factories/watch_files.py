"""Files of watched processes, made without a process: what the injected library would write."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from stallprobes.latency.histogram import Histogram
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.watch_file import CallFlag, SampledTime, SlotUse, WatchState

APIS = ("cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuStreamSynchronize")
# Parts of the file that are in use: offset and size.
PARTS = (
    (0, dtype_of(layout.FileHeader).itemsize),
    (layout.APIS_AT, len(APIS) * dtype_of(layout.Api).itemsize),
    (layout.RECORDS_AT, 8 * dtype_of(layout.WatchRecord).itemsize),
    (layout.NAMES_AT, 64),
    (layout.SLOTS_AT, dtype_of(layout.Slot).itemsize),
    (layout.HISTOGRAMS_AT, dtype_of(layout.CallHistogram).itemsize),
    (layout.HISTOGRAMS_AT + layout.HISTOGRAM_PITCH, dtype_of(layout.CallHistogram).itemsize),
    (layout.STACKS_AT, 64),
    (layout.MODULES_AT, 64),
    (layout.SAMPLES_AT, 2 * dtype_of(layout.TimeSample).itemsize),
    (layout.RANGES_AT, 128),
)
STACK_TEXT = b'Stack (most recent call first):\n  File "/home/me/train.py", line 42 in step\n'
LAUNCHES = (2000, 3000, 3000, 1_500_000)
COPIES = (900_000,)
SECOND = 1_000_000_000


def write_watch_file(path: Path, **header: Any) -> None:
    """A process with one thread and what is recorded of it, at ``path``.

    It has two histograms, a call in flight, a slow call, eight records, two samples and three ranges of one name.
    ``header`` replaces fields of the header.
    """
    with path.open("wb") as file:
        os.truncate(file.fileno(), layout.FILE_BYTES)
        for offset, data in _parts(int(path.name.split("-")[0]), header):
            file.seek(offset)
            file.write(data)


def _parts(pid: int, header: dict[str, Any]) -> list[tuple[int, bytes]]:
    names = b"\x07\0\0\0_Z3addv\0"
    return [
        (0, _header(pid, len(names), header).tobytes()),
        (layout.APIS_AT, _apis().tobytes()),
        (layout.RECORDS_AT, _records().tobytes()),
        (layout.NAMES_AT, names),
        (layout.SLOTS_AT, _slot(pid).tobytes()),
        (layout.HISTOGRAMS_AT, _histogram(0, LAUNCHES).tobytes()),
        (layout.HISTOGRAMS_AT + layout.HISTOGRAM_PITCH, _histogram(1, COPIES).tobytes()),
        (layout.STACKS_AT, _stack().tobytes()),
        (layout.MODULES_AT, _module().tobytes()),
        (layout.SAMPLES_AT, _samples(pid).tobytes()),
        (layout.RANGES_AT, _range(pid).tobytes()),
    ]


def _header(pid: int, name_bytes: int, changes: dict[str, Any]) -> Any:
    row = np.zeros(1, dtype_of(layout.FileHeader))[0]
    fields = {
        "magic": layout.FILE_MAGIC, "format": layout.FILE_FORMAT, "record_places": layout.RECORDS,
        "call_blocks": layout.CALL_BLOCKS, "pid": pid, "parent_pid": 1, "start_ticks": 100,
        "state": WatchState.RECORDING, "cupti_version": 130_100, "kinds": 1 << 10 | 1 << 1, "slow_ns": 1_000_000,
        "started_ns": SECOND, "started_realtime_ns": 1_700_000_000 * SECOND, "clock_sequence": 2,
        "clock_ns": 2 * SECOND, "clock_realtime_ns": 1_700_000_001 * SECOND, "records": 8, "apis": len(APIS),
        "slots": 1, "histograms": 2, "name_bytes": name_bytes, "program": b"train", "command": b"python train.py",
        "cupti_path": b"/lib/libcupti.so.13", "modules": 1, "python": b"3.12.4",
        "samples": 2, "ranges": 1,
    }  # fmt: skip
    for name, value in (fields | changes).items():
        row[name] = value
    return row


def _apis() -> Any:
    rows = np.zeros(len(APIS), dtype_of(layout.Api))
    rows["name"] = APIS
    rows["number"] = range(1, len(APIS) + 1)
    return rows


def _records() -> Any:
    rows = np.zeros(8, dtype_of(layout.WatchRecord))
    rows["sequence"] = 2 * np.arange(8) + 2
    rows["kind"] = 10
    rows["start"] = SECOND + 1000 * np.arange(8)
    rows["end"] = rows["start"] + 500
    rows["name"] = 1
    rows["correlation"] = np.arange(8)
    return rows


def _slot(pid: int) -> Any:
    row = np.zeros(1, dtype_of(layout.Slot))[0]
    row["use"], row["thread"], row["started_ns"], row["name"] = SlotUse.LIVE, pid, SECOND, b"MainThread"
    row["sequence"], row["depth"], row["slow_calls"], row["owners"] = 8, 1, 1, 1
    call = row["calls"][0]
    call["start_ns"], call["stream"], call["api"], call["flags"] = SECOND + 5000, 7, 2, int(CallFlag.STREAM)
    slow = row["slow"][0]
    slow["sequence"], slow["end_ns"], slow["thread"], slow["stack"] = 2, SECOND + 1_500_000, pid, 1
    slow["call"]["start_ns"] = SECOND
    row["histograms"][:2] = 1, 2
    row["stack"] = 1
    return row


def _stack() -> Any:
    row = np.zeros(1, dtype_of(layout.Stack))[0]
    row["ready"], row["frames"], row["text_bytes"], row["text"] = 1, 2, len(STACK_TEXT), STACK_TEXT
    row["addresses"][:2] = 0x401234, 0x7F0000001234
    return row


def _samples(pid: int) -> Any:
    rows = np.zeros(2, dtype_of(layout.TimeSample))
    rows["sequence"], rows["thread"], rows["stack"], rows["ns"] = [2, 4], pid, 1, layout.SAMPLE_NS
    rows["since_ns"], rows["at_ns"] = [SECOND, SECOND + 1_500_000], [SECOND + 1_500_000, SECOND + 3_000_000]
    rows["api"], rows["sampled"] = [0, 1], [int(SampledTime.INSIDE), int(SampledTime.BETWEEN)]
    return rows


def _range(pid: int) -> Any:
    row = np.zeros(1, dtype_of(layout.NamedRange))[0]
    row["use"], row["thread"], row["begun"], row["inside_ns"], row["name"] = SlotUse.LIVE, pid, 3, 2_000_000, b"step #"
    row["begins"][:3] = [SECOND, SECOND + 1_000_000, SECOND + 2_000_000]
    return row


def _module() -> Any:
    row = np.zeros(1, dtype_of(layout.Module))[0]
    row["start"], row["end"], row["base"], row["path"] = 0x401000, 0x402000, 0x400000, b"/opt/solver/solver"
    row["build_id_bytes"], row["build_id"] = 2, [0xAB, 0xCD] + [0] * 18
    return row


def _histogram(api: int, values: tuple[int, ...]) -> Any:
    row = np.zeros(1, dtype_of(layout.CallHistogram))[0]
    found = Histogram.of(values)
    row["api"], row["slot"], row["max_ns"], row["total_ns"] = api, 0, found.max_ns, sum(values)
    row["counts"] = found.counts
    return row
