"""The help of a screen: its keys on one page, and below how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import ClassVar

from rich.style import Style
from textual.binding import Binding, BindingType

from stallscope.report.columns import display_width, padded
from stallscope.tui import settings
from stallscope.tui.actions import Group
from stallscope.tui.common.dialog import TextDialog, section
from stallscope.tui.common.printable_text import PrintableGroup, PrintableText

# Keys of the program itself, which no setting changes.
_PROGRAM_KEYS = "ctrl+p all actions by name · ctrl+z suspend · ctrl+q quit"
# Groups of actions in each column of the help page, from top to bottom.
_COLUMNS = ((Group.RUN, Group.GO_TO), (Group.LOOK, Group.OTHER))
# Smallest width (columns) of a terminal in which groups are side by side.
_TWO_COLUMNS = 80
# Smallest width (columns) of the column of key names on the help page.
_KEYS_WIDTH = 10

# A line about an action: its name, its keys, and its description.
HelpLine = tuple[str, str, str]


def sections(screen: str) -> tuple[tuple[str, str], ...]:
    """How to read a screen: the title and the text of each of its sections of ``help.txt``."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    own, *others = text.partition(f"\n[{screen}]\n")[2].partition("\n[")[0].split("\n= ")
    parts = (section.partition("\n") for section in own.split("# ")[1:])
    shared = (section for other in others for section in sections(other.strip()))
    return (*((title, " ".join(body.split())) for title, _, body in parts), *shared)


class Help(TextDialog[str]):
    """Shows a help: ``lines`` by group, (keys, words, Textual's call); a click returns the call."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "close", "close")]
    HINT = "↓ how to read the screen · esc back"

    def __init__(
        self, title: str, lines: Mapping[Group, Sequence[HelpLine]], sections: Sequence[tuple[str, str]]
    ) -> None:
        super().__init__()
        self._title, self._lines, self._sections = title, lines, sections
        self._calls = [call for group in Group for _, _, call in lines[group]]

    def on_mount(self) -> None:
        """Take the whole screen: all keys stand on one page."""
        self.add_class("page")
        self.query_one("#box").border_title = f"Help: {self._title}"

    def body(self) -> PrintableGroup:
        """The keys, then the sections."""
        text = PrintableText("\n")
        for title, body in self._sections:
            section(text, title, body)
        columns = _COLUMNS if self.app.size.width >= _TWO_COLUMNS else (tuple(Group),)
        section(text, "Settings and keys", f"{settings.path()} (stallscope settings prints a file with all defaults)")
        return PrintableGroup(
            zip_longest(*(self._column(columns, groups) for groups in columns), fillvalue=PrintableText()),
            PrintableText(_PROGRAM_KEYS),
            text,
        )

    def action_run(self, number: int) -> None:
        """Return the call of a clicked line."""
        self.dismiss(self._calls[number])

    def _column(self, columns: Sequence[Sequence[Group]], groups: Sequence[Group]) -> list[PrintableText]:
        """Lines of groups, one group below the other, with their second column aligned over all groups."""
        out: list[PrintableText] = []
        rows = max(len(self._lines[groups[0]]) for groups in columns)
        for group in groups:
            out.append(PrintableText(group, "bold"))
            for keys, words, call in self._lines[group]:
                click = Style(meta={"@click": f"screen.run({self._calls.index(call)})"} if call else None)
                line = PrintableText(no_wrap=True).append(
                    padded(keys, max(_KEYS_WIDTH, display_width(keys) + 1)), Style(bold=True) + click
                )
                out.append(line.append(words, click))
            if group is groups[0]:
                out += [PrintableText()] * (rows - len(self._lines[group]))
        return out
