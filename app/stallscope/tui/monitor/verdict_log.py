"""The verdicts as sentences: those that hold now, the worst first; then those that are over, the newest first."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Sequence
from functools import lru_cache

from textual import events
from textual.message import Message

from stallprobes.live.view_model import LogEntry
from stallscope.tui.common.lines import Drawn, Line, rule

_ROOMY = 7
_MARKS = {"stalled": "bad", "starved": "bad", "failed": "bad", "slower": "warn", "host": "warn"}
_WORDS = {"stalled": "STALLED", "starved": "STARVED", "host": "host noise", "gpu-time": "GPU time"}


class VerdictLog(Drawn):
    """Draws ``entries``; ``note`` stands there as long as there is none. ``stale`` says that what holds in them is
    what was seen last. Clicking an entry picks it."""

    class Picked(Message):
        """An entry was clicked."""

        def __init__(self, entry: LogEntry) -> None:
            super().__init__()
            self.entry = entry

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.entries: tuple[LogEntry, ...] = ()
        self.note = ""
        self.expect = ""
        self.stale = False
        self._owners: list[LogEntry | None] = []

    def lines(self, width: int, height: int) -> list[Line]:
        """A title and as many entries as there is room for."""
        now = [entry for entry in self.entries if entry.ended_s is None]
        when = "last seen" if self.stale else "now"
        note = f"{len(now)} {when}, {len(self.entries) - len(now)} over" if self.entries else ""
        out: list[Line] = [rule("verdicts", width, note)]
        self._owners = [None]
        # Where there is little room, what is there is told before what was to be expected.
        if self.expect and (height >= _ROOMY or not now):
            for text in textwrap.wrap(f"Watch for: {self.expect}", max(20, width - 2))[:2]:
                out.append([(f" {text}", "accent")])
                self._owners.append(None)
        if not self.entries:
            out += [[(f" {text}", "dim")] for text in textwrap.wrap(self.note, max(20, width - 2))]
        for entry in worst_first(self.entries):
            if len(out) >= height:
                break
            new = entry_lines(entry, width)
            out += new
            self._owners += [entry] * len(new)
        return out[:height]

    def on_click(self, event: events.Click) -> None:
        """Pick what was clicked."""
        entry = self._owners[event.y] if event.y < len(self._owners) else None
        if entry is not None:
            self.post_message(self.Picked(entry))


def worst_first(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """``entries``, given with the newest first: before them all those that hold now, from the worst on."""

    def rank(entry: LogEntry) -> tuple[bool, int, float]:
        if entry.ended_s is not None:
            return True, 0, 0.0
        return False, -entry.verdict.kind.severity, -(entry.verdict.ratio or 0.0)

    return sorted(entries, key=rank)


@lru_cache(256)
def entry_lines(entry: LogEntry, width: int) -> list[Line]:
    """One entry folded to ``width``: when, for how long, what, why, and what helps."""
    kind = entry.verdict.kind
    word = _WORDS.get(kind, kind)
    clock = time.strftime("%H:%M:%S", time.localtime(entry.began_s))
    over = "" if entry.ended_s is None else f" (over after {max(entry.ended_s - entry.began_s, 0.1):.1f} s)"
    helps = f" What helps: {entry.verdict.remedy}" if entry.verdict.remedy else ""
    text = f"{entry.text}{over}{helps}"
    head = f" {clock} {word:<8} "
    room = max(20, width - len(head) - 1)
    mark = _MARKS.get(kind, "accent") if entry.ended_s is None else "dim"
    folded = textwrap.wrap(text, room, break_on_hyphens=False)
    out: list[Line] = []
    for number, part in enumerate(folded):
        if number == 0:
            out.append([(f" {clock} ", "dim"), (f"{word:<8} ", mark), (part, "" if entry.ended_s is None else "dim")])
        else:
            out.append([(" " * len(head), ""), (part, "dim" if entry.ended_s is not None else "")])
    return out
