"""Ranks as data: which other rank a sequence waits for in communication, and what makes that late."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stallprobes.files.codec import Unsigned
from stallprobes.watch.division.binned_sums import Figure, Share
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.reading.call_stack import StackFrame


class Partners(StrEnum):
    """What is known of those with whom a sequence communicates. The values are those of the JSON document.

    ``WATCHED``: its kernels have been matched with those of other processes. ``SOME``: and the job has ranks that are
    not watched. ``NONE``: no other process that is watched communicates. ``UNMATCHED``: others do, and which kernels
    belong together is not known.
    """

    WATCHED = "watched"
    SOME = "some"
    NONE = "none"
    UNMATCHED = "unmatched"


@dataclass(frozen=True, kw_only=True)
class RankDelay:
    """Why a rank is late: what it did for longer than the one that waits for it, between their collectives.

    ``bound`` names most of that as a verdict does, None where nothing makes up most of it; ``share`` (0 to 1) is its
    part. ``place`` is the line of its program at which it has more time, ``function`` the one of the driver that it
    calls there or next, ``kernel`` the kernel of the GPU with more time; None and "" where they are not known.
    ``off_cpu``: most of its host time is off the CPU. ``rank`` is the name of another rank that it waits for itself, ""
    without one.
    """

    bound: Bound | None
    share: Share = 0.0
    place: StackFrame | None = None
    function: str = ""
    kernel: str = ""
    off_cpu: bool = False
    rank: str = ""


@dataclass(frozen=True, kw_only=True)
class RankWait:
    """The time that a sequence waits, inside kernels that communicate, for a rank that begins them later.

    ``name`` is that of the rank in a sentence; ``pid``, ``image`` and ``device`` are its process and GPU. ``share`` is
    of the time of the sequence, while no other kernel runs. ``rounds`` of the collectives had to wait for it. ``back``
    is the share of its time in which that rank waits for this one. ``sure``: kernels that belong together are known,
    else it is probable.
    ``blamed``: the other rank is the slower one of the two, and slows this one down. ``delay`` is why it is late.
    """

    name: str
    pid: Unsigned
    image: Unsigned
    device: Unsigned
    share: Figure
    rounds: Unsigned
    back: Share
    sure: bool
    blamed: bool
    delay: RankDelay | None = None


@dataclass(frozen=True, kw_only=True)
class SequenceRanks:
    """How a sequence communicates; ``threads`` and ``device`` are those of its division.

    ``collectives`` are its kernels that communicate, ``matched`` those that were matched with the kernels of others.
    ``waiting`` is the share of its time in which they wait for other ranks, and no other kernel runs; None where that
    is not known. ``waits`` are by rank, the most time first.
    """

    threads: tuple[Unsigned, ...]
    device: Unsigned
    partners: Partners
    collectives: Unsigned
    matched: Unsigned
    waiting: Figure | None = None
    waits: tuple[RankWait, ...] = ()

    @property
    def blamed(self) -> RankWait | None:
        """The rank that slows this one down most; None without one."""
        return next((one for one in self.waits if one.blamed), None)
