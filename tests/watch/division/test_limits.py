"""What limits kernels, by NVML's counters."""

from __future__ import annotations

from random import Random

import pytest

from stallprobes.machine.gpu_reach import PCIE, UNITS, Basis, known
from stallprobes.watch.division.limits import GRAPHICS, PERCENTAGES, Limit, limit_of

H200 = known("", "NVIDIA H200", "")
# Medians of samples on an H200 (driver 580.159.04, 2026-11-28): graphics, SMs, occupancy, tensor cores, FP32, memory.
MEASURED = {
    "copy of 1 GB": ((98, 92, 90, 0, 0, 81), Limit.DRAM),
    "relu of 1 GB": ((99, 98, 84, 0, 0, 87), Limit.DRAM),
    "random gather": ((98, 93, 92, 0, 0, 51), Limit.DRAM),
    "pointer chase": ((99.6, 98, 1.5, 0, 0, 9), Limit.LATENCY),
    "multiplications, 1056 blocks": ((99.7, 99, 58, 2, 63, 0), Limit.FP32),
    "multiplications, 24 blocks": ((99, 18, 2, 0.3, 11, 0), Limit.FEW_BLOCKS),
    "one thread": ((98.5, 0.7, 0, 0, 0, 0), Limit.FEW_BLOCKS),
    "empty kernels": ((25, 0, 0, 0, 0, 0), Limit.FEW_BLOCKS),
    "bf16 product": ((99, 96, 14, 93, 0, 16), Limit.TENSOR),
    "TF32 product": ((98, 95, 18, 92, 0, 17), Limit.TENSOR),
    "FP32 product": ((99.8, 97, 12, 0, 77, 5), Limit.FP32),
}


def sample(**values: float | None) -> dict[str, float | None]:
    """A sample whose other counters are 0."""
    return {**dict.fromkeys((*PERCENTAGES, *PCIE), 0.0), **values}


def measured(*figures: float) -> dict[str, float | None]:
    """A sample with the figures of MEASURED."""
    return sample(**dict(zip((GRAPHICS, "sm_active", "occupancy", "tensor", "fp32", "dram"), figures, strict=True)))


@pytest.mark.parametrize(("figures", "limit"), MEASURED.values(), ids=MEASURED)
def test_kernels_of_known_kind_have_their_limit(figures: tuple[float, ...], limit: Limit) -> None:
    found = limit_of([measured(*figures)] * 3, H200)
    assert found is not None
    assert (found.limit, found.samples) == (limit, 3)
    assert found.basis is Basis.MODEL
    # On a GPU that was not measured, what is certain of any.
    other = limit_of([measured(*figures)] * 3, {})
    assert other is not None
    assert other.limit in (limit, Limit.UNKNOWN)


def test_shares_are_of_the_time_in_which_kernels_run() -> None:
    busy = [measured(part, 0.9 * part, 0.5 * part, 0, 0, 0.8 * part) for part in (40, 25, 15)]
    found = limit_of([*busy, measured(0, 0, 0, 0, 0, 0)], H200)
    assert found is not None
    assert found.limit is Limit.DRAM
    assert (found.graphics, found.dram, found.sm_active, found.samples) == pytest.approx((0.2, 0.8, 0.9, 4))
    # Kernels run in two of the samples alone.
    assert limit_of([*busy[:2], *[measured(0, 0, 0, 0, 0, 0)] * 5], H200) is None


def test_two_busy_units_are_both_named() -> None:
    found = limit_of([measured(100, 98, 30, 80, 0, 70)] * 3, H200)
    assert found is not None
    assert (found.limit, found.units) == (Limit.SEVERAL, ("dram", "tensor"))
    # Not by the integer units: they reach more than the others, and are used for less of that.
    found = limit_of([{**measured(100, 98, 30, 0, 62, 52), "integer": 58.0}] * 3, H200)
    assert found is not None
    assert (found.limit, found.units) == (Limit.SEVERAL, ("fp32", "dram"))


