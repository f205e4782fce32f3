"""Places of a program before and after a change of its source, in which lines move."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from typing import NamedTuple, Self, TypeVar

from stallprobes.watch.lines.places import PACKAGES
from stallprobes.watch.reading.call_stack import UNKNOWN_PYTHON, StackFrame
from stallprobes.watch.sentences import frame_text

_Value = TypeVar("_Value")


class Place(NamedTuple):
    """A place by what stays when a program is moved or edited; without a file it is a part or a kernel."""

    text: str
    file: str = ""
    function: str = ""
    line: int | None = None

    @classmethod
    def of(cls, frame: StackFrame) -> Self:
        """That of a frame."""
        return cls(frame_text(frame), os.path.basename(frame.source or frame.file), frame.function, frame.line)


def own_line(frame: StackFrame | None) -> StackFrame | None:
    """The frame, unless it says nothing of the program: library code without a name, or an unknown line."""
    nameless = frame is None or frame in (PACKAGES, UNKNOWN_PYTHON) or (frame.is_installed and not frame.function)
    return None if nameless else frame


def matched(
    old: Mapping[tuple[Place, str], _Value], new: Mapping[tuple[Place, str], _Value]
) -> Iterator[tuple[tuple[Place, str], tuple[Place, str], _Value | None, _Value | None]]:
    """Each place of both sides with its values: as it was and as it is, the same where it is on one side alone, whose
    value is None on the other.

    A line that only one side has is the nearest one of the same function, with the same call, that only the other has.
    """
    yield from ((key, key, value, new[key]) for key, value in old.items() if key in new)
    gone, come = (
        {key: value for key, value in side.items() if key not in other} for side, other in ((old, new), (new, old))
    )
    pairs = sorted(
        (abs((before[0].line or 0) - (after[0].line or 0)), before, after)
        for before in gone
        for after in come
        if before[0].file and (before[0][1:3], before[1]) == (after[0][1:3], after[1])
    )
    for _, before, after in pairs:
        if before in gone and after in come:
            yield before, after, gone.pop(before), come.pop(after)
    yield from ((key, key, value, None) for key, value in gone.items())
    yield from ((key, key, None, value) for key, value in come.items())
