"""Rules of the division: verdicts, sequences, intervals of figures, and sums of long runs."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from factories.divided_instants import FLAGS
from stallprobes.native.layouts.driver_calls import CallKind, function_of
from stallprobes.watch.division.binned_sums import CLOCK_ERROR, BinnedSums, Figure, figure, since
from stallprobes.watch.division.cpu_time import Sleeps
from stallprobes.watch.division.gains import collecting_gain, gains_of, keeps_busy, with_sleeps, without_feeder
from stallprobes.watch.division.instants import (
    COLUMNS,
    SAVED_FREES,
    WAITING,
    WITHOUT_WAITS,
    Instants,
    Spans,
    sums_of,
)
from stallprobes.watch.division.parts import BOUNDS, NUMBERS, ORDER, PARTS, Bound, Part
from stallprobes.watch.division.pending import communicate
from stallprobes.watch.division.result import (
    PRICE_ERROR,
    WaitShare,
    because_of_host,
    beside_gpu,
    bounds_of,
    is_vague,
    price_of,
)
from stallprobes.watch.division.sequences import MOST_THREADS, SequenceBook
from stallprobes.watch.division.wait_sums import limited
from stallprobes.watch.intervals import Int64s, int64s

MS = 1_000_000


def verdict(parts: Mapping[Part, float], host: float, gpu: float, **of: float) -> tuple[Bound, Bound | None]:
    """The verdict by shares in percent; the rest of the time is the host's, which computes if ``off_cpu`` is not given.

    If ``off_cpu`` is negative, it is not known whether the host computes.
    """
    shares = {part: round(10 * share) for part, share in parts.items()}
    shares[Part.HOST] = shares.get(Part.HOST, 0) + 1000 - sum(shares.values())
    off_cpu, ready = (
        Figure(of[name], of[name], of[name]) if of.setdefault(name, 0) >= 0 else None for name in ("off_cpu", "ready")
    )
    shares_of = (of.get(name, 0.0) for name in ("queue_full", "submitting", "late"))
    gains, _ = gains_of(sums(shares, 1 - host, **of), 0)
    sleeps = Sleeps(*(of.get(name, 0.0) for name in Sleeps._fields))
    gains, between = {**gains, Bound.STREAMS: of.get("streams", 0.0)}, shares[Part.HOST] / 1000
    gains = with_sleeps(gains, sleeps, host, gpu, between, of.get("woken", 0.0))
    return bounds_of(shares, gains, host, gpu, *shares_of, off_cpu=off_cpu, ready=ready)


def sums(parts: Mapping[Part, int], waiting: float, **of: float) -> Int64s:
    """The sums of a bin: of its parts (thousandths), and of other columns (shares)."""
    row = np.zeros((1, COLUMNS), dtype=np.int64)
    row[0, [NUMBERS[part] for part in parts]] = list(parts.values())
    for column, name in enumerate(FLAGS, WAITING):
        row[0, column] = round(1000 * of.get(name, 0))
    row[0, WAITING] = round(1000 * waiting)
    row[0, SAVED_FREES] = round(1000 * of.get("saved_frees", 1))
    row[0, WITHOUT_WAITS] = round(1000 * of.get("without_waits", 0))
    return row


@pytest.mark.parametrize(
    ("before", "share", "gain", "after"),
    [
        ((Bound.WAIT, Bound.HOST), 0.6, 0.2, (Bound.HOST, Bound.WAIT)),
        ((Bound.WAIT, None), 0.6, 0.7, (Bound.WAIT, None)),
        # Less than half of the time without GPU work.
        ((Bound.WAIT, None), 0.3, 0.2, (Bound.WAIT, None)),
        ((Bound.INPUT, Bound.WAIT), 0.6, 0.5, (Bound.HOST, Bound.WAIT)),
        ((Bound.SUBMISSION, Bound.GPU), 0.6, 0.0, (Bound.HOST, None)),
        ((Bound.SHARED, None), 0.6, 0.0, (Bound.SHARED, None)),
        ((Bound.UNKNOWN, None), 0.6, 0.0, (Bound.UNKNOWN, None)),
    ],
)
def test_one_thing_of_the_host_that_gains_more_than_the_verdict_makes_it_host_bound(
    before: tuple[Bound, Bound | None], share: float, gain: float, after: tuple[Bound, Bound | None]
) -> None:
    assert because_of_host(*before, share, gain, 0.2) == after


def test_collecting_garbage_gains_what_the_gpu_does_not_hide() -> None:
    assert collecting_gain(Sleeps(collects=0.6), 0.8, 0.2, 0.8) == pytest.approx(0.6)
    assert collecting_gain(Sleeps(collects=0.6), 1.0, 0.7, 0.5) == pytest.approx(0.3)


def test_who_sleeps_most_of_the_time_by_samples_is_asleep_where_its_time_on_a_cpu_is_not_known() -> None:
    parts = {Part.HOST: 75, Part.KERNELS: 25}
    gains = {**NO_GAINS, Bound.WAIT: 0.2}
    assert bounds_of(parts, gains, 0.8, 0.25, 0.0, 0.0, slept=0.6) == (Bound.ASLEEP, Bound.WAIT)
    # Of sleep and waits, what gains more; of sleep and host work, what takes half of the time.
    assert bounds_of(parts, gains, 0.8, 0.25, 0.0, 0.0, slept=0.3) == (Bound.ASLEEP, Bound.WAIT)
    assert bounds_of(parts, gains, 0.8, 0.25, 0.0, 0.0, slept=0.19)[0] is Bound.WAIT
    assert bounds_of(parts, NO_GAINS, 0.8, 0.25, 0.0, 0.0, slept=0.3)[0] is Bound.HOST
    awake = Figure(0.0, 0.0, 0.0)
    assert bounds_of(parts, gains, 0.8, 0.25, 0.0, 0.0, off_cpu=awake, ready=awake, slept=0.6)[0] is Bound.WAIT


NO_GAINS = with_sleeps(gains_of(sums({}, 0), 0)[0], Sleeps(), 0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (verdict({Part.SHARED: 15, Part.LOADING: 30}, 0.8, 0.2), (Bound.SHARED, Bound.LOADING)),
        (verdict({Part.LOADING: 15}, 0.9, 0.2), (Bound.LOADING, Bound.HOST)),
        (verdict({Part.ALLOCATION: 5, Part.FREE: 6, Part.HOST_MEMORY: 5}, 0.9, 0.2), (Bound.ALLOCATION, Bound.HOST)),
        (verdict({Part.LOCK: 20}, 0.9, 0.2), (Bound.LOCK, None)),
        (verdict({Part.COPY: 15}, 0.9, 0.2, copying=0.15), (Bound.COPY, Bound.HOST)),
        # Copies that the host waits for, beside which it works, and behind which it has as much to do.
        (verdict({Part.COPIES: 50}, 0.5, 0.5, awaited_copies=0.5), (Bound.COPY, Bound.WAIT)),
        (verdict({Part.COPIES: 46}, 0.88, 0.46, awaited_copies=0.12), (Bound.HOST, Bound.COPY)),
        (verdict({Part.COPIES: 50, Part.KERNELS: 50}, 0.95, 1.0), (Bound.GPU, None)),
        (verdict({Part.COPIES: 20, Part.KERNELS: 80}, 0.3, 1.0), (Bound.COPY, Bound.GPU)),
        # Copies that block, beside whose staging no kernel runs, and which kernels could run beside.
        (
            verdict(
                {Part.COPIES: 30, Part.COPY: 10, Part.KERNELS: 16}, 0.84, 0.46, copying=0.4, own_copies=0.3, apart=0.3
            ),
            (Bound.COPY, Bound.WAIT),
        ),
        (
            verdict({Part.COPIES: 50, Part.KERNELS: 46}, 0.54, 0.96, copying=0.5, own_copies=0.5, apart=0.5),
            (Bound.COPY, Bound.WAIT),
        ),
        # Copies in a stream of their own, which could run beside kernels.
        (verdict({Part.COPIES: 24, Part.KERNELS: 39}, 0.6, 0.63, apart=0.24), (Bound.WAIT, None)),
        # A host that waits and then frees, which waits too.
        (
            verdict({Part.KERNELS: 64, Part.FREE: 3}, 0.68, 0.64, allocates=0.35, free_waits=0.32, without_waits=1.0),
            (Bound.ALLOCATION, None),
        ),
        # One that frees and then waits: without either, the other one takes the time.
        (
            verdict(
                {Part.KERNELS: 85, Part.FREE: 1},
                1.0,
                0.85,
                allocates=0.86,
                free_waits=0.85,
                late_frees=0.85,
                saved_frees=0.01,
            ),
            (Bound.GPU, None),
        ),
        # Frees that wait for kernels, of a host that waits for nothing else.
        (
            verdict({Part.KERNELS: 48, Part.FREE: 4, Part.ALLOCATION: 3}, 1.0, 0.48, allocates=0.55),
            (Bound.ALLOCATION, None),
        ),
        (verdict({Part.KERNELS: 90}, 0.2, 0.9), (Bound.GPU, None)),
        # A graph of small kernels, and one whose launches take the host as long.
        (verdict({Part.KERNELS: 66, Part.BETWEEN: 30}, 0.05, 0.96), (Bound.GAPS, Bound.GPU)),
        (verdict({Part.KERNELS: 50, Part.BETWEEN: 30}, 0.79, 0.8), (Bound.WAIT, Bound.GPU)),
        (verdict({Part.KERNELS: 60}, 0.55, 0.6, queue_full=0.2), (Bound.GPU, Bound.WAIT)),
        # A host that computes for long and then fills the queue: waits for room in it are none that can be avoided.
        (verdict({Part.KERNELS: 45}, 0.68, 0.45, queue_full=0.31), (Bound.HOST, None)),
        (verdict({Part.COMMUNICATION: 31}, 0.9, 0.4), (Bound.COMMUNICATION, Bound.HOST)),
        (verdict({Part.KERNELS: 30}, 0.75, 0.3), (Bound.WAIT, None)),
        # The GPU takes longer than the host: without the waits, it is the GPU's time that remains.
        (verdict({Part.KERNELS: 87}, 0.6, 0.87), (Bound.GPU, Bound.WAIT)),
        (verdict({Part.KERNELS: 84}, 0.6, 0.84), (Bound.WAIT, Bound.GPU)),
        (verdict({Part.KERNELS: 41, Part.QUEUED: 57}, 0.03, 0.41), (Bound.WAIT, None)),
        (verdict({Part.KERNELS: 30}, 0.88, 0.3), (Bound.HOST, Bound.WAIT)),
        (verdict({Part.KERNELS: 30}, 0.95, 0.3), (Bound.HOST, None)),
        # A host that computes or sleeps, which is not known: where that may be a cause, and where it may not.
        (verdict({Part.KERNELS: 30}, 0.95, 0.3, off_cpu=-1), (Bound.HOST, Bound.ASLEEP)),
        (verdict({Part.KERNELS: 30, Part.SUBMITTING: 60}, 0.95, 0.3, off_cpu=-1), (Bound.HOST, None)),
        (verdict({Part.KERNELS: 30}, 0.95, 0.3, submitting=0.5), (Bound.SUBMISSION, None)),
        # A server with little load, one with more, whose requests wait, and a slow loader.
        (verdict({Part.KERNELS: 5}, 0.98, 0.05, off_cpu=0.97), (Bound.ASLEEP, None)),
        (verdict({Part.KERNELS: 25, Part.QUEUED: 10}, 0.7, 0.25, off_cpu=0.9), (Bound.ASLEEP, Bound.WAIT)),
        (verdict({Part.KERNELS: 50}, 1.0, 0.5, off_cpu=0.9, ready=0.0), (Bound.HOST, Bound.ASLEEP)),
        (verdict({Part.KERNELS: 40}, 0.95, 0.4, off_cpu=0.95, ready=0.05), (Bound.ASLEEP, None)),
        # A loader that a child process feeds, beside a GPU that works longer than the reader waits, and in front of it.
        (verdict({Part.KERNELS: 50}, 1.0, 0.5, outside=0.9, children=1.0), (Bound.INPUT, None)),
        (verdict({Part.KERNELS: 74}, 0.26, 0.74, outside=0.2, children=1.0), (Bound.INPUT, None)),
        # A loader that is nearly as fast as its reader, whose other sleep gains no more.
        (verdict({Part.KERNELS: 42}, 0.95, 0.42, own=0.5, outside=0.03, children=0.95), (Bound.HOST, None)),
        # A server with half of a load, whose child does not work for it, and programs that sleep and that compile.
        (verdict({Part.KERNELS: 12}, 0.88, 0.12, outside=0.8, children=0.1), (Bound.IDLE, Bound.WAIT)),
        (verdict({Part.KERNELS: 20}, 0.8, 0.2, own=0.42), (Bound.OWN_SLEEP, Bound.WAIT)),
        (verdict({Part.KERNELS: 12}, 0.88, 0.12, child=0.8, children=0.9), (Bound.CHILD, Bound.WAIT)),
        # A loop that another thread feeds, and one that sleeps for a lock, but waits for more.
        (verdict({Part.KERNELS: 61}, 0.98, 0.2, thread=0.3, others=0.9), (Bound.THREAD, None)),
        (verdict({Part.KERNELS: 54}, 0.55, 0.54, thread=0.2, others=0.4), (Bound.WAIT, Bound.THREAD)),
        # A verdict that barely holds names the one that holds without it before others that nearly hold.
        (verdict({Part.KERNELS: 14}, 0.86, 0.14, thread=0.16, others=0.9), (Bound.THREAD, Bound.HOST)),
        (verdict({Part.KERNELS: 14}, 0.84, 0.14, thread=0.17, others=0.9), (Bound.THREAD, Bound.WAIT)),
        # One that sleeps for the lock of the interpreter, whichever thread has it.
        (verdict({Part.KERNELS: 5}, 1.0, 0.05, interpreter=0.9, off_cpu=0.9), (Bound.THREAD, None)),
        # Kernels that wait for those of other streams, while the GPU works all the time.
        (verdict({Part.KERNELS: 98}, 0.3, 0.98, streams=0.4), (Bound.STREAMS, Bound.GPU)),
        # One whose thread only hands over what a child process prepares, and one whose other threads do nothing.
        (verdict({Part.KERNELS: 61}, 0.98, 0.2, thread=0.3, children=0.9), (Bound.INPUT, None)),
        (verdict({Part.KERNELS: 61}, 0.98, 0.2, thread=0.3), (Bound.HOST, None)),
        # One that the GPU may have woken, by a host function.
        (verdict({Part.KERNELS: 61}, 0.98, 0.2, thread=0.3, children=0.9, woken=0.3), (Bound.HOST, None)),
        # Threads that have too few CPUs.
        (
            verdict({Part.KERNELS: 20}, 0.95, 0.2, thread=0.4, others=0.9, off_cpu=0.95, ready=0.4),
            (Bound.CPUS, Bound.THREAD),
        ),
        # More busy processes than CPUs.
        (verdict({Part.KERNELS: 20}, 0.95, 0.2, off_cpu=0.95, ready=0.8), (Bound.CPUS, None)),
        (verdict({Part.KERNELS: 20}, 0.95, 0.2, off_cpu=0.3, ready=0.1), (Bound.HOST, Bound.ASLEEP)),
        (verdict({Part.KERNELS: 20}, 0.95, 0.2, off_cpu=0.25, ready=0.1), (Bound.HOST, None)),
        (verdict({Part.KERNELS: 20}, 0.95, 0.2, off_cpu=0.6, ready=0.5), (Bound.CPUS, None)),
        (verdict({Part.UNKNOWN: 5.1}, 0.95, 0.3), (Bound.UNKNOWN, None)),
        (verdict({Part.KERNELS: 30}, 0.95, 0.3, late=0.06), (Bound.UNKNOWN, None)),
        (bounds_of({}, NO_GAINS, 0.0, 0.0, 0.0, 0.0), (Bound.UNKNOWN, None)),
    ],
)
def test_the_first_rule_that_holds_is_the_verdict(
    found: tuple[Bound, Bound | None], expected: tuple[Bound, Bound | None]
) -> None:
    assert found == expected


@pytest.mark.parametrize(("least", "vague"), [(0.9, False), (0.89, True)])
def test_a_gpu_that_certainly_works_nearly_all_the_time_is_a_verdict(least: float, vague: bool) -> None:
    assert is_vague(Figure(0.7, 0.4, 1.0), Figure(1.0, least, 1.0)) is vague


@pytest.mark.parametrize(
    ("least", "gpu", "vague"),
    [(0.8, 0.85, False), (0.79, 0.85, True), (0.8, 0.92, True)],
    ids=["certain", "not", "both"],
)
def test_a_host_that_certainly_works_nearly_all_the_time_is_a_verdict(least: float, gpu: float, vague: bool) -> None:
    assert is_vague(Figure(0.98, least, 1.0), Figure(gpu, 0.3, 1.0)) is vague


def test_the_end_is_in_no_share() -> None:
    parts = {Part.KERNELS: 900, Part.HOST: 100, Part.END: 100_000}
    assert (
        bounds_of(parts, with_sleeps(gains_of(sums(parts, 0.9), 0)[0], Sleeps(), 0.1, 0.9, 0.1), 0.1, 0.9, 0.0, 0.0)[0]
        is Bound.GPU
    )


def test_every_part_and_verdict_has_words_of_its_own() -> None:
    assert PARTS.keys() == set(Part)
    assert BOUNDS.keys() == set(Bound)
    for table in (PARTS, BOUNDS):
        assert len({one.word for one in table.values()}) == len(table)
    assert len({one.mark for one in PARTS.values()}) == len(PARTS)


def test_every_watched_function_has_a_kind() -> None:
    expected = {
        "cuLaunchKernel": CallKind.SUBMITS, "cuGraphLaunch": CallKind.SUBMITS, "cuMemsetD8Async": CallKind.SUBMITS,
        "cuStreamSynchronize_ptsz": CallKind.WAITS, "cuEventSynchronize": CallKind.WAITS,
        "cuCtxSynchronize": CallKind.WAITS, "cuMemcpyDtoH_v2": CallKind.COPIES, "cuMemAlloc_v2": CallKind.ALLOCATES,
        "cuMemAllocAsync": CallKind.SUBMITS, "cuMemFreeAsync": CallKind.SUBMITS, "cuMemFree_v2": CallKind.FREES,
        "cuMemHostRegister_v2": CallKind.HOST_MEMORY, "cuCtxCreate_v4": CallKind.CONTEXT,
        "cuModuleLoadData": CallKind.LOADS, "cuLibraryLoadData": CallKind.LOADS, "cuLibraryUnload": CallKind.LOADS,
        "cuLibraryGetKernel": CallKind.WORKS, "cuGraphInstantiateWithFlags": CallKind.WORKS,
        "cuStreamCreate": CallKind.WORKS, "cuFunctionOfAnotherDriver": CallKind.SUBMITS,
    }  # fmt: skip
    assert {name: function_of(name).kind_of(pageable=False) for name in expected} == expected
    assert function_of("cuMemcpyDtoHAsync_v2").kind_of(pageable=False) is CallKind.SUBMITS
    assert function_of("cuMemcpyDtoHAsync_v2_ptsz").kind_of(pageable=True) is CallKind.COPIES
    assert [function_of(name).loads for name in ("cuModuleLoadData", "cuLinkComplete", "cuModuleGetFunction")] == [
        True,
        True,
        False,
    ]
    assert function_of("cuDevicePrimaryCtxRetain").creates


def test_kernels_that_communicate_are_known_by_their_names() -> None:
    names = {
        1: "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        2: "add",
        3: "nvshmemi_put",
    }
    assert communicate(names) == {1, 3}


def spans(*pairs: tuple[int, int]) -> Spans:
    return Spans(int64s([begin for begin, _ in pairs]), int64s([end for _, end in pairs]))


def test_threads_that_take_turns_are_one_sequence() -> None:
    book = SequenceBook()
    forward = spans(*((20 * each, 20 * each + 8) for each in range(100)))
    backward = spans(*((20 * each + 10, 20 * each + 18) for each in range(100)))
    loader = spans((0, 1900))
    book.note({1: forward, 2: backward, 3: loader, 4: spans((5, 5))})
    assert [book.leader(thread) for thread in (1, 2, 3)] == [1, 1, 3]
    # A thread that is not known leads itself.
    assert book.leader(99) == 99


def test_threads_that_are_busy_for_longer_than_the_time_take_no_turns() -> None:
    times = {1: spans((0, 400)), 2: spans((500, 510))}
    for cpu_ns, leader in (({2: 590.0}, 1), ({2: 900.0}, 2), ({1: 500.0, 2: 700.0}, 2)):
        book = SequenceBook()
        book.note(times, cpu_ns, 1000)
        assert book.leader(2) == leader


def test_threads_of_a_server_are_sequences_of_their_own() -> None:
    random, book = np.random.default_rng(1), SequenceBook()
    for _ in range(10):
        threads = {}
        for thread in (1, 2, 3):
            begins = np.sort(random.choice(1000, 100, replace=False)) * 10
            threads[thread] = Spans(int64s(begins), int64s(begins + random.integers(1, 10, 100)))
        book.note(threads)
    assert [book.leader(thread) for thread in (1, 2, 3)] == [1, 2, 3]


def test_threads_that_follow_each_other_stay_one_sequence() -> None:
    book = SequenceBook()
    for number in range(3 * MOST_THREADS):
        book.note({1000 + number: spans((100 * number, 100 * number + 50))})
        assert book.leader(1000 + number) == 1000
    # The first ones are forgotten.
    assert len(book._busy) == len(book._seen) == MOST_THREADS


def test_a_sequence_does_not_change_with_every_slice() -> None:
    book = SequenceBook()
    book.note({1: spans((0, 1000)), 2: spans((980, 1980))})
    assert book.leader(2) == 1
    # 7 % together.
    book.note({1: spans((3000, 4000)), 2: spans((3880, 4880))})
    assert book.leader(2) == 1
    book.note({1: spans((5000, 6000)), 2: spans((5500, 6500))})
    assert book.leader(2) == 2


def test_the_interval_of_a_share_contains_it_as_often_as_it_says() -> None:
    random = np.random.default_rng(7)
    hits, wide = 0, []
    for _ in range(400):
        whole = np.full(200, 1000 * MS)
        share = np.clip(random.normal(0.4, 0.15, 200), 0, 1)
        truth = share.mean()
        # In each second, half of the time is recorded.
        recorded = np.flatnonzero(random.random(200) < 0.5)
        part = (share * whole).astype(np.int64)
        found = figure(part[recorded], whole[recorded], len(recorded) / 200)
        hits += found.low <= truth <= found.high
        wide.append(found.high - found.low)
    assert hits / 400 >= 0.92
    assert 0.01 < float(np.mean(wide)) < 0.08


def test_figures_without_a_sample_are_anything() -> None:
    none = int64s([])
    assert figure(none, none, 1.0).high == 1.0
    assert figure(int64s([5]), int64s([10]), 0.5) == Figure(0.5, 0.0, 1.0)
    everything = figure(int64s([5, 0]), int64s([10, 10]), 1.0)
    assert (everything.share, everything.low, everything.high) == pytest.approx(
        (0.25, 0.25 - CLOCK_ERROR, 0.25 + CLOCK_ERROR)
    )
    known = figure(int64s([5, 0]), int64s([10, 10]), 1.0, 0.05)
    assert (known.low, known.high) == pytest.approx((0.2, 0.3))


def test_few_bins_make_a_wide_interval() -> None:
    random, held = np.random.default_rng(3), 0
    whole = np.full(4, 1000 * MS)
    for _ in range(400):
        part = (np.clip(random.normal(0.4, 0.1, 4), 0, 1) * whole).astype(np.int64)
        found = figure(part, whole, 0.01)
        held += found.low <= 0.4 <= found.high
    assert held / 400 >= 0.93


def test_the_price_is_the_time_that_waits_cost_at_most() -> None:
    host, gpu = figure(int64s([60]), int64s([100]), 1.0), figure(int64s([30]), int64s([100]), 1.0)
    price, error = price_of(host, gpu, 0.4, 0.4, 0.4), CLOCK_ERROR + PRICE_ERROR
    assert price == price_of(gpu, host, 0.4, 0.4, 0.4) == Figure(0.4, 0.4 - error, 0.4 + error)
    # By other ways to reckon it may be less, or more.
    assert price_of(host, gpu, 0.4, 0.1, 0.6) == Figure(0.4, 0.1 - error, 0.6 + error)


def test_the_price_of_phases_is_the_mean_of_each() -> None:
    gpu = sums({Part.KERNELS: 990, Part.HOST: 10}, 0.9)
    host = sums({Part.KERNELS: 100, Part.HOST: 900}, 0.1)
    both = np.concatenate((gpu, host))
    assert gains_of(both, 100)[0][Bound.WAIT] == pytest.approx((0.01 + 0.1) / 2)
    # Of a step that is longer than a bin, these are two parts.
    assert gains_of(both, 2)[0][Bound.WAIT] == pytest.approx(1 - 0.545)
    # Scatter of single bins is no phase.
    first, second = sums({Part.KERNELS: 520, Part.HOST: 480}, 0.5), sums({Part.KERNELS: 480, Part.HOST: 520}, 0.5)
    assert gains_of(np.concatenate((first, second)), 100)[0][Bound.WAIT] == pytest.approx(0.5)


def test_bins_become_wider_and_keep_their_sums() -> None:
    sums = BinnedSums(1000, 10, most=8)
    for second in range(100):
        begins = int64s([1000 + 10 * second])
        assert begins[0] in sums.borders(int(begins[0]), int(begins[0]) + 10) or sums.width_ns > 10
        flags = np.array([second % 2 == 0])
        parts = np.array([NUMBERS[Part.HOST]], dtype=np.int8)
        instants = Instants(begins, begins + 10, parts, [flags] * (COLUMNS - len(ORDER)))
        sums.add(*sums_of(instants, sums.origin_ns, sums.width_ns))
    found = sums.during(since(0))
    assert len(found) <= 8
    assert sums.width_ns == 160
    assert found.shape[1] == COLUMNS
    assert int(found[:, NUMBERS[Part.HOST]].sum()) == 1000
    assert int(found[:, -1].sum()) == 500
    # Only whole bins are of a later time.
    assert int(sums.during(since(1001))[:, NUMBERS[Part.HOST]].sum()) == 1000 - 160


def test_no_waits_have_more_of_the_price_than_their_time() -> None:
    """As of a copy that blocks, whose own work fills its wait: it costs what the other waits cannot explain."""
    sync, copy = (
        WaitShare(function=name, calls=70, ns=ns, share=share)
        for name, ns, share in (("cuStreamSynchronize", 20, 1.0), ("cuMemcpyHtoDAsync_v2", 130, 0.0))
    )
    assert limited([sync, copy], 100) == (copy.changed(share=0.8), sync.changed(share=0.2))
    # Where their time is enough, their weights say what they cost.
    assert limited([sync, copy], 20) == (sync, copy)
    # More than all of their time is the price of none.
    assert [one.share for one in limited([sync, copy], 300)] == pytest.approx([130 / 300, 20 / 300], abs=1e-6)
    assert limited([], 100) == ()


@pytest.mark.parametrize(
    ("children", "wait"),
    [
        (0.5, 0.44),
        # It hardly ever has time to wait for the program.
        (0.95, 0.05),
        # One that never waits does something else.
        (1.0, 0.44),
    ],
)
def test_no_cause_gains_more_than_a_child_that_prepares_its_data_has_left(children: float, wait: float) -> None:
    gains = without_feeder({**NO_GAINS, Bound.WAIT: 0.44, Bound.INPUT: 0.3}, Sleeps(children=children))
    # A faster child gains what the program waits for it.
    assert (gains[Bound.WAIT], gains[Bound.INPUT]) == pytest.approx((wait, 0.3))


@pytest.mark.parametrize(("busy", "slept", "wait"), [(0.97, 0.3, 0.03), (0.97, 0.1, 0.44), (0.6, 0.3, 0.44)])
def test_no_cause_gains_more_than_a_busy_thread_has_left_for_which_it_sleeps(
    busy: float, slept: float, wait: float
) -> None:
    gains = without_feeder({**NO_GAINS, Bound.WAIT: 0.44, Bound.THREAD: slept}, Sleeps(thread=slept, others=busy))
    assert (gains[Bound.WAIT], gains[Bound.THREAD]) == pytest.approx((wait, slept))


@pytest.mark.parametrize(
    ("sleeps", "limited"),
    [
        (Sleeps(children=0.95), True),
        (Sleeps(outside=0.01, children=0.6), True),
        (Sleeps(children=0.6), False),
        (Sleeps(outside=0.01, children=0.4), False),
        (Sleeps(thread=0.01, others=0.95), True),
    ],
)
def test_who_is_busy_may_limit_the_program(sleeps: Sleeps, limited: bool) -> None:
    assert keeps_busy(sleeps) is limited


@pytest.mark.parametrize(
    ("host", "gpu", "queue_full", "submitting", "second"),
    [
        (0.94, 0.97, 0.0, 0.3, Bound.HOST),
        (0.94, 0.97, 0.0, 0.6, Bound.SUBMISSION),
        # The GPU works for longer by more than is close, or the host does not work nearly all the time.
        (0.91, 0.98, 0.0, 0.3, None),
        (0.88, 0.91, 0.0, 0.3, None),
        # Its launches wait for room in the queue.
        (0.97, 0.99, 0.2, 0.9, None),
    ],
)
def test_a_host_that_works_as_long_as_the_gpu_is_the_second_verdict(
    host: float, gpu: float, queue_full: float, submitting: float, second: Bound | None
) -> None:
    assert beside_gpu(host, gpu, queue_full, submitting) is second
