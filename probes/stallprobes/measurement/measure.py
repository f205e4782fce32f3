"""Run: each variant is measured in its own engine, without aggressors, with them, and without them again.

The baseline is measured before and after because machines drift: a victim that is as slow in either was not slowed down
by the aggressors.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.engine.slots import longest_cycle
from stallprobes.engine.timeline.summary import TimelineSummary
from stallprobes.errors import EXIT_NO_GPU, EXIT_USAGE, EngineFailed, NoTimeline, UnknownName, Unsupported
from stallprobes.latency.baseline import Baseline, widest
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.latency.window import Window, has_run
from stallprobes.machine import fingerprint, gpus
from stallprobes.measurement import blame as blame_experiment
from stallprobes.measurement.blame import BlameStopped
from stallprobes.measurement.run_trace import RunTracer, other_processes
from stallprobes.model import JUDGED_PHASES, Channel, Kind, Needs, Probe, Role, Variant
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import ALL, parse_probes, unknown_name_message
from stallprobes.traces.trace import Trace
from stallprobes.verdicts.blame import Blame, proven
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.experiment import BlamePlan
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.rules import judge
from stallprobes.verdicts.verdict import Verdict

__all__ = [
    "ALL",
    "PROBES",
    "ProbeResult",
    "RunProgress",
    "RunResult",
    "UnknownName",
    "VariantResult",
    "run",
    "selection",
]

PROBES = "probes"

# The phases whose variation is that of the machine; a start is near 0, and a part of the wait.
_VARYING = tuple(phase for phase in JUDGED_PHASES if phase.traits.host)

_WARM_S = 0.5
_SETTLE_S = 0.3
_DRAIN_S = 2.0
_PROOF_S = 5.0
_START_S = 1.5
_STEP_S = 0.1
# Records take some 10 ms. CUPTI waits behind back-to-back pageable copies, half a second on an H200.
_RECORDS_AT_MOST_S = 2.0
# A step that takes so much longer was suspended, or the machine was.
_GAP_S = 1.0
_SHORTEST_BASELINE_S = 1.0
# The baseline of a short run has at least four windows in this way, two before and two after the aggressors.
BASELINE_WINDOW_S = 0.25
# The states of a victim as the document has them; a kind that a victim cannot have is "n/a".
_STATES = {
    VerdictKind.QUIET: "quiet",
    VerdictKind.DRIFT: "drift",
    VerdictKind.UNSTEADY: "unsteady",
    VerdictKind.SLOWER: "slower",
    VerdictKind.HOST: "slower",
    VerdictKind.STALLED: "STALLED",
    VerdictKind.STARVED: "STARVED",
}


@dataclass(frozen=True)
class RunProgress:
    """The progress of a run in seconds of measurement, and its current step."""

    done_s: float
    total_s: float
    text: str


@dataclass(frozen=True, eq=False)
class ProbeResult(Evidence):
    """The evidence on one probe in one variant, and its ``state``.

    The state is that of the worst verdict for a victim or the host control, "running" or "off" for an aggressor,
    "failed" after an error, "n/a" without a verdict.
    """

    state: str = "n/a"


@dataclass(frozen=True, eq=False)
class VariantResult:
    """The result of one variant.

    ``status`` is ok, unsupported or invalid, the latter two with a ``reason``. ``baseline_s`` and ``window_s`` are the
    measured seconds without and with the aggressors. ``slots``: victims of different contexts ran in slots;
    ``together``: slots were switched off. ``blame`` is the result of the experiment that switched
    each aggressor on and off, None without one. ``timeline`` says how the timeline was recorded, None without it.
    ``trace`` is what it recorded last until the aggressors were switched off, None unless it was asked for.
    """

    pattern: str
    variant: str
    kind: Kind
    status: str
    reason: str | None
    probes: tuple[ProbeResult, ...]
    verdicts: tuple[Verdict, ...]
    baseline_s: float
    window_s: float
    slots: bool = False
    together: bool = False
    blame: Blame | None = None
    timeline: TimelineSummary | None = None
    trace: Trace | None = None

    def widest(self, quantile: Quantile) -> RunSpread | None:
        """The largest spread of a percentile among the judged phases that the host measures.

        None where no baseline has two windows with enough calls.
        """
        known = {one.probe.name: one.variation for one in self.probes if one.variation is not None}
        found = widest(known, map(Channel, _VARYING), quantile)
        return None if found is None else RunSpread(found[0], str(found[1].phase), found[2])


@dataclass(frozen=True)
class RunSpread:
    """How much the machine varied: the highest over the lowest percentile of the windows of a baseline (0.25 s each),
    and the victim and phase."""

    probe: str
    phase: str
    ratio: float


@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run. ``backend`` is "cuda", "simulated" or "host"; profile and seed are the simulated GPU's.

    ``timeline``: it was on, which adds to each call.
    """

    backend: str
    profile: str | None
    seed: int | None
    fingerprint: Mapping[str, object]
    started_at: str
    seconds: float
    variants: tuple[VariantResult, ...]
    interrupted: bool = False
    timeline: bool = False

    @property
    def timeline_summary(self) -> TimelineSummary | None:
        """How the timeline of all variants was recorded; None without it."""
        return TimelineSummary.joined(one.timeline for one in self.variants if one.timeline is not None)

    @property
    def spread(self) -> RunSpread | None:
        """The largest spread of a median in the run; None where none is known."""
        found = (variant.widest(Quantile.P50) for variant in self.variants)
        return max((one for one in found if one is not None), key=lambda one: one.ratio, default=None)


