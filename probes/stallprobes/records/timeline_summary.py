"""Summary of the timeline of a result: what recorded it, and what it lost; ``timeline_status`` in JSON documents."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Annotated

from msgspec import Meta
from msgspec.structs import force_setattr

from stallprobes.files.codec import Document, Name, Text
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.libcupti import version_text
from stallprobes.records.timeline import TimelineLosses, TimelineStatus

# Word in place of CUPTI's version, for a simulated GPU.
SIMULATED = "simulated"
# Words for the kinds of CUPTI records.
_KINDS = [kind.word for kind in RecordKind if kind is not RecordKind.STREAM]
KindWord = Annotated[str, Meta(pattern=f"^({'|'.join(_KINDS)})$", extra_json_schema={"enum": _KINDS})]


class TimelineSummary(Document):
    """How the timeline was recorded; only where it was on."""

    library: Name
    """CUDA version of libcupti, or simulated; several of a merged result are separated with commas."""
    kinds: tuple[KindWord, ...]
    """Kinds of records."""
    note: Text | None
    """What is missing, and why."""
    losses: TimelineLosses
    context_switches: bool = False
    """Whether it was recorded which context had the graphics engine."""

    def __post_init__(self) -> None:
        super().__post_init__()
        force_setattr(self, "context_switches", RecordKind.CONTEXT_SWITCH.word in self.kinds)

    @classmethod
    def of_status(cls, status: TimelineStatus, losses: TimelineLosses) -> TimelineSummary:
        """The summary of a timeline that was on with ``status``."""
        library = version_text(status.version) if status.version else SIMULATED
        return cls(library, tuple(RecordKind(kind).word for kind in status.kinds), status.note or None, losses)

    @classmethod
    def joined(cls, parts: Iterable[TimelineSummary]) -> TimelineSummary | None:
        """The summary of several measurements: the kinds that all have, and the sum of the losses; None without any."""
        summaries = list(parts)
        if not summaries:
            return None
        first, *others = summaries
        return cls(
            library=", ".join(sorted({name for summary in summaries for name in summary.library.split(", ")})),
            kinds=tuple(kind for kind in first.kinds if all(kind in other.kinds for other in others)),
            note="; ".join(dict.fromkeys(summary.note for summary in summaries if summary.note)) or None,
            losses=reduce(TimelineLosses.plus, (summary.losses for summary in summaries)),
        )
