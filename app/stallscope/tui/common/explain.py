"""The explanation of one probe: verdict, calls, causes, remedies, source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from stallprobes.catalog import cause, entries
from stallprobes.engine.gpu_work import submissions
from stallprobes.live.view_model import LogEntry
from stallprobes.model import Kind, Pattern, Probe, Role, op_name
from stallprobes.patterns import patterns
from stallprobes.patterns.remedy_code import CodeLanguage, remedy_code
from stallprobes.recording.observation import ProbeSet
from stallprobes.wording.timeline_wording import on_the_gpu
from stallscope.report import remedy_text
from stallscope.tui import probe_sets
from stallscope.tui.common.dialog import TextDialog, section
from stallscope.tui.common.printable_text import PrintableStatic, PrintableText, click_text
from stallscope.tui.common.screen import ScreenContext

# Terminal width (columns) below which the dialog with the explanation of a probe takes the whole width. Reason: a
# narrower dialog would fold the lines of code.
NARROW_COLUMNS = 100
# Blanks before each line of code in the explanation of a probe.
_INDENT = "  "
# Explanation of the GPU's values below the heat map.
UTILISATION = (
    "util: share of the time in which a kernel ran, however small. SM act.: share of the SMs with a warp, in the mean."
)


class Explain(TextDialog[bool]):
    """Returns True to load the next remedy of the pattern, where there is an engine that can.

    ``context`` has the language of the remedies as code, and keeps the one that is chosen here.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("v", "remedy", "remedy"), Binding("l", "language", "language")]

    def __init__(self, probe_set: ProbeSet, probe: Probe, log: Sequence[LogEntry], context: ScreenContext) -> None:
        super().__init__()
        self.probe_set = probe_set
        self.probe = probe
        self.entries = log
        self.live = context.source.engine is not None
        self.context = context

    @property
    def language(self) -> CodeLanguage:
        """The language of the remedies as code."""
        return CodeLanguage(self.context.remedy_language or self.context.settings.remedy_language)

    def on_resize(self, event: events.Resize) -> None:
        """Use the width of a narrow terminal."""
        self.set_class(event.size.width < NARROW_COLUMNS, "filled")

    def body(self) -> PrintableText:
        """The explanation."""
        return explanation(self.probe_set, self.probe, self.entries, self.live, self.language)

    def action_language(self) -> None:
        """Show the remedies in the next language."""
        self.context.remedy_language = next_language(probe_sets.stalls_of(self.probe_set, self.probe), self.language)
        self.query_one("#text", PrintableStatic).show(self.body())

    def action_remedy(self) -> None:
        """Return True where the probe set is a pattern's."""
        if self.live and self.probe_set.pattern:
            self.dismiss(True)


def explanation(
    probe_set: ProbeSet, probe: Probe, log: Sequence[LogEntry], live: bool, language: CodeLanguage
) -> PrintableText:
    """Everything known about ``probe``, its worst current verdict first; remedies as code in ``language``."""
    text = PrintableText()
    text.append(f"{probe.name}: {probe.title}\n\n", "bold reverse")
    own = [entry for entry in log if entry.verdict.probe == probe.name]
    if own:
        current = sorted(
            (logged for logged in own if logged.ended_s is None), key=lambda logged: logged.verdict.weight, reverse=True
        )
        for shown in current or own[:1]:
            section(text, "Verdict" if current else "Latest verdict", shown.text)
            section(text, "Remedy", shown.verdict.remedy)
        _append_code(text, probe_set, probe, language)
    entry = entries().get(probe.entry)
    if entry is not None:
        section(text, "What it does", entry.what)
    calls = ", ".join(f"{op_name(op)} ({op.phase})" for op in probe.program.ops if op.phase is not None)
    section(text, "Calls and their phases", calls)
    if submissions(probe.program):
        section(text, "On the GPU", on_the_gpu(probe_set.pattern or probe.name, probe_set.probes))
        section(text, "GPU rows below the heat map", UTILISATION)
    for other in probe_set.probes:
        victim, aggressor = (probe, other) if probe.role is not Role.AGGRESSOR else (other, probe)
        if victim.role is Role.AGGRESSOR or aggressor.role is not Role.AGGRESSOR or aggressor.entry not in entries():
            continue
        known = cause(victim, aggressor)
        if known is not None:
            title = f"Effect of {aggressor.name} on {victim.name}"
            section(text, title, f"{known.why} Remedy: {known.remedy}")
    if probe_set.pattern in patterns():
        _append_pattern(text, probe_set, live)
    else:
        used = [
            p.name for p in patterns().values() if any(q.entry == probe.entry for v in p.variants for q in v.probes)
        ]
        section(text, "Patterns with this probe (key o)", ", ".join(used))
    if not own:
        _append_code(text, probe_set, probe, language)
    if entry is not None:
        section(text, "Source", entry.source)
    return text


def next_language(shown: Sequence[Pattern], language: CodeLanguage) -> CodeLanguage:
    """The next language with code for the patterns ``shown`` after ``language``; ``language`` itself without
    another."""
    languages = [
        candidate for candidate in CodeLanguage if any(candidate in remedy_code(pattern.name) for pattern in shown)
    ]
    if language not in languages:
        return languages[0] if languages else language
    return languages[(languages.index(language) + 1) % len(languages)]


def _append_pattern(text: PrintableText, probe_set: ProbeSet, live: bool) -> None:
    pattern = patterns()[probe_set.pattern]
    section(text, f"Current pattern: {pattern.name}", pattern.see)
    section(text, "Why", pattern.why)
    section(text, "Remedy", pattern.remedy)
    section(text, "Reported by", pattern.reported)
    remedies = [variant for variant in pattern.variants if variant.kind is Kind.REMEDY]
    if remedies and live:
        names = ", ".join(v.name + (" (current)" if v.name == probe_set.variant else "") for v in remedies)
        text.append_text(click_text("v", "loads the next remedy", "screen.remedy", "bold reverse"))
        text.append(f": {names}\n\n")


def _append_code(text: PrintableText, probe_set: ProbeSet, probe: Probe, language: CodeLanguage) -> None:
    """The remedies as code for the stalls of ``probe``, the current variant first."""
    for pattern in probe_sets.stalls_of(probe_set, probe):
        variant = probe_set.variant if pattern.name == probe_set.pattern else ""
        codes = remedy_text.codes(pattern, language, variant)
        others = remedy_text.other_languages(pattern, language)
        if not codes and not others:
            continue
        text.append(f"{remedy_text.heading(language)} ({pattern.name})", "bold")
        if others:
            text.append(_INDENT).append_text(click_text("l", "next language", "screen.language", "bold reverse"))
        text.append("\n")
        if not codes:
            text.append(f"{remedy_text.without_code(language)}\n\n")
        for code in codes:
            current = " (current)" if code.variant == variant else ""
            text.append(f"{remedy_text.title(pattern, code)}{current}\n", "italic")
            text.append("".join(f"{_INDENT}{line}".rstrip() + "\n" for line in code.lines))
            text.append(f"{remedy_text.effect(code)}\n\n", "dim")
