"""Sentences about processes that stand still: where each rank of a job is that hangs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from stallprobes.foreign_text import printable
from stallprobes.units import duration_ns, enumeration
from stallprobes.watch.attribution.findings import ProcessFindings, Standstill
from stallprobes.watch.reading.kernel_wait import RUNNING
from stallprobes.watch.sentences import frame_text


def standstill_text(processes: Iterable[ProcessFindings], names: Mapping[int, str]) -> str:
    """Where the ranks of a job are that all stand still, or a process in which CUPTI cannot begin; "" for others.

    ``names`` are those of processes by their numbers, as in a sentence: ``rank 0``.
    """
    every = list(processes)
    ranks = [process for process in every if process.rank is not None]
    ended = [process for process in ranks if process.ended and process.standstill is None]
    if len(ranks) > 1 and all(process.standstill is not None for process in ranks if process not in ended):
        every = sorted(ranks, key=lambda process: 0 if process.rank is None else process.rank.number)
    else:
        every, ended = [one for one in every if one.standstill is not None and not one.standstill.begun], []
    still = [(printable(names[process.pid]), process.standstill) for process in every if process.standstill is not None]
    # Without a call in flight, nothing shows that a process waits for another one.
    if not any(one.function or not one.begun for _, one in still):
        return ""
    where: dict[str, list[str]] = {}
    for name, one in still:
        where.setdefault(_where(one), []).append(name)
    clauses = [f"{enumeration(names)} {'is' if len(names) == 1 else 'are'} {text}" for text, names in where.items()]
    if ended:
        clauses.append(
            f"{enumeration([printable(names[one.pid]) for one in ended])} {'has' if len(ended) == 1 else 'have'} ended"
        )
    over = all(process.ended for process in every)
    no_call = "no call had returned at the end" if over else "no call has returned"
    return f"For {duration_ns(min(one.ns for _, one in still))} {no_call}: {'; '.join(clauses)}."


def _where(one: Standstill) -> str:
    """Where a process is: ``in cuStreamSynchronize at train.py:42 in step, behind ncclAllReduce``."""
    place = "" if one.place is None else f"at {frame_text(one.place)}"
    if one.function:
        behind = f", behind {printable(one.collective)}" if one.collective else ""
        return f"in {one.function} {place}".rstrip() + behind
    wait = "on a CPU" if one.kernel_wait == RUNNING else f"asleep in {one.kernel_wait}" if one.kernel_wait else ""
    where = f"{place} ({wait})" if place and wait else place or wait or "at an unknown place"
    if not one.begun:
        return f"{where}, and CUPTI cannot begin in it, as where a kernel does not end"
    return f"{where} and makes no call"
