"""Panels of a watched program beside its table of calls: headlines, slow calls, and output."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stallprobes.units import duration_ns, plural
from stallprobes.watch.analysis import SETTLED_NS
from stallprobes.watch.attribution.evidence_text import thread_text
from stallprobes.watch.attribution.findings import CallInFlight, ExplainedCall, ProcessFindings, WatchFindings
from stallprobes.watch.attribution.wait_cause import WaitCause
from stallprobes.watch.live.live_view import WatchedProgram, WatchMoment, WatchRowKey, alike_calls, calls_in_flight
from stallprobes.watch.rank_text import ranks_texts
from stallprobes.watch.sentences import cause_text, headline, in_flight_text, no_stall_text, took_text
from stallprobes.wording.watch_wording import process_prefix, state_problem
from stallscope.report.columns import by_column, display_width, wrapped
from stallscope.tui.common.lines import Line, TargetLine, cut, rule
from stallscope.tui.sources.pane_program import ShownOutput

# Smallest share (0 to 1) of a thread's time lost to slow calls at which the thread gets a headline.
_LEAST_SHARE = 0.005
# Width (columns) of the label at the beginning of a panel's entry; the text follows.
_HEAD = 12
# Largest number of groups of slow calls that the list draws: no screen has more lines.
_MOST = 200
# Number of groups with the newest slow calls that are drawn bright.
_BRIGHT = 3


def lost_lines(sentences: Sequence[tuple[str, str]], width: int, height: int) -> list[Line]:
    """As many headlines, (text, style), as fit, the last one cut."""
    out = headline_lines(sentences, width)
    if len(out) > height > 0:
        text, style = out[height - 1][0]
        out[height - 1] = [(cut(f"{text} …", width), style)]
    return out[:height]


def headline_lines(sentences: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """The lines of all headlines."""
    return [[(f" {line}", style)] for text, style in sentences for line in wrapped(text, max(20, width - 2))]


def headlines(findings: WatchFindings | None, program: WatchedProgram | None) -> list[tuple[str, str]]:
    """Sentences about the program as a whole with their styles, the most important first.

    Then those of the threads, the one that lost most first.
    """
    if program is not None and program.problem:
        return [(f"Nothing is recorded: {program.problem}.", "warn")]
    if findings is None or not findings.processes:
        ended = program is not None and program.exit_code is not None
        when = "recorded a CUDA call while it was watched" if ended else "has recorded a CUDA call yet"
        return [(f"No process {when}.", "dim")]
    problems = [text for process in findings.processes if (text := state_problem(process))]
    texts = [(f"{text}.", "warn") for text in (*problems, *(problem.rstrip(".") for problem in findings.problems))]
    if findings.beside is not None:
        texts += [(text, "warn") for text in (findings.beside.problem,) if text]
        texts += [(row.sentence, row.outcome.style) for row in findings.beside.rows[::-1] if row.ratio and row.sentence]
    # The first one is above the verdicts.
    texts += [(text, "warn") for text in ranks_texts(findings.processes)[1:]]
    several = len(findings.processes) > 1
    lost = [
        (thread, process_prefix(process, several))
        for process in findings.processes
        for thread in process.threads
        if thread.lost_share >= _LEAST_SHARE
    ]
    lost.sort(key=lambda item: -item[0].lost_share)
    texts += [(where + headline(thread), "strong" if not number else "") for number, (thread, where) in enumerate(lost)]
    if not lost and not problems:
        limit_ns = findings.slow_limit_ns
        slow = sum(thread.slow_calls for process in findings.processes for thread in process.threads)
        calls = plural(slow, "call")
        oldest = _oldest_in_flight(findings)
        if slow:
            texts.append(
                (f"{calls} took {duration_ns(limit_ns)} or longer, less than 0.5 % of each thread's time.", "")
            )
        if oldest is not None:
            texts.append((oldest, "bad"))
        elif not slow:
            texts.append((no_stall_text(limit_ns), "good"))
    return texts


def _oldest_in_flight(findings: WatchFindings) -> str | None:
    """The slow call that has been in flight longest, in a sentence; None without one."""
    calls = calls_in_flight(findings)
    if not calls:
        return None
    call, process = calls[0]
    who = thread_text(call.thread, call.thread_name)
    if process.ended:
        return f"{call.function} in {who} had not returned when the process ended, after {duration_ns(call.age_ns)}."
    return f"{call.function} in {who} has not returned for {duration_ns(call.age_ns)}."


def slow_call_lines(moment: WatchMoment | None, width: int, height: int) -> list[TargetLine]:
    """A title and as many slow calls as fit, alike ones together, the newest first; the target is the key of a row."""
    if moment is None:
        return [(None, rule("slow calls", width))]
    findings = moment.findings
    count = sum(thread.slow_calls for process in findings.processes for thread in process.threads)
    head_line = rule("slow calls", width, f"{count} so far" if count else "")
    out: list[TargetLine] = [(None, head_line)]
    for head, text, key, style in entries_of(findings, moment.at_ns):
        if len(out) >= height:
            break
        for number, part in enumerate(wrapped(text, max(20, width - _HEAD - 1))):
            out.append((key, [(f" {head if not number else '':<{_HEAD - 2}} ", "dim"), (part, style)]))
    if len(out) > height:
        target, (*begin, (text, style)) = out[height - 1]
        out[height - 1] = target, [*begin, (cut(f"{text} …", max(width - _HEAD, 1)), style)]
    if len(out) == 1:
        out.append((None, [(" none so far", "dim")]))
    return out[:height]


def entries_of(findings: WatchFindings, now_ns: int) -> Iterator[tuple[str, str, WatchRowKey, str]]:
    """Head, sentence, row and style of each call in flight, and of alike calls together."""
    several = len(findings.processes) > 1
    for flight, process in calls_in_flight(findings):
        text = process_prefix(process, several) + in_flight_text(flight, process.ended)
        yield "at its end" if process.ended else "in flight", text, _key(process, flight), "bad"
    for number, (alike, process) in enumerate(alike_calls(findings)[:_MOST]):
        call = alike[0]
        head = f"{(call.begin_ns - findings.began_ns) / 1e9:.3f} s"
        # Records of the GPU's work arrive later than the call returns.
        open_ = call.cause is WaitCause.UNATTRIBUTED and now_ns - call.end_ns < SETTLED_NS and not process.ended
        text = took_text(call, alike) + ("; its cause is not known yet." if open_ else f" {cause_text(call)}.")
        yield head, process_prefix(process, several) + text, _key(process, call), "" if number < _BRIGHT else "dim"


def _key(process: ProcessFindings, call: ExplainedCall | CallInFlight) -> WatchRowKey:
    return WatchRowKey(process.pid, process.image, call.thread, call.function)


def output_lines(output: ShownOutput, width: int, height: int) -> list[Line]:
    """A title, and the end of the output; long lines continue in the next one."""
    out: list[Line] = [rule("output of the program", width)]
    if output.elsewhere:
        return [*out, [(f" {output.elsewhere}", "dim")]]
    pieces: list[str] = []
    for text in reversed(output.lines):
        if len(pieces) >= height - 1:
            break
        pieces[:0] = _pieces(text, max(width - 1, 1))
    return [*out, *([(f" {text}", "")] for text in pieces[-(height - 1) :] if height > 1)]


def _pieces(text: str, width: int) -> list[str]:
    if display_width(text) <= width:
        return [text]
    letters = by_column(text)
    return ["".join(letters[first : first + width]) for first in range(0, len(letters), width)]
