"""Book of the ranks: series of kernels of all processes, which of them are one communicator, and their rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from stallprobes.watch.division.binned_sums import BinnedSums, Times, add_at
from stallprobes.watch.division.collectives import CollectiveBatch
from stallprobes.watch.division.instants import Flags
from stallprobes.watch.division.parts import ORDER
from stallprobes.watch.intervals import FOREVER, Int64s, int64s
from stallprobes.watch.ranks.matching import CLOCK_ERROR_NS, Match, match
from stallprobes.watch.ranks.rounds import Member, Rounds, rounds_of
from stallprobes.watch.ranks.series import (
    COUNT,
    EXPOSED,
    KEPT_NS,
    KernelNumbers,
    ProcessKey,
    SequenceKey,
    SequenceTrack,
    Series,
    SeriesKey,
    kernels_of,
)

# Smallest number of comparable kernels at which two series (a stream's NCCL kernels) join one communicator, or are
# separated. Comparable kernels: both ranks have records of the kernels' time. The value is also the smallest number of
# matched kernels at which a rank's waiting time is known.
LEAST_MATCHED = 8
# Smallest share of matching kernels among the comparable kernels at which two series join one communicator. The match
# must also be unambiguous (see _RIVAL_MARGIN in matching.py).
LEAST_SHARE = 0.75
# Smallest share of matching kernels among the comparable kernels at which two series remain one communicator. With a
# smaller share, the series are separated.
_LEAST_KEPT = 0.5
# Smallest share of matching kernels at which the figures of a pair of ranks are sure. The pair must also reach
# SURE_ROUNDS and _LEAST_LEAD.
SURE_SHARE = 0.95
# Smallest number of rounds (collectives) with a wait at which the figures of a pair of ranks are sure. The pair must
# also reach SURE_SHARE and _LEAST_LEAD.
SURE_ROUNDS = 8
# Smallest number of rounds (collectives) with a wait at which a pair of ranks has figures.
LEAST_ROUNDS = 3
# Smallest difference, in the share of matching kernels, between the best and the next best match for a series of
# collectives. At a smaller difference, the figures of the ranks are not sure.
_LEAST_LEAD = 0.2
# Largest number of comparable kernels of a communicator's member that count as evidence. With more kernels, the counts
# are halved. Reason: older evidence then counts less.
_MOST_EVIDENCE = 4096
# Smallest lag (ns) of a process's records behind the newest records at which the count of rounds (collectives of all
# ranks) no longer waits for the process. Kernels of a series without a communicator are kept for this lag plus KEPT_NS.
_MOST_BEHIND_NS = 15_000_000_000
# Shortest period (ns) between two counts of a communicator's rounds (collectives of all ranks), in the time of the
# records.
_COUNT_PERIOD_NS = 900_000_000
# Largest number of waits of a rank's series of collectives that are kept individually: the last waits.
MOST_WAITS = 1 << 15
# Longest pause, in updates of the analysis of ranks, between two attempts to find partners. The attempts are for a
# series of collectives without partners, or for a whole communicator. The pause doubles with each attempt.
_MOST_UPDATES = 32
# Columns of the sums of a pair of ranks. WAITS: time (ns) of waits while no other kernel runs. ROUNDS: number of rounds
# with a wait. WAITS_OF_PARTS: time (ns) of waits in rounds for which the parts of the time are known. A column for each
# part of the time follows: the time (ns) by which the late rank spent longer in this part.
WAITS, ROUNDS, WAITS_OF_PARTS = range(3)
# Number of columns of the sums of a pair of ranks (one waits for the other): WAITS, ROUNDS, WAITS_OF_PARTS, and one
# for each part of the time.
PAIR_COLUMNS = 3 + len(ORDER)
# Columns of the sums of a communicator's member. COMMUNICATES: time (ns) of its matched kernels while no other kernel
# runs. WAITED: time (ns) of waits within COMMUNICATES. MATCHED: number of its matched kernels.
COMMUNICATES, WAITED, MATCHED = range(3)


@dataclass(eq=False)
class _Member:
    """A member of a communicator: the offset of its clock, and how many of its kernels have a partner."""

    offset_ns: int = 0
    tolerance_ns: int = 0
    matched: float = 0.0
    eligible: float = 0.0
    clear: bool = True

    @property
    def share(self) -> float:
        return self.matched / self.eligible if self.eligible else 1.0

    def note(self, match_: Match) -> None:
        """Note what a further match shows."""
        if self.eligible > _MOST_EVIDENCE:
            self.matched, self.eligible = self.matched / 2, self.eligible / 2
        self.matched += match_.matched
        self.eligible += match_.eligible
        self.offset_ns, self.tolerance_ns = match_.offset_ns, match_.tolerance_ns


@dataclass(eq=False)
class _Communicator:
    """Series of different processes or GPUs that take part in the same collectives; the first one is the reference."""

    members: dict[SeriesKey, _Member] = field(default_factory=dict)
    until_ns: int = -1
    # When it is tried to unite it with another one next, and after how many updates then.
    due: int = 0
    pause: int = 1

    @property
    def reference(self) -> SeriesKey:
        return next(iter(self.members))


@dataclass(frozen=True, eq=False, kw_only=True)
class PairFigures:
    """What a sequence waited for the sequence ``late``: sums by second (int64[seconds][PAIR_COLUMNS]).

    ``sure``: that their kernels belong together is known, else it is probable.
    """

    late: SequenceKey
    sums: NDArray[np.int64]
    sure: bool


@dataclass(frozen=True, eq=False, kw_only=True)
class SequenceFigures:
    """What is known of the communication of a sequence: ``collectives``, of which some ``matched``.

    For each series of it, ``series`` has by second (int64[seconds][columns]) the sums of all its kernels and those of
    the kernels in rounds, None for one without partners. ``pairs`` are by the sequence that was late.
    """

    key: SequenceKey
    collectives: int
    matched: int
    series: tuple[tuple[NDArray[np.int64], NDArray[np.int64] | None], ...]
    pairs: tuple[PairFigures, ...]


class RankBook:
    """Add the batches of each process as they come, and ``update`` the rounds then; any time, ask for figures."""

    def __init__(self) -> None:
        self._tracks: dict[SequenceKey, SequenceTrack] = {}
        self._communicators: list[_Communicator] = []
        self._numbers = KernelNumbers()
        self._ended: set[ProcessKey] = set()
        self._origins: dict[ProcessKey, int] = {}
        self._members: dict[SeriesKey, BinnedSums] = {}
        self._pairs: dict[tuple[SeriesKey, SeriesKey], BinnedSums] = {}
        self._sure: dict[tuple[SeriesKey, SeriesKey], bool] = {}
        # The last waits of each series for other ranks, in their order: begins and ends (ns), and the number of the
        # sequence that was late.
        self._waits: dict[SeriesKey, Int64s] = defaultdict(lambda: np.zeros((3, 0), dtype=np.int64))
        self._late: list[SequenceKey] = []
        self._updates = 0
        # Next update in which a series without partners is tried, and the pause (updates) after it.
        self._tries: dict[SeriesKey, tuple[int, int]] = {}

    def add(
        self,
        process: ProcessKey,
        origin_ns: int,
        batches: Mapping[tuple[int, int], CollectiveBatch],
        names: Mapping[int, str],
        ended: bool = False,
    ) -> None:
        """Add what became known of a process that began at ``origin_ns``; ``ended``: nothing follows."""
        self._origins[process] = origin_ns
        for (leader, device), batch in batches.items():
            key = SequenceKey(process, leader, device)
            track = self._tracks.get(key)
            if track is None:
                if not len(batch.rows):
                    continue
                track = self._tracks[key] = SequenceTrack(key, origin_ns)
            track.add(batch, names, self._numbers)
        if ended:
            self._ended.add(process)

    def update(self) -> None:
        """Match the kernels that are known of all members of their communicators, and count their rounds."""
        if len({key.process for key in self._tracks}) < 2 and len(self._tracks) < 2:
            self._drop()
            return
        self._join()
        while self._unite():
            pass
        for communicator in self._communicators:
            self._count(communicator)
        self._communicators = [each for each in self._communicators if len(each.members) > 1]
        self._drop()

    @property
    def sequences(self) -> Iterable[SequenceKey]:
        """The sequences that communicate."""
        return self._tracks

    def track(self, key: SequenceKey) -> SequenceTrack:
        """The kernels of a sequence that communicates."""
        return self._tracks[key]

    def waits_in(self, key: SequenceKey, stream: int, begin_ns: int, end_ns: int) -> tuple[SequenceKey, int] | None:
        """Sequence for which a stream of another one waited longest between two times, and the time (ns) of the wait.

        None without a known wait, among the last ones.
        """
        begins, ends, late = self._waits[SeriesKey(key, stream)]
        part = slice(int(np.searchsorted(ends, begin_ns, "right")), int(np.searchsorted(begins, end_ns)))
        times = np.maximum(np.minimum(ends[part], end_ns) - np.maximum(begins[part], begin_ns), 0)
        waited = np.bincount(late[part], times)
        return (self._late[int(waited.argmax())], int(waited.max())) if waited.any() else None

    def until_ns(self, key: SequenceKey, stream: int) -> int:
        """Time until which the waits of a stream are known; -1 where none are."""
        series = SeriesKey(key, stream)
        return max((each.until_ns for each in self._communicators if series in each.members), default=-1)

    def figures(self, key: SequenceKey, times: Times) -> SequenceFigures:
        """The figures of a sequence in some times."""
        track = self._tracks[key]
        every = [(series.sums.during(times), self._members.get(series.key)) for series in track.series.values()]
        series = tuple((sums, None if members is None else members.during(times)) for sums, members in every)
        pairs: dict[SequenceKey, list[tuple[SeriesKey, SeriesKey]]] = {}
        for pair in self._pairs:
            if pair[0].sequence == key:
                pairs.setdefault(pair[1].sequence, []).append(pair)
        figures = (self._pair(late, both, times) for late, both in pairs.items())
        return SequenceFigures(
            key=key,
            collectives=sum(int(sums[:, COUNT].sum()) for sums, _ in series),
            matched=sum(int(sums[:, MATCHED].sum()) for _, sums in series if sums is not None),
            series=series,
            pairs=tuple(figure for figure in figures if figure is not None),
        )

    def _pair(self, late: SequenceKey, pairs: list[tuple[SeriesKey, SeriesKey]], times: Times) -> PairFigures | None:
        sums = [self._pairs[pair].during(times) for pair in pairs]
        whole = np.zeros((max(len(part) for part in sums), PAIR_COLUMNS), dtype=np.int64)
        for part in sums:
            whole[: len(part)] += part
        rounds = int(whole[:, ROUNDS].sum())
        if rounds < LEAST_ROUNDS:
            return None
        sure = rounds >= SURE_ROUNDS and all(self._sure.get(pair, False) for pair in pairs)
        return PairFigures(late=late, sums=whole, sure=sure)

    # Communicators.

    def _series(self) -> Iterator[Series]:
        for track in self._tracks.values():
            yield from track.series.values()

    def _join(self) -> None:
        """Add each series without a communicator to one that matches, or to another such series."""
        self._updates += 1
        joined = {key for each in self._communicators for key in each.members}
        alone = [each for each in self._series() if each.key not in joined and len(each.rows) >= LEAST_MATCHED]
        for series in alone:
            due, pause = self._tries.get(series.key, (0, 1))
            if series.key in joined or self._updates < due:
                continue
            self._tries[series.key] = self._updates + pause, min(2 * pause, _MOST_UPDATES)
            known = [each for each in self._communicators if not _has(each, series.key)]
            others = [_Communicator({each.key: _Member()}) for each in alone if each.key not in joined]
            choices = [*known, *(each for each in others if not _has(each, series.key))]
            ranked = sorted(
                ((match_, each) for each in choices if (match_ := self._match(each.reference, series.key)) is not None),
                # Among equal matches, the communicator with most members.
                key=lambda item: (-round(item[0].share, 2), -len(item[1].members), abs(item[0].offset_ns)),
            )
            if not ranked or not _is_one(ranked[0][0]):
                continue
            match_, communicator = ranked[0]
            rivals = [rival for rival, each in ranked[1:] if _same_process(each.reference, communicator.reference)]
            clear = not rivals or match_.share - rivals[0].share >= _LEAST_LEAD
            member = _Member(clear=clear)
            member.note(match_)
            communicator.members[series.key] = member
            joined.update((series.key, communicator.reference))
            self._tries.pop(series.key, None)
            if communicator not in self._communicators:
                self._communicators.append(communicator)

    def _unite(self) -> bool:
        """Unite two communicators whose first series match; False without such a pair.

        Both began before they knew of each other.
        """
        for first in self._communicators:
            for other in self._communicators:
                key, due = other.reference, self._updates >= other.due
                if first is other or not due or any(_has(first, member) for member in other.members):
                    continue
                match_ = self._match(first.reference, key)
                if match_ is None or not _is_one(match_):
                    other.pause = min(2 * other.pause, _MOST_UPDATES)
                    other.due = self._updates + other.pause
                    continue
                for member in other.members.values():
                    member.offset_ns += match_.offset_ns
                other.members[key].note(match_)
                first.members.update(other.members)
                # Rounds that either has counted are not counted again.
                first.until_ns = max(first.until_ns, other.until_ns)
                self._communicators.remove(other)
                return True
        return False

    def _match(self, reference: SeriesKey, other: SeriesKey, near_ns: int | None = None) -> Match | None:
        first, second = self._tracks[reference.sequence], self._tracks[other.sequence]
        kernels = kernels_of(first.series[reference.stream].rows, first, second, self._numbers)
        others = kernels_of(second.series[other.stream].rows, second, first, self._numbers)
        if near_ns is None and min(kernels.eligible.sum(), others.eligible.sum()) < LEAST_MATCHED:
            return None
        return match(kernels, others, near_ns)

    # Rounds.

    def _count(self, communicator: _Communicator) -> None:
        """Count the rounds of a communicator that are known of all of its members."""
        until = self._until(communicator)
        if until < communicator.until_ns + _COUNT_PERIOD_NS:
            return
        reference = communicator.reference
        rows = self._tracks[reference.sequence].series[reference.stream].rows
        ends = int64s(rows["end"])
        new = (ends > communicator.until_ns) & (ends <= until)
        if not new.any():
            return
        first = self._tracks[reference.sequence]
        members = [Member(rows=rows, places=np.arange(len(rows)), offset_ns=0, tolerance_ns=0, exposed=first.exposed,
                          divided=first.divided)]  # fmt: skip
        keys = [reference]
        for key, member in list(communicator.members.items())[1:]:
            match_ = self._match(reference, key, member.offset_ns)
            if match_ is None:
                continue
            member.note(match_)
            if member.eligible >= LEAST_MATCHED and member.share < _LEAST_KEPT:
                del communicator.members[key]
                continue
            track = self._tracks[key.sequence]
            places = np.full(len(rows), -1, dtype=np.int64)
            places[match_.first] = match_.second
            keys.append(key)
            members.append(
                Member(
                    rows=track.series[key.stream].rows,
                    places=places,
                    offset_ns=match_.offset_ns,
                    tolerance_ns=match_.tolerance_ns,
                    exposed=track.exposed,
                    divided=track.divided,
                )
            )
        communicator.until_ns = min(until, int(ends[-1]))
        if len(members) > 1:
            self._add(communicator, keys, rounds_of(members), ends, new)

    def _add(
        self, communicator: _Communicator, keys: list[SeriesKey], rounds: Rounds, ends: Int64s, new: Flags
    ) -> None:
        """Add the ``new`` rounds, which end at ``ends``, to the sums of members and pairs."""
        together = rounds.present.sum(axis=0) > 1
        for number, key in enumerate(keys):
            chosen = new & rounds.present[number] & together
            sums = self._members.setdefault(key, BinnedSums(self._origins[key.sequence.process], columns=3))
            times = (each[number][chosen] for each in (rounds.communicates, rounds.exposed))
            add_at(sums, ends[chosen], 0, *times, None)
            for late in set(rounds.last[chosen & (rounds.waits[number] > 0)].tolist()):
                pair = key, keys[late]
                if pair not in self._pairs:
                    self._pairs[pair] = BinnedSums(self._origins[key.sequence.process], columns=PAIR_COLUMNS)
            for late, other in enumerate(keys):
                if (key, other) in self._pairs:
                    self._add_waits(key, other, rounds, number, chosen & (rounds.last == late))
                    self._add_pair(self._pairs[key, other], rounds, number, late, ends, chosen)
                    sure = (communicator.members[each] for each in (key, other))
                    self._sure[key, other] = all(member.clear and member.share >= SURE_SHARE for member in sure)

    def _add_waits(self, key: SeriesKey, other: SeriesKey, rounds: Rounds, number: int, chosen: Flags) -> None:
        """Add the waits of a series for another one to the last ones."""
        if other.sequence not in self._late:
            self._late.append(other.sequence)
        chosen = chosen & (rounds.waits[number] > 0)
        begins, late = rounds.starts[number][chosen], self._late.index(other.sequence)
        new = np.stack((begins, begins + rounds.waits[number][chosen], np.full(len(begins), late)))
        every = np.concatenate((self._waits[key], new), axis=1)
        self._waits[key] = every[:, np.argsort(every[0], kind="stable")][:, -MOST_WAITS:]

    def _add_pair(self, sums: BinnedSums, rounds: Rounds, number: int, late: int, ends: Int64s, chosen: Flags) -> None:
        waited = chosen & (rounds.last == late) & (rounds.waits[number] > 0)
        values = np.zeros((len(ends), PAIR_COLUMNS), dtype=np.int64)
        values[waited, WAITS] = rounds.exposed[number][waited]
        values[waited, ROUNDS] = 1
        # A delay in a round may show in later rounds without a wait.
        neither = (rounds.waits[number] == 0) & (rounds.waits[late] == 0) & rounds.present[late]
        compared = (waited | (chosen & neither)) & rounds.whole[number] & rounds.whole[late]
        values[compared, WAITS_OF_PARTS] = values[compared, WAITS]
        values[compared, WAITS_OF_PARTS + 1 :] = rounds.parts[late][compared] - rounds.parts[number][compared]
        kept = waited | compared
        add_at(sums, ends[kept], 0, *values[kept].T)

    def _until(self, communicator: _Communicator) -> int:
        """Until when (ns) the kernels of all members are known."""
        tracks = [self._tracks[key.sequence] for key in communicator.members]
        open_ = [track.until_ns for track in tracks if track.key.process not in self._ended]
        latest = max(open_, default=FOREVER)
        return min((until for until in open_ if until > latest - _MOST_BEHIND_NS), default=FOREVER) - 2 * CLOCK_ERROR_NS

    def _drop(self) -> None:
        """Drop what has been counted, or is old."""
        counted: dict[SeriesKey, int] = {}
        for each in self._communicators:
            counted.update(dict.fromkeys(each.members, each.until_ns))
        for track in self._tracks.values():
            times = [counted.get(series.key, track.until_ns - _MOST_BEHIND_NS) for series in track.series.values()]
            track.drop_before(min([*times, track.until_ns]) - KEPT_NS)


def _is_one(match_: Match) -> bool:
    """True if a match shows that two series are one communicator."""
    return match_.eligible >= LEAST_MATCHED and match_.share >= LEAST_SHARE and not match_.ambiguous


def _has(communicator: _Communicator, key: SeriesKey) -> bool:
    """True if a communicator has a series of the same process and GPU already."""
    return any(_same_process(member, key) for member in communicator.members)


def _same_process(key: SeriesKey, other: SeriesKey) -> bool:
    return (key.sequence.process, key.sequence.device) == (other.sequence.process, other.sequence.device)


def exposed_ns(sums: NDArray[np.int64]) -> int:
    """The time (ns) in which only the kernels of a series ran, by its sums."""
    return int(sums[:, EXPOSED].sum())
