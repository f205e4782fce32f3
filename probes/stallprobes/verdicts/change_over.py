"""Verdict on victims of different contexts that wait for each other's change-over, where they do not run in slots.

A GPU whose last work was another context's needs time to change over, though it is idle. Two victims that are measured
together pay it with each call, and their baselines hide shorter delays. So this verdict needs no baseline.
"""

from __future__ import annotations

from collections.abc import Sequence

from stallprobes.latency.ratio import Quantile
from stallprobes.model import US, Channel, Phase
from stallprobes.units import duration_ns
from stallprobes.verdicts.evidence import Evidence
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict

# The change-over of an H200 adds 135 us to a wait of 5 us. Other GPUs are assumed to be within these limits.
SHORTEST_NS, LONGEST_NS = 100 * US, 400 * US
# The waits of one GPU differ by the work itself only.
MOST_UNEQUAL = 1.25
_ENOUGH_CALLS = 20
_WAIT = Channel(Phase.WAIT)


def change_overs(victims: Sequence[Evidence], *, alone: bool) -> list[Verdict]:
    """At most one verdict for each GPU, which names one victim of each group that waits for the others' change-over.

    ``alone``: no aggressor runs, so the windows show it; otherwise the baselines do.
    """
    found = []
    groups = [one.probe.slot_group for one in victims if one.probe.slot_group is not None]
    for gpu in dict.fromkeys(gpu for gpu, _ in groups):
        waits: dict[str, tuple[Evidence, float]] = {}
        for one in victims:
            wait_ns = _wait_ns(one, alone)
            if wait_ns is not None and one.probe.slot_group is not None and one.probe.slot_group[0] == gpu:
                waits.setdefault(one.probe.slot_group[1], (one, wait_ns))
        if len(waits) > 1 and max(ns for _, ns in waits.values()) <= MOST_UNEQUAL * min(ns for _, ns in waits.values()):
            found.append(_verdict(list(waits.values())))
    return found


def _wait_ns(one: Evidence, alone: bool) -> float | None:
    """The median wait of a victim outside slots if it is as long as a change-over, else None."""
    if one.window.in_slots or one.error is not None:
        return None
    if alone:
        waits = one.window.channels.get(_WAIT)
        wait_ns = None if waits is None or waits.count < _ENOUGH_CALLS else waits.percentile(50)
    else:
        wait_ns = one.baseline_ns(_WAIT, Quantile.P50)
    return wait_ns if wait_ns is not None and SHORTEST_NS <= wait_ns <= LONGEST_NS else None


def _verdict(waits: Sequence[tuple[Evidence, float]]) -> Verdict:
    names = [one.probe.short_title or one.probe.title for one, _ in waits]
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
        proof=Proof.RULE,
    )
