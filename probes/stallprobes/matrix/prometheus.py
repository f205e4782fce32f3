"""A check's figures for Prometheus: a file that node_exporter's textfile collector reads from its folder (``*.prom``).

Prometheus' text format, version 0.0.4. Base units (seconds, ratios); each series says by its label ``simulated``
whether it was measured at all.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stallprobes.errors import CheckFileError, FileNotWritten
from stallprobes.files import atomic
from stallprobes.matrix.matrix import PHASES, Cell, Matrix, Status
from stallprobes.model import Channel

# Prometheus' labels for 50 and 99 per cent.
_QUANTILES = {50: "0.5", 99: "0.99"}
# node_exporter runs as a user of its own.
_MODE = 0o644


@dataclass(frozen=True)
class _Metric:
    """One metric: its name, what it is, and its values by their labels."""

    name: str
    about: str
    values: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        if self.values:
            yield f"# HELP {self.name} {_escaped(self.about)}"
            yield f"# TYPE {self.name} gauge"
        for labels, value in self.values:
            told = ",".join(f'{key}="{_quoted(text)}"' for key, text in labels.items())
            yield f"{self.name}{{{told}}} {value!r}"


def write(matrix: Matrix, path: Path | str) -> None:
    """Write the figures of ``matrix`` to ``path``, readable for everybody (0644).

    Unlike a saved check, a file that is there is replaced: the collector wants one file with what was measured last.
    It is replaced at once, so that it is never read half written. Raises CheckFileError.
    """
    try:
        atomic.write(Path(path), (text(matrix).encode(),), force=True, mode=_MODE)
    except FileNotWritten as error:
        raise CheckFileError(str(error)) from error


def text(matrix: Matrix) -> str:
    """The figures of ``matrix`` in Prometheus' text format."""
    base = {
        "gpu": _word(matrix.fingerprint.get("gpu")),
        "uuid": _word(matrix.fingerprint.get("uuid")),
        "simulated": "true" if matrix.simulated else "false",
    }
    metrics = (*_check(matrix, base), *_cells(matrix, base))
    return "".join(f"{line}\n" for metric in metrics for line in metric.lines())


def _check(matrix: Matrix, base: Mapping[str, str]) -> Iterator[_Metric]:
    info = {
        **base,
        "driver": _word(matrix.fingerprint.get("driver")),
        "cuda": _word(matrix.fingerprint.get("cuda")),
        "program": matrix.program,
        "profile": matrix.profile or "",
        "quick": "true" if matrix.quick else "false",
        "hosts": str(len(matrix.hosts) or 1),
    }
    begun = datetime.datetime.fromisoformat(matrix.started_at).timestamp()
    yield _Metric("stallscope_check_info", "What was checked; always 1.", [(info, 1)])
    yield _Metric("stallscope_check_timestamp_seconds", "When the check began, since 1970.", [(base, begun)])
    yield _Metric("stallscope_check_duration_seconds", "How long the check took.", [(base, float(matrix.seconds))])
    interrupted = _Metric("stallscope_check_interrupted", "1 when the check was stopped before its end.")
    interrupted.values.append((base, int(matrix.interrupted)))
    yield interrupted


def _cells(matrix: Matrix, base: Mapping[str, str]) -> Iterator[_Metric]:
    now = _Metric("stallscope_cell_latency_seconds", "Latency of the victim's calls beside the aggressor.")
    quiet = _Metric("stallscope_cell_quiet_latency_seconds", "Latency of the victim's calls just before and after it.")
    ratio = _Metric("stallscope_cell_times_quiet_ratio", "Latency beside the aggressor over that in quiet.")
    flight = _Metric("stallscope_cell_in_flight_seconds", "Longest age of a call that had not returned at the end.")
    status = _Metric("stallscope_cell_status", "1 for what can be said of the cell, 0 for the rest.")
    for cell in matrix.cells.values():
        here = {"victim": cell.row, "aggressor": cell.column}
        for phase in PHASES:
            channel = Channel(phase)
            for q, quantile in _QUANTILES.items():
                labels = {**here, "phase": str(phase), "quantile": quantile, **base}
                for metric, value in ((now, _seconds(cell, channel, q)), (quiet, _quiet_seconds(cell, channel, q))):
                    if value is not None:
                        metric.values.append((labels, value))
                times = cell.times(phase, q)
                if times is not None:
                    ratio.values.append((labels, times.ratio))
        if cell.in_flight_us is not None:
            flight.values.append(({**here, **base}, cell.in_flight_us / 1e6))
        status.values.extend(({**here, "status": str(one), **base}, int(one is cell.status)) for one in Status)
    yield from (now, quiet, ratio, flight, status)


def _seconds(cell: Cell, channel: Channel, q: int) -> float | None:
    ns = cell.channels[channel].percentile(q) if channel in cell.channels else None
    return None if ns is None else ns / 1e9


def _quiet_seconds(cell: Cell, channel: Channel, q: int) -> float | None:
    ns = cell.quiet[channel].percentile(q) if channel in cell.quiet else None
    return None if ns is None else ns / 1e9


def _word(value: object) -> str:
    return "" if value is None else str(value)


def _escaped(told: str) -> str:
    return told.replace("\\", r"\\").replace("\n", r"\n")


def _quoted(told: str) -> str:
    return _escaped(told).replace('"', r"\"")
