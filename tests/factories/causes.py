"""Every cause that the catalogue knows."""

from __future__ import annotations

from stallprobes import catalog
from stallprobes.catalog import Cause, entries


def every_cause() -> tuple[Cause, ...]:
    """The causes of the entries, and those of no entry, each once."""
    of_entries = (cause for entry in entries().values() for cause in entry.causes)
    others = (value for value in vars(catalog).values() if isinstance(value, Cause))
    return tuple(dict.fromkeys((*of_entries, *others)))
