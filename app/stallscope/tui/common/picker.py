"""The picker: all variants of the patterns, and all probes of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import OptionList

from stallprobes.catalog import Entry, Placement, entries
from stallprobes.model import PRIMARY, SECONDARY, Kind, Role
from stallprobes.patterns import patterns
from stallscope.tui.common.dialog import Dialog, section
from stallscope.tui.common.printable_text import PrintableInput, PrintableOption, PrintableStatic, PrintableText

NARROW = 110
_KINDS = {Kind.STALL: "stall", Kind.CONTROL: "control", Kind.REMEDY: "remedy"}
_ROLES = {Role.VICTIM: "victim", Role.AGGRESSOR: "aggressor"}


@dataclass(frozen=True)
class _PickerLine:
    """A line of the list: what it returns, its heading, its text with a word behind it, and what a search looks at."""

    id: str
    heading: str
    text: str
    word: str
    style: str
    searched: str


class Picker(Dialog[tuple[str, str]]):
    """Returns (pattern, variant), or ("probe", its name)."""

    # With priority, so that the letters behind the key go to the search also where they arrive together with it.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "search", "search", priority=True)]
    HINT = f"/ searches · {Dialog.HINT}"
    SEARCH_HINT = "↑ ↓ select · enter loads · escape shows all lines"

    def __init__(self) -> None:
        super().__init__()
        self._lines = _lines()

    def compose(self) -> ComposeResult:
        """The list, and details of the highlighted line; words to search for above it."""
        with Vertical(id="box"):
            yield PrintableInput(placeholder="words of a name or title", id="search")
            with Horizontal(id="columns"):
                yield OptionList(*_options(self._lines, []), id="list", markup=False)
                with VerticalScroll(id="detail", can_focus=False):
                    yield PrintableStatic(id="details")

    def on_mount(self) -> None:
        """Highlight the first variant."""
        self.add_class("wide")
        self.set_class(self.app.size.width < NARROW, "narrow")
        self.query_one(OptionList).highlighted = 1
        self.query_one(OptionList).focus()

    def action_search(self) -> None:
        """Search: the list has the lines with all words that are typed. Escape shows all lines again."""
        self.add_class("searching")
        self.query_one("#box").border_subtitle = self.SEARCH_HINT
        # ``focus`` would have an effect only after the letters.
        self.set_focus(self.query_one(PrintableInput))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let a slash within a search be a part of its words."""
        return not (action == "search" and self.has_class("searching"))

    def action_close(self) -> None:
        """End a search, or close without an answer."""
        if self.has_class("searching"):
            self.remove_class("searching")
            self.query_one("#box").border_subtitle = self.HINT
            self.query_one(PrintableInput).value = ""
            self.set_focus(self.query_one(OptionList))
        else:
            super().action_close()

    def on_input_changed(self, event: PrintableInput.Changed) -> None:
        """Show the lines with the words."""
        found, listed = _options(self._lines, event.value.casefold().split()), self.query_one(OptionList)
        listed.clear_options()
        listed.add_options(found)
        if len(found) > 1:
            listed.highlighted = 1
        else:
            self.query_one("#details", PrintableStatic).show(PrintableText())

    def on_input_submitted(self) -> None:
        """Return the highlighted line."""
        self.query_one(OptionList).action_select()

    def on_key(self, event: events.Key) -> None:
        """Move in the list while words are typed."""
        listed = self.query_one(OptionList)
        moves: dict[str, Callable[[], None]] = {
            "up": listed.action_cursor_up,
            "down": listed.action_cursor_down,
            "pageup": listed.action_page_up,
            "pagedown": listed.action_page_down,
        }
        if event.key in moves and isinstance(self.focused, PrintableInput):
            moves[event.key]()
            event.stop()

    def on_resize(self, event: events.Resize) -> None:
        """Put the details below the list in a narrow terminal."""
        self.set_class(event.size.width < NARROW, "narrow")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the details of the line, unless a search has removed it meanwhile."""
        if event.option.id is not None and event.option_list.highlighted is not None:
            first, _, second = event.option.id.partition("/")
            self.query_one("#details", PrintableStatic).show(_details(first, second))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the selected line."""
        if event.option.id is not None:
            first, _, second = event.option.id.partition("/")
            self.dismiss((first, second))


def _options(lines: Sequence[_PickerLine], words: list[str]) -> list[PrintableOption]:
    """Those of ``lines`` with all ``words``, below their headings; one that says so where there are none."""
    found: list[PrintableOption] = []
    heading = ""
    for line in lines:
        if not all(word in line.searched for word in words):
            continue
        if line.heading != heading:
            heading = line.heading
            found.append(PrintableOption(PrintableText(heading, "bold")))
        found.append(PrintableOption(PrintableText(f"  {line.text}  ").append(line.word, line.style), line.id))
    return found or [PrintableOption("no pattern and no probe has these words")]


def _lines() -> tuple[_PickerLine, ...]:
    found = []
    for pattern in patterns().values():
        for variant in pattern.variants:
            word, style = _KINDS[variant.kind], "reverse" if variant.kind is Kind.STALL else "italic"
            searched = f"{pattern.name} {pattern.title} {variant.name} {variant.title} {word}"
            line = f"{pattern.name}/{variant.name}"
            found.append(_PickerLine(line, pattern.name, variant.name, word, style, searched.casefold()))
    for entry in entries().values():
        if entry.role is Role.HOST:
            continue
        for place in _places(entry):
            name, word = entry.probe(place).name, _ROLES[entry.role]
            line, text = f"probe/{name}", f"{name}  {entry.title}"
            searched = f"{text} {place.context.name} {word}".casefold()
            found.append(_PickerLine(line, "Add a probe to the current ones", text, word, "italic", searched))
    return tuple(found)


def _places(entry: Entry) -> tuple[Placement, ...]:
    """Where a probe can be placed: in either context, or once where it belongs to none."""
    first, second = Placement(PRIMARY), Placement(SECONDARY)
    return (first,) if entry.probe(first).program == entry.probe(second).program else (first, second)


def _details(first: str, second: str) -> PrintableText:
    text = PrintableText()
    if first == "probe":
        entry = entries()[second.partition("@")[0]]
        section(text, f"{second}: {entry.title}", entry.what)
        section(text, "Note", entry.note)
        for cause in entry.causes:
            section(text, "Effect on victims", f"{cause.why} Remedy: {cause.remedy}")
        section(text, "Source", entry.source)
        return text
    pattern = patterns()[first]
    variant = pattern.variant(second)
    text.append(f"{pattern.title}\n\n", "bold")
    section(text, f"{variant.name} ({_KINDS[variant.kind]})", variant.title)
    section(text, "Expected", variant.expect)
    section(text, "Why", variant.why or pattern.why)
    section(text, "Remedy", variant.remedy or pattern.remedy)
    section(text, "Reported by", pattern.reported)
    text.append("enter loads it: the baseline is measured, then the aggressors start.", "italic")
    return text
