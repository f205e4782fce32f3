"""Run: each variant is measured in its own engine, without aggressors, with them, and without them again.

The baseline is measured before and after because machines drift: a victim that is as slow in either was not slowed down
by the aggressors.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Literal

from msgspec import UNSET

from stallprobes.engine.backend import Options
from stallprobes.engine.process import SpareEngine
from stallprobes.engine.session import Session
from stallprobes.engine.snapshot import ProbeSnapshot, has_run
from stallprobes.errors import EXIT_NO_GPU, EXIT_USAGE, EngineFailed, NoTimeline, Stopped, Unsupported
from stallprobes.latency.baseline import Baseline, widest
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.latency.window import Window
from stallprobes.machine import fingerprint, gpus
from stallprobes.machine.gpu_state import GpuState, GpuStates
from stallprobes.machine.origin import BACKENDS
from stallprobes.measurement import blame as blame_experiment
from stallprobes.measurement.gpu_state import GpuStateRecorder
from stallprobes.measurement.plan import RunPlan, VariantPlan
from stallprobes.measurement.result import RunProbe, RunResult, RunSpread, RunVariant
from stallprobes.measurement.run_clock import SETTLE_S, STEP_S, WARM_S, RunClock, RunProgress, RunStoodStill
from stallprobes.measurement.run_trace import other_processes
from stallprobes.model import JUDGED_PHASES, Channel, Probe, Role, Variant
from stallprobes.records.timeline_summary import TimelineSummary
from stallprobes.traces.chrome import TitledTrace
from stallprobes.traces.trace import Trace
from stallprobes.verdicts.blame import Blame, proven
from stallprobes.verdicts.candidates import EffectsSource, KnownEffects
from stallprobes.verdicts.evidence import ALONE_TAIL_NS, Evidence
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.rules import judge
from stallprobes.verdicts.verdict import Verdict

# Longest wait (s) until the calls of a run's switched-off aggressors have returned.
_DRAIN_S = 2.0
# Longest wait (s), after a run has switched its aggressors on, until each aggressor has run or has failed.
_PROOF_S = 5.0
# Longest wait (s) until the timeline (CUPTI's records of GPU work) has the records of all earlier work. Records usually
# arrive within 10 ms. On an H200 behind back-to-back pageable copies, records arrive only after half a second.
_RECORDS_AT_MOST_S = 2.0
# Largest time (s) by which a step may take longer than planned. After a longer step, the variant is measured again.
# Reason: the run or the machine was suspended.
_GAP_S = 1.0
# Usual length (s) of a baseline window. With slots (shares of time of groups of victims), the length is multiplied by
# the number of slots. Even a short run has four baseline windows: two before and two after the aggressors run.
BASELINE_WINDOW_S = 0.25
# Verdict kinds that are not shown as the state of a probe. GPU time and overhead are the cost of the call itself, and a
# failed probe is known from its error.
_NO_STATES = (VerdictKind.GPU_TIME, VerdictKind.OVERHEAD, VerdictKind.FAILED)
# Channels (latencies of one phase) whose variation between baseline windows a run reports: call and wait. The start on
# the GPU is left out. Reason: a start takes nearly 0 ns and is a part of the wait.
_VARYING = tuple(Channel(phase) for phase in JUDGED_PHASES if phase.traits.host)


def run(
    plan: RunPlan,
    *,
    backend: str = "cuda",
    options: Options | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    survey: gpus.Survey | None = None,
    trace_s: float | None = None,
    traced: Callable[[TitledTrace], None] = lambda _: None,
    spare: SpareEngine | None = None,
    gpm_counters: bool = True,
) -> RunResult:
    """Measure each variant of ``plan`` with its aggressors, and before and after.

    Victims of different contexts run in slots, unless ``plan.together``; the times are then so much longer that each
    victim gets its own.

    With ``trace_s``, which includes ``options.timeline``, ``traced`` is called with the trace of each variant: all that
    the timeline recorded in the last ``trace_s`` seconds before the aggressors were switched off.

    ``stop`` is called every 0.1 s; once it returns True, or at a KeyboardInterrupt, the variants measured so far are
    returned. ``survey`` avoids a second survey of the driver. ``spare`` is an engine process for the first variant.
    ``gpm_counters``: NVML's GPM counters are read beside its other values.

    Raises EngineFailed when there is no usable GPU or the options are wrong before anything was measured, NoTimeline
    when the timeline cannot be switched on; any later failure makes its variant invalid and the run continues.
    """
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    settings = replace(options or Options(), together=plan.together)
    others: tuple[str, ...] = ()
    if trace_s is not None:
        settings = replace(settings, timeline=True)
        others = other_processes(settings.gpu, survey) if backend == "cuda" else ()
    clock = RunClock(plan, progress, stop, trace_s, others)
    measured: list[_Measured] = []
    info: Mapping[str, object] = {}
    for variant in plan.variants:
        if clock.stop_requested():
            break
        clock.begin(variant.title)
        try:
            while True:
                try:
                    result, new_info = _variant(variant, backend, settings, clock, measured, spare, gpm_counters)
                    break
                except RunStoodStill:
                    # Calls that were in flight seem to have taken as long as the suspension.
                    clock.begin(f"{variant.title}, measured again: the process stood still")
        except KeyboardInterrupt:
            # While an engine starts ``stop`` is not called; the results of earlier variants are kept.
            clock.stopped = True
            break
        info = new_info or info
        if result is not None:
            measured.append(result)
            if result.trace is not None:
                traced(TitledTrace(result.trace, f"{variant.pattern} {variant.variant.name}"))
        clock.end()
    simulated = backend == "sim"
    summary = TimelineSummary.joined(result.timeline for result in measured if result.timeline is not None)
    return RunResult(
        backend=BACKENDS[backend],
        profile=str(info.get("profile")) if simulated and info.get("profile") else None,
        seed=settings.seed if simulated else None,
        fingerprint=_fingerprint(settings.gpu, info, simulated, survey),
        started_at=started,
        seconds=plan.seconds,
        variants=tuple(result.variant for result in measured),
        interrupted=clock.stopped,
        timeline=settings.timeline,
        timeline_status=summary or UNSET,
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """The result of a variant, with how the timeline was recorded, and its trace."""

    variant: RunVariant
    timeline: TimelineSummary | None = None
    trace: Trace | None = None


def _variant(
    plan: VariantPlan,
    backend: str,
    options: Options,
    clock: RunClock,
    before: Sequence[_Measured],
    spare: SpareEngine | None,
    gpm_counters: bool,
) -> tuple[_Measured | None, Mapping[str, object]]:
    variant = plan.variant

    def without(status: Literal["unsupported", "invalid"], reason: str) -> _Measured:
        return _Measured(
            RunVariant(
                pattern=plan.pattern,
                variant=variant.name,
                kind=variant.kind,
                status=status,
                reason=reason,
                baseline_s=0.0,
                window_s=0.0,
                slots=plan.slots > 1,
                together=options.together,
                probes=(),
                verdicts=(),
                blame=None,
                spread=None,
            )
        )

    session = Session(variant.probes, backend=backend, options=options, spare=spare)
    try:
        info = session.start()
        if options.timeline:
            session.require_timeline()
        clock.started(session)
        with GpuStateRecorder(session, gpm_counters) as recorder:
            clock.sample = recorder.sample
            return _measured(plan, session, clock, recorder), info
    except Unsupported as error:
        return without("unsupported", error.reason), {}
    except Stopped:
        return None, session.info
    except EngineFailed as error:
        if not before and error.exit_code in (EXIT_NO_GPU, EXIT_USAGE):
            raise
        if isinstance(error, NoTimeline) and not any(result.variant.probes for result in before):
            raise
        return without("invalid", error.sentence), session.info
    finally:
        clock.tracer = clock.sample = None
        session.stop()


def _measured(plan: VariantPlan, session: Session, clock: RunClock, recorder: GpuStateRecorder) -> _Measured:
    """Measure one variant.

    Probes that make their calls after long idle times have their usual period in the baselines. Where the tail of a
    victim is stalled by less than 100 µs, its time with the aggressors is measured once more: on a busy machine 1 call
    in 100 is some 30 µs late in a second now and then, and such a stall has to be there twice.
    """
    variant = plan.variant
    session.set_periods(idle=False)
    session.set_running([probe.name for probe in variant.probes if probe.role is not Role.AGGRESSOR])
    clock.pass_time(session, WARM_S)
    recorder.take()
    baseline = partial(_windows, session, clock, *_baseline_parts(plan))
    baselines = [baseline()]
    baseline_state = recorder.take()
    windows, window_state, drained = _beside_aggressors(plan, session, clock, recorder)
    trace = None
    if clock.tracer is not None:
        sources = (_evidence(probe, windows, baselines, {}) for probe in variant.probes)
        usual = {measured.probe.name: measured.variation for measured in sources if measured.variation is not None}
        trace, clock.tracer = clock.tracer.trace(usual), None
    if drained:
        baselines.append(baseline())
    errors = {failure.probe: failure.sentence for failure in session.probe_failures()}
    evidence = [_evidence(probe, windows, baselines, errors) for probe in variant.probes]
    effects = partial(_effects, session)
    verdicts = judge(evidence, effects=effects)
    if drained and any(map(_is_doubtful, verdicts)):
        again, _, drained = _beside_aggressors(plan, session, clock, recorder)
        repeated = [_evidence(probe, again, baselines, errors) for probe in variant.probes]
        evidence, verdicts = _confirmed(evidence, verdicts, repeated, effects)
    reason = _invalid(variant, windows, errors)
    blame = None
    if plan.blame is not None and reason is None:
        blame, reason = _blame(plan, session, clock)
    if blame is not None:
        verdicts = proven(verdicts, blame, variant.victims, variant.aggressors)
    if session.gap_s > _GAP_S:
        raise RunStoodStill
    result = RunVariant(
        pattern=plan.pattern,
        variant=variant.name,
        kind=variant.kind,
        status="ok" if reason is None else "invalid",
        reason=reason,
        baseline_s=sum(_length_s(each.whole) for each in baselines),
        window_s=_length_s(windows),
        slots=plan.slots > 1,
        together=session.options.together,
        probes=tuple(RunProbe.of_evidence(part, _kind(part, verdicts)) for part in evidence),
        verdicts=verdicts,
        blame=blame,
        spread=_spread(evidence),
        gpu_state=UNSET if baseline_state is None or window_state is None else GpuStates(baseline_state, window_state),
    )
    return _Measured(result, _timeline_summary(session), trace)


def _beside_aggressors(
    plan: VariantPlan, session: Session, clock: RunClock, recorder: GpuStateRecorder
) -> tuple[Mapping[str, Window], GpuState | None, bool]:
    """The windows of all probes with the aggressors on, the GPU's state in them, and whether all calls returned."""
    variant = plan.variant
    aggressors = [probe.name for probe in variant.aggressors]
    session.set_periods(idle=True)
    session.set_running(dict.fromkeys(aggressors, True))
    # Every aggressor runs, or has failed.
    _until(
        lambda now: all(has_run(probe, now[probe.name]) or now[probe.name].error for probe in variant.aggressors),
        _PROOF_S,
        session,
        clock,
    )
    clock.pass_time(session, SETTLE_S)
    recorder.take()
    windows = _windows(session, clock, plan.window_s * plan.slots).whole
    state = recorder.take()
    session.set_running(dict.fromkeys(aggressors, False))
    session.set_periods(idle=False)
    drained = _until(
        lambda now: not any(now[probe.name].in_flight for probe in variant.aggressors), _DRAIN_S, session, clock
    )
    if drained:
        # Until their work on the GPU is done.
        clock.pass_time(session, SETTLE_S)
    return windows, state, drained


