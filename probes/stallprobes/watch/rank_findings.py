"""Findings about ranks: which one waits for which, by the book of all processes, and what makes that one late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from stallprobes.foreign_text import printable
from stallprobes.watch.attribution.findings import ExplainedCall, ProcessFindings
from stallprobes.watch.division.binned_sums import Figure, Times, figure, since
from stallprobes.watch.division.collectives import is_nccl
from stallprobes.watch.division.parts import ORDER, Bound, Part
from stallprobes.watch.division.result import PhaseDivision
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

# Smallest share of a rank's time at which its waits for a late rank are reported.
_LEAST_SHARE = 0.005
# Rank A is blamed for the waits of rank B if B waits longest for A, and two limits are reached. LEAST_BLAMED: smallest
# share of B's time in which B waits for A. _LEAST_RATIO: smallest ratio of this share to the share of A's time in which
# A waits for B.
LEAST_BLAMED, _LEAST_RATIO = 0.05, 2
# Conditions for naming a reason why a rank is late.
# _LEAST_OF_DELAY: smallest share of the rank's delay that the reason must explain.
# _LEAST_COMPARED: smallest share of the waits (by time) for which the division of both ranks' time is known.
_LEAST_OF_DELAY, _LEAST_COMPARED = 0.5, 0.2
# Smallest share of a late rank's additional time that one kernel or source line must have to be named as the reason.
# The additional time is the sum over all kernels, or lines, that take longer in the late rank than in the waiting rank.
_MIN_NAMED_SHARE = 0.3
# If an NCCL kernel waits for another rank during a slow call, the evidence of the call can name the rank. The value is
# the shortest such wait, as a share of the time in which the kernel runs during the call.
_LEAST_OF_WORK = 0.1
# Verdicts that explain why a rank is late, by the part of the time that is longer in the late rank. Parts that are
# missing here explain nothing.
_BOUNDS = {
    Part.KERNELS: Bound.GPU, Part.COMMUNICATION: Bound.COMMUNICATION, Part.COPIES: Bound.COPY,
    Part.SHARED: Bound.SHARED, Part.SUBMITTING: Bound.SUBMISSION, Part.HOST: Bound.HOST, Part.COPY: Bound.COPY,
    Part.ALLOCATION: Bound.ALLOCATION, Part.FREE: Bound.ALLOCATION, Part.HOST_MEMORY: Bound.ALLOCATION,
    Part.LOADING: Bound.LOADING, Part.LOCK: Bound.LOCK,
}  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Sequence:
    """A sequence that communicates: its process and division, and its figures in some times, of which ``steady_ns`` are
    divided. It communicates for the share ``most`` of these, at most; None: not known."""

    process: ProcessFindings
    division: ProgramSequence
    figures: SequenceFigures
    steady_ns: float
    most: float | None

    def during(self, times: Times, book: RankBook) -> _Sequence:
        """The same in other times."""
        steady_ns = self.division.recorded * sum(end - begin for begin, end in times)
        return replace(self, figures=book.figures(self.figures.key, times), steady_ns=steady_ns, most=None)


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
        sequences = {each.figures.key: each for process in every for each in _sequences(process, book, begins)}
        if not sequences:
            return every
        usable = _ranks(sequences, ranks)
        phases = {key: _phases(sequence, sequences, usable, book) for key, sequence in sequences.items()}
        waits = {
            key: phases[key][0] if phases[key] else _waits(sequence, sequences, usable)
            for key, sequence in sequences.items()
        }
        blamed = {key: next((wait for wait in ordered if wait.blamed), None) for key, ordered in waits.items()}
        results, calls = [], {}
        for process in every:
            described = {}
            own = {key: sequence for key, sequence in sequences.items() if sequence.process is process}
            for key, sequence in own.items():
                described[id(sequence.division)] = SequenceRanks(
                    partners=_partners(sequence, sequences, usable),
                    collectives=sequence.figures.collectives,
                    matched=sequence.figures.matched,
                    waiting=_waiting(sequence),
                    waits=tuple(
                        wait.changed(delay=_delay(sequence, pair, sequences[pair.late], book, blamed))
                        if wait.blamed
                        else wait
                        for wait, pair in waits[key].items()
                    ),
                    phases=tuple(_of_phase(sequence, each, sequences, book) for each in phases[key]),
                )
            owner = process.pid, process.image
            made = _described(process, described, usable.get(owner))
            if own:
                names = {key: _name(key, each, next(iter(own)), usable) for key, each in sequences.items()}
                streams = {stream: key for key in own for stream in book.track(key).series}
                for call in process.slow_calls:
                    before = self._calls.get((owner, id(call)))
                    calls[owner, id(call)] = before or (call, self._with_ranks(call, streams, names))
                made = made.changed(slow_calls=tuple(calls[owner, id(call)][1] for call in process.slow_calls))
            results.append(made)
        # Calls with unknown waits are described again.
        self._calls = {
            key: (call, new) for key, (call, new) in calls.items() if call is not new or not self._is_open(call, key[0])
        }
        return tuple(results)

    def _with_ranks(
        self, call: ExplainedCall, streams: Mapping[int, SequenceKey], names: Mapping[SequenceKey, str]
    ) -> ExplainedCall:
        """A slow call; kernels of its work that waited for another rank name that rank."""
        described = []
        for work in call.evidence.work:
            key = streams.get(work.stream)
            wait = (
                self._book.waits_in(key, work.stream, call.begin_ns, call.end_ns)
                if key is not None and is_nccl(work.name)
                else None
            )
            # A wait of microseconds is not worth a word.
            if wait is not None and wait[0] in names and wait[1] >= _LEAST_OF_WORK * work.overlap_ns:
                work = work.changed(rank=printable(names[wait[0]]), rank_ns=min(wait[1], work.overlap_ns))
            described.append(work)
        if tuple(described) == call.evidence.work:
            return call
        return call.changed(evidence=call.evidence.changed(work=tuple(described)))

    def _is_open(self, call: ExplainedCall, process: ProcessKey) -> bool:
        """True if further waits of a call's work may become known."""
        streams = {work.stream for work in call.evidence.work if is_nccl(work.name)}
        keys = [key for key in self._book.sequences if key.process == process] if streams else []
        return any(self._book.until_ns(key, stream) < call.end_ns for key in keys for stream in streams)