Selection = Sequence[tuple[str, Variant]]


def selection(names: Sequence[str], variants: Sequence[str] = ()) -> list[tuple[str, Variant]]:
    """The variants selected by ``names``: those of patterns (``all`` for every pattern), and one with all named probes.

    A probe may be placed by ``NAME@CONTEXT``, by ``NAME/STREAM`` or by both, in this order. ``variants`` restricts the
    variants of the patterns. Raises UnknownName.
    """
    known = patterns()
    wanted: list[str] = []
    for name in names:
        wanted.extend(known if name == ALL else [name])
    found = [(name, variant) for name in dict.fromkeys(wanted) if name in known for variant in known[name].variants]
    for name in variants:
        there = [variant.name for _, variant in found]
        if name not in there:
            raise UnknownName(unknown_name_message("variant", name, there))
    if variants:
        found = [(name, variant) for name, variant in found if variant.name in variants]
    probes = [name for name in wanted if name not in known]
    if probes:
        found.append((PROBES, _probes_variant(probes)))
    return found


def _probes_variant(names: Iterable[str]) -> Variant:
    probes: dict[str, Probe] = {}
    for name in names:
        probes |= {probe.name: probe for probe in parse_probes(name)}
    if not any(probe.role is Role.HOST for probe in probes.values()):
        probes["host"] = entries()["host"].probe()
    two = any(getattr(r, "device", 0) == 1 for probe in probes.values() for r in probe.program.resources())
    return Variant(
        name=PROBES,
        kind=Kind.CONTROL,
        title="probes chosen by name",
        probes=tuple(probes.values()),
        expect="",
        why="",
        needs=Needs(gpus=2 if two else 1),
    )


def run(
    chosen: Selection,
    *,
    backend: str = "cuda",
    gpu: str | None = None,
    seconds: float = 2.0,
    options: Options | None = None,
    progress: Callable[[RunProgress], None] | None = None,
    stop: Callable[[], bool] = lambda: False,
    survey: gpus.Survey | None = None,
    blame: bool = False,
    timeline: bool = False,
    trace_s: float | None = None,
) -> RunResult:
    """Measure each variant for ``seconds`` with its aggressors, and half as long before and after.

    Victims of different contexts run in slots, unless ``options.together``; the times are then so much longer that each
    victim gets ``seconds`` of its own.

    With ``blame`` an experiment of at most 10 s for up to four aggressors follows, which switches each aggressor on and
    off and finds which of them are the cause.

    With ``timeline``, as with ``options.timeline``, the phases start, early and gpu are measured too; each call then
    takes 1 to 10 µs longer.

    With ``trace_s``, which includes ``timeline``, each variant's result has a trace: all that the timeline recorded in
    the last ``trace_s`` seconds before the aggressors were switched off.

    ``gpu``: UUIDs of the GPUs to use, separated by commas. ``stop`` is called every 0.1 s; once it returns True, or at
    a KeyboardInterrupt, the variants measured so far are returned. ``survey`` avoids a second survey of the driver.

    Raises EngineFailed when there is no usable GPU or the options are wrong before anything was measured, NoTimeline
    when the timeline cannot be switched on; any later failure makes its variant invalid and the run continues. Raises
    ValueError if blame is asked for and impossible.
    """
    problem = blame_problem(chosen) if blame else None
    if problem is not None:
        raise ValueError(problem)
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    settings = options or Options()
    if gpu is not None:
        settings = replace(settings, gpu=gpu)
    traced = trace_s is not None
    settings = replace(settings, timeline=timeline or traced or settings.timeline, rings=traced or settings.rings)
    cycles = [longest_cycle(variant.probes, settings.together) for _, variant in chosen]
    plans = [_blame_plan(variant, settings.together) if blame else None for _, variant in chosen]
    others = other_processes(settings.gpu, survey) if trace_s is not None and backend == "cuda" else ()
    clock = _RunClock(cycles, plans, seconds, progress, stop, trace_s, others)
    results: list[VariantResult] = []
    info: Mapping[str, object] = {}
    for pattern, variant in chosen:
        if clock.stopped or stop():
            clock.stopped = True
            break
        clock.begin(f"{pattern} · {variant.name}")
        try:
            while True:
                try:
                    result, new_info = _variant(pattern, variant, backend, settings, clock, results)
                    break
                except _StoodStill:
                    # Calls that were in flight seem to have taken as long as the suspension.
                    clock.begin(f"{pattern} · {variant.name}, measured again: the process stood still")
        except KeyboardInterrupt:
            # While an engine starts ``stop`` is not called; the results of earlier variants are kept.
            clock.stopped = True
            break
        info = new_info or info
        if result is not None:
            results.append(result)
        clock.end()
    simulated = backend == "sim"
    return RunResult(
        backend="simulated" if simulated else backend,
        profile=str(info.get("profile")) if simulated and info.get("profile") else None,
        seed=settings.seed if simulated else None,
        fingerprint=_fingerprint(settings.gpu, info, simulated, survey),
        started_at=started,
        seconds=seconds,
        variants=tuple(results),
        interrupted=clock.stopped,
        timeline=settings.timeline,
    )


