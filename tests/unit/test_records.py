"""Results in a notebook and in a script: records, CSV, short reprs and tables of HTML."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from factories import host_checks, runs
from factories.html_tables import tables
from factories.watch_moments import findings
from stallprobes import compare
from stallprobes.files import codec
from stallprobes.files.tables import Record, csv_text, html_table, save_csv
from stallprobes.matrix import reference_choice, references
from stallprobes.measurement.result import RunResult
from stallprobes.model import Channel
from stallprobes.watch.division.parts import Part
from stallprobes.watch.lines.result import ProgramSequence

RECORDED = Path(__file__).parents[1] / "gpu" / "recorded"
LONGEST_REPR = 400


def require_flat(records: list[Record]) -> None:
    """All records have the same columns in one order, and values that CSV, JSON and Arrow can hold."""
    assert records
    assert {tuple(record) for record in records} == {tuple(records[0])}
    assert {type(value) for record in records for value in record.values()} <= {str, int, float, bool, type(None)}
    for name in records[0]:
        assert len({type(record[name]) for record in records} - {type(None)} - {int}) <= 1
        # A time is a whole number of nanoseconds, and its name says so.
        assert not any(word in name for word in ("p50", "p99", "max")) or name.endswith(("_ns", "_ratio"))
    read = list(csv.DictReader(io.StringIO(csv_text(records))))
    assert [list(row) for row in read] == [list(record) for record in records]


@pytest.fixture(scope="module")
def recorded() -> RunResult:
    """All patterns on an H200."""
    return codec.decoded((RECORDED / "h200.json").read_bytes(), RunResult)


def test_the_records_of_a_run_have_the_figures_of_the_document(recorded: RunResult) -> None:
    records = recorded.to_records()
    require_flat(records)
    rows = {(row["pattern"], row["variant"], row["probe"], row["phase"], row["op"]): row for row in records}
    assert len(rows) == len(records)
    for variant in recorded.variants:
        for probe in variant.probes:
            for phase, figures in probe.phases.items():
                row = rows[variant.pattern, variant.variant, probe.name, phase, ""]
                assert (row["count"], row["p50_ns"], row["p99_ns"]) == (figures.count, figures.p50_ns, figures.p99_ns)
                baseline = probe.baseline.get(phase)
                assert row["baseline_p50_ns"] == (None if baseline is None else baseline.p50_ns)
    stalls = [verdict for variant in recorded.variants for verdict in variant.verdicts if verdict.kind.is_stall]
    assert {verdict.cause for verdict in stalls} <= {row["cause"] for row in records}
    assert {(row["gpu"], row["simulated"]) for row in records} == {("NVIDIA H200", False)}


def test_a_variant_without_probes_has_a_record_with_the_reason() -> None:
    result = runs.everything()
    records = result.to_records()
    require_flat(records)
    without = [variant for variant in result.variants if not variant.probes]
    assert without
    assert [row["reason"] for row in records if row["probe"] is None] == [variant.reason for variant in without]


def test_the_records_of_a_matrix_have_every_cell() -> None:
    matrix = host_checks.every_status()
    records = matrix.to_records()
    require_flat(records)
    assert {(row["victim"], row["aggressor"]) for row in records} == set(matrix.cells)
    for row in records:
        cell = matrix.cells[str(row["victim"]), str(row["aggressor"])]
        assert row["status"] == cell.status
        if row["phase"] is not None and cell.channels:
            channel = next(each for each in (*cell.channels, *cell.baseline) if each == (row["phase"], row["op"]))
            assert row["count"] == (cell.channels[channel].count if channel in cell.channels else 0)
    # Nothing that was not measured has a figure.
    assert all(row["p50_ns"] is None for row in records if row["status"] in ("unsupported", "missing"))


def test_a_phase_of_the_timeline_has_no_ratio() -> None:
    from stallprobes.latency.columns import latency_columns
    from stallprobes.latency.histogram import Histogram
    from stallprobes.model import Phase

    now, baseline = Histogram.of([2000] * 10), Histogram.of([10] * 10)
    assert latency_columns(Channel(Phase.START), now, baseline)["p50_ratio"] is None
    assert latency_columns(Channel(Phase.WAIT), now, baseline)["p50_ratio"] == 200


def test_the_records_of_a_comparison_have_every_percentile() -> None:
    comparison = compare(host_checks.host(1), host_checks.host(2))
    records = comparison.to_records()
    require_flat(records)
    assert len(records) == sum(max(len(cell.parts), 1) for cell in comparison.cells)
    assert len(repr(comparison)) < LONGEST_REPR


def test_the_repr_of_a_comparison_with_a_reference_is_a_line() -> None:
    (name,) = references.names()
    matrix = host_checks.host(1, gpu="NVIDIA H200")
    found = reference_choice.load(name).unusual(matrix)
    there = len(found.stalled_there)
    assert repr(found) == f"<ReferenceComparison with {name}: 0 cells stall only here, {there} only there>"
    assert len(repr(found.reference)) < LONGEST_REPR


def test_the_records_of_a_watched_program_have_the_parts_of_its_time() -> None:
    found = findings(8, ended=True)
    records = found.to_records()
    require_flat(records)
    (process,) = found.processes
    assert len(records) == len(process.sequences)
    for row, sequence in zip(records, process.sequences, strict=True):
        assert row["verdict"] == sequence.verdict
        parts = [part for part in Part if part is not Part.END]
        shares = [row[f"{part.replace('-', '_')}_part_share"] for part in parts]
        assert shares == [pytest.approx(sequence.share(part), abs=1e-6) for part in parts]
        assert row["price_share"] == sequence.price.share


def test_of_time_that_is_not_divided_no_share_is_given() -> None:
    found = findings(8, ended=True)
    undivided = found.processes[0].changed(sequences=(ProgramSequence(threads=(1,)),))
    without = found.processes[0].changed(sequences=(), pid=7)
    records = found.changed(processes=(undivided, without)).to_records()
    require_flat(records)
    assert [row["pid"] for row in records] == [undivided.pid, 7]
    assert {row[name] for row in records for name in row if name.endswith("_share") and "cost" not in name} == {None}


def test_a_repr_is_a_line(recorded: RunResult) -> None:
    matrix = host_checks.every_status()
    found = findings(8, ended=True)
    process = found.processes[0]
    shown = (
        *(recorded, *recorded.variants, *recorded.variants[0].probes, *recorded.variants[0].probes[0].phases.values()),
        *(matrix, *matrix.cells.values(), found, process, *process.threads, *process.sequences),
    )
    for value in shown:
        assert len(repr(value)) < LONGEST_REPR
        assert "\n" not in repr(value)
    assert "NVIDIA H200" in repr(recorded)
    assert "STALLED" in repr(recorded)
    assert "STARVED" in repr(matrix)


def test_a_notebook_gets_a_table(recorded: RunResult) -> None:
    ((caption, rows),) = tables(recorded._repr_html_())
    assert "on NVIDIA H200" in caption
    assert {len(row) for row in rows} == {9}
    matrix = host_checks.every_status()
    ((caption, rows),) = tables(matrix._repr_html_())
    assert f"<{caption.partition('. ')[0]}>" == repr(matrix)
    assert {len(row) for row in rows} == {len(matrix.rows) + 1}
    assert len(rows) == len([column for column in matrix.columns if column.aggressors]) + 1
    assert any("STARVED" in cell for row in rows for cell in row)


def test_a_name_cannot_end_its_cell() -> None:
    hostile = '"><script>alert(1)</script>\x1b[2J'
    ((caption, rows),) = tables(html_table(hostile, [hostile], [[hostile]]))
    assert caption == rows[0][0] == rows[1][0] == hostile.replace("\x1b", "\ufffd")


def test_csv_quotes_what_it_must_and_starts_no_formula(tmp_path: Path) -> None:
    records: list[Record] = [
        {"name": '=cmd|" /C calc"!A0', "ns": -1, "share": None},
        {"name": 'a "b", c\nd\x1b', "ns": 2, "share": 0.5},
    ]
    path = tmp_path / "out.csv"
    save_csv(records, path, force=False)
    assert path.read_text(encoding="utf-8") == (
        'name,ns,share\n"\'=cmd|"" /C calc""!A0",-1,\n"a ""b"", c d\ufffd",2,0.5\n'
    )
    assert csv_text([]) == "\n"
    assert json.loads(json.dumps(records)) == records