def _sequences(process: ProcessFindings, book: RankBook, begins: Mapping[ProcessKey, int]) -> Iterator[_Sequence]:
    key = process.pid, process.image
    if key not in begins:
        return
    for candidate in book.sequences:
        if candidate.process == key:
            same = (each for each in process.sequences if each.device == candidate.device)
            division = next((each for each in same if candidate.leader in each.threads), None)
            if division is not None and division.steady_ns:
                times = _times(division.phases[0], process) if division.phases else since(begins[key])
                figures = book.figures(candidate, times)
                yield _Sequence(process, division, figures, division.steady_ns, division.share(Part.COMMUNICATION))


def _times(phase: PhaseDivision, process: ProcessFindings) -> Times:
    """The times of a phase (CLOCK_MONOTONIC)."""
    return [(process.began_ns + begin, process.began_ns + end) for begin, end in phase.times]


def _phases(
    sequence: _Sequence,
    sequences: Mapping[SequenceKey, _Sequence],
    ranks: Mapping[ProcessKey, Rank],
    book: RankBook,
) -> list[Mapping[RankWait, PairFigures]]:
    """The waits of a sequence, as ``_waits`` has them, in each of its phases."""
    found = []
    for number, phase in enumerate(sequence.division.phases):
        times = _times(phase, sequence.process)
        every = {key: each.during(times, book) for key, each in sequences.items()}
        mine = every[sequence.figures.key] if number else sequence
        found.append(_waits(mine, every, ranks))
    return found


def _of_phase(
    sequence: _Sequence,
    waits: Mapping[RankWait, PairFigures],
    sequences: Mapping[SequenceKey, _Sequence],
    book: RankBook,
) -> RankWait | None:
    """The rank that slows a sequence down in a phase, with what makes it late, without a line or kernel."""
    for wait, pair in waits.items():
        if wait.blamed:
            delay = _delay(sequence, pair, sequences[pair.late], book, {})
            return wait.changed(delay=RankDelay(bound=delay.bound, share=delay.share))
    return None


