"""Rules that derive verdicts from windows.

Against false stalls, a verdict needs enough calls and a difference that exceeds the resolution of the clock, the
slowdown of the host control, and the spread of the baseline where that is known. Against missed stalls, median and tail
are judged separately, as is each phase, and a call in flight counts with its age.

Without an aggressor nothing is slower: the machine is unsteady. A stall stays possible then, by a larger excess, and
its cause names the other processes that NVML lists.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from stallprobes.latency.baseline import ENOUGH_CALLS
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import BaselineRatio, Quantile, phase_channels
from stallprobes.model import JUDGED_PHASES, US, Channel, Phase, Role, Source
from stallprobes.units import duration_ns, range_ns, times
from stallprobes.verdicts.candidates import EffectsSource, no_effects
from stallprobes.verdicts.evidence import SLOWER, SLOWER_NS, STALLED, STALLED_NS, TAIL_NS, Evidence, EvidenceByRole
from stallprobes.verdicts.explanations import after_idle, explained, host_noise, of_calls, while_running
from stallprobes.verdicts.kinds import IN_FLIGHT_NS, VerdictKind
from stallprobes.verdicts.start import gpu_clause, least_baseline_ns, reported_change, without_starts_of_waits
from stallprobes.verdicts.verdict import Proof, Verdict

# Smallest share of slow calls among the calls of a window for the verdict that the tail stalls. A slow call takes at
# least three times the baseline's p99, and at least TAIL_NS more than the p99 (ALONE_TAIL_NS without an aggressor).
TAIL_SHARE = 0.01
# Smallest number of slow calls in a window for the verdict that the tail stalls. A verdict on the median needs at least
# as many calls in the window, slow or not.
TAIL_CALLS = 3
# The host control is a probe without CUDA calls. If the host control's delay is at least this share of a victim's
# delay, the machine is the cause. A smaller delay of the host control does not explain the victim's delay. Delays are
# compared by excess over the baseline, by share of slow calls, or by a single call's duration.
HOST_SHARE = 0.5
# If a victim has at most PAUSE_FACTOR times the expected number of slow calls, plus TAIL_CALLS, the machine is the
# cause of the slow calls. The expected number follows from the times in which the victim's thread loses its CPU while
# the thread polls the clock.
PAUSE_FACTOR = 3
# Smallest median host time (ns) of a call for the verdict that the host time is much longer than the call's own GPU
# time. The call then waits for earlier GPU work, or the driver takes the time.
HIDDEN_NS = 100_000
# Smallest share of a call's hidden time (host time minus the call's own GPU time, see HIDDEN_NS) that earlier GPU work
# must take to be the cause. With a smaller share, the driver is the cause.
HIDDEN_SHARE = 0.7
# Shortest median wait (ns) of a victim that waits for the change-over, the switch of the GPU from another context. On
# an H200 without other work, a wait takes 140 us with the change-over and 5 us without the change-over. The limit is
# for the wait that the host sees, not for the gap in CUPTI's records (see LONGEST_CHANGE_NS in traces/delay.py).
_SHORTEST_CHANGE_NS = 100 * US
# Longest median wait (ns) of a victim that waits for the change-over. Other GPUs than the H200 are assumed to be
# between _SHORTEST_CHANGE_NS and this limit.
_LONGEST_CHANGE_NS = 400 * US
# Largest ratio between the median waits of two victims on a GPU if both wait for the change-over. With a larger ratio
# between any two of the victims, no change-over is reported. Reason: the change-over takes the same time for each
# victim. The waits differ only by the victims' own work.
_MOST_UNEQUAL = 1.25

# Cause of the verdict "drift", with its short form.
DRIFT_CAUSE = (
    "It was as slow after the aggressors stopped: drift, or a persistent effect of the aggressors.",
    "as slow after the aggressors stopped: drift, or a lasting effect",
)
# Cause of the verdict "unsteady", with its short form, if the baseline has already varied by as much.
UNSTEADY_CAUSE = (
    "The baseline of this machine varies by as much between windows, with no aggressor running.",
    "the baseline of this machine varies by as much",
)
# Cause of the verdict "unsteady", with its short form, if the baseline has too few windows. No known window of the
# baseline was as slow as the window with aggressors. Further windows without aggressors might be as slow.
TOO_SHORT_CAUSE = (
    "A longer measurement is needed to tell this from the variation of this machine between windows.",
    "a longer measurement tells it from the machine's own variation",
)

# 90th percentile of the standard normal distribution. The percentile is used for the smallest ratio to the baseline
# that would get a verdict in nine of ten windows.
_Z90 = 1.282

# Channels (kinds of latency): the time inside a call, and the wait for the call's GPU work.
_CALL, _WAIT = Channel(Phase.CALL), Channel(Phase.WAIT)


def judge(
    evidence: Sequence[Evidence], others: tuple[str, ...] | None = None, effects: EffectsSource = no_effects
) -> tuple[Verdict, ...]:
    """Verdicts on all probes that ran at the same time, the most severe first.

    Each victim and the host control has at least one verdict; its kind is quiet if no rule applies. ``others`` are the
    other processes on the GPU, None if unknown; ``effects`` returns those of single aggressors by recorded checks.
    """
    by_role = EvidenceByRole(
        aggressors=[probe_evidence for probe_evidence in evidence if probe_evidence.probe.role is Role.AGGRESSOR],
        victims=[probe_evidence for probe_evidence in evidence if probe_evidence.probe.role is Role.VICTIM],
        host=next((probe_evidence for probe_evidence in evidence if probe_evidence.probe.role is Role.HOST), None),
        others=others,
        effects=effects,
    )
    verdicts: list[Verdict] = []
    for probe_evidence in evidence:
        if probe_evidence.error is not None:
            verdicts.append(_failed(probe_evidence))
        elif probe_evidence.probe.role is Role.AGGRESSOR:
            verdicts.extend(_host_time(probe_evidence))
        else:
            verdicts.extend(_victim(probe_evidence, by_role))
    verdicts.extend(_change_overs(by_role.victims, alone=not by_role.aggressors))
    return tuple(sorted(verdicts, key=lambda verdict: verdict.kind.severity, reverse=True))


def _failed(evidence: Evidence) -> Verdict:
    return Verdict(
        probe=evidence.probe.name,
        phase=None,
        quantile=Quantile.P50,
        baseline_ns=None,
        now_ns=None,
        ratio=None,
        kind=VerdictKind.FAILED,
        head=f"{evidence.probe.name}: {evidence.error}",
    )


def _victim(evidence: Evidence, by_role: EvidenceByRole) -> list[Verdict]:
    flight = evidence.window.in_flight
    stuck = evidence.starved or (flight is not None and flight.age_ns >= IN_FLIGHT_NS)
    verdicts = [_starved(evidence, by_role)] if stuck else []
    for channel in _judged_channels(evidence):
        verdict = _channel(evidence, channel, by_role)
        if verdict is not None:
            verdicts.append(verdict)
    verdicts = without_starts_of_waits(verdicts)
    if not verdicts and by_role.alone(evidence):
        unsteady = _unsteady(evidence)
        verdicts = [] if unsteady is None else [unsteady]
    return verdicts or [_quiet(evidence)]


def _judged_channels(evidence: Evidence) -> list[Channel]:
    channels = evidence.window.channels
    return [channel for phase in JUDGED_PHASES for channel in phase_channels(channels, phase) if channel in channels]


def _starved(evidence: Evidence, by_role: EvidenceByRole) -> Verdict:
    window, flight, starved = evidence.window, evidence.window.in_flight, evidence.starved
    baseline_ns = evidence.baseline_ns(_CALL, Quantile.P50)
    returned = f"{window.iterations} call{'' if window.iterations == 1 else 's'} returned in {window.seconds:.1f} s"
    waiting = "" if flight is None else f"; {evidence.in_flight_op} has been in flight for {duration_ns(flight.age_ns)}"
    before = "" if baseline_ns is None else f", baseline {duration_ns(baseline_ns)} per call"
    head = f"{evidence.probe.name}: {'starved, ' if starved else ''}{returned}{waiting}{before}"
    kind = VerdictKind.STARVED if starved else VerdictKind.STALLED
    if evidence.probe.role is Role.HOST or (by_role.host is not None and _host_paused(by_role.host, evidence)):
        kind, reason = VerdictKind.HOST, host_noise(evidence)
    else:
        phase = None if flight is None else evidence.probe.program.ops[flight.op].phase
        reason = explained(
            evidence, by_role, phase, None if flight is None else flight.age_ns / max(baseline_ns or 0, 1.0)
        )
        head += while_running(by_role.aggressors)
    return Verdict(
        probe=evidence.probe.name,
        phase=Phase.CALL,
        quantile=Quantile.IN_FLIGHT,
        baseline_ns=baseline_ns,
        now_ns=None if flight is None else flight.age_ns,
        ratio=None if flight is None or not baseline_ns else flight.age_ns / baseline_ns,
        kind=kind,
        head=f"{head}.",
        **reason._asdict(),
    )


def _channel(evidence: Evidence, channel: Channel, by_role: EvidenceByRole) -> Verdict | None:
    """The verdict on one channel, None if it is quiet."""
    verdict = _compared(evidence, channel, by_role)
    if verdict is not None or len(evidence.baselines) < 2:
        return verdict
    # The windows include windows after the aggressors.
    early = _compared(replace(evidence, baselines=evidence.baselines[:1], variation=None), channel, by_role)
    if early is None or early.kind is VerdictKind.HOST:
        return early
    after = replace(evidence, baselines=evidence.baselines[1:], variation=None)
    if _compared(after, channel, by_role) is None and _as_slow(after, channel, early):
        return without_remedy(early, VerdictKind.DRIFT, *DRIFT_CAUSE)
    known = None if evidence.variation is None else evidence.variation.range_ns(channel, early.quantile)
    varies = known is not None and early.now_ns is not None and known[1] >= early.now_ns
    return without_remedy(early, VerdictKind.UNSTEADY, *(UNSTEADY_CAUSE if varies else TOO_SHORT_CAUSE))


def without_remedy(verdict: Verdict, kind: VerdictKind, cause: str, short_cause: str) -> Verdict:
    """``verdict`` as one of ``kind`` with the cause in two lengths, which names no aggressor and has no remedy."""
    return verdict.changed(
        kind=kind,
        cause=cause,
        short_cause=short_cause,
        remedy="",
        short_remedy="",
        proof=Proof.NONE,
        aggressors=(),
    )


def _as_slow(after: Evidence, channel: Channel, early: Verdict) -> bool:
    """True if the baseline after the aggressors is nearer to the time with them than to the baseline before them."""
    after_ns = after.baseline_ns(channel, early.quantile)
    if after_ns is None or early.now_ns is None or early.baseline_ns is None:
        return True
    return after_ns**2 >= max(early.baseline_ns, 1.0) * early.now_ns


def _compared(evidence: Evidence, channel: Channel, by_role: EvidenceByRole) -> Verdict | None:
    """The verdict on one channel compared with the slower baseline: by median, or by tail if that is worse.

    A median up to the baseline's p99 (p95 after idle times), or to 1.5 times its highest window, is slower, never
    stalled: a slow mode that the baseline has too became the usual one. Without an aggressor a stall takes the excess
    of a tail, and nothing is slower.
    """
    alone = by_role.alone(evidence)
    now, slower_ns, tail_ns = (
        evidence.now(channel),
        evidence.slower_ns(channel),
        evidence.tail_ns(channel, alone=alone),
    )
    baseline_p50, baseline_p99 = evidence.median_ns(channel), evidence.baseline_ns(channel, Quantile.P99)
    rare_ns = evidence.rare_ns(channel)
    if now is None or not now.count or baseline_p50 is None or baseline_p99 is None or rare_ns is None:
        return None
    assert slower_ns is not None
    assert tail_ns is not None
    least_baseline = least_baseline_ns(channel.phase)
    median = BaselineRatio(channel, Quantile.P50, max(baseline_p50, least_baseline), now.percentile(50) or 0.0)
    known = None if evidence.variation is None else evidence.variation.range_ns(channel, Quantile.P50)
    usual = max(rare_ns, slower_ns if alone else 0.0, 0.0 if known is None else SLOWER * known[1])
    excess = median.now_ns - median.baseline_ns
    least = TAIL_NS if alone else STALLED_NS
    enough = now.count >= TAIL_CALLS
    if enough and median.ratio >= STALLED and excess >= least and median.now_ns > usual:
        return _slowdown(evidence, median, VerdictKind.STALLED, by_role)
    tail = BaselineRatio(channel, Quantile.P99, max(baseline_p99, least_baseline), now.percentile(99) or 0.0)
    share = now.share_above(int(tail_ns))
    if share >= TAIL_SHARE and share * now.count >= TAIL_CALLS:
        return _slowdown(evidence, tail, VerdictKind.STALLED, by_role)
    if enough and median.now_ns >= slower_ns and not alone:
        return _slowdown(evidence, median, VerdictKind.SLOWER, by_role)
    return None


def _unsteady(evidence: Evidence) -> Verdict | None:
    """The verdict that the median of a channel varies by ×1.5 or more without an aggressor; None if none does."""
    verdicts: list[Verdict] = []
    for channel in _judged_channels(evidence):
        if not channel.phase.traits.host:
            # A start varies by as much as the wait that contains it, and is near 0.
            continue
        known, now = evidence.range_ns(channel, Quantile.P50), evidence.now(channel)
        now_ns = None if now is None else now.percentile_or_none(50, ENOUGH_CALLS)
        baseline_ns = evidence.baseline_ns(channel, Quantile.P50)
        if known is None or now_ns is None or baseline_ns is None:
            continue
        if evidence.variation is None and now_ns < max(SLOWER * baseline_ns, baseline_ns + SLOWER_NS):
            continue
        low, high = min(known[0], now_ns), max(known[1], now_ns)
        if high < SLOWER * low or high < low + SLOWER_NS:
            continue
        words = f"{channel.in_sentence} p50 {range_ns(low, high)} on this machine"
        verdicts.append(
            Verdict(
                probe=evidence.probe.name,
                phase=channel.phase,
                quantile=Quantile.P50,
                baseline_ns=baseline_ns,
                now_ns=now_ns,
                ratio=now_ns / max(baseline_ns, 1.0),
                kind=VerdictKind.UNSTEADY,
                head=f"{evidence.probe.name}: {words}, a factor of {high / max(low, 1.0):.1f}.",
                cause="No aggressor ran: the machine itself varies by as much.",
                short_cause="no aggressor ran: the machine itself varies by as much",
                range_ns=(low, high),
                detectable=_detectable(evidence, channel, Quantile.P50),
            )
        )
    return max(verdicts, key=_width, default=None)


def _width(verdict: Verdict) -> float:
    low, high = verdict.range_ns or (1.0, 1.0)
    return high / max(low, 1.0)


def _detectable(evidence: Evidence, channel: Channel, quantile: Quantile, *, alone: bool = False) -> float | None:
    """The smallest ratio of the percentile that is a verdict in nine of ten windows; None without a baseline."""
    baseline_ns = evidence.baseline_ns(channel, quantile)
    least_ns = evidence.slower_ns(channel) if quantile is Quantile.P50 else evidence.tail_ns(channel, alone=alone)
    if baseline_ns is None or least_ns is None:
        return None
    deviation = 0.0 if evidence.variation is None else evidence.variation.deviation(channel, quantile)
    return least_ns / max(baseline_ns, least_baseline_ns(channel.phase)) * math.exp(_Z90 * deviation)


def _slowdown(evidence: Evidence, figure: BaselineRatio, kind: VerdictKind, by_role: EvidenceByRole) -> Verdict:
    change, baseline_ns, ratio = reported_change(evidence, figure)
    head = (
        f"{evidence.probe.name}: {figure.channel.in_sentence} {figure.quantile} {change}{gpu_clause(evidence, figure)}"
    )
    if (
        evidence.probe.role is Role.HOST
        or _pauses_explain(evidence, figure)
        or _host_explains(by_role, evidence, figure)
    ):
        kind, reason = VerdictKind.HOST, host_noise(evidence)
    else:
        reason = explained(evidence, by_role, figure.channel.phase, figure.ratio)
        head += after_idle(evidence) + of_calls(evidence) + while_running(by_role.aggressors)
    return Verdict(
        probe=evidence.probe.name,
        phase=figure.channel.phase,
        quantile=figure.quantile,
        baseline_ns=baseline_ns,
        now_ns=figure.now_ns,
        ratio=ratio,
        kind=kind,
        head=f"{head}.",
        **reason._asdict(),
        range_ns=None if evidence.variation is None else evidence.variation.range_ns(figure.channel, figure.quantile),
        detectable=None
        if ratio is None
        else _detectable(evidence, figure.channel, figure.quantile, alone=by_role.alone(evidence)),
        label=figure.channel.label,
    )


def _host_explains(by_role: EvidenceByRole, evidence: Evidence, figure: BaselineRatio) -> bool:
    """True if the host control slowed down by at least HOST_SHARE of the victim's excess at the same percentile.

    Of the calls in a stalled tail, at least HOST_SHARE as many of the host control suffice: a busy machine interrupts
    each thread at moments of its own. Without an aggressor a single such call suffices.
    """
    host = by_role.host
    if host is None:
        return False
    now, baseline_ns = host.window.channels.get(_CALL), host.baseline_ns(_CALL, figure.quantile)
    if now is None or not now.count or baseline_ns is None:
        return False
    least_ns = HOST_SHARE * (figure.now_ns - figure.baseline_ns)
    if (now.percentile(figure.quantile.percent) or 0.0) - baseline_ns >= least_ns:
        return True
    tail_ns, own = evidence.tail_ns(figure.channel), evidence.now(figure.channel)
    if figure.quantile is not Quantile.P99 or tail_ns is None or own is None or evidence.variation is None:
        return False
    if not by_role.aggressors and now.share_above(int(baseline_ns + least_ns)):
        return True
    host_tail_ns = baseline_ns + HOST_SHARE * (tail_ns - figure.baseline_ns)
    return now.share_above(int(host_tail_ns)) >= HOST_SHARE * own.share_above(int(tail_ns))


def _pauses_explain(evidence: Evidence, figure: BaselineRatio) -> bool:
    """True if lost CPU time explains a stalled tail: the thread lost its CPU for long while it polled the clock.

    The thread loses the same share of the time inside calls as between them. A few calls that are much longer than such
    pauses have another cause. Medians are not explained: half of the calls would have to meet a pause.
    """
    window, tail_ns, calls = evidence.window, evidence.tail_ns(figure.channel), evidence.now(figure.channel)
    if figure.quantile is not Quantile.P99 or not window.polled_ns or tail_ns is None or calls is None:
        return False
    usual_ns = evidence.baseline_ns(figure.channel, Quantile.P50) or 0.0
    lost_ns = window.paused_ns / window.polled_ns * usual_ns * calls.count
    expected = lost_ns / max(figure.now_ns - figure.baseline_ns, 1.0)
    return expected > 0 and calls.share_above(int(tail_ns)) * calls.count <= PAUSE_FACTOR * expected + TAIL_CALLS


def _host_paused(host: Evidence, evidence: Evidence) -> bool:
    """True if the host control made no calls either, or had one at least half as long as the victim's in flight."""
    flight = evidence.window.in_flight
    if host.starved or flight is None:
        return host.starved
    now, own_flight = host.window.channels.get(_CALL), host.window.in_flight
    longest_ns = max(0 if now is None else now.max_ns, 0 if own_flight is None else own_flight.age_ns)
    return evidence.variation is not None and longest_ns >= HOST_SHARE * flight.age_ns


