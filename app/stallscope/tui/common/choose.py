"""A choice from a short list."""

from __future__ import annotations

from collections.abc import Sequence

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import OptionList

from stallscope.tui.common.dialog import Dialog
from stallscope.tui.common.printable_text import PrintableOption, PrintableStatic


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
