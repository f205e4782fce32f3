"""The picker: all variants of the patterns, and all probes of the catalog."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import OptionList

from stallprobes.catalog import entries
from stallprobes.model import Kind, Role
from stallprobes.patterns import patterns
from stallscope.tui.common.dialog import Dialog, section
from stallscope.tui.common.printable_text import PrintableOption, PrintableStatic, PrintableText

NARROW = 110
_KINDS = {Kind.STALL: "stall", Kind.CONTROL: "control", Kind.REMEDY: "remedy"}
_ROLES = {Role.VICTIM: "victim", Role.AGGRESSOR: "aggressor"}


class Picker(Dialog[tuple[str, str]]):
    """Returns (pattern, variant), or ("probe", "ENTRY@CONTEXT")."""

    def compose(self) -> ComposeResult:
        """The list, and details of the highlighted line."""
        with Vertical(id="box"), Horizontal(id="columns"):
            yield OptionList(*_options(), id="list", markup=False)
            with VerticalScroll(id="detail", can_focus=False):
                yield PrintableStatic(id="details")

    def on_mount(self) -> None:
        """Highlight the first variant."""
        self.add_class("wide")
        self.set_class(self.app.size.width < NARROW, "narrow")
        self.query_one(OptionList).highlighted = 1

    def on_resize(self, event: events.Resize) -> None:
        """Put the details below the list in a narrow terminal."""
        self.set_class(event.size.width < NARROW, "narrow")

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Show the details of the line."""
        if event.option.id is not None:
            first, _, second = event.option.id.partition("/")
            self.query_one("#details", PrintableStatic).show(_details(first, second))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Return the selected line."""
        if event.option.id is not None:
            first, _, second = event.option.id.partition("/")
            self.dismiss((first, second))


def _options() -> list[PrintableOption]:
    found = []
    for pattern in patterns().values():
        found.append(PrintableOption(PrintableText(pattern.name, "bold")))
        for variant in pattern.variants:
            line = PrintableText(f"  {variant.name}  ").append(
                _KINDS[variant.kind], "reverse" if variant.kind is Kind.STALL else "italic"
            )
            found.append(PrintableOption(line, f"{pattern.name}/{variant.name}"))
    found.append(PrintableOption(PrintableText("Add a probe to the current ones", "bold")))
    for entry in entries().values():
        if entry.role is Role.HOST:
            continue
        for place in ("primary", "secondary"):
            line = PrintableText(f"  {entry.title} · {place}  ").append(_ROLES[entry.role], "italic")
            found.append(PrintableOption(line, f"probe/{entry.name}@{place}"))
    return found


def _details(first: str, second: str) -> PrintableText:
    text = PrintableText()
    if first == "probe":
        entry = entries()[second.partition("@")[0]]
        section(text, entry.title, entry.what)
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
