"""Results of runs: a stalled copy, a starved launch, a quiet host, an aggressor, a failed and an invalid variant."""

from __future__ import annotations

from factories.verdicts import verdict
from stallprobes.latency.histogram import Histogram
from stallprobes.measurement.measure import ProbeResult, RunResult, VariantResult
from stallprobes.model import Channel, Kind, Phase, Role
from stallprobes.verdicts.rules import Verdict

CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)


def around(ns: int, count: int) -> Histogram:
    """``count`` values from ``ns`` to 1.5 times that."""
    return Histogram.of(ns + ns * i // (2 * count) for i in range(count))


def probe(name: str, state: str = "quiet", role: Role = Role.VICTIM, **changed: object) -> ProbeResult:
    """A probe of 1200 calls at 1 kHz that went as quietly as before, but for what is ``changed``."""
    channels = {CALL: around(3_000, 1200), WAIT: around(5_000, 1200), DUE: around(9_000, 1200)}
    values: dict[str, object] = {
        "name": name,
        "title": f"{name} · primary · own stream",
        "entry": name,
        "role": role,
        "context": "primary",
        "stream": "own",
        "state": state,
        "calls": 1200,
        "starved": False,
        "in_flight_us": None,
        "in_flight_op": None,
        "error": None,
        "window_s": 1.2,
        "period_ns": 1_000_000,
        "channels": channels,
        "quiet": channels if role is Role.VICTIM else {},
        "first_ns": {CALL: 81_000, WAIT: 5_200, DUE: 90_000},
        "proof": None,
    }
    return ProbeResult(**{**values, **changed})  # type: ignore[arg-type]


def stalled() -> ProbeResult:
    """Waits 2.4 ms in place of 5 µs; some 500 calls."""
    return probe(
        "d2d",
        "STALLED",
        context="secondary",
        calls=500,
        channels={CALL: around(3_000, 500), WAIT: around(2_400_000, 500), DUE: around(2_403_000, 500)},
    )


def starved() -> ProbeResult:
    """No call came back; one has been in flight for 1.19 s."""
    empty = Histogram.empty()
    return probe(
        "launch",
        "STARVED",
        calls=0,
        starved=True,
        in_flight_us=1_190_000.0,
        in_flight_op="cuLaunchKernel",
        channels={CALL: empty, WAIT: empty, DUE: empty.add_waiting(1_190_000_000, 1_000_000)},
        first_ns={CALL: None, WAIT: None, DUE: None},
    )


def readback() -> ProbeResult:
    """Two calls timed on the host and on the GPU."""
    ops = {}
    for label, host, gpu in (("reduction kernel", 2_900, 5_010_000), ("D2H 4 bytes", 5_003_000, 10_000)):
        ops[Channel(Phase.CALL, label)] = around(host, 40)
        ops[Channel(Phase.GPU, label)] = around(gpu, 40)
    channels = {CALL: around(3_000, 80), Channel(Phase.GPU): around(10_000, 80), DUE: around(5_100_000, 40), **ops}
    return probe(
        "scalar-readback", calls=40, channels=channels, quiet={}, first_ns=dict.fromkeys(channels, 904_000), proof=41
    )


def stall_of(probe: ProbeResult) -> Verdict:
    """A stall of ``probe`` in wait p50, 427 times its baseline."""
    return verdict(
        probe=probe.name,
        phase=Phase.WAIT,
        quiet_us=5.6,
        now_us=2380.0,
        ratio=427.0,
        cause="The GPU runs one context at a time.",
        sentence=f"{probe.title}: wait 5.6 µs → 2.38 ms (×427) while the spin kernel was on.",
        helps="Copy in the primary context.",
    )


def variant(name: str, *probes: ProbeResult, status: str = "ok", reason: str | None = None) -> VariantResult:
    """A variant's result; each probe that is not quiet has a verdict."""
    loud = [stall_of(p) for p in probes if p.state in ("STALLED", "STARVED")]
    return VariantResult(
        pattern="secondary-context-d2d",
        variant=name,
        kind=Kind.STALL,
        status=status,
        reason=reason,
        probes=probes,
        verdicts=tuple(loud),
        quiet_s=1.0,
        window_s=1.2 if probes else 0.0,
    )


def run(*variants: VariantResult, interrupted: bool = False) -> RunResult:
    """A run of ``variants`` on a GPU of which not everything is known."""
    return RunResult(
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
    failed = probe("d2h", "failed", calls=2, error="cuMemcpyDtoHAsync returned 700 (illegal address)")
    return run(
        variant("kernel-other-context", stalled(), host, spin),
        variant("starving", starved(), spin),
        variant("read", readback()),
        variant("failing", failed, spin),
        variant("green-context", status="unsupported", reason="the driver has no green contexts"),
        variant("idle", probe("d2d"), status="invalid", reason="the spin kernel did not run"),
    )