def _ranks(sequences: Mapping[SequenceKey, _Sequence], ranks: Mapping[ProcessKey, Rank]) -> Mapping[ProcessKey, Rank]:
    """The ranks of the processes that communicate: by their environments, else by the numbers of their GPUs.

    Two processes with one number belong to different jobs, or are not what they seem: then neither has one.
    """
    devices: dict[ProcessKey, set[int]] = {}
    for key in sequences:
        devices.setdefault(key.process, set()).add(key.device)
    usable = {key: ranks[key] for key in devices if key in ranks}
    if not usable:
        single = {key: min(numbers) for key, numbers in devices.items() if len(numbers) == 1}
        if len(devices) > 1 and len(set(single.values())) == len(devices):
            order = sorted(devices, key=lambda key: single[key])
            return {key: Rank(number=number) for number, key in enumerate(order)}
    counts = Counter(rank.number for rank in usable.values())
    return {key: rank for key, rank in usable.items() if counts[rank.number] == 1}


def _name(key: SequenceKey, other: _Sequence, mine: SequenceKey, ranks: Mapping[ProcessKey, Rank]) -> str:
    """Name of another sequence in a sentence about ``mine``."""
    if key.process == mine.process:
        return f"GPU {key.device}"
    rank = ranks.get(key.process)
    return f"{other.process.name or 'process'} (pid {other.process.pid})" if rank is None else f"rank {rank.number}"


def _waits(
    sequence: _Sequence, sequences: Mapping[SequenceKey, _Sequence], ranks: Mapping[ProcessKey, Rank]
) -> Mapping[RankWait, PairFigures]:
    """Sequences for which a sequence waits, the longest wait first, each with its figures."""
    back = {
        key: next((pair for pair in other.figures.pairs if pair.late == sequence.figures.key), None)
        for key, other in sequences.items()
    }
    waits: dict[RankWait, PairFigures] = {}
    pairs = [pair for pair in sequence.figures.pairs if pair.late in sequences]
    for pair in sorted(pairs, key=lambda pair: -int(pair.sums[:, WAITS].sum())):
        late, share = sequences[pair.late], _share(sequence, pair.sums[:, WAITS])
        if share.share < _LEAST_SHARE:
            continue
        against = back[pair.late]
        returned = 0.0 if against is None else _share(late, against.sums[:, WAITS]).share
        wait = RankWait(
            name=_name(pair.late, late, sequence.figures.key, ranks),
            pid=late.process.pid,
            image=late.process.image,
            device=pair.late.device,
            share=share,
            rounds=int(pair.sums[:, ROUNDS].sum()),
            back=returned,
            sure=pair.sure,
            # Other ranks may be late at times: only the first counts.
            blamed=not waits and share.share >= LEAST_BLAMED and share.share >= _LEAST_RATIO * returned,
        )
        waits[wait] = pair
    return waits


def _share(own: _Sequence, part: NDArray[np.int64]) -> Figure:
    """Share of a sequence's time that a part (int64[seconds], ns) of its rounds takes."""
    series = [(sums, member) for sums, member in own.figures.series if member is not None]
    length = max([len(part), *(len(member) for _, member in series)])
    whole = np.zeros(length, dtype=np.int64)
    for _, member in series:
        whole[: len(member)] += member[:, COMMUNICATES]
    every = sum(exposed_ns(sums) for sums, _ in series)
    if not every or not whole.any():
        return Figure(0.0, 0.0, 0.0)
    parts = np.zeros(length, dtype=np.int64)
    parts[: len(part)] = part
    share = figure(parts, whole, min(int(whole.sum()) / every, 1.0))
    # Kernels of several streams may communicate at once. Those that end after a divided time are not among them.
    scale = every / own.steady_ns
    if own.most is not None:
        scale = max(scale, own.most * every / sum(exposed_ns(sums) for sums, _ in own.figures.series))
    most = 1.0 if own.most is None else own.most
    return Figure(*(min(bound * scale, most) for bound in (share.share, share.low, share.high)))


