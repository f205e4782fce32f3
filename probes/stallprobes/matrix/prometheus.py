"""Metrics of a check in Prometheus' text format 0.0.4, for node_exporter's textfile collector (``*.prom``).

By default it has what an alert needs: the ratio and the status of each pair, the spread of the baselines, and the time
and duration of the check. ``full`` adds the latencies and ratios of each phase and percentile.
Units are seconds and ratios. The label ``simulated`` of each series is "true" for a simulated GPU.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path

from stallprobes.files import prometheus
from stallprobes.files.prometheus import Metric
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import PHASES, Cell, Matrix, Status
from stallprobes.matrix.noise import baseline_spread
from stallprobes.model import Channel

# Value of the Prometheus label ``quantile`` for each percentile.
_QUANTILES = {Quantile.P50: "0.5", Quantile.P99: "0.99"}


def write(matrix: Matrix, path: Path | str, *, full: bool = False) -> None:
    """Write the metrics of ``matrix`` to ``path`` atomically, with mode 0644. Raises FileNotWritten.

    Unlike a saved check, it replaces an existing file: the collector reads one file with the latest values.
    """
    prometheus.write(text(matrix, full=full), Path(path))


def text(matrix: Matrix, *, full: bool = False) -> str:
    """The metrics of ``matrix`` in Prometheus' text format."""
    base = {
        "gpu": _word(matrix.fingerprint.get("gpu")),
        "uuid": _word(matrix.fingerprint.get("uuid")),
        "simulated": "true" if matrix.simulated else "false",
    }
    metrics = (*_check(matrix, base), *_pairs(matrix, base, full), *(_cells(matrix, base) if full else ()))
    return prometheus.text_of(metrics)


def _check(matrix: Matrix, base: Mapping[str, str]) -> Iterator[Metric]:
    info = {
        **base,
        "driver": _word(matrix.fingerprint.get("driver")),
        "cuda": _word(matrix.fingerprint.get("cuda")),
        "program": matrix.program,
        "profile": matrix.profile or "",
        "quick": "true" if matrix.quick else "false",
        "hosts": str(len(matrix.hosts) or 1),
        **({"timeline": "true"} if matrix.timeline else {}),
    }
    begun = datetime.datetime.fromisoformat(matrix.started_at).timestamp()
    yield Metric("stallscope_check_info", "Machine and program of the check; always 1.", [(info, 1)])
    yield Metric("stallscope_check_timestamp_seconds", "Start of the check, in seconds since 1970.", [(base, begun)])
    yield Metric("stallscope_check_duration_seconds", "Duration of the check.", [(base, float(matrix.seconds))])
    interrupted = int(matrix.interrupted)
    yield Metric("stallscope_check_interrupted", "1 if the check was stopped before its end.", [(base, interrupted)])
    spread = baseline_spread(matrix)
    ratios = {} if spread is None else {"typical": spread.typical, "worst": spread.worst}
    yield Metric(
        "stallscope_check_baseline_spread_ratio",
        "Variation of the victims' baselines within the check: typical, and that of the victim that varies most.",
        [({"victims": which, **base}, ratio) for which, ratio in ratios.items()],
    )


def _pairs(matrix: Matrix, base: Mapping[str, str], full: bool) -> Iterator[Metric]:
    ratio = Metric(
        "stallscope_cell_worst_ratio",
        "Latency with the aggressor running over the latency without, as the report shows it: the worst verdict's, "
        "else the larger median's of call and wait.",
    )
    status = Metric("stallscope_cell_status", "1 for the status of the cell, 0 for the others.")
    for cell in matrix.cells.values():
        here = {"victim": cell.row, "aggressor": cell.column}
        worst = _worst_ratio(cell)
        if worst is not None:
            ratio.values.append(({**here, **base}, worst))
        if full:
            status.values.extend(({**here, "status": str(each), **base}, int(each is cell.status)) for each in Status)
        elif cell.status is not Status.UNSUPPORTED:
            status.values.append(({**here, "status": str(cell.status), **base}, 1))
    yield from (ratio, status)


def _worst_ratio(cell: Cell) -> float | None:
    if not cell.status.measured:
        return None
    worst = cell.worst
    if worst is not None and worst.kind.severity and worst.ratio is not None:
        return worst.ratio
    medians = (cell.ratio(phase, Quantile.P50) for phase in PHASES)
    return max((ratio.ratio for ratio in medians if ratio is not None), default=None)


def _cells(matrix: Matrix, base: Mapping[str, str]) -> Iterator[Metric]:
    now = Metric("stallscope_cell_latency_seconds", "Latency of the victim's calls with the aggressor running.")
    baseline = Metric("stallscope_cell_quiet_latency_seconds", "Latency of the victim's calls without the aggressor.")
    ratio = Metric("stallscope_cell_times_quiet_ratio", "Latency with the aggressor running over the latency without.")
    flight = Metric("stallscope_cell_in_flight_seconds", "Longest age of a call in flight at the end of a window.")
    for cell in matrix.cells.values():
        here = {"victim": cell.row, "aggressor": cell.column}
        for phase in PHASES:
            channel = Channel(phase)
            for quantile, share in _QUANTILES.items():
                labels = {**here, "phase": str(phase), "quantile": share, **base}
                for metric, channels in ((now, cell.channels), (baseline, cell.baseline)):
                    value = _seconds(channels, channel, quantile)
                    if value is not None:
                        metric.values.append((labels, value))
                figure = cell.ratio(phase, quantile)
                if figure is not None:
                    ratio.values.append((labels, figure.ratio))
        if cell.in_flight_ns is not None:
            flight.values.append(({**here, **base}, cell.in_flight_ns / 1e9))
    yield from (now, baseline, ratio, flight)


def _seconds(channels: Mapping[Channel, Histogram], channel: Channel, quantile: Quantile) -> float | None:
    ns = channels[channel].percentile(quantile.percent) if channel in channels else None
    return None if ns is None else ns / 1e9


def _word(value: object) -> str:
    return "" if value is None else str(value)
