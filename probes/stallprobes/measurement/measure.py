"""A run: for each variant its quiet, then the same with its aggressors on, then quiet again, in an engine of its own.

Quiet is measured on both sides because a machine drifts: what is as slow before or after as it is between was not
made slow by the aggressors.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.board import ProbeSnapshot, Snapshot
from stallprobes.engine.session import Session
from stallprobes.errors import EXIT_NO_GPU, EXIT_USAGE, EngineFailed, UnknownName, Unsupported
from stallprobes.latency.histogram import Histogram
from stallprobes.machine import fingerprint, gpus
from stallprobes.model import Channel, Kind, Needs, Probe, Role, Variant, op_name
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import ALL, parse_probe, unknown_name_message
from stallprobes.verdicts import rules
from stallprobes.verdicts.rules import Seen, Verdict, judge

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

_WARM_S = 0.5
_SETTLE_S = 0.3
_CALM_S = 2.0
_PROOF_S = 5.0
_START_S = 1.5
_STEP_S = 0.1
_SHORTEST_QUIET_S = 1.0
_STATES = {
    "quiet": "quiet",
    "unsure": "unsure",
    "slower": "slower",
    "host": "slower",
    "stalled": "STALLED",
    "starved": "STARVED",
}


@dataclass(frozen=True)
class RunProgress:
    """How far a run is, in seconds of measuring, and what it does now."""

    done_s: float
    total_s: float
    text: str


@dataclass(frozen=True, eq=False)
class ProbeResult:
    """One probe in one variant: with the aggressors on in ``channels``, before that in ``quiet``.

    ``calls`` are turns that ended in the window of ``window_s`` seconds. ``first_ns`` is each channel's very first
    value. ``proof`` is what the GPU counted in the window, None where the program has no such word.
    """

    name: str
    title: str
    entry: str
    role: Role
    context: str
    stream: str
    state: str
    calls: int
    starved: bool
    in_flight_us: float | None
    in_flight_op: str | None
    error: str | None
    window_s: float
    period_ns: int
    channels: Mapping[Channel, Histogram]
    quiet: Mapping[Channel, Histogram]
    first_ns: Mapping[Channel, int | None]
    proof: int | None


@dataclass(frozen=True, eq=False)
class VariantResult:
    """One variant: ``status`` ok, unsupported or invalid, the latter two with a ``reason``."""

    pattern: str
    variant: str
    kind: Kind
    status: str
    reason: str | None
    probes: tuple[ProbeResult, ...]
    verdicts: tuple[Verdict, ...]
    quiet_s: float
    window_s: float


@dataclass(frozen=True, eq=False)
class RunResult:
    """All that a run found. ``backend`` is "cuda", "simulated" or "host"; profile and seed are the simulated GPU's."""

    backend: str
    profile: str | None
    seed: int | None
    fingerprint: Mapping[str, object]
    started_at: str
    seconds: float
    variants: tuple[VariantResult, ...]
    interrupted: bool = False


Selection = Sequence[tuple[str, Variant]]


