"""Text of the catalogue for people: the list of patterns and probes, and the explanation of one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from stallprobes.engine.gpu_work import submissions
from stallprobes.model import SYMPTOM_TITLES, Kind, Needs, Pattern, Role, Variant
from stallprobes.patterns.remedy_code import DEFAULT_LANGUAGE, CodeLanguage, remedy_code
from stallprobes.wording.timeline_wording import on_the_gpu
from stallscope.report import remedy_text
from stallscope.report.table import TableColumn
from stallscope.report.text import TextWriter

if TYPE_CHECKING:
    from stallprobes.catalog import Cause, Entry, Hardware
    from stallprobes.engine.sim.profile import Profile

# Smallest width (columns) for a pattern's title in the line of the pattern's name. With less width, the title stands
# below the name.
_LEAST_BESIDE_NAMES = 30
# Words for the kinds of a pattern's variants.
VARIANT_KINDS = {Kind.STALL: "the stall", Kind.CONTROL: "a control", Kind.REMEDY: "a remedy"}
# Headings above the probes of each role, in this order.
_ROLE_HEADINGS = {
    Role.VICTIM: "Victims: measured at a steady rate",
    Role.AGGRESSOR: "Aggressors: run to disturb the victims",
    Role.HOST: "Host control: the noise of the host, without CUDA",
}


def write_list(
    out: TextWriter,
    patterns: Mapping[str, Pattern],
    entries: Mapping[str, Entry],
    profiles: Sequence[tuple[str, str]] = (),
) -> None:
    """Write all patterns by symptom with their variants, all probes, and the profiles of simulated GPUs (name and
    machine)."""
    out.paragraph("Patterns: run NAME runs all variants, run NAME --variant V one of them", style="strong")
    width = max((len(name) for name in patterns), default=0) + 4
    for symptom, title in SYMPTOM_TITLES.items():
        alike = [pattern for pattern in patterns.values() if pattern.symptom is symptom]
        if alike:
            out.paragraph(f"{title[0].upper()}{title[1:]}", style="accent")
        for pattern in alike:
            indent = " " * width
            if out.width < width + _LEAST_BESIDE_NAMES:
                indent = "    "
                out.paragraph(pattern.name, indent="  ")
                out.paragraph(pattern.title, indent=indent)
            else:
                out.paragraph(pattern.title, indent=indent, first=f"  {pattern.name:<{width - 2}}")
            out.paragraph(", ".join(variant.name for variant in pattern.variants), indent=indent, style="dim")
    for role, heading in _ROLE_HEADINGS.items():
        chosen = [entry for entry in entries.values() if entry.role is role]
        if chosen:
            out.line()
            out.paragraph(heading, style="strong")
            out.table(
                (TableColumn("probe", whole=True), TableColumn("title")),
                [(entry.name, entry.title) for entry in chosen],
            )
    if profiles:
        out.line()
        out.paragraph("Simulated GPUs: stallscope run NAME --sim PROFILE", style="strong")
        out.table((TableColumn("profile", whole=True), TableColumn("machine")), profiles)
    out.line()
    out.paragraph("Details of a pattern or probe: stallscope explain NAME")


def write_profile(out: TextWriter, profile: Profile, settings: Sequence[tuple[str, str, str]]) -> None:
    """Write a simulated GPU, the source of its values, and all parameters, as ``settable`` returns them."""
    out.paragraph(f"SIMULATED {profile.title}, profile {profile.name}", style="strong")
    out.paragraph(f"Source: {profile.source}")
    out.line()
    out.table((TableColumn("parameter"), TableColumn("value", right=True), TableColumn("meaning")), settings)


def write_pattern(out: TextWriter, pattern: Pattern, language: CodeLanguage = DEFAULT_LANGUAGE) -> None:
    """Write the common part of a pattern, the remedies as code in ``language``, then each variant."""
    out.paragraph(pattern.name, style="strong")
    out.paragraph(pattern.title)
    for title, text in (("What you will see", pattern.see), ("Why", pattern.why), ("Remedy", pattern.remedy)):
        _section(out, title, text)
    remedy_text.write_code(out, pattern, language)
    _section(out, "Where it was reported", pattern.reported)
    probes = [probe for variant in pattern.variants for probe in variant.probes]
    _section(out, "On the GPU", on_the_gpu(pattern.name, probes))
    out.line()
    out.paragraph("Variants", style="strong")
    written: dict[str, str] = {}
    for variant in pattern.variants:
        out.paragraph(f"{variant.name} ({VARIANT_KINDS[variant.kind]}): {variant.title}", indent="    ", first="  ")
        for label, text in _own_texts(pattern, variant):
            if label != "expect" and text in written:
                text = f"as {written[text]}"
            else:
                written[text] = variant.name
            out.paragraph(text, indent=" " * 12, first=f"    {label:<8}")


def _own_texts(pattern: Pattern, variant: Variant) -> list[tuple[str, str]]:
    """The labelled texts of ``variant`` that the pattern does not have."""
    texts = (("expect", variant.expect), ("why", variant.why), ("helps", variant.remedy))
    return [(label, text) for label, text in texts if text not in ("", pattern.why, pattern.remedy)]


def write_entry(out: TextWriter, entry: Entry, entries: Mapping[str, Entry], patterns: Sequence[str]) -> None:
    """Write one probe of the catalogue: its effect on the victims in ``entries``, and the ``patterns`` with it."""
    out.paragraph(entry.name, style="strong")
    out.paragraph(f"{entry.title} ({entry.role})")
    _section(out, "What it does", entry.what)
    _section(out, "Note", entry.note)
    for cause in entry.causes:
        out.line()
        out.paragraph(f"Effect on {_affected(cause)}", style="strong")
        out.paragraph(cause.why, indent="  ")
        out.paragraph(f"Remedy: {cause.remedy}", indent="  ")
        if cause.uses:
            victims = [
                probe.name for probe in entries.values() if probe.role is Role.VICTIM and probe.uses & cause.uses
            ]
            out.paragraph(f"Victims: {', '.join(victims)}", indent="  ", style="dim")
    if submissions(entry.probe().program):
        _section(out, "On the GPU", on_the_gpu(entry.name, [entry.probe()]))
    _section(out, "In the default check", ", ".join(placement.probe_name(entry.name) for placement in entry.check))
    _section(out, "Needs", ", ".join(_needs(entry.needs)))
    _section(out, "Source", entry.source)
    _section(out, "Patterns with this probe", ", ".join(patterns))
    if any(map(remedy_code, patterns)):
        out.paragraph("`stallscope explain PATTERN` shows their remedies as code.", indent="  ", style="dim")


def _affected(cause: Cause) -> str:
    places = ((cause.context, "in {} context"), (cause.process, "in {} process"), (cause.stream, "on {} stream"))
    words = [where.format(_RELATIONS[relation]) for relation, where in places if relation is not None]
    if cause.uses:
        words.append(f"that use {_hardware(cause.uses)}")
    return " ".join(["victims", *words]) if words else "all victims"


# Words for the place of a cause relative to its victims: in the same or in another process, context or stream.
_RELATIONS = {"same": "the same", "other": "another"}


def _hardware(uses: Hardware) -> str:
    from stallprobes.catalog.entry import HARDWARE_LABELS

    return " or ".join(label for member, label in HARDWARE_LABELS.items() if member & uses)


def _needs(needs: Needs) -> list[str]:
    texts = (
        (needs.gpus > 1, f"{needs.gpus} GPUs"),
        (needs.peer_access is not None, f"peer access {'on' if needs.peer_access else 'off'}"),
        (needs.green_contexts, "green contexts"),
        (needs.batch_copies, "cuMemcpyBatchAsync (CUDA 12.8)"),
        (needs.libcupti, "libcupti, without the timeline"),
    )
    return [text for needed, text in texts if needed]


def _section(out: TextWriter, title: str, text: str) -> None:
    if text:
        out.line()
        out.paragraph(title, style="strong")
        out.paragraph(text, indent="  ")
