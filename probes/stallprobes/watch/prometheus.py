"""Metrics of a watched program in Prometheus' text format, for node_exporter's textfile collector (``*.prom``).

Their number is bounded, and their labels have no value of the command line, which may hold secrets. The label ``watch``
is the name of the file without ``.prom``: several programs of a machine are watched with a file each. Processes and
sequences are numbered, so that the series of a program are the same in its next run; the ``_info`` metrics name them.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from stallprobes.files import prometheus
from stallprobes.files.prometheus import Metric
from stallprobes.watch.attribution.findings import ProcessFindings, WatchFindings
from stallprobes.watch.division.parts import Part
from stallprobes.watch.lines.result import ProgramSequence

# Shortest time (s) between two writes of the file while the program runs: usual, and until a process uses CUDA.
# Prometheus usually reads every 15 s.
_PERIOD_S, _FIRST_PERIOD_S = 10.0, 1.0
# Largest numbers of processes, and of sequences of a process, that have metrics: the first ones.
_MOST_PROCESSES, _MOST_SEQUENCES = 32, 8
# Longest value (characters) of a label.
_LONGEST_LABEL = 64


class MetricsFile:
    """The file ``path`` with the metrics of a program, written anew while it runs and at its end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._due_s = 0.0

    @property
    def due(self) -> bool:
        """True if the last write was long enough ago, or there was none."""
        return time.monotonic() >= self._due_s

    def write(self, findings: WatchFindings, *, last: bool = False) -> None:
        """Replace the file by one with the metrics of ``findings``; it is not due again after the ``last`` ones.

        Raises FileNotWritten.
        """
        self._due_s = math.inf if last else time.monotonic() + (_PERIOD_S if findings.processes else _FIRST_PERIOD_S)
        name = self._path.name.removesuffix(".prom")
        prometheus.write(text(findings, name, time.time(), last=last), self._path)


def text(findings: WatchFindings, watch: str, now_s: float, *, last: bool = False) -> str:
    """The metrics of ``findings`` in Prometheus' text format at ``now_s`` since 1970, with the label ``watch``.

    ``last``: no process is watched any more.
    """
    return prometheus.text_of(_metrics(findings, {"watch": watch[:_LONGEST_LABEL]}, now_s, last))


def _metrics(findings: WatchFindings, base: Mapping[str, str], now_s: float, last: bool) -> Iterator[Metric]:
    yield Metric("stallscope_watch_timestamp_seconds", "When this was written, in s since 1970.", [(base, now_s)])
    yield Metric("stallscope_watch_duration_seconds", "Time watched.", [(base, findings.duration_ns / 1e9)])
    yield Metric(
        "stallscope_watch_processes",
        f"Number of processes; at most {_MOST_PROCESSES} have metrics.",
        [(base, len(findings.processes))],
    )
    yield Metric("stallscope_watch_problems", "Number of problems of the recording.", [(base, len(findings.problems))])
    processes = [
        (process, {**base, "process": str(number)})
        for number, process in enumerate(findings.processes[:_MOST_PROCESSES])
    ]
    yield Metric(
        "stallscope_watch_process_info",
        "Name, process id and rank of a process; always 1.",
        [({**labels, **_names(process)}, 1) for process, labels in processes],
    )
    yield Metric(
        "stallscope_watch_process_running",
        "1 while the process runs and is watched.",
        [(labels, int(not (process.ended or last))) for process, labels in processes],
    )
    yield Metric(
        "stallscope_watch_standstill_seconds",
        "Time for which no call of the driver has begun or returned, from 5 s on while it runs, else 0.",
        [(labels, 0.0 if process.standstill is None else process.standstill.ns / 1e9) for process, labels in processes],
    )
    yield Metric(
        "stallscope_watch_cost_ratio",
        "Share of the time of the busiest thread that watching costs: the lower and upper limit.",
        [
            ({**labels, "limit": limit}, getattr(process.cost, limit))
            for process, labels in processes
            if process.cost is not None
            for limit in ("low", "high")
        ],
    )
    yield from _of_sequences(
        [
            (sequence, {**labels, "sequence": str(number), "device": _word(sequence.device)}, process)
            for process, labels in processes
            for number, sequence in enumerate(process.sequences[:_MOST_SEQUENCES])
        ]
    )


def _of_sequences(sequences: list[tuple[ProgramSequence, dict[str, str], ProcessFindings]]) -> Iterator[Metric]:
    yield Metric(
        "stallscope_watch_verdict_info",
        "What bounds a sequence (threads that call by turns) on a GPU, and the next verdict; always 1.",
        [
            ({**labels, "verdict": str(sequence.verdict), "second": _word(sequence.second)}, 1)
            for sequence, labels, _ in sequences
        ],
    )
    yield Metric(
        "stallscope_watch_sequence_info",
        "First thread of a sequence and its GPU; always 1.",
        [({**labels, **_places(sequence, process)}, 1) for sequence, labels, process in sequences],
    )
    divided = [(sequence, labels) for sequence, labels, _ in sequences if sequence.divided]
    yield Metric(
        "stallscope_watch_part_ratio",
        "Share of the parts of the time of a sequence on a GPU; their sum is 1.",
        [
            ({**labels, "part": str(part)}, round(sequence.share(part), 6))
            for sequence, labels in divided
            for part in Part
            if part is not Part.END
        ],
    )
    for name, figure, about in (
        ("gpu", "gpu", "Share of the time in which the GPU works for the sequence."),
        ("host", "host", "Share of the time in which the sequence does not wait for the GPU."),
        ("waits", "price", "Share of the time that its waits cost at most."),
    ):
        yield Metric(
            f"stallscope_watch_{name}_ratio",
            about,
            [(labels, getattr(sequence, figure).share) for sequence, labels in divided],
        )
    steps = [(sequence.step, labels) for sequence, labels in divided if sequence.step is not None]
    yield Metric(
        "stallscope_watch_step_seconds",
        "Time of a step: the median, and the 99th percentile where it is known.",
        [
            ({**labels, "percentile": percentile}, ns / 1e9)
            for step, labels in steps
            for percentile, ns in (("50", step.ns), ("99", step.slow_ns))
            if ns is not None
        ],
    )


def _names(process: ProcessFindings) -> dict[str, str]:
    rank = None if process.rank is None else process.rank.number
    return {"program": process.name[:_LONGEST_LABEL], "pid": str(process.pid), "rank": _word(rank)}


def _places(sequence: ProgramSequence, process: ProcessFindings) -> dict[str, str]:
    names = {thread.id: thread.name for thread in process.threads}
    first = sequence.threads[0] if sequence.threads else 0
    known = sequence.device is not None and sequence.device < len(process.gpus)
    uuid = process.gpus[sequence.device] if known and sequence.device is not None else ""
    return {"thread": names.get(first, "")[:_LONGEST_LABEL], "uuid": uuid[:_LONGEST_LABEL]}


def _word(value: object) -> str:
    return "" if value is None else str(value)
