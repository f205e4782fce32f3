"""Report of a watched program: findings with their sentences and percentiles, schema ``stallscope.watch/3``."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from stallprobes.files import codec
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
from stallprobes.watch.division.parts import Part
from stallprobes.watch.division_text import verdict_text
from stallprobes.watch.line_text import line_text, remedy_text, wait_text
from stallprobes.watch.lines.result import ProgramLine, ProgramSequence
from stallprobes.watch.rank_text import communication_text
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.sentences import call_text, headline, in_flight_text, site_text


class _Buckets(Histogram):
    """A histogram that JSON has as lower bounds and counts."""

    def to_json(self) -> Any:
        return self.pairs()


def document(findings: WatchFindings) -> dict[str, Any]:
    """The JSON object of ``findings``."""
    began = datetime.datetime.fromtimestamp(findings.began_at_ns / 1e9, datetime.UTC)
    made: dict[str, Any] = codec.plain(
        findings.changed(
            began_at=began.isoformat(timespec="milliseconds") if findings.processes else None,
            processes=tuple(map(described, findings.processes)),
        )
    )
    return made


def described(process: ProcessFindings) -> ProcessFindings:
    """A process with its sentences, percentiles and shares, and with a list of its call stacks."""
    numbers: dict[CallStack, int] = {}

    def listed(stack: CallStack) -> CallStack:
        number = numbers.setdefault(stack, len(numbers))
        return CallStack(stack.python, stack.native, stack.complete, number)

    def stack_of(item: CallInFlight | ExplainedCall | ProgramLine) -> CallStack | None:
        return None if item.stack is None else listed(item.stack)

    def lost(losses: Sequence[TimeLost], thread: int | None = None) -> tuple[TimeLost, ...]:
        functions = ((loss, function_of(process.slow_calls, loss.cause, thread)) for loss in losses)
        return tuple(loss.changed(remedy=cause_of(loss.cause).helps(name)[0]) for loss, name in functions)

    def line(line: ProgramLine, sequence: ProgramSequence) -> ProgramLine:
        return line.changed(
            stack=stack_of(line),
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
        return call.changed(stack=stack_of(call), sentence=in_flight_text(call))

    def thread(thread: ThreadFindings) -> ThreadFindings:
        return thread.changed(
            headline=headline(thread),
            lost=lost(thread.lost, thread.id),
            rows=tuple(map(_row, thread.rows)),
            in_flight=tuple(map(in_flight, thread.in_flight)),
        )

    def slow(call: ExplainedCall) -> ExplainedCall:
        return call.changed(stack=stack_of(call), sentence=call_text(call))

    def site(site: CallSite) -> CallSite:
        return site.changed(stack=listed(site.stack), sentence=f"{site_text(site)}.")

    made = process.changed(
        sequences=tuple(map(sequence, process.sequences)),
        lost=lost(process.lost),
        threads=tuple(map(thread, process.threads)),
        slow_calls=tuple(map(slow, process.slow_calls)),
        sites=tuple(map(site, process.sites)),
    )
    return made.changed(stacks=tuple(stack.frames for stack in numbers))


def _row(row: CallRow) -> CallRow:
    total = row.total
    p50_ns, p99_ns = (None if ns is None else round(ns) for ns in map(total.percentile, (50, 99)))
    return row.changed(
        calls=total.count,
        p50_ns=p50_ns,
        p99_ns=p99_ns,
        max_ns=total.max_ns if total.count else None,
        total=_Buckets(total.block, total.number),
    )
