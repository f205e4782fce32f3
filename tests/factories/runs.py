"""Results of runs: a stalled copy, a starved launch, a quiet host, an aggressor, a failed and an invalid variant."""

from __future__ import annotations

from typing import Literal

from factories.verdicts import verdict
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import ChannelMap, InFlight, Window
from stallprobes.measurement.result import RunProbe, RunResult, RunVariant
from stallprobes.model import Channel, Kind, Op, Phase, Probe, Program, Role, Word
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Verdict

_KINDS = {kind.look.word: kind for kind in VerdictKind} | {"failed": VerdictKind.FAILED}
CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)


def around(ns: int, count: int) -> Histogram:
    """``count`` values from ``ns`` to 1.5 times that."""
    return Histogram.of(ns + ns * i // (2 * count) for i in range(count))


def probe(
    name: str,
    state: str = "quiet",
    role: Role = Role.VICTIM,
    *,
    context: str = "primary",
    stream: str = "own",
    error: str | None = None,
    baseline: ChannelMap | None = None,
    proof: int | None = None,
    **changed: object,
) -> RunProbe:
    """A probe of 1200 calls at 1 kHz that are as fast as its baseline; ``changed`` are fields of its window."""
    channels = {CALL: around(3_000, 1200), WAIT: around(5_000, 1200), DUE: around(9_000, 1200)}
    if baseline is None and role is Role.VICTIM:
        baseline = channels
    values: dict[str, object] = {
        "channels": channels,
        "iterations": 1200,
        "duration_ns": 1_200_000_000,
        "period_ns": 1_000_000,
        "first_ns": {CALL: 81_000, WAIT: 5_200, DUE: 90_000},
        "proof": proof or 0,
    }
    program = Program((Op("cuLaunchKernel"),), proof=None if proof is None else Word("proof"))
    title = f"{name} · primary · own stream"
    evidence = Evidence(
        probe=Probe(name, title, role, program, 1_000_000, name, context, stream),
        window=Window(**{**values, **changed}),  # type: ignore[arg-type]
        baselines=() if baseline is None else (baseline,),
        error=error,
    )
    return RunProbe.of_evidence(evidence, _KINDS.get(state))


def stalled() -> RunProbe:
    """Waits 2.4 ms in place of 5 µs; some 500 calls."""
    return probe(
        "d2d",
        "STALLED",
        context="secondary",
        iterations=500,
        channels={CALL: around(3_000, 500), WAIT: around(2_400_000, 500), DUE: around(2_403_000, 500)},
    )


def starved() -> RunProbe:
    """No call returned; one has been in flight for 1.19 s."""
    empty = Histogram.empty()
    return probe(
        "launch",
        "STARVED",
        iterations=0,
        in_flight=InFlight(0, 0, 1_190_000_000, 0),
        channels={CALL: empty, WAIT: empty, DUE: empty.add_waiting(1_190_000_000, 1_000_000)},
        first_ns={CALL: None, WAIT: None, DUE: None},
    )


def readback() -> RunProbe:
    """Two calls timed on the host and on the GPU."""
    ops = {}
    for label, host, gpu in (("reduction kernel", 2_900, 5_010_000), ("D2H 4 bytes", 5_003_000, 10_000)):
        ops[Channel(Phase.CALL, label)] = around(host, 40)
        ops[Channel(Phase.GPU, label)] = around(gpu, 40)
    channels = {CALL: around(3_000, 80), Channel(Phase.GPU): around(10_000, 80), DUE: around(5_100_000, 40), **ops}
    first_ns = dict.fromkeys(channels, 904_000)
    return probe("scalar-readback", iterations=40, channels=channels, baseline={}, first_ns=first_ns, proof=41)


def stall_of(probe: RunProbe) -> Verdict:
    """A stall of ``probe`` in wait p50, 427 times its baseline."""
    return verdict(
        probe=probe.name,
        phase=Phase.WAIT,
        baseline_us=5.6,
        now_us=2380.0,
        ratio=427.0,
        cause="The GPU runs one context at a time.",
        head=f"{probe.title}: wait 5.6 µs → 2.38 ms (×427) while the spin kernel was on.",
        remedy="Copy in the primary context.",
    )


def variant(
    name: str, *probes: RunProbe, status: Literal["ok", "unsupported", "invalid"] = "ok", reason: str | None = None
) -> RunVariant:
    """A variant's result; each probe that is not quiet has a verdict."""
    loud = [stall_of(p) for p in probes if p.state in ("STALLED", "STARVED")]
    return RunVariant(
        pattern="secondary-context-d2d",
        variant=name,
        kind=Kind.STALL,
        status=status,
        reason=reason,
        probes=probes,
        verdicts=tuple(loud),
        baseline_s=1.0,
        window_s=1.2 if probes else 0.0,
        slots=False,
        together=False,
        blame=None,
        spread=None,
    )


def run(*variants: RunVariant, interrupted: bool = False) -> RunResult:
    """A run of ``variants`` on a GPU of which not everything is known."""
    return RunResult(
        timeline=False,
        backend="cuda",
        profile=None,
        seed=None,
        fingerprint={
            "gpu": "NVIDIA H200",
            "driver": "580.159.04",
            "cuda": "13.0",
            "governor": None,
            "unknown": {"governor": "the kernel shows none"},
        },
        started_at="2026-11-21T07:00:00+00:00",
        seconds=1.2,
        variants=variants,
        interrupted=interrupted,
    )


def everything() -> RunResult:
    """One of each: stalled, starved, host and device times, a failed probe, an unsupported and an invalid variant."""
    host = probe("host-control", role=Role.HOST, context="none", stream="none")
    spin = probe("spin", "running", Role.AGGRESSOR, proof=24)
    failed = probe("d2h", "failed", iterations=2, error="cuMemcpyDtoHAsync returned 700 (illegal address)")
    return run(
        variant("kernel-other-context", stalled(), host, spin),
        variant("starving", starved(), spin),
        variant("read", readback()),
        variant("failing", failed, spin),
        variant("green-context", status="unsupported", reason="the driver has no green contexts"),
        variant("idle", probe("d2d"), status="invalid", reason="the spin kernel did not run"),
    )
