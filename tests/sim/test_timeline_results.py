"""Runs and checks with the timeline on the simulated GPU: phases, sources, verdicts, losses, documents and reports."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from click.testing import CliRunner

import stallprobes
from factories import documents
from factories.virtual_session import VirtualSession, virtual_sessions
from stallprobes.engine.backend import Options
from stallprobes.engine.board import Board
from stallprobes.engine.session import Session
from stallprobes.errors import EXIT_USAGE, CheckFileError, NotComparable, StallprobesError
from stallprobes.files import codec
from stallprobes.matrix import check_file, prometheus, reference_choice, reference_maker, references
from stallprobes.matrix import document as check_document
from stallprobes.matrix import merge as merging
from stallprobes.matrix.check import runner
from stallprobes.matrix.check.plan import plan
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.matrix import Matrix
from stallprobes.measurement import measure
from stallprobes.measurement import plan as run_plans
from stallprobes.measurement.result import RUN_SCHEMA, RunProbe, RunResult
from stallprobes.model import Channel, Phase, Source
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.records.timeline import TimelineLosses
from stallprobes.records.timeline_summary import TimelineSummary
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.cli.main import cli
from stallscope.report import html_page, matrix_text, run_text
from stallscope.report.text import TextWriter
from stallscope.tui.matrix.cell import histograms
from stallscope.tui.matrix.view_model import MatrixView

START, GPU, EARLY = map(Channel, (Phase.START, Phase.GPU, Phase.EARLY))
HOST_PHASES = (Phase.CALL, Phase.WAIT, Phase.DUE)
PHRASE = "returned → GPU start"
SMALL = plan(["launch", "d2d@secondary", "d2h-pageable"], ["spin"], quick=True)


def run(*names: str, timeline: bool = True) -> RunResult:
    with virtual_sessions():
        return measure.run(
            run_plans.plan(run_plans.selection(names), seconds=0.5), backend="sim", options=Options(timeline=timeline)
        )


def check(timeline: bool = True) -> Matrix:
    with virtual_sessions():
        return runner.run(SMALL, backend="sim", options=Options(timeline=timeline))


@pytest.fixture(scope="module", name="traced_run")
def _traced_run() -> RunResult:
    return run("d2d@secondary", "spin", "d2h-pageable", "scalar-readback-pinned")


@pytest.fixture(scope="module", name="traced_check")
def _traced_check() -> Matrix:
    return check()


@pytest.fixture(scope="module", name="plain_check")
def _plain_check() -> Matrix:
    return check(timeline=False)


def result(of: RunResult, name: str) -> RunProbe:
    return next(one for variant in of.variants for one in variant.probes if one.name == name)


def text_of(show: object, *arguments: object, width: int = 100) -> str:
    stream = io.StringIO()
    show(TextWriter(stream, width=width), *arguments)  # type: ignore[operator]
    return stream.getvalue()


def test_a_run_has_the_phases_of_the_timeline_in_its_window_and_its_baseline(traced_run: RunResult) -> None:
    copy = result(traced_run, "d2d@secondary")
    for phases in (copy.phases, copy.baseline):
        assert phases[Phase.START].count == phases[Phase.GPU].count > 100
        assert phases[Phase.EARLY].count == 0
    assert copy.phases[Phase.START].p50_ns > 1_000_000  # type: ignore[operator]
    assert copy.baseline[Phase.START].p99_ns < 5_000  # type: ignore[operator]
    pageable = result(traced_run, "d2h-pageable").phases
    assert pageable[Phase.EARLY].count > 100
    assert pageable[Phase.START].count == 0


def test_a_stall_in_wait_and_start_is_one_verdict_with_both(traced_run: RunResult) -> None:
    [variant] = traced_run.variants
    [found] = [one for one in variant.verdicts if one.probe == "d2d@secondary"]
    assert (found.kind, found.phase) == (VerdictKind.STALLED, Phase.WAIT)
    assert f", {PHRASE} 2.19 µs → 1." in found.head
    assert not [one for one in variant.verdicts if one.phase in (Phase.START, Phase.EARLY)]


def test_the_documents_of_a_run_name_the_source_of_each_phase_and_the_losses(traced_run: RunResult) -> None:
    document = codec.plain(traced_run)
    documents.validator(RUN_SCHEMA).validate(document)
    assert document["timeline"] is True
    status = document["timeline_status"]
    assert status["library"] == "simulated"
    assert status["context_switches"] is True
    assert set(status["losses"].values()) == {0}
    probes = {one["name"]: one for one in document["variants"][0]["probes"]}
    sources = {phase: one["source"] for phase, one in probes["d2d@secondary"]["phases"].items()}
    assert sources == {
        "call": "host", "wait": "host", "due": "host", "start": "timeline", "early": "timeline", "gpu": "timeline",
    }  # fmt: skip
    readback = probes["scalar-readback-pinned"]
    assert (readback["phases"]["gpu"]["source"], readback["phases"]["start"]["source"]) == ("events", "timeline")
    by_op = {(one["op"], one["phase"]): one["source"] for one in readback["ops"]}
    assert by_op["reduction kernel", "gpu"] == "events"
    assert by_op["reduction kernel", "start"] == "timeline"


def test_a_run_without_the_timeline_has_neither_its_phases_nor_its_status() -> None:
    plain = run("d2d@secondary", "spin", timeline=False)
    document = codec.plain(plain)
    assert document["timeline"] is False
    assert "timeline_status" not in document
    assert set(document["variants"][0]["probes"][0]["phases"]) == {"call", "wait", "due"}
    assert PHRASE not in text_of(run_text.show_run, plain)
    assert "imeline" not in text_of(run_text.show_run, plain)


def test_the_report_of_a_run_shows_the_phases_and_ends_with_the_losses(traced_run: RunResult) -> None:
    text = text_of(run_text.show_run, traced_run, width=90)
    assert "start " in text
    assert "gpu " in text
    assert "calls before their return" in text.replace("\n", " ").replace("  ", " ")
    assert text.rstrip().endswith("Timeline: simulated, with context switches. No record was lost.")


def test_losses_are_counted_in_words(traced_run: RunResult) -> None:
    losses = TimelineLosses(dropped=12, unanswered=3)
    summary = TimelineSummary("13.0", (RecordKind.KERNEL.word,), "no x: y", losses)
    both = traced_run.changed(timeline_status=TimelineSummary.joined([summary, summary]))
    text = text_of(run_text.show_run, both).replace("\n", " ")
    lost = "Lost or not assigned: 24 records dropped by CUPTI, 6 calls without a record."
    assert f"Timeline: libcupti 13.0, no x: y. {lost} It makes each call 1 to 10 µs longer." in text


def test_the_library_takes_the_timeline_too() -> None:
    with virtual_sessions():
        found = stallprobes.run("d2d@secondary", seconds=0.5, backend="sim", timeline=True)
        assert found.timeline
        assert Phase.START in result(found, "d2d@secondary").phases
        options = Options(timeline=True)
        assert stallprobes.run("launch", seconds=0.5, backend="sim", options=options).timeline


def test_a_check_measures_the_timeline_and_changes_nothing_else(traced_check: Matrix, plain_check: Matrix) -> None:
    assert traced_check.timeline
    assert not plain_check.timeline
    assert traced_check.cells.keys() == plain_check.cells.keys()
    for key, cell in traced_check.cells.items():
        plain = plain_check.cells[key]
        assert (cell.status, cell.kind) == (plain.status, plain.kind)
        hosts = {channel: one for channel, one in cell.channels.items() if channel.phase in HOST_PHASES}
        assert hosts == dict(plain.channels)
        assert all(channel.phase in HOST_PHASES for channel in plain.channels)


def test_the_records_of_a_cell_are_those_of_its_own_windows(traced_check: Matrix) -> None:
    cell = traced_check.cells["d2d@secondary", "spin"]
    for repeat in cell.repeats:
        # Those of the lead-in too, and not those of the baselines.
        calls = repeat.window.channels[Channel(Phase.CALL)].count
        assert calls <= repeat.window.channels[START].count <= calls + 60
        assert repeat.window.channels[START].percentile(50) > 500_000  # type: ignore[operator]
        for part in (repeat.before, repeat.after):
            assert part[START].max_ns < 300_000
    # Beside it the call is slower, whose caches are cold after the wait.
    [one] = [verdict for verdict in cell.verdicts if verdict.phase is not Phase.CALL]
    assert (one.phase, one.kind) == (Phase.WAIT, VerdictKind.STALLED)
    assert PHRASE in one.head


def test_a_check_with_the_timeline_is_saved_and_read_whole(traced_check: Matrix, tmp_path: Path) -> None:
    document = documents.of_check(traced_check)
    documents.validator(check_document.CHECK_SCHEMA).validate(document)
    assert document["timeline"] is True
    figures = next(one for one in document["cells"] if (one["row"], one["column"]) == ("d2d@secondary", "spin"))
    assert figures["figures"]["gpu"]["source"] == Source.TIMELINE
    assert figures["figures"]["wait"]["source"] == Source.HOST
    path = tmp_path / "check.json"
    check_file.save(traced_check, path)
    loaded = check_file.load(path)
    assert loaded.timeline_summary == traced_check.timeline_summary
    assert documents.of_check(loaded) == document


def test_reports_of_a_check_name_the_start_and_the_timeline(traced_check: Matrix, plain_check: Matrix) -> None:
    text = text_of(matrix_text.show, traced_check, width=300)
    assert "· with the timeline" in text.replace("\n", " ")
    assert f", {PHRASE} 2.19 µs → " in text
    assert text.rstrip().endswith("No record was lost.")
    page = html_page.page(traced_check)
    assert "start, baseline" in page
    assert "gpu, beside" in page
    assert "before return, beside" in page
    assert "simulated, with context switches. No record was lost." in page
    assert "never a stall" in page
    for plain in (text_of(matrix_text.show, plain_check), html_page.page(plain_check)):
        assert "imeline" not in plain
        assert PHRASE not in plain


def test_checks_with_and_without_the_timeline_are_never_compared(traced_check: Matrix, plain_check: Matrix) -> None:
    for force in (False, True):
        for old, new in ((traced_check, plain_check), (plain_check, traced_check)):
            with pytest.raises(NotComparable, match="make both with --timeline, or both without"):
                compare(old, new, force=force)
    assert compare(traced_check, traced_check).cells


def test_checks_with_and_without_the_timeline_are_not_merged(traced_check: Matrix, plain_check: Matrix) -> None:
    def host(matrix: Matrix, name: str) -> Matrix:
        return matrix.changed(fingerprint={**matrix.fingerprint, "hostname": name})

    with pytest.raises(CheckFileError, match=r"with the timeline and .* without it: merge them apart"):
        merging.merge([("a", host(traced_check, "a")), ("b", host(plain_check, "b"))], force=True)
    summary = traced_check.timeline_summary
    assert summary is not None
    lossy = summary.changed(library="13.1", kinds=summary.kinds[:2], losses=TimelineLosses(dropped=5))
    other = traced_check.changed(timeline_summary=lossy)
    merged = merging.merge([("a", host(traced_check, "a")), ("b", host(other, "b"))]).matrix
    assert merged.timeline_summary == TimelineSummary(
        "13.1, simulated", summary.kinds[:2], None, TimelineLosses(dropped=5)
    )


def test_a_reference_is_not_compared_with_a_check_with_the_timeline(traced_check: Matrix) -> None:
    assert reference_choice.unusual(traced_check) is None
    shipped = reference_choice.shipped(references.names()[0])
    with pytest.raises(NotComparable, match="made without --timeline"):
        shipped.unusual(traced_check)
    real = traced_check.changed(backend="cuda", quick=False)
    with pytest.raises(NotComparable, match="made with the timeline"):
        reference_maker.make("mine", [real, real])


def test_metrics_say_that_the_timeline_was_on(traced_check: Matrix, plain_check: Matrix) -> None:
    assert 'timeline="true"' in prometheus.text(traced_check)
    assert "timeline" not in prometheus.text(plain_check)


def test_a_session_waits_until_the_records_of_ended_work_have_arrived() -> None:
    # Its time is real, and nothing runs.
    session = Session([SMALL.victims[0].probe], "host")
    session._board = Board.create(session._layout)
    words = session._board.timeline.words
    assert not session.await_records(0.01)
    words.collected_ns = session._board.now() + 10**12
    assert session.await_records(0.01)
    words.collected_ns = 0
    session._kill()
    assert session.await_records(0.01)


def test_a_session_that_ends_has_no_more_losses() -> None:
    session = VirtualSession([SMALL.victims[0].probe], "sim", options=Options(timeline=True))
    session.start()
    assert session.require_timeline().on
    assert session.timeline_losses() == TimelineLosses()
    session.stop()
    with pytest.raises(RuntimeError):
        session.timeline_losses()


@pytest.fixture(scope="module", name="files")
def _files(traced_check: Matrix, plain_check: Matrix, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """The saved checks with and without the timeline."""
    folder = tmp_path_factory.mktemp("checks")
    paths = (folder / "with.json", folder / "without.json")
    for matrix, path in zip((traced_check, plain_check), paths, strict=True):
        check_file.save(matrix, path)
    return str(paths[0]), str(paths[1])


def refused(*arguments: str) -> str:
    """The sentence with which a command ends, exit code 2, without output."""
    done = CliRunner().invoke(cli, arguments)
    assert isinstance(done.exception, StallprobesError)
    assert done.exception.exit_code == EXIT_USAGE
    assert done.stdout == ""
    return str(done.exception).rstrip(".")


def test_commands_that_compare_end_with_one_sentence_before_they_measure(
    files: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(*_: object, **__: object) -> Matrix:
        raise AssertionError("something was measured")

    monkeypatch.setattr(runner, "run", measured)
    traced, plain = files
    both = "make both with --timeline, or both without"
    assert refused("compare", traced, plain).endswith(both)
    assert refused("compare", plain, traced, "--force").endswith(both)
    assert refused("check", "--sim", "--compare", traced).endswith(both)
    assert refused("check", "--sim", "--timeline", "--force", "--compare", plain).endswith(both)
    name = references.names()[0]
    assert "made without --timeline" in refused("check", "--sim", "--timeline", "--reference", name)
    assert "made without --timeline" in refused("show", traced, "--reference", name)
    assert "merge them apart" in refused("merge", traced, plain, "--force")


def test_the_commands_measure_with_the_timeline(tmp_path: Path) -> None:
    path = tmp_path / "saved.json"
    with virtual_sessions():
        done = CliRunner().invoke(cli, ["run", "d2d@secondary", "spin", "--sim", "--timeline", "--seconds", "0.5"])
        assert done.exit_code == 0
        assert PHRASE in " ".join(done.stdout.split())
        assert done.stdout.rstrip().endswith("No record was lost.")
        arguments = ["--quick", "--victims", "d2d@secondary", "--aggressors", "spin", "--timeline", "--save", str(path)]
        done = CliRunner().invoke(cli, ["check", "--sim", *arguments])
        assert done.exit_code == 0
        assert PHRASE in done.stdout
    assert check_file.load(path).timeline


def test_the_cell_of_the_matrix_screen_has_the_histograms_of_the_timeline(
    traced_check: Matrix, plain_check: Matrix
) -> None:
    for matrix, phases in (
        (traced_check, [Phase.CALL, Phase.WAIT, Phase.START, Phase.GPU]),
        (plain_check, [Phase.CALL, Phase.WAIT]),
    ):
        view = histograms(MatrixView.of(matrix), ("d2d@secondary", "spin"))
        assert view is not None
        assert [channel.phase for channel in view.channels] == phases