def _quiet(evidence: Evidence) -> Verdict:
    channel = next(iter(_judged_channels(evidence)), _CALL)
    now_ns = (evidence.now(channel) or Histogram.empty()).percentile(50)
    baseline_ns = evidence.baseline_ns(channel, Quantile.P50)
    ratio = now_ns / baseline_ns if now_ns and baseline_ns else None
    if ratio is None:
        words = "too few calls to judge"
    else:
        change = f"{duration_ns(baseline_ns)} → {duration_ns(now_ns)} ({times(ratio)})"
        words = f"quiet: {channel.in_sentence} p50 {change}"
    return Verdict(
        probe=evidence.probe.name,
        phase=channel.phase,
        quantile=Quantile.P50,
        baseline_ns=baseline_ns,
        now_ns=now_ns,
        ratio=ratio,
        kind=VerdictKind.QUIET,
        head=f"{evidence.probe.name}: {words}.",
        range_ns=None if evidence.variation is None else evidence.variation.range_ns(channel, Quantile.P50),
        detectable=_detectable(evidence, channel, Quantile.P50),
    )


def _host_time(evidence: Evidence) -> list[Verdict]:
    """Verdicts on calls that take much longer on the host than on the GPU, where the program measures both.

    The timeline's time of a call is that of its first record, and a copy through the driver's buffers has many.
    """
    verdicts: list[Verdict] = []
    if evidence.probe.program.source(Phase.GPU) is not Source.EVENTS:
        return verdicts
    channels = evidence.window.channels
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
        is_gpu_time = sum(others.values()) >= HIDDEN_SHARE * (host_ns - gpu_ns)
        if is_gpu_time and longest is not None:
            why = (
                f"The host time is the wait for the GPU work before it: {longest} takes {duration_ns(others[longest])}."
            )
            remedy = "Read back into pinned memory and wait once, or keep the scalar on the GPU."
            short = f"the host waits for GPU work: {longest} ({duration_ns(others[longest])})"
            short_remedy = "read back into pinned memory and wait once, or keep it on the GPU"
        else:
            why = (
                "No GPU work explains the host time: the driver spends it, for example on module loading or allocation."
            )
            remedy = "Make the first calls before the critical part, and leave them out of measurements."
            short = "no GPU work explains it: the driver spends it on the host"
            short_remedy = "make the first calls before the critical part"
        verdicts.append(
            Verdict(
                probe=evidence.probe.name,
                phase=Phase.CALL,
                quantile=Quantile.P50,
                baseline_ns=gpu_ns,
                now_ns=host_ns,
                ratio=host_ns / max(gpu_ns, 1.0),
                kind=VerdictKind.GPU_TIME if is_gpu_time else VerdictKind.OVERHEAD,
                head=f"{evidence.probe.name}: {label} takes {duration_ns(host_ns)} on the host, "
                f"{duration_ns(gpu_ns)} on the GPU.",
                cause=why,
                remedy=remedy,
                short_cause=short,
                short_remedy=short_remedy,
                label=label,
            )
        )
    return verdicts


