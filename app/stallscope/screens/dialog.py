"""What all that lies over the monitor has in common: a box in the middle, and escape closes it."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A box over the monitor; closed without an answer by escape or q."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]

    def on_mount(self) -> None:
        """Wear the common style."""
        self.add_class("dialog")

    def action_close(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


class Reading(Dialog[Answer]):
    """A dialog of text that scrolls."""

    def text(self) -> Text:
        """What is to be read."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        """The text in a box."""
        with Vertical(id="box"), VerticalScroll(id="scroll"):
            yield Static(self.text(), id="text")


def section(text: Text, title: str, body: str) -> None:
    """A heading and a paragraph, unless there is nothing to say."""
    if body:
        text.append(f"{title}\n", "bold")
        text.append(f"{body}\n\n")
