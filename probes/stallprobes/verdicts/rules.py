"""The rules that turn windows into verdicts.

The rules hold two promises. A stall that is not there is not shown: a verdict needs enough calls and a difference above
the resolution of the clock that the machine's own noise does not explain. A stall that is there is not hidden: the
median and the tail are judged separately, each phase by itself, and a call in flight counts by its age.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from stallprobes.catalog import explanation
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import BaselineRatio, Quantile, phase_channels
from stallprobes.latency.sparse import merged
from stallprobes.latency.window import ChannelMap, Window
from stallprobes.model import JUDGED_PHASES, MS, Channel, Phase, Probe, Role, op_name
from stallprobes.units import duration, times
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

ENOUGH_CALLS = 20
STALLED = 3.0
SLOWER = 1.5
# Below these differences a ratio is due to a cache miss, not to a lock.
STALLED_NS = 2_000
SLOWER_NS = 1_000
TAIL_NS = 20_000
# The tail counts when at least this share of the calls, and this many, lie above three times the baseline's p99.
TAIL_SHARE = 0.01
TAIL_CALLS = 3
# The share of a victim's excess that the host control must show at the same time for the host to be its cause.
HOST_SHARE = 0.5
HIDDEN_NS = 100_000
HIDDEN_SHARE = 0.7
# Starved: fewer than 3 calls returned in half a second or more.
STARVED_CALLS = 3
STARVED_WINDOW_NS = 500 * MS
IN_FLIGHT_NS = 100 * MS

_CALL = Channel(Phase.CALL)


@dataclass(frozen=True, eq=False)
class Evidence:
    """What is known of one probe: its window, its baselines and its error.

    The first baseline was measured before the aggressors ran, a later one after them. ``error`` is a sentence where a
    call failed.
    """

    probe: Probe
    window: Window
    baselines: tuple[ChannelMap, ...] = ()
    error: str | None = None

    @cached_property
    def baseline(self) -> ChannelMap:
        """The sum of the baselines."""
        return merged(self.baselines)

    def baseline_ns(self, channel: Channel, quantile: Quantile) -> float | None:
        """The percentile to compare with in ns: that of the slower baseline with enough calls, None where none has."""
        enough = [one[channel] for one in self.baselines if channel in one and one[channel].count >= ENOUGH_CALLS]
        return max((histogram.percentile(quantile.percent) or 0.0 for histogram in enough), default=None)

    @property
    def in_flight_op(self) -> str | None:
        """The op of the call in flight, None without one."""
        flight = self.window.in_flight
        return None if flight is None else op_name(self.probe.program.ops[flight.op])

    @property
    def starved(self) -> bool:
        """Whether fewer than 3 calls returned in half a second although more were due."""
        window = self.window
        if window.duration_ns < STARVED_WINDOW_NS or window.period_ns <= 0:
            return False
        half_seconds = window.duration_ns / STARVED_WINDOW_NS
        due = STARVED_WINDOW_NS / window.period_ns
        return window.iterations < STARVED_CALLS * half_seconds and due > 2 * STARVED_CALLS


@dataclass(frozen=True)
class Scene:
    """The evidence on all probes that ran together, by role."""

    aggressors: Sequence[Evidence]
    victims: Sequence[Evidence]
    host: Evidence | None


def judge(evidence: Sequence[Evidence]) -> tuple[Verdict, ...]:
    """The verdicts on all probes that ran together, the most severe first.

    Each victim and the host control has at least one, of the kind quiet where nothing else is found.
    """
    scene = Scene(
        aggressors=[one for one in evidence if one.probe.role is Role.AGGRESSOR],
        victims=[one for one in evidence if one.probe.role is Role.VICTIM],
        host=next((one for one in evidence if one.probe.role is Role.HOST), None),
    )
    found: list[Verdict] = []
    for one in evidence:
        if one.error is not None:
            found.append(_failed(one))
        elif one.probe.role is Role.AGGRESSOR:
            found.extend(_hidden(one))
        else:
            found.extend(_victim(one, scene))
    return tuple(sorted(found, key=lambda verdict: verdict.kind.severity, reverse=True))


def _failed(one: Evidence) -> Verdict:
    return Verdict(
        probe=one.probe.name,
        phase=None,
        quantile=Quantile.P50,
        baseline_ns=None,
        now_ns=None,
        ratio=None,
        kind=VerdictKind.FAILED,
        head=f"{one.probe.title}: {one.error}",
    )


def _victim(one: Evidence, scene: Scene) -> list[Verdict]:
    flight = one.window.in_flight
    stuck = one.starved or (flight is not None and flight.age_ns >= IN_FLIGHT_NS)
    found = [_starved(one, scene)] if stuck else []
    for channel in _judged_channels(one):
        verdict = _channel(one, channel, scene)
        if verdict is not None:
            found.append(verdict)
    return found or [_quiet(one)]


def _judged_channels(one: Evidence) -> list[Channel]:
    channels = one.window.channels
    return [channel for phase in JUDGED_PHASES for channel in phase_channels(channels, phase) if channel in channels]


def _starved(one: Evidence, scene: Scene) -> Verdict:
    why, remedy = _because(one, scene)
    window, flight, starved = one.window, one.window.in_flight, one.starved
    baseline_ns = one.baseline_ns(_CALL, Quantile.P50)
    returned = f"{window.iterations} call{'' if window.iterations == 1 else 's'} returned in {window.seconds:.1f} s"
    waiting = "" if flight is None else f"; {one.in_flight_op} has been in flight for {duration(flight.age_ns / 1000)}"
    before = "" if baseline_ns is None else f", baseline {duration(baseline_ns / 1000)} per call"
    head = f"{one.probe.title}: {'starved, ' if starved else ''}{returned}{waiting}{before}"
    return Verdict(
        probe=one.probe.name,
        phase=Phase.CALL,
        quantile=Quantile.IN_FLIGHT,
        baseline_ns=baseline_ns,
        now_ns=None if flight is None else flight.age_ns,
        ratio=None if flight is None or not baseline_ns else flight.age_ns / baseline_ns,
        kind=VerdictKind.STARVED if starved else VerdictKind.STALLED,
        head=f"{head}{_while(scene.aggressors)}.",
        cause=why,
        remedy=remedy,
    )


def _channel(one: Evidence, channel: Channel, scene: Scene) -> Verdict | None:
    """The verdict on one channel, None where it is quiet."""
    found = _against(one, channel, scene)
    if found is not None or len(one.baselines) < 2:
        return found
    early = _against(replace(one, baselines=one.baselines[:1]), channel, scene)
    if early is None or early.kind is VerdictKind.HOST:
        return early
    return replace(
        early,
        kind=VerdictKind.DRIFT,
        cause="It was as slow after the aggressors stopped: drift, or a lasting effect of the aggressors.",
        remedy="Measure again, for longer.",
    )


def _against(one: Evidence, channel: Channel, scene: Scene) -> Verdict | None:
    """The verdict on one channel against the slower baseline: by its median, or by its tail where that is worse.

    A median within the baseline's tail is never more than slower: a slow mode that the baseline has too became the
    usual one.
    """
    now = one.window.channels.get(channel)
    baseline_p50, baseline_p99 = one.baseline_ns(channel, Quantile.P50), one.baseline_ns(channel, Quantile.P99)
    if now is None or not now.count or baseline_p50 is None or baseline_p99 is None:
        return None
    median = BaselineRatio(channel, Quantile.P50, max(baseline_p50, 1.0), now.percentile(50) or 0.0)
    excess = median.now_ns - median.baseline_ns
    slower = now.count >= TAIL_CALLS and median.now_ns >= SLOWER * median.baseline_ns and excess >= SLOWER_NS
    stalled = slower and median.now_ns >= STALLED * median.baseline_ns and excess >= STALLED_NS
    if stalled and median.now_ns > baseline_p99:
        return _slow(one, median, VerdictKind.STALLED, scene)
    tail = BaselineRatio(channel, Quantile.P99, max(baseline_p99, 1.0), now.percentile(99) or 0.0)
    limit = max(STALLED * tail.baseline_ns, tail.baseline_ns + TAIL_NS)
    share = now.share_above(int(limit))
    if share >= TAIL_SHARE and share * now.count >= TAIL_CALLS:
        return _slow(one, tail, VerdictKind.STALLED, scene)
    return _slow(one, median, VerdictKind.SLOWER, scene) if slower else None


def _slow(one: Evidence, figure: BaselineRatio, kind: VerdictKind, scene: Scene) -> Verdict:
    change = (
        f"{duration(figure.baseline_ns / 1000)} → {duration(figure.now_ns / 1000)} "
        f"({times(figure.now_ns / figure.baseline_ns)})"
    )
    head = f"{one.probe.title}: {_name(figure.channel)} {figure.quantile} {change}"
    if one.probe.role is Role.HOST:
        kind, why = VerdictKind.HOST, "It makes no CUDA call: the machine itself was slower, not the driver."
        remedy = "Look for other load on this machine, or measure again."
    elif scene.host is not None and _host_explains(scene.host, figure):
        kind, why = VerdictKind.HOST, "The host control, which makes no CUDA call, slowed down at the same time."
        remedy = "Look for other load on this machine, or measure again."
    else:
        why, remedy = _because(one, scene)
        head += _while(scene.aggressors)
    return Verdict(
        probe=one.probe.name,
        phase=figure.channel.phase,
        quantile=figure.quantile,
        baseline_ns=figure.baseline_ns,
        now_ns=figure.now_ns,
        ratio=figure.now_ns / figure.baseline_ns,
        kind=kind,
        head=f"{head}.",
        cause=why,
        remedy=remedy,
    )


def _host_explains(host: Evidence, figure: BaselineRatio) -> bool:
    """Whether the host control slowed down by a good part of the victim's excess at the same percentile."""
    now, baseline_ns = host.window.channels.get(_CALL), host.baseline_ns(_CALL, figure.quantile)
    if now is None or not now.count or baseline_ns is None:
        return False
    excess = (now.percentile(figure.quantile.percent) or 0.0) - baseline_ns
    return excess >= HOST_SHARE * (figure.now_ns - figure.baseline_ns)