def _change_overs(victims: Sequence[Evidence], *, alone: bool) -> list[Verdict]:
    """At most one verdict for each GPU; it names one victim of each group that waits for the change-over of another
    group.

    A GPU whose last work was another context's needs time to change over, though it is idle. Two victims measured
    together outside slots pay this time with each call, and their baselines hide shorter delays: the verdict needs no
    baseline. ``alone``: no aggressor runs, so the windows show the change-over; otherwise the baselines do.
    """
    verdicts = []
    groups = [victim.probe.slot_group for victim in victims if victim.probe.slot_group is not None]
    for gpu in dict.fromkeys(gpu for gpu, _ in groups):
        waits: dict[str, tuple[Evidence, float]] = {}
        for victim in victims:
            wait_ns = _change_over_ns(victim, alone)
            if wait_ns is not None and victim.probe.slot_group is not None and victim.probe.slot_group[0] == gpu:
                waits.setdefault(victim.probe.slot_group[1], (victim, wait_ns))
        if len(waits) > 1 and max(ns for _, ns in waits.values()) <= _MOST_UNEQUAL * min(
            ns for _, ns in waits.values()
        ):
            verdicts.append(_change_over(list(waits.values())))
    return verdicts


def _change_over_ns(evidence: Evidence, alone: bool) -> float | None:
    """The median wait of a victim outside slots if it is as long as a change-over, else None."""
    if evidence.window.in_slots or evidence.error is not None:
        return None
    if alone:
        waits = evidence.window.channels.get(_WAIT)
        wait_ns = None if waits is None or waits.count < ENOUGH_CALLS else waits.percentile(50)
    else:
        wait_ns = evidence.baseline_ns(_WAIT, Quantile.P50)
    return wait_ns if wait_ns is not None and _SHORTEST_CHANGE_NS <= wait_ns <= _LONGEST_CHANGE_NS else None


def _change_over(waits: Sequence[tuple[Evidence, float]]) -> Verdict:
    names = [evidence.probe.name for evidence, _ in waits]
    listed = f"{', '.join(names[:-1])} and {names[-1]}"
    other = "the other context's" if len(names) == 2 else "another context's"
    first, wait_ns = waits[0]
    return Verdict(
        probe=first.probe.name,
        phase=Phase.WAIT,
        quantile=Quantile.P50,
        baseline_ns=None,
        now_ns=wait_ns,
        ratio=None,
        kind=VerdictKind.OVERHEAD,
        head=f"{listed}: each waits for {other} change-over (wait p50 {duration_ns(wait_ns)}).",
        cause="The GPU's last work was another context's, and it takes that long to change over, though it is idle. "
        "Shorter delays of these probes are hidden.",
        remedy="Let victims of different contexts run in slots (leave out --together), or use one context for all "
        "work.",
        short_cause="the GPU changes over from another context, though it is idle",
        short_remedy="let victims run in slots (no --together), or use one context",
        proof=Proof.RULE,
    )
