"""Onset of a slowdown: the time from the last switch of an aggressor to the first slow call after it."""

from __future__ import annotations

from collections.abc import Sequence

from stallprobes.engine.snapshot import Snapshot
from stallprobes.latency.baseline import Baseline
from stallprobes.model import MS, Channel, Probe, Role
from stallprobes.verdicts.evidence import STALLED
from stallprobes.verdicts.kinds import IN_FLIGHT_NS, VerdictKind
from stallprobes.verdicts.verdict import Verdict


def onset(found: Verdict, now: Snapshot, probes: Sequence[Probe], baseline: Baseline | None) -> str:
    """A sentence on the time from the last switch to the first slow call after it.

    "" if that call is unknown, for example because the ring no longer contains it.
    """
    aggressors = [p for p in probes if p.role is Role.AGGRESSOR and now.probes[p.name].on]
    part = now.probes[found.probe]
    if not aggressors or baseline is None or found.phase is None or found.kind is VerdictKind.HOST:
        return ""
    newest = max(aggressors, key=lambda probe: now.probes[probe.name].on_since_ns)
    since = now.probes[newest.name].on_since_ns
    channel = Channel(found.phase)
    began: list[int] = []
    if part.in_flight is not None and part.in_flight.age_ns >= IN_FLIGHT_NS:
        began.append(part.in_flight.since_ns)
    if channel in part.channels and channel in baseline.channels and len(part.samples):
        border = STALLED * (baseline.channels[channel].percentile(99) or 0.0)
        of_channel = part.samples[part.samples["channel"] == list(part.channels).index(channel)]
        starts = of_channel["end_ns"] - of_channel["value_ns"]
        slow = (of_channel["value_ns"] > border) & (of_channel["end_ns"] > since)
        began.extend(starts[slow][:1].tolist())
        if len(starts) and starts[0] > since:
            # The ring does not reach back to the switch, so an earlier slow call may be missing from it.
            return ""
    if not began or min(began) - since > 5_000 * MS:
        return ""
    after = max(0, min(began) - since)
    words = f"{after / MS:.0f} ms after" if after >= MS else "as soon as"
    return f"It began {words} “{newest.title}” was switched on."
