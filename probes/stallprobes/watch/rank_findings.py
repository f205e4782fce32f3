"""Findings about ranks: which one waits for which, by the book of all processes, and what makes that one late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallprobes.foreign_text import printable
from stallprobes.watch.attribution.findings import ExplainedCall, ProcessFindings
from stallprobes.watch.division.binned_sums import Figure, figure
from stallprobes.watch.division.collectives import is_nccl
from stallprobes.watch.division.parts import ORDER, Bound, Part
from stallprobes.watch.lines.result import ProgramLine, ProgramSequence
from stallprobes.watch.ranks.book import (
    COMMUNICATES,
    LEAST_MATCHED,
    MATCHED,
    ROUNDS,
    WAITED,
    WAITS,
    WAITS_OF_PARTS,
    PairFigures,
    RankBook,
    SequenceFigures,
    exposed_ns,
)
from stallprobes.watch.ranks.result import Partners, RankDelay, RankWait, SequenceRanks
from stallprobes.watch.ranks.series import ProcessKey, SequenceKey
from stallprobes.watch.reading.call_stack import StackFrame
from stallprobes.watch.reading.process_rank import Rank

# Waits that take a smaller share of the time are not reported.
_LEAST_SHARE = 0.005
# A rank is blamed for that share of another one's time, and for so many times what it waits for that one.
LEAST_BLAMED, _TIMES_BACK = 0.05, 2
# A rank is late because of what makes up that part of what it did for longer, in rounds with that part of the waits.
_MOST_OF_DELAY, _LEAST_COMPARED = 0.5, 0.2
# A line or a kernel is named if it has that part of it.
_LEAST_NAMED = 0.3
# A kernel of which that part is a wait for another rank says so.
_LEAST_OF_WORK = 0.1
# The verdict that says of what a part of the time is; the others say nothing of why a rank is late.
_BOUNDS = {
    Part.KERNELS: Bound.GPU, Part.COMMUNICATION: Bound.COMMUNICATION, Part.COPIES: Bound.COPY,
    Part.SHARED: Bound.SHARED, Part.SUBMITTING: Bound.SUBMISSION, Part.HOST: Bound.HOST, Part.COPY: Bound.COPY,
    Part.ALLOCATION: Bound.ALLOCATION, Part.FREE: Bound.ALLOCATION, Part.HOST_MEMORY: Bound.ALLOCATION,
    Part.LOADING: Bound.LOADING, Part.LOCK: Bound.LOCK,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Sequence:
    """A sequence that communicates: its process and division, its figures, and the columns of the sums of all its
    series: the time in which only its kernels run, of that in rounds, and of that waiting."""

    process: ProcessFindings
    division: ProgramSequence
    figures: SequenceFigures


class RankFindings:
    """Adds the ranks of a book to findings. It keeps a list of the slow calls that it has added to."""

    def __init__(self, book: RankBook) -> None:
        self._book = book
        # By the process and the identity of a call, which lives as long: it, and what it became.
        self._calls: dict[tuple[ProcessKey, int], tuple[ExplainedCall, ExplainedCall]] = {}

    def of(
        self,
        processes: Iterable[ProcessFindings],
        ranks: Mapping[ProcessKey, Rank],
        begins: Mapping[ProcessKey, int],
    ) -> tuple[ProcessFindings, ...]:
        """``processes`` with what the book knows of their communication.

        ``ranks`` are by their environments; ``begins`` is when the divided time of each began.
        """
        every, book = tuple(processes), self._book
        sequences = {one.figures.key: one for process in every for one in _sequences(process, book, begins)}
        if not sequences:
            return every
        known = _ranks(sequences, ranks)
        waits = {key: _waits(one, sequences, known) for key, one in sequences.items()}
        blamed = {key: next((wait for wait in found if wait.blamed), None) for key, found in waits.items()}
        found, calls = [], {}
        for process in every:
            described = {}
            own = {key: one for key, one in sequences.items() if one.process is process}
            for key, one in own.items():
                described[id(one.division)] = SequenceRanks(
                    partners=_partners(one, sequences, known),
                    collectives=one.figures.collectives,
                    matched=one.figures.matched,
                    waiting=_waiting(one),
                    waits=tuple(
                        wait.changed(delay=_delay(one, pair, sequences[pair.late], book, blamed))
                        if wait.blamed
                        else wait
                        for wait, pair in waits[key].items()
                    ),
                )
            of = process.pid, process.image
            made = _described(process, described, known.get(of))
            if own:
                names = {key: _name(key, one, next(iter(own)), known) for key, one in sequences.items()}
                streams = {stream: key for key in own for stream in book.track(key).series}
                for call in process.slow_calls:
                    before = self._calls.get((of, id(call)))
                    calls[of, id(call)] = before or (call, self._with_ranks(call, streams, names))
                made = made.changed(slow_calls=tuple(calls[of, id(call)][1] for call in process.slow_calls))
            found.append(made)
        # Those whose waits are not known yet are looked at again.
        self._calls = {
            key: (call, one) for key, (call, one) in calls.items() if call is not one or not self._is_open(call, key[0])
        }
        return tuple(found)

    def _with_ranks(
        self, call: ExplainedCall, streams: Mapping[int, SequenceKey], names: Mapping[SequenceKey, str]
    ) -> ExplainedCall:
        """A slow call, of whose work kernels that waited for another rank say so."""
        work = []
        for one in call.evidence.work:
            key = streams.get(one.stream)
            known = (
                self._book.waits_in(key, one.stream, call.begin_ns, call.end_ns)
                if key is not None and is_nccl(one.name)
                else None
            )
            # A wait of microseconds is none worth a word.
            if known is not None and known[0] in names and known[1] >= _LEAST_OF_WORK * one.overlap_ns:
                one = one.changed(rank=printable(names[known[0]]), rank_ns=min(known[1], one.overlap_ns))
            work.append(one)
        if tuple(work) == call.evidence.work:
            return call
        return call.changed(evidence=call.evidence.changed(work=tuple(work)))

    def _is_open(self, call: ExplainedCall, process: ProcessKey) -> bool:
        """Whether waits of a call's work may become known yet."""
        streams = {one.stream for one in call.evidence.work if is_nccl(one.name)}
        keys = [key for key in self._book.sequences if key.process == process] if streams else []
        return any(self._book.until_ns(key, stream) < call.end_ns for key in keys for stream in streams)


