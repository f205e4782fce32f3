"""Gain without waits by groups of them: a program can run only some steps ahead of the GPU.

Where the host computes for long now and then, the GPU cannot work through it with what was submitted before.
"""

from __future__ import annotations

import numpy as np

from stallprobes.native.layouts.driver_calls import CallKind
from stallprobes.watch.division.instants import APART, BESIDE, WAITING, Instants, SequenceTimes
from stallprobes.watch.division.parts import GPU_PARTS, NUMBERS, ORDER, Part
from stallprobes.watch.intervals import NONE, Int64s, count_until

# Number of waits in a group. A step has about one wait, and programs rarely run more than this many steps ahead of the
# GPU.
_WAITS_OF_GROUP = 8
# Flags by number of CallKind: a call of this kind waits for the GPU.
_WAITS = np.array([kind in (CallKind.WAITS, CallKind.COPIES) for kind in CallKind])
# Flags by number of the part of the time: the GPU has work in this part (GPU_PARTS).
_WORKS = np.array([part in GPU_PARTS for part in ORDER])


def longer_times(times: SequenceTimes, instants: Instants) -> tuple[Int64s, Int64s]:
    """The longer of the host's and the GPU's time in each group of waits: when it begins, and the time (ns)."""
    returned = np.concatenate([NONE, *(calls.spans.ends[_WAITS[calls.kinds]] for calls in times.threads.values())])
    if len(times.threads) > 1:
        returned.sort(kind="stable")
    begins, lengths, parts = instants.begins, instants.ends - instants.begins, instants.parts
    groups = count_until(returned[_WAITS_OF_GROUP - 1 :: _WAITS_OF_GROUP], begins)
    first = np.flatnonzero(np.append(True, groups[1:] != groups[:-1]))[: len(groups)]
    waiting, apart, beside = (instants.flags[column - WAITING] for column in (WAITING, APART, BESIDE))
    works = _WORKS[parts]
    host = np.add.reduceat(lengths * ~waiting, first)
    if times.ended:
        host -= np.add.reduceat(lengths * (parts == NUMBERS[Part.END]), first)
    longer = np.maximum(host, np.add.reduceat(lengths * (works & ~apart if apart.any() else works), first))
    copies = (parts == NUMBERS[Part.COPIES]) | beside
    if copies.any():
        longer = np.maximum(longer, np.add.reduceat(lengths * copies, first))
    return begins[first], longer
