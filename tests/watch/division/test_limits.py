"""What limits kernels, by NVML's counters."""

from __future__ import annotations

import pytest

from stallprobes.watch.division.limits import GRAPHICS, PCIE, PERCENTAGES, Limit, limit_of, reached_by

H200 = "NVIDIA H200"
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
    # On a GPU that was not measured, what is certain of any.
    other = limit_of([measured(*figures)] * 3, "another GPU")
    assert other is not None
    assert other.limit in (limit, Limit.UNKNOWN)


def test_shares_are_of_the_time_in_which_kernels_run() -> None:
    found = limit_of([measured(40, 36, 20, 0, 0, 32), measured(20, 18, 10, 0, 0, 16), measured(0, 0, 0, 0, 0, 0)], H200)
    assert found is not None
    assert found.limit is Limit.DRAM
    assert (found.graphics, found.dram, found.sm_active) == pytest.approx((0.2, 0.8, 0.9))


def test_two_busy_units_are_both_named() -> None:
    found = limit_of([measured(100, 98, 30, 80, 0, 70)] * 3, H200)
    assert found is not None
    assert (found.limit, found.busy[:2]) == (Limit.SEVERAL, ("tensor", "dram"))


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
    assert limit_of([measured(2, 1, 1, 0, 0, 1)] * 5, H200) is None
    assert limit_of([{**busy, "dram": None}] * 5, H200) is None


def test_a_shared_gpu_has_no_limit_of_one_process() -> None:
    found = limit_of([measured(98, 92, 90, 0, 0, 81)] * 3, H200, is_alone=False)
    assert found is not None
    assert found.limit is Limit.SHARED


def test_a_model_is_found_in_its_full_name() -> None:
    assert reached_by("NVIDIA H200 NVL") == reached_by(H200)
    assert not reached_by("NVIDIA H100 80GB HBM3")
