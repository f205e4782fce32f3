"""Files of watched ranks, as the injected library would write them, and what the analysis of their folder finds."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import numpy as np

from factories.rank_programs import BEGIN_NS, LAUNCH, SYNC, RankRun
from stallprobes.latency.histogram import Histogram
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import CallFlag, Flag, SampledTime, SlotUse, WatchState
from stallprobes.watch import folder_analysis
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.reading.source import FolderSource

FIRST_PID = 4000
START_TICKS = 100
SECOND = 1_000_000_000
# Calls from it on are kept one by one.
SLOW_NS = 4_000_000


def write_rank(
    folder: Path,
    run: RankRun,
    device: int = 0,
    windows: Sequence[tuple[float, float, bool]] = (),
    late: bool = False,
    ended_ns: int | None = None,
) -> None:
    """Write the file of a rank, which ends at ``ended_ns``, None while it runs. ``device`` is its GPU.

    ``windows`` are times (s since the begin) with records or without. ``late``: the recording began while it ran.
    """
    pid = FIRST_PID + run.number
    path = folder / f"{pid}-0.watch"
    functions = list(dict.fromkeys((LAUNCH, SYNC, *(call.function for call in run.calls))))
    lines = list(dict.fromkeys((*(one.line for one in run.calls), *(one.line for one in run.samples))))
    names, places = _names(run)
    durations = {
        name: [one.end_ns - one.begin_ns for one in run.calls if one.function == name] for name in functions
    }  # fmt: skip
    parts = [
        (0, _header(pid, run, len(functions), len(names), windows, late, ended_ns)),
        (layout.APIS_AT, _apis(functions)),
        (layout.NAMES_AT, names),
        (layout.RECORDS_AT, _records(run, places, device)),
        (layout.BLOCKS_AT, _blocks(pid, len(run.calls))),
        (layout.CALLS_AT, _calls(run, functions)),
        (layout.SLOTS_AT, _slot(pid, run, functions, lines)),
        (layout.SAMPLES_AT, _samples(pid, run, functions, lines)),
        (layout.WINDOWS_AT, _windows(windows, run)),
    ]
    parts += [
        (layout.HISTOGRAMS_AT + number * layout.HISTOGRAM_PITCH, _histogram(number, durations[name]))
        for number, name in enumerate(functions)
    ]
    parts += [(layout.STACKS_AT + number * layout.STACK_PITCH, _stack(line)) for number, line in enumerate(lines)]
    with path.open("wb") as file:
        os.truncate(file.fileno(), layout.FILE_BYTES)
        for offset, data in parts:
            file.seek(offset)
            file.write(data)


class WatchedRanks:
    """Ranks that are watched: their files in ``folder``, and a /proc with their environments, in which they run."""

    def __init__(
        self,
        folder: Path,
        runs: Sequence[RankRun],
        environments: Mapping[int, Mapping[str, str]] | None = None,
        devices: Sequence[int] = (),
        windows: Mapping[int, Sequence[tuple[float, float, bool]]] | None = None,
        late: Collection[int] = (),
    ) -> None:
        """``environments``, ``windows`` and whether the recording began ``late`` are by rank; by default torchrun's.

        ``devices`` are the numbers of their GPUs, by default 0, as with CUDA_VISIBLE_DEVICES for each.
        """
        self.folder, self._runs, self._proc = folder, runs, folder.with_name(f"{folder.name}-proc")
        self._devices = devices or [0] * (max(run.number for run in runs) + 1)
        self._windows, self._late = windows or {}, late
        size = len(runs)
        self._environments = environments or {run.number: torchrun(run.number, size) for run in runs}

    def found(self, polls: Sequence[float] = (), ended: bool = True) -> WatchFindings:
        """What the analysis finds that reads at times (s since the begin) and, if the ranks have ``ended``, at their
        end; else that is when it reads last, while they run."""
        end_ns = max(run.end_ns for run in self._runs)
        self._start()
        analysis = FolderAnalysis(FolderSource(self.folder, self._proc))
        for at_ns in [*(BEGIN_NS + round(at * 1e9) for at in polls), end_ns]:
            for run in self._runs:
                self._write(run.until(min(at_ns, run.end_ns)), None if at_ns < run.end_ns else run.end_ns)
            with mock.patch.object(folder_analysis, "time", SimpleNamespace(monotonic_ns=lambda at=at_ns: at)):
                analysis.poll()
        if ended:
            for stat in self._proc.glob("*/stat"):
                stat.unlink()
            analysis.poll()
        return analysis.findings()

    def _write(self, run: RankRun, ended_ns: int | None) -> None:
        number = run.number
        write_rank(
            self.folder, run, self._devices[number], self._windows.get(number, ()), number in self._late, ended_ns
        )

    def _start(self) -> None:
        for number, environment in self._environments.items():
            pid = FIRST_PID + number
            process = self._proc / str(pid)
            process.mkdir(parents=True)
            (process / "stat").write_text(f"{pid} (python3) S {' '.join(['0'] * 18)} {START_TICKS} 0")
            (process / "maps").write_text(f"7f0000000000-7f0000001000 rw-s 0 {self.folder}/{pid}-0.watch\n")
            text = "".join(f"{name}={value}\0" for name, value in environment.items())
            (process / "environ").write_text(text)


def torchrun(number: int, size: int) -> dict[str, str]:
    """The variables that torchrun gives to a rank."""
    return {"LOCAL_RANK": str(number), "RANK": str(number), "WORLD_SIZE": str(size)}


def _header(
    pid: int,
    run: RankRun,
    functions: int,
    name_bytes: int,
    windows: Sequence[tuple[float, float, bool]],
    late: bool,
    ended_ns: int | None,
) -> bytes:
    row = np.zeros(1, dtype_of(layout.FileHeader))[0]
    kinds = sum(1 << int(kind) for kind in (RecordKind.KERNEL, RecordKind.COPY))
    lines = {one.line for one in run.calls} | {one.line for one in run.samples}
    fields = {
        "magic": layout.FILE_MAGIC, "format": layout.FILE_FORMAT, "record_places": layout.RECORDS,
        "call_blocks": layout.CALL_BLOCKS, "pid": pid, "parent_pid": 1,
        "start_ticks": START_TICKS, "state": WatchState.RECORDING, "cupti_version": 130_100, "kinds": kinds,
        "slow_ns": SLOW_NS, "started_ns": run.calls[0].begin_ns - 1 if late and run.calls else BEGIN_NS,
        "started_realtime_ns": 1_700_000_000 * SECOND, "clock_sequence": 2, "clock_ns": run.end_ns,
        "clock_realtime_ns": 1_700_000_000 * SECOND + run.end_ns - BEGIN_NS, "ended_ns": ended_ns or 0,
        "records": len(run.kernels), "apis": functions, "slots": 1, "histograms": functions,
        "name_bytes": name_bytes, "program": b"python3", "command": b"python3 train.py", "python": b"3.12.4",
        "cupti_path": b"/lib/libcupti.so.13", "samples": len(run.samples), "stacks": len(lines),
        "windows": len(windows), "cost_ppm": layout.EVERYTHING_PPM,
        "flags": int(Flag.PYTHON_STACKS) | int(Flag.NATIVE_STACKS) | (int(Flag.LATE) if late else 0),
    }  # fmt: skip
    for name, value in fields.items():
        row[name] = value
    return bytes(row.tobytes())


def _apis(functions: Sequence[str]) -> bytes:
    rows = np.zeros(len(functions), dtype_of(layout.Api))
    rows["name"], rows["number"] = functions, range(1, len(functions) + 1)
    return rows.tobytes()


def _names(run: RankRun) -> tuple[bytes, dict[str, int]]:
    """The names of kernels as the file has them, and the place of each."""
    found, places = b"", {}
    for name in dict.fromkeys(one.name for one in run.kernels):
        places[name] = len(found) + 1
        text = name.encode()
        found += len(text).to_bytes(4, "little") + text
    return found, places


def _records(run: RankRun, places: Mapping[str, int], device: int) -> bytes:
    kernels = sorted(run.kernels, key=lambda one: one.end_ns)
    rows = np.zeros(len(kernels), dtype_of(layout.WatchRecord))
    rows["sequence"] = 2 * np.arange(len(kernels)) + 2
    rows["kind"], rows["device"], rows["context"] = int(RecordKind.KERNEL), device, 1
    for field, values in (
        ("start", [one.start_ns for one in kernels]),
        ("end", [one.end_ns for one in kernels]),
        ("stream", [one.stream for one in kernels]),
        ("correlation", [one.correlation for one in kernels]),
        ("name", [places[one.name] for one in kernels]),
    ):
        rows[field] = values
    return rows.tobytes()


def _blocks(pid: int, calls: int) -> bytes:
    count = -(-calls // layout.BLOCK_CALLS)
    rows = np.zeros(count, dtype_of(layout.CallBlock))
    rows["number"], rows["thread"] = np.arange(count) + 1, pid
    rows["first"] = np.arange(count) * layout.BLOCK_CALLS
    rows["calls"] = np.minimum(calls - rows["first"].astype(np.int64), layout.BLOCK_CALLS)
    return rows.tobytes()


def _calls(run: RankRun, functions: Sequence[str]) -> bytes:
    rows = np.zeros(len(run.calls), dtype_of(layout.LoggedCall))
    calls = rows["call"]
    calls["start_ns"] = [one.begin_ns for one in run.calls]
    calls["api"] = [functions.index(one.function) for one in run.calls]
    calls["correlation"] = [one.correlation for one in run.calls]
    calls["context"], calls["flags"] = 1, int(CallFlag.STREAM)
    rows["end_ns"] = [one.end_ns for one in run.calls]
    return rows.tobytes()


def _slot(pid: int, run: RankRun, functions: Sequence[str], lines: Sequence[int]) -> bytes:
    row = np.zeros(1, dtype_of(layout.Slot))[0]
    row["use"], row["thread"], row["started_ns"], row["name"] = (
        SlotUse.LIVE,
        pid,
        run.calls[0].begin_ns if run.calls else BEGIN_NS,
        b"MainThread",
    )
    row["owners"], row["finished"] = 1, len(run.calls)
    row["histograms"][: len(functions)] = np.arange(len(functions)) + 1
    slow = [call for call in run.calls if call.end_ns - call.begin_ns >= SLOW_NS]
    row["slow_calls"] = len(slow)
    for number, call in list(enumerate(slow))[-layout.SLOW_CALLS :]:
        entry = row["slow"][number % layout.SLOW_CALLS]
        entry["sequence"], entry["end_ns"], entry["thread"] = 2 * number + 2, call.end_ns, pid
        entry["stack"] = lines.index(call.line) + 1
        made = entry["call"]
        made["start_ns"], made["api"], made["correlation"] = (
            call.begin_ns,
            functions.index(call.function),
            call.correlation,
        )
        made["context"] = 1
    return bytes(row.tobytes())


def _samples(pid: int, run: RankRun, functions: Sequence[str], lines: Sequence[int]) -> bytes:
    rows = np.zeros(len(run.samples), dtype_of(layout.TimeSample))
    assert len(rows) < layout.TIME_SAMPLES
    rows["sequence"], rows["thread"] = 2 * np.arange(len(rows)) + 2, pid
    for field, values in (
        ("since_ns", [one.since_ns for one in run.samples]),
        ("at_ns", [one.at_ns for one in run.samples]),
        ("ns", [one.at_ns - one.since_ns for one in run.samples]),
        ("stack", [lines.index(one.line) + 1 for one in run.samples]),
        ("api", [functions.index(one.function) for one in run.samples]),
        ("sampled", [int(SampledTime.BETWEEN if one.between else SampledTime.INSIDE) for one in run.samples]),
    ):
        rows[field] = values
    return rows.tobytes()


def _windows(windows: Sequence[tuple[float, float, bool]], run: RankRun) -> bytes:
    rows = np.zeros(len(windows), dtype_of(layout.Window))
    for number, (begin, end, on) in enumerate(windows):
        row = rows[number]
        row["sequence"], row["records"] = 2 * number + 2, int(on)
        row["began_ns"], row["ended_ns"] = BEGIN_NS + round(begin * 1e9), BEGIN_NS + round(end * 1e9)
        row["settled_ns"] = row["began_ns"] if on else 0
        inside = [one for one in run.calls if row["began_ns"] <= one.end_ns < row["ended_ns"]]
        row["calls"] = row["busiest"] = len(inside)
        row["took_ns"] = row["ended_ns"] - row["began_ns"]
    if len(rows):
        rows["ended_ns"][-1] = 0
    return rows.tobytes()


def _histogram(number: int, durations: Sequence[int]) -> bytes:
    row = np.zeros(1, dtype_of(layout.CallHistogram))[0]
    found = Histogram.of(durations)
    row["api"], row["max_ns"], row["total_ns"] = number, found.max_ns, sum(durations)
    row["counts"] = found.counts
    return bytes(row.tobytes())


def _stack(line: int) -> bytes:
    row = np.zeros(1, dtype_of(layout.Stack))[0]
    text = f'Stack (most recent call first):\n  File "/home/me/train.py", line {line} in step\n'.encode()
    row["ready"], row["text_bytes"], row["text"] = 1, len(text), text
    return bytes(row.tobytes())
