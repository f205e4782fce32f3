"""A question for the path of a file."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical

from stallscope.tui.common.dialog import Dialog
from stallscope.tui.common.printable_text import PrintableInput, PrintableStatic


class Prompt(Dialog[str]):
    """Returns the path that was typed; ``given`` is the initial text."""

    def __init__(self, question: str, given: str = "") -> None:
        super().__init__()
        self.question = question
        self.given = given

    def compose(self) -> ComposeResult:
        """The question and an input line."""
        with Vertical(id="box"):
            yield PrintableStatic(self.question)
            yield PrintableInput(self.given, placeholder="path", id="path")
            yield PrintableStatic("enter confirms, escape cancels", id="answers")

    def on_input_submitted(self, event: PrintableInput.Submitted) -> None:
        """Return the path; None for an empty line."""
        self.dismiss(event.value.strip() or None)
