"""Reader of a recording's lines: probe sets, baselines, observations, traces; MalformedJson says where an error is.

A line with a right checksum may still have any content. What this module returns is consistent: the rest of the program
indexes channels, operations and probes without checks.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from operator import ge
from types import MappingProxyType
from typing import Any

import numpy as np

from stallprobes.catalog import entries
from stallprobes.engine.backend import ProbeFailure
from stallprobes.engine.board import EngineState, ProbeErrorCode, ProbeSnapshot, ProbeState, Snapshot
from stallprobes.errors import MalformedJson
from stallprobes.files.json_reader import Node, clean, parse
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import BUCKETS, LOWER, Histogram
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.latency.sparse import MOST
from stallprobes.latency.window import NO_CALLS, InFlight
from stallprobes.live.observation import (
    CUDA,
    HOST,
    SIM,
    EngineCondition,
    EngineStatus,
    GpuName,
    Observation,
    ProbeSet,
)
from stallprobes.live.recording_format import BASELINES, LONGEST_TEXT, MOST_ITEMS, OBSERVATION, PROBE_SET, TRACE
from stallprobes.machine.gpus import GpuProcess
from stallprobes.machine.telemetry import FIELDS, STATES, TelemetryReading, TelemetrySnapshot
from stallprobes.model import (
    PHASE_NAMES_1,
    TIMELINE_PHASES,
    Channel,
    Context,
    Op,
    Phase,
    Probe,
    Program,
    Role,
    SlotGroup,
    Word,
)
from stallprobes.traces import codec
from stallprobes.traces.trace import Trace

# Largest values: 2286 in seconds since 1970, thirty years in seconds, 146 years in nanoseconds.
LATEST_S = 1e10
_LONGEST_S = 1e9
_LONGEST_NS = 2**62
_WORD = 2**63 - 1
# A screen has at most 16 probes, and a program at most 18 operations and 12 channels.
_MOST_PROBES = 64
_MOST_OPS = 64
_MOST_CHANNELS = 256

# Limits of integers that a list holds, by name and in their order.
_TIME = (0, _LONGEST_NS)
_WORDS = {
    "state": (int(min(ProbeState)), int(max(ProbeState))),
    "on": (0, 1),
    "iterations": (0, MOST),
    "on_since_ns": _TIME,
    "heartbeat_ns": _TIME,
    "missed": (0, MOST),
    "proof": (-_WORD - 1, _WORD),
}
_IN_FLIGHT = {"op": (0, _MOST_OPS), "since_ns": _TIME, "age_ns": _TIME, "due_ns": _TIME}
_ERROR = {"code": (-_WORD - 1, _WORD), "op": (-_WORD - 1, _WORD), "at_ns": _TIME}
_SLOT = dict.fromkeys(("allowed_ns", "not_alone_ns", "in_flight_ns"), (-(10**9), _LONGEST_NS))
_POLL = {"polled_ns": _TIME, "pauses": _TIME}

_PHASES = {name: Phase.named(name) for name in (*map(str, Phase), *PHASE_NAMES_1)}
_CONTEXT = re.compile(r"(?P<name>.*?)(?: of GPU (?P<number>[0-9]{1,3}))?", re.DOTALL)
_TEXTS = ("performance_state",)
_LISTS = ("clock_reasons",)


def decoded(line: bytes) -> Node:
    """The object that ``line`` holds. Raises MalformedJson."""
    try:
        node = Node(parse(line.decode(), lambda found: found), "")
    except UnicodeDecodeError:
        raise MalformedJson("it is not UTF-8") from None
    node.members()
    return node


def read_probe_set(node: Node) -> ProbeSet:
    """The probe set of a line. Raises MalformedJson."""
    # A later version may have more keys. The first recordings lack some of these.
    known = _member(node, PROBE_SET).some(
        "title",
        "probes",
        "backend",
        optional=("gpu", "more_gpus", "facts", "pattern", "variant", "watch", "why_simulated"),
    )
    labels = [_text(one) for one in (*_optional(known, "gpu"), *_optional_items(known, "more_gpus"))]
    probes = tuple(_probe(one) for one in _items(known["probes"], _MOST_PROBES))
    if len({probe.name for probe in probes}) < len(probes):
        raise known["probes"].wrong("has a duplicate name")
    if sum(len(probe.program.channels()) for probe in probes) > _MOST_CHANNELS:
        raise known["probes"].wrong(f"has more than {_MOST_CHANNELS} channels")
    why = known.get("why_simulated")
    return ProbeSet(
        title=_text(known["title"]),
        probes=probes,
        backend=known["backend"].one_of((CUDA, SIM, HOST)),
        gpus=tuple(GpuName.of_label(label) for label in labels if label),
        details=tuple(_text(one) for one in _optional_items(known, "facts")),
        pattern=_text_of(known, "pattern"),
        variant=_text_of(known, "variant"),
        expect=_text_of(known, "watch"),
        why_simulated=None if why is None or why.value is None else _foreign(why),
    )


def read_baselines(node: Node, probe_set: ProbeSet) -> dict[str, Baseline]:
    """The baselines of a line by probe; one of an earlier version is a single window. Raises MalformedJson."""
    line, found = node.some(BASELINES, optional=("windows", "traced")), {}
    windows = line["windows"].members() if "windows" in line else {}
    traced = line["traced"].members() if "traced" in line else {}
    for name, node_of in line[BASELINES].members().items():
        if probe_set.probe(name) is None:
            raise node_of.wrong("is not of a probe of the set")
        one = _record(node_of, ("at", "channels"))
        at_ns, whole = one["at"].whole(0, _LONGEST_NS), _histograms(one["channels"])
        if name not in windows:
            found[name] = Baseline.of([whole], at_ns=at_ns)
            continue
        held = windows[name].some("ns", "shared", *map(str, PERCENTILES))
        percentiles: dict[Quantile, dict[Channel, Histogram]] = {
            quantile: _histograms(held[str(quantile)]) for quantile in PERCENTILES
        }
        if name in traced:
            more = traced[name].some("all", *map(str, PERCENTILES))
            _extend(whole, more["all"])
            for quantile in PERCENTILES:
                _extend(percentiles[quantile], more[str(quantile)])
        found[name] = Baseline(whole, percentiles, held["ns"].whole(0, _LONGEST_NS), at_ns, held["shared"].flag())
    return found


def read_observation(node: Node, probe_set: ProbeSet, before: Snapshot | None) -> Observation:
    """The observation of a line. Its histograms are those of ``before`` and what was added; None counts from here.

    Raises MalformedJson.
    """
    optional = ("s", "nvml", "troubles", "held", "others", "blame", "timeline")
    known = _member(node, OBSERVATION).some("w", "e", optional=optional)
    engine = _record(known["e"], ("state", "age_s", "sentence"))
    return Observation(
        wall_s=known["w"].number(LATEST_S),
        probe_set=probe_set,
        engine=EngineStatus(
            engine["state"].choice(EngineCondition), engine["age_s"].number(_LONGEST_S), _foreign(engine["sentence"])
        ),
        snapshot=_snapshot(known["s"], probe_set, before) if "s" in known else None,
        telemetry=_telemetry(known["nvml"]) if "nvml" in known else None,
        probe_failures=tuple(_failure(one) for one in _optional_items(known, "troubles")),
        waiting=frozenset(_text(one) for one in _optional_items(known, "held")),
        other_processes=tuple(_foreign(one) for one in _optional_items(known, "others")),
        experiment="blame" in known and known["blame"].flag(),
        timeline="timeline" in known and known["timeline"].flag(),
    )


def read_trace(node: Node) -> Trace:
    """The trace of a line. Raises MalformedJson."""
    return codec.read_trace(_member(node, TRACE))


def wall_s(value: object, kind: str = OBSERVATION) -> float:
    """``value`` as the time of an observation or trace, 1970 to 2286. Raises MalformedJson."""
    return Node(value, f"{kind}.w").number(LATEST_S)


# Probe sets.


def _probe(node: Node) -> Probe:
    """The probe without the arguments of its calls, which a view does not need."""
    keys = ("name", "title", "role", "entry", "context", "stream", "period_ns", "proof", "ops")
    known = node.some(*keys, optional=("slot_group",))
    ops = tuple(_op(one) for one in _items(known["ops"], _MOST_OPS))
    title, stream, context = (_text(known[key]) for key in ("title", "stream", "context"))
    entry = _text(known["entry"])
    return Probe(
        name=known["name"].name(),
        title=title,
        role=known["role"].choice(Role),
        program=Program(ops, context=None, proof=Word("proof") if known["proof"].flag() else None),
        period_ns=known["period_ns"].whole(0, _LONGEST_NS),
        entry=entry,
        context=context,
        stream=stream,
        # The format has no short title: it follows from the title, as the catalogue composes it.
        short_title=_short_title(title, stream),
        slot_group=_slot_group(known["slot_group"]) if "slot_group" in known else _catalog_group(entry, context),
    )


def _op(node: Node) -> Op:
    one = _record(node, ("fn", "phase", "label"))
    phase = None if one["phase"].value is None else _phase(one["phase"])
    return Op(one["fn"].name(), phase=phase, label=_text(one["label"]))


def _slot_group(node: Node) -> SlotGroup | None:
    if node.value is None:
        return None
    one = _record(node, ("gpu", "group"))
    return one["gpu"].whole(0, MOST_ITEMS), _text(one["group"])


def _catalog_group(entry: str, context: str) -> SlotGroup | None:
    """The slot group of a probe in a recording that is older than slots."""
    found = _CONTEXT.fullmatch(context)
    if found is None or entry not in entries() or context == "none":
        return None
    return entries()[entry].slot_group(Context(found["name"], int(found["number"] or 1) - 1))


def _short_title(title: str, stream: str) -> str:
    """``title`` without the stream if the probe has its own, else without the word "stream"."""
    suffix = f" · {stream} stream"
    if not title.endswith(suffix):
        return title
    return title[: -len(suffix)] + ("" if stream == "own" else f" · {stream}")


# Histograms.


def _histograms(node: Node) -> dict[Channel, Histogram]:
    """Whole histograms by channel."""
    found: dict[Channel, Histogram] = {}
    for one in _items(node, _MOST_CHANNELS):
        record = _record(one, ("phase", "label", "max_ns", "counts"))
        channel = Channel(_phase(record["phase"]), _text(record["label"]))
        if channel in found:
            raise one.wrong("is a second histogram of its channel")
        found[channel] = _histogram(one, record["max_ns"].value, record["counts"].value, Histogram.empty())
    return found


def _extend(histograms: dict[Channel, Histogram], node: Node) -> None:
    """Add the histograms of the timeline's channels."""
    for channel, histogram in _histograms(node).items():
        if channel in histograms or channel.phase not in TIMELINE_PHASES:
            raise node.wrong(
                f"has {channel.phase} {channel.label}".rstrip() + ", which the timeline does not fill here"
            )
        histograms[channel] = histogram