def _waiting(sequence: _Sequence) -> Figure | None:
    """The share of a sequence's time in which it waits for other ranks; None where that is not known."""
    members = [member for _, member in sequence.figures.series if member is not None]
    if sum(int(member[:, MATCHED].sum()) for member in members) < LEAST_MATCHED:
        return None
    whole = np.zeros(max(len(member) for member in members), dtype=np.int64)
    for member in members:
        whole[: len(member)] += member[:, WAITED]
    return _share(sequence, whole)


def _partners(own: _Sequence, sequences: Mapping[SequenceKey, _Sequence], ranks: Mapping[ProcessKey, Rank]) -> Partners:
    mine = own.figures.key
    if own.figures.matched:
        rank = ranks.get(mine.process)
        watched = len({key.process for key in sequences})
        return Partners.SOME if rank is not None and rank.size is not None and watched < rank.size else Partners.WATCHED
    begin, end = own.process.began_ns, own.process.began_ns + own.process.duration_ns
    place = mine.process, mine.device
    others = (other.process for key, other in sequences.items() if (key.process, key.device) != place)
    beside = any(other.began_ns < end and other.began_ns + other.duration_ns > begin for other in others)
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
    """Reason why ``late`` is late: what it did longer than ``waiting`` between their collectives."""
    more = pair.sums[:, WAITS_OF_PARTS + 1 :].sum(axis=0).tolist()
    waited, compared = int(pair.sums[:, WAITS].sum()), int(pair.sums[:, WAITS_OF_PARTS].sum())
    times: dict[Bound | None, int] = {}
    for part, ns in zip(ORDER, more, strict=True):
        if part is not Part.END:
            bound = _BOUNDS.get(part)
            times[bound] = times.get(bound, 0) + ns
    longer = sum(ns for ns in times.values() if ns > 0)
    bound = max(times, key=lambda key: times[key])
    if bound is None or compared < _LEAST_COMPARED * waited or times[bound] < _LEAST_OF_DELAY * max(longer, compared):
        return RankDelay(bound=None)
    delay = RankDelay(bound=bound, share=min(times[bound] / longer, 1.0))
    if bound is Bound.GPU:
        return delay.changed(kernel=_kernel(waiting, late, book))
    if bound is Bound.COMMUNICATION:
        other = blamed.get(late.figures.key)
        is_third = other is not None and (other.pid, other.device) != (waiting.process.pid, waiting.division.device)
        return delay.changed(rank=other.name if other is not None and is_third else "")
    if bound is Bound.SHARED:
        return delay
    off = late.division.off_cpu
    asleep = bound is Bound.HOST and off is not None and 2 * off.low >= 1
    place, function = _line(waiting, late, bound)
    return delay.changed(place=place, function=function, off_cpu=asleep)


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
    return most if most and more[most] >= _MIN_NAMED_SHARE * longer > 0 else ""


def _line(waiting: _Sequence, late: _Sequence, bound: Bound) -> tuple[StackFrame | None, str]:
    """Line and function with the largest excess of ``late`` over ``waiting``; None without one."""
    usual = {line.place: _time(line, bound) for line in waiting.division.lines}
    lines = (line for line in late.division.lines if line.place is not None)
    more = [(_time(line, bound) - usual.get(line.place, 0.0), line) for line in lines]
    longer = sum(share for share, _ in more if share > 0)
    largest, most = max(more, key=lambda each: each[0], default=(0.0, None))
    if most is None or not largest >= _MIN_NAMED_SHARE * longer > 0:
        return None, ""
    time = most.between if bound is Bound.HOST else most.waits if bound is Bound.COPY else most.calls
    return most.place, time.function


def _time(line: ProgramLine, bound: Bound) -> float:
    """The share of the time at a line that may be why a sequence is ``bound``."""
    if bound is Bound.HOST:
        return line.between.share
    return line.waits.share + line.calls.share if bound in (Bound.COPY, Bound.ALLOCATION) else line.calls.share
