"""A cause of slow calls as one object: which calls have it, what shows it, its sentence, and what helps."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from stallprobes.catalog import Relation, entries
from stallprobes.native.layouts.driver_calls import CallFamily, family_of
from stallprobes.patterns import patterns
from stallprobes.watch.attribution.evidence_text import MOST_NAMED, work_text
from stallprobes.watch.attribution.findings import NO_EVIDENCE, ExplainedCall, PartOfWait, WaitEvidence
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.causes.facts import Facts, Flags
from stallprobes.watch.reading.process import DriverCall


class Answer(NamedTuple):
    """The cause of a slow call, the time (ns) that it explains, and what shows it; ``also`` are further parts."""

    cause: WaitCause
    certainty: Certainty | None
    explained_ns: int
    evidence: WaitEvidence
    also: tuple[PartOfWait, ...] = ()


# Remedy as a sentence, or as a function that asks the catalogue once it is shown: loading that takes time.
Remedy = str | Callable[[], str]
# Answer for a call without a known cause.
UNKNOWN = Answer(WaitCause.UNATTRIBUTED, None, 0, NO_EVIDENCE)


class Rule(NamedTuple):
    """When a cause holds, by one sort of evidence.

    ``mask``: which of the calls that are asked about have the cause; its flags of other calls do not count.
    ``answer``: the answer for a call that has it.
    """

    mask: Callable[[Facts, Flags], Flags]
    answer: Callable[[Facts, int], Answer]


def named_work(call: ExplainedCall) -> Iterator[str]:
    """The work of the evidence, in words."""
    for work in call.evidence.work[:MOST_NAMED]:
        yield work_text(work)


@dataclass(frozen=True, eq=False)
class CallCause:
    """A cause: its words, what helps, and how a sentence names it.

    ``word`` names it in a list. In a sentence, ``evidence`` continues the clause of ``name``; ``sentence`` replaces
    both, where it is not "". ``pattern`` is the pattern whose remedies help, "" without one; ``by_family`` has what
    helps calls of some families more than that does. ``columns``, where the cause is a call of another thread, are
    those of a check in which aggressors make such calls.
    """

    name: WaitCause
    word: str
    remedy_of: Remedy = ""
    pattern: str = ""
    evidence: Callable[[ExplainedCall], Iterable[str]] = named_work
    sentence: str = ""
    columns: Callable[[DriverCall], Iterable[str]] = lambda call: ()
    by_family: Mapping[CallFamily, str] = field(default_factory=dict)

    @property
    def clause(self) -> str:
        """Its name in a sentence, after "because of" or "beside"."""
        return self.name.clause

    @property
    def remedy(self) -> str:
        """What helps, "" where nothing is known."""
        return self.remedy_of if isinstance(self.remedy_of, str) else self.remedy_of()

    def helps(self, function: str) -> tuple[str, str]:
        """What helps calls of a function, and the pattern whose remedies show it as code, "" without one."""
        family = family_of(function)
        if family is None or family not in self.by_family:
            return self.remedy, self.pattern
        return self.by_family[family], ""


def of_entry(name: str) -> Remedy:
    """The remedy that the catalogue's entry ``name`` has for victims of its context, else of any."""

    def remedy() -> str:
        causes = entries()[name].causes
        same = (cause for cause in causes if cause.context is Relation.SAME)
        return (next(same, None) or causes[0]).remedy

    return remedy


def of_pattern(name: str) -> Remedy:
    """The remedy of the pattern ``name``."""
    return lambda: patterns()[name].remedy
