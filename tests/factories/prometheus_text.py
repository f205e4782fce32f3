"""A strict reader of Prometheus' text format."""

from __future__ import annotations

import re

NAME = re.compile(r"[a-z][a-z0-9_]*")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\\n]|\\[\\"n])*)"(,|$)')
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
# Ends of names: units, and counts or truth values of what they name.
SUFFIXES = ("_seconds", "_ratio", "_info", "_status", "_interrupted", "_running", "_processes", "_problems")
Series = tuple[str, frozenset[tuple[str, str]]]


def read(text: str) -> dict[Series, float]:
    """Every series of a file, by name and labels. Asserts on whatever the format or its conventions do not allow."""
    assert text.endswith("\n")
    found: dict[Series, float] = {}
    typed: list[str] = []
    helped: list[str] = []
    for line in text.removesuffix("\n").split("\n"):
        if line.startswith("# HELP "):
            name, about = line.removeprefix("# HELP ").split(" ", 1)
            assert about
            assert name not in helped
            helped.append(name)
        elif line.startswith("# TYPE "):
            name, kind = line.removeprefix("# TYPE ").split(" ")
            assert kind == "gauge"
            # All lines of a metric stand together, after its help and type.
            assert (helped[-1], name in typed) == (name, False)
            typed.append(name)
        else:
            match = re.fullmatch(r"([^{ ]+)\{(.*)\} (\S+)", line)
            assert match, line
            name, inside, value = match.groups()
            assert NAME.fullmatch(name)
            assert typed[-1] == name
            assert name.startswith("stallscope_")
            assert name.endswith(SUFFIXES)
            labels = []
            while inside:
                label = LABEL.match(inside)
                assert label, inside
                labels.append((label[1], re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], label[2])))
                inside = inside[label.end() :]
            assert len(dict(labels)) == len(labels)
            series = name, frozenset(labels)
            assert series not in found
            found[series] = float(value)
    return found


def only(found: dict[Series, float], name: str, **labels: str) -> float:
    """The value of the one series of this name that has these labels."""
    values = [value for (known, of), value in found.items() if known == name and set(labels.items()) <= of]
    assert len(values) == 1, (name, labels, values)
    return values[0]
