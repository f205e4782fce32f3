"""Names of placed probes, ``ENTRY-xTHREADS@CONTEXT/STREAM``; threads, context and stream are optional.

``launch-burst-x16`` are 16 probes of the entry ``launch-burst``, each with a thread and resources of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from stallprobes.catalog import SECOND_PROCESS, Placement, entries, in_threads, on_null_stream, on_shared_stream
from stallprobes.catalog.entry import OWN, placed_name
from stallprobes.errors import UnknownName
from stallprobes.model import GREEN, PRIMARY, SECONDARY, THIRD, Probe, Process, Role
from stallprobes.patterns import patterns
from stallprobes.spelling import nearest

# Name that selects every pattern in ``run``. In a check's lists of probes, the name selects every victim or aggressor
# of the default check.
ALL = "all"
# Largest number of known names that the error message for an unknown name lists. The list appears only if no known name
# is similar. With more names, the message refers to "stallscope list".
_LONGEST_LIST = 20
# Largest number of threads of an aggressor. Reason: most machines have too few CPU cores for more threads. With more
# threads, the latencies would show the load of the host.
MOST_THREADS = 16
# Name of probes that run in several threads: ENTRY-xTHREADS, with or without @CONTEXT/STREAM after it.
_THREADS = re.compile(r"(?P<entry>[^@/]+)-x(?P<threads>[0-9]+)(?P<place>[@/].*)?")
# Placement of a probe by the name of its context, which follows @ in the probe's name.
CONTEXTS = {
    **{context.name: Placement(context) for context in (PRIMARY, SECONDARY, THIRD, GREEN)},
    SECOND_PROCESS: Placement(PRIMARY, process=Process.SECOND),
}
# Function that makes a probe's placement from its context, by the stream's name (after / in the probe's name).
STREAMS = {OWN: Placement, "null": on_null_stream, "shared": on_shared_stream}


def parse_probe(name: str, *, stream: str = OWN, size: int | None = None, as_name: str | None = None) -> Probe:
    """The probe called ``name``, placed on ``stream`` ("own", "null", "shared") unless the name has a stream.

    ``size`` is the copy size in bytes; entries without a size ignore it. Raises UnknownName.
    """
    placed, slash, named_stream = name.partition("/")
    entry, at, context = placed.partition("@")
    if entry in patterns() and entry not in entries():
        raise UnknownName(
            f'"{name}": {entry} is a pattern, not a probe; "stallscope run {entry}" measures it, with --variant one of '
            f'its variants, and "stallscope check --pattern {entry}" takes its probes'
        )
    if entry not in entries():
        raise UnknownName(unknown_name_message("pattern or probe", entry, [*patterns(), *entries(), ALL]))
    if at and context not in CONTEXTS:
        raise UnknownName(unknown_name_message("context", context, CONTEXTS))
    if slash and named_stream not in STREAMS:
        raise UnknownName(unknown_name_message("stream", named_stream, STREAMS))
    where = CONTEXTS[context or PRIMARY.name]
    placement = replace(STREAMS[named_stream or stream](where.context), process=where.process)
    catalog_entry = entries()[entry]
    return catalog_entry.probe(placement, name=as_name or name, size=size if catalog_entry.size else None)


def parse_probes(name: str, *, stream: str = OWN, size: int | None = None) -> tuple[Probe, ...]:
    """The probes called ``name``, one for each of its threads; other than that as ``parse_probe``. Raises UnknownName.

    Several are called ``NAME 1``, ``NAME 2`` and so on.
    """
    match = _THREADS.fullmatch(name)
    if match is None or name.partition("/")[0].partition("@")[0] in entries():
        return (parse_probe(name, stream=stream, size=size),)
    threads = int(match["threads"])
    probe = parse_probe(match["entry"] + (match["place"] or ""), stream=stream, size=size)
    if probe.role is not Role.AGGRESSOR:
        raise UnknownName(f'"{match["entry"]}" is no aggressor: only aggressors run in several threads')
    if not 2 <= threads <= MOST_THREADS:
        raise UnknownName(f'"{name}": {threads} is no number of threads: 2 to {MOST_THREADS} are possible')
    return in_threads(probe, threads, name)


def in_several_threads(name: str) -> bool:
    """True if ``name`` has a number of threads."""
    return entry_name(name) != name.partition("/")[0].partition("@")[0]


def entry_name(name: str) -> str:
    """The catalogue entry of the probe or probes called ``name``."""
    entry = name.partition("/")[0].partition("@")[0]
    match = _THREADS.fullmatch(entry)
    return entry if entry in entries() or match is None else match["entry"]


def by_name(probes: Iterable[Probe], *, stream: str = OWN) -> dict[str, list[Probe]]:
    """``probes`` by their shortest names, where ``stream`` is the default stream.

    Probes that differ only in their threads are together, by a name with their number.
    """
    named: dict[str, list[Probe]] = {}
    for probe in probes:
        named.setdefault(probe_name(probe, stream=stream), []).append(probe)
    return {probe_name(each[0], stream=stream, threads=len(each)): each for each in named.values()}


def probe_name(probe: Probe, *, stream: str = OWN, threads: int = 1) -> str:
    """The shortest name of ``probe``, or of several like it, where ``stream`` is the default stream."""
    return placed_name(probe.entry, probe.context, probe.stream, threads, usual_stream=stream)


def unknown_name_message(kind: str, name: str, known: Iterable[str]) -> str:
    """The error that no ``kind`` is called ``name``, with the nearest of ``known``."""
    names = list(known)
    if not names:
        return f'there is no {kind} "{name}": only patterns have any'
    near = nearest(name, names, cutoff=0.5)
    there = f"there are: {', '.join(names)}" if len(names) <= _LONGEST_LIST else "see: stallscope list"
    return f'there is no {kind} "{name}"; ' + (f'did you mean "{near}"?' if near else there)
