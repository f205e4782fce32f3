"""The view of patterns: all variants, and all probes of the catalog."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.widgets import OptionList

from stallprobes.catalog import Entry, Placement, entries
from stallprobes.model import PRIMARY, SECONDARY, Kind, Role
from stallprobes.patterns import patterns
from stallscope.tui.common.bars import KeyBar, ScreenHead
from stallscope.tui.common.dialog import section
from stallscope.tui.common.printable_text import PrintableInput, PrintableOption, PrintableStatic, PrintableText
from stallscope.tui.common.screen import ActionScreen, ScreenContext

# Width (columns) of a screen below which the list of patterns is above the description. On a wider screen, the list is
# at the left of the description.
NARROW_COLUMNS = 110
# Words for the purpose of a variant of a pattern: it shows the stall, a case without the stall, or a remedy.
_KINDS = {Kind.STALL: "stall", Kind.CONTROL: "control", Kind.REMEDY: "remedy"}
# Words for the roles of probes.
_ROLES = {Role.VICTIM: "victim", Role.AGGRESSOR: "aggressor"}
# Line of the list: its heading, what it loads, its text with a word behind it, and the searched text.
_ListedLine = tuple[str, str, PrintableText, str]


class PatternsScreen(ActionScreen):
    """Lists the variants of the patterns and the probes of the catalog; the monitor loads what is selected.

    Its choice in the context is (pattern, variant), or ("probe", its name).
    """

    NAME = "patterns"
    # Key of the search. The binding has priority because letters that arrive together with the key must go to the
    # search.
    BINDINGS: ClassVar[list[BindingType]] = [Binding("slash", "find", "find", show=False, priority=True)]

    def __init__(self, context: ScreenContext) -> None:
        super().__init__(context)
        self._lines = listed_lines()

    def compose(self) -> ComposeResult:
        """The list, and details of the highlighted line; words to search for above it."""
        yield ScreenHead(id="patterns-head")
        yield PrintableInput(placeholder="words of a name or title", id="search")
        with Horizontal(id="columns"):
            yield OptionList(*_options(self._lines, []), id="list", markup=False)
            with VerticalScroll(id="detail", can_focus=False):
                yield PrintableStatic(id="details")
        yield KeyBar(id="keys")

    def on_mount(self) -> None:
        """Highlight the first variant."""
        self.query_one(OptionList).highlighted = 1
        self.query_one(OptionList).focus()

    def place_panels(self, width: int, height: int) -> None:
        """Put the details below the list in a narrow terminal."""
        self.set_class(width < NARROW_COLUMNS, "narrow")

    @property
    def has_way_back(self) -> bool:
        """There is one: this is never the first screen."""
        return True

    @property
    def searching(self) -> bool:
        """True if words are typed."""
        return self.has_class("searching")

    def action_find(self) -> None:
        """Search: the list has the lines with all words that are typed. The way back shows all lines again."""
        self.add_class("searching")
        # ``focus`` would have an effect only after the letters.
        self.set_focus(self.query_one(PrintableInput))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Let a slash within a search be a part of its words."""
        return super().check_action(action, parameters) and not (action == "find" and self.searching)

    def action_go_back(self) -> None:
        """End a search, or return to the monitor."""
        if not self.searching:
            super().action_go_back()
            return
        self.remove_class("searching")
        self.query_one(PrintableInput).value = ""
        self.set_focus(self.query_one(OptionList))

    def on_input_changed(self, event: PrintableInput.Changed) -> None:
        """Show the lines with the words."""
        options, listed = _options(self._lines, event.value.casefold().split()), self.query_one(OptionList)
        listed.clear_options()
        listed.add_options(options)
        if len(options) > 1:
            listed.highlighted = 1
        else:
            self.query_one("#details", PrintableStatic).show(PrintableText())

    def on_input_submitted(self) -> None:
        """Load the highlighted line."""
        self.action_load()

    def action_load(self) -> None:
        """Have the monitor load the highlighted line."""
        self.query_one(OptionList).action_select()

    def action_pattern_row(self, by: int) -> None:
        """Select the line above or below."""
        listed = self.query_one(OptionList)
        (listed.action_cursor_up if by < 0 else listed.action_cursor_down)()

    def on_key(self, event: events.Key) -> None:
        """Move in the list while words are typed."""
        listed = self.query_one(OptionList)
        moves: dict[str, Callable[[], None]] = {
            "up": listed.action_cursor_up,
            "down": listed.action_cursor_down,
            "pageup": listed.action_page_up,
            "pagedown": listed.action_page_down,
        }
        if event.key in moves and self.searching:
            moves[event.key]()
            event.stop()
            event.prevent_default()
        elif not self.searching:
            super().on_key(event)

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the details of the line, unless a search has removed it meanwhile."""
        if event.option.id is not None and event.option_list.highlighted is not None:
            first, _, second = event.option.id.partition("/")
            self.query_one("#details", PrintableStatic).show(_details(first, second))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Have the monitor load the selected line."""
        if event.option.id is not None and self.app.screen is self:
            first, _, second = event.option.id.partition("/")
            self.context.choice = first, second
            self.dismiss()


def _options(lines: Sequence[_ListedLine], words: list[str]) -> list[PrintableOption]:
    """The lines among ``lines`` with all ``words``, below their headings; without any, a line that says so."""
    options: list[PrintableOption] = []
    above = ""
    for heading, line, text, searched in lines:
        if all(word in searched for word in words):
            options += [PrintableOption(PrintableText(heading, "bold"))] if heading != above else []
            options.append(PrintableOption(text, line))
            above = heading
    return options or [PrintableOption("no pattern and no probe has these words")]


def listed_lines() -> tuple[_ListedLine, ...]:
    """All lines: the variants of the patterns, then the probes of the catalog."""
    listed = []
    for pattern in patterns().values():
        for variant in pattern.variants:
            word, style = _KINDS[variant.kind], "bold" if variant.kind is Kind.STALL else "italic"
            text = PrintableText(f"  {variant.name}  ").append(word, style)
            searched = f"{pattern.name} {pattern.title} {variant.name} {variant.title} {word}".casefold()
            listed.append((pattern.name, f"{pattern.name}/{variant.name}", text, searched))
    for entry in entries().values():
        for place in _places(entry) if entry.role is not Role.HOST else ():
            name, word = entry.probe(place).name, _ROLES[entry.role]
            text = PrintableText(f"  {name}  {entry.title}  ").append(word, "italic")
            searched = f"{name}  {entry.title} {place.context.name} {word}".casefold()
            listed.append(("Add a probe to the current ones", f"probe/{name}", text, searched))
    return tuple(listed)


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


# Class of this module's screen, which the app looks up by this name.
SCREEN = PatternsScreen
