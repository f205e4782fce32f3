"""What is read of the report of ``watch`` (``--json``): the only place that knows the names of its members."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Cause in the truth by the verdict of a report, where the names differ; "" for no verdict.
CAUSES = {
    "gpu": "kernels", "wait": "waits", "lock": "locks", "copy": "copies", "unknown": "", "cpus": "CPUs",
    "own-sleep": "own sleep", "child": "compiling",
    # The report's "asleep" and "thread" do not say for what the host waits.
    "asleep": "host", "thread": "input or locks", "streams": "queued", "held": "queued",
}  # fmt: skip
# Cause of a report without a verdict.
_NO_VERDICT = ""


@dataclass(frozen=True)
class Figure:
    """A share with its 95 % interval."""

    share: float
    low: float
    high: float


@dataclass(frozen=True)
class Report:
    """What a report says of the main sequence. Verdicts are causes of the truth, "" for "not known" and where there is
    none. ``window_ns``: of which time it is, on CLOCK_MONOTONIC; ``phase_ns``: of which time the verdict is."""

    verdict: str
    second: str
    figures: Mapping[str, Figure]
    parts: Mapping[str, float]
    window_ns: tuple[int, int]
    sentence: str
    problem: str = ""
    phase_ns: tuple[int, int] = (0, 0)


def read(path: Path, thread: int) -> Report:
    """The report in a file about the sequence of ``thread``, the main one of its process."""
    return report_of(json.loads(path.read_text(encoding="utf-8")), thread)


def report_of(document: Mapping[str, Any], thread: int) -> Report:
    """The report of a document."""
    processes = [each for each in document["processes"] if each["pid"] == thread]
    if not processes:
        return Report("", "", {}, {}, (0, 0), "", "the process is not in the report")
    (process,) = processes
    steady_ns = process["began_ns"] + (process["division"] or {}).get("start_up_ns", 0)
    window = steady_ns, process["began_ns"] + process["duration_ns"]
    # A device of None: no work of the GPU was recorded.
    sequences = [each for each in process["sequences"] if thread in each["threads"] and each["device"] is not None]
    if not sequences:
        return Report("", "", {}, {}, window, "", "no sequence of its thread")
    # Of a thread with several GPUs: the one that it uses first, whose shares the truth has.
    sequence = min(sequences, key=lambda each: each["device"])
    times = [] if not sequence["phases"] else sequence["phases"][0]["times"]
    longest = max(times, key=lambda time: time[1] - time[0], default=None)
    return Report(
        _cause(sequence["verdict"]),
        _cause(sequence["second"]),
        {name: Figure(**sequence[name]) for name in ("host", "gpu", "price")},
        sequence["shares"],
        window,
        sequence["sentence"],
        phase_ns=window if longest is None else (process["began_ns"] + longest[0], process["began_ns"] + longest[1]),
    )


def _cause(word: str | None) -> str:
    return CAUSES.get(word, word) if word else _NO_VERDICT