def selection(names: Sequence[str], variants: Sequence[str] = ()) -> list[tuple[str, Variant]]:
    """The variants that ``names`` stand for: patterns (``all`` for every one), and probes, which make a variant of
    their own together. A probe may be placed by ``NAME@CONTEXT``, by ``NAME/STREAM`` or by both, in this order.
    ``variants`` keeps only those of the patterns.

    Raises UnknownName.
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
        found.append((PROBES, _together(probes)))
    return found


def _together(names: Iterable[str]) -> Variant:
    probes: dict[str, Probe] = {}
    for name in names:
        probes[name] = parse_probe(name)
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
) -> RunResult:
    """Measure each variant for ``seconds``, its quiet before it, one after the other.

    ``gpu``: UUIDs of the GPUs to use, by commas. ``stop`` is asked every 0.1 s; once it says True, or at a
    KeyboardInterrupt, what was measured is returned. ``survey`` saves asking the driver once more.

    Raises EngineFailed when there is no usable GPU or the options are wrong before anything was measured; any later
    failure makes its variant invalid and the run goes on.
    """
    started = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    settings = options or Options()
    if gpu is not None:
        settings = replace(settings, gpu=gpu)
    meter = _Meter(len(chosen), seconds, progress, stop)
    results: list[VariantResult] = []
    info: Mapping[str, object] = {}
    for pattern, variant in chosen:
        if meter.stopped or stop():
            meter.stopped = True
            break
        meter.begin(f"{pattern} · {variant.name}")
        try:
            result, told = _variant(pattern, variant, backend, settings, meter, first=not results)
        except KeyboardInterrupt:
            # While an engine starts nobody asks ``stop``; what the variants before it found is kept all the same.
            meter.stopped = True
            break
        info = told or info
        if result is not None:
            results.append(result)
        meter.end()
    simulated = backend == "sim"
    return RunResult(
        backend="simulated" if simulated else backend,
        profile=str(info.get("profile")) if simulated and info.get("profile") else None,
        seed=settings.seed if simulated else None,
        fingerprint=_fingerprint(settings.gpu, info, simulated, survey),
        started_at=started,
        seconds=seconds,
        variants=tuple(results),
        interrupted=meter.stopped,
    )


class _Stopped(Exception):
    """The run is to end before this variant is measured."""


class _Meter:
    """Counts the seconds of a run, and lets them pass in steps so that it can be stopped."""

    def __init__(
        self, variants: int, seconds: float, progress: Callable[[RunProgress], None] | None, stop: Callable[[], bool]
    ) -> None:
        self.window_s = seconds
        self.quiet_s = max(_SHORTEST_QUIET_S, seconds / 2)
        self.stopped = False
        self._each = _START_S + _WARM_S + self.quiet_s + 2 * _SETTLE_S + self.window_s
        self._total = variants * self._each
        self._base = 0.0
        self._done = 0.0
        self._text = ""
        self._progress = progress
        self._stop = stop

    def begin(self, text: str) -> None:
        self._done = self._base
        self._say(text)

    def end(self) -> None:
        self._base += self._each
        self._done = self._base
        self._say(self._text)

    def started(self) -> None:
        self._done += _START_S

    def pass_time(self, session: Session, seconds: float) -> None:
        """Let ``seconds`` pass in the session. Raises _Stopped when asked to stop, EngineFailed when it is gone."""
        left = seconds
        while left > 1e-9:
            if self._stop():
                self.stopped = True
                raise _Stopped
            step = min(_STEP_S, left)
            session.run_for(step)
            left -= step
            self._done += step
            self._say(self._text)

    def _say(self, text: str) -> None:
        self._text = text
        if self._progress is not None:
            self._progress(RunProgress(min(self._done, self._total), self._total, text))


def _variant(
    pattern: str, variant: Variant, backend: str, options: Options, meter: _Meter, first: bool
) -> tuple[VariantResult | None, Mapping[str, object]]:
    def without(status: str, reason: str) -> VariantResult:
        return VariantResult(pattern, variant.name, variant.kind, status, reason, (), (), 0.0, 0.0)

    session = Session(variant.probes, backend=backend, options=options)
    try:
        info = session.start()
        meter.started()
        return _measured(pattern, variant, session, meter), info
    except Unsupported as error:
        return without("unsupported", error.reason), {}
    except _Stopped:
        return None, session.info
    except EngineFailed as error:
        if first and error.exit_code in (EXIT_NO_GPU, EXIT_USAGE):
            raise
        return without("invalid", error.sentence), session.info
    finally:
        session.stop()


def _measured(pattern: str, variant: Variant, session: Session, meter: _Meter) -> VariantResult:
    aggressors = [probe.name for probe in variant.probes if probe.role is Role.AGGRESSOR]
    session.set_running([probe.name for probe in variant.probes if probe.role is not Role.AGGRESSOR])
    meter.pass_time(session, _WARM_S)
    before = _window(session, meter, meter.quiet_s / 2)
    session.set_running(dict.fromkeys(aggressors, True))
    _await_proof(variant, session, meter)
    meter.pass_time(session, _SETTLE_S)
    window = _window(session, meter, meter.window_s)
    session.set_running(dict.fromkeys(aggressors, False))
    quiets = (before, _window(session, meter, meter.quiet_s / 2)) if _calmed(variant, session, meter) else (before,)
    errors = {failure.probe: failure.sentence for failure in session.probe_failures()}
    seen = [_seen(probe, window, quiets, errors) for probe in variant.probes]
    verdicts = judge(seen)
    reason = _invalid(variant, window, errors)
    return VariantResult(
        pattern=pattern,
        variant=variant.name,
        kind=variant.kind,
        status="ok" if reason is None else "invalid",
        reason=reason,
        probes=tuple(_result(one, window.probes[one.probe.name], verdicts) for one in seen),
        verdicts=verdicts,
        quiet_s=sum(part.probes[variant.probes[0].name].window_ns or 0 for part in quiets) / 1e9,
        window_s=(window.probes[variant.probes[0].name].window_ns or 0) / 1e9,
    )


def _window(session: Session, meter: _Meter, seconds: float) -> Snapshot:
    begin = session.snapshot()
    meter.pass_time(session, seconds)
    return session.snapshot().minus(begin)


def _calmed(variant: Variant, session: Session, meter: _Meter) -> bool:
    """Wait, at most _CALM_S, until no aggressor has a call in flight, then a little for what they left on the GPU.

    False when one still has.
    """
    for _ in range(int(_CALM_S / _STEP_S)):
        now = session.snapshot()
        if not any(now.probes[probe.name].in_flight for probe in _aggressors(variant)):
            meter.pass_time(session, _SETTLE_S)
            return True
        meter.pass_time(session, _STEP_S)
    return False


def _await_proof(variant: Variant, session: Session, meter: _Meter) -> None:
    """Wait, at most _PROOF_S, until every aggressor has shown that it runs."""
    for _ in range(int(_PROOF_S / _STEP_S)):
        now = session.snapshot()
        if all(_ran(probe, now.probes[probe.name]) or now.probes[probe.name].error for probe in _aggressors(variant)):
            return
        meter.pass_time(session, _STEP_S)


def _aggressors(variant: Variant) -> list[Probe]:
    return [probe for probe in variant.probes if probe.role is Role.AGGRESSOR]


def _ran(probe: Probe, part: ProbeSnapshot) -> bool:
    """Whether an aggressor ran: by the GPU's own count where it has one, else by its turns or the call it is in."""
    if probe.program.proof is not None:
        return part.proof > 0
    return part.iterations > 0 or part.in_flight is not None


