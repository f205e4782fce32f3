"""The table of processes: a row for each, which says whether it can be attached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.reactive import var

from stallprobes.machine.gpu_processes import ListedProcess
from stallprobes.wording import process_wording
from stallscope.report.columns import display_width, padded, wrapped
from stallscope.report.process_text import ATTACH_STYLES
from stallscope.tui.common.lines import Line, RowsWidget, cut, fit

# Word for a process that has ended, in the column that says whether a process can be attached (yes, no, own).
_ENDED_WORD = "ENDED"
# Styles of the words that say whether a process can be attached.
_STYLES = {**ATTACH_STYLES, _ENDED_WORD: "warn"}


@dataclass(frozen=True)
class ProcessRow:
    """A row of the table; its process may have ``ended`` since it was selected."""

    process: ListedProcess
    ended: bool = False

    @property
    def key(self) -> tuple[int, int]:
        """Key of the row's process."""
        return self.process.key

    @property
    def word(self) -> str:
        """Word that says whether the process can be attached."""
        return _ENDED_WORD if self.ended else process_wording.attach_word(self.process)


@dataclass(frozen=True)
class ProcessTableView:
    """The ``rows``, or the sentence ``empty`` without any."""

    rows: Sequence[ProcessRow] = ()
    selected: tuple[int, int] | None = None
    empty: str = ""


# Columns of the table: title, width with the blank behind it, and whether the text is at the right.
_COLUMNS = (
    ("PID", 9, True),
    ("user", 10, False),
    ("GPU", 6, False),
    ("type", 6, False),
    ("memory", 10, True),
    ("SM", 6, True),
    ("attach", 8, False),
)
# Places of columns with rules of their own. _USER: user's name, which may be wider in a wide table. _TYPE: kinds of the
# process's contexts (compute, graphics, MPS), which only a wide table has.
_USER, _TYPE = 1, 3
# Smallest width (columns) of a wide table.
_WIDE = 100
# Largest width (columns) of the column _USER in a wide table.
_WIDE_USER = 24


class ProcessTable(RowsWidget):
    """Draws the table. The target of a click is the key of a row."""

    view = var(ProcessTableView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Titles and rows."""
        view = self.view
        longest = max((display_width(process_wording.user_text(row.process)) for row in view.rows), default=0)
        sizes = [size for _, size, _ in _COLUMNS]
        if width >= _WIDE:
            sizes[_USER] = min(max(longest + 1, sizes[_USER]), _WIDE_USER)
        else:
            sizes[_TYPE] = 0
        room = max(width - 1 - sum(sizes), 1)
        visible = self.scrolled(view.rows, view.selected, height)
        left_out = len(view.rows) - len(visible)
        head: Line = [(" ", ""), *((title, "dim") for title in _cells([title for title, _, _ in _COLUMNS], sizes))]
        head.append((cut(f"command ({left_out} more)" if left_out else "command", room), "dim"))
        if not view.rows:
            empty: list[Line] = [[(f" {line}", "")] for line in wrapped(view.empty, max(width - 2, 20))]
            return self.with_targets([(None, line) for line in empty], width)
        out: list[tuple[tuple[int, int] | None, Line]] = [(None, head)]
        out += [(row.key, self._line(row, sizes, room, width)) for row in visible]
        return self.with_targets(out, width)

    def _line(self, row: ProcessRow, sizes: Sequence[int], room: int, width: int) -> Line:
        chosen = row.key == self.view.selected
        plain = "focus" if chosen else "dim" if row.ended or row.process.own else ""
        *texts, attach = _cells([*process_wording.cells(row.process), row.word], sizes)
        line: Line = [("▸" if chosen else " ", "accent"), *((text, plain) for text in texts)]
        line.append((attach, f"focus-{_STYLES[row.word]}" if chosen else _STYLES[row.word]))
        return fit([*line, (cut(process_wording.short_command_text(row.process), room), plain)], width, plain)


def _cells(texts: Sequence[str], sizes: Sequence[int]) -> list[str]:
    """The texts of a line in the widths ``sizes``; 0 leaves out a column."""
    cells = zip(texts, sizes, _COLUMNS, strict=True)
    return [f"{padded(cut(text, size - 1), size - 1, right)} " for text, size, (_, _, right) in cells if size]
