"""Prometheus' text format 0.0.4, for node_exporter's textfile collector (``*.prom``)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stallprobes.files import atomic
from stallprobes.foreign_text import printable_lines

# First bytes of a file with metrics of stallscope.
START = b"# HELP stallscope_"
# Permissions of the file with the metrics. Reason: node_exporter reads the file as another user.
_MODE = 0o644


@dataclass(frozen=True)
class Metric:
    """One metric: its name, its help text, and its values by labels."""

    name: str
    about: str
    values: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Its help, its type and its values; none without a value."""
        if self.values:
            yield f"# HELP {self.name} {_escaped(self.about)}"
            yield f"# TYPE {self.name} gauge"
        for labels, value in self.values:
            pairs = ",".join(f'{key}="{_quoted(text)}"' for key, text in labels.items())
            yield f"{self.name}{{{pairs}}} {value!r}"


def text_of(metrics: Iterable[Metric]) -> str:
    """The text of ``metrics``."""
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def write(text: str, path: Path) -> None:
    """Write the ``text`` of metrics to ``path`` atomically, with mode 0644. Raises FileNotWritten.

    It replaces an existing file: the collector reads one file with the latest values. It is not synced to disk, since
    the thread that writes also reads what a watched program records.
    """
    atomic.write(path, (printable_lines(text).encode(),), force=True, mode=_MODE, durable=False)


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(text: str) -> str:
    return _escaped(text).replace('"', r"\"")
