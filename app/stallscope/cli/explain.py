"""The command ``explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from stallprobes.errors import UnknownName
from stallscope.cli import completers
from stallscope.cli.command import CliCommand
from stallscope.cli.process.diagnostics import CommandError, ExitCode
from stallscope.cli.process.stdout import Output

if TYPE_CHECKING:
    from stallprobes.patterns.remedy_code import CodeLanguage


def _language(value: str | CodeLanguage) -> CodeLanguage:
    from stallprobes.patterns.remedy_code import CodeLanguage

    try:
        return CodeLanguage(value.lower())
    except ValueError:
        raise click.BadParameter(f'"{value}" is not one of {", ".join(CodeLanguage)}') from None


@click.command("explain", cls=CliCommand)
@click.argument("name", shell_complete=completers.patterns_and_probes)
@click.option(
    "--lang",
    "language",
    type=_language,
    shell_complete=completers.languages,
    metavar="LANG",
    help="Language of the remedies as code: cuda, pytorch or cupy.  [default: the setting remedy_language, cuda]",
)
def command(name: str, language: CodeLanguage | None) -> None:
    """Explain the pattern or probe NAME: symptom, cause, remedies and sources.

    \b
    Examples:
      stallscope explain secondary-context-d2d
      stallscope explain scalar-readback --lang pytorch
      stallscope explain launch
    """
    from stallprobes.catalog import entries
    from stallprobes.patterns import patterns
    from stallscope.report import catalog_text

    with Output() as out:
        if name in patterns():
            catalog_text.write_pattern(out, patterns()[name], language or _default_language())
        elif name in entries():
            used = [
                pattern.name
                for pattern in patterns().values()
                if any(probe.entry == name for variant in pattern.variants for probe in variant.probes)
            ]
            catalog_text.write_entry(out, entries()[name], entries(), used)
        else:
            from stallprobes.patterns.naming import unknown_name_message

            raise UnknownName(unknown_name_message("pattern or probe", name, [*patterns(), *entries()]))


def _default_language() -> CodeLanguage:
    """The language of the settings file. Raises CommandError for a file that is invalid."""
    from stallprobes.patterns.remedy_code import CodeLanguage
    from stallscope.tui import settings

    try:
        return CodeLanguage(settings.load().remedy_language)
    except settings.SettingsError as error:
        raise CommandError(ExitCode.USAGE, f"{error}; correct it, or give --lang") from error
