"""Remedies as code: the lines with their words, the same in text and on the screen."""

from __future__ import annotations

from collections.abc import Sequence

from stallprobes.model import Pattern
from stallprobes.patterns.remedy_code import CodeLanguage, RemedyCode, remedy_code
from stallprobes.units import duration_ns
from stallscope.report.text import TextWriter

# Blanks for one level of indentation of a remedy's text.
_INDENT = "  "


def write_code(out: TextWriter, pattern: Pattern, language: CodeLanguage) -> None:
    """Write the code of all remedies of ``pattern`` in ``language``, and which other languages have any."""
    if not remedy_code(pattern.name):
        return
    out.line()
    out.paragraph(heading(language), style="strong")
    for number, code in enumerate(codes(pattern, language)):
        if number:
            out.line()
        out.paragraph(title(pattern, code), indent=_INDENT * 2, first=_INDENT)
        out.code(code.lines, _INDENT * 2)
        out.paragraph(effect(code), indent=_INDENT, style="dim")
    others = other_languages(pattern, language)
    if not codes(pattern, language):
        out.paragraph(without_code(language), indent=_INDENT)
    if others:
        out.line()
        options = ", ".join(f"--lang {other}" for other in others)
        out.paragraph(f"In other languages: {options}", indent=_INDENT, style="dim")


def with_code(remedy: str, pattern: str) -> str:
    """The sentence ``remedy``, with the command that shows the remedies of ``pattern`` as code if there are any."""
    return f"{remedy} As code: `stallscope explain {pattern}`." if pattern and remedy_code(pattern) else remedy


def codes(pattern: Pattern, language: CodeLanguage, first: str = "") -> Sequence[RemedyCode]:
    """The code of the remedies of ``pattern`` in ``language``, the variant ``first`` before the others."""
    return sorted(remedy_code(pattern.name).get(language, ()), key=lambda code: code.variant != first)


def other_languages(pattern: Pattern, language: CodeLanguage) -> list[CodeLanguage]:
    """The other languages that have code for ``pattern``."""
    return [other for other in remedy_code(pattern.name) if other is not language]


def heading(language: CodeLanguage) -> str:
    """The heading of the code."""
    return f"Remedy in {language.label}"


def without_code(language: CodeLanguage) -> str:
    """The sentence for a pattern whose code is in other languages only."""
    return f"This pattern has no code in {language.label}."


def title(pattern: Pattern, code: RemedyCode) -> str:
    """The variant of ``code`` with its title."""
    return f"{code.variant}: {pattern.variant(code.variant).title}"


def effect(code: RemedyCode) -> str:
    """The measured effect of the lines in the program from which they are."""
    if code.effect is None:
        return "Not measured yet."
    figures = code.effect
    without = f"; without the cause {duration_ns(figures.without_ns)}" if figures.without_ns else ""
    return (
        f"Measured on {figures.machine}: {figures.victim} took {duration_ns(figures.before_ns)}, and with these lines "
        f"{duration_ns(figures.after_ns)}{without}."
    )