class _Stopped(Exception):
    """Raised when the run is stopped before the variant is measured."""


class _StoodStill(Exception):
    """Raised when the process was suspended while a variant was measured."""


class _RunClock:
    """Progress of a run: lets time pass in steps, between which the run can be stopped.

    ``cycles`` is the number of slots of each variant, by which its measurement is longer; ``plans`` are its blame
    experiments. ``trace_s`` is the length of the traces, None for none, ``others`` the other processes on the GPU;
    ``tracer`` reads the trace of the present variant.
    """

    def __init__(
        self,
        cycles: Sequence[int],
        plans: Sequence[BlamePlan | None],
        seconds: float,
        progress: Callable[[RunProgress], None] | None,
        stop: Callable[[], bool],
        trace_s: float | None = None,
        others: Sequence[str] = (),
    ) -> None:
        self._trace_s, self._others = trace_s, others
        self.tracer: RunTracer | None = None
        self.blame = any(plan is not None for plan in plans)
        self.window_s = seconds
        self.baseline_s = max(_SHORTEST_BASELINE_S, seconds / 2)
        self.stopped = False
        rests_s, measured_s = _START_S + _WARM_S + 2 * _SETTLE_S, self.baseline_s + self.window_s
        self._left = [
            (rests_s + slots * measured_s, 0.0 if plan is None else plan.total_s)
            for slots, plan in zip(cycles, plans, strict=True)
        ]
        self._total = sum(map(sum, self._left))
        self._base = 0.0
        self._done = 0.0
        self._text = ""
        self._progress = progress
        self._stop = stop

    def begin(self, text: str) -> None:
        self._done = self._base
        self._report(text)

    def end(self) -> None:
        self._base += sum(self._left.pop(0))
        self._done = self._base
        self._report(self._text)

    def started(self, session: Session) -> None:
        """The engine of a variant has started."""
        self._done += _START_S
        self.tracer = None if self._trace_s is None else RunTracer(session, self._trace_s, self._others)

    def stop_requested(self) -> bool:
        """Whether the run is to stop; it then counts as stopped."""
        self.stopped = self.stopped or self._stop()
        return self.stopped

    def blame_progress(self, passed_s: float) -> None:
        """Report the progress of a blame experiment that takes the rest of the variant's time."""
        measured_s, blame_s = self._left[0]
        self._done = max(self._done, self._base + measured_s + min(passed_s, blame_s))
        self._report(self._text)

    def pass_time(self, session: Session, seconds: float) -> None:
        """Run the session for ``seconds``. Raises _Stopped and EngineFailed."""
        left = seconds
        while left > 1e-9:
            if self._stop():
                self.stopped = True
                raise _Stopped
            step = min(_STEP_S, left)
            if self.tracer is None:
                session.run_for(step)
            else:
                self.tracer.run_for(step)
            left -= step
            self._done += step
            self._report(self._text)

    def _report(self, text: str) -> None:
        self._text = text
        if self._progress is not None:
            self._progress(RunProgress(min(self._done, self._total), self._total, text))


