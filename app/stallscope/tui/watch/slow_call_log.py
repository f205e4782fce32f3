"""The last slow calls of a watched program, each with its sentence; calls that have not returned come first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from textual.reactive import var

from stallprobes.watch.analysis import SETTLED_NS
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.attribution.findings import CallInFlight, ExplainedCall, ProcessFindings, WatchFindings
from stallprobes.watch.live.live_view import WatchRowKey, calls_in_flight, slow_calls
from stallprobes.watch.sentences import cause_text, in_flight_text, took_text
from stallprobes.wording.watch_wording import process_prefix
from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, LineWidget, cut, rule

_HEAD = 12
# More fit on no screen.
_MOST = 200
# The newest ones.
_BRIGHT = 3


@dataclass(frozen=True)
class SlowCallsView:
    """The slow calls of ``findings``, which equal only themselves, at ``now_ns``."""

    findings: WatchFindings | None = None
    now_ns: int = field(default=0, compare=False)


class SlowCallLog(LineWidget):
    """Draws the slow calls, the newest first; the target of a click is the key of a row."""

    view = var(SlowCallsView())

    def lines(self, width: int, height: int) -> list[Line]:
        """A title and as many calls as fit."""
        findings = self.view.findings
        if findings is None:
            return [rule("slow calls", width)]
        count = sum(thread.slow_calls for process in findings.processes for thread in process.threads)
        head_line = rule("slow calls", width, f"{count} so far" if count else "")
        out: list[tuple[WatchRowKey | None, Line]] = [(None, head_line)]
        for head, text, key, style in entries_of(findings, self.view.now_ns):
            if len(out) >= height:
                break
            for number, part in enumerate(wrapped(text, max(20, width - _HEAD - 1))):
                out.append((key, [(f" {head if not number else '':<{_HEAD - 2}} ", "dim"), (part, style)]))
        if len(out) > height:
            of, (*begin, (text, style)) = out[height - 1]
            out[height - 1] = of, [*begin, (cut(f"{text} …", max(width - _HEAD, 1)), style)]
        if len(out) == 1:
            out.append((None, [(" none so far", "dim")]))
        return self.with_targets(out[:height], width)


def entries_of(findings: WatchFindings, now_ns: int) -> Iterator[tuple[str, str, WatchRowKey, str]]:
    """Head, sentence, row and style of each call."""
    several = len(findings.processes) > 1
    begin_ns = min((process.began_ns for process in findings.processes), default=0)
    for flight, process in calls_in_flight(findings):
        text = _where(process, several) + in_flight_text(flight)
        if process.ended:
            text += " It had not when the process ended."
        yield "at its end" if process.ended else "in flight", text, _key(process, flight), "bad"
    for number, (call, process) in enumerate(slow_calls(findings)):
        if number == _MOST:
            return
        head = f"{(call.begin_ns - begin_ns) / 1e9:.3f} s"
        # Records of the GPU's work arrive later than the call returns.
        open_ = call.cause is WaitCause.UNATTRIBUTED and now_ns - call.end_ns < SETTLED_NS and not process.ended
        text = took_text(call) + ("; its cause is not known yet." if open_ else f" {cause_text(call)}.")
        yield head, _where(process, several) + text, _key(process, call), "" if number < _BRIGHT else "dim"


def _where(process: ProcessFindings, several: bool) -> str:
    return process_prefix(process.name, process.pid, several)


def _key(process: ProcessFindings, call: ExplainedCall | CallInFlight) -> WatchRowKey:
    return WatchRowKey(process.pid, process.image, call.thread, call.function)
