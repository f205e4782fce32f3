"""JSON document of a watched program, published schema ``stallscope.watch/1``.

Latencies and ages are microseconds with three decimals, times of events are seconds from the begin of the watch.
Unknown values are null.
"""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Any

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.watch.attribution.findings import (
    CallAlongside,
    CallInFlight,
    CallRow,
    CallSite,
    ExplainedCall,
    ProcessFindings,
    ThreadFindings,
    TimeLost,
    WaitEvidence,
    WatchFindings,
    WorkInFront,
)
from stallprobes.watch.reading.call_stack import CallStack, StackFrame
from stallprobes.watch.sentences import call_text, headline, in_flight_text, site_text

WATCH_SCHEMA = "stallscope.watch/1"


def document(
    findings: WatchFindings,
    program: Sequence[str] | None = None,
    exit_code: int | None = None,
    problems: Sequence[str] = (),
) -> dict[str, Any]:
    """The document of ``findings``.

    ``program`` are the words of the command, None where it was started elsewhere; ``problems`` are further sentences.
    """
    first_ns = min((process.began_ns for process in findings.processes), default=0)
    began = datetime.datetime.fromtimestamp(findings.began_at_ns / 1e9, datetime.UTC)
    return {
        "schema": WATCH_SCHEMA,
        "program": None if program is None else list(program),
        "exit_code": exit_code,
        "began_at": began.isoformat(timespec="milliseconds") if findings.processes else None,
        "seconds": _seconds(findings.duration_ns),
        "problems": [*problems, *findings.problems],
        "processes": [_process(process, first_ns) for process in findings.processes],
    }


class _Stacks:
    """The different stacks of a process; the document names them by their place in the list."""

    def __init__(self) -> None:
        self._places: dict[CallStack, int] = {}

    def place_of(self, stack: CallStack | None) -> int | None:
        """The place of ``stack``; None without one."""
        return None if stack is None else self._places.setdefault(stack, len(self._places))

    def out(self) -> list[dict[str, Any]]:
        """The list."""
        return [
            {
                "python": [_stack_frame(frame) for frame in stack.python],
                "native": [_stack_frame(frame) for frame in stack.native],
                "complete": stack.complete,
            }
            for stack in self._places
        ]


def _process(process: ProcessFindings, first_ns: int) -> dict[str, Any]:
    stacks = _Stacks()
    return {
        "pid": process.pid,
        "parent_pid": process.parent_pid,
        "image": process.image,
        "name": process.name,
        "command": process.command,
        "began_s": _seconds(process.began_ns - first_ns),
        "seconds": _seconds(process.duration_ns),
        "ended": process.ended,
        "state": _word(process.state.name),
        "error": {"function": process.failed_function, "code": process.code} if process.code else None,
        "cupti": {"path": process.cupti_path, "version": process.cupti_version},
        "calls_only": process.calls_only,
        "slow_us": _us(process.slow_limit_ns),
        "calls": process.calls,
        "records": process.records,
        "losses": {_word(kind.name): count for kind, count in process.losses.items()},
        "missed_records": process.missed_records,
        "gaps": list(process.gaps),
        "lost_us": _us(process.lost_ns),
        "unattributed_us": _us(process.unattributed_ns),
        "lost": [_loss(loss) for loss in process.lost],
        "threads": [_thread(thread, first_ns, stacks) for thread in process.threads],
        "slow_calls": [_slow(call, first_ns, stacks) for call in process.slow_calls],
        "slow_calls_dropped": process.dropped_slow_calls,
        "sites": [_call_site(site, first_ns, stacks) for site in process.sites],
        # The last, as it has the stacks that the others name.
        "stacks": stacks.out(),
    }


def _call_site(site: CallSite, first_ns: int, stacks: _Stacks) -> dict[str, Any]:
    return {
        "function": site.function,
        "bytes": site.bytes,
        "blocking": site.blocking,
        "stack": stacks.place_of(site.stack),
        "place": None if site.stack.place is None else _stack_frame(site.stack.place),
        "calls": site.calls,
        "recorded": site.recorded,
        "per_second": None if site.rate is None else round(site.rate, 3),
        "first_s": _seconds(site.first_ns - first_ns, 9),
        "last_s": _seconds(site.last_ns - first_ns, 9),
        "total_us": _us(site.total_ns),
        "lost_us": _us(site.lost_ns),
        "cause": str(site.cause),
        "sentence": f"{site_text(site)}.",
    }


def _stack_frame(frame: StackFrame) -> dict[str, Any]:
    return {
        "kind": str(frame.kind),
        "function": frame.function,
        "file": frame.file,
        "line": frame.line,
        "offset": frame.offset,
    }


