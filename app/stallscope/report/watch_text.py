"""Text report of a watched program: what bounds it and at which lines, what is not known, slow calls and functions."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Sequence

from stallprobes.foreign_text import printable
from stallprobes.units import duration_ns, format_count, in_ms, in_us, plural
from stallprobes.watch import beside_text, division_text, limit_text, line_text, rank_text, sentences
from stallprobes.watch.attribution.findings import (
    CallRow,
    CallSite,
    ExplainedCall,
    ProcessFindings,
    ThreadFindings,
    TimeLost,
    WatchFindings,
    function_of,
    united,
)
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.beside.result import BesideResult, BesideUnit
from stallprobes.watch.causes.order import cause_of
from stallprobes.watch.division.limits import Limit
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.gpu_sharers import LEAST_SHARE
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.live.live_view import alike_calls, calls_in_flight
from stallprobes.wording.watch_wording import not_recorded, process_prefix
from stallscope.report.columns import cut_columns, display_width
from stallscope.report.division_bar import bar, legend
from stallscope.report.remedy_text import with_code
from stallscope.report.table import TableCell, TableColumn
from stallscope.report.text import TextWriter

# Largest width (columns) of a program's command line as the title of its report.
_LONGEST_TITLE = 100
# Largest number of entries in each of these lists of watch's report: headlines of threads, headlines of MPI ranks,
# processes, sequences of one process, and costs of watching. A sequence is a group of threads that take turns to call
# the driver.
_MOST_HEADLINES = 5
# Largest width (columns) of the bar that shows into which parts a sequence's time is divided.
_WIDEST_BAR = 80
# _MOST_LISTED: largest number of entries of a list in the report. _MOST_ROWS: largest number of rows of a table, and of
# threads with a table.
_MOST_LISTED, _MOST_ROWS = 10, 12
# Largest numbers of (source lines, places where the program waits) in the report for the first sequence of a process. A
# sequence is a group of threads that take turns to call the driver.
_MOST_OF_FIRST = (5, 3)
# Largest numbers of (source lines, places where the program waits) in the report for each other sequence of a process.
_MOST_OF_OTHERS = (2, 1)
# Largest number of sentences per process in the report, each about a call that blocks calls of other threads.
_MOST_HOLDING = 3
# Largest height (lines) that two parts of a sequence's report have together: the sentence on the sequence's steps, and
# the list of costly source lines. Reason: a report on a single sequence then fits a screen of 40 lines. Exception: the
# first source line is always listed.
_ROOM_OF_LINES = 16
# Smallest share (0 to 1) of a thread's time lost to slow calls at which the thread gets a headline. If no thread has
# lost this share, only the thread with the largest share gets a headline.
_LEAST_SHARE = 0.005
# Columns of the table of causes.
_CAUSE_COLUMNS = (
    TableColumn("cause"),
    TableColumn("slow calls", right=True),
    *(TableColumn(name, right=True, unit=unit) for name, unit in (("time", "ms"), ("share", "%"), ("proven", "%"))),
)
# Columns of the table of a thread's functions.
_ROW_COLUMNS = (
    TableColumn("call", whole=True),
    TableColumn("calls", right=True),
    *(TableColumn(name, right=True, unit="µs") for name in ("p50", "p99", "max")),
    *(TableColumn(name, right=True, unit="ms") for name in ("time", "lost")),
)


# Columns of the table of aggressors beside the program.
_BESIDE_COLUMNS = (
    TableColumn("beside", whole=True),
    *(TableColumn(name, right=True) for name in ("turns", "p50", "p99", "×", "95 %")),
)


# Smallest share of the time in kernels, and between them, of a sequence whose kernels the report lists.
_LEAST_KERNELS = 0.3
# The same of a sequence of which the report says what limits its kernels, where that is known.
_LEAST_LIMITED = 0.05
# Verdicts that make a sequence's kernels the most important part of its time.
_BOUND_BY_KERNELS = (Bound.GPU, Bound.GAPS, Bound.HELD, Bound.STREAMS, Bound.SHARED, Bound.COMMUNICATION)
# Largest number of kernels that the report lists of a sequence. _MOST_KERNELS: with a verdict of _BOUND_BY_KERNELS.
# _FEW_KERNELS: with another verdict. _MOST_KERNELS_IN_FULL: with --full.
_MOST_KERNELS, _FEW_KERNELS, _MOST_KERNELS_IN_FULL = 5, 3, 20
# Thread with its process.
_Place = tuple[ThreadFindings, ProcessFindings]


def command_title(words: Sequence[str]) -> str:
    """A command as the title of its report: its words as in a shell, cut where they are long."""
    text = printable(shlex.join(words))
    return text if display_width(text) <= _LONGEST_TITLE else f"{cut_columns(text, _LONGEST_TITLE - 1)}…"


def show_watch(out: TextWriter, findings: WatchFindings, title: str, full: bool = True) -> None:
    """``findings`` about the program ``title``.

    ``full`` adds the time lost by cause and place, the slow calls one by one, and a table of functions per thread. A
    program without a steady state gets the first two in any case: its lines say little of it.
    """
    places = [(thread, process) for process in findings.processes for thread in process.threads]
    several = len(findings.processes) > 1
    steady = any(process.division is not None and process.division.steady for process in findings.processes)
    _headline(out, findings, title, several, full)
    if findings.beside is not None:
        _beside(out, findings.beside)
    if full or not steady:
        _waiting(out, findings, places, several)
    missing = list(findings.problems)
    missing += (text for process in findings.processes for text in not_recorded(process, several))
    out.section("Not recorded", dict.fromkeys(missing), "warn")
    _costs(out, findings.processes, several)
    for cost in findings.attached[:_MOST_LISTED]:
        out.line()
        out.paragraph(sentences.attaching_text(cost))
    if full or not steady:
        _causes(out, findings.processes)
        _sites(out, findings.processes, several)
    if full:
        _slow_calls(out, findings, several)
    _in_flight(out, findings, several)
    if full:
        _tables(out, places, several)
    elif any(thread.rows for thread, _ in places):
        more = (
            "Slow calls by cause, place and one by one, functions" if steady else "The slow calls one by one, functions"
        )
        out.note(f"{more} of each thread: --full.")


def _headline(out: TextWriter, findings: WatchFindings, title: str, several: bool, full: bool) -> None:
    calls = sum(process.calls for process in findings.processes)
    processes = f"{len(findings.processes)} {'process' if len(findings.processes) == 1 else 'processes'}"
    made = f"{format_count(calls)} {'call' if calls == 1 else 'calls'}"
    if any(process.cost is not None and process.cost.followed < 1 for process in findings.processes):
        made += " followed"
    if not findings.processes:
        out.paragraph(title, style="strong")
        out.paragraph("No process recorded a CUDA call while it was watched.")
        return
    out.paragraph(" · ".join([title, processes, duration_ns(findings.duration_ns), made]), style="strong")
    for text in rank_text.ranks_texts(findings.processes)[:_MOST_HEADLINES]:
        out.paragraph(text[:1].upper() + text[1:], indent="  ", first="", style="warn")
    _divisions(out, findings.processes, several, full)


def _beside(out: TextWriter, beside: BesideResult) -> None:
    """What aggressors beside the program did to its steps: a table, and what else is known."""
    out.line()
    rows = [
        (
            row.aggressor,
            str(row.turns),
            beside_text.change_text(row.off.p50_ns, row.on.p50_ns),
            beside_text.change_text(row.off.p99_ns, row.on.p99_ns),
            TableCell(beside_text.factor_text(row), row.outcome.style),
            beside_text.interval_text(row),
        )
        for row in beside.rows
    ]
    if rows:
        step = "step p50" if beside.unit is BesideUnit.STEP else "from wait to wait"
        out.paragraph(f"Beside the program, {step} without → with each aggressor:", style="strong")
        out.table(_BESIDE_COLUMNS, rows)
    for text in beside_text.beside_texts(beside):
        out.paragraph(text, indent="  ", first="", style="warn" if text == beside.problem else "")


def _waiting(out: TextWriter, findings: WatchFindings, places: Sequence[_Place], several: bool) -> None:
    """The time that threads lost to slow calls, by cause."""
    calls = sum(process.calls for process in findings.processes)
    if any(process.division is not None or process.sequences for process in findings.processes):
        out.line()
    waiting = sorted((place for place in places if place[0].lost_ns), key=lambda place: -place[0].lost_share)
    shown = [place for place in waiting if place[0].lost_share >= _LEAST_SHARE][:_MOST_HEADLINES] or waiting[:1]
    for thread, process in shown:
        out.paragraph(process_prefix(process, several) + sentences.headline(thread), indent="  ", first="")
    if len(waiting) > len(shown):
        out.paragraph(f"{plural(len(waiting) - len(shown), 'more thread')} lost time to slow calls.", style="dim")
    if not waiting and calls and not calls_in_flight(findings):
        out.paragraph(sentences.no_stall_text(findings.slow_limit_ns), style="good")


def _divisions(out: TextWriter, processes: Sequence[ProcessFindings], several: bool, full: bool) -> None:
    """What bounds each process: a verdict, a bar of its time, its figures and its lines for each sequence; then its
    start-up."""
    shown = [process for process in processes if process.division is not None]
    shown.sort(key=lambda process: math.inf if process.rank is None else process.rank.number)
    for process in shown[:_MOST_HEADLINES]:
        assert process.division is not None
        sequences, others = division_text.shown_sequences(process)
        for number, sequence in enumerate(sequences[:_MOST_HEADLINES]):
            _sequence(out, sequence, process, process_prefix(process, several))
            _lines(out, sequence, process, *(_MOST_OF_OTHERS if number else _MOST_OF_FIRST))
            if full or not number:
                _kernels(out, sequence, full)
        for text in process.settings:
            out.paragraph(process_prefix(process, several) + text, indent="  ", first="", style="warn")
        for holding in line_text.holding_calls(process)[:_MOST_HOLDING]:
            text = process_prefix(process, several) + line_text.holding_text(holding, process)
            out.paragraph(text, indent="  ", first="", style="warn")
        others += sum(len(each.threads) for each in sequences[_MOST_HEADLINES:])
        last = (
            division_text.start_up_text(process.division, process.ended),
            division_text.end_text(sequences[0]) if sequences else "",
            division_text.other_threads_text(others),
        )
        if any(last):
            out.paragraph(process_prefix(process, several) + " ".join(filter(None, last)), indent="  ", first="")
    undivided = [process for process in processes if process.division is None and process.sequences]
    for process in undivided[:_MOST_HEADLINES]:
        if text := division_text.undivided_text(process):
            out.paragraph(process_prefix(process, several) + text, indent="  ", first="")
        _lines(out, process.sequences[0], process, *_MOST_OF_FIRST, process_prefix(process, several))


def _kernels(out: TextWriter, sequence: ProgramSequence, full: bool) -> None:
    """What limits the kernels of a sequence, and those with most of its GPU time, where they take enough; ``full``: by
    their whole names."""
    kernels = sequence.share(Part.KERNELS, Part.BETWEEN, Part.COMMUNICATION)
    known = sequence.limit is not None and sequence.limit.limit not in (Limit.UNKNOWN, Limit.SHARED)
    least = _LEAST_LIMITED if known else _LEAST_KERNELS
    if (kernels >= least or full) and (limit := limit_text.limit_text(sequence)):
        out.paragraph(limit, indent="  ", first="")
    if kernels < _LEAST_KERNELS and not full:
        return
    bound = sequence.verdict in _BOUND_BY_KERNELS
    shown = sequence.kernels[: _MOST_KERNELS_IN_FULL if full else _MOST_KERNELS if bound else _FEW_KERNELS]
    if shown:
        out.paragraph("Kernels with most of its GPU time:", style="strong")
    for kernel in shown:
        out.paragraph(division_text.kernel_text(kernel, sequence, full), indent="    ", first="  ")


def _lines(
    out: TextWriter, sequence: ProgramSequence, process: ProcessFindings, most: int, most_waits: int, prefix: str = ""
) -> None:
    """The first lines of a sequence that have room, each with its inner places, and each remedy once."""
    shown = line_text.shown_lines(sequence, most)
    if not shown:
        return
    out.paragraph(f"{prefix}{line_text.lines_title(sequence)}:", style="strong")
    said: set[str] = set()
    room = _ROOM_OF_LINES - out.height(division_text.step_text(sequence), "  ")
    for number, line in enumerate(shown):
        remedy = line_text.remedy_text(line, process, sequence)
        texts = (
            (line_text.line_text(line, process, sequence), "  ", ""),
            (line_text.inner_text(line), None, ""),
            ("" if remedy in said else remedy, None, "dim"),
        )
        room -= sum(out.height(text, "    ", first) for text, first, _ in texts)
        if number and room < 0:
            break
        for text, first, style in texts:
            if text:
                out.paragraph(text, indent="    ", first=first, style=style)
        said.add(remedy)
    if waits := line_text.shown_waits(sequence, most_waits):
        out.paragraph("Waits:", style="strong")
    for wait in waits:
        out.paragraph(line_text.wait_text(wait, process, sequence), indent="    ", first="  ")


def _sequence(out: TextWriter, sequence: ProgramSequence, process: ProcessFindings, prefix: str) -> None:
    style = sequence.verdict.traits.style
    out.paragraph(
        prefix + division_text.verdict_text(sequence, process),
        indent="  ",
        first="",
        style="" if style == "dim" else style,
    )
    width = min(out.width, _WIDEST_BAR)
    out.runs(bar(sequence, width))
    for line in legend(sequence, width):
        out.runs(line)
    shared = division_text.sharers_text(process) if sequence.share(Part.SHARED) >= LEAST_SHARE else ""
    texts = (*line_text.sequence_texts(sequence, process), division_text.step_text(sequence), shared)
    out.paragraph(" ".join(filter(None, texts)), indent="  ", first="")


def _causes(out: TextWriter, processes: Sequence[ProcessFindings]) -> None:
    """Time lost by cause over all processes, each with what helps."""
    lost = united(loss for process in processes for loss in process.lost)
    total = sum(loss.ns for loss in lost)
    if not total:
        return
    rows = [
        (
            sentences.loss_text(loss),
            format_count(loss.calls),
            in_ms(loss.ns),
            _percent(loss.ns / total),
            "–" if loss.cause is WaitCause.UNATTRIBUTED else _percent(loss.proven_ns / loss.ns),
        )
        for loss in lost[:_MOST_ROWS]
    ]
    out.line()
    out.paragraph("Time lost by cause", style="strong")
    out.table(_CAUSE_COLUMNS, rows)
    if rest := lost[_MOST_ROWS:]:
        time = duration_ns(sum(loss.ns for loss in rest))
        out.paragraph(f"{plural(len(rest), 'more cause')}, {time} in all", style="dim")
    for text in remedies(lost, [call for process in processes for call in process.slow_calls]):
        out.paragraph(text, indent="    ", first="  ", style="dim")


def remedies(lost: Iterable[TimeLost], calls: Sequence[ExplainedCall], thread: int | None = None) -> list[str]:
    """Remedies for each cause of ``lost`` by the slow ``calls``, of one ``thread`` or of all."""
    causes = [cause_of(cause) for cause in dict.fromkeys(loss.cause for loss in lost)]
    return [
        f"{cause.word}: {with_code(*cause.helps(function_of(calls, cause.name, thread)))}"
        for cause in causes
        if cause.remedy
    ]


def _sites(out: TextWriter, processes: Sequence[ProcessFindings], several: bool) -> None:
    """The places in the program that made slow calls, the most time lost first."""
    places = [(site, process) for process in processes for site in process.sites if site.lost_ns]
    places.sort(key=lambda item: -item[0].lost_ns)
    left = f" (the {_MOST_LISTED} of {format_count(len(places))} that lost most)" if len(places) > _MOST_LISTED else ""
    texts = (process_prefix(process, several) + _site(site) for site, process in places[:_MOST_LISTED])
    out.section(f"Slow calls by place in the program{left}", texts)


def _site(site: CallSite) -> str:
    function = f" ({site.function})" if site.is_copy else ""
    most = "without a known cause" if site.cause is WaitCause.UNATTRIBUTED else f"to {cause_of(site.cause).word}"
    return f"{sentences.site_text(site)}{function}: {duration_ns(site.lost_ns)} lost, most of it {most}"


def _slow_calls(out: TextWriter, findings: WatchFindings, several: bool) -> None:
    groups = sorted(alike_calls(findings), key=lambda item: -max(call.duration_ns for call in item[0]))
    left = f" (the slowest {_MOST_LISTED} of {format_count(len(groups))})" if len(groups) > _MOST_LISTED else ""
    texts = (
        f"{process_prefix(process, several)}at {(alike[0].begin_ns - process.began_ns) / 1e9:.3f} s: "
        f"{sentences.call_text(alike[0], alike)}"
        for alike, process in groups[:_MOST_LISTED]
    )
    out.section(f"Slow calls{left}", texts)


def _costs(out: TextWriter, processes: Sequence[ProcessFindings], several: bool) -> None:
    """What watching cost the processes that it cost most."""
    costs = [(process.cost, process) for process in processes if process.cost is not None and process.calls]
    costs.sort(key=lambda item: -item[0].high)
    texts = (process_prefix(process, several) + sentences.cost_text(cost) for cost, process in costs[:_MOST_HEADLINES])
    if several:
        out.section("Cost of watching", texts)
        return
    for text in texts:
        out.line()
        out.paragraph(text)


def _in_flight(out: TextWriter, findings: WatchFindings, several: bool) -> None:
    calls = sorted(calls_in_flight(findings), key=lambda item: -item[0].age_ns)
    texts = (
        process_prefix(process, several) + sentences.in_flight_text(call, process.ended)
        for call, process in calls[:_MOST_LISTED]
    )
    out.section("Calls in flight", texts)
    if len(calls) > _MOST_LISTED:
        out.paragraph(f"{len(calls) - _MOST_LISTED} more.", indent="  ", style="dim")


def _tables(out: TextWriter, places: Sequence[_Place], several: bool) -> None:
    """A table of its functions for each thread, those that lost and used most time first."""
    used = [place for place in places if place[0].rows]
    used.sort(key=lambda place: (-place[0].lost_ns, -sum(row.total_ns for row in place[0].rows)))
    for thread, process in used[:_MOST_ROWS]:
        where = f" of {rank_text.process_words(process)}" if several else ""
        name = f"Thread {thread.name} ({thread.id})" if thread.name else f"Thread {thread.id}"
        owners = f" and {plural(thread.owners - 1, 'earlier thread')}" if thread.owners > 1 else ""
        out.line()
        out.paragraph(f"{name}{owners}{where} · {duration_ns(thread.alive_ns)}", style="strong")
        out.table(_ROW_COLUMNS, [_cells(row) for row in thread.rows[:_MOST_ROWS]])
        if rest := thread.rows[_MOST_ROWS:]:
            time = duration_ns(sum(row.total_ns for row in rest))
            out.paragraph(f"{plural(len(rest), 'more function')}, {time} in all", indent="  ", style="dim")
    if len(used) > _MOST_ROWS:
        out.line()
        out.paragraph(f"{plural(len(used) - _MOST_ROWS, 'more thread')} made calls.", style="dim")


def _cells(row: CallRow) -> tuple[TableCell | str, ...]:
    total = row.total
    return (
        row.function,
        format_count(total.count),
        in_us(total.percentile(50)),
        in_us(total.percentile(99)),
        in_us(total.max_ns if total.count else None),
        in_ms(row.total_ns),
        TableCell(in_ms(row.lost_ns), "warn") if row.lost_ns else "",
    )


def _percent(share: float) -> str:
    return "<1" if 0 < share < 0.005 else f"{100 * share:.0f}"
