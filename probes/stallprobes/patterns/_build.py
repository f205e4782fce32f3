"""Construction of a pattern's variants from catalogue entries."""

from __future__ import annotations

from collections.abc import Sequence

from stallprobes.catalog import Placement, entries, in_threads
from stallprobes.catalog.host import HOST
from stallprobes.model import GREEN, Kind, Needs, Probe, Variant


def probe(entry: str, placement: Placement | None = None, *, size: int | None = None) -> Probe:
    """The probe of catalogue entry ``entry`` at ``placement``. Raises KeyError for an unknown entry."""
    return entries()[entry].probe(placement, size=size)


def idle_probe(entry: str, period_ns: int) -> Probe:
    """The probe of catalogue entry ``entry`` with one call each ``period_ns``, whose baseline has its usual period."""
    known = entries()[entry]
    return known.probe(period_ns=period_ns, baseline_period_ns=known.period_ns)


def several(entry: str, number: int) -> tuple[Probe, ...]:
    """``number`` probes of catalogue entry ``entry``, each on a stream of its own; one has the entry's name."""
    return (probe(entry),) if number == 1 else in_threads(probe(entry), number, f"{entry}-x{number}")


def variant(
    name: str,
    kind: Kind,
    title: str,
    probes: Sequence[Probe],
    *,
    expect: str,
    why: str = "",
    remedy: str = "",
    host: Probe | None = None,
) -> Variant:
    """A variant with the host control ``host`` added, by default the usual one.

    Its needs follow from the entries and contexts of ``probes``. Raises ValueError when one probe needs peer access and
    another must not have it.
    """
    return Variant(name, kind, title, (*probes, host or probe(HOST)), expect, why, remedy, _needs(probes))


def _needs(probes: Sequence[Probe]) -> Needs:
    each = [entries()[placed.entry].needs for placed in probes]
    peer_access = {needs.peer_access for needs in each} - {None}
    if len(peer_access) > 1:
        raise ValueError("one probe needs peer access and another must not have it")
    return Needs(
        gpus=max((needs.gpus for needs in each), default=1),
        peer_access=next(iter(peer_access), None),
        green_contexts=any(needs.green_contexts for needs in each)
        or any(placed.context == GREEN.name for placed in probes),
        batch_copies=any(needs.batch_copies for needs in each),
        libcupti=any(needs.libcupti for needs in each),
    )
