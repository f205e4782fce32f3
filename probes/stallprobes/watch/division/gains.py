"""Gains: the largest share of its time that a program would save without one cause.

The host and the GPU work at the same time. Without a cause, the program takes the longer of the two remaining times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stallprobes.watch.division import instants
from stallprobes.watch.division.cpu_time import Sleeps
from stallprobes.watch.division.parts import ALLOCATION_PARTS, GPU_PARTS, NUMBERS, ORDER, Bound, Part
from stallprobes.watch.division.result import CAUSE_LIMIT
from stallprobes.watch.intervals import Int64s

# Gain of each cause (share of the time).
Gains = Mapping[Bound, float]
# Column of the time in which the GPU only copies or fills, without kernels.
_COPIES = NUMBERS[Part.COPIES]
# Columns of all time in copies: while the GPU only copies, and while kernels run at the same time.
_EVERY_COPY = _COPIES, instants.BESIDE
# Smallest share of the time at which the host (not waiting for the GPU) or the GPU (running work) counts as always
# busy. All host time in sleeps or allocations, or all GPU time in copies without kernels, is then a possible gain (time
# saved without a cause). Below the limit, mainly the time counts in which the other side (GPU or host) is idle.
_NEVER_WAITS = 0.95
# Largest difference (share of the time) between the gain from the sums of all bins of time and the mean of the bins'
# gains at which the gain from the sums is used. With a larger difference, the program has phases, and the mean is used.
# A gain is the time saved without a cause, such as allocations.
_MOST_SCATTER = 0.05
# Smallest share of the time in frees (calls that allocate or free while the GPU works) at which the frees limit the
# gain without waits. Late frees (LATE_FREES in instants.py): without waits, the program would still take at least the
# time LONGER. Other frees: without waits, streams would not overlap more.
_LEAST_FREES = 0.1
# Smallest CPU time of a child process or another thread that explains a sequence's sleep, as a share of the sleep. A
# child process explains sleep for data; another thread explains sleep for a thread. Reason: a process or thread with
# less CPU time cannot explain half of the sleep. If the program sleeps for a child process with at least this CPU time
# (share of the time), the interval of the waits' cost begins at 0.
_LEAST_BUSY = 0.5
# Smallest share of the time that a sequence (threads that call by turns) must sleep for outside data, other threads or
# the interpreter lock before the sleep counts. From this share on, a child process that works enough counts as
# preparing the data, and the interval of the waits' cost is wider.
LEAST_OUTSIDE = 0.02
# Smallest CPU time (share of the time) of a child process, or of another thread, at which the process or thread counts
# as limiting the program. Little sleep of the program for the process or thread is enough. Reason: without other waits,
# the program would sleep longer for the process or thread.
_KEPT_BUSY = 0.9
# Largest CPU time (share of the time) of a child process at which the process can limit the gains by _KEPT_BUSY.
# Reason: a child process that prepares data also waits until the program has fetched the data.
_ALWAYS_BUSY = 0.98
# Smallest mean number of waits in a bin of time. With fewer waits, bins are merged. Reason: a bin must contain whole
# steps (about one wait each), since host and GPU may work by turns within a step.
_LEAST_WAITS = 8


def gains_of(sums: Int64s, waits: int) -> tuple[Gains, Gains]:
    """The gain of each cause, by sums in bins with ``waits`` waits in all, and the mean of those of bins alone."""
    # In a part of a step only the host or only the GPU may work.
    count = min(max(waits // _LEAST_WAITS, 1), max(len(sums), 1))
    sums = np.add.reduceat(sums, np.arange(count) * len(sums) // count) if len(sums) else sums
    sums = sums[steady_ns(sums) > 0]
    if not len(sums):
        none = dict.fromkeys(_gains(np.ones((1, instants.COLUMNS)), np.ones(1)), 0.0)
        return none, none
    whole, total = steady_ns(sums), sums.sum(axis=0, keepdims=True)
    of_bins = {cause: float(np.average(gain, weights=whole)) for cause, gain in _gains(sums, whole).items()}
    of_all = {cause: float(gain[0]) for cause, gain in _gains(total, steady_ns(total)).items()}
    phases = {
        cause: of_bins[cause] if abs(of_bins[cause] - gain) > _MOST_SCATTER else gain for cause, gain in of_all.items()
    }
    return phases, of_bins


def with_sleeps(
    gains: Gains, sleeps: Sleeps, host: float, gpu: float, between: float, woken: float = 0.0
) -> dict[Bound, float]:
    """``gains`` with those of sleeps, by the shares of time in which the host did not wait, in which the GPU worked,
    and in which it did nothing while the host was between calls.

    A child process is what prepares the data if it works for half of the time for which the sequence waits for data,
    also by a thread that hands them over. It limits every gain but its own. Another thread is what the sequence waits
    for if it works for half of that time. ``woken`` is the share of the time asleep outside calls after which the GPU
    may have woken the sequence: it is no sleep for another thread.
    """
    thread = max(sleeps.thread - woken, 0.0)
    others = sleeps.others >= _LEAST_BUSY * thread
    data = sleeps.outside + (0.0 if others else thread)
    prepares = data >= LEAST_OUTSIDE and sleeps.children >= _LEAST_BUSY * data
    limit = 1 - sleeps.children if prepares else 1.0

    def gain(share: float) -> float:
        own = share if host >= _NEVER_WAITS else min(share, between)
        return max(min(own, 1 - max(gpu, host - own)), 0.0)

    return {cause: max(min(gain, limit), 0.0) for cause, gain in gains.items()} | {
        Bound.OWN_SLEEP: min(gain(sleeps.own), limit),
        Bound.CHILD: gain(sleeps.child),
        Bound.INPUT: gain(data) if prepares else 0.0,
        # The lock of the interpreter is another thread's in any case.
        Bound.THREAD: min(gain((thread if others else 0.0) + sleeps.interpreter), limit),
        Bound.IDLE: 0.0 if prepares else sleeps.outside,
    }


def collecting_gain(sleeps: Sleeps, host: float, gpu: float, between: float) -> float:
    """The gain of the time in which Python's garbage collector runs, by the shares of time in which the host did not
    wait, in which the GPU worked, and in which it did nothing while the host was between calls."""
    own = min(sleeps.collects, between)
    return max(min(own, 1 - max(gpu, host - own)), 0.0)


def computing_gain(sleeps: Sleeps, host: float, gpu: float) -> float:
    """The gain of the time in which the host neither sleeps nor waits for the GPU, by the shares of both."""
    computing = max(host - sleeps.own - sleeps.child - sleeps.outside - sleeps.thread - sleeps.interpreter, 0.0)
    return max(min(computing, 1 - max(gpu, host - computing)), 0.0)


def without_feeder(gains: Gains, sleeps: Sleeps) -> Gains:
    """``gains`` with the limit that a busy feeder sets: a child process that prepares data, or a thread for which the
    program sleeps. No other cause gains more than the idle time of the feeder. A child process that works all the time
    prepares no data."""
    own, most = {Bound.THREAD}, 1.0
    if sleeps.others >= _KEPT_BUSY and gains[Bound.THREAD] >= CAUSE_LIMIT:
        most = 1 - sleeps.others
    elif _KEPT_BUSY <= sleeps.children <= _ALWAYS_BUSY:
        own, most = {Bound.INPUT, Bound.CHILD}, 1 - sleeps.children
    return {cause: gain if cause in own else min(gain, most) for cause, gain in gains.items()}


def frees_wait(sums: Int64s) -> bool:
    """True if frees wait for the GPU, so that other waits have no gain, by sums in bins."""
    whole = max(int(steady_ns(sums).sum()), 1)
    return int(sums[:, instants.FREE_WAITS].sum() - sums[:, instants.LATE_FREES].sum()) >= _LEAST_FREES * whole


def keeps_busy(sleeps: Sleeps) -> bool:
    """True if a feeder of the program is busy: a child process (nearly all the time, or half of the time if the program
    sleeps for data), or another thread for which the program sleeps (nearly all the time)."""
    feeds = sleeps.outside > 0 and sleeps.children >= _LEAST_BUSY
    return feeds or sleeps.children >= _KEPT_BUSY or (sleeps.thread > 0 and sleeps.others >= _KEPT_BUSY)


def steady_ns(sums: Int64s) -> Int64s:
    """The time (ns) of each bin without that after the last operation."""
    steady: Int64s = sums[:, : len(ORDER)].sum(axis=1) - sums[:, NUMBERS[Part.END]]
    return steady


def _gains(sums: NDArray[Any], whole: NDArray[Any]) -> dict[Bound, NDArray[np.float64]]:
    def share(*columns: int) -> NDArray[np.float64]:
        return np.asarray(sums[:, list(columns)].sum(axis=1) / whole, dtype=np.float64)

    between = share(NUMBERS[Part.BETWEEN], instants.LEAST_GAPS)
    host, gpu = 1 - share(instants.WAITING), share(*(NUMBERS[part] for part in GPU_PARTS), instants.LEAST_GAPS)
    # A free waits for all work: without waits before it, it would be as much longer, and so a wait behind it.
    late, frees = share(instants.LATE_FREES), share(instants.FREE_WAITS)
    alone = share(*(NUMBERS[part] for part in ALLOCATION_PARTS))
    allocates = np.where(host < _NEVER_WAITS, alone + frees, share(instants.ALLOCATES))
    # A copy that blocks takes time of the host and of the GPU.
    copying, own, apart = share(instants.COPYING), share(instants.OWN_COPIES), share(instants.APART)
    # The busiest GPU remains where none waits for another one.
    other, elsewhere = share(NUMBERS[Part.OTHER_GPU]), share(instants.ELSEWHERE)
    turns = np.minimum(other, np.maximum(1 - np.maximum.reduce((host, gpu, elsewhere)), 0))
    copies = np.where(gpu < _NEVER_WAITS, own + share(instants.AWAITED_COPIES), share(_COPIES))
    # Copies that could run beside kernels take their own time if the host does not wait for them.
    beside = np.maximum(gpu - apart, share(*_EVERY_COPY))
    # Frees keep streams from running beside each other, too.
    in_order = np.minimum(beside, gpu - share(instants.OVERLAP))
    without = np.maximum(beside + share(instants.ORDERED), elsewhere)
    waits = 1 - np.maximum(host + share(instants.QUEUE_FULL), without)
    waits = np.where(turns >= waits / 2, np.minimum(waits, turns), waits)
    # If the program frees memory before each wait, the host cannot run ahead of the GPU by more than one step.
    waits = np.where(late < _LEAST_FREES, waits, np.minimum(waits, 1 - share(instants.LONGER)))
    gains = {
        Bound.LOADING: share(NUMBERS[Part.LOADING]),
        Bound.ALLOCATION: np.minimum.reduce(
            (allocates, 1 - np.maximum(in_order, host - allocates), share(instants.SAVED_FREES))
        ),
        Bound.LOCK: share(NUMBERS[Part.LOCK]),
        Bound.COPY: np.maximum(
            np.minimum(copying + copies - own, 1 - np.maximum(host - copying, gpu - copies)),
            share(instants.SAVED_COPIES),
        ),
        Bound.STREAMS: share(instants.SAVED_ORDER),
        # The time that the host takes meanwhile remains.
        Bound.GAPS: np.minimum(between, gpu - host),
        # A full queue remains. Without the waits, frees would wait longer, and launches for room in a queue.
        Bound.WAIT: np.minimum(waits, 1 - np.maximum(share(instants.WITHOUT_WAITS), share(instants.LONGER_QUEUES))),
        Bound.TURNS: turns,
        Bound.GPU: 1 - host + frees,
        # GPUs that wait for each other are one side.
        Bound.HOST: 1 - gpu - other,
    }
    return {cause: np.maximum(gain, 0.0) for cause, gain in gains.items()}
