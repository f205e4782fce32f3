"""Metrics of a check in Prometheus' text format 0.0.4, for node_exporter's textfile collector (``*.prom``).

It has what an alert needs: the ratio and the status of each pair, the spread of the baselines, and the time and
duration of the check. The latencies of each phase are in the check's table (CSV) and document (JSON).
Units are seconds and ratios. The label ``simulated`` of each series is "true" for a simulated GPU.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from pathlib import Path

from stallprobes.files import prometheus
from stallprobes.files.prometheus import Metric
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix.matrix import PHASES, Cell, Matrix, Status
from stallprobes.matrix.noise import baseline_spread


def write(matrix: Matrix, path: Path | str) -> None:
    """Write the metrics of ``matrix`` to ``path`` atomically, with mode 0644. Raises FileNotWritten.

    Unlike a saved check, it replaces an existing file: the collector reads one file with the latest values.
    """
    prometheus.write(text(matrix), Path(path))


def text(matrix: Matrix) -> str:
    """The metrics of ``matrix`` in Prometheus' text format."""
    base = {
        "gpu": _word(matrix.fingerprint.get("gpu")),
        "uuid": _word(matrix.fingerprint.get("uuid")),
        "simulated": "true" if matrix.simulated else "false",
    }
    return prometheus.text_of((*_check(matrix, base), *_pairs(matrix, base)))


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


def _pairs(matrix: Matrix, base: Mapping[str, str]) -> Iterator[Metric]:
    ratio = Metric(
        "stallscope_cell_worst_ratio",
        "Latency with the aggressor running over the latency without, as the report shows it: the worst verdict's, "
        "else the larger median's of call and wait.",
    )
    status = Metric("stallscope_cell_status", "1 for the status of the cell.")
    for cell in matrix.cells.values():
        here = {"victim": cell.row, "aggressor": cell.column}
        worst = _worst_ratio(cell)
        if worst is not None:
            ratio.values.append(({**here, **base}, worst))
        if cell.status is not Status.UNSUPPORTED:
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


def _word(value: object) -> str:
    return "" if value is None else str(value)
