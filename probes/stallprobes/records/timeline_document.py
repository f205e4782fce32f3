"""How a timeline was recorded, in JSON documents: ``timeline_status`` of a run and of a check."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from stallprobes.files.codec import Document, Name, Text, about
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.timeline import TimelineLosses
from stallprobes.records.timeline_summary import TimelineSummary

_KINDS = {kind.word: kind for kind in RecordKind}
KindWord = Annotated[Text, Meta(extra_json_schema={"enum": list(_KINDS)})]


class TimelineDocument(Document):
    """How the timeline was recorded; only where it was on."""

    library: Annotated[
        Name,
        about("CUDA version of libcupti, or simulated; several of a merged result are separated with commas."),
    ]
    kinds: Annotated[list[KindWord], about("Kinds of records.")]
    context_switches: Annotated[bool, about("Whether it was recorded which context had the graphics engine.")]
    note: Annotated[Text | None, about("What is missing, and why.")]
    losses: TimelineLosses

    def __post_init__(self) -> None:
        """Raise ValueError for a kind that is unknown."""
        for word in self.kinds:
            if word not in _KINDS:
                raise ValueError(f"kinds has “{word}”, which is not one of {', '.join(_KINDS)}")

    @classmethod
    def of_summary(cls, summary: TimelineSummary) -> TimelineDocument:
        """The document of ``summary``."""
        return cls.of(summary, kinds=[kind.word for kind in summary.kinds], note=summary.note or None)

    def summary(self) -> TimelineSummary:
        """The summary that the document was made of."""
        return TimelineSummary(self.library, tuple(_KINDS[word] for word in self.kinds), self.note or "", self.losses)
