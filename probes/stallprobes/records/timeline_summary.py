"""Summary of the timeline of a result: what recorded it, and what it lost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.libcupti import version_text
from stallprobes.records.timeline import TimelineLosses, TimelineStatus

SIMULATED = "simulated"


@dataclass(frozen=True)
class TimelineSummary:
    """How the timeline of a measurement was recorded.

    ``library`` is the CUDA version of libcupti, such as "13.1", several of a merged result separated with commas, or
    "simulated". ``kinds`` are the kinds of records, ``note`` says what is missing and why, "" for nothing.
    """

    library: str
    kinds: tuple[RecordKind, ...] = ()
    note: str = ""
    losses: TimelineLosses = field(default_factory=TimelineLosses)

    @classmethod
    def of(cls, status: TimelineStatus, losses: TimelineLosses) -> TimelineSummary:
        """The summary of a timeline that was on with ``status``."""
        library = version_text(status.version) if status.version else SIMULATED
        return cls(library, tuple(map(RecordKind, status.kinds)), status.note, losses)

    @property
    def context_switches(self) -> bool:
        """Whether context switches were recorded."""
        return RecordKind.CONTEXT_SWITCH in self.kinds

    @classmethod
    def joined(cls, parts: Iterable[TimelineSummary]) -> TimelineSummary | None:
        """The summary of several measurements: the kinds that all have, and the sum of the losses; None without any."""
        found = list(parts)
        if not found:
            return None
        common = set(found[0].kinds).intersection(*(one.kinds for one in found))
        libraries = sorted({name for one in found for name in one.library.split(", ")})
        return cls(
            library=", ".join(libraries),
            kinds=tuple(kind for kind in found[0].kinds if kind in common),
            note="; ".join(dict.fromkeys(one.note for one in found if one.note)),
            losses=reduce(TimelineLosses.plus, (one.losses for one in found)),
        )
