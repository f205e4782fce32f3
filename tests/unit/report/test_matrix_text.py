"""Text report of a matrix: headline, order, one line per cause, the full findings, and every width."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace

import pytest

from factories import matrices, matrix_examples
from stallprobes.latency.ratio import PERCENTILES, Quantile
from stallprobes.matrix import findings, reference_maker
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.matrix import QUIET, Matrix, Status
from stallprobes.matrix.outliers import Outlier
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.wording import check_wording
from stallprobes.wording.headline import headline
from stallscope.cli.process.stdout import Output
from stallscope.report import matrix_text


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "LC_ALL", "LC_CTYPE"):
        monkeypatch.delenv(name, raising=False)
    # Nothing is folded, but paragraphs.
    monkeypatch.setenv("COLUMNS", "1000")
    monkeypatch.setenv("LANG", "en_US.UTF-8")
    monkeypatch.setenv("TERM", "xterm")


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Pipe(io.StringIO):
    encoding = "utf-8"


def shown(matrix: Matrix, stream: io.StringIO | None = None, *, full: bool = True) -> str:
    stream = stream if stream is not None else Pipe()
    matrix_text.show(Output(stream), matrix, full=full)
    return stream.getvalue()


def line_of(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(name))


def test_every_kind_of_cell_has_its_figure_and_its_word() -> None:
    text = shown(matrix_examples.every_kind())
    text = text[text.index(check_wording.MATRIX_TITLE) :]
    assert "10/1.0 S" in line_of(text, "stalled")
    assert "427/1.0 S" in line_of(text, "stalled")
    assert "21'/1.0 S" in line_of(text, "tail")
    assert '14k"/1.0 S' in line_of(text, "late")
    assert "STARVED" in line_of(text, "starved ")
    assert "2.0/1.0 s" in line_of(text, "slower")
    assert "2.0/1.0 ?" in line_of(text, "drift")
    assert "2.0/1.0 h" in line_of(text, "host")
    assert "invalid" in line_of(text, "invalid")
    assert "–" in line_of(text, "missing")
    assert line_of(text, "baseline, µs").split()[-4:] == ["2.7/5.0", "3.8/5.6", "3.4/5.6", "1.2/8.0"]
    for meaning in ("S STALLED", "s slower", "? drift", "' at p99", '" from the due time'):
        assert meaning in " ".join(text.split())


def test_the_worst_comes_first_in_lines_and_columns() -> None:
    text = shown(matrix_examples.every_kind())
    begun = [line.split()[0] for line in text[text.index("baseline, µs") :].splitlines()[1:5]]
    assert begun == ["starved", "stalled", "late", "tail"]
    head = line_of(text, "beside").split()
    assert head[1:3] == ["launch", "d2d"]


def test_what_cannot_be_done_here_takes_a_sentence_not_a_line() -> None:
    text = shown(matrix_examples.every_kind())
    assert "\nunsupported" not in text
    assert "all beside unsupported: it needs two GPUs" in text
    assert "launch beside invalid: the clocks were throttled" in text


def test_what_does_not_count_is_no_finding() -> None:
    found = {
        (cell.row, cell.column)
        for group in findings.groups(matrix_examples.every_kind())
        for _, cs in group.columns
        for cell in cs
    }
    assert ("launch", "invalid") not in found
    assert ("launch", "stalled") in found


def test_findings_of_one_cause_are_told_once_with_every_victim_named() -> None:
    rows, spin = matrices.ROWS, {(row.name, "spin"): 10.0 + n for n, row in enumerate(matrices.ROWS)}
    text = shown(matrices.made_up(1, times={**spin, ("launch", "host-alloc-free"): 50.0}))
    assert text.count("It was made up so.") == 1
    assert text.count("Make it up otherwise.") == 1
    told = text[text.index("Findings") :]
    assert "beside host-alloc-free: launch call p50 2.70 µs → 135 µs (×50)" in told
    assert all(row.name in told for row in rows)
    assert "d2h-pinned call p50 1.20 µs → 15.6 µs (×13)" in told
    assert "also d2d ×11, launch ×10" in " ".join(told.split())


def test_a_call_that_never_came_back_is_told_with_its_age() -> None:
    text = " ".join(shown(matrix_examples.every_kind()).split())
    assert "launch STARVED: 0 calls returned in 0.1 s, cuLaunchKernel in flight for 1.20 s" in text
    assert "Remedy: A remedy for starved." in text


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("made", [matrix_examples.every_kind, matrix_examples.largest])
def test_lines_keep_within_the_terminal(
    monkeypatch: pytest.MonkeyPatch, width: int, made: Callable[[], Matrix]
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    monkeypatch.setenv("NO_COLOR", "1")
    text = shown(made(), Terminal())
    assert max(map(len, text.splitlines())) <= width


def test_where_it_is_folded_quiet_lines_are_put_together(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = shown(matrix_examples.every_kind())
    assert "\ncalm" in whole
    monkeypatch.setenv("COLUMNS", "40")
    folded = shown(matrix_examples.every_kind(), Terminal())
    assert "\ncalm" not in folded
    assert "Quiet for every victim, medians at most ×1.0: calm" in " ".join(folded.split())


def test_unusual_cells_are_counted_in_the_headline_and_named_by_column_and_their_rest_only_in_full() -> None:
    def calm(day: int) -> Matrix:
        made = matrices.made_up(day, calls=40, fingerprint={**matrices.FINGERPRINT, "cuda": "13.0"})
        return made.changed(started_at=f"2026-11-0{day}T10:00:00+00:00")

    stalls = {(row.name, column.name): 50.0 for row in matrices.ROWS for column in matrices.COLUMNS[1:3]}
    here = matrices.made_up(3, times=stalls, calls=40).changed(quick=True)
    found = reference_maker.make("made-up", [calm(1), calm(2)]).unusual(here)
    brief, full = io.StringIO(), io.StringIO()
    for stream, whole in ((brief, False), (full, True)):
        matrix_text.show(Output(stream), here, reference=found, full=whole)
    text = " ".join(brief.getvalue().split())
    assert "against other machines (Made-up GPU, driver 580.1): 8 stalled only here" in text
    assert "made-up: Made-up GPU, driver 580.1, CUDA 13.0, 2 checks of 1 machine, 2026-11-01 to 2026-11-02" in text
    assert "Stalled here, not on the reference: 8 cells" in text
    assert "and 2 more cells: see --full" in text
    assert "A quick check has fewer calls" in text
    assert "beside spin: " in text
    assert "2 more cells" not in full.getvalue()
    same = reference_maker.make("made-up", [calm(1), calm(2)]).unusual(calm(4))
    assert dict(headline(calm(4), None, same))["Changes"].endswith(
        "; 16 cells as on other machines (Made-up GPU, driver 580.1)"
    )


def test_colour_is_for_terminals_and_never_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[31m10/1.0 S" in shown(matrix_examples.every_kind(), Terminal())
    assert "\x1b" not in shown(matrix_examples.every_kind())
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in shown(matrix_examples.every_kind(), Terminal())


def test_a_locale_without_utf8_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    text = shown(matrix_examples.every_kind())
    assert text.isascii()
    assert "call p50 2.70 us -> 27.0 us (x10)" in text


def test_a_simulated_check_says_so_beside_its_figures() -> None:
    text = shown(matrix_examples.largest())
    assert text.startswith("SIMULATED GPU, profile h200, seed 7")
    assert f"{check_wording.MATRIX_TITLE}, SIMULATED h200" in text


def test_an_interrupted_check_and_one_without_any_cell_are_shown() -> None:
    made = matrix_examples.every_kind()
    missing = {key: cell.changed(status=Status.MISSING, repeats=(), verdicts=()) for key, cell in made.cells.items()}
    text = shown(made.changed(cells=missing, interrupted=True))
    assert "interrupted" in text.splitlines()[1]
    assert "44 not reached" in text
    assert shown(made.changed(rows=(), columns=(), cells={}))


def test_a_name_is_never_obeyed_by_the_terminal() -> None:
    text = shown(matrix_examples.hostile(), Terminal())
    assert "\x07" not in text
    assert "‮" not in text
    assert "\x1b[31m\x07" not in text
    text.encode("utf-8")


def test_the_fingerprint_is_told_without_what_is_not_known() -> None:
    text = shown(matrix_examples.every_kind())
    last = " ".join(text[text.index("machine:") : text.index("This machine varies")].split())
    assert (
        last
        == "machine: gpu NVIDIA H200 · driver 580.159.04 · cuda 13.0 · mig off · environment CUDA_MODULE_LOADING LAZY"
    )


def test_quiet_is_no_pair_that_is_counted() -> None:
    made = matrix_examples.every_kind()
    beside = sum(column.name != QUIET for column in made.columns) * len(made.rows)
    assert sum(findings.counts(made).values()) == beside


def test_a_host_that_is_slow_everywhere_does_not_drown_the_others() -> None:
    def outlier(host: str, row: int, quantile: Quantile, ratio: float) -> Outlier:
        return Outlier(host, f"row-{row}", "spin", matrices.CALL, quantile, ratio, f"{host} row-{row} {quantile}")

    many = [outlier("node-a", row, q, 2.0 + row + q.percent / 100) for row in range(50) for q in PERCENTILES]
    told = check_wording.host_sentences([*many, outlier("node-b", 0, Quantile.P50, 0.1)])
    assert told == [
        *(f"node-a row-{row} p99" for row in (49, 48, 47, 46, 45)),
        "node-a: 45 more cells differ from the other hosts.",
        "node-b row-0 p50",
    ]


def test_a_report_begins_with_the_worst_stalls_what_changed_and_how_sure_it_is() -> None:
    lines = shown(matrix_examples.every_kind(), full=False).splitlines()
    title, stalls, changes, measured = lines[:4]
    assert title.startswith("NVIDIA H200")
    assert stalls.startswith("Stalls ")
    assert "1 STARVED, 4 STALLED, 1 host noise, 1 slower, 1 drift of 44 cells. Worst: launch beside starved" in stalls
    assert "(STARVED, 0 calls in 0.1 s); launch beside late (call from due time p99" in stalls
    assert "not compared" in changes
    assert measured.startswith(
        "Measured  38 of 44 cells (1 invalid, 4 unsupported, 1 not reached); baselines vary by ×1."
    )


def test_without_stalls_the_headline_says_so() -> None:
    assert dict(headline(matrices.made_up(1)))["Stalls"] == "no stall found in 16 cells"


def test_a_comparison_is_counted_in_the_headline_with_what_differs_in_the_driver() -> None:
    old = matrices.made_up(1, drift=0.02)
    new = matrices.made_up(
        2, drift=0.02, times={("launch", "spin"): 2.0}, fingerprint={**matrices.FINGERPRINT, "driver": "590.2"}
    )
    changes = dict(headline(new, compare(old, new)))["Changes"]
    assert changes.startswith("1 WORSE, 0 BETTER, ")
    assert "driver 580.1 → 590.2" in changes


def test_each_cause_has_a_line_with_its_worst_case_and_its_remedy() -> None:
    times = {(row.name, "spin"): 10.0 + n for n, row in enumerate(matrices.ROWS)}
    text = shown(matrices.made_up(1, times=times), full=False)
    (line,) = (line for line in text.splitlines() if line.startswith("STALLED  "))
    assert line.endswith(
        "d2h-pinned beside spin: call p50 1.20 µs → 15.6 µs (×13); 3 more cells  Make it up otherwise."
    )
    assert "It was made up so." not in text
    assert "--full explains each cause" in text


def test_without_full_cells_that_were_not_measured_are_counted() -> None:
    text = shown(matrix_examples.every_kind(), full=False)
    assert "1 cell invalid, 4 cells unsupported: see --full for the reasons." in text
    assert "it needs two GPUs" not in text
    assert "machine:" not in text


def test_the_calls_of_a_starved_cell_are_those_of_the_host_of_its_verdict() -> None:
    cell = next(one for one in matrix_examples.every_kind().cells.values() if one.status is Status.STARVED)
    here = cell.changed(repeats=tuple(replace(one, host="node-a") for one in cell.repeats))
    busy = [replace(one, host="node-b", window=replace(one.window, iterations=1_000)) for one in cell.repeats]
    starved = max(here.verdicts, key=lambda one: one.weight)
    verdicts = (starved.changed(host="node-a"),)
    alone = check_wording.worst_figure(here.changed(verdicts=(starved,)))
    assert (
        check_wording.worst_figure(here.changed(repeats=(*here.repeats, *busy), verdicts=verdicts))
        == f"{alone} on node-a"
    )


def test_a_call_in_flight_is_the_figure_of_a_stall_that_does_not_starve() -> None:
    cell = next(one for one in matrix_examples.every_kind().cells.values() if one.status is Status.STARVED)
    verdict = max(cell.verdicts, key=lambda one: one.weight)
    assert verdict.quantile is Quantile.IN_FLIGHT
    stalled = verdict.changed(kind=VerdictKind.STALLED)
    changed = cell.changed(
        status=Status.OK, verdicts=(stalled,), in_flight_ns=183_000_000, in_flight_op="cuLaunchKernel"
    )
    assert check_wording.worst_figure(changed) == "cuLaunchKernel in flight for 183 ms"
