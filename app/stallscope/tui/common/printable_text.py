"""Text of dialogs: printable, never parsed as markup, whatever it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Group
from rich.style import Style
from rich.table import Table
from rich.text import Text
from textual import events
from textual.widgets import Input, Static
from textual.widgets.option_list import Option

from stallprobes.foreign_text import printable, printable_lines


class PrintableText(Text):
    """Rich text without characters that a terminal would obey. Lines may be separated by newlines."""

    def __init__(self, text: str = "", style: str | Style = "", *, no_wrap: bool | None = None) -> None:
        super().__init__(printable_lines(text), style, no_wrap=no_wrap)

    def append(self, text: Text | str, style: str | Style | None = None) -> PrintableText:
        """Append ``text`` and return this object."""
        super().append(printable_lines(text) if isinstance(text, str) else text, style)
        return self


class PrintableGroup(Group):
    """Rows of texts, without lines between them, above ``texts``."""

    def __init__(self, rows: Iterable[Sequence[PrintableText]], *texts: PrintableText) -> None:
        table = Table(
            box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False, show_edge=False, collapse_padding=True
        )
        for row in rows:
            table.add_row(*row)
        super().__init__(table, *texts)


class PrintableStatic(Static):
    """A widget that shows ``content``."""

    def __init__(self, content: str | PrintableText | PrintableGroup = "", *, id: str | None = None) -> None:
        super().__init__(PrintableText(content) if isinstance(content, str) else content, id=id)

    def show(self, content: PrintableText | PrintableGroup) -> None:
        """Replace the content."""
        self.update(content)


class PrintableInput(Input):
    """A line of text to edit; typed and pasted text is made printable."""

    def on_key(self, event: events.Key) -> None:
        """Edit at once: a binding's action would follow the letters that arrived together with its key.

        Over a slow connection keys arrive several at a time.
        """
        edit = {
            "backspace": self.action_delete_left,
            "delete": self.action_delete_right,
            "left": self.action_cursor_left,
            "right": self.action_cursor_right,
            "home": self.action_home,
            "end": self.action_end,
            "enter": self._submit,
        }.get(event.key)
        if edit is not None:
            edit()
            event.stop()
            event.prevent_default()

    def _submit(self) -> None:
        self.post_message(self.Submitted(self, self.value))

    def validate_value(self, value: str) -> str:
        """``value`` as one printable line."""
        return printable(value)


class PrintableOption(Option):
    """An option of a list; without ``id`` it is a heading that cannot be selected."""

    def __init__(self, text: str | PrintableText, id: str | None = None) -> None:
        super().__init__(PrintableText(text) if isinstance(text, str) else text, id=id, disabled=id is None)


def click_text(key: str, text: str, action: str, key_style: str = "bold") -> PrintableText:
    """A key and what it does; a click on it runs ``action``."""
    click = Style(meta={"@click": action})
    return PrintableText().append(key, Style.parse(key_style) + click).append(f" {text}", click)
