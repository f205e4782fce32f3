"""The explanation of a row of a watched program: its slow calls, the time of its thread, and what helps."""

from __future__ import annotations

from itertools import dropwhile

from stallprobes.units import duration_ns, format_count, plural
from stallprobes.watch.attribution.findings import ProcessFindings, ThreadFindings, WatchFindings
from stallprobes.watch.live.live_view import WatchRow, WatchRowKey, alike_calls, calls_in_flight
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.sentences import call_text, frame_text, headline, in_flight_text, loss_text, site_text
from stallprobes.wording.watch_wording import not_recorded
from stallscope.report.watch_text import remedies
from stallscope.tui.common.dialog import section
from stallscope.tui.common.printable_text import PrintableText

# _MOST_CALLS: largest number of groups of slow calls that the explanation of a function lists. _MOST_PLACES: largest
# number of places in the watched program that the explanation lists as callers of the function.
_MOST_CALLS, _MOST_PLACES = 8, 6


def frames_text(stack: CallStack) -> str:
    """Frames of a call stack, one per line, without the innermost frames of CUDA and of the injected library."""
    frames = stack.python or tuple(dropwhile(lambda frame: frame.is_cuda, stack.native)) or stack.native
    return "\n".join(frame_text(frame) for frame in frames)


def explained(row: WatchRow, findings: WatchFindings) -> PrintableText:
    """Everything known about ``row``, its newest slow calls first."""
    text = PrintableText()
    text.append(f"{row.key.function} in {row.thread_name or f'thread {row.key.thread}'}\n\n", "bold reverse")
    total = row.total
    figures = (
        f"{format_count(total.count)} {'call' if total.count == 1 else 'calls'} since the start: "
        f"p50 {duration_ns(total.percentile(50))}, "
        f"p99 {duration_ns(total.percentile(99))}, p99.9 {duration_ns(total.percentile_or_none(99.9, 1000))}, "
        f"worst {duration_ns(total.max_ns if total.count else None)}; {format_count(row.slow)} slow, which lost "
        f"{duration_ns(row.lost_ns)}."
    )
    section(text, "Figures", figures)
    flights = [
        in_flight_text(call, process.ended)
        for call, process in calls_in_flight(findings)
        if WatchRowKey(process.pid, process.image, call.thread, call.function) == row.key
    ]
    section(text, "In flight", "\n".join(flights))
    own = [
        alike
        for alike, process in alike_calls(findings)
        if WatchRowKey(process.pid, process.image, alike[0].thread, alike[0].function) == row.key
    ]
    stack = next((call.stack for alike in own for call in alike if call.stack is not None), None)
    if stack is not None:
        section(text, "Call stack of the last one that has one, the innermost frame first", frames_text(stack))
    section(text, "Its last slow calls", "\n".join(f"- {call_text(alike[0], alike)}" for alike in own[:_MOST_CALLS]))
    for process in findings.processes:
        if (process.pid, process.image) == (row.key.pid, row.key.image):
            places = [site_text(site) for site in process.sites if site.function == row.key.function][:_MOST_PLACES]
            section(text, "Places in the program, of all threads", "\n".join(f"- {place}" for place in places))
            _append_process(text, process, row.key.thread)
    return text


def _append_process(text: PrintableText, process: ProcessFindings, thread: int) -> None:
    own = next((each for each in process.threads if each.id == thread), None)
    if own is not None and own.lost:
        section(text, "Time lost by its thread", f"{headline(own)}\n{_shares(own)}")
        helps = remedies(own.lost, process.slow_calls, thread)
        section(text, "What helps", "\n".join(f"- {remedy}" for remedy in helps))
    section(text, "Not recorded", "\n".join(f"- {gap}" for gap in not_recorded(process)))


def _shares(thread: ThreadFindings) -> str:
    return "\n".join(
        f"- {loss_text(loss)}: {duration_ns(loss.ns)} in {plural(loss.calls, 'call')}, "
        f"{duration_ns(loss.proven_ns)} of it proven"
        for loss in thread.lost
    )
