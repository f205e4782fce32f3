"""The help of a screen: its keys, and how to read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from stallscope.tui import settings
from stallscope.tui.common.dialog import TextDialog, section
from stallscope.tui.common.printable_text import PrintableGroup, PrintableTable, PrintableText

# Keys of the program itself, which no setting changes.
_PROGRAM_KEYS = (
    ("ctrl+p", "Open the command palette: all actions by name."),
    ("ctrl+z", "Suspend the program, with the aggressors off; fg resumes it."),
    ("ctrl+q", "Quit, whatever the settings say."),
)


class Help(TextDialog[None]):
    """Shows a help."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("question_mark", "close", "close")]


def help_of(keys: Sequence[tuple[str, str]], sections: Sequence[tuple[str, str]]) -> PrintableGroup:
    """Keys, (keys, description), as a table, so that long descriptions wrap beside their keys; then ``sections``."""
    rows = [(PrintableText(f"  {names}", "bold", no_wrap=True), text) for names, text in (*keys, *_PROGRAM_KEYS)]
    text = PrintableText("\n")
    for title, body in sections:
        section(text, title, body)
    section(text, "Settings and keys", f"{settings.path()} (stallscope settings prints a file with all defaults)")
    return PrintableGroup(PrintableText("Keys", "bold"), PrintableTable(rows), text)
