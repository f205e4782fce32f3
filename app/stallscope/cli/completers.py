"""Words that complete a value on the command line, one function for each kind of parameter.

click calls each function with the context of the earlier words, the parameter, and the beginning of the word. The
functions import the catalogue and the patterns, which load quickly, and nothing that measures.
"""

from __future__ import annotations

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
# Word for all names of a kind.
ALL = "all"
# Completion of a value, as click calls it.
Completer = Callable[[click.Context, click.Parameter, str], "list[CompletionItem]"]


def files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, by the shell. They come before other items: bash forgets those before them."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type=FILE_TYPE)]


def _one_of(words: Callable[[], Mapping[str, str]]) -> Completer:
    """The completion of one of ``words``, which have their titles."""
    return lambda _context, _parameter, incomplete: items(incomplete, words())


def _list_of(words: Callable[[], Mapping[str, str]]) -> Completer:
    """The completion of a list of ``words``, separated with commas, without those that it has already."""

    def complete(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
        begun, comma, _ = incomplete.rpartition(",")
        left = {word: title for word, title in words().items() if word not in begun.split(",")}
        return items(incomplete, {f"{begun}{comma}{word}": title for word, title in left.items()})

    return complete


def _pattern_titles() -> dict[str, str]:
    from stallprobes.patterns import patterns as known

    return {pattern.name: pattern.title for pattern in known().values()}


def _probe_titles(role: str | None = None) -> dict[str, str]:
    from stallprobes.catalog import entries

    return {entry.name: entry.title for entry in entries().values() if role is None or entry.role == role}


def _beside_titles() -> dict[str, str]:
    from stallprobes.catalog import beside_programs

    return {ALL: "every one of them", **{name: _probe_titles()[name] for name in beside_programs()}}


def _languages() -> dict[str, str]:
    from stallprobes.patterns.remedy_code import CodeLanguage

    return {language: language.label for language in CodeLanguage}


# Patterns.
patterns = _one_of(_pattern_titles)
# Patterns and probes, without a place.
patterns_and_probes = _one_of(lambda: {**_pattern_titles(), **_probe_titles()})
# Arguments of ``run``: ``all``, patterns, and probes, without a place.
run_names = _one_of(lambda: {**_pattern_titles(), ALL: "every pattern", **_probe_titles()})
# Aggressors that may run beside a watched program.
beside = _list_of(_beside_titles)
# Languages of remedies as code.
languages = _one_of(_languages)


def probes_of(role: str) -> Completer:
    """Probes of ``role``, in a list."""
    return _list_of(lambda: {ALL: "every one of the default check", **_probe_titles(role)})


def failures(results: Sequence[str]) -> Completer:
    """``results``, the results of a check that may count as failures, in a list."""
    return _list_of(lambda: dict.fromkeys((*results, NONE), ""))


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


def references(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, references in the package, and ``none``."""
    from stallprobes.matrix import references

    words = {**dict.fromkeys(references.names(), ""), NONE: "no reference"}
    return [*files(context, parameter, incomplete), *items(incomplete, words)]


def items(incomplete: str, words: Mapping[str, str]) -> list[CompletionItem]:
    """The words that begin with ``incomplete``, with their titles."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(word, help=title or None) for word, title in words.items() if word.startswith(incomplete)]