def _variant(
    pattern: str,
    variant: Variant,
    backend: str,
    options: Options,
    clock: _RunClock,
    before: Sequence[VariantResult],
) -> tuple[VariantResult | None, Mapping[str, object]]:
    def without(status: str, reason: str) -> VariantResult:
        empty = VariantResult(pattern, variant.name, variant.kind, status, reason, (), (), 0.0, 0.0)
        return replace(empty, slots=slots > 1, together=options.together)

    slots = longest_cycle(variant.probes, options.together)

    session = Session(variant.probes, backend=backend, options=options)
    try:
        info = session.start()
        if options.timeline:
            session.require_timeline()
        clock.started(session)
        return replace(_measured(pattern, variant, session, clock, slots), together=options.together), info
    except Unsupported as error:
        return without("unsupported", error.reason), {}
    except _Stopped:
        return None, session.info
    except EngineFailed as error:
        if not before and error.exit_code in (EXIT_NO_GPU, EXIT_USAGE):
            raise
        if isinstance(error, NoTimeline) and not any(result.probes for result in before):
            raise
        return without("invalid", error.sentence), session.info
    finally:
        clock.tracer = None
        session.stop()


def _measured(pattern: str, variant: Variant, session: Session, clock: _RunClock, slots: int) -> VariantResult:
    """Measure one variant; its windows last ``slots`` times as long, so that each victim gets its time."""
    aggressors = [probe.name for probe in variant.probes if probe.role is Role.AGGRESSOR]
    session.set_running([probe.name for probe in variant.probes if probe.role is not Role.AGGRESSOR])
    clock.pass_time(session, _WARM_S)
    before = _baseline(session, clock, slots)
    session.set_running(dict.fromkeys(aggressors, True))
    _await_aggressors(variant, session, clock)
    clock.pass_time(session, _SETTLE_S)
    windows = _windows(session, clock, clock.window_s * slots)
    session.set_running(dict.fromkeys(aggressors, False))
    baselines = [before]
    drained = _drained(variant, session, clock)
    trace, clock.tracer = None if clock.tracer is None else clock.tracer.trace(), None
    if drained:
        baselines.append(_baseline(session, clock, slots))
    errors = {failure.probe: failure.sentence for failure in session.probe_failures()}
    evidence = [_evidence(probe, windows, baselines, errors) for probe in variant.probes]
    verdicts = judge(evidence)
    reason = _invalid(variant, windows, errors)
    blame = None
    if clock.blame and reason is None and _blame_plan(variant, session.options.together) is not None:
        blame, reason = _blame(variant, session, clock)
    if blame is not None:
        verdicts = proven(verdicts, blame, _victims(variant), _aggressors(variant))
    if session.gap_s > _GAP_S:
        raise _StoodStill
    return VariantResult(
        pattern=pattern,
        variant=variant.name,
        kind=variant.kind,
        status="ok" if reason is None else "invalid",
        reason=reason,
        probes=tuple(_result(one, verdicts) for one in evidence),
        verdicts=verdicts,
        baseline_s=sum(_length_s(each.whole) for each in baselines),
        window_s=_length_s(windows),
        slots=slots > 1,
        blame=blame,
        timeline=_timeline_summary(session),
        trace=trace,
    )


def _timeline_summary(session: Session) -> TimelineSummary | None:
    status = session.timeline_status()
    if not session.options.timeline or status is None:
        return None
    return TimelineSummary.of(status, session.timeline_losses())


def _blame(variant: Variant, session: Session, clock: _RunClock) -> tuple[Blame | None, str | None]:
    """The result of the experiment; None with a reason when it failed, None alone when it was stopped."""
    try:
        found = blame_experiment.measure(
            session,
            _aggressors(variant),
            _victims(variant),
            progress=lambda step: clock.blame_progress(step.passed_s),
            stop=clock.stop_requested,
        )
    except BlameStopped:
        return None, None
    except EngineFailed as error:
        return None, f"blame: {error.sentence}"
    return found, None


def blame_problem(chosen: Selection) -> str | None:
    """Why blame is impossible with every variant of ``chosen``; None if it is possible with one."""
    if any(_aggressors(variant) and _victims(variant) for _, variant in chosen):
        return None
    if any(_aggressors(variant) for _, variant in chosen):
        return "blame finds which aggressor delays a victim, but no victim is selected"
    return "blame switches aggressors on and off, but no aggressor is selected"


