"""The table of kernels: what fits into its lines."""

from __future__ import annotations

import pytest

from factories.watch_moments import findings
from stallprobes.watch.division.limits import KernelLimit, Limit
from stallprobes.watch.division.result import KernelTime
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame
from stallscope.report.columns import display_width
from stallscope.tui.watch.kernel_table import kernel_lines

PLACE = StackFrame(FrameKind.PYTHON, "step", "/home/me/train.py", 42)
GEMM = KernelTime(
    name="void gemm<float, 128>(float*)", share=0.61, count=4000, mean_ns=33_200, deviation_ns=410, least_blocks=64,
    most_blocks=4096, threads=128, registers=90, waves=7.75, place=PLACE, place_share=1.0,
)  # fmt: skip
RELU = GEMM.changed(name="relu(float*)", share=0.39, count=1, registers=0, least_blocks=0, most_blocks=0, place=None)


LIMIT = KernelLimit(
    limit=Limit.DRAM, samples=9, graphics=0.9, sm_active=0.9, occupancy=0.8, dram=0.83, tensor=0.0, fp32=0.1, fp64=0.0,
    fp16=0.0, integer=0.2, pcie_to_gpu=1.0, pcie_from_gpu=1.0,
)  # fmt: skip


def drawn(kernels: tuple[KernelTime, ...], width: int, height: int, limit: KernelLimit | None = None) -> list[str]:
    found = findings(8, ended=True)
    (process,) = found.processes
    sequence = process.sequences[0].changed(kernels=kernels, limit=limit)
    shown = found.changed(processes=(process.changed(sequences=(sequence,)),))
    texts = ["".join(text for text, _ in line) for line in kernel_lines(shown, width, height)]
    assert all(display_width(text) <= width for text in texts)
    assert len(texts) <= height
    return texts


@pytest.mark.parametrize("width", [40, 60, 80, 100, 160, 250])
def test_the_kernels_fit_every_width(width: int) -> None:
    title, head, first, second = drawn((GEMM, RELU), width, 9)
    assert "kernels of MainThread" in title
    assert ("regs" in head, "blocks" in head, "±" in head) == (width >= 130, width >= 112, width >= 96)
    assert first.lstrip().startswith("gemm")
    assert "61 %" in first
    assert "33.2µs" in first
    assert ("train.py:42 in step" in first) == (width >= 80)
    assert ("64-4 096" in first) == (width >= 112)
    assert ("7.75" in first) == (width >= 140)
    assert "train.py" not in second


def test_kernels_without_room_are_counted() -> None:
    assert len(drawn((GEMM, RELU), 80, 3)) == 3
    assert "1 more" in drawn((GEMM, RELU), 80, 3)[0]
    assert drawn((), 80, 5)[1] == " none recorded so far"
    assert len(drawn((GEMM,), 80, 1)) == 1


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_what_limits_the_kernels_is_in_the_title_where_it_fits(width: int) -> None:
    title = drawn((GEMM, RELU), width, 3, LIMIT)[0]
    assert ("limited by memory, 83 % in use" in title) == (width >= 100)
    assert "1 more" in title


def test_without_findings_there_is_a_title_alone() -> None:
    assert len(kernel_lines(None, 80, 5)) == 1
