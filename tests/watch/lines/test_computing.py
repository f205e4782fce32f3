"""Lines of compiled code at which the host computes between calls."""

from __future__ import annotations

import pytest

from factories.watch_moments import findings
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.division_text import verdict_text
from stallprobes.watch.line_text import line_text, remedy_text
from stallprobes.watch.lines.computing import with_computing, with_libraries
from stallprobes.watch.lines.result import LineTime, ProgramLine, ProgramSequence
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame
from stallprobes.watch.reading.compilers import DeviceCompiler

PERIOD_NS = 10_000_000


def frame(function: str, line: int, kind: FrameKind = FrameKind.NATIVE) -> StackFrame:
    """A frame of the program."""
    return StackFrame(kind, function, "/home/me/solver", line, None, "solver.cu" if kind is FrameKind.NATIVE else "")


def made(place: StackFrame, between: float, waits: float = 0.0) -> ProgramLine:
    """A line whose waits cost as much as they take."""
    share = between + waits
    return ProgramLine(
        place=place, stack=None, thread=1, samples=50, share=Figure(share, share - 0.05, share + 0.05),
        between=LineTime(share=between, function="cuLaunchKernel"), cost=Figure(share, share - 0.05, share + 0.05),
        waits=LineTime(share=waits, function="cuStreamSynchronize"), price=waits,
    )  # fmt: skip


LAUNCH, SYNC = made(frame("step", 45), 0.6), made(frame("step", 48), 0.1, 0.3)
SEQUENCE = ProgramSequence(threads=(1,), verdict=Bound.HOST, lines=(LAUNCH, SYNC))
CHECK = frame("check", 12)


def test_the_time_before_a_call_is_at_the_line_that_computes_then() -> None:
    found = with_computing(SEQUENCE, {CHECK: 0.35, frame("main", 3): 0.01}, 10.0, PERIOD_NS)
    assert [line.place for line in found.lines] == [CHECK, SYNC.place, LAUNCH.place]
    assert [line.cost.share for line in found.lines] == pytest.approx([0.35, 0.35, 0.3])
    (first, sync, launch) = found.lines
    # 350 samples.
    assert first.samples == 350
    assert (first.cost.low, first.cost.high) == pytest.approx((0.3126, 0.3874), abs=1e-3)
    assert (sync.waits, sync.price) == (SYNC.waits, SYNC.price)
    assert sum(line.share.share for line in found.lines) == pytest.approx(1.0)
    assert (launch.between.share, sync.between.share) == pytest.approx((0.3, 0.05))
    process = findings(8).processes[0].changed(sequences=(found,))
    assert line_text(first, process, found) == (
        "solver.cu:12 in check costs up to 35 % (31 to 39): computing between calls."
    )
    assert remedy_text(first, process, found).startswith("Do this work of the host once")


def test_the_time_in_a_librarys_compiler_is_of_the_line_before_whose_calls_it_passes() -> None:
    waits = SEQUENCE.changed(verdict=Bound.WAIT, price=Figure(0.3, 0.3, 0.3), gpu=Figure(0.3, 0.3, 0.3))
    found = with_libraries(waits, {DeviceCompiler.NVRTC: 0.5})
    assert (found.verdict, found.second) == (Bound.HOST, Bound.WAIT)
    assert [line.compiler for line in found.lines] == [DeviceCompiler.NVRTC, DeviceCompiler.NVRTC]
    assert found.compiles == pytest.approx(0.5)
    process = findings(8).processes[0].changed(sequences=(found,))
    assert "is host-bound: NVRTC compiles while the GPU waits." in verdict_text(found, process)
    assert remedy_text(found.lines[0], process, found).startswith("NVRTC compiles here again and again")
    assert with_libraries(waits, {DeviceCompiler.NVRTC: 0.02}) == waits
    assert with_libraries(waits, {}) == waits


def test_more_than_the_time_between_calls_is_not_moved() -> None:
    found = with_computing(SEQUENCE, {CHECK: 0.9}, 10.0, PERIOD_NS)
    assert found.lines[0].share.share == pytest.approx(0.7)
    assert [line.between.share for line in found.lines[1:]] == pytest.approx([0.0, 0.0])


@pytest.mark.parametrize("shares", [{}, {CHECK: 0.01}, {LAUNCH.place: 0.5}], ids=["none", "little", "the same line"])
def test_lines_stay_where_nothing_else_is_known(shares: dict[StackFrame, float]) -> None:
    assert with_computing(SEQUENCE, shares, 10.0, PERIOD_NS) == SEQUENCE
    python = SEQUENCE.changed(lines=(made(frame("step", 3, FrameKind.PYTHON), 0.6),))
    assert with_computing(python, {CHECK: 0.35}, 10.0, PERIOD_NS) == python