def _is_doubtful(verdict: Verdict) -> bool:
    """True if few calls are stalled, and not by much: a busy machine has such seconds."""
    return (
        verdict.kind is VerdictKind.STALLED
        and verdict.quantile is Quantile.P99
        and verdict.now_ns is not None
        and verdict.baseline_ns is not None
        and verdict.now_ns - verdict.baseline_ns < ALONE_TAIL_NS
    )


def _confirmed(
    evidence: Sequence[Evidence],
    verdicts: Sequence[Verdict],
    repeated: Sequence[Evidence],
    effects: EffectsSource,
) -> tuple[list[Evidence], tuple[Verdict, ...]]:
    """The evidence and the verdicts; a repeated measurement without the doubtful stall of a probe replaces the
    first."""
    second = judge(repeated, effects=effects)
    stalled = {(new.probe, new.phase, new.label) for new in second if new.kind.severity >= VerdictKind.STALLED.severity}
    doubtful = [old for old in verdicts if _is_doubtful(old)]
    withdrawn = {old.probe for old in doubtful if (old.probe, old.phase, old.label) not in stalled}
    kept = [old for old in verdicts if old.probe not in withdrawn] + [new for new in second if new.probe in withdrawn]
    return (
        [new if old.probe.name in withdrawn else old for old, new in zip(evidence, repeated, strict=True)],
        tuple(sorted(kept, key=lambda verdict: verdict.kind.severity, reverse=True)),
    )


