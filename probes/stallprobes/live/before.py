"""The stall before a remedy, and the probe of the remedy with the stalled call."""

from __future__ import annotations

from collections.abc import Sequence

from stallprobes.catalog import entries, size_of
from stallprobes.live.heat_map import EarlierSet
from stallprobes.live.view_model import StalledBefore
from stallprobes.model import KIB, MIB, Kind, Probe, Role
from stallprobes.patterns import patterns
from stallprobes.recording.observation import ProbeSet


def stalled_before(probe_set: ProbeSet, earlier: Sequence[EarlierSet]) -> StalledBefore | None:
    """The newest stall in ``earlier`` for which ``probe_set`` is a remedy; None without one.

    It is a stall of the remedy's pattern; after it, only other remedies of this pattern were measured.
    """
    pattern = patterns().get(probe_set.pattern)
    variants = {} if pattern is None else {variant.name: variant for variant in pattern.variants}
    variant = variants.get(probe_set.variant)
    if variant is None or variant.kind is not Kind.REMEDY:
        return None
    stalling = {
        (victim.entry, victim.context) for v in variants.values() if v.kind is Kind.STALL for victim in v.victims
    }
    for past in reversed(earlier):
        if past.row.mark == "bad":
            stalled = past.probe
            if (
                past.probe_set.pattern not in ("", probe_set.pattern)
                or (stalled.entry, stalled.context) not in stalling
            ):
                return None
            same = _counterpart(stalled, probe_set)
            name = None if same is None else same.name
            return StalledBefore(past.probe_set, past.row, past.channels, name, _relation(past, same, probe_set))
        if past.probe_set.pattern != probe_set.pattern:
            return None
    return None


def _counterpart(stalled: Probe, probe_set: ProbeSet) -> Probe | None:
    """The victim of ``probe_set`` that makes the call of ``stalled``: of the same name, else the first one."""
    same = [
        probe
        for probe in probe_set.probes
        if (probe.role, probe.entry, size_of(probe)) == (Role.VICTIM, stalled.entry, size_of(stalled))
    ]
    return next((probe for probe in same if probe.name == stalled.name), same[0] if same else None)


def _relation(before: EarlierSet, same: Probe | None, probe_set: ProbeSet) -> str:
    """The difference from the stall: the call, else its context, its stream or the aggressors."""
    stalled = before.probe
    if same is None:
        first = next((probe for probe in probe_set.probes if probe.role is Role.VICTIM), None)
        return "" if first is None else f"another operation: {operation(first)}"
    what = "same call" if size_of(same) is None else "same copy"
    aggressors = [probe for probe in probe_set.probes if probe.role is Role.AGGRESSOR]
    if same.context != stalled.context:
        beside = next((probe.name for probe in aggressors if probe.context == same.context), None)
        return f"{what}, {f'{same.context} context' if beside is None else f'context of {beside}'}"
    if same.stream != stalled.stream:
        return f"{what}, {same.stream} stream"
    names = dict.fromkeys(
        entries()[probe.entry].title if probe.entry in entries() else probe.entry for probe in aggressors
    )
    return f"{what}, beside {' and '.join(names)}" if len(names) in (1, 2) else what


def operation(probe: Probe) -> str:
    """The operation of ``probe``, with its size: ``pinned D2H of 1 MiB``."""
    entry, size = entries().get(probe.entry), size_of(probe)
    title = probe.entry if entry is None else entry.title
    if not size or size < KIB:
        return title
    return f"{title} of {f'{size // MIB} MiB' if size >= MIB else f'{size // KIB} KiB'}"
