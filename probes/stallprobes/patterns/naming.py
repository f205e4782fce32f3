"""Probes by name: ``ENTRY@CONTEXT/STREAM``, of which the last two may be left out."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from stallprobes.catalog import Place, entries, on_null_stream, on_shared_stream
from stallprobes.errors import UnknownName
from stallprobes.model import GREEN, PRIMARY, SECONDARY, THIRD, Probe
from stallprobes.patterns import patterns

ALL = "all"
OWN = "own"

_MOST_NAMES = 20
_CONTEXTS = {context.name: context for context in (PRIMARY, SECONDARY, THIRD, GREEN)}
_STREAMS = {OWN: Place, "null": on_null_stream, "shared": on_shared_stream}


def named(name: str, *, stream: str = OWN, size: int | None = None, as_name: str | None = None) -> Probe:
    """The probe that ``name`` stands for, on ``stream`` ("own", "null", "shared") where the name says none.

    ``size`` is what it copies in bytes, for entries that have a size. Raises UnknownName.
    """
    placed, _, wanted_stream = name.partition("/")
    entry, _, context = placed.partition("@")
    if entry not in entries():
        raise UnknownName(unknown("pattern or probe", entry, [*patterns(), *entries(), ALL]))
    if context and context not in _CONTEXTS:
        raise UnknownName(unknown("context", context, _CONTEXTS))
    if wanted_stream and wanted_stream not in _STREAMS:
        raise UnknownName(unknown("stream", wanted_stream, _STREAMS))
    place = _STREAMS[wanted_stream or stream](_CONTEXTS[context or PRIMARY.name])
    found = entries()[entry]
    return found.probe(place, name=as_name or name, size=size if found.size else None)


def name_of(probe: Probe, *, stream: str = OWN) -> str:
    """The shortest name of a probe, where ``stream`` goes without saying."""
    context = "" if probe.context in (PRIMARY.name, "none") else f"@{probe.context}"
    where = probe.stream.lower()
    return probe.entry + context + ("" if where in (stream, "none") else f"/{where}")


def unknown(what: str, name: str, there: Iterable[str]) -> str:
    """The sentence that there is no ``what`` called ``name``, with the nearest of ``there``."""
    names = list(there)
    if not names:
        return f'there is no {what} "{name}": only patterns have any'
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f'there is no {what} "{name}"; ' + (f'did you mean "{near[0]}"?' if near else _known(names))


def _known(names: Sequence[str]) -> str:
    return f"there are: {', '.join(names)}" if len(names) <= _MOST_NAMES else "see: stallscope list"
