"""Explanations of verdicts: by idle times, by the catalogue's causes, by the host, or by other processes on the GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from stallprobes.catalog import UNKNOWN_CAUSE, Cause, cause, idle_cause, time_slice_cause
from stallprobes.model import MS, Phase, Probe, Role
from stallprobes.units import duration_ns
from stallprobes.verdicts.candidates import (
    AggressorGroup,
    Effect,
    EffectsSource,
    KnownEffects,
    aggressor_groups,
    no_effects,
)
from stallprobes.verdicts.evidence import Evidence, EvidenceByRole
from stallprobes.verdicts.verdict import Proof, Verdict

# Shortest period (ns) of a victim's calls for which a verdict states the number of measured calls. Reason: with this
# period, the victim makes at most ten calls in a second.
_RARE_NS = 100 * MS


class Explained(NamedTuple):
    """The explanation of a verdict, by its names: cause and remedy, each also as a clause, and how the cause is known.

    ``aggressors`` are the aggressors that the cause names; with several of them, the candidates.
    """

    cause: str
    remedy: str
    short_cause: str
    short_remedy: str
    proof: Proof = Proof.NONE
    aggressors: tuple[str, ...] = ()


def host_noise(evidence: Evidence) -> Explained:
    """The explanation of a delay that the host control shows too."""
    control = evidence.probe.role is Role.HOST
    if evidence.idling:
        return Explained(
            "It makes no CUDA call: the CPU was slower after the idle time, not the GPU."
            if control
            else "The host control, which makes no CUDA call, slowed down after the same idle time.",
            "Limit the idle states of the CPU (cpupower idle-set, as root), or keep the thread active.",
            "the CPU was slower after the idle time, not the GPU",
            "limit idle states of the CPU (cpupower idle-set), or keep it busy",
        )
    return Explained(
        "It makes no CUDA call: the machine was slower, not the driver."
        if control
        else "The host control, which makes no CUDA call, slowed down at the same time.",
        "Look for other load on this machine, or measure again.",
        "the machine was slower, not the driver",
        "look for other load on this machine, or measure again",
    )


def explained(
    evidence: Evidence, by_role: EvidenceByRole, phase: Phase | None = None, ratio: float | None = None
) -> Explained:
    """The explanation of a delay in ``phase`` by ``ratio``: idle times, aggressors, or without any other processes."""
    if evidence.idling:
        return _of_cause(idle_cause(phase or Phase.CALL))
    if not by_role.aggressors:
        return _without_aggressor(by_role.others)
    aggressors, victims = ([other.probe for other in others] for others in (by_role.aggressors, by_role.victims))
    return beside_aggressors(evidence.probe, aggressors, victims, by_role.effects, phase, ratio)


def beside_aggressors(
    victim: Probe,
    aggressors: Sequence[Probe],
    victims: Sequence[Probe] = (),
    effects: EffectsSource = no_effects,
    phase: Phase | None = None,
    ratio: float | None = None,
) -> Explained:
    """The explanation of a delay of ``victim`` in ``phase`` (None: in any) by ``ratio``, beside ``aggressors``.

    A single aggressor is the cause. Among several, recorded checks (``effects``) rule out each aggressor without such
    an effect by itself. A single remaining candidate is the cause; several remaining candidates have a cause only if
    they share it.
    """
    groups = aggressor_groups(aggressors)
    if len(groups) == 1:
        return _of_cause(_known_cause(victim, groups[0], phase, victims), Proof.RULE, groups)
    checks = effects()
    effects_of = {
        group: None if checks is None or phase is None else checks.effect(victim, group, phase, ratio)
        for group in groups
    }
    candidates = [group for group in groups if effects_of[group] is not Effect.NONE]
    causes = {_known_cause(victim, group, phase, victims) for group in candidates}
    if len(causes) == 1 and UNKNOWN_CAUSE not in causes:
        sure = len(candidates) == 1 and effects_of[candidates[0]] is Effect.STALLS
        return _of_several(causes.pop(), Proof.RULE if sure else Proof.PROBABLE, candidates)
    return _not_known(groups, candidates, checks)


def began_with(verdict: Verdict, victim: Probe, group: AggressorGroup, victims: Sequence[Probe]) -> Verdict:
    """``verdict``, whose cause is not known, with the probable one: it began when ``group`` was switched on."""
    known = _known_cause(victim, group, verdict.phase, victims)
    return verdict.changed(**_of_several(known, Proof.PROBABLE, [group], ", at whose switch it began")._asdict())


def _known_cause(victim: Probe, group: AggressorGroup, phase: Phase | None, victims: Sequence[Probe]) -> Cause:
    known = cause(victim, group.probes[0], phase)
    if known is None and phase is not Phase.CALL:
        known = time_slice_cause(victim, victims)
    return UNKNOWN_CAUSE if known is None else known


def _of_cause(known: Cause, proof: Proof = Proof.RULE, groups: Sequence[AggressorGroup] = ()) -> Explained:
    proof = Proof.NONE if known is UNKNOWN_CAUSE else proof
    names = tuple(group.name for group in groups)
    return Explained(known.why, known.remedy, known.short, known.short_remedy, proof, names)


def _of_several(known: Cause, proof: Proof, groups: Sequence[AggressorGroup], how: str = "") -> Explained:
    """The explanation that names one aggressor of several as the cause, or some of them as candidates."""
    reason = _of_cause(known, proof, groups)
    begin = "Probably because of" if proof is Proof.PROBABLE else "Because of"
    why = f"{begin} {_listed(reason.aggressors, 'or')}{how}: {known.why}"
    return reason._replace(cause=why, proof=proof)


def _not_known(
    groups: Sequence[AggressorGroup], candidates: Sequence[AggressorGroup], checks: KnownEffects | None
) -> Explained:
    short = f"not known yet: {len(groups)} aggressors run"
    why, names = f"N{short[1:]}.", tuple(group.name for group in candidates)
    if checks is not None and not candidates:
        why += f" None of them stalls it so by itself ({checks.source})."
    elif checks is not None and len(candidates) < len(groups):
        ruled_out = [group.name for group in groups if group not in candidates]
        each = "does" if len(ruled_out) == 1 else "do"
        why += (
            f" It may be {_listed(names, 'or')}; {_listed(ruled_out, 'and')} {each} not stall it so alone "
            f"({checks.source})."
        )
    return Explained(why, "", short, "", Proof.OPEN, names)


def _listed(names: Sequence[str], word: str) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"


def _without_aggressor(others: tuple[str, ...] | None) -> Explained:
    """The explanation of a stall without an aggressor, from the other processes that NVML lists."""
    if others is None:
        known = "The other processes on this GPU are not known."
        remedy = "Look for another process that uses this GPU, for example with nvidia-smi."
        short = "no aggressor ran; other processes are not known"
        short_remedy = "look for another process on this GPU (nvidia-smi)"
    elif not others:
        known = "NVML lists no other process on this GPU."
        remedy = "Look for messages of the driver at this time (dmesg), and record the screen if it happens again."
        short = "no aggressor ran, and NVML lists no other process"
        short_remedy = "look for messages of the driver at this time (dmesg)"
    else:
        more = f" and {len(others) - 1} more" if len(others) > 1 else ""
        known = f"NVML lists another process on this GPU: {others[0]}{more}."
        remedy = "Stop the other process, or measure on another GPU."
        short = "no aggressor ran, but another process uses this GPU"
        short_remedy = "stop the other process, or measure on another GPU"
    return Explained(f"No aggressor ran. {known}", remedy, short, short_remedy)


def after_idle(evidence: Evidence) -> str:
    """The end of a sentence on a call that was made after an idle time, "" for any other."""
    return f" after {duration_ns(evidence.window.period_ns)} without a call" if evidence.idling else ""


def of_calls(evidence: Evidence) -> str:
    """The number of calls on which a verdict rests, where few are made in a second; "" for others."""
    return f" ({evidence.window.iterations} calls)" if evidence.window.period_ns >= _RARE_NS else ""


def while_running(aggressors: Sequence[Evidence]) -> str:
    """The end of a sentence on a call beside ``aggressors``, "" without any."""
    names = [group.name for group in aggressor_groups(aggressor.probe for aggressor in aggressors)]
    return f" while {_listed(names, 'and')} run{'s' if len(names) == 1 else ''}" if names else ""
