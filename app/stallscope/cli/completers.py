"""Words that complete a value on the command line, one function for each kind of parameter.

click calls each function with the context of the earlier words, the parameter, and the beginning of the word. The
functions import the catalogue and the patterns, which load quickly, and nothing that measures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

# Completion type by which click asks the shell to complete file names.
FILE_TYPE = "file"
# Value of two options: --reference none compares with no reference, and --fail-on none lets no result count as a
# failure.
NONE = "none"


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, by the shell. They come before other items: bash forgets those before them."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=FILE_TYPE)]


def patterns(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Patterns."""
    return items(incomplete, _pattern_titles())


def patterns_and_probes(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Patterns and probes, without a place."""
    return items(incomplete, {**_pattern_titles(), **_probe_titles()})


def run_names(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Arguments of ``run``: ``all``, patterns, and probes with their places."""
    from stallprobes.patterns import naming

    words = {**_pattern_titles(), naming.ALL: "every pattern", **_probe_titles(), **_placements(incomplete)}
    return items(incomplete, words)


def beside(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Aggressors that may run beside a watched program, in a list that is separated with commas."""
    from stallprobes.catalog import beside_programs, entries
    from stallprobes.patterns import naming

    begun, _, last = incomplete.rpartition(",")
    words = {name: entries()[name].title for name in beside_programs()}
    return _list_items(begun, last, {naming.ALL: "every one of them", **words})


def probes_of(role: str) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Probes of ``role`` with their places, in a list that is separated with commas."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from stallprobes.catalog import entries
        from stallprobes.patterns import naming

        begun, _, last = incomplete.rpartition(",")
        words = {entry.name: entry.title for entry in entries().values() if entry.role == role}
        return _list_items(begun, last, {naming.ALL: "every one of the default check", **words, **_placements(last)})

    return complete


def variants(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Variants of the patterns that the words before name; of every pattern if they name none."""
    from stallprobes.patterns import patterns as known

    # Arguments before an option without its value are not yet assigned to a parameter.
    given = [context.params.get("pattern"), *(context.params.get("names") or ()), *context.args]
    chosen = [known()[name] for name in given if name in known()] or known().values()
    return items(incomplete, {variant.name: variant.title for pattern in chosen for variant in pattern.variants})


def profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, and profiles of simulated GPUs. The value is optional: a word after ``--sim`` may also be an argument."""
    from stallprobes.engine.sim import profile

    others: list[CompletionItem] = []
    if isinstance(context.command, click.Group):
        others += context.command.shell_complete(context, incomplete)
    for argument in context.command.params:
        if isinstance(argument, click.Argument) and argument.nargs < 0:
            others += argument.shell_complete(context, incomplete)
    profiles = items(incomplete, {name: profile.load(name).title for name in profile.names()})
    return [*profiles, *others]


def simulation_settings(context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Parameters of the simulated GPU, each with ``=``, and with its section where it needs one."""
    from stallprobes.engine.sim import profile

    name = context.params.get("sim")
    settings = profile.settable(name if name in profile.names() else None)
    short = Counter(full.partition(".")[2] for full, _, _ in settings)
    words = {}
    for full, value, what in settings:
        last = full.partition(".")[2]
        key = last if "." not in incomplete and short[last] == 1 else full
        words[f"{key}="] = f"{what}: {value}"
    return items(incomplete, words)


def references(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, references in the package, and ``none``."""
    from stallprobes.matrix import references

    words = {**dict.fromkeys(references.names(), ""), NONE: "no reference"}
    return [*files(context, parameter, incomplete), *items(incomplete, words)]


def failures(results: Sequence[str]) -> Callable[[click.Context, click.Parameter, str], list[CompletionItem]]:
    """Completion of ``results``, the results of a check that may count as failures, in a list with commas."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        begun, _, last = incomplete.rpartition(",")
        return _list_items(begun, last, dict.fromkeys(results if begun else (*results, NONE), ""))

    return complete


def languages(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Languages of remedies as code."""
    from stallprobes.patterns.remedy_code import CodeLanguage

    return items(incomplete, {language: language.label for language in CodeLanguage})


def _list_items(begun: str, last: str, words: Mapping[str, str]) -> list[CompletionItem]:
    """Items for the ``last`` word of a list, without the items in the earlier part ``begun``."""
    there = begun.split(",") if begun else []
    prefix = f"{begun}," if begun else ""
    left = {prefix + word: title for word, title in words.items() if word not in there}
    return items(prefix + last, left)


def _placements(incomplete: str) -> dict[str, str]:
    """The probe in ``incomplete`` with each context and each stream that can follow."""
    from stallprobes.catalog import entries
    from stallprobes.patterns import naming

    placed, slash, _ = incomplete.partition("/")
    entry, at, context = placed.partition("@")
    if naming.entry_name(entry) not in entries():
        return {}
    if slash and (not at or context in naming.CONTEXTS):
        return {f"{placed}/{stream}": "stream" for stream in naming.STREAMS}
    return {f"{entry}@{name}": "context" for name in naming.CONTEXTS} if at else {}


def _pattern_titles() -> dict[str, str]:
    from stallprobes.patterns import patterns as known

    return {pattern.name: pattern.title for pattern in known().values()}


def _probe_titles() -> dict[str, str]:
    from stallprobes.catalog import entries

    return {entry.name: entry.title for entry in entries().values()}


def items(incomplete: str, words: Mapping[str, str]) -> list[CompletionItem]:
    """The words that begin with ``incomplete``, with their titles."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, help=title or None) for word, title in words.items() if word.startswith(incomplete)]
