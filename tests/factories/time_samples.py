"""Samples of threads' time, made by hand, in microseconds, with the stacks that they name."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from factories.watch_calls import FUNCTIONS, LAUNCH, MAIN, at_ns
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.watch_file import SampledTime
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.process import SampleBatch


class Sampled(NamedTuple):
    """A sample that stands for ``us``, between ``since`` and ``at`` (us); ``between``: it is of time between calls.

    One that stands for ``waits`` does so in place of a time. ``cpu`` is the thread's time on a CPU (us). ``holder`` is
    the stack of who had Python's lock.
    """

    since: float
    at: float
    us: float
    function: str = LAUNCH
    between: bool = False
    stack: int = 1
    thread: int = MAIN
    waits: int = 0
    cpu: float = 0.0
    holder: int = 0


def sample_batch(samples: Iterable[Sampled] = ()) -> SampleBatch:
    """Samples as a reading has them."""
    made = list(samples)
    rows = np.zeros(len(made), dtype_of(layout.TimeSample))
    numbers = {name: number for number, name in FUNCTIONS.items()}
    for row, one in zip(rows, made, strict=True):
        row["since_ns"], row["at_ns"], row["ns"] = at_ns(one.since), at_ns(one.at), round(one.us * 1000)
        row["thread"], row["stack"], row["api"] = one.thread, one.stack, numbers[one.function]
        row["cpu_ns"], row["holder"] = round(one.cpu * 1000), one.holder
        row["sampled"] = int(SampledTime.BETWEEN if one.between else SampledTime.INSIDE)
        if one.waits:
            row["sampled"], row["ns"] = int(SampledTime.WAITS), one.waits
    return SampleBatch(rows, FUNCTIONS, len(made), 0)


def line_stack(line: int, function: str = "step", file: str = "/home/me/train.py") -> CallStack:
    """A stack whose innermost frame of the program's own code is a line of Python, below a library's."""
    library = StackFrame(FrameKind.PYTHON, "forward", "/usr/lib/python3/dist-packages/torch/nn.py", 7)
    main = StackFrame(FrameKind.PYTHON, "main", file, 90)
    return CallStack((library, StackFrame(FrameKind.PYTHON, function, file, line), main))
