"""Places of samples: the line of the program's own code that led to a call, and the innermost frame there."""

from __future__ import annotations

from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.kernel_names import short_name

# Frame that stands for compiled code of installed packages.
PACKAGES = StackFrame(FrameKind.NATIVE, "", "")


def place_of(stack: CallStack | None) -> StackFrame | None:
    """Place of a stack. Compiled code has one place for each function, since no line of it is known.

    All installed packages are one place, as for a thread of PyTorch's own: no line of the program led there.
    """
    place = None if stack is None else stack.place
    if place is None or place.kind is not FrameKind.NATIVE:
        return place
    if place.is_installed:
        return PACKAGES
    return _named(place) if place.function else place


def innermost(stack: CallStack) -> StackFrame:
    """The innermost frame of a stack with a place: of Python if there is any."""
    if stack.python:
        return stack.python[0]
    frame = stack.own[0]
    return _named(frame) if frame.function or frame.is_installed else frame


def _named(frame: StackFrame) -> StackFrame:
    """A frame of compiled code by its function: instances of a template are one."""
    return frame.changed(function=short_name(frame.function), offset=None)


def order(place: StackFrame | None) -> tuple[str, int, str]:
    """Sort key of places with the same cost."""
    return ("", 0, "") if place is None else (place.file, place.line or 0, place.function)
