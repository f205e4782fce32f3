"""Programs that are watched as a user would: the library is built, the program started, its files read."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from factories.watched_folders import ActivityRecord, activity_records, read_folder
from stallprobes.native.layouts.cupti import GPU_WORK, RecordKind
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import DRIVER_CALL
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.environment import WatchOptions, variables
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.map_reader import CallPosition, MapFile, watch_files
from stallprobes.watch.reading.process import CallBatch, RecordBatch, WatchedProcess
from stallprobes.watch.reading.stack_reader import StackReader

PROGRAMS = Path(__file__).parents[1] / "programs"


@dataclass(frozen=True)
class Watched:
    """A program that has ended well: its one process and its records, as they were read and one by one.

    ``stacks`` are the call stacks by number, ``calls`` those of the log, which older files have not.
    """

    process: WatchedProcess
    batch: RecordBatch
    records: tuple[ActivityRecord, ...]
    stacks: Mapping[int, CallStack]
    calls: CallBatch


def watch_python(
    folder: Path, program: str, *arguments: str, library: Path, options: WatchOptions, cupti: Path | None
) -> Watched:
    """Run a Python program of ``PROGRAMS`` to its end; its process writes to ``folder``."""
    command = (sys.executable, str(PROGRAMS / program), *arguments)
    return watch(folder, *command, library=library, options=options, cupti=cupti)


def watch(folder: Path, *command: str, library: Path, options: WatchOptions, cupti: Path | None) -> Watched:
    """Run a program, which prints nothing, to its end; its process writes to ``folder``."""
    folder.mkdir(mode=0o700)
    present: Mapping[str, str] = os.environ
    done = subprocess.run(
        command,
        env={**present, **variables(library, folder, options, present, cupti)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    contents = read_folder(folder)
    assert contents.problems == ()
    return read_watched(folder)


def read_watched(folder: Path) -> Watched:
    """What one process that has ended wrote to ``folder``."""
    (path,) = watch_files(folder)
    stacks = StackReader()
    with MapFile(path) as file:
        process, batch = file.read(), file.records()
        stacks.read(file, process)
        calls = file.calls(CallPosition(), process)
    assert batch.missed == 0
    return Watched(process, batch, tuple(activity_records(batch)), stacks.stacks, calls)


def findings_of(watched: Watched) -> ProcessFindings:
    """The findings about a program that has ended."""
    analysis, process = ProcessAnalysis(), watched.process
    now_ns = process.ended_ns or process.clocks.monotonic_ns
    calls = watched.calls if len(watched.calls) else _submissions(watched)
    analysis.feed(process, watched.batch, now_ns, stacks=watched.stacks, calls=calls)
    return analysis.findings()


def _submissions(watched: Watched) -> CallBatch:
    """The calls that submitted the work of an older file, which has no log of calls: the record of each wait says which
    stream a handle is."""
    slow = {call.correlation: call for thread in watched.process.threads for call in thread.slow_calls}
    rows = watched.batch.rows
    handles = {
        (int(row["context"]), int(row["stream"])): call.stream
        for row in rows[rows["kind"] == RecordKind.SYNCHRONIZATION]
        if (call := slow.get(int(row["correlation"]))) is not None and call.stream is not None
    }
    work = rows[np.isin(rows["kind"], [int(kind) for kind in GPU_WORK])]
    of_work = [handles.get(key) for key in zip(work["context"].tolist(), work["stream"].tolist(), strict=True)]
    work = work[[handle is not None for handle in of_work]]
    calls = np.zeros(len(work), DRIVER_CALL)
    calls["stream"] = [handle for handle in of_work if handle is not None]
    calls["context"], calls["correlation"], calls["flags"] = work["context"], work["correlation"], int(CallFlag.STREAM)
    calls["began_ns"], calls["returned_ns"] = work["start"] - np.uint64(2), work["start"] - np.uint64(1)
    return CallBatch(calls, {0: "cuLaunchKernel"}, 0)


def launches_by_record(folder: Path) -> tuple[int, int]:
    """How many launches of one process in ``folder`` lie within a window with records: those that have theirs, and
    those that have none."""
    (path,) = watch_files(folder)
    with MapFile(path) as file:
        process = file.read()
        calls, records = file.calls(CallPosition(), process), file.records()
    windows, rows = process.windows, calls.rows
    launches = [number for number, name in calls.functions.items() if name.startswith("cuLaunchKernel")]
    began = rows["began_ns"].astype(np.int64)
    at = np.maximum(np.searchsorted(windows.begins, began, "right") - 1, 0)
    kernels = records.rows["correlation"][records.rows["kind"] == RecordKind.KERNEL]
    chosen = (
        np.isin(rows["function"], launches)
        & windows.on[at]
        & (rows["returned_ns"].astype(np.int64) <= windows.ends[at])
        # Those of older ones were overwritten.
        & (rows["correlation"] >= kernels.min())
    )
    found = np.isin(rows["correlation"][chosen], kernels)
    return int(found.sum()), int((~found).sum())
