"""Metrics of a watched program: read back, they say what the report says, and their number and labels are bounded."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from factories.prometheus_text import only, read
from factories.watch_moments import findings
from stallprobes.errors import FileNotWritten
from stallprobes.watch import prometheus
from stallprobes.watch.attribution.findings import Standstill
from stallprobes.watch.division.parts import Part
from stallprobes.watch.prometheus import MetricsFile
from stallprobes.watch.reading.process_rank import Rank

NOW_S = 1_700_000_009.5
HOSTILE = '"}\\ 1\n# TYPE x gauge\x1b[2J' + "x" * 500


def test_the_metrics_are_those_of_the_report() -> None:
    found = findings(8)
    series = read(prometheus.text(found, "train", NOW_S))
    (process,) = found.processes
    (sequence,) = process.sequences
    here = {"watch": "train", "process": "0"}
    assert only(series, "stallscope_watch_timestamp_seconds", watch="train") == NOW_S
    assert only(series, "stallscope_watch_duration_seconds") == found.duration_ns / 1e9
    assert only(series, "stallscope_watch_process_running", **here) == 1
    assert only(series, "stallscope_watch_process_info", program=process.name, pid=str(process.pid), **here) == 1
    assert only(series, "stallscope_watch_standstill_seconds", **here) == 0
    assert process.cost is not None
    assert only(series, "stallscope_watch_cost_ratio", limit="high", **here) == process.cost.high
    here |= {"sequence": "0", "device": "0"}
    assert only(series, "stallscope_watch_verdict_info", verdict=str(sequence.verdict), **here) == 1
    parts = {part: only(series, "stallscope_watch_part_ratio", part=part, **here) for part in Part if part != "end"}
    assert parts == {part: pytest.approx(sequence.share(part), abs=1e-6) for part in parts}
    assert sum(parts.values()) == pytest.approx(1, abs=1e-4)
    assert only(series, "stallscope_watch_gpu_ratio", **here) == sequence.gpu.share
    assert only(series, "stallscope_watch_host_ratio", **here) == sequence.host.share
    assert only(series, "stallscope_watch_waits_ratio", **here) == sequence.price.share
    assert sequence.step is not None
    assert only(series, "stallscope_watch_step_seconds", percentile="50", **here) == sequence.step.ns / 1e9


def test_a_verdict_has_one_series_and_an_unknown_one_no_shares() -> None:
    found = findings(8)
    undivided = found.processes[0].sequences[0].changed(device=None)
    series = read(
        prometheus.text(found.changed(processes=(found.processes[0].changed(sequences=(undivided,)),)), "", 0)
    )
    assert sum(name == "stallscope_watch_verdict_info" for name, _ in series) == 1
    assert not any(name.endswith(("_part_ratio", "_gpu_ratio", "_host_ratio", "_waits_ratio")) for name, _ in series)


def test_a_process_that_has_ended_or_stands_still_says_so() -> None:
    found = findings(8, ended=True)
    still = found.processes[0].changed(standstill=Standstill(ns=61_000_000_000, begun=True), rank=Rank(number=3))
    series = read(prometheus.text(found.changed(processes=(still,)), "train", NOW_S))
    assert only(series, "stallscope_watch_process_running") == 0
    assert only(series, "stallscope_watch_standstill_seconds") == 61
    assert only(series, "stallscope_watch_process_info", rank="3") == 1


def test_a_process_that_runs_after_detaching_is_no_longer_watched() -> None:
    for last, running in ((False, 1), (True, 0)):
        series = read(prometheus.text(findings(8), "train", NOW_S, last=last))
        assert only(series, "stallscope_watch_process_running") == running


def test_names_of_a_program_stay_labels_and_are_cut() -> None:
    found = findings(8)
    (process,) = found.processes
    threads = tuple(thread.changed(name=HOSTILE) for thread in process.threads)
    hostile = process.changed(name=HOSTILE, command="secret", gpus=(HOSTILE,), threads=threads)
    text = prometheus.text(found.changed(processes=(hostile,), program=("python", "--token=secret")), HOSTILE, NOW_S)
    names = {(name, tuple(sorted(labels))) for name, labels in read(text)}
    assert len(names) == len(read(prometheus.text(found, "train", NOW_S)))
    assert "secret" not in text
    for _, labels in read(text):
        assert max(len(value) for _, value in labels) <= 64


def test_the_number_of_series_is_bounded() -> None:
    found = findings(8)
    (process,) = found.processes
    many = process.changed(sequences=process.sequences * 100)
    series = read(prometheus.text(found.changed(processes=(many,) * 100), "train", NOW_S))
    assert only(series, "stallscope_watch_processes") == 100
    assert len(series) < 8000


def test_a_program_that_uses_no_cuda_yet_has_metrics() -> None:
    series = read(prometheus.text(findings(8).changed(processes=()), "train", NOW_S))
    assert only(series, "stallscope_watch_processes") == 0


def test_the_file_is_replaced_for_all_to_read_and_is_due_again_later(tmp_path: Path) -> None:
    path = tmp_path / "train.prom"
    path.write_text("older", encoding="utf-8")
    metrics = MetricsFile(path)
    assert metrics.due
    metrics.write(findings(8))
    assert not metrics.due
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert only(read(path.read_text(encoding="utf-8")), "stallscope_watch_processes", watch="train") == 1
    metrics.write(findings(8).changed(processes=()), last=True)
    assert not metrics.due
    with pytest.raises(FileNotWritten):
        MetricsFile(tmp_path / "nowhere" / "train.prom").write(findings(8))
