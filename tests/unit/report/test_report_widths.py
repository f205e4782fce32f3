"""Every text report at 80, 100 and 160 columns, the list at 40 too: no line is wider, the same figures are there."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

import pytest

from factories import matrix_examples, recorded_programs, runs
from factories.blame_results import SEVERAL
from factories.gpu_machine import MIB, FakeGpu, FakeMachine
from factories.hostile_text import HOSTILE
from factories.recorded_runs import FOLDER, recorded_run
from factories.virtual_demo import VirtualDemo
from factories.watched_programs import findings_of
from stallprobes import doctor
from stallprobes.catalog import entries
from stallprobes.engine.sim import profile
from stallprobes.machine.gpu_reach import SCHEMA, Calibration
from stallprobes.matrix import check_file, reference_choice
from stallprobes.matrix import merge as merging
from stallprobes.matrix.comparing.compare import compare
from stallprobes.matrix.comparing.comparison import Comparison
from stallprobes.matrix.matrix import Matrix, Status
from stallprobes.patterns import patterns
from stallprobes.patterns.remedy_code import CodeLanguage
from stallprobes.verdicts.kinds import FAIL_ON
from stallprobes.watch.analysis import watch_findings
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.wording import check_wording
from stallscope.report import (
    calibration_text,
    catalog_text,
    comparison_text,
    demo_text,
    matrix_symbols,
    matrix_text,
    process_text,
    run_text,
    watch_text,
)
from stallscope.report.columns import display_width
from stallscope.report.matrix_block import MatrixBlock
from stallscope.report.text import TextWriter
from stallscope.tui.demo.tour import DemoTour

RECORDINGS = Path(__file__).parents[3] / "screenshots" / "recordings"
WIDTHS = (80, 100, 160)
# Lines of a check's report at 100 columns.
MOST_LINES = 75
Report = Callable[[TextWriter], object]

CHECKS = ("check-h200x2-1", "check-h200x2-5", "check-h200-noisy-1")
# The first printed 214 columns where stdout was no terminal.
RUNS = (
    "h200x2-peer-timeline.json.gz",
    "h200.json",
    "h200x2.json",
    "h200-launches-1.json.gz",
    "h200-profiler-1.json.gz",
)


@cache
def check(name: str) -> Matrix:
    return check_file.load(FOLDER / f"{name}.json.gz")


@cache
def merged() -> Matrix:
    names = ("check-h200x2-1", "check-h200x2-2", "check-h200x2-3")
    return merging.merge(iter([(name, check(name)) for name in names])).matrix


def show(name: str, out: TextWriter, *, full: bool) -> None:
    matrix = check(name)
    matrix_text.show(out, matrix, reference=reference_choice.unusual(matrix), full=full)


@cache
def comparison(old: str, new: str) -> Comparison:
    return compare(check(old), check(new))


def show_compared(out: TextWriter, *, full: bool) -> None:
    found = comparison("check-h200x2-1", "check-h200x2-5")
    matrix_text.show(out, found.new, comparison=found, regressions=found.regressions(FAIL_ON), full=full)


def compared(old: str, new: str, out: TextWriter) -> None:
    found = comparison(old, new)
    comparison_text.show(out, found, found.regressions(FAIL_ON))


@cache
def demonstrated() -> DemoTour:
    names = ("secondary-context-d2d", "pageable-d2h-vs-launch", "peer-copy-behind-kernel", "scalar-readback")
    demo = VirtualDemo(DemoTour((patterns()[name] for name in names), 1.0, False), machine="1")
    try:
        demo.run()
        return demo.tour
    finally:
        demo.close()


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], WatchFindings]:
    """The findings about programs that an H200 ran, from the files that they left."""

    @cache
    def findings(name: str) -> WatchFindings:
        program = recorded_programs.recorded(name, tmp_path_factory.mktemp(name))
        return watch_findings([findings_of(program)], 5)

    return findings


@pytest.fixture
def processes(tmp_path: Path) -> FakeMachine:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: 61_641 * MIB, 41_234: MIB}, samples=[(900, 0.3, 97)]))
    machine.add(900, ["/opt/conda/bin/python3.11", "-u", "train.py", "--config", "configs/large.yaml"], uid=0)
    machine.add(41_234, ["./solver", HOSTILE, "語" * 60], uid=3_999_999_999)
    machine.refusals[41_234] = "it belongs to another user: run stallscope as that user, or with sudo."
    return machine


def explained(out: TextWriter) -> None:
    for pattern in patterns().values():
        for language in CodeLanguage:
            catalog_text.write_pattern(out, pattern, language)
    for entry in entries().values():
        catalog_text.write_entry(out, entry, entries(), list(patterns()))


def listed(out: TextWriter) -> None:
    profiles = [(name, profile.load(name).title) for name in profile.names()]
    catalog_text.write_list(out, patterns(), entries(), profiles)


def blamed(out: TextWriter) -> None:
    found = runs.everything()
    run_text.show_run(out, found.changed(variants=tuple(one.changed(blame=SEVERAL) for one in found.variants)))


CALIBRATED = Calibration(
    SCHEMA, "NVIDIA H200", "GPU-u", "1", "2026-11-30", {"dram": 0.81, "tensor": 0.62, "pcie_to_gpu": 56698.0}
)
REPORTS: dict[str, Report] = {
    **{f"run {name}": lambda out, name=name: run_text.show_run(out, recorded_run(name)) for name in RUNS},  # type: ignore[misc]
    "run, every kind": lambda out: run_text.show_run(out, runs.everything()),
    "run --blame": blamed,
    **{f"show --full {name}": partial(show, name, full=True) for name in CHECKS},
    "check --compare --full": partial(show_compared, full=True),
    "show --full, every kind": lambda out: matrix_text.show(out, matrix_examples.every_kind(), full=True),
    "merge --full": lambda out: matrix_text.show(out, merged(), full=True),
    "compare": partial(compared, "check-h200x2-1", "check-h200x2-5"),
    "compare, another host": partial(compared, "check-h200-noisy-1", "check-h200x2-5"),
    "calibrate": lambda out: calibration_text.show(out, CALIBRATED),
    "doctor": lambda out: run_text.show_findings(out, doctor.examine().findings),
    "demo": lambda out: demo_text.write_demo(out, demonstrated().machine, demonstrated().outcomes.values()),
    "explain": explained,
    "list": listed,
    "list --sim": lambda out: catalog_text.write_profile(out, profile.load("h200"), profile.settable("h200")),
}
BRIEF: dict[str, Report] = {
    **{f"show {name}": partial(show, name, full=False) for name in CHECKS},
    "check --compare": partial(show_compared, full=False),
    "show, every kind": lambda out: matrix_text.show(out, matrix_examples.every_kind()),
    "show, the largest": lambda out: matrix_text.show(out, matrix_examples.largest()),
    "merge": lambda out: matrix_text.show(out, merged(), ["node-1 is slower: launch beside spin."]),
}
PROGRAMS = ("training_item", "pageable_copies", "secondary_context")


def text_of(report: Report, width: int, ascii: bool = False) -> str:
    stream = io.StringIO()
    report(TextWriter(stream, width=width, ascii=ascii))
    return stream.getvalue()


def fitting(report: Report, width: int) -> str:
    """The text of ``report`` at ``width``, which no line of it, also in ASCII, is wider than."""
    text, ascii = text_of(report, width), text_of(report, width, ascii=True)
    assert ascii.isascii()
    too_wide = [line for line in (text + ascii).splitlines() if display_width(line) > width]
    assert not too_wide, too_wide[:3]
    return text


def figures(text: str) -> set[str]:
    """The numbers in ``text``, apart from those of names, which may be folded."""
    return set(re.findall(r"(?<![\w@/.+-])[\d.]*\d(?![\w@/+-])", text))


@pytest.mark.parametrize("name", REPORTS)
def test_no_line_is_wider_than_the_terminal_and_each_width_has_the_same_figures(name: str) -> None:
    narrow, wide = (figures(fitting(REPORTS[name], width)) for width in (WIDTHS[0], WIDTHS[-1]))
    assert wide == narrow


@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_report_of_a_watched_program_fits_and_keeps_its_figures(
    watched: Callable[[str], WatchFindings], name: str, full: bool
) -> None:
    def report(out: TextWriter) -> None:
        watch_text.show_watch(out, watched(name), "python train.py", full=full)

    narrow, *wider = (figures(fitting(report, width)) for width in WIDTHS)
    assert all(found == narrow for found in wider)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_list_of_processes_fits_and_says_where_a_command_was_cut(processes: FakeMachine, width: int) -> None:
    text = fitting(lambda out: process_text.show_processes(out, processes.lister().read()), width)
    rows = [line for line in text.splitlines() if re.match(r" *(900|41234) ", line)]
    assert len(rows) == 2
    assert any(row.endswith("…") for row in rows)


def test_the_list_fits_40_columns_with_every_name_whole() -> None:
    text = fitting(listed, 40)
    words = {word.rstrip(":,") for word in text.split()}
    assert words >= {*patterns(), *entries(), *profile.names()}
    assert words >= {variant.name for pattern in patterns().values() for variant in pattern.variants}


@pytest.mark.parametrize("name", BRIEF)
def test_a_check_is_in_brief_first_its_headline_then_the_worst_by_cause_then_one_block_of_symbols(name: str) -> None:
    texts = {width: fitting(BRIEF[name], width) for width in WIDTHS}
    if "compare" not in name:
        assert len(texts[100].splitlines()) <= MOST_LINES
    for text in texts.values():
        places = [text.index(words) for words in ("Stalls ", check_wording.CAUSES_TITLE, check_wording.SYMBOLS_TITLE)]
        assert places == sorted(places)
        assert "figures of all cells" in " ".join(text.split())
    # The same symbols at each width.
    blocks = [symbols(text) for text in texts.values()]
    assert blocks[0]
    assert all(block == blocks[0] for block in blocks)


def symbols(text: str) -> dict[str, list[str]]:
    """The symbols of each aggressor in the block of ``text``."""
    after = text[text.index(check_wording.SYMBOLS_TITLE) :]
    rows = re.finditer(r"^(\S+) +((?:[█▓▒░·XFs?hugo!n-] )*[█▓▒░·XFs?hugo!n-])(?:  .*)?$", after, re.MULTILINE)
    return {row[1]: row[2].split(" ") for row in rows}


@pytest.mark.parametrize("name", CHECKS)
def test_the_block_has_a_symbol_for_each_cell_and_full_its_figures(name: str) -> None:
    matrix = check(name)
    names = MatrixBlock.of(matrix)
    block = symbols(text_of(partial(show, name, full=False), 80))
    assert set(block) == set(names.lines)
    assert {len(line) for line in block.values()} == {len(names.victims)}
    full = text_of(partial(show, name, full=True), 100)
    cells = re.findall(r"(?:[\d.]+[kM]?['\"+]?|–)/(?:[\d.]+[kM]?['\"+]?|–)(?= |$)", full, re.MULTILINE)
    starved = full[full.index(check_wording.MATRIX_TITLE) :].count(" STARVED ")
    # The baselines have a line too.
    assert len(cells) + starved >= len(names.victims) * (len(names.lines) + 1)
    assert not re.search(r"\d/[\d–]", text_of(lambda out: matrix_symbols.write(out, matrix), 100))


def test_a_check_that_was_interrupted_names_what_was_not_reached() -> None:
    made = matrix_examples.every_kind()
    cells = {
        key: cell.changed(status=Status.MISSING, repeats=(), verdicts=()) if key[1] == "calm" else cell
        for key, cell in made.cells.items()
    }
    text = text_of(lambda out: matrix_text.show(out, made.changed(cells=cells)), 80)
    assert "\nNot reached: calm\n" in text
