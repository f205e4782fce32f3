"""The headline of a watched program: the time that each thread lost, by cause."""

from __future__ import annotations

from collections.abc import Sequence

from textual.reactive import var

from stallprobes.units import duration_ns, plural
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.live.live_view import WatchedProgram, calls_in_flight
from stallprobes.watch.sentences import headline, thread_text
from stallprobes.wording.watch_wording import process_prefix, state_problem
from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, LineWidget, cut

_LEAST_SHARE = 0.005


class LostTime(LineWidget):
    """Draws headlines, (text, style)."""

    view = var[Sequence[tuple[str, str]]](())

    def lines(self, width: int, height: int) -> list[Line]:
        """As many headlines as fit, the last one cut."""
        out = headline_lines(self.view, width)
        if len(out) > height > 0:
            text, style = out[height - 1][0]
            out[height - 1] = [(cut(f"{text} …", width), style)]
        return out[:height]


def headline_lines(found: Sequence[tuple[str, str]], width: int) -> list[Line]:
    """The lines of all headlines."""
    return [[(f" {line}", style)] for text, style in found for line in wrapped(text, max(20, width - 2))]


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
    found = [(f"{text}.", "warn") for text in (*problems, *(one.rstrip(".") for one in findings.problems))]
    several = len(findings.processes) > 1
    lost = [
        (thread, process_prefix(process.name, process.pid, several))
        for process in findings.processes
        for thread in process.threads
        if thread.lost_share >= _LEAST_SHARE
    ]
    lost.sort(key=lambda item: -item[0].lost_share)
    found += [(where + headline(thread), "strong" if not number else "") for number, (thread, where) in enumerate(lost)]
    if not lost and not problems:
        limit_ns = min(process.slow_limit_ns for process in findings.processes)
        slow = sum(thread.slow_calls for process in findings.processes for thread in process.threads)
        calls = plural(slow, "call")
        oldest = _oldest_in_flight(findings)
        if slow:
            found.append(
                (f"{calls} took {duration_ns(limit_ns)} or longer, less than 0.5 % of each thread's time.", "")
            )
        if oldest is not None:
            found.append((oldest, "bad"))
        elif not slow:
            found.append((f"No stall: no finished call took {duration_ns(limit_ns)} or longer.", "good"))
    return found


def _oldest_in_flight(findings: WatchFindings) -> str | None:
    """The slow call that has been in flight longest, in a sentence; None without one."""
    found = calls_in_flight(findings)
    if not found:
        return None
    call, process = found[0]
    who = thread_text(call.thread, call.thread_name)
    if process.ended:
        return f"{call.function} in {who} had not returned when the process ended, after {duration_ns(call.age_ns)}."
    return f"{call.function} in {who} has not returned for {duration_ns(call.age_ns)}."