def _quiet(one: Evidence) -> Verdict:
    channel = next(iter(_judged_channels(one)), _CALL)
    now_ns = one.window.channels.get(channel, Histogram.empty()).percentile(50)
    baseline_ns = one.baseline_ns(channel, Quantile.P50)
    ratio = now_ns / baseline_ns if now_ns and baseline_ns else None
    if ratio is None:
        words = "too few calls to judge"
    else:
        change = f"{_duration(baseline_ns)} → {_duration(now_ns)} ({times(ratio)})"
        words = f"quiet: {_name(channel)} p50 {change}"
    return Verdict(
        probe=one.probe.name,
        phase=channel.phase,
        quantile=Quantile.P50,
        baseline_ns=baseline_ns,
        now_ns=now_ns,
        ratio=ratio,
        kind=VerdictKind.QUIET,
        head=f"{one.probe.title}: {words}.",
    )


def _hidden(one: Evidence) -> list[Verdict]:
    """The verdicts on calls that take long on the host and little on the GPU, where events timed both."""
    found = []
    channels = one.window.channels
    device = {
        channel.label: histogram
        for channel, histogram in channels.items()
        if channel.label and channel.phase is Phase.GPU
    }
    for label, on_gpu in device.items():
        on_host = channels.get(Channel(Phase.CALL, label))
        host_ns = None if on_host is None else on_host.percentile(50)
        gpu_ns = on_gpu.percentile(50)
        if host_ns is None or gpu_ns is None or host_ns < max(STALLED * gpu_ns, HIDDEN_NS):
            continue
        others = {name: histogram.percentile(50) or 0.0 for name, histogram in device.items() if name != label}
        longest = max(others, key=lambda name: others[name], default=None)
        explained = sum(others.values()) >= HIDDEN_SHARE * (host_ns - gpu_ns)
        if explained and longest is not None:
            why = (
                f"The host time is the wait for the GPU work before it: {longest} takes "
                f"{duration(others[longest] / 1000)}."
            )
            remedy = "Read back into pinned memory and wait once, or keep the scalar on the GPU."
        else:
            why = "No GPU work explains the host time: the driver spends it, such as on loading code or new memory."
            remedy = "Leave first calls out of a measurement, and make them before the critical part."
        found.append(
            Verdict(
                probe=one.probe.name,
                phase=Phase.CALL,
                quantile=Quantile.P50,
                baseline_ns=gpu_ns,
                now_ns=host_ns,
                ratio=host_ns / max(gpu_ns, 1.0),
                kind=VerdictKind.GPU_TIME if explained else VerdictKind.OVERHEAD,
                head=f"{one.probe.title}: {label} takes {duration(host_ns / 1000)} on the host, "
                f"{duration(gpu_ns / 1000)} on the GPU.",
                cause=why,
                remedy=remedy,
            )
        )
    return found


def _because(one: Evidence, scene: Scene) -> tuple[str, str]:
    known = explanation(
        one.probe, [other.probe for other in scene.aggressors], [other.probe for other in scene.victims]
    )
    return known.why, known.remedy


def _while(aggressors: Sequence[Evidence]) -> str:
    titles = " and ".join(f"“{one.probe.title}”" for one in aggressors)
    return f" while {titles} {'run' if len(aggressors) > 1 else 'runs'}" if aggressors else ""


def _name(channel: Channel) -> str:
    return f"{channel.phase} of {channel.label}" if channel.label else str(channel.phase)


def _duration(ns: float | None) -> str:
    return duration(None if ns is None else ns / 1000)
