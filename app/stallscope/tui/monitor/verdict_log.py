"""The verdict log: current verdicts in three lines each, the worst first, then past ones in a line each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from stallprobes.live.view_model import LogEntry
from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, TargetLine, cut, length, rule
from stallscope.tui.common.verdict_lines import LABEL, explanation_lines, figures, keyed
from stallscope.tui.monitor.guide import Guide

# Height (lines) below which a log with a current verdict leaves out less important texts: the expected result, the
# progress of probes, and the second line of the next step. A log above this height folds long texts of its guide; any
# other log cuts these texts.
_ROOMY = 7


@dataclass(frozen=True)
class VerdictLogView:
    """The ``entries`` of the log, or the status of ``guide`` without a current one; ``expect`` says what to expect of
    the pattern.

    ``progress`` are sentences on probes that have too few calls for a verdict, in place of the status. With
    ``engine_stopped`` current verdicts are the last known ones. ``keys_of`` are the keys of probes by name;
    ``remedy_key`` measures a remedy, and ``blame_key`` finds a cause that is not known, each "" where it does not.
    ``titled``: the panel has a title.
    """

    entries: tuple[LogEntry, ...] = ()
    guide: Guide = field(default_factory=Guide)
    expect: str = ""
    progress: tuple[str, ...] = ()
    engine_stopped: bool = False
    keys_of: Mapping[str, str] = field(default_factory=dict)
    remedy_key: str = ""
    blame_key: str = ""
    titled: bool = True


def log_lines(view: VerdictLogView, width: int, height: int) -> list[TargetLine]:
    """A title, what to expect of the pattern, and as many verdicts as fit; the target is an entry."""
    room = max(20, width - 2)
    current = [entry for entry in view.entries if entry.ended_s is None]
    when = "last known" if view.engine_stopped else "current"
    note = f"{len(current)} {when}, {len(view.entries) - len(current)} past" if view.entries else ""
    out: list[TargetLine] = [(None, rule("verdicts", width, note))] if view.titled else []
    for label, style, text in view.guide.lines:
        # What is folded in a high panel is cut in a low one.
        folded = wrapped(text, room - LABEL) if height > _ROOMY else [cut(text, width - LABEL - 1)]
        for number, part in enumerate(folded[:2]):
            out.append((None, [(f" {'' if number else label:<{LABEL - 1}}", style), (part, "")]))
    # In a low panel verdicts are more important.
    if view.expect and not view.guide.lines and (height >= _ROOMY or not current):
        lines = wrapped(view.expect, room)
        if len(lines) > 2:
            lines = [lines[0], cut(f"{lines[1]} {lines[2]}", room)]
        out += [(None, [(f" {line}", "accent")]) for line in lines]
    if height >= _ROOMY or not current:
        out += [(None, [(f" {line}", "")]) for text in view.progress for line in wrapped(text, room)]
    # A verdict needs the lines more than a hint.
    next_step = _next_step(view.guide, room, 1 if (current or view.guide.lines) and height < _ROOMY else 2)
    if not current:
        if not view.progress and view.guide.status:
            out += [(None, [(f" {line}", "dim")]) for line in wrapped(view.guide.status, room)]
        out += [(None, line) for line in next_step]
    for number, entry in enumerate(worst_first(view.entries)):
        # The next step follows the worst verdict.
        after = next_step if number == 0 and entry.ended_s is None else []
        left = height - len(out) - len(after)
        if left <= 0:
            break
        lines_of_entry = entry_lines(entry, view, width)
        # A cause without its remedy says too little to take the line of another verdict.
        out += [(entry, line) for line in lines_of_entry[: len(lines_of_entry) if left >= len(lines_of_entry) else 1]]
        out += [(None, line) for line in after]
    return out[:height]


def _next_step(guide: Guide, room: int, most: int) -> list[Line]:
    """The next step of the guide in ``most`` lines."""
    style = "accent" if guide.urgent else "dim"
    lines = wrapped(guide.next_step, room)
    if len(lines) > most:
        lines = [*lines[: most - 1], cut(" ".join(lines[most - 1 :]), room)]
    return [[(f" {line}", style)] for line in lines]


def worst_first(entries: Sequence[LogEntry]) -> list[LogEntry]:
    """``entries``, given with the newest first: current ones by severity, then past ones."""

    def rank(entry: LogEntry) -> tuple[bool, int, float]:
        if entry.ended_s is not None:
            return True, 0, 0.0
        return False, -entry.verdict.kind.severity, -(entry.verdict.ratio or 0.0)

    return sorted(entries, key=rank)


def entry_lines(entry: LogEntry, view: VerdictLogView, width: int) -> list[Line]:
    """The lines of an entry: the event, then the cause and the remedy of a current one; from 80 columns on none is
    cut."""
    verdict = entry.verdict
    lines = [_what(entry, view.keys_of, width)]
    if entry.ended_s is not None:
        return lines
    return [*lines, *explanation_lines(verdict, width, view.keys_of, view.remedy_key, view.blame_key)]


def _what(entry: LogEntry, keys_of: Mapping[str, str], width: int) -> Line:
    """The event, its switch and its time; the time, then the switch are left out if they do not fit."""
    verdict, past = entry.verdict, entry.ended_s is not None
    look = verdict.kind.look
    clock = time.strftime("%H:%M:%S", time.localtime(entry.began_s))
    line: Line = [(f" {look.word:<8} ", "dim" if past else look.style)]
    key = keys_of.get(verdict.probe, "").strip()
    line += [(f"{key} ", "dim" if past else "key")] if key else []
    line.append((f"{verdict.probe}  {figures(verdict)}", "dim" if past else ""))
    since = f"  since {keyed(entry.since, keys_of)}" if entry.since else ""
    lasted = f"  {_duration(entry, entry.ended_s)}" if entry.ended_s is not None else ""
    ends = (f"{lasted}{since}, {clock}" if since else f"{lasted}  {clock}", f"{lasted}{since}", lasted)
    end = next((candidate for candidate in ends if length(line) + len(candidate) < width), "")
    return [*line, (end, "dim")]


def _duration(entry: LogEntry, ended_s: float) -> str:
    text = f"{max(ended_s - entry.began_s, 0.1):.1f} s"
    return f"{text}, until {entry.cut_off}" if entry.cut_off else f"lasted {text}"
