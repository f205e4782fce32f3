"""Two seconds of real programs on a GPU, as the injected library recorded them: calls, records, windows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from factories.kept_results import kept
from factories.watch_calls import process as process_of
from factories.watch_calls import thread as thread_of
from stallprobes.latency.histogram import Histogram
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import DEFAULT_SLOW_NS, CallFlag, WatchRecord, Window
from stallprobes.records.rows import DRIVER_CALL, Rows
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.reading.process import (
    CallBatch,
    CallFigures,
    ClockPair,
    RecordBatch,
    SlowDriverCall,
    WatchedProcess,
)
from stallprobes.watch.reading.record_windows import RecordWindows
from stallprobes.watch.reading.words import MEMORY

FOLDER = Path(__file__).parents[1] / "data" / "watch" / "divisions"
# Columns that nearly always grow are kept as differences, which compress well.
_GROWING = {"began_ns", "returned_ns", "start", "end", "correlation", "sequence", "settled_ns", "ended_ns"}
READINGS = 8


@dataclass(frozen=True, eq=False)
class RecordedDivision:
    """A part of a run: ``calls`` (DRIVER_CALL) and ``records`` (WatchRecord) in the order in which they were read.

    ``names`` are those of kernels, ``functions`` those of the driver by their numbers, ``threads`` the names of threads
    by their ids. ``clocks`` are two readings of CLOCK_MONOTONIC and CLOCK_REALTIME, at the begin and at the end.
    """

    calls: Rows
    records: NDArray[Any]
    windows: NDArray[Any]
    names: Mapping[int, str]
    functions: Mapping[int, str]
    threads: Mapping[int, str]
    clocks: tuple[ClockPair, ClockPair]

    def save(self, path: Path) -> None:
        """Write it, compressed."""
        clocks = [[one.monotonic_ns, one.realtime_ns] for one in self.clocks]
        words = {"names": self.names, "functions": self.functions, "threads": self.threads, "clocks": clocks}
        columns: dict[str, Any] = {"words": np.frombuffer(json.dumps(words).encode(), np.uint8)}
        for name, rows in (("calls", self.calls), ("records", self.records), ("windows", self.windows)):
            for column in rows.dtype.names or ():
                columns[f"{name}.{column}"] = _packed(column, rows[column])
        np.savez_compressed(path, **columns)

    @classmethod
    def load(cls, path: Path) -> RecordedDivision:
        """Read what ``save`` wrote."""
        with np.load(path) as file:
            words = json.loads(file["words"].tobytes())
            calls = _rows(file, "calls", DRIVER_CALL)
            records = _rows(file, "records", dtype_of(WatchRecord))
            windows = _rows(file, "windows", dtype_of(Window))
        names, functions, threads = (
            {int(key): value for key, value in words[kind].items()} for kind in ("names", "functions", "threads")
        )
        first, last = (ClockPair(*one) for one in words["clocks"])
        return cls(calls, records, windows, names, functions, threads, (first, last))

    def halves(self) -> tuple[RecordedDivision, RecordedDivision]:
        """What was recorded in the first and in the second half of the time."""
        begin, end = (one.monotonic_ns for one in self.clocks)
        middle = (begin + end) // 2
        return self._part(begin, middle), self._part(middle, end)

    def _part(self, begin: int, end: int) -> RecordedDivision:
        inside = (self.calls["began_ns"] >= begin) & (self.calls["returned_ns"] <= end)
        # A switch has a clock of its own.
        there = (self.records["kind"] == 57) | ((self.records["start"] >= begin) & (self.records["end"] <= end))
        offset = self.clocks[0].realtime_ns - self.clocks[0].monotonic_ns
        return replace(
            self,
            calls=self.calls[inside],
            records=self.records[there],
            windows=self.windows[self.windows["began_ns"] < end],
            clocks=(ClockPair(begin, begin + offset), ClockPair(end, end + offset)),
        )

    def process(self) -> WatchedProcess:
        """The process at the end."""
        first, last = self.clocks
        slow = self._slow_calls()
        threads = [
            replace(
                thread_of(thread, [call for call in slow if call.thread == thread]),
                name=name,
                started_ns=first.monotonic_ns,
                figures=self._figures(thread),
            )
            for thread, name in self.threads.items()
        ]
        read = process_of(*threads, now=0)
        return read.changed(
            started=first, clocks=last, ended_ns=last.monotonic_ns, windows=RecordWindows.of(self.windows)
        )

    def _windows(self, until_ns: int) -> RecordWindows:
        """The windows that have begun until a time, as they are then."""
        windows = self.windows[self.windows["began_ns"] < until_ns].copy()
        for name in ("ended_ns", "settled_ns"):
            windows[name][windows[name] > until_ns] = 0
        return RecordWindows.of(windows)

    def _slow_calls(self) -> list[SlowDriverCall]:
        """The calls that took as long as one that the library keeps, but for those in others."""
        slow = self.calls[self.calls["returned_ns"] - self.calls["began_ns"] >= DEFAULT_SLOW_NS]
        found = []
        for row in slow[(slow["flags"] & int(CallFlag.NESTED)) == 0]:
            function, flags = self.functions[int(row["function"])], int(row["flags"])
            found.append(
                SlowDriverCall(
                    function=function,
                    thread=int(row["thread"]),
                    begin_ns=int(row["began_ns"]),
                    duration_ns=int(row["returned_ns"] - row["began_ns"]),
                    stream=int(row["stream"]) if flags & CallFlag.STREAM else None,
                    bytes=int(row["bytes"]) if flags & CallFlag.BYTES else None,
                    source=MEMORY.get(int(row["source"])),
                    target=MEMORY.get(int(row["target"])),
                    context=int(row["context"]),
                    correlation=int(row["correlation"]),
                    result=0,
                )
            )
        return found

    def _figures(self, thread: int) -> dict[str, CallFigures]:
        mine = self.calls[self.calls["thread"] == thread]
        took = (mine["returned_ns"] - mine["began_ns"]).astype(np.int64)
        return {
            self.functions[number]: CallFigures(
                total=Histogram.of(of.tolist()),
                total_ns=int(of.sum()),
                slow=int((of >= DEFAULT_SLOW_NS).sum()),
                failed=0,
            )
            for number in np.unique(mine["function"]).tolist()
            for of in (took[mine["function"] == number],)
        }

    def findings(self) -> ProcessFindings:
        """What the analysis finds, fed in several readings."""
        analysis, process = ProcessAnalysis(None), self.process()
        first, last = (one.monotonic_ns for one in self.clocks)
        ends, arrived = self.calls["returned_ns"], _arrivals(self.records)
        before = first - 1
        for number in range(1, READINGS + 1):
            until = first + (last - first) * number // READINGS
            calls = self.calls[(ends > before) & (ends <= until)]
            records = self.records[(arrived > before) & (arrived <= until)]
            ended = number == READINGS
            analysis.feed(
                process if ended else process.changed(ended_ns=None, windows=self._windows(until)),
                RecordBatch(records, self.names, 0, 0),
                until,
                calls=CallBatch(calls, self.functions, 0),
                ended=ended,
            )
            before = until
        return analysis.findings()


@cache
def recorded_division(name: str) -> RecordedDivision:
    """What a program of FOLDER recorded."""
    return RecordedDivision.load(FOLDER / f"{name}.npz")


@cache
def findings_of(name: str) -> ProcessFindings:
    """What the analysis finds in a program of FOLDER."""
    return kept(f"findings-{name}", lambda: recorded_division(name).findings())


def _arrivals(records: NDArray[Any]) -> NDArray[np.int64]:
    """When each record was there at the earliest: once all before it had ended. A switch has a clock of its own."""
    ends = np.where(records["kind"] == 57, 0, records["end"]).astype(np.int64)
    return np.maximum.accumulate(ends) if len(ends) else ends


def _packed(column: str, values: NDArray[Any]) -> NDArray[Any]:
    """A column as bytes of which those of a place stand together: most are 0."""
    if column in _GROWING:
        values = np.diff(values, prepend=values[:1] * 0)
    return np.ascontiguousarray(values).view(np.uint8).reshape(len(values), values.dtype.itemsize).T.copy()


def _rows(file: Any, name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    assert dtype.names is not None
    count = file[f"{name}.{dtype.names[0]}"].shape[1]
    rows = np.zeros(count, dtype)
    for column in dtype.names:
        # What they were recorded without is 0.
        if f"{name}.{column}" not in file:
            continue
        # Little-endian; a column may have been wider.
        raw = np.ascontiguousarray(file[f"{name}.{column}"].T[:, : dtype[column].itemsize])
        values = raw.reshape(-1).view(dtype[column]) if count else np.zeros(0, dtype[column])
        rows[column] = np.cumsum(values, dtype=values.dtype) if column in _GROWING else values
    return rows
