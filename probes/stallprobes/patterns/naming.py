"""Names of placed probes, ``ENTRY@CONTEXT/STREAM``; context and stream are optional."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import replace

from stallprobes.catalog import SECOND_PROCESS, Placement, entries, on_null_stream, on_shared_stream
from stallprobes.errors import UnknownName
from stallprobes.model import GREEN, PRIMARY, SECONDARY, THIRD, Probe, Process
from stallprobes.patterns import patterns

ALL = "all"
OWN = "own"

_LONGEST_LIST = 20
CONTEXTS = {
    **{context.name: Placement(context) for context in (PRIMARY, SECONDARY, THIRD, GREEN)},
    SECOND_PROCESS: Placement(PRIMARY, process=Process.SECOND),
}
STREAMS = {OWN: Placement, "null": on_null_stream, "shared": on_shared_stream}


def parse_probe(name: str, *, stream: str = OWN, size: int | None = None, as_name: str | None = None) -> Probe:
    """The probe called ``name``, placed on ``stream`` ("own", "null", "shared") unless the name has a stream.

    ``size`` is the copy size in bytes; entries without a size ignore it. Raises UnknownName.
    """
    placed, _, named_stream = name.partition("/")
    entry, _, context = placed.partition("@")
    if entry not in entries():
        raise UnknownName(unknown_name_message("pattern or probe", entry, [*patterns(), *entries(), ALL]))
    if context and context not in CONTEXTS:
        raise UnknownName(unknown_name_message("context", context, CONTEXTS))
    if named_stream and named_stream not in STREAMS:
        raise UnknownName(unknown_name_message("stream", named_stream, STREAMS))
    where = CONTEXTS[context or PRIMARY.name]
    placement = replace(STREAMS[named_stream or stream](where.context), process=where.process)
    found = entries()[entry]
    return found.probe(placement, name=as_name or name, size=size if found.size else None)


def probe_name(probe: Probe, *, stream: str = OWN) -> str:
    """The shortest name of ``probe``, where ``stream`` is the default stream."""
    context = "" if probe.context in (PRIMARY.name, "none") else f"@{probe.context}"
    where = probe.stream.lower()
    return probe.entry + context + ("" if where in (stream, "none") else f"/{where}")


def unknown_name_message(kind: str, name: str, known: Iterable[str]) -> str:
    """The error that no ``kind`` is called ``name``, with the nearest of ``known``."""
    names = list(known)
    if not names:
        return f'there is no {kind} "{name}": only patterns have any'
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return f'there is no {kind} "{name}"; ' + (f'did you mean "{near[0]}"?' if near else _alternatives(names))


def _alternatives(names: Sequence[str]) -> str:
    return f"there are: {', '.join(names)}" if len(names) <= _LONGEST_LIST else "see: stallscope list"