def _histogram(node: Node, max_ns: Any, pairs: Any, before: Histogram) -> Histogram:
    """``before`` with the counts of ``pairs``: number of the bucket, count, and so on, ascending."""
    if type(max_ns) is not int or not before.max_ns <= max_ns <= _LONGEST_NS:
        raise node.wrong(f"has a maximum that is not an integer from {before.max_ns} to {_LONGEST_NS}")
    if type(pairs) is not list or len(pairs) % 2 or not set(map(type, pairs)) <= {int}:
        raise node.wrong("has counts that are not a list of pairs of integers")
    if not pairs:
        return before if max_ns == before.max_ns else Histogram(before.counts, max_ns)
    buckets, counts = pairs[::2], pairs[1::2]
    if buckets[0] < 0 or buckets[-1] >= BUCKETS or any(map(ge, buckets, buckets[1:])):
        raise node.wrong(f"has buckets that do not ascend from 0 to {BUCKETS - 1}")
    if min(counts) < 1 or sum(counts) > MOST - before.count:
        raise node.wrong("has a count below 1, or counts above 2**53 in total")
    if max_ns < LOWER[buckets[-1]]:
        raise node.wrong("has a maximum below its highest bucket")
    added = before.counts.copy()
    added[buckets] += np.array(counts, dtype=np.uint64)
    added.flags.writeable = False
    return Histogram(added, max_ns)


