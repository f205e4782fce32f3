"""What watching costs the program, as measured while it ran."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallprobes.files.codec import Document, Share, Unsigned
from stallprobes.native.layouts.watch_file import NODE_RECORD_NS, RANGE_NS, RECORD_NS
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.reading.record_windows import RecordWindows

Floats = NDArray[np.float64]
# Smallest number of windows with records from which the cost of records is measured. Each window is compared with the
# windows without records before and after it. Reason: with fewer, the interval of programs whose steps are longer than
# the windows holds the cost too seldom.
LEAST_COMPARED = 6
# Smallest number of calls in all windows that are compared. Reason: the interval needs a distribution close to normal.
LEAST_CALLS = 300
# Smallest and largest time (ns) that CUPTI itself takes for the two callbacks of a call, at the call's begin and end.
# The time inside the callbacks is added to this time. Measured on H200s (CUPTI 13.0 and 13.5): 0.1 us in a loop of
# queries, 0.2 us in a loop of launches, 0.33 us in launches that are captured.
DISPATCH_NS = (50, 350)


# Smallest and largest time (ns) by which each call stays slower after stallscope has detached. Key True: GPU work was
# recorded before, measured 158 to 1272 ns (four processes that launch, H200, CUPTI 13.5). Key False: only calls were
# recorded. The largest time of key False also holds for calls whose callbacks are off while stallscope is attached.
_AFTER_NS = {True: (100, 1300), False: (0, 150)}
# Longest time (ns) by which CUPTI lengthens the launch of a graph, for each node of the graph. CUPTI does so from its
# subscription until the process ends, whatever is recorded. Measured: 180 to 360 ns a node in graphs of 900 kernels
# (H200, CUPTI 13.5, ten processes); the program loses less if the GPU has other work meanwhile.
_NODE_PRESENT_NS = 360
# Beginnings of the names of the functions that launch graphs, and of those that instantiate them.
_GRAPH_LAUNCH, _GRAPH_MAKING = "cuGraphLaunch", "cuGraphInstantiate"
# Number of instantiated graphs per second above which a report says that the instantiation of graphs stays slower after
# stallscope has detached.
_FEW_GRAPHS = 1.0


class AttachingCost(Document):
    """Cost of attaching to a process that ran."""

    pid: Unsigned
    stopped_ns: Unsigned
    """For so long, one of its threads was stopped to load the library; 0 where that was there already."""
    held_up_ns: Unsigned
    """A call was held up for so long at most when the recording began or ended."""
    after_low: Share
    """By this share of its time the process stays slower until it ends: computed."""
    after_high: Share
    """The upper limit of that, for calls; 0 where the process has ended."""
    graphs: bool
    """Whether it instantiates graphs, which takes longer from then on: 0.6 to 2.4 µs for each node."""
    profiler: bool = False
    """Whether a second libcupti recorded work beside the program's own: the program's profiler gets no records from
    then on."""


class WatchCost(Document, kw_only=True):
    """Cost of watching a process, as shares of the time of the thread that makes most calls.

    With comparisons, it is the cost since records were first off, after the start of the program. It includes the
    switches between windows, which may hold up a call.
    """

    low: Share
    high: Share
    """With low the range in which it can be. With comparisons, low is the lower end of their 95 % interval, and high
    adds the time inside callbacks, which work of the GPU may hide."""
    compared: Unsigned
    """Comparisons of windows with records and without; 0: computed from calls and records instead."""
    recorded: Share
    """The share of time in which work of the GPU was recorded."""
    followed: Share
    """The share of time in which launches and other frequent calls were followed."""
    budget: Share
    """What watching may cost (--cost); 1: no limit."""
    graphs: Share = 0.0
    """The part of high that CUPTI adds to launches and instantiations of graphs, with records and without."""


def cost_of(process: WatchedProcess, now_ns: int) -> WatchCost:
    """The cost until ``now_ns`` (CLOCK_MONOTONIC)."""
    windows = process.windows
    made, expected = _compared_calls(windows)
    compared = len(made) >= LEAST_COMPARED and min(made.sum(), expected.sum()) >= LEAST_CALLS
    since_ns = process.started.monotonic_ns
    if windows.first_off_ns < now_ns and (compared or not process.late):
        since_ns = max(since_ns, windows.first_off_ns)
    # Work of the GPU may hide what is not compared: the time inside callbacks.
    low, high = 0.0, calls_cost(process, since_ns, now_ns, compared)[1]
    if compared:
        share = (windows.share_followed if windows.quiet.any() else windows.share_on)(now_ns, since_ns)
        least, most = _slowdown_interval(made, expected, share)
        # Callbacks at the end of quiet windows cost as much as in those with records at most, and slow what these are
        # compared with.
        resumed, of_quiet = windows.share_resumed(since_ns)
        most /= 1 - of_quiet * (1 - most)
        low, high = max(least * share, 0.0), high + max(most * (share + resumed), 0.0)
    else:
        # They cannot take more than the time in which they are on.
        high += min(_possible_cost(process, since_ns, now_ns), windows.share_on(now_ns, since_ns))
    graphs = _graphs_cost(process, now_ns)
    high += windows.switching_ns(since_ns) / max(now_ns - since_ns, 1) + graphs
    return WatchCost(
        low=min(low, 1.0),
        high=min(high, 1.0),
        recorded=windows.share_on(now_ns) if process.kinds else 0.0,
        followed=windows.share_followed(now_ns),
        budget=process.budget,
        compared=len(made) if compared else 0,
        graphs=min(graphs, 1.0),
    )


def attaching_cost(pid: int, stopped_ns: int, held_up_ns: int, process: WatchedProcess | None) -> AttachingCost:
    """What attaching cost the process ``pid``, of which ``process`` was recorded, if it could be."""
    low, high, graphs, profiler = 0.0, 0.0, False, False
    if process is not None and process.ended_ns is not None and not process.finalized:
        since_ns, now_ns = process.started.monotonic_ns, process.ended_ns
        rate = _most_calls_per_ns(process, since_ns, now_ns)
        low, high = (rate * ns for ns in _AFTER_NS[bool(process.kinds)])
        low, high = min(low, 1.0), min(high + _graphs_cost(process, now_ns), 1.0)
        made = sum(
            figures.total.count
            for thread in process.threads
            for name, figures in thread.figures.items()
            if name.startswith(_GRAPH_MAKING)
        )
        graphs = made > _FEW_GRAPHS * (now_ns - since_ns) / 1e9
        profiler = process.beside and bool(process.kinds)
    return AttachingCost(pid, stopped_ns, held_up_ns, low, high, graphs, profiler)


def calls_cost(process: WatchedProcess, since_ns: int, now_ns: int, compared: bool) -> tuple[float, float]:
    """Lower and upper bound of the cost of callbacks, stacks and NVTX ranges, as shares (0 to 1) of the time of the
    busiest thread. Where callbacks are off in windows without records, a comparison of windows has their cost.
    """
    windows = process.windows
    beside_ns = process.stacks_ns + RANGE_NS * sum(ranges.begun for ranges in process.ranges)
    beside = beside_ns / max(now_ns - process.started.monotonic_ns, 1)
    rate = _most_calls_per_ns(process, since_ns, now_ns)
    unseen = 0.0
    if windows.quiet.any():
        took = np.where(windows.begins >= since_ns, windows.took, 0)
        kept = min(float(windows.kept[took > 0].sum() / max(took.sum(), 1)), rate)
        followed = windows.share_followed(now_ns, since_ns)
        unseen = (1 - followed) * (rate - kept)
        rate = kept if compared else kept + followed * (rate - kept)
    low, high = (rate * (2 * process.callback_ns + ns) + beside for ns in DISPATCH_NS)
    return low, high + unseen * _AFTER_NS[False][1]


def _possible_cost(process: WatchedProcess, since_ns: int, now_ns: int) -> float:
    """The most that records since ``since_ns`` can cost, as a share (0 to 1) of the time.

    As long as no window has ended, as if all had come since. A call makes one record; more are those of graphs' nodes.
    Threads often work one after the other, as those of a training step, so that the records of all of them count.
    """
    windows = process.windows
    ended = (windows.begins >= since_ns) & (windows.took > 0)
    records, calls, took_ns = (
        float(values[ended].sum()) for values in (windows.counted, windows.calls * windows.on, windows.took)
    )
    if not records or np.count_nonzero(ended) < 2:
        records, calls, took_ns = process.records, process.calls, max(now_ns - since_ns, 1)
    single = min(records, calls)
    return (single * RECORD_NS + (records - single) * NODE_RECORD_NS) / took_ns


def _graphs_cost(process: WatchedProcess, now_ns: int) -> float:
    """The largest time that CUPTI adds to launches and instantiations of graphs, as a share (0 to 1) of the time of the
    thread that spends most in them.

    It is at most the time inside these calls: on an H200, instantiations of 0.62 to 0.78 ms made a program 30 % slower
    that spent 36 % of its time in them. If work was recorded, the number of nodes limits it for launches too: records
    minus calls. A comparison of windows does not show it, since CUPTI adds it in all windows.
    """
    windows = process.windows
    launching, making = (_share_inside(process, name, now_ns) for name in (_GRAPH_LAUNCH, _GRAPH_MAKING))
    on = (windows.took > 0) & windows.on & (windows.counted > 0)
    if not launching or not on.any():
        return launching + making
    nodes = max(int(windows.counted[on].sum()) - int(windows.calls[on].sum()), 0) / int(windows.took[on].sum())
    # Without records, the rate of launches changes as the rate of calls does.
    off = (windows.took > 0) & ~windows.on
    rates = [float(windows.calls[each].sum() / max(windows.took[each].sum(), 1)) for each in (on, off)]
    most = nodes * max(rates[1] / rates[0], 1.0) * _NODE_PRESENT_NS if rates[0] else launching
    return min(launching, most) + making


def _share_inside(process: WatchedProcess, name: str, now_ns: int) -> float:
    """The largest share of its time that a thread was inside functions whose names begin so."""
    return max(
        (
            sum(figures.total_ns for each, figures in thread.figures.items() if each.startswith(name))
            / max((thread.ended_ns or now_ns) - thread.started_ns, 1)
            for thread in process.threads
        ),
        default=0.0,
    )


def _most_calls_per_ns(process: WatchedProcess, since_ns: int, now_ns: int) -> float:
    """The rate of calls that slow the program: since ``since_ns``, where windows tell, while they are followed.

    Those of the thread that makes most, or of all by the number of CPUs that they used: of threads that call by turns.
    """
    counted = (process.windows.begins >= since_ns) & (process.windows.took > 0) & ~process.windows.quiet
    if counted.any():
        return float(process.windows.busiest[counted].sum() / process.windows.took[counted].sum())
    rates = (
        thread.calls / max((thread.ended_ns or now_ns) - thread.started_ns, 1)
        for thread in process.threads
        # The calls of a row that several threads share have no known owner.
        if thread.owners < 2
    )
    every = list(rates)
    return max([*every, sum(every) / process.cpus if process.cpus else 0.0])


def _compared_calls(windows: RecordWindows) -> tuple[Floats, Floats]:
    """The calls in each window with records, and those at the rate of the windows without on both sides of it."""
    calls, off = (windows.kept, windows.quiet) if windows.quiet.any() else (windows.calls, ~windows.on)
    ended = windows.took > 0
    rates = calls / np.maximum(windows.took, 1)
    between = ended[:-2] & ended[1:-1] & ended[2:] & ~off[1:-1] & off[:-2] & off[2:]
    at = np.flatnonzero(between) + 1
    return calls[at].astype(np.float64), (rates[at - 1] + rates[at + 1]) / 2 * windows.took[at]


def _slowdown_interval(made: Floats, expected: Floats, share: float) -> tuple[float, float]:
    """The 95 % interval of the share of calls that records prevented, of those ``expected`` beside the ``made``.

    The ratio of the sums, with Student's t of the windows' parts in it. Neighbors have a window without records in
    common: such values depend on each other as much as they do here, or at least as equal scatter for the same time
    lets windows that are on for a ``share`` of the time. Windows that are alike need no minimum of calls each, which
    would choose among them by what is measured. Source: simulated programs (``tests/watch/test_cost.py``).
    """
    slowdown = 1 - made.sum() / expected.sum()
    parts = (expected * (1 - slowdown) - made) / expected.mean()
    degrees = len(parts) - 1
    variance = float((parts**2).sum()) / degrees
    common = 2 * float((parts[1:] * parts[:-1]).sum()) / degrees
    wider = max(variance + common, variance / (1 - share / 2))
    student = 1.96 + 2.372 / degrees + 2.822 / degrees**2 + 2.556 / degrees**3  # its 97.5 % point
    half = student * (wider / len(parts)) ** 0.5
    return slowdown - half, slowdown + half
