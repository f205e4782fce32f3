"""A question that is answered by yes or no."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType

from stallscope.screens.dialog import Reading


class Ask(Reading[bool]):
    """Answers True for y; anything else that closes it is no."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "answer(True)", "yes"),
        Binding("n,enter", "answer(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self.question = question

    def text(self) -> Text:
        """The question and the keys."""
        text = Text(f"{self.question}\n\n")
        text.append("y", "bold")
        text.append(" yes, for this session    ")
        text.append("n", "bold")
        text.append(" no\n")
        return text

    def action_answer(self, yes: bool) -> None:
        """Close with the answer."""
        self.dismiss(yes)
