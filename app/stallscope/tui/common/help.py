"""The help of a screen: its keys, and how to read it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from stallscope.report.columns import padded
from stallscope.tui import settings
from stallscope.tui.actions import Action, key_label, keys_of
from stallscope.tui.common.dialog import TextDialog, section
from stallscope.tui.common.printable_text import PrintableGroup, PrintableTable, PrintableText

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

    def text(self) -> PrintableText:
        """Keys and sections as plain text."""
        text = PrintableText("Keys\n", "bold")
        for names, description in self.rows():
            text.append(f"  {padded(names, 10)}{description}\n")
        text.append_text(self._explanations())
        return text

    def body(self) -> PrintableGroup:
        """Keys as a table, so that long descriptions wrap beside their keys."""
        rows = [(PrintableText(f"  {names}", "bold", no_wrap=True), text) for names, text in self.rows()]
        return PrintableGroup(PrintableText("Keys", "bold"), PrintableTable(rows), self._explanations())

    def _explanations(self) -> PrintableText:
        text = PrintableText("\n")
        for title, body in self.sections:
            section(text, title, body)
        section(text, "Settings and keys", f"{settings.path()} (stallscope settings prints a file with all defaults)")
        return text
