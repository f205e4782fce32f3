"""A yes-no question."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from stallscope.tui.common.dialog import Dialog
from stallscope.tui.common.printable_text import PrintableStatic, click_text


class Ask(Dialog[bool]):
    """Returns True for y, False for n and enter, None where it is closed otherwise."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,enter", "answer(False)", "no"),
    ]

    def __init__(self, question: str, yes: str = "yes, for this session") -> None:
        super().__init__()
        self.question = question
        self.yes = yes

    def compose(self) -> ComposeResult:
        """The question and both answers, which can be clicked."""
        with Vertical(id="box"):
            yield PrintableStatic(f"{self.question}\n")
            with Horizontal(id="answers"):
                yield PrintableStatic(click_text("y", self.yes, "screen.answer(True)"), id="yes")
                yield PrintableStatic(click_text("n", "no", "screen.answer(False)"), id="no")

    def action_answer(self, yes: bool) -> None:
        """Return the answer."""
        self.dismiss(yes)
