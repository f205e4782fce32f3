"""Explanations of verdicts: by idle times, by the catalogue's causes, by the host, or by other processes on the GPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from stallprobes.catalog import UNKNOWN_CAUSE, explanation, idle_cause
from stallprobes.model import MS, Phase, Role
from stallprobes.units import duration_ns
from stallprobes.verdicts.evidence import Evidence, EvidenceByRole
from stallprobes.verdicts.verdict import Proof

# The period of a probe that makes few calls in a second.
_RARE_NS = 100 * MS


@dataclass(frozen=True)
class Explained:
    """The explanation of a verdict: the cause, the remedy, and how the cause is known."""

    why: str
    remedy: str
    proof: Proof = Proof.NONE


def host_noise(one: Evidence) -> Explained:
    """The explanation of a delay that the host control shows too."""
    control = one.probe.role is Role.HOST
    if one.idling:
        return Explained(
            "It makes no CUDA call: the CPU was slower after the idle time, not the GPU."
            if control
            else "The host control, which makes no CUDA call, slowed down after the same idle time.",
            "Limit the idle states of the CPU (cpupower idle-set, as root), or keep the thread active.",
        )
    return Explained(
        "It makes no CUDA call: the machine was slower, not the driver."
        if control
        else "The host control, which makes no CUDA call, slowed down at the same time.",
        "Look for other load on this machine, or measure again.",
    )


def explained(one: Evidence, by_role: EvidenceByRole, phase: Phase = Phase.CALL) -> Explained:
    """The explanation of a delay in ``phase``: idle times, an aggressor, or without one the other processes."""
    if one.idling:
        known = idle_cause(phase)
        return Explained(known.why, known.remedy, Proof.RULE)
    if not by_role.aggressors:
        return _without_aggressor(by_role.others)
    known = explanation(
        one.probe, [other.probe for other in by_role.aggressors], [other.probe for other in by_role.victims]
    )
    return Explained(known.why, known.remedy, Proof.NONE if known is UNKNOWN_CAUSE else Proof.RULE)


def _without_aggressor(others: tuple[str, ...] | None) -> Explained:
    """The explanation of a stall without an aggressor, from the other processes that NVML lists."""
    if others is None:
        known = "The other processes on this GPU are not known."
        remedy = "Look for another process that uses this GPU, for example with nvidia-smi."
    elif not others:
        known = "NVML lists no other process on this GPU."
        remedy = "Look for messages of the driver at this time (dmesg), and record the screen if it happens again."
    else:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        known = f"NVML lists another process on this GPU: {others[0]}{more}."
        remedy = "Stop the other process, or measure on another GPU."
    return Explained(f"No aggressor ran. {known}", remedy)


def after_idle(one: Evidence) -> str:
    """The end of a sentence on a call that was made after an idle time, "" for any other."""
    return f" after {duration_ns(one.window.period_ns)} without a call" if one.idling else ""


def of_calls(one: Evidence) -> str:
    """The number of calls on which a verdict rests, where few are made in a second; "" for others."""
    return f" ({one.window.iterations} calls)" if one.window.period_ns >= _RARE_NS else ""


def while_running(aggressors: Sequence[Evidence]) -> str:
    """The end of a sentence on a call beside ``aggressors``, "" without any."""
    threads = Counter(one.probe.title for one in aggressors)
    if len(threads) == 1:
        ((title, count),) = threads.items()
        return f" while “{title}” runs" + (f" in {count} threads" if count > 1 else "")
    titles = [f"“{title}”" + (f" in {count} threads" if count > 1 else "") for title, count in threads.items()]
    return f" while {' and '.join(titles)} run" if titles else ""
