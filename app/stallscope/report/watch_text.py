"""Text report of a watched program: time lost and its causes first, then the slowest calls and all functions."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stallprobes.foreign_text import printable
from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.units import duration_ns, format_count, plural
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.attribution.findings import (
    CallRow,
    ProcessFindings,
    ThreadFindings,
    WatchFindings,
)
from stallprobes.watch.live.live_view import calls_in_flight, slow_calls
from stallprobes.watch.sentences import call_text, headline, in_flight_text, loss_text, site_text
from stallprobes.wording.watch_wording import not_recorded, process_prefix, process_words
from stallscope.report.columns import cut_columns, display_width
from stallscope.report.remedy_text import with_code
from stallscope.report.text import TableCell, TableColumn, TextWriter

_LONGEST_TITLE = 100
_MOST_HEADLINES = 5
_MOST_SLOW_CALLS = 10
_MOST_CAUSES = 12
_MOST_IN_FLIGHT = 10
_MOST_SITES = 10
_MOST_THREADS = 12
_MOST_ROWS = 12
# Threads that lost less are in the tables alone.
_LEAST_SHARE = 0.005
_CAUSE_COLUMNS = (
    TableColumn("cause"),
    TableColumn("slow calls", right=True),
    TableColumn("time", right=True),
    TableColumn("share", right=True),
    TableColumn("proven", right=True),
)
_ROW_COLUMNS = (
    TableColumn("call"),
    *(TableColumn(name, right=True) for name in ("calls", "p50", "p99", "max", "time", "lost")),
)


@dataclass(frozen=True)
class _Place:
    """A thread and its process."""

    process: ProcessFindings
    thread: ThreadFindings


def command_title(words: Sequence[str]) -> str:
    """A command as the title of its report: its words as in a shell, cut where they are long."""
    text = printable(shlex.join(words))
    return text if display_width(text) <= _LONGEST_TITLE else f"{cut_columns(text, _LONGEST_TITLE - 1)}…"


def show_watch(out: TextWriter, findings: WatchFindings, title: str, notes: Sequence[str] = ()) -> None:
    """``findings`` about the program ``title``. ``notes`` are further sentences about what is missing."""
    places = [_Place(process, thread) for process in findings.processes for thread in process.threads]
    several = len(findings.processes) > 1
    _headline(out, findings, title, places)
    _causes(out, findings.processes)
    _sites(out, findings.processes, several)
    _slow_calls(out, findings, several)
    _in_flight(out, findings, several)
    _tables(out, places, several)
    missing = [*notes, *findings.problems, *(text for process in findings.processes for text in not_recorded(process))]
    if missing:
        out.line()
        out.line("Not recorded", "strong")
        for text in dict.fromkeys(missing):
            out.paragraph(text, indent="    ", first="  ", style="warn")


def _headline(out: TextWriter, findings: WatchFindings, title: str, places: Sequence[_Place]) -> None:
    calls = sum(process.calls for process in findings.processes)
    processes = f"{len(findings.processes)} {'process' if len(findings.processes) == 1 else 'processes'}"
    made = f"{format_count(calls)} {'call' if calls == 1 else 'calls'}"
    out.paragraph(" · ".join([title, processes, duration_ns(findings.duration_ns), made]), style="strong")
    if not findings.processes:
        out.paragraph("No process recorded a CUDA call while it was watched.")
        return
    waiting = sorted((one for one in places if one.thread.lost_ns), key=lambda one: -one.thread.lost_share)
    shown = [one for one in waiting if one.thread.lost_share >= _LEAST_SHARE][:_MOST_HEADLINES] or waiting[:1]
    several = len(findings.processes) > 1
    for place in shown:
        out.paragraph(_where(place.process, several) + headline(place.thread), indent="  ", first="")
    if len(waiting) > len(shown):
        out.paragraph(f"{plural(len(waiting) - len(shown), 'more thread')} lost time to slow calls.", style="dim")
    if not waiting and calls and not calls_in_flight(findings):
        limits = {process.slow_limit_ns for process in findings.processes}
        out.paragraph(f"No stall: no finished call took {duration_ns(min(limits))} or longer.", style="good")


def _causes(out: TextWriter, processes: Sequence[ProcessFindings]) -> None:
    """Time lost by cause over all processes, each with what helps."""
    calls: Counter[tuple[WaitCause, str]] = Counter()
    lost: Counter[tuple[WaitCause, str]] = Counter()
    proven: Counter[tuple[WaitCause, str]] = Counter()
    for one in (loss for process in processes for loss in process.lost):
        key = one.cause, loss_text(one)
        calls[key] += one.calls
        lost[key] += one.ns
        proven[key] += one.proven_ns
    total = sum(lost.values())
    if not total:
        return
    rows = [
        (
            words,
            format_count(calls[cause, words]),
            duration_ns(ns),
            _percent(ns / total),
            "–" if cause is WaitCause.UNATTRIBUTED else _percent(proven[cause, words] / ns if ns else 0.0),
        )
        for (cause, words), ns in lost.most_common(_MOST_CAUSES)
    ]
    out.line()
    out.line("Time lost by cause", "strong")
    if out.natural_width(_CAUSE_COLUMNS, rows) <= out.width:
        out.table(_CAUSE_COLUMNS, rows)
    else:
        for line in _stacked(_CAUSE_COLUMNS, rows):
            out.paragraph(line, indent="    ", first="  ")
    if len(lost) > _MOST_CAUSES:
        rest = sum(ns for _, ns in lost.most_common()[_MOST_CAUSES:])
        out.paragraph(f"{plural(len(lost) - _MOST_CAUSES, 'more cause')}, {duration_ns(rest)} in all", style="dim")
    for cause in dict.fromkeys(cause for (cause, _), _ in lost.most_common()):
        if cause.remedy:
            help_ = with_code(cause.remedy, cause.pattern)
            out.paragraph(f"{cause.word}: {help_}", indent="    ", first="  ", style="dim")


def _sites(out: TextWriter, processes: Sequence[ProcessFindings], several: bool) -> None:
    """The places in the program that made slow calls, the most time lost first."""
    found = [(site, process) for process in processes for site in process.sites if site.lost_ns]
    if not found:
        return
    found.sort(key=lambda item: -item[0].lost_ns)
    out.line()
    left = f" (the {_MOST_SITES} of {format_count(len(found))} that lost most)" if len(found) > _MOST_SITES else ""
    out.line(f"Slow calls by place in the program{left}", "strong")
    for site, process in found[:_MOST_SITES]:
        function = f" ({site.function})" if site.family is CallFamily.COPY else ""
        lost = f": {duration_ns(site.lost_ns)} lost, {_main_cause(site.cause)}"
        out.paragraph(_where(process, several) + site_text(site) + function + lost, indent="    ", first="  ")


def _main_cause(cause: WaitCause) -> str:
    return "most of it without a known cause" if cause is WaitCause.UNATTRIBUTED else f"most of it to {cause.word}"


def _slow_calls(out: TextWriter, findings: WatchFindings, several: bool) -> None:
    found = sorted(slow_calls(findings), key=lambda item: (-item[0].duration_ns, item[0].begin_ns - item[1].began_ns))
    if not found:
        return
    out.line()
    left = f" (the slowest {_MOST_SLOW_CALLS} of {format_count(len(found))})" if len(found) > _MOST_SLOW_CALLS else ""
    out.line(f"Slow calls{left}", "strong")
    for call, process in found[:_MOST_SLOW_CALLS]:
        at = f"at {(call.begin_ns - process.began_ns) / 1e9:.3f} s: "
        out.paragraph(_where(process, several) + at + call_text(call), indent="    ", first="  ")


def _in_flight(out: TextWriter, findings: WatchFindings, several: bool) -> None:
    found = sorted(calls_in_flight(findings), key=lambda item: -item[0].age_ns)
    if not found:
        return
    out.line()
    out.line("Calls in flight", "strong")
    for call, process in found[:_MOST_IN_FLIGHT]:
        ended = " It had not when the process ended." if process.ended else ""
        text = _where(process, several) + in_flight_text(call) + ended
        out.paragraph(text, indent="    ", first="  ")
    if len(found) > _MOST_IN_FLIGHT:
        out.paragraph(f"{len(found) - _MOST_IN_FLIGHT} more.", indent="  ", style="dim")


def _tables(out: TextWriter, places: Sequence[_Place], several: bool) -> None:
    """A table of its functions for each thread, those that lost and used most time first."""
    used = [place for place in places if place.thread.rows]
    used.sort(key=lambda place: (-place.thread.lost_ns, -sum(row.total_ns for row in place.thread.rows)))
    for place in used[:_MOST_THREADS]:
        where = f" of {process_words(place.process.name, place.process.pid)}" if several else ""
        thread = place.thread
        name = f"Thread {thread.name} ({thread.id})" if thread.name else f"Thread {thread.id}"
        owners = f" and {plural(thread.owners - 1, 'earlier thread')}" if thread.owners > 1 else ""
        out.line()
        out.paragraph(f"{name}{owners}{where} · {duration_ns(thread.alive_ns)}", style="strong")
        rows = [_cells(row) for row in place.thread.rows[:_MOST_ROWS]]
        if out.natural_width(_ROW_COLUMNS, rows) <= out.width:
            out.table(_ROW_COLUMNS, rows)
        else:
            for line in _stacked(_ROW_COLUMNS, rows):
                out.paragraph(line, indent="    ", first="  ")
        if len(place.thread.rows) > _MOST_ROWS:
            rest = place.thread.rows[_MOST_ROWS:]
            time = duration_ns(sum(row.total_ns for row in rest))
            out.paragraph(f"{plural(len(rest), 'more function')}, {time} in all", indent="  ", style="dim")
    if len(used) > _MOST_THREADS:
        out.line()
        out.paragraph(f"{plural(len(used) - _MOST_THREADS, 'more thread')} made calls.", style="dim")


def _cells(row: CallRow) -> tuple[TableCell | str, ...]:
    total = row.total
    return (
        row.function,
        format_count(total.count),
        duration_ns(total.percentile(50)),
        duration_ns(total.percentile(99)),
        duration_ns(total.max_ns if total.count else None),
        duration_ns(row.total_ns),
        TableCell(duration_ns(row.lost_ns), "warn") if row.lost_ns else "",
    )


def _stacked(columns: Sequence[TableColumn], rows: Sequence[Sequence[TableCell | str]]) -> Iterator[str]:
    """Each row as a line, for a terminal that is too narrow for the table."""
    for row in rows:
        name, *figures = (cell.text if isinstance(cell, TableCell) else cell for cell in row)
        titles = (column.title for column in columns[1:])
        yield f"{name}: " + ", ".join(f"{title} {text}" for title, text in zip(titles, figures, strict=True) if text)


def _where(process: ProcessFindings, several: bool) -> str:
    """The process before a sentence, where there are several."""
    return process_prefix(process.name, process.pid, several)


def _percent(share: float) -> str:
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