# Observations.


def _snapshot(node: Node, probe_set: ProbeSet, before: Snapshot | None) -> Snapshot:
    known = node.some("at", "state", "beat", "p", optional=("slots", "polls", "traced"))
    at_ns = known["at"].whole(0, _LONGEST_NS)
    if before is not None and at_ns < before.at_ns:
        raise known["at"].wrong("is before that of the observation before")
    parts = known["p"].members()
    slots = known["slots"].members() if "slots" in known else {}
    polls = known["polls"].members() if "polls" in known else {}
    traced = known["traced"].members() if "traced" in known else {}
    if set(parts) != {probe.name for probe in probe_set.probes}:
        raise known["p"].wrong("has other probes than the set")
    probes = {
        probe.name: _part(
            parts[probe.name],
            probe,
            at_ns,
            None if before is None else before.probes[probe.name],
            slots.get(probe.name),
            polls.get(probe.name),
            traced.get(probe.name),
        )
        for probe in probe_set.probes
    }
    state = EngineState(known["state"].whole(min(EngineState), max(EngineState)))
    return Snapshot(at_ns, state, known["beat"].whole(0, _LONGEST_NS), probes)


def _part(
    node: Node,
    probe: Probe,
    at_ns: int,
    before: ProbeSnapshot | None,
    slot: Node | None,
    poll: Node | None,
    traced: Node | None,
) -> ProbeSnapshot:
    one = _record(node, ("words", "period_ns", "in_flight", "error", "channels", "first_ns"))
    state, on, iterations, on_since_ns, heartbeat_ns, missed, proof = _integers(one["words"], _WORDS)
    if before is not None and (iterations < before.iterations or missed < before.missed):
        raise one["words"].wrong("has fewer iterations than the observation before")
    own = probe.program.channels()
    channels = _channels(one["channels"], probe, own, before)
    first_ns = _first_ns(one["first_ns"], own)
    more = _traced_channels(traced, probe, own, before)
    if more:
        assert traced is not None
        channels |= more
        first_ns |= _first_ns(_record(traced, ("channels", "first_ns"))["first_ns"], more)
    allowed_ns, not_alone_ns, in_flight_ns = at_ns, 0, None
    if slot is not None:
        # A time counter that started since the clock was read shows a little less than nothing.
        allowed_ns, not_alone_ns, in_flight_ns = (max(value, 0) for value in _integers(slot, _SLOT))
    polled_ns, pauses = (0, 0) if poll is None else _integers(poll, _POLL)
    return ProbeSnapshot(
        name=probe.name,
        at_ns=at_ns,
        state=ProbeState(state),
        on=bool(on),
        iterations=iterations,
        on_since_ns=on_since_ns,
        heartbeat_ns=heartbeat_ns,
        in_flight=_in_flight(one["in_flight"], probe, at_ns, in_flight_ns),
        error=None if one["error"].value is None else ProbeErrorCode(*_integers(one["error"], _ERROR)),
        missed=missed,
        proof=proof,
        period_ns=one["period_ns"].whole(0, _LONGEST_NS),
        channels=channels,
        first_ns=first_ns,
        ring=NO_CALLS,
        ring_head=0,
        allowed_ns=allowed_ns,
        in_slots=slot is not None,
        not_alone_ns=not_alone_ns,
        polled_ns=polled_ns,
        pauses=pauses,
    )


