"""Rounds of a collective over several ranks: who came last, how long others waited for it, and what each one did."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stallprobes.records.rows import Rows
from stallprobes.watch.division.instants import CoveredTime
from stallprobes.watch.division.parts import ORDER
from stallprobes.watch.intervals import Int64s, int64s

# Number of parts (kernels, copies, locks, …) into which the time of a sequence (threads that call by turns) is
# divided.
_PARTS = len(ORDER)
# Begin and end (ns) of the kernel of a rank that takes no part in a round (collective of all ranks): before all times.
_NEVER = -(2**62)


@dataclass(frozen=True, eq=False, kw_only=True)
class Member:
    """A rank's kernels (COLLECTIVE), and the place of each round's among them, -1 where it is not known: int64[rounds].

    Its ends are ``offset_ns`` later than those of the first member, give or take less than ``tolerance_ns``.
    ``exposed`` are the times in which no other kernel of it ran, among the ``divided`` ones.
    """

    rows: Rows
    places: Int64s
    offset_ns: int
    tolerance_ns: int
    exposed: CoveredTime
    divided: CoveredTime


@dataclass(frozen=True, eq=False, kw_only=True)
class Rounds:
    """Rounds of a collective: arrays of [members][rounds], times in ns.

    - ``starts``: when the member's kernels began.
    - ``present``: the kernel of the member is known, and the round is none that cannot be one.
    - ``last``: the member that came latest of those present.
    - ``waits``: for how long the member waited for the ``last`` one.
    - ``exposed``: the part of ``waits`` in which no other kernel ran; 0 where not all of the kernel's time is divided.
    - ``communicates``: that part of the whole kernel; 0 in the same case.
    - ``parts``: what the member did since the round before (int64[members][rounds][parts]).
    - ``whole``: all of ``parts`` is known.
    """

    starts: NDArray[np.int64]
    present: NDArray[np.bool_]
    last: Int64s
    waits: NDArray[np.int64]
    exposed: NDArray[np.int64]
    communicates: NDArray[np.int64]
    parts: NDArray[np.int64]
    whole: NDArray[np.bool_]


def rounds_of(members: Sequence[Member]) -> Rounds:
    """The rounds of some members, of which the first one has each round."""
    count = len(members[0].places)
    shape = len(members), count
    starts, ends = np.full(shape, _NEVER, dtype=np.int64), np.full(shape, _NEVER, dtype=np.int64)
    communicates = np.zeros(shape, dtype=np.int64)
    parts, whole = np.zeros((*shape, _PARTS), dtype=np.int64), np.zeros(shape, dtype=np.bool_)
    present = np.stack([member.places >= 0 for member in members])
    for number, member in enumerate(members):
        at, rows = np.flatnonzero(present[number]), member.rows[member.places[present[number]]]
        starts[number, at], ends[number, at] = rows["start"], rows["end"]
        communicates[number, at] = _covered(member, int64s(rows["start"]), int64s(rows["end"]))
        if len(at) > 1:
            did, took = np.diff(rows["parts"], axis=0), np.diff(int64s(rows["end"]))
            parts[number, at[1:]] = did
            whole[number, at[1:]] = (np.diff(at) == 1) & (did.sum(axis=1) == took)
    offsets = int64s([member.offset_ns for member in members])[:, None]
    corrected = np.where(present, starts - offsets, _NEVER)
    last = int64s(np.argmax(corrected, axis=0))
    tolerances = int64s([member.tolerance_ns for member in members])
    tolerance = np.maximum(tolerances[:, None], tolerances[last])
    latest = np.take_along_axis(corrected, last[None], axis=0)[0]
    # A kernel that ends before the last rank has arrived is another collective.
    left = np.where(present, ends - offsets, 2**62) + tolerance < latest
    present = present & ~left.any(axis=0)
    # Ends may be apart by the error of the clocks, or because one rank leaves later: the shorter wait is sure.
    raw = np.take_along_axis(starts, last[None], axis=0)[0] - starts
    waits = np.minimum(latest - corrected, raw)
    waits = np.where(present & (waits > tolerance), np.minimum(waits, ends - starts), 0)
    exposed = np.zeros(shape, dtype=np.int64)
    for number, member in enumerate(members):
        exposed[number] = np.minimum(
            _covered(member, starts[number], starts[number] + waits[number]), communicates[number]
        )
    return Rounds(
        starts=starts,
        present=present,
        last=last,
        waits=waits,
        exposed=exposed,
        communicates=communicates,
        parts=parts,
        whole=whole & present,
    )


def _covered(member: Member, begins: Int64s, ends: Int64s) -> Int64s:
    """The exposed time of a member between some times; 0 where not all of it is divided."""
    exposed, divided = (times.during(begins, ends) for times in (member.exposed, member.divided))
    return np.where((ends > begins) & (divided == ends - begins), exposed, 0)
