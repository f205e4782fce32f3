"""The file for node_exporter: read back by a strict reader of the text format, it says what the check says."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from factories import host_checks
from factories.prometheus_text import only, read
from stallprobes.errors import FileNotWritten
from stallprobes.latency.ratio import Quantile
from stallprobes.matrix import prometheus
from stallprobes.matrix.matrix import Matrix, Status
from stallprobes.matrix.merge import merge
from stallprobes.matrix.noise import baseline_spread
from stallprobes.model import Phase


def test_the_check_itself_is_told() -> None:
    found = read(prometheus.text(host_checks.every_status()))
    assert (
        only(found, "stallscope_check_info", driver="580.1", gpu="Made-up GPU", program="1.0", simulated="false") == 1
    )
    # 2026-11-21T10:00:00+00:00
    assert only(found, "stallscope_check_timestamp_seconds") == 1795255200
    assert only(found, "stallscope_check_duration_seconds") == 60
    assert only(found, "stallscope_check_interrupted") == 1


def test_a_pair_has_its_ratio_and_its_status() -> None:
    matrix = host_checks.every_status()
    found = read(prometheus.text(matrix))
    for cell in matrix.cells.values():
        here = {"victim": cell.row, "aggressor": cell.column}
        series = [(name, dict(labels)) for name, labels in found if here.items() <= dict(labels).items()]
        statuses = [labels["status"] for name, labels in series if name == "stallscope_cell_status"]
        assert statuses == ([] if cell.status is Status.UNSUPPORTED else [str(cell.status)])
        assert len(series) <= 2
        ratios = [cell.ratio(phase, Quantile.P50) for phase in (Phase.CALL, Phase.WAIT)]
        worst = max((one.ratio for one in ratios if one is not None), default=None)
        if not cell.status.measured or cell.column == "quiet":
            assert len(series) == len(statuses)
        elif (verdict := cell.worst) is not None and verdict.ratio is not None:
            assert only(found, "stallscope_cell_worst_ratio", **here) == verdict.ratio
        elif worst is not None:
            assert only(found, "stallscope_cell_worst_ratio", **here) == pytest.approx(worst)
    # Those of the check itself: info, time, duration, interrupted and two of the spread.
    assert len(found) <= 2 * len(matrix.cells) + 6


def test_the_spread_of_the_baselines_is_that_of_the_report() -> None:
    matrix = host_checks.host(1, steps=2.0)
    spread = baseline_spread(matrix)
    assert spread is not None
    found = read(prometheus.text(matrix))
    name = "stallscope_check_baseline_spread_ratio"
    assert only(found, name, victims="typical") == pytest.approx(spread.typical)
    assert only(found, name, victims="worst") == pytest.approx(spread.worst)


def test_no_series_of_a_simulated_gpu_can_be_taken_for_a_measured_one() -> None:
    simulated = host_checks.every_status().changed(backend="simulated", profile="made up")
    assert all(("simulated", "true") in of for _, of in read(prometheus.text(simulated)))
    assert all(("simulated", "false") in of for _, of in read(prometheus.text(host_checks.every_status())))


def test_odd_characters_in_labels_are_escaped() -> None:
    odd = 'a\\b"c\nd\\n}{,= µ'
    matrix = host_checks.host(1).changed(fingerprint={"gpu": odd, "driver": None})
    found = read(prometheus.text(matrix))
    assert only(found, "stallscope_check_info", gpu=odd, driver="", uuid="", cuda="") == 1


@pytest.mark.parametrize(
    "matrix",
    [
        host_checks.host(1).changed(cells={}),
        merge([("a", host_checks.every_status(1)), ("b", host_checks.every_status(2))]).matrix,
        host_checks.host(1, calls=0),
    ],
    ids=["no cells", "merged", "no calls"],
)
def test_every_check_gives_a_file_that_can_be_read(matrix: Matrix) -> None:
    found = read(prometheus.text(matrix))
    assert only(found, "stallscope_check_info", hosts=str(len(matrix.hosts) or 1)) == 1


@pytest.mark.parametrize("umask", [0o077, 0o000])
def test_the_file_is_replaced_at_once_and_readable_for_every_user(umask: int, tmp_path: Path) -> None:
    path = tmp_path / "stallscope.prom"
    path.write_text("old")
    with path.open() as reader:
        before = os.umask(umask)
        try:
            prometheus.write(host_checks.host(1), path)
        finally:
            os.umask(before)
        # Who has it open reads the old one to its end.
        assert reader.read() == "old"
    assert read(path.read_text())
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert list(tmp_path.iterdir()) == [path]


def test_the_collector_never_sees_a_file_that_is_being_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[list[Path]] = []
    rename = os.replace

    def watched(source: Path, target: Path) -> None:
        seen.append(sorted(tmp_path.glob("*.prom")))
        assert source.read_text(encoding="utf-8") == prometheus.text(host_checks.host(1))
        rename(source, target)

    monkeypatch.setattr(os, "replace", watched)
    prometheus.write(host_checks.host(1), tmp_path / "stallscope.prom")
    assert seen == [[]]


@pytest.mark.parametrize("name", [".", "no/a.prom", "/dev/null"])
def test_a_place_that_cannot_be_written_is_refused_in_a_sentence(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileNotWritten, match=r"is a folder|does not exist|is not a regular file"):
        prometheus.write(host_checks.host(1), tmp_path / name)
    assert list(tmp_path.iterdir()) == []
