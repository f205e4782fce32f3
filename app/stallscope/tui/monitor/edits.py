"""Edits of the probe set of a live engine: patterns, remedies and probes, call rates and copy sizes."""

from __future__ import annotations

from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import ProbeRow
from stallprobes.model import KIB, PRIMARY, SECONDARY
from stallprobes.patterns import patterns
from stallprobes.recording.observation import ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.sources.live import LiveSource


def add_probe(live: LiveSource, selected: str) -> str:
    """Load the probe that was ``selected`` in the picker, ``ENTRY@CONTEXT``, too; return its name.

    Raises ValueError if the probe set has no place for it.
    """
    entry, _, context = selected.partition("@")
    probe_set, on = live.requested()
    new = probe_sets.with_probe(probe_set, entry, SECONDARY if context == "secondary" else PRIMARY)
    live.load(new, on)
    return new.probes[-1].name


def variant_set(live: LiveSource, pattern: str, variant: str) -> tuple[ProbeSet, dict[str, bool]]:
    """The probe set of a variant, and its aggressors, which are to be on."""
    new = probe_sets.for_variant(live.requested()[0], patterns()[pattern], patterns()[pattern].variant(variant))
    return new, dict.fromkeys(probe_sets.aggressors(new), True)


def scale_period(live: LiveSource, analyzer: Analyzer | None, row: ProbeRow, factor: float) -> str:
    """Multiply the time between the calls of a victim by ``factor``, and return a sentence, "" for no such victim.

    Raises ValueError if that changes nothing.
    """
    # Not the row's: several keys may come before it is drawn again.
    old = live.period_ns(row.name)
    if old is None:
        return ""
    period = probe_sets.scaled_period_ns(old, factor)
    rate = 1e9 / period
    sentence = f"{row.title}: {rate:.{0 if rate >= 10 else 1}f} calls/s."
    if not live.set_period(row.name, period):
        return sentence
    if analyzer is not None:
        # Caches and clocks depend on the call rate, so the baseline does too.
        analyzer.discard_baselines([row.name])
    return f"{sentence} Its baseline is measured again."


def scale_size(live: LiveSource, name: str, factor: float) -> str:
    """Multiply the copy size of a probe by ``factor``, and return a sentence. Raises ValueError if it has no such size.

    The engine restarts.
    """
    probe_set, on = live.requested()
    new, size = probe_sets.with_scaled_size(probe_set, name, factor)
    live.load(new, on)
    return f"{name}: {size // KIB} KiB. The engine restarts."
