"""State of a timeline: whether it works here, and if not, why and what to do; what it lost; how far it was read.

Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum

# First words of messages about a missing timeline (CUPTI's records of the GPU's work).
UNAVAILABLE = "the timeline is not available"


class TimelineProblem(StrEnum):
    """Why the timeline (CUPTI's records of the GPU's work) cannot be switched on.

    ``TAKEN``: another profiler uses CUPTI. ``FAILED``: an error without a member of its own.
    """

    NO_GPU = "no-gpu"
    NO_LIBRARY = "no-library"
    LIBRARY_TOO_NEW = "library-too-new"
    LIBRARY_TOO_OLD = "library-too-old"
    TAKEN = "taken"
    CONFIDENTIAL_COMPUTING = "confidential-computing"
    VIRTUAL_GPU = "virtual-gpu"
    NOT_SUPPORTED = "not-supported"
    FAILED = "failed"


@dataclass(frozen=True)
class TimelineStatus:
    """State of the timeline in an engine.

    - ``on``: records are collected.
    - ``problem``: why it could not be switched on, None if nothing failed.
    - ``found`` and ``do``: sentences on the problem, and on what to do.
    - ``note``: why ``context_switches`` are not collected.
    - ``library``: the path of libcupti.
    - ``version``: the result of ``cuptiGetVersion``.
    - ``kinds``: the numbers of the record kinds that are collected.
    - ``contexts``: the names of contexts by CUPTI's number.
    - ``streams``: the names of streams by context and stream number.
    """

    on: bool = False
    problem: TimelineProblem | None = None
    found: str = ""
    do: str = ""
    note: str = ""
    library: str = ""
    version: int = 0
    kinds: tuple[int, ...] = ()
    contexts: Mapping[int, str] = field(default_factory=dict)
    streams: Mapping[tuple[int, int], str] = field(default_factory=dict)

    @property
    def context_switches(self) -> bool:
        """True if context switches are recorded."""
        return 57 in self.kinds

    @property
    def sentence(self) -> str:
        """The problem and what to do, as one sentence; "" if nothing failed."""
        if self.problem is None:
            return ""
        return f"{UNAVAILABLE}: {self.found}" + (f"; {self.do}" if self.do else "")


# Status of a timeline that is off.
OFF = TimelineStatus()


class TimelineUnavailable(Exception):
    """The timeline cannot be switched on; ``status`` says why."""

    def __init__(self, problem: TimelineProblem, found: str, do: str = "", library: str = "", version: int = 0) -> None:
        super().__init__(found)
        self.status = TimelineStatus(False, problem, found, do, library=library, version=version)


@dataclass(frozen=True)
class TimelineLosses:
    """What the timeline does not show.

    ``dropped`` counts records that CUPTI dropped, ``exhausted`` how often it found no buffer, ``unmatched`` pieces of
    work that belong to no known call, ``unanswered`` calls whose work has no record, ``overwritten`` records that left
    the ring before this snapshot read them, and ``unknown`` records of kinds that have no layout.
    """

    dropped: int = 0
    exhausted: int = 0
    unmatched: int = 0
    unanswered: int = 0
    overwritten: int = 0
    unknown: int = 0

    @property
    def lost(self) -> int:
        """The number of records that were collected by nobody."""
        return self.dropped + self.overwritten + self.unknown

    def plus(self, other: TimelineLosses) -> TimelineLosses:
        """The losses of both."""
        return TimelineLosses(**{key.name: getattr(self, key.name) + getattr(other, key.name) for key in fields(self)})


@dataclass(frozen=True)
class TimelineCost:
    """Work of the collector since the timeline was switched on first: records, rounds, and time in ns."""

    records: int = 0
    rounds: int = 0
    flush_ns: int = 0
    decode_ns: int = 0


@dataclass(frozen=True)
class TimelinePosition:
    """Position of a reader: the number of the next GPU record, and of each probe's next host call."""

    record: int = 0
    calls: Mapping[str, int] = field(default_factory=dict)


# Position before the first row of a timeline.
BEGINNING = TimelinePosition()
