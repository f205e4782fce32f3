"""Sentences about ranks: which one waits for which in communication, why that one is late, what is not known, and where
each rank of a job is that hangs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from stallprobes.foreign_text import printable
from stallprobes.units import duration_ns, enumeration
from stallprobes.watch.attribution.findings import ProcessFindings, Standstill
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.ranks.result import Partners, RankDelay, RankWait, SequenceRanks
from stallprobes.watch.reading.kernel_wait import RUNNING
from stallprobes.watch.reading.process import ProcessHead
from stallprobes.watch.sentences import frame_text

# Smallest share of communication in the time of a sequence (threads that call by turns) at which the text report and
# the screen say that the other ranks are not known, or not all watched.
LEAST_COMMUNICATION = 0.05
# Largest number of processes with one verdict that are named in the sentence about the verdicts of all.
_MOST_NAMED = 3
# Styles of verdicts, in the order in which that sentence has them.
_STYLES = ("bad", "warn", "dim", "good")
# Text after the reason why a rank is late, if the rank's threads were off the CPU for most of the time between calls.
_OFF_CPU = " (off the CPU: input, locks or sleep)"


def process_words(process: ProcessHead) -> str:
    """``python (pid 4711)``; with its rank, if it has one: ``rank 0 (python, pid 4711)``."""
    rank = process.rank if isinstance(process, ProcessFindings) else None
    name = process.name or "process"
    return f"{name} (pid {process.pid})" if rank is None else f"rank {rank.number} ({name}, pid {process.pid})"


def rank_name(process: ProcessFindings) -> str:
    """The name of a rank as the subject of a sentence: ``rank 0``, else ``python (pid 4711)``."""
    return process_words(process) if process.rank is None else f"rank {process.rank.number}"


def waits_clause(wait: RankWait) -> str:
    """What a rank waits for: ``waits in NCCL for rank 1, which is host-bound before train.py:31 in step``."""
    return f"{short_waits_clause(wait)}{late_clause(wait.delay)}"


def short_waits_clause(wait: RankWait) -> str:
    """The same in few words: ``waits in NCCL for rank 1``."""
    return f"{'' if wait.sure else 'probably '}waits in NCCL for {printable(wait.name)}"


def late_clause(delay: RankDelay | None) -> str:
    """Why a rank is late: ``, which is host-bound before train.py:31 in step``; "" where nothing is known."""
    if delay is None or delay.bound is None:
        return ", and why that is late is not known"
    if delay.bound is Bound.COMMUNICATION and delay.rank:
        return f", which waits in NCCL for {printable(delay.rank)}"
    if delay.bound is Bound.GPU:
        return f", which is GPU-bound in {delay.kernel}" if delay.kernel else ", whose kernels take longer"
    text = f", which is {delay.bound.word}"
    if delay.place is not None:
        text += f" {'before' if delay.bound is Bound.HOST else 'at'} {frame_text(delay.place)}"
    return text + (_OFF_CPU if delay.off_cpu else "")


def communication_text(ranks: SequenceRanks, process: ProcessFindings) -> str:
    """Rank that slows a sequence down, and what is unknown, in sentences; "" without either."""
    blamed = "" if ranks.blamed is None else f"{rank_name(process)} {waits_clause(ranks.blamed)}."
    return " ".join(filter(None, (blamed, partners_text(ranks, process))))


def partners_text(ranks: SequenceRanks | None, process: ProcessFindings) -> str:
    """What is unknown about the partners of a sequence in communication, in a sentence; "" where nothing is missing."""
    if ranks is None or ranks.partners is Partners.WATCHED:
        return ""
    if ranks.partners is Partners.SOME:
        size = "" if process.rank is None else f" of {process.rank.size}"
        return f"Not all{size} ranks are watched: it may wait in NCCL for one that is not."
    why = (
        "no other process that is watched uses NCCL"
        if ranks.partners is Partners.NONE
        else "its collectives could not be matched with those of other processes"
    )
    return f"Which rank waits for which in NCCL is not known: {why}."


def ranks_texts(processes: Iterable[ProcessFindings]) -> list[str]:
    """Sentences about the ranks that are waited for, the longest wait first: ``rank 0 and rank 2 wait in NCCL for rank
    1, which is host-bound before train.py:31 in step.`` Where all stand still, the first says where each is; where no
    rank is waited for and processes differ, it has the verdict of each."""
    processes = tuple(processes)
    by_rank: dict[tuple[str, bool], list[tuple[ProcessFindings, RankWait]]] = {}
    for process in processes:
        for sequence in process.sequences:
            if (blamed := sequence.blamed) is not None:
                by_rank.setdefault((blamed.name, blamed.sure), []).append((process, blamed))
    still = standstill_text(processes, {process.pid: rank_name(process) for process in processes})
    texts = [still] if still else []
    for waits in sorted(by_rank.values(), key=lambda waits: -sum(wait.share.share for _, wait in waits)):
        waits.sort(key=lambda item: (item[0].rank is None, 0 if item[0].rank is None else item[0].rank.number))
        names = list(dict.fromkeys(printable(rank_name(process)) for process, _ in waits))
        # The longest wait says most of what makes the rank late.
        wait = max(
            waits, key=lambda item: (item[1].delay is not None and item[1].delay.bound is not None, item[1].share.share)
        )[1]
        clause = waits_clause(wait)
        if len(names) > 1:
            clause = clause.replace("waits", "wait", 1)
            names = [enumeration(names)]
        texts.append(f"{names[0]} {clause}.")
    return texts or [*_verdicts_texts(processes)]


def _verdicts_texts(processes: Iterable[ProcessFindings]) -> Iterator[str]:
    """What bounds each of several processes that differ in it, in a sentence: ``Of 3 processes, rank 1 is shared, and
    rank 0 and python (pid 4711) are GPU-bound.``"""
    by_verdict: dict[Bound, list[str]] = {}
    divided = [process for process in processes if process.sequences]
    for process in divided:
        by_verdict.setdefault(process.sequences[0].verdict, []).append(printable(rank_name(process)))
    if len(by_verdict) < 2:
        return
    clauses = []
    for verdict, names in sorted(by_verdict.items(), key=lambda item: _STYLES.index(item[0].traits.style)):
        named = enumeration(names) if len(names) <= _MOST_NAMED else f"{len(names)} processes"
        verb = "is" if len(names) == 1 else "are"
        unknown = verdict is Bound.UNKNOWN
        clauses.append(f"what bounds {named} is not known" if unknown else f"{named} {verb} {verdict.word}")
    yield f"Of {len(divided)} processes, {', '.join(clauses[:-1])}, and {clauses[-1]}."


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
