"""The verdict log: current verdicts in three lines each, the worst first, then past ones in a line each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from textual.reactive import var

from stallprobes.latency.ratio import Quantile
from stallprobes.live.view_model import LogEntry
from stallprobes.units import duration_ns, range_ns, times
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.verdict import Proof, Verdict
from stallscope.report.columns import wrapped
from stallscope.tui.common.lines import Line, LineWidget, cut, length, rule
from stallscope.tui.monitor.guide import Guide

# From this height on the expected result is shown above the verdicts.
_ROOMY = 7
# Columns of the word or label with which a line begins.
_LABEL = 10
_LABELS = {Proof.NONE: "cause", Proof.OPEN: "cause", Proof.PROBABLE: "probably"}
# Kinds whose head says more than a change of one figure.
_OTHER_FIGURES = (VerdictKind.FAILED, VerdictKind.GPU_TIME, VerdictKind.OVERHEAD, VerdictKind.UNSTEADY)


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


class VerdictLog(LineWidget):
    """Draws the verdicts below what to expect of the pattern; the target of a click is an entry."""

    view = var(VerdictLogView())

    def lines(self, width: int, height: int) -> list[Line]:
        """A title and as many entries as fit."""
        view, room = self.view, max(20, width - 2)
        current = [entry for entry in view.entries if entry.ended_s is None]
        when = "last known" if view.engine_stopped else "current"
        note = f"{len(current)} {when}, {len(view.entries) - len(current)} past" if view.entries else ""
        out: list[tuple[LogEntry | None, Line]] = [(None, rule("verdicts", width, note))] if view.titled else []
        for label, style, text in view.guide.lines:
            # What is folded in a high panel is cut in a low one.
            folded = wrapped(text, room - _LABEL) if height > _ROOMY else [cut(text, width - _LABEL - 1)]
            for number, part in enumerate(folded[:2]):
                out.append((None, [(f" {'' if number else label:<{_LABEL - 1}}", style), (part, "")]))
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
            out += [
                (entry, line) for line in lines_of_entry[: len(lines_of_entry) if left >= len(lines_of_entry) else 1]
            ]
            out += [(None, line) for line in after]
        return self.with_targets(out[:height], width)


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
    """One entry: what happened, then of a current one its cause and its remedy, none of them cut from 80 columns on."""
    verdict = entry.verdict
    lines = [_what(entry, view.keys_of, width)]
    if entry.ended_s is not None:
        return lines
    if verdict.short_cause:
        lines.append([*_label(_LABELS.get(verdict.proof, "because")), (_cause(verdict, view.keys_of, width), "")])
    if verdict.short_remedy:
        label = _label(f"{view.remedy_key} remedy" if view.remedy_key else "remedy", view.remedy_key)
        lines.append([*label, (cut(verdict.short_remedy, width - _LABEL - 1), "")])
    elif verdict.proof is Proof.OPEN and view.blame_key:
        label = _label(f"{view.blame_key} blame", view.blame_key)
        lines.append([*label, ("finds which of them it is, by experiment", "")])
    return lines


def _what(entry: LogEntry, keys_of: Mapping[str, str], width: int) -> Line:
    """What happened, since which switch and when: the time, then the switch are left out where they do not fit."""
    verdict, past = entry.verdict, entry.ended_s is not None
    look = verdict.kind.look
    clock = time.strftime("%H:%M:%S", time.localtime(entry.began_s))
    line: Line = [(f" {look.word:<8} ", "dim" if past else look.style)]
    key = keys_of.get(verdict.probe, "").strip()
    line += [(f"{key} ", "dim" if past else "key")] if key else []
    line.append((f"{verdict.probe}  {figures(verdict)}", "dim" if past else ""))
    since = f"  since {_keyed(entry.since, keys_of)}" if entry.since else ""
    lasted = f"  {_duration(entry, entry.ended_s)}" if entry.ended_s is not None else ""
    ends = (f"{lasted}{since}, {clock}" if since else f"{lasted}  {clock}", f"{lasted}{since}", lasted)
    end = next((one for one in ends if length(line) + len(one) < width), "")
    return [*line, (end, "dim")]


def figures(verdict: Verdict) -> str:
    """The figure that changed: ``wait 5.60 µs → 1.92 ms  ×343``; p50 is not named."""
    if verdict.kind is VerdictKind.UNSTEADY and verdict.range_ns is not None:
        return f"{verdict.phase} p50 {range_ns(*verdict.range_ns)}"
    if verdict.kind in _OTHER_FIGURES:
        return verdict.head.removeprefix(f"{verdict.probe}: ")
    what = [] if verdict.phase is None else [verdict.phase.traits.word]
    what += [verdict.quantile] if verdict.quantile is Quantile.P99 else []
    before = "" if verdict.baseline_ns is None else f"{duration_ns(verdict.baseline_ns)} → "
    if verdict.now_ns is None:
        now = "fewer than 3 calls in 0.5 s"
    else:
        now = duration_ns(verdict.now_ns) + (" in flight" if verdict.quantile is Quantile.IN_FLIGHT else "")
    ratio = "" if verdict.ratio is None else f"  {times(verdict.ratio)}"
    return f"{' '.join((*what, verdict.label)).strip()} {before}{now}{ratio}"


def _cause(verdict: Verdict, keys_of: Mapping[str, str], width: int) -> str:
    """The short cause, with the aggressors that it names as far as they fit: their names, else their keys."""
    room, text = width - _LABEL - 1, verdict.short_cause
    if not verdict.aggressors:
        return cut(text, room)
    of = "of " if verdict.proof in (Proof.RULE, Proof.SWITCHING, Proof.BLAME) else ""
    names = [_keyed(name, keys_of) for name in verdict.aggressors]
    keys = [_key(name, keys_of) for name in verdict.aggressors]
    for found in (names, keys):
        if not all(found):
            continue
        words = f"{text}; {' or '.join(found)}" if verdict.proof is Proof.OPEN else f"{of}{' or '.join(found)}: {text}"
        if len(words) <= room:
            return words
    return cut(text, room)


def _key(name: str, keys_of: Mapping[str, str]) -> str:
    """The key of an aggressor, of the first of several threads; "" where it has none."""
    return (keys_of.get(name) or keys_of.get(f"{name} 1") or "").strip()


def _keyed(name: str, keys_of: Mapping[str, str]) -> str:
    return f"{_key(name, keys_of)} {name}".lstrip()


def _label(text: str, key: str = "") -> Line:
    """The begin of a line, ``key`` in the style of keys."""
    rest = f"{text.removeprefix(key):<{_LABEL - 1 - len(key)}}"
    return [(" ", ""), *([(key, "key")] if key else []), (rest, "dim")]


def _duration(entry: LogEntry, ended_s: float) -> str:
    text = f"{max(ended_s - entry.began_s, 0.1):.1f} s"
    return f"{text}, until {entry.cut_off}" if entry.cut_off else f"lasted {text}"
