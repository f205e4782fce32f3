"""Short ways to place catalogue probes in a variant."""

from __future__ import annotations

from stallprobes.catalog import Place, entries
from stallprobes.model import Probe

HOST = "host"


def probe(entry: str, place: Place | None = None, *, name: str | None = None, size: int | None = None) -> Probe:
    """The catalogue's ``entry`` at ``place``. Raises KeyError for an unknown entry."""
    return entries()[entry].probe(place, name=name, size=size)


def with_control(*probes: Probe) -> tuple[Probe, ...]:
    """``probes`` and the host control, which is always on."""
    return (*probes, probe(HOST))
