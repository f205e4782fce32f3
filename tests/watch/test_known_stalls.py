"""Pairs that a check or the shipped reference shows to stall, and names of kernels."""

from __future__ import annotations

import pytest

from factories.matrices import made_up
from factories.watch_calls import ALLOC, D2H, H2D, LAUNCH, OTHER, SYNC, pageable_copy, slow
from stallprobes.matrix import reference
from stallprobes.watch.causes import WaitCause
from stallprobes.watch.driver_calls import MemoryKind
from stallprobes.watch.kernel_names import demangled, short_name
from stallprobes.watch.known_stalls import KnownStalls
from stallprobes.watch.process import SlowDriverCall

H200 = "h200-580.159.04"
DEVICE, PINNED, PAGEABLE = MemoryKind.DEVICE, MemoryKind.PINNED, MemoryKind.PAGEABLE


@pytest.fixture(scope="module")
def known() -> KnownStalls:
    """The stalls of the shipped reference."""
    return KnownStalls.of_reference(reference.shipped(H200))


@pytest.mark.parametrize(
    ("victim", "cause", "culprit", "stalls"),
    [
        # Report 3: both on the NULL stream, or both on one stream.
        (slow(LAUNCH, 0, 9, stream=0), WaitCause.PAGEABLE_COPY, pageable_copy(0, 9, stream=0), True),
        (slow(LAUNCH, 0, 9, stream=5), WaitCause.PAGEABLE_COPY, pageable_copy(0, 9, stream=5), True),
        # On streams of their own the launch call keeps its time.
        (slow(LAUNCH, 0, 9, stream=5), WaitCause.PAGEABLE_COPY, pageable_copy(0, 9, stream=6), False),
        (slow(LAUNCH, 0, 9, stream=5), WaitCause.ALLOCATION, slow(ALLOC, 0, 9, thread=OTHER), True),
        (slow(LAUNCH, 0, 9, stream=5), WaitCause.ASYNC_ALLOCATION, slow("cuMemAllocAsync", 0, 9), False),
        (slow("cuGraphLaunch", 0, 9, stream=5), WaitCause.ALLOCATION, slow(ALLOC, 0, 9), True),
        (slow("cuEventRecord", 0, 9, stream=5), WaitCause.ALLOCATION, slow(ALLOC, 0, 9), True),
        (slow(D2H, 0, 9, source=DEVICE, target=PINNED), WaitCause.ALLOCATION, slow(ALLOC, 0, 9), True),
        (slow(H2D, 0, 9, source=PINNED, target=DEVICE), WaitCause.ALLOCATION, slow(ALLOC, 0, 9), True),
        # No row of a check measures these.
        (slow(H2D, 0, 9, source=PAGEABLE, target=DEVICE), WaitCause.ALLOCATION, slow(ALLOC, 0, 9), False),
        (slow(SYNC, 0, 9, stream=5), WaitCause.ALLOCATION, slow(ALLOC, 0, 9), False),
    ],
)
def test_the_shipped_reference_knows_pairs(
    known: KnownStalls, victim: SlowDriverCall, cause: WaitCause, culprit: SlowDriverCall, stalls: bool
) -> None:
    assert known.source == f"the reference {H200}"
    assert known.contains(victim.call, cause, culprit.call) is stalls


def test_a_check_of_this_machine_knows_pairs() -> None:
    found = KnownStalls.of_matrix(made_up(1, times={("launch", "host-alloc-free"): 50.0}))
    assert found.cells == {("launch", "host-alloc-free")}
    assert found.source.startswith("the check of ")


def test_names_of_kernels() -> None:
    assert demangled("gemm") == short_name("gemm") == "gemm"
    assert demangled("_Z") == "_Z"
    assert short_name("add(float*)") == "add"
    assert short_name("void add<float>(float*, int)") == "add"
    template = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float> >(int, float)"
    assert short_name(template) == "at::native::vectorized_elementwise_kernel"
    assert short_name("(anonymous namespace)::reduce(int)") == "reduce"
    # Without the C++ library names stay as they are.
    assert demangled("_Z3addPf") in ("add(float*)", "_Z3addPf")
