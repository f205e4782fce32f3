"""Reader of files of the Trace Event Format, which refuses what Perfetto drops or draws wrongly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import Any

KNOWN = frozenset("MXisfC")
METADATA = frozenset({"process_name", "process_sort_index", "thread_name", "thread_sort_index"})


@dataclass(frozen=True)
class Slice:
    """A complete event, with its times in ns."""

    process: str
    thread: str
    name: str
    category: str
    begin_ns: int
    end_ns: int
    args: Mapping[str, Any]


@dataclass(frozen=True)
class Arrow:
    """A flow from one slice to another."""

    source: Slice
    target: Slice


@dataclass(frozen=True)
class ReadTrace:
    """What a file shows."""

    slices: tuple[Slice, ...]
    arrows: tuple[Arrow, ...]
    instants: tuple[Mapping[str, Any], ...]
    about: Mapping[str, Any]
    # The process, time (ns) and value of each value of a counter, by the counter's name.
    counters: Mapping[str, Sequence[tuple[str, int, float]]]

    def of(self, category: str) -> list[Slice]:
        """The slices of a category."""
        return [each for each in self.slices if each.category == category]


def read_chrome_trace(text: str) -> ReadTrace:
    """The trace in ``text``. Raises AssertionError for what the format or Perfetto does not allow."""
    document = json.loads(text, parse_float=Decimal, parse_constant=_refuse)
    # What comes after the events is not needed to read them.
    assert list(document) == ["traceEvents", "otherData", "displayTimeUnit"]
    assert document["displayTimeUnit"] == "ns"
    events = document["traceEvents"]
    for event in events:
        _check_event(event)
    names = _names(events)
    # A process or thread without a name is shown by a number that means nothing.
    for event in events:
        if event["ph"] == "C":
            assert (event["pid"], None) in names
        elif event["ph"] != "M":
            assert {(event["pid"], None), (event["pid"], event["tid"])} <= names.keys()
    slices, by_place = _slices(events, names)
    for track in by_place.values():
        _check_nesting(track)
    return ReadTrace(
        tuple(slices),
        tuple(_arrows(events, by_place)),
        tuple(event for event in events if event["ph"] == "i"),
        document["otherData"],
        _counters(events, names),
    )


def _counters(
    events: Sequence[Mapping[str, Any]], names: Mapping[tuple[int, int | None], str]
) -> dict[str, list[tuple[str, int, float]]]:
    found: dict[str, list[tuple[str, int, float]]] = {}
    for event in events:
        if event["ph"] == "C":
            ((_, value),) = event["args"].items()
            process = names[event["pid"], None]
            found.setdefault(event["name"], []).append((process, _ns(event["ts"]), float(value)))
    return found


def _check_event(event: Mapping[str, Any]) -> None:
    """The members that each kind of event must have, and their types."""
    phase = event["ph"]
    assert phase in KNOWN
    members = list(event)
    for number in ("pid", "tid"):
        # A process has its names without a thread.
        if number in event or phase not in "MC" or number == "pid":
            assert type(event[number]) is int
            assert 0 < event[number] < 1 << 31
    assert type(event["name"]) is str
    assert event["name"]
    assert not any(isinstance(value, list) for value in event.values())
    if phase == "M":
        assert event["name"] in METADATA
        (key, value) = next(iter(event["args"].items()))
        assert (key, type(value)) in (("name", str), ("sort_index", int))
        return
    # A counter belongs to a process.
    assert members[:4] == ["ph", "pid", "tid", "ts"] or (phase == "C" and members[:3] == ["ph", "pid", "ts"])
    _ns(event["ts"])
    assert type(event["cat"]) is str
    match phase:
        case "X":
            _ns(event["dur"])
        case "i":
            # Global, of the process, or of the thread.
            assert event["s"] in ("g", "p", "t")
        case "s" | "f":
            assert type(event["id"]) is int
            assert event["id"] > 0


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def _names(events: Sequence[Mapping[str, Any]]) -> dict[tuple[int, int | None], str]:
    """Names of processes (thread None) and threads."""
    found: dict[tuple[int, int | None], str] = {}
    threads: set[int] = set()
    for event in events:
        if event["ph"] != "M" or not event["name"].endswith("_name"):
            continue
        place = (event["pid"], event.get("tid"))
        assert place not in found
        found[place] = event["args"]["name"]
        if place[1] is not None:
            # Perfetto knows a thread by its number alone, and takes one with its process's number for the main thread.
            assert place[1] not in threads
            threads.add(place[1])
    assert threads.isdisjoint(process for process, _ in found)
    return found


def _ns(value: object) -> int:
    """A time in µs with exactly three decimals."""
    assert isinstance(value, Decimal)
    assert value.as_tuple().exponent == -3
    assert value >= 0
    return int(value * 1000)


def _slices(
    events: Sequence[Mapping[str, Any]], names: Mapping[tuple[int, int | None], str]
) -> tuple[list[Slice], dict[tuple[int, int], list[Slice]]]:
    slices: list[Slice] = []
    tracks: dict[tuple[int, int], list[Slice]] = {}
    for event in events:
        if event["ph"] != "X":
            continue
        begin = _ns(event["ts"])
        process, thread = names[event["pid"], None], names[event["pid"], event["tid"]]
        found = Slice(
            process, thread, event["name"], event["cat"], begin, begin + _ns(event["dur"]), event.get("args", {})
        )
        assert found.name
        slices.append(found)
        tracks.setdefault((event["pid"], event["tid"]), []).append(found)
    return slices, tracks


def _check_nesting(track: Sequence[Slice]) -> None:
    """The slices of a thread are in the order of time, and none overlaps another."""
    for before, after in pairwise(track):
        assert before.begin_ns <= after.begin_ns
        assert before.end_ns <= after.begin_ns, (before, after)


def _arrows(events: Sequence[Mapping[str, Any]], tracks: Mapping[tuple[int, int], Sequence[Slice]]) -> list[Arrow]:
    """The flows: each has one start and one end, in slices that enclose them and stand before them in the file."""
    by_begin = {place: {each.begin_ns: each for each in track} for place, track in tracks.items()}
    starts: dict[int, tuple[str, Slice]] = {}
    ends: dict[int, tuple[str, Slice]] = {}
    times: dict[tuple[str, int], int] = {}
    last: dict[tuple[int, int], Mapping[str, Any]] = {}
    for event in events:
        place = (event["pid"], event.get("tid", 0))
        if event["ph"] == "X":
            last[place] = event
        if event["ph"] not in "sf":
            continue
        enclosing = last[place]
        at, begin = _ns(event["ts"]), _ns(enclosing["ts"])
        assert begin <= at <= begin + _ns(enclosing["dur"])
        found = by_begin[place][begin]
        side = starts if event["ph"] == "s" else ends
        assert event["id"] not in side
        side[event["id"]] = (f"{event['cat']}:{event['name']}", found)
        if event["ph"] == "f":
            assert event["bp"] == "e"
        times[event["ph"], event["id"]] = at
    assert starts.keys() == ends.keys()
    assert all(starts[flow][0] == ends[flow][0] for flow in starts)
    assert all(times["s", flow] <= times["f", flow] for flow in starts)
    return [Arrow(starts[flow][1], ends[flow][1]) for flow in starts]
