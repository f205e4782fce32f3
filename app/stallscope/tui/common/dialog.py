"""Base classes of dialogs: a box in the middle of the screen, and one with text."""

from __future__ import annotations

from typing import ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen

from stallscope.tui.common.printable_text import PrintableGroup, PrintableStatic, PrintableText
from stallscope.tui.common.top_screen import TopScreen

Answer = TypeVar("Answer")


class Dialog(TopScreen, ModalScreen[Answer]):
    """A box over a screen. Escape, q or a click outside the box closes it without an answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]
    # What the border says of its keys.
    HINT: ClassVar[str] = "escape or a click outside closes"

    def on_mount(self) -> None:
        """Set style and border text."""
        self.add_class("dialog")
        self.query_one("#box").border_subtitle = self.HINT

    def on_click(self, event: events.Click) -> None:
        """Close at a click outside the box."""
        if event.widget is self:
            self.action_close()

    def action_close(self) -> None:
        """Close without an answer."""
        self.dismiss(None)


class TextDialog(Dialog[Answer]):
    """A dialog with scrollable text. Subclasses override ``text``, and ``body`` for another layout."""

    def text(self) -> PrintableText:
        """The text."""
        raise NotImplementedError

    def body(self) -> PrintableText | PrintableGroup:
        """What is shown: the text, or an arrangement of it."""
        return self.text()

    def compose(self) -> ComposeResult:
        """The text in a box."""
        with Vertical(id="box"), VerticalScroll(id="scroll"):
            yield PrintableStatic(self.body(), id="text")


def section(text: PrintableText, title: str, body: str) -> None:
    """Append a heading and a paragraph, unless ``body`` is empty."""
    if body:
        text.append(f"{title}\n", "bold").append(f"{body}\n\n")
