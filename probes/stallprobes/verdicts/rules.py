"""Verdicts: rules that turn figures into sentences. A verdict is data first; its sentence says the same in words.

The rules hold two promises. A stall that is not there is not shown: a verdict needs enough calls, a difference that
is more than a clock's grain, and the machine's own noise must not explain it. A stall that is there is not hidden:
the middle and the tail are judged apart, each phase by itself, and calls that did not return count by their age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from stallprobes.catalog import cause, time_slice_cause
from stallprobes.latency.histogram import Histogram
from stallprobes.model import MS, Channel, Phase, Probe, Role
from stallprobes.units import duration, times

ENOUGH_CALLS = 20
STALLED = 3.0
SLOWER = 1.5
# Below these differences a ratio is a matter of a cache miss, not of a lock.
STALLED_NS = 2_000
SLOWER_NS = 1_000
TAIL_NS = 20_000
# The tail counts when at least this share of the calls, and this many, lie above three times the quiet p99.
TAIL_SHARE = 0.01
TAIL_CALLS = 3
# What part of a victim's excess the host control must have seen at the same time for the host to be its cause.
HOST_SHARE = 0.5
HIDDEN_NS = 100_000
HIDDEN_SHARE = 0.7
# Starved: fewer than 3 calls returned in half a second or more.
STARVED_CALLS = 3
STARVED_WINDOW_NS = 500 * MS
IN_FLIGHT_NS = 100 * MS

_PHASES = (Phase.CALL, Phase.WAIT, Phase.START)
_SEVERITY = ("quiet", "gpu-time", "overhead", "unsure", "slower", "host", "stalled", "starved", "failed")


@dataclass(frozen=True)
class Verdict:
    """One finding about one probe.

    ``kind``: quiet, slower, stalled, starved, unsure (slower than before, but just as slow once the aggressors were
    off again), host (the machine's own noise), gpu-time (host time that is really GPU time), overhead (host time that
    no GPU work explains), failed. ``quantile`` says which figure is compared: p50,
    p99 or in-flight (the age of a call that has not returned). Times are microseconds, None where there is none.
    """

    probe: str
    phase: Phase | None
    quantile: str
    quiet_us: float | None
    now_us: float | None
    ratio: float | None
    kind: str
    cause: str
    sentence: str
    helps: str


@dataclass(frozen=True)
class Seen:
    """What was seen of one probe: its histograms in each window of quiet and now, and a call that has not returned.

    The first window of ``quiet`` was before the aggressors were on, a later one after it.
    ``calls`` returned within ``window_ns``; ``in_flight_ns`` is the age of ``in_flight_op`` at its end, None for none.
    """

    probe: Probe
    channels: Mapping[Channel, Histogram]
    quiet: tuple[Mapping[Channel, Histogram], ...]
    calls: int
    window_ns: int
    in_flight_ns: int | None = None
    in_flight_op: str | None = None
    error: str | None = None

    @property
    def whole_quiet(self) -> Mapping[Channel, Histogram]:
        """The windows of quiet taken together."""
        whole: dict[Channel, Histogram] = {}
        for window in self.quiet:
            for channel, histogram in window.items():
                whole[channel] = whole[channel].merge(histogram) if channel in whole else histogram
        return whole

    def quiet_ns(self, channel: Channel, q: float) -> float | None:
        """The quiet percentile ``q`` (ns) to compare with: of the windows with enough calls the slower one.

        None when no window has enough calls.
        """
        enough = [
            window[channel] for window in self.quiet if channel in window and window[channel].count >= ENOUGH_CALLS
        ]
        return max((histogram.percentile(q) or 0.0 for histogram in enough), default=None)

    @property
    def starved(self) -> bool:
        """Fewer than 3 calls in half a second, although more were due."""
        if self.window_ns < STARVED_WINDOW_NS or self.probe.period_ns <= 0:
            return False
        half_seconds = self.window_ns / STARVED_WINDOW_NS
        due = STARVED_WINDOW_NS / self.probe.period_ns
        return self.calls < STARVED_CALLS * half_seconds and due > 2 * STARVED_CALLS


@dataclass(frozen=True)
class Scene:
    """All that ran together, by its part."""

    aggressors: Sequence[Seen]
    victims: Sequence[Seen]
    host: Seen | None


def severity(verdict: Verdict) -> int:
    """How bad a verdict is: 0 for quiet, more for worse."""
    return _SEVERITY.index(verdict.kind)


def judge(seen: Sequence[Seen]) -> tuple[Verdict, ...]:
    """The verdicts on all probes that ran together: for each victim and the host control at least one, worst first.

    A victim that is quiet gets one verdict that says so.
    """
    scene = Scene(
        aggressors=[one for one in seen if one.probe.role is Role.AGGRESSOR],
        victims=[one for one in seen if one.probe.role is Role.VICTIM],
        host=next((one for one in seen if one.probe.role is Role.HOST), None),
    )
    found: list[Verdict] = []
    for one in seen:
        if one.error is not None:
            found.append(_failed(one))
        elif one.probe.role is Role.AGGRESSOR:
            found.extend(_hidden(one))
        else:
            found.extend(_victim(one, scene))
    return tuple(sorted(found, key=severity, reverse=True))


def _failed(one: Seen) -> Verdict:
    return Verdict(one.probe.name, None, "p50", None, None, None, "failed", "", f"{one.probe.title}: {one.error}", "")


def _victim(one: Seen, scene: Scene) -> list[Verdict]:
    found = [_starved(one, scene)] if one.starved or (one.in_flight_ns or 0) >= IN_FLIGHT_NS else []
    for channel in _judged(one):
        verdict = _channel(one, channel, scene)
        if verdict is not None:
            found.append(verdict)
    return found or [_quiet(one)]


def _judged(one: Seen) -> list[Channel]:
    """The channels that are judged. Where a turn makes several calls, each by itself: their common histogram has a hump
    for each, and its median may fall on either from one window to the next."""
    found: list[Channel] = []
    for phase in _PHASES:
        labelled = [channel for channel in one.channels if channel.phase is phase and channel.label]
        found += labelled or [Channel(phase)] * (Channel(phase) in one.channels)
    return found


def _starved(one: Seen, scene: Scene) -> Verdict:
    why, helps = _because(one, scene)
    quiet_ns = one.quiet_ns(Channel(Phase.CALL), 50)
    age = one.in_flight_ns
    seconds = one.window_ns / 1e9
    returned = f"{one.calls} call{'' if one.calls == 1 else 's'} returned in {seconds:.1f} s"
    waiting = "" if age is None else f"; {one.in_flight_op} has been in flight for {duration(age / 1000)}"
    before = "" if quiet_ns is None else f", against {duration(quiet_ns / 1000)} a call in quiet"
    kind = "starved" if one.starved else "stalled"
    head = f"{one.probe.title}: {'starved, ' if one.starved else ''}{returned}{waiting}{before}"
    return Verdict(
        probe=one.probe.name,
        phase=Phase.CALL,
        quantile="in-flight",
        quiet_us=_us(quiet_ns),
        now_us=None if age is None else age / 1000,
        ratio=None if age is None or not quiet_ns else age / quiet_ns,
        kind=kind,
        cause=why,
        sentence=_sentence(f"{head}{_while(scene.aggressors)}.", why),
        helps=helps,
    )


def _channel(one: Seen, channel: Channel, scene: Scene) -> Verdict | None:
    """The verdict on one channel when it is not quiet."""
    found = _against(one, channel, scene)
    if found is not None or len(one.quiet) < 2:
        return found
    early = _against(replace(one, quiet=one.quiet[:1]), channel, scene)
    if early is None or early.kind == "host":
        return early
    why = "It was as slow when the aggressors were off again: this is drift, or something of theirs that lasts."
    head = early.sentence.removesuffix(early.cause).rstrip()
    return replace(early, kind="unsure", cause=why, sentence=f"{head} {why}", helps="Measure again, for longer.")


def _against(one: Seen, channel: Channel, scene: Scene) -> Verdict | None:
    """The verdict on one channel against the slower window of quiet: by its middle, or by its tail where that is worse.

    A middle within the quiet tail is never more than slower: a slow mode that quiet has too has become the usual one.
    """
    now, quiet_middle, quiet_tail = one.channels.get(channel), one.quiet_ns(channel, 50), one.quiet_ns(channel, 99)
    if now is None or not now.count or quiet_middle is None or quiet_tail is None:
        return None
    middle, before = now.percentile(50) or 0.0, max(quiet_middle, 1.0)
    slower = now.count >= TAIL_CALLS and middle >= SLOWER * before and middle - before >= SLOWER_NS
    if slower and middle >= STALLED * before and middle - before >= STALLED_NS and middle > quiet_tail:
        return _compare(one, channel, "p50", before, middle, "stalled", scene)
    tail, tail_before = now.percentile(99) or 0.0, max(quiet_tail, 1.0)
    border = max(STALLED * tail_before, tail_before + TAIL_NS)
    share = now.share_above(int(border))
    if share >= TAIL_SHARE and share * now.count >= TAIL_CALLS:
        return _compare(one, channel, "p99", tail_before, tail, "stalled", scene)
    return _compare(one, channel, "p50", before, middle, "slower", scene) if slower else None


def _compare(
    one: Seen,
    channel: Channel,
    quantile: str,
    quiet_ns: float,
    now_ns: float,
    kind: str,
    scene: Scene,
) -> Verdict:
    ratio = now_ns / quiet_ns
    change = f"{duration(quiet_ns / 1000)} → {duration(now_ns / 1000)} ({times(ratio)})"
    head = f"{one.probe.title}: {_words(channel)} {quantile} {change}"
    if one.probe.role is Role.HOST:
        kind, why = "host", "It makes no CUDA call: the machine itself was slower, not the driver."
        helps = "Look for other load on this machine, or measure again."
    elif scene.host is not None and _host_did_it(scene.host, quantile, now_ns - quiet_ns):
        kind, why = "host", "The host control, which makes no CUDA call, slowed down at the same time."
        helps = "Look for other load on this machine, or measure again."
    else:
        why, helps = _because(one, scene)
        head += _while(scene.aggressors)
    return Verdict(
        probe=one.probe.name,
        phase=channel.phase,
        quantile=quantile,
        quiet_us=_us(quiet_ns),
        now_us=_us(now_ns),
        ratio=ratio,
        kind=kind,
        cause=why,
        sentence=_sentence(f"{head}.", why),
        helps=helps,
    )


def _host_did_it(host: Seen, quantile: str, excess_ns: float) -> bool:
    q = 50.0 if quantile == "p50" else 99.0
    channel = Channel(Phase.CALL)
    now, quiet = host.channels.get(channel), host.quiet_ns(channel, q)
    if now is None or not now.count or quiet is None:
        return False
    return (now.percentile(q) or 0.0) - quiet >= HOST_SHARE * excess_ns


def _quiet(one: Seen) -> Verdict:
    channel = next(iter(_judged(one)), Channel(Phase.CALL))
    now_ns, quiet_ns = one.channels.get(channel, Histogram.empty()).percentile(50), one.quiet_ns(channel, 50)
    ratio = now_ns / quiet_ns if now_ns and quiet_ns else None
    if ratio is None:
        words = "too few calls to tell"
    else:
        words = f"quiet: {_words(channel)} p50 {_span(quiet_ns)} → {_span(now_ns)} ({times(ratio)})"
    return Verdict(
        probe=one.probe.name,
        phase=channel.phase,
        quantile="p50",
        quiet_us=_us(quiet_ns),
        now_us=_us(now_ns),
        ratio=ratio,
        kind="quiet",
        cause="",
        sentence=f"{one.probe.title}: {words}.",
        helps="",
    )


def _hidden(one: Seen) -> list[Verdict]:
    """Calls that take long on the host and little on the GPU, where events timed both."""
    found = []
    device = {
        channel.label: hist for channel, hist in one.channels.items() if channel.label and channel.phase is Phase.GPU
    }
    for label, on_gpu in device.items():
        on_host = one.channels.get(Channel(Phase.CALL, label))
        host_ns = None if on_host is None else on_host.percentile(50)
        gpu_ns = on_gpu.percentile(50)
        if host_ns is None or gpu_ns is None or host_ns < max(STALLED * gpu_ns, HIDDEN_NS):
            continue
        others = {name: hist.percentile(50) or 0.0 for name, hist in device.items() if name != label}
        longest = max(others, key=lambda name: others[name], default=None)
        explained = sum(others.values()) >= HIDDEN_SHARE * (host_ns - gpu_ns)
        head = (
            f"{one.probe.title}: {label} takes {duration(host_ns / 1000)} on the host, {duration(gpu_ns / 1000)} "
            "on the GPU"
        )
        if explained and longest is not None:
            why = (
                f"The host's time is the wait for the GPU work before it: {longest} takes "
                f"{duration(others[longest] / 1000)}."
            )
            helps = "Read back into pinned memory and wait once, or keep the scalar on the GPU."
        else:
            why = "No GPU work explains the host's time: it is the driver's own, such as loading code or new memory."
            helps = "Leave first calls out of a measurement, and make them before the critical part."
        found.append(
            Verdict(
                probe=one.probe.name,
                phase=Phase.CALL,
                quantile="p50",
                quiet_us=_us(gpu_ns),
                now_us=_us(host_ns),
                ratio=host_ns / max(gpu_ns, 1.0),
                kind="gpu-time" if explained else "overhead",
                cause=why,
                sentence=_sentence(f"{head}.", why),
                helps=helps,
            )
        )
    return found


def _because(one: Seen, scene: Scene) -> tuple[str, str]:
    for aggressor in scene.aggressors:
        known = cause(one.probe, aggressor.probe)
        if known is not None:
            return known.why, known.helps
    known = time_slice_cause(one.probe, [other.probe for other in scene.victims]) if scene.aggressors else None
    if known is not None:
        return known.why, known.helps
    if scene.aggressors:
        return "The catalogue knows no reason for this pair.", "Compare with another driver, and tell its maker."
    return "No aggressor was on.", "Measure quiet again."


def _while(aggressors: Sequence[Seen]) -> str:
    titles = " and ".join(f"“{one.probe.title}”" for one in aggressors)
    return f" while {titles} {'run' if len(aggressors) > 1 else 'runs'}" if aggressors else ""


def _words(channel: Channel) -> str:
    return f"{channel.phase} of {channel.label}" if channel.label else str(channel.phase)


def _sentence(head: str, why: str) -> str:
    return f"{head} {why}" if why else head


def _us(ns: float | None) -> float | None:
    return None if ns is None else ns / 1000


def _span(ns: float | None) -> str:
    return duration(_us(ns))
