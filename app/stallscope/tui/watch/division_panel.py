"""The panel of what bounds a watched program: verdict, bar of its time, figures, lines, and what watching costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from stallprobes.watch.attribution.findings import ProcessFindings, WatchFindings
from stallprobes.watch.division.result import SequenceDivision
from stallprobes.watch.division_text import figures_text, shown_sequences, verdict_texts
from stallprobes.watch.line_text import short_line_text, shown_lines
from stallprobes.watch.lines.result import ProgramLine, ProgramSequence
from stallprobes.watch.rank_text import ranks_texts
from stallprobes.watch.reading.call_stack import StackFrame
from stallprobes.watch.sentences import short_cost_text
from stallprobes.wording.watch_wording import process_prefix
from stallscope.report.columns import display_width
from stallscope.report.division_bar import bar, legend
from stallscope.tui.common.lines import Line, TargetLine, cut, fit

# _MOST_MORE: largest number of sequences (threads that take turns to call the driver) that the panel shows below the
# first sequence, each with a verdict and a bar. _MOST_LINES: largest number of lines of the watched program that the
# panel lists for the first sequence.
_MOST_MORE, _MOST_LINES = 3, 5
# Number of lines that the first sequence takes in the panel for verdict, bar, legend and figures, without its program
# lines.
_FIRST_LINES = 4
# Blanks at each side of a bar.
_BESIDE_BAR = 1


class LineKey(NamedTuple):
    """A line of a program: its process, with the number of images before, and place and thread of the line."""

    pid: int
    image: int
    thread: int
    place: StackFrame | None


@dataclass(frozen=True)
class ShownLine:
    """A line of the program with its sequence and process."""

    line: ProgramLine
    sequence: ProgramSequence
    process: ProcessFindings

    @property
    def key(self) -> LineKey:
        """Key by which the line stays selected, as long as it is shown."""
        return LineKey(self.process.pid, self.process.image, self.line.thread, self.line.place)


@dataclass(frozen=True)
class DivisionView:
    """What bounds the processes of ``findings``, which equal only themselves; a line may be ``selected``."""

    findings: WatchFindings | None = None
    selected: LineKey | None = None

    @property
    def height(self) -> int:
        """Number of lines that show everything but the lines of the program."""
        count = sum(1 for _ in shown_sequences_of(self.findings))
        return len(self.ranks) + _FIRST_LINES + 2 * min(count - 1, _MOST_MORE) if count else 0

    @property
    def ranks(self) -> list[str]:
        """The sentence about the rank for which others wait longest, if they wait for one."""
        return [] if self.findings is None else ranks_texts(self.findings.processes)[:1]

    @property
    def program_lines(self) -> list[ShownLine]:
        """Lines of the program of the first sequence that are worth showing."""
        for sequence, process, _ in shown_sequences_of(self.findings):
            return [ShownLine(line, sequence, process) for line in shown_lines(sequence, _MOST_LINES)]
        return []

    def drawn_lines(self, height: int) -> list[ShownLine]:
        """Program lines for which a panel of ``height`` lines has room."""
        lines, height = self.program_lines, height - len(self.ranks)
        above = min(height, 2 + (height >= 3) + (height >= _FIRST_LINES + len(lines)))
        return lines[: height - above]


def division_lines(view: DivisionView, width: int, height: int) -> list[TargetLine]:
    """Who waits for which rank, then the first sequence: the verdict with the cost of watching, a bar, its legend,
    figures, and lines of the program, as many as fit; other sequences in two lines each.

    Where not all lines of the program fit, there are more of them in place of the figures. The target is the key of a
    line of the program.
    """
    out: list[Line] = [[(cut(f" {text}", width), "warn")] for text in view.ranks]
    targets: dict[int, LineKey] = {}
    room = height - len(out)
    figures = room >= _FIRST_LINES + len(view.program_lines)
    for number, (sequence, process, prefix) in enumerate(shown_sequences_of(view.findings)):
        if number and len(out) + 2 > height:
            break
        cost = short_cost_text(process.cost) if not number and process.cost is not None else ""
        texts = [f" {prefix}{text}" for text in verdict_texts(sequence, process)]
        # The longest one beside the cost, or else the longest one.
        fitting = [text for room in (_room(cost, width), width) for text in texts if display_width(text) <= room]
        text = fitting[0] if fitting else texts[-1]
        verdict: Line = [(cut(text, width), sequence.verdict.traits.style)]
        stated = _with_cost(verdict, cost, width)
        out += [verdict, _bar(sequence, width)]
        if not number and room >= 3:
            out.append(_legend(sequence, width))
            if not stated:
                _with_cost(out[-1], cost, width)
        if not number and figures:
            out.append([(cut(f" {figures_text(sequence)}", width), "dim")])
        if not number:
            for shown in view.drawn_lines(height):
                targets[len(out)] = shown.key
                out.append(_program_line(shown, view.selected, width))
    return [(targets.get(at), line) for at, line in enumerate(out[:height])]


def _program_line(shown: ShownLine, selected: LineKey | None, width: int) -> Line:
    text = short_line_text(shown.line, shown.process, shown.sequence)
    if shown.key != selected:
        return [(cut(text, width), "")]
    return fit([("▸", "accent"), (cut(text[1:], width - 1), "focus")], width, "focus")


def shown_sequences_of(findings: WatchFindings | None) -> Iterator[tuple[ProgramSequence, ProcessFindings, str]]:
    """The sequences worth a line, each with its process and the words that name that: ranks in their order, then the
    busiest process first."""
    processes = () if findings is None else findings.processes
    for process in sorted(processes, key=_order):
        if process.division is not None:
            prefix = process_prefix(process, len(processes) > 1)
            # Before the steady state begins, it is all of the run so far.
            prefix = prefix if process.division.steady or process.ended else f"{prefix}So far: "
            for sequence in shown_sequences(process)[0]:
                yield sequence, process, prefix


def _order(process: ProcessFindings) -> tuple[bool, int]:
    # Ranks make about as many calls each, and would change places with every reading.
    return process.rank is None, -process.calls if process.rank is None else process.rank.number


def _room(cost: str, width: int) -> int:
    return width - display_width(cost) - 2


def _with_cost(line: Line, cost: str, width: int) -> bool:
    """Add the cost at the right end of a line; False where there is no room for it."""
    taken = sum(display_width(text) for text, _ in line)
    if taken > _room(cost, width):
        return False
    line += [(" " * (_room(cost, width) + 1 - taken), ""), (cost, "dim"), (" ", "")]
    return True


def _bar(sequence: SequenceDivision, width: int) -> Line:
    return [(" ", ""), *bar(sequence, width - 2 * _BESIDE_BAR), (" ", "")]


def _legend(sequence: SequenceDivision, width: int) -> Line:
    lines = legend(sequence, width - 2 * _BESIDE_BAR)
    return [(" ", ""), *lines[0]] if lines else []
