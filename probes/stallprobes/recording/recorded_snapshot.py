"""Reader of the histograms and of the snapshot in a recording's lines; MalformedJson says where an error is."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from operator import ge
from typing import Any

from stallprobes.engine.snapshot import ProbeErrorCode, ProbeSnapshot, Snapshot
from stallprobes.files.json_reader import Node
from stallprobes.latency.histogram import LOWER, MOST, Histogram
from stallprobes.latency.window import NO_SAMPLES, InFlight
from stallprobes.model import TIMELINE_PHASES, Channel, Phase, Probe
from stallprobes.native.layouts.board import EngineState, ProbeState
from stallprobes.native.layouts.histogram import BUCKETS
from stallprobes.recording import recorded_values as values
from stallprobes.recording.observation import ProbeSet
from stallprobes.recording.recorded_values import LONGEST_NS

# A program has at most 18 operations and 12 channels.
MOST_OPS = 64
MOST_CHANNELS = 256
_WORD = 2**63 - 1

# Limits of integers that a list holds, by name and in their order.
_TIME = (0, LONGEST_NS)
_WORDS = {
    "state": (int(min(ProbeState)), int(max(ProbeState))),
    "on": (0, 1),
    "iterations": (0, MOST),
    "on_since_ns": _TIME,
    "heartbeat_ns": _TIME,
    "missed": (0, MOST),
    "proof": (-_WORD - 1, _WORD),
}
_IN_FLIGHT = {"op": (0, MOST_OPS), "since_ns": _TIME, "age_ns": _TIME, "due_ns": _TIME}
_ERROR = {"code": (-_WORD - 1, _WORD), "op": (-_WORD - 1, _WORD), "at_ns": _TIME}
_SLOT = dict.fromkeys(("allowed_ns", "not_alone_ns", "in_flight_ns"), (-(10**9), LONGEST_NS))
_POLL = {"polled_ns": _TIME, "pauses": _TIME}


def read_histograms(node: Node) -> dict[Channel, Histogram]:
    """Whole histograms by channel. Raises MalformedJson."""
    found: dict[Channel, Histogram] = {}
    for one in node.items(MOST_CHANNELS):
        record = values.record(one, ("phase", "label", "max_ns", "counts"))
        channel = Channel(record["phase"].choice(Phase), values.text(record["label"]))
        if channel in found:
            raise one.wrong("is a second histogram of its channel")
        found[channel] = _histogram(one, record["max_ns"].value, record["counts"].value, Histogram.empty())
    return found


def add_traced_histograms(histograms: dict[Channel, Histogram], node: Node, probe: Probe) -> None:
    """Add the whole histograms of channels of ``probe`` that the timeline fills. Raises MalformedJson."""
    labels = timeline_labels(probe)
    for one in node.items(len(TIMELINE_PHASES) * len(labels)):
        record = values.record(one, ("phase", "label", "max_ns", "counts"))
        channel = _traced_channel(one, record, probe, labels, histograms)
        histograms[channel] = _histogram(one, record["max_ns"].value, record["counts"].value, Histogram.empty())


def timeline_labels(probe: Probe) -> frozenset[str]:
    """The labels that channels of the timeline can have."""
    return frozenset(op.label for op in probe.program.ops) | {""}


def _traced_channel(
    node: Node, record: Mapping[str, Node], probe: Probe, labels: Collection[str], known: Collection[Channel]
) -> Channel:
    """The channel of a record: one that the timeline fills, and none of ``known``."""
    channel = Channel(record["phase"].choice(Phase), values.text(record["label"]))
    if channel.phase not in TIMELINE_PHASES or channel.label not in labels:
        raise node.wrong(f"is no channel of {probe.name} that the timeline fills")
    if channel in known:
        raise node.wrong("is a second histogram of its channel")
    return channel


def _histogram(node: Node, max_ns: Any, pairs: Any, before: Histogram) -> Histogram:
    """``before`` with the counts of ``pairs``: number of the bucket, count, and so on, ascending."""
    if type(max_ns) is not int or not before.max_ns <= max_ns <= LONGEST_NS:
        raise node.wrong(f"has a maximum that is not an integer from {before.max_ns} to {LONGEST_NS}")
    if type(pairs) is not list or len(pairs) % 2 or not set(map(type, pairs)) <= {int}:
        raise node.wrong("has counts that are not a list of pairs of integers")
    if not pairs:
        return before if max_ns == before.max_ns else Histogram.of_counts(before.counts, max_ns)
    buckets, counts = pairs[::2], pairs[1::2]
    if buckets[0] < 0 or buckets[-1] >= BUCKETS or any(map(ge, buckets, buckets[1:])):
        raise node.wrong(f"has buckets that do not ascend from 0 to {BUCKETS - 1}")
    if min(counts) < 1 or sum(counts) > MOST - before.count:
        raise node.wrong("has a count below 1, or counts above 2**53 in total")
    if max_ns < LOWER[buckets[-1]]:
        raise node.wrong("has a maximum below its highest bucket")
    return before.with_values(buckets, counts, max_ns)


def read_snapshot(node: Node, probe_set: ProbeSet, before: Snapshot | None) -> Snapshot:
    known = node.some("at", "state", "beat", "p", optional=("slots", "polls", "traced"))
    at_ns = known["at"].whole(0, LONGEST_NS)
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
    return Snapshot(at_ns, state, known["beat"].whole(0, LONGEST_NS), probes)


def _part(
    node: Node,
    probe: Probe,
    at_ns: int,
    before: ProbeSnapshot | None,
    slot: Node | None,
    poll: Node | None,
    traced: Node | None,
) -> ProbeSnapshot:
    one = values.record(node, ("words", "period_ns", "in_flight", "error", "channels", "first_ns"))
    state, on, iterations, on_since_ns, heartbeat_ns, missed, proof = values.integers(one["words"], _WORDS)
    if before is not None and (iterations < before.iterations or missed < before.missed):
        raise one["words"].wrong("has fewer iterations than the observation before")
    own = probe.program.channels()
    channels = _channels(one["channels"], probe, own, before)
    first_ns = _first_ns(one["first_ns"], own)
    more = _traced_channels(traced, probe, own, before)
    if more:
        assert traced is not None
        channels |= more
        first_ns |= _first_ns(values.record(traced, ("channels", "first_ns"))["first_ns"], more)
    allowed_ns, not_alone_ns, in_flight_ns = at_ns, 0, None
    if slot is not None:
        # A time counter that started since the clock was read shows a little less than nothing.
        allowed_ns, not_alone_ns, in_flight_ns = (max(value, 0) for value in values.integers(slot, _SLOT))
    polled_ns, pauses = (0, 0) if poll is None else values.integers(poll, _POLL)
    return ProbeSnapshot(
        name=probe.name,
        at_ns=at_ns,
        state=ProbeState(state),
        on=bool(on),
        iterations=iterations,
        on_since_ns=on_since_ns,
        heartbeat_ns=heartbeat_ns,
        in_flight=_in_flight(one["in_flight"], probe, at_ns, in_flight_ns),
        error=None if one["error"].value is None else ProbeErrorCode(*values.integers(one["error"], _ERROR)),
        missed=missed,
        proof=proof,
        period_ns=one["period_ns"].whole(0, LONGEST_NS),
        channels=channels,
        first_ns=first_ns,
        samples=NO_SAMPLES,
        sample_count=0,
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
        if type(record) is not list or len(record) != 4 or record[0] != channel.phase or record[1] != channel.label:
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
        labels = timeline_labels(probe)
        known = values.record(node, ("channels", "first_ns"))
        for one in known["channels"].items(len(TIMELINE_PHASES) * len(labels)):
            record = values.record(one, ("phase", "label", "max_ns", "counts"))
            channel = _traced_channel(one, record, probe, labels, {*own, *found})
            start = earlier.get(channel, Histogram.empty())
            found[channel] = _histogram(one, record["max_ns"].value, record["counts"].value, start)
    if not set(earlier) <= set(found):
        raise (Node(None, "traced") if node is None else node).wrong(
            f"lacks channels of {probe.name} that the observation before has"
        )
    return found


def _first_ns(node: Node, channels: Collection[Channel]) -> dict[Channel, int | None]:
    listed = node.listed()
    if len(listed) != len(channels):
        raise node.wrong(f"has {len(listed)} values, and the probe {len(channels)} channels")
    for number, value in enumerate(listed):
        if value is not None and not (type(value) is int and 0 <= value <= LONGEST_NS):
            node.item(number, value).whole(0, LONGEST_NS)
    return dict(zip(channels, listed, strict=True))


def _in_flight(node: Node, probe: Probe, at_ns: int, allowed_ns: int | None) -> InFlight | None:
    if node.value is None:
        return None
    op, since_ns, age_ns, due_ns = values.integers(node, _IN_FLIGHT)
    if op >= len(probe.program.ops):
        raise node.wrong(f"is of operation {op}, and the program of {probe.name} has {len(probe.program.ops)}")
    return InFlight(op, since_ns, age_ns, due_ns, at_ns - due_ns if allowed_ns is None else allowed_ns)