def _invalid(variant: Variant, window: Snapshot, errors: Mapping[str, str]) -> str | None:
    for probe in _aggressors(variant):
        if probe.name in errors:
            return f"the aggressor failed: {errors[probe.name]}"
        if not _ran(probe, window.probes[probe.name]):
            return f"the aggressor {probe.name} did not run in the window"
    return None


def _seen(probe: Probe, window: Snapshot, quiets: Sequence[Snapshot], errors: Mapping[str, str]) -> Seen:
    now = window.probes[probe.name]
    flight = now.in_flight
    return Seen(
        probe=probe,
        channels=now.channels,
        quiet=() if probe.role is Role.AGGRESSOR else tuple(quiet.probes[probe.name].channels for quiet in quiets),
        calls=now.iterations,
        window_ns=now.window_ns or 0,
        in_flight_ns=None if flight is None else flight.age_ns,
        in_flight_op=None if flight is None else op_name(probe.program.ops[flight.op]),
        error=errors.get(probe.name),
    )


def _result(one: Seen, part: ProbeSnapshot, verdicts: Sequence[Verdict]) -> ProbeResult:
    probe = one.probe
    return ProbeResult(
        name=probe.name,
        title=probe.title,
        entry=probe.entry,
        role=probe.role,
        context=probe.context,
        stream=probe.stream,
        state=_state(one, verdicts),
        calls=one.calls,
        starved=one.starved,
        in_flight_us=None if one.in_flight_ns is None else one.in_flight_ns / 1000,
        in_flight_op=one.in_flight_op,
        error=one.error,
        window_s=one.window_ns / 1e9,
        period_ns=part.period_ns,
        channels=one.channels,
        quiet=one.whole_quiet,
        first_ns=part.first_ns,
        proof=part.proof if probe.program.proof is not None else None,
    )


def _state(one: Seen, verdicts: Sequence[Verdict]) -> str:
    if one.error is not None:
        return "failed"
    if one.probe.role is Role.AGGRESSOR:
        return "running" if one.calls or one.in_flight_ns is not None else "off"
    own = [found for found in verdicts if found.probe == one.probe.name]
    return _STATES.get(max(own, key=rules.severity).kind, "n/a") if own else "n/a"


def _fingerprint(
    gpu: str | None, info: Mapping[str, object], simulated: bool, survey: gpus.Survey | None
) -> dict[str, object]:
    if simulated:
        return fingerprint.fingerprint(None, info)
    uuid = gpu.split(",")[0] if gpu else fingerprint.first_gpu(info)
    return fingerprint.fingerprint(uuid, info, survey)
