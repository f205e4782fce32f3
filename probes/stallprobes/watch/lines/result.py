"""The lines of a program as data: where in its own code the time of each sequence passes, and what is done there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from msgspec import Meta

from stallprobes.files.codec import Unsigned
from stallprobes.watch.division.binned_sums import Figure, Share
from stallprobes.watch.reading.call_stack import CallStack, StackFrame


@dataclass(frozen=True, kw_only=True)
class LineTime:
    """The time of one sort at a line: its share (0 to 1) of the sequence's time, and the function of most of it."""

    share: Share = 0.0
    function: str = ""


NO_TIME = LineTime()


@dataclass(frozen=True, kw_only=True)
class InnerPlace:
    """The innermost frame at a line, such as that of a library's function, or the line itself: its part of the cost."""

    place: StackFrame
    cost: Share


@dataclass(frozen=True, kw_only=True)
class ProgramLine:
    """The time of a sequence at one place of the program's own code, by samples.

    ``place`` is the innermost frame of the program's own code, for code in a library the line that led there; None for
    time without a stack. Compiled code has no offset where its function is known. That of installed packages of
    Python's, to which no line of the program led, is one place without a function. ``stack`` is the one with most of
    the time, ``thread`` the thread. ``share`` is that of the sequence's time; it is the sum of those of ``waits``
    (inside calls that wait for the GPU: waits, copies that block, frees), ``calls`` (inside other calls) and
    ``between`` (before the next call at the line, whose function it names). ``price`` is what the waits of the line
    cost at most, a share of the sequence's time. ``cost`` is what the sequence would save without the line at most: the
    price and the time that is not inside waits, or ``share`` where the GPU is the limit; both have a 95 % interval by
    the number of ``samples``. ``inner`` are the innermost frames with most of the cost, if any is not the line itself.
    """

    place: StackFrame | None
    stack: CallStack | None
    thread: Unsigned
    samples: Unsigned
    share: Figure
    cost: Figure
    waits: LineTime = NO_TIME
    calls: LineTime = NO_TIME
    between: LineTime = NO_TIME
    price: Share = 0.0
    inner: tuple[InnerPlace, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WaitPlace:
    """Waits of one function at one innermost frame of one line, in one or several threads of a sequence.

    ``place`` is the line as in ``ProgramLine``; ``inner`` the innermost frame, None where that is the line. ``calls``
    and ``share`` are their number and their share (0 to 1) of the sequence's time by the log of calls, of which samples
    say what was at this place; ``price`` is what they cost at most.
    """

    place: StackFrame | None
    inner: StackFrame | None
    function: str
    thread: Unsigned
    calls: Annotated[float, Meta(ge=0)]
    per_second: Annotated[float, Meta(ge=0)]
    share: Share
    price: Share


@dataclass(frozen=True, kw_only=True)
class HoldingCalls:
    """Calls of ``function`` in another ``thread`` that hold up calls of a sequence, most of them of ``held``.

    While they last, calls of the sequence that usually take microseconds are as long. ``place`` is the line that made
    most of them, None if no sample says so. ``calls`` of the sequence were held up, ``share`` (0 to 1) is the part of
    its time in which they were.
    """

    thread: Unsigned
    function: str
    place: StackFrame | None
    held: str
    calls: Unsigned
    per_second: Annotated[float, Meta(ge=0)]
    share: Share


@dataclass(frozen=True, kw_only=True)
class SequenceLines:
    """The lines of a sequence in its steady state, or in the whole run without one, those that cost most first.

    ``threads`` and ``device`` are those of its division; ``device`` is None where no work of the GPU was recorded.
    ``samples`` stand for ``ns`` of its time. ``lines`` are at most MOST_LINES, ``waits`` at most MOST_WAITS.
    ``holding`` are calls of other threads that hold up its own, those with most of its time first.
    """

    threads: tuple[Unsigned, ...]
    device: Unsigned | None
    samples: Unsigned
    ns: Unsigned
    lines: tuple[ProgramLine, ...]
    waits: tuple[WaitPlace, ...] = ()
    holding: tuple[HoldingCalls, ...] = ()
