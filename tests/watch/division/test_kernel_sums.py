"""Time of kernels by name: shares, durations, blocks, and the limits of what is kept."""

from __future__ import annotations

import numpy as np
import pytest

from factories.call_tables import operation_table
from stallprobes.watch.division.binned_sums import since
from stallprobes.watch.division.instants import COPY, KERNEL, NO_END, LastEnd, Operations
from stallprobes.watch.division.kernel_sums import KernelSums

SECOND = 1_000_000_000
NAMES = {1: "_Z4gemmPf", 65: "_Z7softmaxPf"}


def operations(*made: tuple[int, float, float, int], kind: int = KERNEL) -> Operations:
    """Operations by the place of the name, when each begins (s), how long it takes (us), and its blocks."""
    names, begins, us, blocks = np.array(made).T
    starts = np.round(begins * SECOND)
    return operation_table(starts, starts + np.round(us * 1000), kind, names=names, blocks=blocks)


def added(*rows: Operations) -> KernelSums:
    sums = KernelSums(0)
    for each in rows:
        sums.add(each)
    return sums


def test_kernels_have_their_part_of_the_time_and_their_durations() -> None:
    sums = added(
        operations((1, 0.1, 30.0, 128), (65, 0.2, 10.0, 64), (1, 0.3, 50.0, 128)),
        operations((65, 1.2, 10.0, 4096), (65, 1.3, 10.0, 0)),
        operations((0, 1.4, 1e6, 0), kind=COPY),
    )
    first, second = sums.during(since(0), NAMES)
    assert (first.name, first.count, first.mean_ns) == ("gemm(float*)", 2, 40_000)
    assert first.deviation_ns == pytest.approx(10_000, rel=0.01)
    assert (first.least_blocks, first.most_blocks) == (128, 128)
    assert (second.name, second.count, second.mean_ns) == ("softmax(float*)", 3, 10_000)
    assert second.deviation_ns < 200
    assert (second.least_blocks, second.most_blocks) == (64, 4096)
    assert first.share == pytest.approx(80 / 110)
    assert first.share + second.share == 1
    # From a time on.
    (late,) = sums.during(since(SECOND), NAMES)
    assert (late.name, late.count, late.share) == ("softmax(float*)", 2, 1.0)
    assert KernelSums(0).during(since(0), {}) == ()


def test_the_time_between_kernels_is_that_of_the_one_that_ended_last() -> None:
    rows = operations((1, 0.1, 30.0, 128), (65, 0.10001, 10.0, 64), (1, 0.2, 30.0, 128), (65, 0.3, 10.0, 64))
    sums = added(rows)
    begins = np.array([100_030_000, 200_030_000, 300_010_000], dtype=np.int64)
    sums.add_between(rows, NO_END, begins, np.array([2000, 4000, 700], dtype=np.int64))
    # Not before the first operation, and not after one without a row.
    sums.add_between(rows, NO_END, begins[:1] - SECOND // 10, np.array([9000], dtype=np.int64))
    sums.add_between(operations((9, 0.4, 1.0, 1)), NO_END, begins[:1] + SECOND, np.array([9000], dtype=np.int64))
    first, second = sums.during(since(0), NAMES)
    assert (first.name, first.between_ns) == ("gemm(float*)", 3000)
    assert (second.name, second.between_ns) == ("softmax(float*)", 350)
    # The first gap of a slice is behind the kernel with which the slice before ended.
    last = LastEnd(500_000_000, kernel=65)
    begins = begins[:1] + 2 * SECOND // 5
    sums.add_between(operations((1, 0.6, 30.0, 128)), last, begins, np.array([1300], dtype=np.int64))
    assert [one.between_ns for one in sums.during(since(0), NAMES)] == [3000, 1000]


def test_a_kernel_whose_name_is_not_known_yet_has_none() -> None:
    (unknown,) = added(operations((1, 0.1, 30.0, 128))).during(since(0), {})
    assert unknown.name == ""


def test_any_number_of_names_and_any_time_takes_a_limited_memory() -> None:
    sums = added(
        *(operations(*((64 * number, 10.0 * at, 5.0, 1) for number in range(1, 400))) for at in range(1, 2000, 97))
    )
    kernels = sums.during(since(0), {})
    assert len(kernels) == 256
    assert {kernel.count for kernel in kernels} == {len(range(1, 2000, 97))}
    assert sums._sums.during(since(0)).nbytes < 4 << 20
    few = added(operations((1, 3000.0, 5.0, 1)))
    assert few._sums.during(since(0)).nbytes < 1 << 17


def test_very_long_kernels_keep_the_sums_in_range() -> None:
    (kernel,) = added(operations(*((1, 100.0 * at, 60e6, 1) for at in range(1, 40)))).during(since(0), NAMES)
    assert kernel.mean_ns == 60 * SECOND
    assert kernel.deviation_ns >= 0


def test_the_deviation_of_short_kernels_is_known() -> None:
    durations = np.random.default_rng(3).normal(1.5, 0.1, 5000)
    (kernel,) = added(operations(*((1, at / 1000, us, 4) for at, us in enumerate(durations)))).during(since(0), NAMES)
    assert kernel.mean_ns == pytest.approx(1500, rel=0.01)
    assert kernel.deviation_ns == pytest.approx(100, rel=0.05)
    # Also where it is a thousandth of the durations, and the first one is twice as long.
    alike = [8000.0, *np.random.default_rng(4).normal(4000.0, 4.0, 50_000)]
    (kernel,) = added(operations(*((1, at / 100, us, 4) for at, us in enumerate(alike)))).during(since(0), NAMES)
    assert kernel.deviation_ns == pytest.approx(18_300, rel=0.1)
