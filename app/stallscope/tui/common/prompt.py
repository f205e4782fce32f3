"""A question that is answered by the name of a file."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Input, Static

from stallscope.tui.common.dialog import Dialog


class Prompt(Dialog[str]):
    """Answers with the path that was typed. ``given`` stands there to begin with."""

    def __init__(self, question: str, given: str = "") -> None:
        super().__init__()
        self.question = question
        self.given = given

    def compose(self) -> ComposeResult:
        """The question and a line to type."""
        with Vertical(id="box"):
            yield Static(self.question, markup=False)
            yield Input(self.given, placeholder="path of a file", id="path")
            yield Static("enter does it, escape does not", id="answers", markup=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Close with the path; nothing typed is no answer."""
        self.dismiss(event.value.strip() or None)