def _channels(
    node: Node, probe: Probe, own: Sequence[Channel], before: ProbeSnapshot | None
) -> dict[Channel, Histogram]:
    """The histograms of ``own``, the channels of the probe's program."""
    found: dict[Channel, Histogram] = {}
    items = node.items()
    if len(items) != len(own):
        raise node.wrong(f"has {len(items)} channels, and the program of {probe.name} {len(own)}")
    for one, channel in zip(items, own, strict=True):
        record = one.value
        if type(record) is not list or len(record) != 4 or record[:2] != [channel.phase.name_1, channel.label]:
            raise one.wrong(f"is not the channel {channel.phase} {channel.label}".rstrip())
        earlier = Histogram.empty() if before is None else before.channels[channel]
        found[channel] = _histogram(one, record[2], record[3], earlier)
    return found


def _traced_channels(
    node: Node | None, probe: Probe, own: Collection[Channel], before: ProbeSnapshot | None
) -> dict[Channel, Histogram]:
    """The histograms of the channels that the timeline fills, among them all of the observation before."""
    found: dict[Channel, Histogram] = {}
    earlier = {} if before is None else {key: one for key, one in before.channels.items() if key not in own}
    if node is not None:
        labels = {op.label for op in probe.program.ops} | {""}
        known = _record(node, ("channels", "first_ns"))
        for one in _items(known["channels"], len(TIMELINE_PHASES) * len(labels)):
            record = _record(one, ("phase", "label", "max_ns", "counts"))
            channel = Channel(_phase(record["phase"]), _text(record["label"]))
            if channel.phase not in TIMELINE_PHASES or channel.label not in labels or channel in own:
                raise one.wrong(f"is no channel of {probe.name} that the timeline fills")
            if channel in found:
                raise one.wrong("is a second histogram of its channel")
            start = earlier.get(channel, Histogram.empty())
            found[channel] = _histogram(one, record["max_ns"].value, record["counts"].value, start)
    if not set(earlier) <= set(found):
        raise (Node(None, "traced") if node is None else node).wrong(
            f"lacks channels of {probe.name} that the observation before has"
        )
    return found


def _first_ns(node: Node, channels: Collection[Channel]) -> dict[Channel, int | None]:
    items = node.items()
    if len(items) != len(channels):
        raise node.wrong(f"has {len(items)} values, and the probe {len(channels)} channels")
    return {
        channel: None if one.value is None else one.whole(0, _LONGEST_NS)
        for channel, one in zip(channels, items, strict=True)
    }


