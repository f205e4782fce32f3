"""The division of a process as data: the parts of the wall time of each sequence, its figures and its verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallprobes.files.codec import Unsigned
from stallprobes.watch.division.binned_sums import Figure, Share
from stallprobes.watch.division.parts import COMMUNICATION_PARTS, Bound, Part
from stallprobes.watch.division.steps import Step

# A cause that takes so much of the time bounds the program; copies, communication and the GPU have limits of their own.
CAUSE_LIMIT = 0.15
COPIES_LIMIT, GPU_LIMIT, COMMUNICATION_LIMIT = 0.5, 0.9, 0.3
# A second verdict so close to its limit is named too; of a time of which more is not known there is no verdict.
CLOSE = 0.05
MOST_UNKNOWN = 0.05
_ALLOCATION = (Part.ALLOCATION, Part.FREE, Part.HOST_MEMORY)


@dataclass(frozen=True, kw_only=True)
class WaitShare:
    """The waits of one function: their number, the time (ns) that they took, and their share (0 to 1) of the price.

    The price of all waits is spread over them in proportion to the gap of the GPU's work in which each returned, or its
    duration where that is shorter. No function has more than the time of its waits; what is more goes to the others.
    """

    function: str
    calls: Unsigned
    ns: Unsigned
    share: Share


@dataclass(frozen=True, kw_only=True)
class SequenceDivision:
    """The wall time of one sequence on one GPU in the steady state, or of the whole run without one.

    ``threads`` are the ids of its threads, first the one that submits and waits most. ``device`` is CUPTI's number of
    the GPU. ``parts`` has the time (ns) of each part that occurs; together they are ``covered_ns``, the time in which
    all work was recorded, or a sample of that where all processes make too many calls (``divided_time``).
    The other figures are shares of that time without its end. ``host``: the sequence was not waiting
    for the GPU (h). ``gpu``: the GPU worked for it (g). ``price``: what its waits cost at most, 1 - max(h, g).
    ``submitting`` is the share inside calls that submit, ``queue_full`` that in which they found the queue full.
    ``alone``: no other sequence of the process submits to the GPU. ``recorded`` is the share of the time that is
    covered. ``engine_known``: times in which others had the GPU are known; else they are among those in which it works.
    ``off_cpu`` is the share of the time between calls in which no thread of it had a CPU, None where that is not known.
    ``step`` is the time from one of its NVTX ranges, or of its most regular blocking calls, to the next, None without
    one. ``late_ns`` of work became known too late to be counted.
    ``second`` is another verdict that holds or is close to its limit, None without one. ``waits`` are by function, the
    one that costs most first.
    """

    threads: tuple[Unsigned, ...]
    device: Unsigned
    covered_ns: Unsigned
    parts: Mapping[Part, Unsigned]
    host: Figure
    gpu: Figure
    price: Figure
    submitting: Share
    queue_full: Share
    alone: bool
    recorded: Share
    engine_known: bool
    late_ns: Unsigned
    verdict: Bound
    second: Bound | None = None
    off_cpu: Figure | None = None
    step: Step | None = None
    waits: tuple[WaitShare, ...] = ()

    @property
    def steady_ns(self) -> int:
        """The covered time without its end (ns)."""
        return self.covered_ns - self.parts.get(Part.END, 0)

    def share(self, *parts: Part) -> float:
        """The share (0 to 1) of some parts in the covered time without its end."""
        return _share(self.parts, parts)


@dataclass(frozen=True, kw_only=True)
class ProcessDivision:
    """The division of a process: its start-up, and its sequences, the one with most calls first.

    ``steady``: a steady state was found, and ``sequences`` are of that; else they are of the whole run.
    ``start_up_ns`` is how long the start-up took, 0 without a steady state, ``start_up`` the time inside calls of it
    that block for a reason other than work, of all threads together. ``recorded`` is the share of the divided time in
    which work was recorded. ``other_threads`` made calls and submitted no work that was recorded.
    """

    steady: bool
    start_up_ns: Unsigned
    start_up: Mapping[Part, Unsigned]
    recorded: Share
    sequences: tuple[SequenceDivision, ...]
    other_threads: Unsigned


def bounds_of(
    parts: Mapping[Part, int], host: float, gpu: float, queue_full: float, submitting: float, late: float = 0.0
) -> tuple[Bound, Bound | None]:
    """The verdict about a sequence, and the second one, by the time of its parts and its shares."""
    if not any(parts.values()) or _share(parts, (Part.UNKNOWN,)) + late > MOST_UNKNOWN:
        return Bound.UNKNOWN, None
    communicates = _share(parts, COMMUNICATION_PARTS)
    rules = (
        (Bound.SHARED, _share(parts, (Part.SHARED,)), CAUSE_LIMIT),
        (Bound.LOADING, _share(parts, (Part.LOADING,)), CAUSE_LIMIT),
        (Bound.ALLOCATION, _share(parts, _ALLOCATION), CAUSE_LIMIT),
        (Bound.LOCK, _share(parts, (Part.LOCK,)), CAUSE_LIMIT),
        (Bound.COPY, _share(parts, (Part.COPY,)), CAUSE_LIMIT),
        (Bound.COPY, _share(parts, (Part.COPIES,)), COPIES_LIMIT),
        # While it communicates it does not compute; and what waits in front of a full queue then waits for that.
        (Bound.COMMUNICATION, communicates, COMMUNICATION_LIMIT),
        (Bound.GPU, gpu - communicates, GPU_LIMIT),
        (Bound.GPU, queue_full, CAUSE_LIMIT),
        (Bound.WAIT, 1 - max(host, gpu), CAUSE_LIMIT),
    )
    of_gpu = Bound.COMMUNICATION if communicates > gpu / 2 else Bound.GPU
    otherwise = of_gpu if gpu > host else Bound.SUBMISSION if submitting > host / 2 else Bound.HOST
    holding = [(bound, share - limit) for bound, share, limit in rules if share >= limit]
    verdict, margin = holding[0] if holding else (otherwise, CLOSE)
    close = [bound for bound, share, limit in rules if share >= limit - CLOSE and bound is not verdict]
    # A verdict that barely holds names the one that holds without it.
    if margin < CLOSE and otherwise is not verdict:
        close.append(otherwise)
    return verdict, close[0] if close else None


def price_of(host: Figure, gpu: Figure) -> Figure:
    """The price of waiting, by the shares of time in which the host did not wait and in which the GPU worked."""
    low, high = 1 - max(host.high, gpu.high), 1 - max(host.low, gpu.low)
    return Figure(1 - max(host.share, gpu.share), max(low, 0.0), high)


def _share(parts: Mapping[Part, int], chosen: tuple[Part, ...]) -> float:
    steady = sum(parts.values()) - parts.get(Part.END, 0)
    return sum(parts.get(part, 0) for part in chosen) / steady if steady else 0.0
