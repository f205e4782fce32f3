"""Report of a watched program: findings with their sentences and percentiles, schema ``stallscope.watch/3``."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from msgspec import Meta

from stallprobes.files import codec
from stallprobes.files.codec import Natural, Text, about, attributes
from stallprobes.latency.histogram import Histogram
from stallprobes.watch.attribution.findings import (
    CallInFlight,
    CallRow,
    CallSite,
    ExplainedCall,
    ProcessFindings,
    ThreadFindings,
    TimeLost,
    WatchFindings,
    function_of,
)
from stallprobes.watch.causes.order import cause_of
from stallprobes.watch.cost import AttachingCost
from stallprobes.watch.division.parts import Part
from stallprobes.watch.division_text import verdict_text
from stallprobes.watch.line_text import line_text, remedy_text, wait_text
from stallprobes.watch.lines.result import ProgramLine, ProgramSequence
from stallprobes.watch.rank_text import communication_text
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.sentences import call_text, headline, in_flight_text, site_text

_SCHEMA: Literal["stallscope.watch/3"] = "stallscope.watch/3"


class WatchReport(WatchFindings, kw_only=True, eq=False):
    """Output of `stallscope watch --json`: the driver calls of a program, and what each slow one waited for. Times and
    durations are nanoseconds, times of events on CLOCK_MONOTONIC. Unknown values are null."""

    schema: Literal["stallscope.watch/3"] = _SCHEMA
    program: Annotated[tuple[Text, ...] | None, about("The words of the command; null where it was started elsewhere.")]
    exit_code: Annotated[
        Natural | None,
        about(
            "Of the program, 128 + n if signal n ended it; null where it was started elsewhere, or where a recording "
            "ends before it."
        ),
    ]
    began_at: Annotated[
        Text | None,
        Meta(
            description="Begin of the watch, UTC; null without a process that used CUDA.",
            extra_json_schema={"format": "date-time"},
        ),
    ]
    attached: Annotated[tuple[AttachingCost, ...], about("The processes that ran when they were attached (--pid).")]


class _Buckets(Histogram):
    """A histogram that JSON has as lower bounds and counts."""

    def to_json(self) -> Any:
        return self.pairs()


def report(
    findings: WatchFindings,
    program: Sequence[str] | None = None,
    exit_code: int | None = None,
    problems: Sequence[str] = (),
    attached: Sequence[AttachingCost] = (),
) -> WatchReport:
    """The report of ``findings``.

    ``program`` are the words of the command, None where it was started elsewhere; ``problems`` are further sentences,
    ``attached`` what it cost to attach to processes that ran.
    """
    began = datetime.datetime.fromtimestamp(findings.began_at_ns / 1e9, datetime.UTC)
    own = {
        "problems": (*problems, *findings.problems),
        "processes": tuple(map(_process, findings.processes)),
    }
    return WatchReport(
        **attributes(findings, WatchFindings) | own,
        program=None if program is None else tuple(program),
        exit_code=exit_code,
        began_at=began.isoformat(timespec="milliseconds") if findings.processes else None,
        attached=tuple(attached),
    )


def document(
    findings: WatchFindings,
    program: Sequence[str] | None = None,
    exit_code: int | None = None,
    problems: Sequence[str] = (),
    attached: Sequence[AttachingCost] = (),
) -> dict[str, Any]:
    """The JSON object of ``report``."""
    made: dict[str, Any] = codec.plain(report(findings, program, exit_code, problems, attached))
    return {"schema": made["schema"]} | made


class _Stacks:
    """The different stacks of a process in the order in which its report names them."""

    def __init__(self) -> None:
        self._numbers: dict[CallStack, int] = {}

    def listed(self, stack: CallStack | None) -> CallStack | None:
        """``stack`` with its place in the list."""
        return None if stack is None else stack.numbered(self._numbers.setdefault(stack, len(self._numbers)))

    def __iter__(self) -> Any:
        return (stack.frames for stack in self._numbers)


def _process(process: ProcessFindings) -> ProcessFindings:
    stacks = _Stacks()

    def lost(losses: Sequence[TimeLost], thread: int | None = None) -> tuple[TimeLost, ...]:
        functions = ((loss, function_of(process.slow_calls, loss.cause, thread)) for loss in losses)
        return tuple(loss.changed(remedy=cause_of(loss.cause).helps(name).remedy) for loss, name in functions)

    def line(line: ProgramLine, sequence: ProgramSequence) -> ProgramLine:
        return line.changed(
            stack=stacks.listed(line.stack),
            sentence=line_text(line, process, sequence),
            remedy=remedy_text(line, process, sequence),
        )

    def sequence(sequence: ProgramSequence) -> ProgramSequence:
        ranks = sequence.ranks
        return sequence.changed(
            shares={part: 0.0 if part is Part.END else round(sequence.share(part), 6) for part in sequence.parts},
            lines=tuple(line(each, sequence) for each in sequence.lines),
            wait_places=tuple(
                waits.changed(sentence=wait_text(waits, process, sequence)) for waits in sequence.wait_places
            ),
            ranks=None if ranks is None else ranks.changed(sentence=communication_text(ranks, process)),
            sentence=verdict_text(sequence, process) if sequence.divided else "",
        )

    def in_flight(call: CallInFlight) -> CallInFlight:
        return call.changed(stack=stacks.listed(call.stack), sentence=in_flight_text(call))

    def thread(thread: ThreadFindings) -> ThreadFindings:
        return thread.changed(
            headline=headline(thread),
            lost=lost(thread.lost, thread.id),
            rows=tuple(map(_row, thread.rows)),
            in_flight=tuple(map(in_flight, thread.in_flight)),
        )

    def slow(call: ExplainedCall) -> ExplainedCall:
        return call.changed(stack=stacks.listed(call.stack), sentence=call_text(call))

    def site(site: CallSite) -> CallSite:
        return site.changed(stack=stacks.listed(site.stack), sentence=f"{site_text(site)}.")

    described = process.changed(
        sequences=tuple(map(sequence, process.sequences)),
        lost=lost(process.lost),
        threads=tuple(map(thread, process.threads)),
        slow_calls=tuple(map(slow, process.slow_calls)),
        sites=tuple(map(site, process.sites)),
    )
    return described.changed(stacks=tuple(stacks))


def _row(row: CallRow) -> CallRow:
    total = row.total
    return row.changed(
        calls=total.count,
        p50_ns=total.percentile(50),
        p99_ns=total.percentile(99),
        max_ns=total.max_ns if total.count else None,
        total=_Buckets(total.block, total.number),
    )
