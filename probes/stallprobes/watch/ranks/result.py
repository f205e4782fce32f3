"""Ranks as data: which other rank a sequence waits for in communication, and what makes that late."""

from __future__ import annotations

from enum import StrEnum

from msgspec import UNSET

from stallprobes.files.codec import Document, Sentence, Share, String, Unsigned
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.reading.call_stack import StackFrame


class Partners(StrEnum):
    """What is known of the ranks with which a sequence communicates. The values are those of the JSON document.

    ``WATCHED``: its collectives match those of other watched ranks. ``SOME``: the collectives match, but not all
    ranks are watched. ``NONE``: no other watched process that communicates ran at the same time. ``UNMATCHED``: another
    watched process that communicates ran at the same time, but no collectives match.
    """

    WATCHED = "watched"
    SOME = "some"
    NONE = "none"
    UNMATCHED = "unmatched"


class RankDelay(Document, kw_only=True):
    """Why a rank is late: what it did for longer, between their collectives, than the one that waits for it."""

    bound: Bound | None
    """What most of that is, as a verdict says it; null where nothing is most."""
    share: Share = 0.0
    """Its part of that."""
    place: StackFrame | None = None
    """The line at which it has more time; null where none is known."""
    function: String = ""
    """Function of the driver that is called there, or next; empty if not known."""
    kernel: String = ""
    """The kernel of the GPU that takes longer; empty if not known."""
    off_cpu: bool = False
    """Whether most of its host time is off the CPU."""
    rank: String = ""
    """Another rank that it waits for itself, in communication; empty without one."""


class RankWait(Document, kw_only=True):
    """The time that a sequence waits, in kernels that communicate, for a rank that begins them later."""

    name: String
    """The rank as a sentence names it."""
    pid: Unsigned
    image: Unsigned
    device: Unsigned
    """CUPTI's number of its GPU in its process."""
    share: Figure
    """Of the time of the sequence, while no other kernel runs."""
    rounds: Unsigned
    """Collectives that had to wait for it."""
    back: Share
    """Share of its own time in which that rank waits for this one."""
    sure: bool
    """Whether kernels that belong together are known; else it is probable."""
    blamed: bool
    """Whether it slows the sequence down: 5 % of the time, and twice what it waits for the sequence."""
    delay: RankDelay | None = None
    """Why it is late; null where it is not blamed."""


class SequenceRanks(Document, kw_only=True):
    """How a sequence communicates by NCCL's kernels, and for which ranks it waits in them."""

    partners: Partners
    """watched: its kernels were matched with those of other processes, by when they ended. some: and the job has ranks
    that are not watched. none: no other process that is watched communicates. unmatched: others do, and which kernels
    belong together is not known."""
    collectives: Unsigned
    """Its kernels that communicate."""
    matched: Unsigned
    """Those that were matched with kernels of others."""
    waiting: Figure | None = None
    """Share of its time in which they wait for other ranks, and no other kernel runs; null if not known."""
    waits: tuple[RankWait, ...] = ()
    """By rank, the most time first."""
    phases: tuple[RankWait | None, ...] = ()
    """For each phase of the sequence, the rank that slows it down in that."""
    sentence: Sentence = UNSET
    """The rank that slows it down, and what is not known; empty without either."""

    @property
    def blamed(self) -> RankWait | None:
        """The rank that slows this one down most; None without one."""
        return next((wait for wait in self.waits if wait.blamed), None)
