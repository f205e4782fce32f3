"""A choice of one among a few."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from stallscope.tui.common.dialog import Dialog


class Choose(Dialog[str]):
    """Answers with the name of what was chosen. ``options`` are (name, words)."""

    def __init__(self, title: str, options: Sequence[tuple[str, str]]) -> None:
        super().__init__()
        self.question = title
        self.options = options

    def compose(self) -> ComposeResult:
        """The title and the list."""
        with Vertical(id="box"):
            yield Static(self.question, markup=False)
            yield OptionList(*(Option(words, id=name) for name, words in self.options), markup=False)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Close with what was chosen."""
        self.dismiss(event.option.id)
