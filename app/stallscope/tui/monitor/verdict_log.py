"""The verdict log: current verdicts, the worst first, then past ones, the newest first."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from textual.reactive import var

from stallprobes.live.view_model import LogEntry
from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, LineWidget, cut, length, rule
from stallscope.tui.monitor.guide import Guide

# From this height on the expected result is shown above the verdicts.
_ROOMY = 7
_INDENT = "   "
# More lines than any entry has.
_WHOLE = 1000


@dataclass(frozen=True)
class VerdictLogView:
    """The ``entries`` of the log, or the status of ``guide`` without a current one; ``expect`` says what to expect of
    the pattern.

    ``progress`` are sentences on probes that have too few calls for a verdict, in place of the status. With
    ``engine_stopped`` current verdicts are the last known ones.
    """

    entries: tuple[LogEntry, ...] = ()
    guide: Guide = field(default_factory=Guide)
    expect: str = ""
    progress: tuple[str, ...] = ()
    engine_stopped: bool = False


class VerdictLog(LineWidget):
    """Draws the verdicts below what to expect of the pattern; the target of a click is an entry."""

    view = var(VerdictLogView())

    def lines(self, width: int, height: int) -> list[Line]:
        """A title and as many entries as fit."""
        view, room = self.view, max(20, width - 2)
        current = [entry for entry in view.entries if entry.ended_s is None]
        when = "last known" if view.engine_stopped else "current"
        note = f"{len(current)} {when}, {len(view.entries) - len(current)} past" if view.entries else ""
        out: list[tuple[LogEntry | None, Line]] = [(None, rule("verdicts", width, note))]
        # In a low panel verdicts are more important.
        if view.expect and (height >= _ROOMY or not current):
            lines = wrapped(view.expect, room)
            if len(lines) > 2:
                lines = [lines[0], cut(f"{lines[1]} {lines[2]}", room)]
            out += [(None, [(f" {line}", "accent")]) for line in lines]
        if height >= _ROOMY or not current:
            out += [(None, [(f" {line}", "")]) for text in view.progress for line in wrapped(text, room)]
        # A verdict needs the lines more than a hint.
        next_step = _next_step(view.guide, room, 1 if current and height < _ROOMY else 2)
        if not current:
            if not view.progress:
                out += [(None, [(f" {line}", "dim")]) for line in wrapped(view.guide.status, room)]
            out += [(None, line) for line in next_step]
        for number, entry in enumerate(worst_first(view.entries)):
            # The next step follows the worst verdict.
            after = next_step if number == 0 and entry.ended_s is None else []
            left = height - len(out) - len(after)
            if left <= 0:
                break
            out += [(entry, line) for line in _lines_of(entry, width, left)]
            out += [(None, line) for line in after]
        if len(out) > height:
            # The rest of the entry has no room.
            out[height - 1] = out[height - 1][0], _continued(out[height - 1][1], width)
        return self.with_targets(out[:height], width)


def _next_step(guide: Guide, room: int, most: int) -> list[Line]:
    """The next step of the guide in ``most`` lines."""
    style = "accent" if guide.urgent else "dim"
    lines = wrapped(guide.next_step, room)
    if len(lines) > most:
        lines = [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), room)]
    return [[(f" {line}", style)] for line in lines]


def _lines_of(entry: LogEntry, width: int, most: int) -> list[Line]:
    """One entry in ``most`` lines: a current one with a line each for cause and remedy, where it then fits whole."""
    parts, whole = short_lines(entry, width, _WHOLE), entry_lines(entry, width)
    if entry.ended_s is None and len(parts) <= most:
        return parts
    return whole if len(whole) <= most else short_lines(entry, width, most)


def _continued(line: Line, width: int) -> Line:
    """``line`` with an ellipsis at its end, in place of a word where there is no room."""
    *begin, (text, style) = line
    if length(line) + 2 > width:
        text = text.rpartition(" ")[0] or text[:-2]
    return [*begin, (text, style), (" …", "dim")]


def worst_first(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """``entries``, given with the newest first: current ones by severity, then past ones."""

    def rank(entry: LogEntry) -> tuple[bool, int, float]:
        if entry.ended_s is not None:
            return True, 0, 0.0
        return False, -entry.verdict.kind.severity, -(entry.verdict.ratio or 0.0)

    return sorted(entries, key=rank)


def _duration(entry: LogEntry, ended_s: float) -> str:
    text = f"{max(ended_s - entry.began_s, 0.1):.1f} s"
    return f"{text}, until {entry.cut_off}" if entry.cut_off else f"lasted {text}"


@lru_cache(256)
def short_lines(entry: LogEntry, width: int, most: int) -> list[Line]:
    """One entry in ``most`` lines: what happened, its cause and its remedy begin a line each, and end with … where cut.

    With fewer lines than that, only the first of them.
    """
    verdict = entry.verdict
    what = " ".join(part for part in (verdict.head, _past(entry), entry.onset) if part)
    texts = [text for text in (what, _labelled("Cause", verdict.cause), _labelled("Remedy", verdict.remedy)) if text]
    begin, style = _head(entry), "dim" if entry.ended_s is not None else ""
    # Only the first line stands beside time and kind: a cause or a remedy then fits into a line of 80 columns.
    head = " " * length(begin)
    parts = [
        wrapped(text, max(20, width - 1), first=_INDENT if number else head, indent=_INDENT)
        for number, text in enumerate(texts[:most])
    ]
    shares = [1] * len(parts)
    for number, part in enumerate(parts):
        shares[number] = min(len(part), 1 + most - sum(shares))
    lines: list[Line] = []
    for part, share in zip(parts, shares, strict=True):
        lines += [[(line, style)] for line in part[:share]]
        if len(part) > share:
            lines[-1] = _continued(lines[-1], width - 1)
    (first, _), *rest = lines[0]
    return [[*begin, (first[len(head) :], style), *rest], *lines[1:]]


def _labelled(label: str, text: str) -> str:
    return f"{label}: {text}" if text else ""


def _past(entry: LogEntry) -> str:
    return "" if entry.ended_s is None else f"({_duration(entry, entry.ended_s)})"


def _head(entry: LogEntry) -> Line:
    """Time and kind of an entry."""
    look, past = entry.verdict.kind.look, entry.ended_s is not None
    clock = time.strftime("%H:%M:%S", time.localtime(entry.began_s))
    return [(f" {clock} ", "dim"), (f"{look.word:<8} ", "dim" if past else look.style)]


@lru_cache(256)
def entry_lines(entry: LogEntry, width: int) -> list[Line]:
    """One entry wrapped to ``width``: time, kind, sentence, duration of a past one, and remedy."""
    lasted = f" {_past(entry)}".rstrip()
    remedy = f" Remedy: {entry.verdict.remedy}" if entry.verdict.remedy else ""
    begin = _head(entry)
    parts = wrapped(f"{entry.text}{lasted}{remedy}", max(20, width - length(begin) - 1))
    style = "dim" if entry.ended_s is not None else ""
    indent = [(" " * length(begin), "")]
    return [[*(indent if number else begin), (part, style)] for number, part in enumerate(parts)]