def _sequences(process: ProcessFindings, book: RankBook, begins: Mapping[ProcessKey, int]) -> Iterator[_Sequence]:
    key = process.pid, process.image
    if key not in begins:
        return
    for known in book.sequences:
        if known.process == key:
            same = (one for one in process.sequences if one.device == known.device)
            division = next((one for one in same if known.leader in one.threads), None)
            if division is not None and division.steady_ns:
                yield _Sequence(process, division, book.figures(known, begins[key]))


def _ranks(sequences: Mapping[SequenceKey, _Sequence], ranks: Mapping[ProcessKey, Rank]) -> Mapping[ProcessKey, Rank]:
    """The ranks of the processes that communicate: by their environments, else by the numbers of their GPUs.

    Two processes with one number belong to different jobs, or are not what they seem: then neither has one.
    """
    devices: dict[ProcessKey, set[int]] = {}
    for key in sequences:
        devices.setdefault(key.process, set()).add(key.device)
    found = {key: ranks[key] for key in devices if key in ranks}
    if not found:
        single = {key: min(of) for key, of in devices.items() if len(of) == 1}
        if len(devices) > 1 and len(set(single.values())) == len(devices):
            order = sorted(devices, key=lambda key: single[key])
            return {key: Rank(number=number) for number, key in enumerate(order)}
    counts = Counter(rank.number for rank in found.values())
    return {key: rank for key, rank in found.items() if counts[rank.number] == 1}


def _name(key: SequenceKey, of: _Sequence, mine: SequenceKey, ranks: Mapping[ProcessKey, Rank]) -> str:
    """How a sentence about ``mine`` names another sequence."""
    if key.process == mine.process:
        return f"GPU {key.device}"
    rank = ranks.get(key.process)
    return f"{of.process.name or 'process'} (pid {of.process.pid})" if rank is None else f"rank {rank.number}"


