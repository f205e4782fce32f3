"""Sums of one sequence on one GPU, slice after slice, and the division that they make."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set

import numpy as np

from stallprobes.watch.division.binned_sums import BinnedSums, Figure, Times, add_at, figure, since
from stallprobes.watch.division.collectives import CollectiveLog
from stallprobes.watch.division.cpu_time import CpuSums
from stallprobes.watch.division.gains import (
    LEAST_OUTSIDE,
    collecting_gain,
    computing_gain,
    frees_wait,
    gains_of,
    keeps_busy,
    steady_ns,
    with_sleeps,
    without_feeder,
)
from stallprobes.watch.division.instants import (
    APART,
    BESIDE,
    COLUMNS,
    COPY,
    FREE_WAITS,
    LEAST_GAPS,
    LONGER,
    NO_END,
    ORDERED,
    OVERLAP,
    QUEUE_FULL,
    SAVED_COPIES,
    SAVED_FREES,
    SAVED_ORDER,
    SUBMITS,
    WAITING,
    WITHOUT_WAITS,
    CoveredTime,
    Instants,
    Operations,
    SequenceTimes,
    Spans,
    instants_of,
    sums_of,
)
from stallprobes.watch.division.kernel_sums import KernelSums
from stallprobes.watch.division.least_gaps import LeastGaps
from stallprobes.watch.division.outside_waits import NO_WAITS, PossibleWaits
from stallprobes.watch.division.parts import ALLOCATION_PARTS, GPU_PARTS, NUMBERS, ORDER, Bound, Part
from stallprobes.watch.division.phases import phases_of
from stallprobes.watch.division.result import (
    CAUSE_LIMIT,
    CLOSE,
    LEAST_AWAITED,
    PRICE_ERROR,
    SIDES,
    AwaitedThread,
    KernelTime,
    SequenceDivision,
    because_of_host,
    beside_gpu,
    bounds_of,
    hides_waits,
    is_vague,
    price_of,
)
from stallprobes.watch.division.short_gains import (
    CallGroups,
    FreeGroups,
    SubmittedOrder,
    saved_without_frees,
)
from stallprobes.watch.division.slowdown import NO_SLOWDOWN, Slowdown, without_slowdown
from stallprobes.watch.division.stream_sums import StreamSums
from stallprobes.watch.division.wait_sums import WaitSums, limited
from stallprobes.watch.intervals import NONE, Int64s, distinct

# Error (share of the time) of the time asleep by samples of a thread's state.
_SLEEP_ERROR = 0.1
# Error (ns) of the measured time of host and GPU, per call with GPU work. Reason: the clocks of host and GPU differ.
_CLOCKS_NS = 500
# Error (ns) of the measured time of host and GPU, per GPU operation. This error replaces _CLOCKS_NS in programs that
# are recorded only for a part of the time, until the slowdown by recording is known.
_RECORDING_NS = 2_000
# Largest time (ns) by which the record of a kernel is longer than the kernel's own work. The kernels of four random
# programs read the GPU's clock and took 1.4 to 2.3 us less than their records (H200s, tests/benchmarks/bench_truth.py).
_LONGER_RECORD_NS = 2_300
# Limit of the error by _LONGER_RECORD_NS, as a share of the GPU's time.
_MOST_LONGER_RECORDS = 0.1
# Largest time (ns) that a launch takes by itself if it finds the launch queue full. In three random programs it took
# 5.6 to 6.3 us, watched (H200s, tests/benchmarks/bench_truth.py).
_OWN_LAUNCH_NS = 6_500
# Relative error of the measured time that recording adds to calls.
_SLOWDOWN_ERROR = 0.25
# Largest number of streams with kernels that are kept. With more streams, those with the highest numbers are kept.
_MOST_KERNEL_STREAMS = 1024
# How long (ns) a sequence waited, by the begins of bins and their width (ns), beside what was divided as such.
MissingTime = Callable[[Int64s, int], Int64s | int]


class SequenceSums:
    """The sums of a sequence from ``began_ns`` until ``done_ns``, in bins since ``origin_ns``.

    ``last_end`` is the latest end of its work until then, ``calls`` the number of its calls. ``threads`` and
    ``contexts`` are all that it has had, each thread with the time (ns) that it spent inside calls that submit work or
    wait for it. ``cpu`` is its time between calls, ``collectives`` its kernels that communicate.
    """

    def __init__(self, origin_ns: int, began_ns: int) -> None:
        self.began_ns = self.done_ns = began_ns
        self.last_end = NO_END
        self.calls = 0
        self.threads: dict[int, int] = {}
        self.contexts: set[int] = set()
        self._sums = BinnedSums(origin_ns)
        self._waits = WaitSums(origin_ns)
        self.cpu = CpuSums(origin_ns)
        self.collectives = CollectiveLog()
        self._streams = StreamSums(origin_ns)
        self._kernels = KernelSums(origin_ns)
        self._gaps = LeastGaps()
        self._groups = CallGroups(self._sums.borders)
        self._free_groups = FreeGroups()
        self._kernel_streams = NONE
        # By other threads: for how long the GPU worked for them while it was waited for.
        self._others: dict[int, BinnedSums] = {}
        self._late = BinnedSums(origin_ns, columns=1)

    @property
    def bin_ns(self) -> int:
        """Width (ns) of the bins of its sums."""
        return self._sums.width_ns

    def note_thread(self, thread: int, inside_ns: int = 0) -> None:
        """Add ``inside_ns`` to the time that a thread spent inside calls that submit work or wait for it."""
        self.threads[thread] = self.threads.get(thread, 0) + inside_ns

    def note_late(self, begins: Int64s, times: Int64s) -> None:
        """Note work that became known too late: when it began, and for how long (ns) the GPU worked."""
        add_at(self._late, begins, 0, times)

    def add(self, times: SequenceTimes, begin: int, until: int) -> Instants:
        """Add the time from ``begin`` to ``until``, and return it."""
        sums, work = self._sums, times.work
        borders = np.concatenate((sums.borders(begin, until), CollectiveLog.ends(work, begin, until)))
        instants = instants_of(times, begin, until, borders)
        self.collectives.add(work, instants, times.recorded, begin, until)
        first, columns = sums_of(instants, sums.origin_ns, sums.width_ns)
        sums.add(first, columns)
        if len(columns):
            starts, gaps = self._gaps.of(times, begin, until)
            add_at(sums, np.minimum(starts, until - 1), LEAST_GAPS, gaps)
            order = SubmittedOrder.of(times, begin, until)
            # The groups of launches have the column LONGER_QUEUES.
            starts, *longer = self._groups.add(times, instants)
            add_at(sums, starts, LONGER, *longer)
            every = order if order is not None and order.factor == 1 else None
            replayed = {
                WITHOUT_WAITS: self._free_groups.add(times, instants, every),
                SAVED_FREES: saved_without_frees(times, instants, every),
            }
            if order is not None:
                replayed |= {
                    SAVED_ORDER: order.saved_order(times, instants),
                    SAVED_COPIES: order.saved_copies(times, instants),
                    OVERLAP: order.overlap,
                }
            for column, (starts, ns) in replayed.items():
                add_at(sums, starts, column, ns)
        if (waits := instants.parts == NUMBERS[Part.OTHER_WORK]).any():
            self._add_others(instants.begins[waits], instants.ends[waits], times.others())
        self._waits.add(times, begin, until)
        # An operation that ends where a bin begins is in the bin before. When it ends is not known if records were
        # switched off meanwhile.
        ended = (work.ends > begin) & (work.ends <= until) & times.recorded.contain(work.ends)
        # The nodes of a graph have one call.
        called = np.append(True, work.correlations[1:] != work.correlations[:-1])[: len(work)]
        complete = work.where(ended)
        self._streams.add(complete, called.compress(ended))
        self._kernels.add(complete)
        if len(between := np.flatnonzero(instants.parts == NUMBERS[Part.BETWEEN])) and len(work):
            begins, ends = instants.begins[between], instants.ends[between]
            self._kernels.add_between(work, times.last_end, begins, ends - begins)
        return instants

    def _add_others(self, begins: Int64s, ends: Int64s, others: Mapping[int, Spans]) -> None:
        for thread, spans in others.items():
            ns = CoveredTime(spans).during(begins, ends)
            add_at(self._others.setdefault(thread, BinnedSums(self._sums.origin_ns, columns=1)), begins, 0, ns)

    def advance(self, work: Operations, until: int) -> None:
        """Everything until a time is done; ``work`` is all that is known of it."""
        self.last_end = work.latest_end(self.last_end, until)
        self._kernel_streams = self.kernel_streams(work, until)
        self.done_ns = until

    def kernel_streams(self, work: Operations, until: int) -> Int64s:
        """Sorted numbers of the streams in which kernels of ``work`` or before started before ``until`` (ns)."""
        begun = slice(int(work.starts.searchsorted(until, "right")))
        streams = distinct(work.streams[begun].compress(work.kinds[begun] != COPY))
        if np.isin(streams, self._kernel_streams).all():
            return self._kernel_streams
        return distinct(np.concatenate((self._kernel_streams, streams)))[-_MOST_KERNEL_STREAMS:]

    def division(
        self,
        device: int,
        times: Times,
        functions: Mapping[int, str],
        *,
        sampled: bool,
        alone: bool,
        engine_known: bool,
        left: Set[int] = frozenset(),
        possible_ns: Callable[[Times], PossibleWaits] = lambda _: NO_WAITS,
        missing_ns: MissingTime = lambda *_: 0,
        slowdown: Slowdown = NO_SLOWDOWN,
    ) -> SequenceDivision:
        """The division of ``times``.

        ``functions`` are names by number. ``sampled``: work was recorded for a part of the time. ``alone`` and
        ``engine_known`` are as in the result. ``left``: threads that are in another sequence by now. ``possible_ns``:
        how long in some times a thread may have waited for the GPU outside calls.
        ``missing_ns``: how long it did so in bins, beside what was divided as such.
        ``slowdown`` is what records add.
        """
        sums = self._with_waits(missing_ns).during(times)
        recorded_ns = int(sums[:, : len(ORDER)].sum())
        sums = without_slowdown(sums, steady_ns(sums), slowdown)
        totals = sums.sum(axis=0) if len(sums) else np.zeros(COLUMNS, dtype=np.int64)
        parts = {part: int(totals[NUMBERS[part]]) for part in ORDER if totals[NUMBERS[part]]}
        covered = sum(parts.values())
        whole = steady_ns(sums)
        span_ns = sum(max(min(end, self.done_ns) - max(begin, self.began_ns), 0) for begin, end in times)
        recorded = min(recorded_ns / span_ns, 1.0) if sampled and span_ns > 0 else 1.0
        works = sums[:, [*(NUMBERS[part] for part in GPU_PARTS), LEAST_GAPS]].sum(axis=1)
        operations, submitted = self._streams.counts(times)
        error_ns = _CLOCKS_NS * submitted
        if sampled and not slowdown.known:
            error_ns = _RECORDING_NS * operations
        error = error_ns / covered + _SLOWDOWN_ERROR * slowdown.added if covered else 0.0
        host, gpu = figure(whole - sums[:, WAITING], whole, recorded, error), figure(works, whole, recorded, error)
        submits, full = (figure(sums[:, name], whole, recorded).share for name in (SUBMITS, QUEUE_FULL))
        if covered:
            longer = min(_LONGER_RECORD_NS * submitted / covered, _MOST_LONGER_RECORDS * gpu.share)
            gpu = Figure(gpu.share, max(min(gpu.low, gpu.share - longer), 0.0), gpu.high)
            launching = min(full, _OWN_LAUNCH_NS * submitted / covered)
            host = Figure(host.share, host.low, min(max(host.high, host.share + launching), 1.0))
        waits = self._waits.shares(times, functions)
        between, copying = (parts.get(part, 0) / max(int(whole.sum()), 1) for part in (Part.HOST, Part.COPY))
        gains, of_bins = gains_of(sums, sum(wait.calls for wait in waits))
        sleeps, use = self.cpu.sleeps(times), self._streams.use(times)
        spins, asleep, unproven = (ns / max(int(whole.sum()), 1) if whole.any() else 0.0 for ns in possible_ns(times))
        # While another of its GPUs works, a shorter sleep would not help.
        works_share = gpu.share + parts.get(Part.OTHER_GPU, 0) / max(int(whole.sum()), 1)
        gains = with_sleeps(gains, sleeps, host.share, works_share, between, asleep)
        # If frees did not wait for the GPU, a wait outside calls would instead.
        if unproven >= LEAST_OUTSIDE:
            inside = sum(parts.get(part, 0) for part in ALLOCATION_PARTS) / max(int(whole.sum()), 1)
            gains[Bound.ALLOCATION] = min(gains[Bound.ALLOCATION], inside)
        # Who prepares what it sleeps for may limit it.
        limited_by_others = sleeps.outside + sleeps.thread + sleeps.interpreter >= LEAST_OUTSIDE or keeps_busy(sleeps)
        in_groups = max(1 - int(sums[:, LONGER].sum()) / max(int(whole.sum()), 1), 0.0)
        least = 0.0 if limited_by_others else min(of_bins[Bound.WAIT], in_groups)
        if copying:
            # Without waits, copies that block still stage their data, and a thread that they wake still wakes up.
            least -= copying + parts.get(Part.WAKE_UP, 0) / max(int(whole.sum()), 1)
        # A copy that blocks may wait for the GPU outside its work too, and a free for less than waits do.
        copies, others = sums[:, [NUMBERS[Part.COPIES], BESIDE]].sum(axis=1), works - sums[:, APART] + sums[:, ORDERED]
        beside = figure(copies if copies.sum() > others.sum() else others, whole, recorded, error)
        most = 0.0 if gains[Bound.INPUT] else 1 - max(host.share, beside.share) + copying
        # Without waits, streams whose kernels leave room work beside each other, unless they wait for each other.
        steady = max(int(whole.sum()), 1)
        busy = host.share - int(sums[:, FREE_WAITS].sum()) / steady
        # Frees that do not wait, since waits come before them, would without these.
        with_frees = int(sums[:, WITHOUT_WAITS].sum()) / steady
        frees = frees_wait(sums) or 2 * with_frees > 1
        in_order = with_frees if frees else gpu.share - int(sums[:, OVERLAP].sum()) / steady
        overlapping = max(min(1 - max(busy, in_order), 1 - host.share), 0.0) if use.could_overlap and most > 0 else 0.0
        most_ordered = max(1 - max(busy, use.busiest_ns / steady), 0.0) if use.could_overlap else 0.0
        gains[Bound.STREAMS] = min(gains[Bound.STREAMS], most_ordered)
        # What it sleeps for another thread, it may sleep less without them.
        if sleeps.thread >= LEAST_OUTSIDE:
            most = max(most, 1 - max(host.share - sleeps.thread, beside.share))
        most = max(most, overlapping)
        price = price_of(host, beside, gains[Bound.WAIT], least, most)
        late_ns = int(self._late.during(times).sum())
        late = late_ns / covered if covered else 0.0
        off_cpu, ready = self.cpu.off_cpu(times), self.cpu.ready(times)
        slept = sum((sleeps.own, sleeps.child, sleeps.outside, sleeps.thread, sleeps.interpreter)) - asleep
        shares = host.share, gpu.share, full, submits, late
        few_ahead = {**gains, Bound.WAIT: min(gains[Bound.WAIT], in_groups)}
        (verdict, second), (of_all, _), (of_few_ahead, _) = (
            bounds_of(parts, each, *shares, off_cpu=off_cpu, ready=ready, slept=max(slept - _SLEEP_ERROR, 0.0))
            for each in (without_feeder(gains, sleeps), gains, few_ahead)
        )
        if of_all is not verdict:
            second = of_all
        elif second is None and verdict is Bound.WAIT and of_few_ahead is not verdict:
            # How far the program could run ahead of the GPU without its waits is not known.
            second = of_few_ahead
        verdict, second = because_of_host(
            verdict, second, collecting_gain(sleeps, host.share, gpu.share, between), gains.get(verdict, 0.0), gpu.share
        )
        # A sleep may gain less than it seems to: while the GPU works, a wait takes its place.
        if (
            second is None
            and verdict in (Bound.OWN_SLEEP, Bound.THREAD)
            and computing_gain(sleeps, host.share, gpu.share) >= CAUSE_LIMIT
        ):
            second = Bound.HOST
        if verdict is Bound.GPU and second is None and not frees:
            second = beside_gpu(host.share, gpu.share, full, submits)
        may_wait = min(spins, self.cpu.most_busy(times)) + min(asleep, self.cpu.most_asleep(times))
        possible = 1 - max(host.share - may_wait, beside.share)
        if is_vague(host, gpu):
            verdict, second = Bound.UNKNOWN, None
        elif (may_wait >= CAUSE_LIMIT and hides_waits(verdict, gains, possible)) or (
            verdict is not Bound.WAIT
            and overlapping >= CAUSE_LIMIT - CLOSE
            and (second is None or second in SIDES or overlapping > gains.get(second, 1.0))
        ):
            second = Bound.WAIT
        if may_wait:
            host = Figure(host.share, max(host.low - may_wait, 0.0), host.high)
            price = Figure(price.share, price.low, max(price.high, min(possible + PRICE_ERROR, 1.0)))
        return SequenceDivision(
            threads=self._threads_without(left),
            device=device,
            covered_ns=covered,
            parts=parts,
            operations=operations,
            host=host,
            gpu=gpu,
            price=price,
            off_cpu=off_cpu,
            ready=ready,
            submitting=submits,
            queue_full=full,
            alone=alone,
            recorded=recorded,
            pace=slowdown.pace,
            engine_known=engine_known,
            may_wait=may_wait,
            interpreter=min(sleeps.interpreter, 1.0),
            collects=min(sleeps.collects, 1.0),
            late_ns=late_ns,
            few_blocks=use.few_blocks,
            awaited=self._awaited(times, max(int(whole.sum()), 1)),
            verdict=verdict,
            second=second,
            waits=limited(waits, price.share * (covered - parts.get(Part.END, 0))),
        )

    def kernels(self, times: Times, names: Mapping[int, str]) -> tuple[KernelTime, ...]:
        """Its kernels in ``times``, those with most time first; ``names`` are by their places."""
        return self._kernels.during(times, names)

    def _awaited(self, times: Times, whole_ns: int) -> tuple[AwaitedThread, ...]:
        shares = {thread: int(sums.during(times).sum()) / whole_ns for thread, sums in self._others.items()}
        named = sorted(((share, thread) for thread, share in shares.items() if share >= LEAST_AWAITED), reverse=True)
        return tuple(AwaitedThread(thread=thread, share=min(share, 1.0)) for share, thread in named)

    def _with_waits(self, missing_ns: MissingTime) -> BinnedSums:
        every = self._sums.during(since(self._sums.origin_ns))
        return self._sums.with_added(WAITING, missing_ns, np.maximum(steady_ns(every), 0))

    def phases(
        self, times: Times, steps: BinnedSums | None, missing_ns: MissingTime = lambda *_: 0
    ) -> tuple[Times, ...]:
        """The times of each phase in ``times``; ``steps`` are the begins of its steps, None without regular ones;
        ``missing_ns`` is as of the division."""
        times = [(begin, min(end, self.done_ns)) for begin, end in times]
        counts = self._waits.counts if steps is None else lambda borders: steps.totals(borders)[:, 0]
        return phases_of(self._with_waits(missing_ns), times, counts, steps is not None)

    def _threads_without(self, left: Set[int]) -> tuple[int, ...]:
        """Threads without those that have ``left``: first the one that names the sequence, the others by first call.

        The first thread with a tenth of the longest time inside calls that submit work or wait for it gives the name:
        no main thread that only created the context, but the thread that trains, however long autograd's takes.
        """
        threads = {thread: ns for thread, ns in self.threads.items() if thread not in left}
        named = [thread for thread, ns in threads.items() if 10 * ns >= max(threads.values())][:1]
        return tuple(dict.fromkeys((*named, *threads)))