def test_between_the_limits_it_is_not_known() -> None:
    found = limit_of([measured(100, 90, 60, 0, 10, 40)] * 3, H200)
    assert found is not None
    assert found.limit is Limit.UNKNOWN


def test_copies_over_pcie_need_no_kernels() -> None:
    samples = [sample(pcie_to_gpu=52_000.0)] * 3
    found = limit_of(samples, H200, copies=0.9)
    assert found is not None
    assert found.limit is Limit.PCIE
    # Traffic of what is no part of the sequence's work on the GPU.
    assert limit_of(samples, H200, copies=0.2) is None


def test_nothing_is_said_of_few_samples_few_kernels_or_missing_counters() -> None:
    busy = measured(98, 92, 90, 0, 0, 81)
    assert limit_of([busy] * 2, H200) is None
    assert limit_of([measured(0.2, 0.1, 0.1, 0, 0, 0.1)] * 50, H200) is None
    assert limit_of([{**busy, "dram": None}] * 5, H200) is None


def test_a_shared_gpu_has_no_limit_of_one_process() -> None:
    found = limit_of([measured(98, 92, 90, 0, 0, 81)] * 3, H200, is_alone=False)
    assert found is not None
    assert found.limit is Limit.SHARED


@pytest.mark.parametrize(("count", "decided"), [(3, 0.0), (6, 0.35), (20, 0.75), (300, 0.95)])
def test_kernels_of_a_hundredth_of_the_time_have_a_limit_when_enough_samples_agree(count: int, decided: float) -> None:
    """Programs whose kernels run for 0.6 to 12 % of the time, other each second, as their seeds draw it."""
    limits = {unit: 0.6 * H200[unit].value for unit in (Limit.DRAM, Limit.TENSOR, Limit.FP32)}
    wrong, clear, known_ones = [], 0, 0
    for seed in range(300):
        random = Random(seed)
        unit = random.choice(list(limits))
        use, sm_active, graphics = random.uniform(0, 1), random.uniform(0.05, 1), random.uniform(0.6, 12)
        samples = []
        for _ in range(count):
            part = max(random.gauss(graphics, graphics / 2), 0.0)
            values = {unit: use, "sm_active": sm_active, "occupancy": 0.5}
            noisy = {name: part * max(random.gauss(value, 0.15), 0.0) for name, value in values.items()}
            samples.append(sample(graphics=part, **{str(name): value for name, value in noisy.items()}))
        found = limit_of(samples, H200)
        limit = found.limit if found is not None else Limit.UNKNOWN
        above, idle = use - limits[unit], 0.4 / 0.6 * limits[unit] - use
        fitting = {unit: above, Limit.FEW_BLOCKS: min(idle, 0.5 - sm_active)}
        # A class may be off by the points by which such samples are.
        if limit is not Limit.UNKNOWN and fitting.get(limit, -1.0) < -0.02:
            wrong.append((seed, limit, use, sm_active))
        if max(fitting.values()) > 0.05:
            clear += 1
            known_ones += limit is not Limit.UNKNOWN
    assert wrong == []
    assert known_ones >= decided * clear, (known_ones, clear)


def test_a_use_on_both_sides_of_a_threshold_has_no_limit() -> None:
    """Seconds of copies and seconds of products: their mean is that of none of them."""
    samples = [measured(98, 92, 90, 0, 0, 81), measured(98, 92, 30, 10, 0, 20)] * 4
    found = limit_of(samples, H200)
    assert found is not None
    assert found.limit is Limit.UNKNOWN


def test_this_gpus_own_calibration_comes_first() -> None:
    own = {unit: value._replace(value=1.0, basis=Basis.CALIBRATION) for unit, value in H200.items() if unit in UNITS}
    for reach, limit, basis in ((H200, Limit.DRAM, Basis.MODEL), (own, Limit.UNKNOWN, Basis.CALIBRATION)):
        found = limit_of([measured(98, 92, 90, 0, 0, 50)] * 3, reach)
        assert found is not None
        assert (found.limit, found.basis) == (limit, basis)
