"""The last slow calls of a watched program, each with its sentence; calls that have not returned come first."""

from __future__ import annotations

from collections.abc import Iterator

from textual import events
from textual.message import Message

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


class SlowCallLog(LineWidget):
    """Draws the slow calls of ``findings`` at ``now_ns``, the newest first."""

    class CallClicked(Message):
        """A slow call was clicked."""

        def __init__(self, key: WatchRowKey) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.findings: WatchFindings | None = None
        self.now_ns = 0
        # The row of the call at each drawn line.
        self._keys: list[WatchRowKey | None] = []

    def drawn_state(self) -> object:
        """The findings, which equal only themselves."""
        return (self.findings,)

    def lines(self, width: int, height: int) -> list[Line]:
        """A title and as many calls as fit."""
        self._keys = [None]
        if self.findings is None:
            return [rule("slow calls", width)]
        out: list[Line] = [rule("slow calls", width, self._note(self.findings))]
        for head, text, key, style in entries_of(self.findings, self.now_ns):
            if len(out) >= height:
                break
            parts = wrapped(text, max(20, width - _HEAD - 1))
            for number, part in enumerate(parts):
                out.append([(f" {head if not number else '':<{_HEAD - 2}} ", "dim"), (part, style)])
                self._keys.append(key)
        if len(out) > height:
            *begin, (text, style) = out[height - 1]
            out[height - 1] = [*begin, (cut(f"{text} …", max(width - _HEAD, 1)), style)]
        if len(out) == 1:
            out.append([(" none so far", "dim")])
        return out[:height]

    def _note(self, findings: WatchFindings) -> str:
        count = sum(thread.slow_calls for process in findings.processes for thread in process.threads)
        return f"{count} so far" if count else ""

    def on_click(self, event: events.Click) -> None:
        """Post the row of the clicked call."""
        key = self._keys[event.y] if event.y < len(self._keys) else None
        if key is not None:
            self.post_message(self.CallClicked(key))


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
