"""Dialogs: a box in the middle of the screen, with text, a yes-no question, a short list, or a line to fill in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.screen import ModalScreen, Screen
from textual.widgets import OptionList

from stallscope.tui.common.printable_text import (
    PrintableGroup,
    PrintableInput,
    PrintableOption,
    PrintableStatic,
    PrintableText,
    click_text,
)

Answer = TypeVar("Answer")


class TopScreen:
    """Mixin of a screen that a second answer does not dismiss again.

    Textual removes the top screen, whichever is dismissed. Two fast presses of enter select an option twice, and the
    second one would remove the screen below. It is no screen itself: Textual takes styles from the first base only.
    """

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Dismiss the screen with ``result``; without effect if it is not the top one."""
        assert isinstance(self, Screen)
        if self.app.screen is not self:
            return AwaitComplete()
        return Screen.dismiss(self, result)


class Dialog(TopScreen, ModalScreen[Answer]):
    """A box over a screen. Escape, q or a click outside the box closes it without an answer."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q", "close", "close")]
    # Text about the dialog's keys in its lower border.
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
    """A dialog with scrollable text: ``text``, or what a subclass returns from ``body``."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("e,enter", "close", "close")]

    def __init__(self, text: PrintableText | PrintableGroup | None = None) -> None:
        super().__init__()
        self.text = text or PrintableText()

    def body(self) -> PrintableText | PrintableGroup:
        """The text, or an arrangement of several."""
        return self.text

    def compose(self) -> ComposeResult:
        """The text in a box."""
        with Vertical(id="box"), VerticalScroll(id="scroll"):
            yield PrintableStatic(self.body(), id="text")


def section(text: PrintableText, title: str, body: str) -> None:
    """Append a heading and a paragraph, unless ``body`` is empty."""
    if body:
        text.append(f"{title}\n", "bold").append(f"{body}\n\n")


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


class Choose(Dialog[str]):
    """Returns the name of the selected option. ``options`` are (name, text)."""

    def __init__(self, title: str, options: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.question = title
        self.options = options

    def compose(self) -> ComposeResult:
        """The title and the list."""
        with Vertical(id="box"):
            yield PrintableStatic(self.question)
            yield OptionList(*(PrintableOption(text, name) for name, text in self.options), markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the selected option."""
        self.dismiss(event.option.id)


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