def _blame_plan(variant: Variant, together: bool) -> BlamePlan | None:
    """The plan of the experiment; None without aggressors or victims."""
    aggressors, victims = _aggressors(variant), _victims(variant)
    return blame_experiment.plan_of(aggressors, victims, together) if aggressors and victims else None


@dataclass(frozen=True, eq=False)
class _BaselineWindows:
    """The windows of all probes in the time before or after the aggressors, by probe: of all of it, and its parts."""

    whole: Mapping[str, Window]
    parts: Sequence[Mapping[str, Window]]


def _baseline(session: Session, clock: _RunClock, slots: int) -> _BaselineWindows:
    seconds = clock.baseline_s / 2
    count = max(2, round(seconds / BASELINE_WINDOW_S))
    begin = _records(session)
    snapshots = [session.snapshot()]
    for _ in range(count):
        clock.pass_time(session, seconds / count * slots)
        snapshots.append(session.snapshot())
    return _BaselineWindows(
        _with_records(session, snapshots[-1].minus(snapshots[0]), begin),
        [late.minus(early) for early, late in pairwise(snapshots)],
    )


def _windows(session: Session, clock: _RunClock, seconds: float) -> dict[str, Window]:
    records = _records(session)
    begin = session.snapshot()
    if clock.tracer is not None:
        clock.tracer.begin_window()
    clock.pass_time(session, seconds)
    windows = session.snapshot().minus(begin)
    if clock.tracer is not None:
        clock.tracer.end_window()
    return _with_records(session, windows, records)


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


def _drained(variant: Variant, session: Session, clock: _RunClock) -> bool:
    """Wait, at most _DRAIN_S, until no aggressor has a call in flight, then until its GPU work is done.

    False when one still has a call in flight.
    """
    for _ in range(int(_DRAIN_S / _STEP_S)):
        now = session.snapshot()
        if not any(now.probes[probe.name].in_flight for probe in _aggressors(variant)):
            clock.pass_time(session, _SETTLE_S)
            return True
        clock.pass_time(session, _STEP_S)
    return False


def _await_aggressors(variant: Variant, session: Session, clock: _RunClock) -> None:
    """Wait, at most _PROOF_S, until every aggressor runs or has failed."""
    for _ in range(int(_PROOF_S / _STEP_S)):
        now = session.snapshot().probes
        if all(has_run(probe, now[probe.name]) or now[probe.name].error for probe in _aggressors(variant)):
            return
        clock.pass_time(session, _STEP_S)


def _aggressors(variant: Variant) -> list[Probe]:
    return [probe for probe in variant.probes if probe.role is Role.AGGRESSOR]


def _victims(variant: Variant) -> list[Probe]:
    return [probe for probe in variant.probes if probe.role is Role.VICTIM]


def _invalid(variant: Variant, windows: Mapping[str, Window], errors: Mapping[str, str]) -> str | None:
    for probe in _aggressors(variant):
        if probe.name in errors:
            return f"the aggressor failed: {errors[probe.name]}"
        if not has_run(probe, windows[probe.name]):
            return f"the aggressor {probe.name} did not run in the window"
    return None


def _evidence(
    probe: Probe, windows: Mapping[str, Window], baselines: Sequence[_BaselineWindows], errors: Mapping[str, str]
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


def _result(one: Evidence, verdicts: Sequence[Verdict]) -> ProbeResult:
    return ProbeResult(one.probe, one.window, one.baselines, one.error, one.variation, _state(one, verdicts))


def _state(one: Evidence, verdicts: Sequence[Verdict]) -> str:
    if one.error is not None:
        return "failed"
    if one.probe.role is Role.AGGRESSOR:
        return "running" if one.window.iterations or one.window.in_flight is not None else "off"
    worst = max(
        (verdict.kind for verdict in verdicts if verdict.probe == one.probe.name and verdict.kind in _STATES),
        key=lambda kind: kind.severity,
        default=None,
    )
    return "n/a" if worst is None else _STATES.get(worst, "n/a")


def _fingerprint(
    gpu: str | None, info: Mapping[str, object], simulated: bool, survey: gpus.Survey | None
) -> dict[str, object]:
    if simulated:
        return fingerprint.fingerprint(None, info)
    uuid = gpu.split(",")[0] if gpu else fingerprint.first_gpu(info)
    return fingerprint.fingerprint(uuid, info, survey)