def _timeline_summary(session: Session) -> TimelineSummary | None:
    status = session.timeline_status()
    if not session.options.timeline or status is None:
        return None
    return TimelineSummary.of_status(status, session.timeline_losses())


def _blame(plan: VariantPlan, session: Session, clock: RunClock) -> tuple[Blame | None, str | None]:
    """The result of the experiment; None with a reason when it failed, None alone when it was stopped."""
    try:
        blame = blame_experiment.measure(
            session,
            plan.variant.aggressors,
            plan.variant.victims,
            plan=plan.blame,
            progress=lambda step: clock.blame_progress(step.passed_s),
            stop=clock.stop_requested,
        )
    except Stopped:
        return None, None
    except EngineFailed as error:
        return None, f"blame: {error.sentence}"
    return blame, None


@dataclass(frozen=True, eq=False)
class _MeasuredWindows:
    """The windows of all probes in a time, by probe: of all of it, and of its parts."""

    whole: Mapping[str, Window]
    parts: Sequence[Mapping[str, Window]]


def _baseline_parts(plan: VariantPlan) -> tuple[float, int]:
    """The length in seconds and the number of the windows of one of two baselines."""
    seconds = plan.baseline_s / 2
    count = max(2, round(seconds / BASELINE_WINDOW_S))
    return seconds / count * plan.slots, count


