"""Lines of compiled code at which the host computes between calls, by samples of the code that its threads run.

Without them, that time is at the line of the next call.
"""

from __future__ import annotations

from collections.abc import Mapping

from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.lines.lines import with_compilers
from stallprobes.watch.lines.places import order
from stallprobes.watch.lines.result import LineTime, ProgramLine, ProgramSequence
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame
from stallprobes.watch.reading.compilers import DeviceCompiler

# Smallest share of a line's time before its calls that a compiler of device code takes there.
_LEAST_COMPILING = 0.05
# Smallest share of the time at which a line that computes is listed.
_LEAST_SHARE = 0.02
# Largest number of lines of a sequence.
_MOST_LINES = 24


def with_computing(
    sequence: ProgramSequence, shares: Mapping[StackFrame, float], seconds: float, period_ns: int
) -> ProgramSequence:
    """A sequence whose compiled lines have the time between calls where it is spent, by the ``shares`` of the time in
    which its threads computed at each line, in so many ``seconds``, a sample each ``period_ns``."""
    before = [line for line in sequence.lines if _computes_before(line)]
    most = sum(line.between.share for line in before)
    places = {line.place for line in sequence.lines}
    known = {place: share for place, share in shares.items() if share >= _LEAST_SHARE and place not in places}
    if not most or not known or seconds <= 0:
        return sequence
    # Time in calls of functions that the program has in its own code, such as a callback, is no time between calls.
    scale = min(1.0, most / sum(known.values()))
    moved = scale * sum(known.values())
    lines = [_less(line, moved * line.between.share / most) if line in before else line for line in sequence.lines]
    thread = sequence.threads[0] if sequence.threads else 0
    lines += [_line(place, scale * share, seconds, period_ns, thread) for place, share in known.items()]
    lines.sort(key=lambda line: (-line.cost.share, -line.share.share, order(line.place)))
    return sequence.changed(lines=tuple(lines[:_MOST_LINES]))


def with_libraries(sequence: ProgramSequence, shares: Mapping[DeviceCompiler, float]) -> ProgramSequence:
    """A sequence whose compiled lines have their parts of the ``shares`` of the time in which its threads were in
    libraries that compile device code, and whose verdict goes by them."""
    before = [line for line in sequence.lines if _computes_before(line)]
    most, total = sum(line.between.share for line in before), sum(shares.values())
    if not most or total < _LEAST_COMPILING * most:
        return sequence
    compiler = max(shares, key=lambda each: shares[each])
    part = min(total / most, 1.0)
    lines = tuple(
        line.changed(compiles=part * line.between.share, compiler=compiler) if line in before else line
        for line in sequence.lines
    )
    return with_compilers(sequence, lines).changed(lines=lines)


def _computes_before(line: ProgramLine) -> bool:
    """True if the time of a line is before calls of compiled code."""
    compiled = line.place is not None and line.place.kind is FrameKind.NATIVE
    return compiled and line.between.share > 0 and bool(line.between.function)


def _less(line: ProgramLine, share: float) -> ProgramLine:
    """A line without a share of its time between calls."""
    return line.changed(
        share=_minus(line.share, share),
        between=line.between.changed(share=max(line.between.share - share, 0.0)),
        cost=_minus(line.cost, share),
    )


def _minus(figure: Figure, share: float) -> Figure:
    return Figure(*(max(bound - share, 0.0) for bound in (figure.share, figure.low, figure.high)))


def _line(place: StackFrame, share: float, seconds: float, period_ns: int, thread: int) -> ProgramLine:
    samples = max(round(share * seconds * 1e9 / period_ns), 1)
    # The standard error of a count.
    error = 2 * share / samples**0.5
    figure = Figure(share, max(share - error, 0.0), min(share + error, 1.0))
    return ProgramLine(
        place=place,
        stack=None,
        thread=thread,
        samples=samples,
        share=figure,
        between=LineTime(share=share),
        cost=figure,
    )