def _waits(
    one: _Sequence, sequences: Mapping[SequenceKey, _Sequence], ranks: Mapping[ProcessKey, Rank]
) -> Mapping[RankWait, PairFigures]:
    """What a sequence waits for, the most time first, each with its figures."""
    back = {
        key: next((pair for pair in of.figures.pairs if pair.late == one.figures.key), None)
        for key, of in sequences.items()
    }
    found: dict[RankWait, PairFigures] = {}
    pairs = [pair for pair in one.figures.pairs if pair.late in sequences]
    for pair in sorted(pairs, key=lambda pair: -int(pair.sums[:, WAITS].sum())):
        late, share = sequences[pair.late], _share(one, pair.sums[:, WAITS])
        if share.share < _LEAST_SHARE:
            continue
        against = back[pair.late]
        returned = 0.0 if against is None else _share(late, against.sums[:, WAITS]).share
        wait = RankWait(
            name=_name(pair.late, late, one.figures.key, ranks),
            pid=late.process.pid,
            image=late.process.image,
            device=pair.late.device,
            share=share,
            rounds=int(pair.sums[:, ROUNDS].sum()),
            back=returned,
            sure=pair.sure,
            # Others may be late as well, at times: the first one is the one that counts.
            blamed=not found and share.share >= LEAST_BLAMED and share.share >= _TIMES_BACK * returned,
        )
        found[wait] = pair
    return found


def _share(one: _Sequence, part: NDArray[np.int64]) -> Figure:
    """The share of a sequence's time that a part (int64[seconds], ns) of its rounds is."""
    series = [(sums, of) for sums, of in one.figures.series if of is not None]
    length = max([len(part), *(len(of) for _, of in series)])
    whole = np.zeros(length, dtype=np.int64)
    for _, of in series:
        whole[: len(of)] += of[:, COMMUNICATES]
    every = sum(exposed_ns(sums) for sums, _ in series)
    if not every or not whole.any():
        return Figure(0.0, 0.0, 0.0)
    parts = np.zeros(length, dtype=np.int64)
    parts[: len(part)] = part
    found = figure(parts, whole, min(int(whole.sum()) / every, 1.0))
    # Kernels of several streams may communicate at once. Those that end after a divided time are not among them.
    most = one.division.share(Part.COMMUNICATION)
    scale = max(every / one.division.steady_ns, most * every / sum(exposed_ns(sums) for sums, _ in one.figures.series))
    return Figure(*(min(bound * scale, most) for bound in (found.share, found.low, found.high)))


def _waiting(one: _Sequence) -> Figure | None:
    """The share of a sequence's time in which it waits for other ranks; None where that is not known."""
    known = [of for _, of in one.figures.series if of is not None]
    if sum(int(of[:, MATCHED].sum()) for of in known) < LEAST_MATCHED:
        return None
    whole = np.zeros(max(len(of) for of in known), dtype=np.int64)
    for of in known:
        whole[: len(of)] += of[:, WAITED]
    return _share(one, whole)


def _partners(one: _Sequence, sequences: Mapping[SequenceKey, _Sequence], ranks: Mapping[ProcessKey, Rank]) -> Partners:
    mine = one.figures.key
    if one.figures.matched:
        rank = ranks.get(mine.process)
        watched = len({key.process for key in sequences})
        return Partners.SOME if rank is not None and rank.size is not None and watched < rank.size else Partners.WATCHED
    begin, end = one.process.began_ns, one.process.began_ns + one.process.duration_ns
    others = (of.process for key, of in sequences.items() if (key.process, key.device) != (mine.process, mine.device))
    beside = any(of.began_ns < end and of.began_ns + of.duration_ns > begin for of in others)
    return Partners.UNMATCHED if beside else Partners.NONE


def _described(process: ProcessFindings, ranks: Mapping[int, SequenceRanks], rank: Rank | None) -> ProcessFindings:
    """A process with its rank, and with the ``ranks`` of its sequences by their identity."""
    if not ranks:
        return process
    sequences = (_with_ranks(sequence, ranks.get(id(sequence))) for sequence in process.sequences)
    return process.changed(sequences=tuple(sequences), rank=rank)


