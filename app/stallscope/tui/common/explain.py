"""The explanation of one probe: verdict, calls, causes, remedies, source."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from stallprobes.catalog import cause, entries
from stallprobes.engine.timeline.work import submissions
from stallprobes.live.observation import ProbeSet
from stallprobes.live.view_model import LogEntry
from stallprobes.model import Kind, Probe, Role, op_name
from stallprobes.patterns import patterns
from stallscope.report.timeline_text import how_to_see, phases_text
from stallscope.tui.common.dialog import TextDialog, section
from stallscope.tui.common.printable_text import PrintableText, click_text


class Explain(TextDialog[bool]):
    """Returns True to load the next remedy of the pattern. With ``live`` there is an engine that can."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("v", "remedy", "remedy"), Binding("e", "close", "close")]

    def __init__(self, probe_set: ProbeSet, probe: Probe, log: Sequence[LogEntry], live: bool) -> None:
        super().__init__()
        self.probe_set = probe_set
        self.probe = probe
        self.entries = log
        self.live = live

    def text(self) -> PrintableText:
        """The explanation."""
        return explanation(self.probe_set, self.probe, self.entries, self.live)

    def action_remedy(self) -> None:
        """Return True where the probe set is a pattern's."""
        if self.live and self.probe_set.pattern:
            self.dismiss(True)


def explanation(probe_set: ProbeSet, probe: Probe, log: Sequence[LogEntry], live: bool) -> PrintableText:
    """Everything known about ``probe`` in ``probe_set``, its newest verdict first."""
    text = PrintableText()
    text.append(f"{probe.title}\n\n", "bold reverse")
    own = [entry for entry in log if entry.verdict.probe == probe.name]
    if own:
        section(text, "Latest verdict", own[0].text)
        section(text, "Remedy", own[0].verdict.remedy)
    entry = entries().get(probe.entry)
    if entry is not None:
        section(text, "What it does", entry.what)
    calls = ", ".join(f"{op_name(op)} ({op.phase})" for op in probe.program.ops if op.phase is not None)
    section(text, "Calls and their phases", calls)
    if submissions(probe.program):
        section(text, "On the GPU", f"{phases_text()} {how_to_see(probe_set.pattern or probe.name)}")
    for other in probe_set.probes:
        victim, aggressor = (probe, other) if probe.role is not Role.AGGRESSOR else (other, probe)
        if victim.role is Role.AGGRESSOR or aggressor.role is not Role.AGGRESSOR or aggressor.entry not in entries():
            continue
        known = cause(victim, aggressor)
        if known is not None:
            title = f"Effect of “{aggressor.title}” on {victim.title}"
            section(text, title, f"{known.why} Remedy: {known.remedy}")
    if probe_set.pattern in patterns():
        _append_pattern(text, probe_set, live)
    else:
        used = [
            p.name for p in patterns().values() if any(q.entry == probe.entry for v in p.variants for q in v.probes)
        ]
        section(text, "Patterns with this probe (key o)", ", ".join(used))
    if entry is not None:
        section(text, "Source", entry.source)
    return text


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
