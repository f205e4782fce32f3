"""The help of a screen: its keys, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from textual.binding import Binding, BindingType

from stallscope.tui import settings
from stallscope.tui.actions import Action, key_label, keys_of
from stallscope.tui.common.dialog import TextDialog, section

# Keys of the program itself, which no setting changes.
_PROGRAM_KEYS = (
    ("ctrl+p", "Open the command palette: all actions by name."),
    ("ctrl+z", "Suspend the program, with the aggressors off; fg resumes it."),
    ("ctrl+q", "Quit, whatever the settings say."),
)


class Help(TextDialog[None]):
    """The keys of ``actions`` after ``more_keys``, then ``sections``; ``changed`` are the settings' keys."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "close", "close")]

    def __init__(
        self,
        actions: Sequence[Action],
        changed: Mapping[str, str],
        sections: Sequence[tuple[str, str]],
        more_keys: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__()
        self.actions = actions
        self.changed = changed
        self.sections = sections
        self.more_keys = more_keys

    def rows(self) -> list[tuple[str, str]]:
        """Keys and what they do."""
        rows = [
            (" ".join(key_label(key) for key in keys_of(action, self.changed).split(",")), action.description)
            for action in self.actions
        ]
        return [*self.more_keys, *rows, *_PROGRAM_KEYS]

    def text(self) -> Text:
        """Keys and sections as plain text."""
        text = Text("Keys\n", "bold")
        for names, description in self.rows():
            text.append(f"  {names:<10}{description}\n")
        return text.append_text(self._explanations())

    def body(self) -> RenderableType:
        """Keys as a table, so that long descriptions wrap beside their keys."""
        table = Table.grid(padding=(0, 2))
        for names, description in self.rows():
            table.add_row(Text(f"  {names}", "bold", no_wrap=True), description)
        return Group(Text("Keys", "bold"), table, self._explanations())

    def _explanations(self) -> Text:
        text = Text("\n")
        for title, body in self.sections:
            section(text, title, body)
        section(text, "Settings and keys", f"{settings.path()} (stallscope settings prints a file with all defaults)")
        return text