def _in_flight(node: Node, probe: Probe, at_ns: int, allowed_ns: int | None) -> InFlight | None:
    if node.value is None:
        return None
    op, since_ns, age_ns, due_ns = _integers(node, _IN_FLIGHT)
    if op >= len(probe.program.ops):
        raise node.wrong(f"is of operation {op}, and the program of {probe.name} has {len(probe.program.ops)}")
    return InFlight(op, since_ns, age_ns, due_ns, at_ns - due_ns if allowed_ns is None else allowed_ns)


def _failure(node: Node) -> ProbeFailure:
    keys = ("probe", "op", "code", "text", "fatal")
    # The first recordings lack the last one.
    one = _record(node, keys if len(node.items()) == len(keys) else keys[:-1])
    return ProbeFailure(
        _text(one["probe"]),
        _text(one["op"]),
        one["code"].whole(-_WORD - 1, _WORD),
        _foreign(one["text"]),
        "fatal" in one and one["fatal"].flag(),
    )


def _telemetry(node: Node) -> TelemetrySnapshot:
    known = node.some("uuid", "at", "state", "why", "r")
    recorded = known["r"].members()
    readings = {
        one.name: _reading(one.name, recorded[one.name]) if one.name in recorded else TelemetryReading()
        for one in FIELDS
    }
    return TelemetrySnapshot(
        uuid=_text(known["uuid"]),
        at_ns=known["at"].whole(0, _LONGEST_NS),
        state=known["state"].one_of(STATES),
        why=_foreign_or_none(known["why"]),
        readings=MappingProxyType(readings),
    )


def _reading(name: str, node: Node) -> TelemetryReading:
    one = _record(node, ("value", "at_ns", "why"))
    value: Any = None
    if one["value"].value is not None:
        if name == "processes":
            value = tuple(_process(process) for process in _items(one["value"], MOST_ITEMS))
        elif name in _LISTS:
            value = tuple(_text(item) for item in _items(one["value"], MOST_ITEMS))
        elif name in _TEXTS:
            value = _text(one["value"])
        else:
            one["value"].number(MOST)
            value = one["value"].value
    return TelemetryReading(value, one["at_ns"].whole(0, _LONGEST_NS), _foreign_or_none(one["why"]))


def _process(node: Node) -> GpuProcess:
    one = _record(node, ("pid", "name", "memory_bytes"))
    memory = one["memory_bytes"]
    return GpuProcess(
        one["pid"].whole(0, MOST), _foreign(one["name"]), None if memory.value is None else memory.whole(0, MOST)
    )


# Values.


def _member(node: Node, key: str) -> Node:
    return node.some(key)[key]


def _optional(members: Mapping[str, Node], key: str) -> Sequence[Node]:
    return (members[key],) if key in members else ()


def _optional_items(members: Mapping[str, Node], key: str) -> Sequence[Node]:
    return _items(members[key], MOST_ITEMS) if key in members else ()


def _items(node: Node, most: int) -> list[Node]:
    found = node.items()
    if len(found) > most:
        raise node.wrong(f"has more than {most} items")
    return found


def _record(node: Node, names: Sequence[str]) -> dict[str, Node]:
    """The items of a list that has exactly one for each of ``names``, by name."""
    if type(node.value) is not list or len(node.value) != len(names):
        raise node.wrong(f"is not a list of {len(names)}: {', '.join(names)}")
    return {name: node.field(name, value) for name, value in zip(names, node.value, strict=True)}


def _integers(node: Node, limits: Mapping[str, tuple[int, int]]) -> tuple[int, ...]:
    """The items of a list that has exactly one integer for each of ``limits``, within it."""
    one = _record(node, tuple(limits))
    return tuple(each.whole(*limit) for each, limit in zip(one.values(), limits.values(), strict=True))


def _phase(node: Node) -> Phase:
    return _PHASES[node.one_of(_PHASES)]


def _text(node: Node) -> str:
    return node.text(LONGEST_TEXT)


def _text_of(members: Mapping[str, Node], key: str) -> str:
    return _text(members[key]) if key in members else ""


def _foreign(node: Node) -> str:
    """A string that comes from a driver or another program, cleaned: earlier versions recorded it as it was."""
    if type(node.value) is not str:
        raise node.wrong("is not a string")
    return _text(Node(clean(node.value), node.where))


def _foreign_or_none(node: Node) -> str | None:
    return None if node.value is None else _foreign(node)
