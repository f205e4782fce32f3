"""Sentences about the lines of a program: where its time passes, what is done there, what it costs and what helps."""

from __future__ import annotations

import os.path
from collections.abc import Iterator

from stallprobes.native.layouts.driver_calls import CallFamily, family_of
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.attribution.slow_calls import blame_of
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.division.result import SequenceDivision
from stallprobes.watch.division_text import figure_text, percent
from stallprobes.watch.lines.lines import count_alike
from stallprobes.watch.lines.result import ProgramLine, SequenceLines
from stallprobes.watch.sentences import frame_text, thread_text

# Sorts of time with a smaller part of a line's are not named.
_LEAST_NAMED = 0.1
# Lines with less of the time are not worth one.
_LEAST_SHOWN = 0.01
# A price that is no more is as good as none.
_LEAST_PRICE = 0.005
_BETWEEN_REMEDY = "Do this work of the host once, in another thread, or while the GPU has work in its queue."
_CALLS_REMEDY = "Submit more work with each call: larger batches, fused kernels, or a CUDA graph."
_WAITS_REMEDY = "Submit the next work before this wait, or wait for several steps at once."
_GPU_REMEDY = "The GPU has work meanwhile: only less work for it makes the program faster."


def place_text(line: ProgramLine, process: ProcessFindings) -> str:
    """Where a line is: ``train.py:42 in step``; the thread where no line of the program is known."""
    if line.place is not None and line.place.is_installed and not line.place.function:
        return f"{os.path.basename(line.place.file)}, without a line of the program"
    if line.place is not None:
        return frame_text(line.place)
    return f"{thread_text(line.thread, _name(line, process))}, without a call stack"


def what_text(line: ProgramLine) -> str:
    """What is done at a line: ``waits in cuStreamSynchronize``, ``host time before cuLaunchKernel 9 %, ...``."""
    sorts = sorted(_sorts(line), key=lambda sort: -sort[0])
    named = [sort for sort in sorts if sort[0] >= _LEAST_NAMED * line.share.share] or sorts[:1]
    if len(named) == 1:
        return named[0][1]
    return ", ".join(f"{text} {percent(share)}" for share, text in named)


def line_text(line: ProgramLine, process: ProcessFindings, main_thread: int | None = None) -> str:
    """A line in a sentence: its place, its share of the time, what is done there, and what its waits cost.

    The thread is named unless it is ``main_thread``, the first one of the sequence.
    """
    where = place_text(line, process)
    if main_thread not in (None, line.thread) and line.place is not None:
        where += f" ({_name(line, process) or thread_text(line.thread, '')})"
    return f"{where}: {figure_text(line.share)} of the time, {what_text(line)}{_price(line)}."


def short_line_text(line: ProgramLine, process: ProcessFindings) -> str:
    """A line in few words, its share of the time first: `` 41 % train.py:42 in step: waits in cuStreamSynchronize``."""
    return f"{percent(line.share.share):>5} {place_text(line, process)}: {what_text(line)}{_price(line)}"


def shown_lines(lines: SequenceLines | None, most: int) -> tuple[ProgramLine, ...]:
    """The first lines of a sequence that are worth one, at most so many."""
    return tuple(line for line in lines.lines if line.share.share >= _LEAST_SHOWN)[:most] if lines is not None else ()


def lines_title(sequence: SequenceDivision | None) -> str:
    """The title of the lines of ``sequence``, None where no work of the GPU was recorded."""
    return "Lines with most of the time" if count_alike(sequence) else "Lines that cost most"


def remedy_text(line: ProgramLine, sequence: SequenceDivision | None) -> str:
    """What helps against the largest cost of a line of ``sequence``, by its cause; "" where nothing is known."""
    if line.place is None:
        return ""
    if sequence is not None and sequence.verdict is Bound.GPU:
        return _GPU_REMEDY
    waits = line.waits.share if sequence is None else line.price
    if max(line.calls.share, line.between.share) > waits:
        return _BETWEEN_REMEDY if line.between.share >= line.calls.share else _of_call(line.calls.function)
    if sequence is not None and line.price < _LEAST_PRICE:
        return _GPU_REMEDY
    return _of_wait(line.waits.function)


def lines_of_sequence(sequence: SequenceDivision, process: ProcessFindings) -> SequenceLines | None:
    """The lines of a sequence of ``process``; None without any."""
    keys = sequence.threads, sequence.device
    return next((one for one in process.lines if (one.threads, one.device) == keys), None)


def sequence_of(lines: SequenceLines, process: ProcessFindings) -> SequenceDivision | None:
    """The division of the sequence of ``lines``; None without one."""
    if process.division is None:
        return None
    keys = lines.threads, lines.device
    return next((one for one in process.division.sequences if (one.threads, one.device) == keys), None)


def _name(line: ProgramLine, process: ProcessFindings) -> str:
    return next((thread.name for thread in process.threads if thread.id == line.thread), "")


def _sorts(line: ProgramLine) -> Iterator[tuple[float, str]]:
    """The share and the words of each sort of time at a line."""
    if line.waits.share:
        yield line.waits.share, f"waits in {line.waits.function}"
    if line.calls.share:
        yield line.calls.share, f"inside {line.calls.function}"
    if line.between.share:
        yield line.between.share, f"host time before {line.between.function}"


def _price(line: ProgramLine) -> str:
    return f"; its waits cost at most {percent(line.price)}" if line.price >= _LEAST_PRICE else ""


def _of_wait(function: str) -> str:
    family = family_of(function)
    if family is CallFamily.COPY:
        return WaitCause.OWN_WORK.remedy
    return WaitCause.FREE.remedy if family is CallFamily.ALLOCATION else _WAITS_REMEDY


def _of_call(function: str) -> str:
    cause = blame_of(function, family_of(function), pageable=True)
    return _CALLS_REMEDY if cause is None else cause.remedy
