"""What all that lies over the monitor has in common: a box in the middle; escape or a click beside it closes it."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from rich.console import RenderableType
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Static

Answer = TypeVar("Answer")


class Dialog(ModalScreen[Answer]):
    """A box over the monitor; closed without an answer by escape, by q, or by a click beside the box."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]

    def on_mount(self) -> None:
        """Wear the common style."""
        self.add_class("dialog")
        self.query_one("#box").border_subtitle = "escape, or a click out here, closes"

    def on_click(self, event: events.Click) -> None:
        """Close where the click was not in the box."""
        if event.widget is self:
            self.action_close()

    def action_close(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


class Reading(Dialog[Answer]):
    """A dialog of text that scrolls."""

    def text(self) -> Text:
        """What is to be read."""
        raise NotImplementedError

    def body(self) -> RenderableType:
        """How it is laid out."""
        return self.text()

    def compose(self) -> ComposeResult:
        """The text in a box."""
        with Vertical(id="box"), VerticalScroll(id="scroll"):
            yield Static(self.body(), id="text")


def section(text: Text, title: str, body: str) -> None:
    """A heading and a paragraph, unless there is nothing to say."""
    if body:
        text.append(f"{title}\n", "bold")
        text.append(f"{body}\n\n")