def _windows(session: Session, clock: RunClock, part_s: float, count: int = 1) -> _MeasuredWindows:
    """Measure ``count`` windows of ``part_s`` seconds, one after the other."""
    begin = _records(session)
    snapshots = [session.snapshot()]
    if clock.tracer is not None:
        clock.tracer.begin_window()
    for _ in range(count):
        clock.pass_time(session, part_s)
        snapshots.append(session.snapshot())
    if clock.tracer is not None:
        clock.tracer.end_window()
    return _MeasuredWindows(
        _with_records(session, snapshots[-1].minus(snapshots[0]), begin),
        [late.minus(early) for early, late in pairwise(snapshots)],
    )


def _records(session: Session) -> dict[str, dict[Channel, Histogram]]:
    """The timeline's histograms of each probe, all work up to now included; none while it is off."""
    if not session.options.timeline:
        return {}
    session.await_records(_RECORDS_AT_MOST_S)
    return session.timeline_channels(probe.name for probe in session.probes)


def _with_records(
    session: Session, windows: dict[str, Window], begin: Mapping[str, Mapping[Channel, Histogram]]
) -> dict[str, Window]:
    """``windows`` with what the timeline recorded since ``begin``.

    Until the last record is there, the probes run as in the window, and their records count too.
    """
    if not begin:
        return windows
    end = _records(session)
    return {name: window.with_records(begin[name], end[name]) for name, window in windows.items()}