def _thread(thread: ThreadFindings, first_ns: int, stacks: _Stacks) -> dict[str, Any]:
    return {
        "id": thread.id,
        "name": thread.name,
        "owners": thread.owners,
        "seconds": _seconds(thread.alive_ns),
        "ended": thread.ended,
        "headline": headline(thread),
        "lost_us": _us(thread.lost_ns),
        "lost_share": round(thread.lost_share, 6),
        "lost": [_loss(loss) for loss in thread.lost],
        "slow_calls": thread.slow_calls,
        "rows": [_row(row) for row in thread.rows],
        "in_flight": [_in_flight(call, first_ns, stacks) for call in thread.in_flight],
    }


def _row(row: CallRow) -> dict[str, Any]:
    total = row.total
    return {
        "function": row.function,
        "family": row.family,
        "calls": total.count,
        "failed": row.failed,
        "slow": row.slow,
        "total_us": _us(row.total_ns),
        "p50_us": _us(total.percentile(50)),
        "p99_us": _us(total.percentile(99)),
        "max_us": _us(total.max_ns) if total.count else None,
        "median_us": _us(row.median_ns),
        "lost_us": _us(row.lost_ns),
        "unkept": row.unkept,
        "unkept_us": _us(row.unkept_ns),
        "histogram_ns": total.pairs(),
    }


def _loss(loss: TimeLost) -> dict[str, Any]:
    return {
        "cause": str(loss.cause),
        "thread": loss.thread,
        "thread_name": loss.thread_name,
        "calls": loss.calls,
        "us": _us(loss.ns),
        "proven_us": _us(loss.proven_ns),
        "remedy": loss.cause.remedy,
    }


def _slow(call: ExplainedCall, first_ns: int, stacks: _Stacks) -> dict[str, Any]:
    return {
        **_arguments(call),
        "at_s": _seconds(call.begin_ns - first_ns, 9),
        "duration_us": _us(call.duration_ns),
        "excess_us": _us(call.excess_ns),
        "result": call.result,
        "nested": call.nested,
        "cause": str(call.cause),
        "certainty": None if call.certainty is None else str(call.certainty),
        "explained_us": _us(call.explained_ns),
        "also": [{"cause": str(part.cause), "us": _us(part.ns)} for part in call.also],
        "evidence": _evidence(call.evidence, first_ns),
        "sentence": call_text(call),
        "stack": stacks.place_of(call.stack),
        "range": call.range or None,
    }


def _in_flight(call: CallInFlight, first_ns: int, stacks: _Stacks) -> dict[str, Any]:
    return {
        **_arguments(call),
        "since_s": _seconds(call.begin_ns - first_ns, 9),
        "age_us": _us(call.age_ns),
        "depth": call.depth,
        "cause": str(call.cause),
        "beside": [_alongside(each, first_ns) for each in call.beside],
        "sentence": in_flight_text(call),
        "stack": stacks.place_of(call.stack),
        "kernel_wait": call.kernel_wait,
    }


def _arguments(call: ExplainedCall | CallInFlight) -> dict[str, Any]:
    return {
        "function": call.function,
        "thread": call.thread,
        "thread_name": call.thread_name,
        "context": call.context,
        "stream": call.stream,
        "bytes": call.bytes,
        "source": _memory(call.source),
        "target": _memory(call.target),
        "correlation": call.correlation,
    }


def _evidence(evidence: WaitEvidence, first_ns: int) -> dict[str, Any]:
    return {
        "overlap_us": _us(evidence.overlap_ns),
        "overhead_us": _us(evidence.overhead_ns),
        "run_delay_us": _us(evidence.run_delay_ns),
        "work": [_work(work) for work in evidence.work],
        "calls": [_alongside(call, first_ns) for call in evidence.calls],
        "engine": [{"context": use.context, "us": _us(use.ns)} for use in evidence.engine],
        "known_by": evidence.known_by or None,
    }


def _work(work: WorkInFront) -> dict[str, Any]:
    return {
        "kind": work.kind.word,
        "name": work.name,
        "direction": None if work.copy is None else _word(work.copy.name),
        "context": work.context,
        "stream": work.stream,
        "count": work.count,
        "total_us": _us(work.total_ns),
        "overlap_us": _us(work.overlap_ns),
        "bytes": work.bytes,
        "own": work.own,
    }


def _alongside(call: CallAlongside, first_ns: int) -> dict[str, Any]:
    return {
        "thread": call.thread,
        "thread_name": call.thread_name,
        "function": call.function,
        "calls": call.calls,
        "at_s": _seconds(call.begin_ns - first_ns, 9),
        "duration_us": _us(call.duration_ns),
        "overlap_us": _us(call.overlap_ns),
        "stream": call.stream,
        "bytes": call.bytes,
        "source": _memory(call.source),
        "target": _memory(call.target),
    }


def _memory(kind: MemoryKind) -> str | None:
    return None if kind is MemoryKind.UNKNOWN else _word(kind.name)


def _word(name: str) -> str:
    """The name of a member as a value of the document: ``cupti-taken``."""
    return name.lower().replace("_", "-")


def _us(ns: float | None) -> Any:
    return None if ns is None else round(ns / 1000, 3)


def _seconds(ns: int, digits: int = 6) -> float:
    return round(ns / 1e9, digits)
