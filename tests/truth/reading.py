"""What is read of the report of ``watch`` (``--json``): the only place that knows the names of its members."""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Names of a verdict, present and planned, as causes of the truth.
CAUSES = {
    "gpu": "kernels", "wait": "waits", "waits": "waits", "host": "host", "submission": "submission",
    "shared": "shared", "communication": "communication", "loading": "loading", "compiling": "compiling",
    "allocation": "allocation", "lock": "locks", "locks": "locks", "copy": "copies", "copies": "copies",
    "blocking-copy": "copies", "blocking-copies": "copies", "input": "input", "a-thread": "input", "thread": "input",
    "own-sleep": "own sleep", "sleep": "own sleep", "cpus": "CPUs", "short-of-cpus": "CPUs", "queued": "queued",
    "small-kernels": "gaps", "between-kernels": "gaps", "gaps": "gaps", "turns": "turns", "another-gpu": "turns",
    "gpus-in-turn": "turns", "idle": "idle", "idle-or-remote": "idle", "unknown": "", "not-known": "",
}  # fmt: skip
# Figures of a sequence by the resource of the truth that they are of.
_FIGURES = {"host": ("host",), "gpu": ("gpu_works", "gpu"), "price": ("price",)}
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
    none. ``window_ns``: of which time it is, on CLOCK_MONOTONIC."""

    verdict: str
    second: str
    figures: Mapping[str, Figure]
    parts: Mapping[str, float]
    window_ns: tuple[int, int]
    sentence: str
    problem: str = ""


def read(path: Path, thread: int) -> Report:
    """The report in a file about the sequence of ``thread``, the main one of its process."""
    document = json.loads(path.read_text(encoding="utf-8"))
    offset_ns = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return report_of(document, thread, offset_ns)


def report_of(document: Mapping[str, Any], thread: int, offset_ns: int) -> Report:
    """The report of a document; ``offset_ns`` is added to CLOCK_MONOTONIC for CLOCK_REALTIME."""
    processes = [each for each in document.get("processes", ()) if each.get("pid") == thread]
    if not processes:
        return Report("", "", {}, {}, (0, 0), "", "the process is not in the report")
    (process,) = processes
    division = process.get("division") or {}
    window = _window(document, process, division, offset_ns)
    sequences = [each for each in _sequences(process, division) if thread in each.get("threads", ())]
    if not sequences:
        return Report("", "", {}, {}, window, "", "no sequence of its thread")
    # Of a thread with several GPUs: the one that it uses first, whose shares the truth has.
    sequence = min(sequences, key=lambda each: each.get("gpu", each.get("device", 0)))
    figures = {
        name: figure
        for name, members in _FIGURES.items()
        if (figure := _figure(next((sequence[one] for one in members if one in sequence), None))) is not None
    }
    return Report(
        _cause(sequence.get("verdict")),
        _cause(sequence.get("second")),
        figures,
        {part["part"]: part["share"] for part in sequence.get("parts", ())},
        window,
        sequence.get("sentence", ""),
    )


def _sequences(process: Mapping[str, Any], division: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Sequences of a process: of its division, or its own."""
    found: Sequence[Mapping[str, Any]] = division.get("sequences") or process.get("sequences") or ()
    yield from found


def _window(
    document: Mapping[str, Any], process: Mapping[str, Any], division: Mapping[str, Any], offset_ns: int
) -> tuple[int, int]:
    began_at = document.get("began_at")
    if began_at is None:
        return 0, 0
    began_ns = round(datetime.datetime.fromisoformat(began_at).timestamp() * 1e9) - offset_ns
    began_ns += _ns(process, "began")
    return began_ns + _ns(division, "start_up"), began_ns + _ns(process, "seconds", "lasted", "duration")


def _ns(members: Mapping[str, Any], *names: str) -> int:
    """A time, in whichever unit the member's name has."""
    for name in names:
        for ending, factor in (("_ns", 1), ("_us", 1e3), ("_s", 1e9), ("", 1e9)):
            value = members.get(name + ending)
            if isinstance(value, int | float):
                return round(value * factor)
    return 0


def _figure(value: object) -> Figure | None:
    if not isinstance(value, Mapping) or "share" not in value:
        return None
    return Figure(value["share"], value.get("low", value["share"]), value.get("high", value["share"]))


def _cause(word: object) -> str:
    return CAUSES.get(str(word).replace("_", "-").replace(" ", "-").lower(), str(word)) if word else _NO_VERDICT