def _length_s(windows: Mapping[str, Window]) -> float:
    """The length of the longest window in seconds; those of victims in slots are shorter than the others."""
    return max(window.seconds for window in windows.values())


def _until(
    done: Callable[[Mapping[str, ProbeSnapshot]], bool], at_most_s: float, session: Session, clock: RunClock
) -> bool:
    """Let time pass until ``done`` holds for the probes. False if it did not within ``at_most_s``."""
    for _ in range(int(at_most_s / STEP_S)):
        if done(session.snapshot().probes):
            return True
        clock.pass_time(session, STEP_S)
    return False


def _invalid(variant: Variant, windows: Mapping[str, Window], errors: Mapping[str, str]) -> str | None:
    for probe in variant.aggressors:
        if probe.name in errors:
            return f"the aggressor failed: {errors[probe.name]}"
        if not has_run(probe, windows[probe.name]):
            return f"the aggressor {probe.name} did not run in the window"
    return None


def _evidence(
    probe: Probe, windows: Mapping[str, Window], baselines: Sequence[_MeasuredWindows], errors: Mapping[str, str]
) -> Evidence:
    measured = () if probe.role is Role.AGGRESSOR else baselines
    parts = [part[probe.name] for each in measured for part in each.parts]
    return Evidence(
        probe,
        windows[probe.name],
        tuple(each.whole[probe.name].channels for each in measured),
        errors.get(probe.name),
        Baseline.of([part.channels for part in parts], duration_ns=sum(part.duration_ns for part in parts))
        if parts
        else None,
    )


def _kind(evidence: Evidence, verdicts: Sequence[Verdict]) -> VerdictKind | None:
    if evidence.error is not None:
        return VerdictKind.FAILED
    kinds = [v.kind for v in verdicts if v.probe == evidence.probe.name and v.kind not in _NO_STATES]
    return None if evidence.probe.role is Role.AGGRESSOR else max(kinds, key=lambda kind: kind.severity, default=None)


def _spread(evidence: Sequence[Evidence]) -> RunSpread | None:
    """The largest spreads; None where no baseline has two windows with enough calls."""
    variations = {part.probe.name: part.variation for part in evidence if part.variation is not None}
    p50, p99 = (widest(variations, _VARYING, quantile) for quantile in PERCENTILES)
    if p50 is None and p99 is None:
        return None
    probe, channel, ratio = p50 or (None, None, None)
    return RunSpread(ratio, None if p99 is None else p99[2], probe, None if channel is None else channel.phase)


def _effects(session: Session) -> KnownEffects | None:
    """Effects of single aggressors on the GPU of ``session`` by recorded checks; None for an unknown GPU."""
    # Its modules take tens of milliseconds to import, and few verdicts need them.
    from stallprobes.matrix.known_effects import known_effects

    info, simulated = session.info, session.backend == "sim"
    gpu = info.get("gpu_model") if simulated else fingerprint.first_gpu_model(info)
    return known_effects(str(gpu) if gpu else None, simulated=simulated)


def _fingerprint(
    gpu: str | None, info: Mapping[str, object], simulated: bool, survey: gpus.Survey | None
) -> dict[str, object]:
    uuid = gpu.split(",")[0] if gpu else fingerprint.first_gpu(info)
    return fingerprint.fingerprint(None if simulated else uuid, info, survey)
