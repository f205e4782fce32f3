"""Reader of a recording's lines: probe sets, baselines, observations, traces; MalformedJson says where an error is.

A line with a right checksum may still have any content. What this module returns is consistent: the rest of the program
indexes channels, operations and probes without checks.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from stallprobes.catalog import SECOND_PROCESS
from stallprobes.engine.backend import ProbeFailure
from stallprobes.engine.snapshot import Snapshot
from stallprobes.errors import MalformedJson
from stallprobes.files.json_reader import Node, parse
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import MOST, Histogram
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.machine.gpus import GpuProcess
from stallprobes.machine.telemetry import FIELDS, STATES, TelemetryReading, TelemetrySnapshot
from stallprobes.model import (
    Channel,
    Op,
    Phase,
    Probe,
    Process,
    Program,
    Role,
    SlotGroup,
    Word,
)
from stallprobes.recording import recorded_snapshot
from stallprobes.recording import recorded_values as values
from stallprobes.recording.observation import (
    CUDA,
    HOST,
    SIM,
    EngineCondition,
    EngineStatus,
    GpuName,
    Observation,
    ProbeSet,
)
from stallprobes.recording.recording_format import BASELINES, LONGEST_TEXT, MOST_ITEMS, OBSERVATION, PROBE_SET, TRACE
from stallprobes.traces import codec
from stallprobes.traces.trace import Trace

# Largest values: 2286 in seconds since 1970, thirty years in seconds, 146 years in nanoseconds.
LATEST_S = 1e10
_LONGEST_S = 1e9
_WORD = 2**63 - 1
# A screen has at most 16 probes.
_MOST_PROBES = 64

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
    known = values.member(node, PROBE_SET).some(
        *("title", "probes", "backend", "gpu", "more_gpus", "facts", "pattern", "variant", "watch", "why_simulated")
    )
    labels = [values.text(one) for one in (known["gpu"], *known["more_gpus"].items(MOST_ITEMS))]
    probes = tuple(_probe(one) for one in known["probes"].items(_MOST_PROBES))
    if len({probe.name for probe in probes}) < len(probes):
        raise known["probes"].wrong("has a duplicate name")
    if sum(len(probe.program.channels()) for probe in probes) > recorded_snapshot.MOST_CHANNELS:
        raise known["probes"].wrong(f"has more than {recorded_snapshot.MOST_CHANNELS} channels")
    return ProbeSet(
        title=values.text(known["title"]),
        probes=probes,
        backend=known["backend"].one_of((CUDA, SIM, HOST)),
        gpus=tuple(GpuName.of_label(label) for label in labels if label),
        details=tuple(values.text(one) for one in known["facts"].items(MOST_ITEMS)),
        pattern=values.text(known["pattern"]),
        variant=values.text(known["variant"]),
        expect=values.text(known["watch"]),
        why_simulated=known["why_simulated"].text_or_none(LONGEST_TEXT),
    )


def read_baselines(node: Node, probe_set: ProbeSet) -> dict[str, Baseline]:
    """The baselines of a line by probe. Raises MalformedJson."""
    line, found = node.some(BASELINES, "windows", optional=("traced",)), {}
    traced = line["traced"].members() if "traced" in line else {}
    for name, node_of in line[BASELINES].members().items():
        probe = probe_set.probe(name)
        if probe is None:
            raise node_of.wrong("is not of a probe of the set")
        one = values.record(node_of, ("at", "channels"))
        at_ns, whole = one["at"].whole(0, values.LONGEST_NS), recorded_snapshot.read_histograms(one["channels"])
        held = values.member(line["windows"], name).some("ns", "shared", *map(str, PERCENTILES))
        percentiles: dict[Quantile, dict[Channel, Histogram]] = {
            quantile: recorded_snapshot.read_histograms(held[str(quantile)]) for quantile in PERCENTILES
        }
        if name in traced:
            more = traced[name].some("all", *map(str, PERCENTILES))
            recorded_snapshot.add_traced_histograms(whole, more["all"], probe)
            for quantile in PERCENTILES:
                recorded_snapshot.add_traced_histograms(percentiles[quantile], more[str(quantile)], probe)
        found[name] = Baseline(whole, percentiles, held["ns"].whole(0, values.LONGEST_NS), at_ns, held["shared"].flag())
    return found


def read_observation(node: Node, probe_set: ProbeSet, before: Snapshot | None) -> Observation:
    """The observation of a line. Its histograms are those of ``before`` and what was added; None counts from here.

    Raises MalformedJson.
    """
    optional = ("s", "nvml", "troubles", "held", "others", "blame", "timeline")
    known = values.member(node, OBSERVATION).some("w", "e", optional=optional)
    engine = values.record(known["e"], ("state", "age_s", "sentence"))
    state, sentence = engine["state"].choice(EngineCondition), values.text(engine["sentence"])
    return Observation(
        wall_s=known["w"].number(LATEST_S),
        probe_set=probe_set,
        engine=EngineStatus(state, engine["age_s"].number(_LONGEST_S), sentence),
        snapshot=recorded_snapshot.read_snapshot(known["s"], probe_set, before) if "s" in known else None,
        telemetry=read_telemetry(known["nvml"]) if "nvml" in known else None,
        probe_failures=tuple(_failure(one) for one in values.optional_items(known, "troubles")),
        waiting=frozenset(values.text(one) for one in values.optional_items(known, "held")),
        other_processes=tuple(values.text(one) for one in values.optional_items(known, "others")),
        experiment="blame" in known and known["blame"].flag(),
        timeline=_timeline(known["timeline"]) if "timeline" in known else False,
    )


def read_trace(node: Node) -> Trace:
    """The trace of a line. Raises MalformedJson."""
    return codec.read_trace(values.member(node, TRACE))


def _timeline(node: Node) -> bool | None:
    """Whether the timeline was on, None while it was being switched."""
    return None if node.value is None else node.flag()


def wall_s(value: object, kind: str = OBSERVATION) -> float:
    """``value`` as the time of an observation or trace, 1970 to 2286. Raises MalformedJson."""
    return Node(value, f"{kind}.w").number(LATEST_S)


# Probe sets.


def _probe(node: Node) -> Probe:
    """The probe without the arguments of its calls, which a view does not need."""
    keys = ("name", "title", "role", "entry", "context", "stream", "period_ns", "slot_group", "proof", "ops")
    known = node.some(*keys, optional=("baseline_period_ns",))
    ops = tuple(_op(one) for one in known["ops"].items(recorded_snapshot.MOST_OPS))
    title, stream, context = (values.text(known[key]) for key in ("title", "stream", "context"))
    second = context.partition(" of GPU ")[0].endswith(SECOND_PROCESS)
    return Probe(
        name=known["name"].name(),
        title=title,
        role=known["role"].choice(Role),
        program=Program(
            ops,
            context=None,
            proof=Word("proof") if known["proof"].flag() else None,
            process=Process.SECOND if second else Process.ENGINE,
        ),
        period_ns=known["period_ns"].whole(0, values.LONGEST_NS),
        baseline_period_ns=known["baseline_period_ns"].whole(0, values.LONGEST_NS)
        if "baseline_period_ns" in known
        else None,
        entry=values.text(known["entry"]),
        context=context,
        stream=stream,
        # The format has no short title: it follows from the title, as the catalogue composes it.
        short_title=_short_title(title, stream),
        slot_group=_slot_group(known["slot_group"]),
    )


def _op(node: Node) -> Op:
    one = values.record(node, ("fn", "phase", "label"))
    phase = None if one["phase"].value is None else one["phase"].choice(Phase)
    return Op(one["fn"].name(), phase=phase, label=values.text(one["label"]))


def _slot_group(node: Node) -> SlotGroup | None:
    if node.value is None:
        return None
    one = values.record(node, ("gpu", "group"))
    return one["gpu"].whole(0, MOST_ITEMS), values.text(one["group"])


def _short_title(title: str, stream: str) -> str:
    """``title`` without the stream if the probe has its own, else without the word "stream"."""
    suffix = f" · {stream} stream"
    if not title.endswith(suffix):
        return title
    return title[: -len(suffix)] + ("" if stream == "own" else f" · {stream}")


def _failure(node: Node) -> ProbeFailure:
    one = values.record(node, ("probe", "op", "code", "text", "fatal"))
    return ProbeFailure(
        values.text(one["probe"]),
        values.text(one["op"]),
        one["code"].whole(-_WORD - 1, _WORD),
        values.text(one["text"]),
        one["fatal"].flag(),
    )


def read_telemetry(node: Node) -> TelemetrySnapshot:
    """NVML's values. Raises MalformedJson."""
    known = node.some("uuid", "at", "state", "why", "r")
    recorded = known["r"].members()
    readings = {
        one.name: _reading(one.name, recorded[one.name]) if one.name in recorded else TelemetryReading()
        for one in FIELDS
    }
    return TelemetrySnapshot(
        uuid=values.text(known["uuid"]),
        at_ns=known["at"].whole(0, values.LONGEST_NS),
        state=known["state"].one_of(STATES),
        why=known["why"].text_or_none(LONGEST_TEXT),
        readings=MappingProxyType(readings),
    )


def _reading(name: str, node: Node) -> TelemetryReading:
    one = values.record(node, ("value", "at_ns", "why"))
    value: Any = None
    if one["value"].value is not None:
        if name == "processes":
            value = tuple(_process(process) for process in one["value"].items(MOST_ITEMS))
        elif name in _LISTS:
            value = tuple(values.text(item) for item in one["value"].items(MOST_ITEMS))
        elif name in _TEXTS:
            value = values.text(one["value"])
        else:
            one["value"].number(MOST)
            value = one["value"].value
    return TelemetryReading(value, one["at_ns"].whole(0, values.LONGEST_NS), one["why"].text_or_none(LONGEST_TEXT))


def _process(node: Node) -> GpuProcess:
    one = values.record(node, ("pid", "name", "memory_bytes"))
    memory = one["memory_bytes"]
    return GpuProcess(
        one["pid"].whole(0, MOST), values.text(one["name"]), None if memory.value is None else memory.whole(0, MOST)
    )