def _with_ranks(sequence: ProgramSequence, ranks: SequenceRanks | None) -> ProgramSequence:
    """A sequence with its ranks, and with the time in which it waits for others as a part of its time."""
    if ranks is None:
        return sequence
    sequence = sequence.changed(ranks=ranks)
    share = 0.0 if ranks.waiting is None else ranks.waiting.share
    waits_ns = min(round(share * sequence.steady_ns), sequence.parts.get(Part.COMMUNICATION, 0))
    if not waits_ns:
        return sequence
    parts = dict(sequence.parts)
    parts[Part.COMMUNICATION] -= waits_ns
    parts[Part.RANK_WAIT] = waits_ns
    return sequence.changed(parts={part: parts[part] for part in ORDER if parts.get(part)})


# Why a rank is late.


def _delay(
    waiting: _Sequence,
    pair: PairFigures,
    late: _Sequence,
    book: RankBook,
    blamed: Mapping[SequenceKey, RankWait | None],
) -> RankDelay:
    """What ``late`` did for longer than ``waiting`` between their collectives."""
    more = pair.sums[:, WAITS_OF_PARTS + 1 :].sum(axis=0).tolist()
    waited, compared = int(pair.sums[:, WAITS].sum()), int(pair.sums[:, WAITS_OF_PARTS].sum())
    times: dict[Bound | None, int] = {}
    for part, ns in zip(ORDER, more, strict=True):
        if part is not Part.END:
            bound = _BOUNDS.get(part)
            times[bound] = times.get(bound, 0) + ns
    longer = sum(ns for ns in times.values() if ns > 0)
    bound = max(times, key=lambda one: times[one])
    if bound is None or compared < _LEAST_COMPARED * waited or times[bound] < _MOST_OF_DELAY * max(longer, compared):
        return RankDelay(bound=None)
    found = RankDelay(bound=bound, share=min(times[bound] / longer, 1.0))
    if bound is Bound.GPU:
        return found.changed(kernel=_kernel(waiting, late, book))
    if bound is Bound.COMMUNICATION:
        other = blamed.get(late.figures.key)
        known = other is not None and (other.pid, other.device) != (waiting.process.pid, waiting.division.device)
        return found.changed(rank=other.name if other is not None and known else "")
    off = late.division.off_cpu
    asleep = bound is Bound.HOST and off is not None and 2 * off.low >= late.division.share(Part.HOST) > 0
    place, function = _line(waiting, late, bound)
    return found.changed(place=place, function=function, off_cpu=asleep)


def _kernel(waiting: _Sequence, late: _Sequence, book: RankBook) -> str:
    """The kernel that takes most of the time that those of ``late`` take for longer; "" where none does."""
    mine, others = book.track(late.figures.key), book.track(waiting.figures.key)
    if not mine.recorded_ns or not others.recorded_ns:
        return ""
    more = {
        name: ns / mine.recorded_ns - others.kernels[name] / others.recorded_ns for name, ns in mine.kernels.items()
    }
    longer = sum(share for share in more.values() if share > 0)
    most = max(more, key=lambda name: more[name], default="")
    return most if most and more[most] >= _LEAST_NAMED * longer > 0 else ""


def _line(waiting: _Sequence, late: _Sequence, bound: Bound) -> tuple[StackFrame | None, str]:
    """The line at which ``late`` has most time more than ``waiting``, and the function there; None where none has."""
    usual = {line.place: _time(line, bound) for line in waiting.division.lines}
    lines = (line for line in late.division.lines if line.place is not None)
    more = {line: _time(line, bound) - usual.get(line.place, 0.0) for line in lines}
    longer = sum(share for share in more.values() if share > 0)
    most = max(more, key=lambda line: more[line], default=None)
    if most is None or not more[most] >= _LEAST_NAMED * longer > 0:
        return None, ""
    of = most.between if bound is Bound.HOST else most.waits if bound is Bound.COPY else most.calls
    return most.place, of.function


def _time(line: ProgramLine, bound: Bound) -> float:
    """The share of the time at a line that may be why a sequence is ``bound``."""
    if bound is Bound.HOST:
        return line.between.share
    return line.waits.share + line.calls.share if bound in (Bound.COPY, Bound.ALLOCATION) else line.calls.share
