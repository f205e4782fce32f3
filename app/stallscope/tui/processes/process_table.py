"""The table of processes: a row for each, which says whether it can be attached."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from textual.reactive import var

from stallprobes.machine.gpu_processes import ListedProcess
from stallprobes.wording import process_wording
from stallscope.report.columns import display_width, padded, wrapped
from stallscope.tui.common.lines import Line, RowsWidget, cut, fit

# Word for a process that has ended, in the column that says whether a process can be attached (yes, no, own).
_ENDED_WORD = "ENDED"
# Styles of the words that say whether a process can be attached.
_STYLES = {"yes": "good", "no": "warn", "own": "dim", _ENDED_WORD: "warn"}


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


@dataclass(frozen=True)
class _ProcessColumn:
    """A column: its title, its width with the blank behind it, its text, and the least width of the panel for it."""

    title: str
    size: int
    text: Callable[[ProcessRow], str]
    right: bool = False
    least: int = 0


# Columns of the table of processes. A table that is narrower than a column's ``least`` leaves out the column.
_COLUMNS = (
    _ProcessColumn("PID", 9, lambda row: str(row.process.pid), right=True),
    _ProcessColumn("user", 10, lambda row: process_wording.user_text(row.process)),
    _ProcessColumn("GPU", 6, lambda row: process_wording.gpus_text(row.process)),
    _ProcessColumn("type", 6, lambda row: process_wording.kinds_text(row.process), least=100),
    _ProcessColumn("memory", 10, lambda row: process_wording.memory_text(row.process.memory_bytes), right=True),
    _ProcessColumn("SM", 6, lambda row: process_wording.percent_text(row.process.utilization_percent), right=True),
    _ProcessColumn("attach", 8, lambda row: row.word),
)
# Columns with rules of their own. _USER: user's name, which may be wider in a table that also shows _TYPE. _TYPE: kinds
# of the process's contexts (compute, graphics, MPS). _ATTACH: whether the process can be attached.
_USER, _TYPE, _ATTACH = _COLUMNS[1], _COLUMNS[3], _COLUMNS[-1]
# Largest width (columns) of the column _USER in a table that also shows _TYPE.
_WIDE_USER = 24


class ProcessTable(RowsWidget):
    """Draws the table. The target of a click is the key of a row."""

    view = var(ProcessTableView())

    def lines(self, width: int, height: int) -> list[Line]:
        """Titles and rows."""
        view = self.view
        longest = max((display_width(process_wording.user_text(row.process)) for row in view.rows), default=0)
        user = replace(
            _USER, size=min(max(longest + 1, _USER.size), _WIDE_USER if width >= _TYPE.least else _USER.size)
        )
        columns = [user if column is _USER else column for column in _COLUMNS if width >= column.least]
        room = max(width - 1 - sum(column.size for column in columns), 1)
        visible = self.scrolled(view.rows, view.selected, height)
        left_out = len(view.rows) - len(visible)
        head: Line = [(" ", "")]
        head += [(_cell(column.title, column), "dim") for column in columns]
        head.append((cut(f"command ({left_out} more)" if left_out else "command", room), "dim"))
        if not view.rows:
            empty: list[Line] = [[(f" {line}", "")] for line in wrapped(view.empty, max(width - 2, 20))]
            return self.with_targets([(None, line) for line in empty], width)
        out: list[tuple[tuple[int, int] | None, Line]] = [(None, head)]
        out += [(row.key, self._line(row, columns, room, width)) for row in visible]
        return self.with_targets(out, width)

    def _line(self, row: ProcessRow, columns: Sequence[_ProcessColumn], room: int, width: int) -> Line:
        chosen = row.key == self.view.selected
        plain = "focus" if chosen else "dim" if row.ended or row.process.own else ""
        line: Line = [("▸" if chosen else " ", "accent")]
        for column in columns:
            style = plain
            if column is _ATTACH:
                style = f"focus-{_STYLES[row.word]}" if chosen else _STYLES[row.word]
            line.append((_cell(column.text(row), column), style))
        return fit([*line, (cut(process_wording.short_command_text(row.process), room), plain)], width, plain)


def _cell(text: str, column: _ProcessColumn) -> str:
    return f"{padded(cut(text, column.size - 1), column.size - 1, column.right)} "
