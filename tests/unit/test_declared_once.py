"""Every field is declared once: no two types of the product have most of their fields in common, by name and type."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Iterator, Mapping
from itertools import combinations
from types import ModuleType

import msgspec
import pytest

import stallprobes
import stallscope

LEAST_FIELDS, MOST_SHARED = 6, 0.6
# Pairs that are meant to be alike, with the reason; ten at most.
EXCEPTIONS: Mapping[frozenset[str], str] = {
    frozenset("stallprobes." + name for name in pair): reason
    for pair, reason in (
        (("verdicts.explanations.Explained", "verdicts.verdict.Verdict"), "the part of a verdict that others replace"),
        (("model.Probe", "measurement.result.RunProbe"), "a probe has its program, and a result is read without one"),
        (("model.Probe", "recording.lines.StoredProbe"), "a recording leaves out the arguments of calls"),
        (("measurement.result.RunProbe", "recording.lines.StoredProbe"), "a recording leaves out what is usual"),
        (("watch.attribution.findings.CallSite", "watch.call_sums._SiteSum"), "sums while calls are added"),
        (("watch.lines.result.WaitPlace", "watch.lines.result.HoldingCalls"), "the same words for other calls"),
    )
} | {
    frozenset(("stallscope.cli.watch.WatchArguments", "stallscope.cli.watching.files.WatchFiles")): (
        "arguments are checked before the modules that write files are loaded"
    )
}


def modules(package: ModuleType) -> Iterator[ModuleType]:
    """The modules of ``package`` that can be imported without running a program."""
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not info.name.endswith("__main__"):
            yield importlib.import_module(info.name)


def own_fields(kind: type) -> Mapping[str, str]:
    """The fields that ``kind`` declares itself, not its bases, with their types as written."""
    inherited = {name for base in kind.__mro__[1:] for name in inspect.get_annotations(base)}
    known = (
        {field.name for field in dataclasses.fields(kind)}
        if dataclasses.is_dataclass(kind)
        else {*getattr(kind, "__struct_fields__", ()), *getattr(kind, "_fields", ())}
    )
    annotations = inspect.get_annotations(kind)
    return {name: bare(str(annotations[name])) for name in annotations if name in known - inherited}


# Types of fields that differ in their limits alone.
ALIASES = {"Text": "str", "Name": "str", "Natural": "int", "Unsigned": "int", "Nanoseconds": "int", "Positive": "int"}
ALIASES |= {"Integer": "int", "Figure": "float", "Latency": "float", "Ratio": "float", "Share": "float"}


def bare(annotation: str) -> str:
    """A type as written, without its description, its limits and None; a list counts as a tuple."""
    annotation = " ".join(annotation.split())
    if annotation.startswith("Annotated["):
        depth = 0
        for place, letter in enumerate(annotation):
            depth += (letter in "([") - (letter in ")]")
            if letter == "," and depth == 1:
                annotation = annotation[len("Annotated[") : place]
                break
    annotation = re.sub(r"\w+", lambda word: ALIASES.get(word[0], word[0]), annotation.removesuffix(" | None"))
    return re.sub(r"(?:list|Sequence)\[(.*)\]", r"tuple[\1, ...]", annotation)


@pytest.fixture(scope="module")
def types() -> Mapping[str, Mapping[str, str]]:
    found = {
        f"{kind.__module__}.{kind.__qualname__}": own_fields(kind)
        for package in (stallprobes, stallscope)
        for module in modules(package)
        for kind in vars(module).values()
        if inspect.isclass(kind)
        and kind.__module__ == module.__name__
        and (dataclasses.is_dataclass(kind) or issubclass(kind, msgspec.Struct) or hasattr(kind, "_fields"))
    }
    return {name: fields for name, fields in found.items() if len(fields) >= LEAST_FIELDS}


def test_no_two_types_declare_the_same_fields(types: Mapping[str, Mapping[str, str]]) -> None:
    twice = []
    for (first, ours), (second, theirs) in combinations(types.items(), 2):
        shared = ours.items() & theirs.items()
        if len(shared) >= MOST_SHARED * min(len(ours), len(theirs)) and frozenset((first, second)) not in EXCEPTIONS:
            twice.append(f"{first} and {second}: {', '.join(sorted(name for name, _ in shared))}")
    assert not twice, "\n".join(twice)


def test_the_exceptions_are_few_and_exist(types: Mapping[str, Mapping[str, str]]) -> None:
    assert len(EXCEPTIONS) <= 10
    assert {name for pair in EXCEPTIONS for name in pair} <= types.keys()
