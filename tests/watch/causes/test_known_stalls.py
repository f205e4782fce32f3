"""Pairs that a check or the shipped reference shows to stall, and names of kernels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from factories.matrices import made_up
from factories.watch_calls import ALLOC, D2H, H2D, LAUNCH, OTHER, SYNC, pageable_copy, rows_of, slow
from stallprobes.errors import CheckFileError
from stallprobes.machine import fingerprint
from stallprobes.matrix import check_file, reference_choice
from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.facts import Recorded
from stallprobes.watch.causes.known_stalls import KnownStalls, stalls_of_this_machine
from stallprobes.watch.causes.order import attribute, cause_of
from stallprobes.watch.reading.kernel_names import demangled, kernel_label, short_name
from stallprobes.watch.reading.process import SlowDriverCall
from stallprobes.watch.sentences import call_text

H200 = "h200-580.159.04"
DEVICE, PINNED, PAGEABLE = MemoryKind.DEVICE, MemoryKind.PINNED, MemoryKind.PAGEABLE


@pytest.fixture(scope="module")
def known() -> KnownStalls:
    """The stalls of the shipped reference."""
    return KnownStalls.of_reference(reference_choice.shipped(H200))


@pytest.mark.parametrize(
    ("victim", "cause", "culprit", "stalls"),
    [
        # Report 3: both on the NULL stream, or both on one stream.
        (slow(LAUNCH, 0, 9, stream=0), WaitCause.PAGEABLE_COPY, pageable_copy(0, 9, stream=0), True),
        (slow(LAUNCH, 0, 9, stream=5), WaitCause.PAGEABLE_COPY, pageable_copy(0, 9, stream=5), True),
        # On streams of their own the launch call keeps its time.
        (slow(LAUNCH, 0, 9, stream=5), WaitCause.PAGEABLE_COPY, pageable_copy(0, 9, stream=6), False),
        (slow(LAUNCH, 0, 9, stream=5), WaitCause.ALLOCATION, slow(ALLOC, 0, 9, thread=OTHER), True),
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
    assert known.contains(victim, cause_of(cause).columns(culprit), culprit) is stalls


def test_a_check_of_this_machine_knows_pairs() -> None:
    found = KnownStalls.of_matrix(made_up(1, times={("launch", "host-alloc-free"): 50.0}))
    assert found.cells == {("launch", "host-alloc-free")}
    assert found.source.startswith("the check of ")


def gpus(monkeypatch: pytest.MonkeyPatch, folder: Path, *models: str, driver: str = "580.159.04") -> None:
    """Let this machine have GPUs of these models."""
    for number, model in enumerate(models):
        information = folder / f"0000:{number:02}:00.0" / "information"
        information.parent.mkdir(parents=True)
        information.write_text(f"Model: \t\t {model}\nIRQ:   \t\t 33\n")
    found = fingerprint.kernel_module_gpus(folder)
    monkeypatch.setattr(fingerprint, "kernel_module_gpus", lambda: found)
    monkeypatch.setattr(fingerprint, "kernel_module_version", lambda: driver)


@pytest.mark.parametrize(
    ("models", "source"),
    [
        ((), None),
        (("NVIDIA H200", "NVIDIA H200"), f"the reference {H200}"),
        (("NVIDIA H200", "NVIDIA L4"), None),
        (("NVIDIA L4",), None),
    ],
)
def test_the_reference_of_this_machine(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, models: tuple[str, ...], source: str | None
) -> None:
    gpus(monkeypatch, tmp_path, *models)
    found = stalls_of_this_machine()
    assert (None if found is None else found.source) == source


def saved(folder: Path, **changes: Any) -> Path:
    """A saved check in which the launch stalls beside pinned allocation."""
    matrix = made_up(1, times={("launch", "host-alloc-free"): 50.0})
    check_file.save(matrix.changed(**changes), folder / "check.json")
    return folder / "check.json"


def test_a_saved_check_of_this_machine_is_used_in_place_of_the_reference(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpus(monkeypatch, tmp_path, "Made-up GPU")
    found = stalls_of_this_machine(saved(tmp_path))
    assert found is not None
    assert found.cells == {("launch", "host-alloc-free")}


@pytest.mark.parametrize(
    ("changes", "models", "words"),
    [
        ({"backend": "simulated", "profile": "h200"}, (), "is of a simulated GPU"),
        ({}, ("NVIDIA L4",), "is of Made-up GPU, this machine has NVIDIA L4"),
    ],
)
def test_a_check_of_another_machine_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, changes: dict[str, Any], models: tuple[str, ...], words: str
) -> None:
    gpus(monkeypatch, tmp_path, *models)
    with pytest.raises(CheckFileError, match=words):
        stalls_of_this_machine(saved(tmp_path, **changes))


def test_a_pair_that_is_known_is_the_cause_and_says_by_what(known: KnownStalls) -> None:
    calls = [slow(LAUNCH, 0, 9000, stream=0), pageable_copy(0, 9000, stream=0)]
    beside, _ = attribute(calls, [9_000_000] * 2, Recorded(rows_of([])))
    because, _ = attribute(calls, [9_000_000] * 2, Recorded(rows_of([])), known)
    assert (beside.certainty, because.certainty) == (Certainty.BESIDE, Certainty.KNOWN)
    assert "beside a pageable copy" in call_text(beside)
    assert "because of a pageable copy" in call_text(because)
    assert f", a pair that stalls by the reference {H200}" in call_text(because)


NATIVE = "void at::native::"


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("gemm", "gemm"),
        (
            f"{NATIVE}vectorized_elementwise_kernel<4, at::native::CUDAFunctorOnSelf_add<float>, std::array<char*, "
            "2ul> >(int, at::native::CUDAFunctorOnSelf_add<float>)",
            "vectorized_elementwise_kernel<CUDAFunctorOnSelf_add>",
        ),
        (
            f"{NATIVE}elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<at::native::BUnaryFunctor<float, "
            "float, float, at::native::binary_internal::MulFunctor<float> > >(int)",
            "elementwise_kernel<MulFunctor>",
        ),
        (
            f"{NATIVE}vectorized_elementwise_kernel<4, at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, "
            "at::native::GeluType)::{lambda()#2}>(int)",
            "vectorized_elementwise_kernel<GeluCUDAKernelImpl>",
        ),
        (
            f"{NATIVE}vectorized_elementwise_kernel<4, at::native::(anonymous namespace)::"
            "pow_tensor_scalar_kernel_impl<float, float>(float)::{lambda()#1}>(int)",
            "vectorized_elementwise_kernel<pow_tensor_scalar_kernel_impl>",
        ),
        (
            f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float> > >(int)",
            "reduce_kernel<MeanOps>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5>(cutlass_80_simt_sgemm_64x64_8x5::Params)",
            "Kernel2<cutlass_80_simt_sgemm_64x64_8x5>",
        ),
        ("(anonymous namespace)::solve(int)", "solve"),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_split_k_kernel__5x_cublas",
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_ti…lit_k_kernel__5x_cublas",
        ),
        ("", ""),
    ],
)
def test_a_kernel_has_a_label_that_says_what_it_computes(name: str, label: str) -> None:
    assert kernel_label(name) == label


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
