"""``watch --save``, ``--repeat`` and ``compare`` of saved runs, with programs beside a model of a GPU."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

import stallprobes
from factories.command_line import Done, run
from factories.documents import validate
from factories.shared_folder import shared_folder
from factories.stand_in import COMPILER, StandIn
from factories.watched_runs import program_run
from stallprobes.errors import NotComparable
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE
from stallprobes.watch.comparing import run_file
from stallprobes.watch.division.parts import Part
from truth.programs import build
from truth.schedules import STEP, SYNC, Actor, Operation, Schedule, launch, op

MS = 1_000_000
PARTS = {Part.HOST: 0.6, Part.KERNELS: 0.4}
# Begin of the reason for UNSURE on a busy machine.
OTHERS_TOOK_MORE = "Other processes took more of the GPU or of the CPUs"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the program of schedules and its model of a GPU."""
    if COMPILER is None:
        pytest.skip("no C compiler")

    def made(folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        build(folder, model=True)

    return shared_folder(tmp_path_factory, "schedules", made)


def stallscope(*words: str, folder: Path, **settings: str) -> Done:
    """Run a command to its end in a folder."""
    return run(*words, env={"COLUMNS": "200", **settings}, cwd=folder)


def watched(model: Path, folder: Path, saved: str, *operations: Operation, options: Sequence[str] = ()) -> str:
    """Watch a schedule for some seconds and save the run; what ``watch`` said."""
    schedule = Schedule("made", (Actor("main", (*operations, SYNC, STEP)),), seed=1, seconds=4.0)
    (folder / "now.txt").write_text(schedule.text)
    done = stallscope(
        "watch", "--headless", "--cost", "100", "--save", saved, *options, "--", str(model / "program"), "now.txt", "t",
        folder=folder,
        LD_LIBRARY_PATH=str(model),
        **{CUPTI_VARIABLE: str(model / "libcupti.so.13")},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stderr


def test_programs_are_watched_saved_and_compared(model: Path, tmp_path: Path) -> None:
    kernels = launch(200, 20)
    said = watched(model, tmp_path, "old.runs", op("sleep", 30_000), kernels, options=("--repeat", "2"))
    assert said.count("run saved to old.runs; compare it with stallscope compare") == 2
    assert "run 2 of 2" in said
    watched(model, tmp_path, "new.runs", op("sleep", 1_000), kernels)
    done = stallscope("compare", "old.runs", "new.runs", "--json", "--html", "page.html", folder=tmp_path)
    found: dict[str, Any] = json.loads(done.stdout)
    validate(found, "stallscope.watch-compare/1")
    assert [len(found[side]["unit_ns"]) for side in ("old", "new")] == [2, 1]
    # A step takes 5 ms in place of 34 ms. On a busy machine, other processes may take the CPUs in some of the runs.
    busy = found["change"] == "unsure"
    assert found["change"] == "better" or found["why"].startswith(OTHERS_TOOK_MORE), found
    assert done.returncode == 0
    page = (tmp_path / "page.html").read_text()
    assert page.count("<svg role") == 2
    assert ("UNSURE: " if busy else "BETTER: ") in page
    back = stallscope("compare", "new.runs", "old.runs", folder=tmp_path)
    assert back.returncode == (not busy)
    assert ("UNSURE: " if busy else "WORSE: ") in back.stdout
    assert stallscope("compare", "new.runs", "old.runs", "--fail-on", "none", folder=tmp_path).returncode == 0
    # In the library too.
    assert stallprobes.compare(tmp_path / "new.runs", tmp_path / "old.runs").change == ("unsure" if busy else "worse")


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A folder with saved runs, a report of another kind of file, and a check."""
    for name, step_ns in (("fast.runs", 10 * MS), ("slow.runs", 30 * MS)):
        run_file.append(program_run(step_ns, PARTS, lines={31: 0.6}), tmp_path / name)
    (tmp_path / "check.json").write_text('{"schema": "stallscope.check/3"}')
    (tmp_path / "empty").touch()
    (tmp_path / "cut").write_bytes((tmp_path / "fast.runs").read_bytes()[:300])
    return tmp_path


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            ("fast.runs", "check.json"),
            "check.json is a saved check, not runs of a program: compare two checks",
        ),
        (
            ("check.json", "fast.runs"),
            "check.json is a saved check, not runs of a program: compare two checks",
        ),
        (("fast.runs", "empty"), "empty is empty: save a run with `stallscope watch --save`"),
        (
            ("fast.runs", "cut"),
            "cut is cut off: it ends within its compressed data; copy it again",
        ),
        (("fast.runs", "none"), "none cannot be read: No such file or directory"),
        (("fast.runs", "."), ". is a folder: name a file in it"),
        (("fast.runs", "slow.runs", "--html", "fast.runs"), "name the same file fast.runs; use different files"),
        (("fast.runs", "slow.runs", "--html", "empty"), "--html: empty already exists"),
    ],
)
def test_files_that_cannot_be_compared_are_refused_in_a_sentence(
    words: Sequence[str], sentence: str, saved: Path
) -> None:
    done = stallscope("compare", *words, folder=saved)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_text_has_both_bars_and_what_changed(saved: Path) -> None:
    done = stallscope("compare", "fast.runs", "slow.runs", folder=saved, NO_COLOR="1")
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "OLD  python train.py · 1 run · 2023-11-14 22:13:20 · host-bound before train.py:31 in step"
    assert " ".join(lines[3:5]) == (
        "WORSE: a step takes 10.0 → 30.0 ms (×3); the cost of train.py:31 in step 6.00 ms → 18.0 ms; still host-bound "
        "before train.py:31 in step."
    )
    bars = [line for line in lines if line.startswith(("OLD  █", "NEW  █"))]
    assert [len(bar) - 5 for bar in bars] == [25, 75]
    assert any(line.split() == ["train.py:31", "in", "step", "6.00", "18.0", "WORSE"] for line in lines)
    assert "A change above ×1.42 (or below ×0.70) is seen" in " ".join(lines)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--save", "check.json", "true"), "--save: check.json is not a file of watched runs"),
        (("--save", "cut", "true"), "--save: cut is not a file of watched runs, or is damaged"),
        (("--save", "nowhere/runs", "true"), "--save: nowhere/runs cannot be written: the folder"),
        (("--save", "-", "true"), "--save needs a file; stdout belongs to the program"),
        (("--repeat", "3", "true"), "--repeat needs --save FILE for the runs"),
        (("--repeat", "3", "--save", "a", "--json", "b", "true"), "--json is for one run; with --repeat use --save"),
        (("--repeat", "3", "--save", "a", "--pid", "1"), "--repeat is for a program that watch starts"),
        (("--repeat", "0", "--save", "a", "true"), '"0" is not a number of runs from 1 to 1000'),
        (("--save", "a", "--json", "a", "true"), "name the same file a; use different files"),
    ],
)
def test_runs_that_cannot_be_saved_are_refused_before_the_program_starts(
    words: Sequence[str], sentence: str, saved: Path
) -> None:
    done = stallscope("watch", "--headless", *words, folder=saved)
    assert done.returncode == 125
    assert sentence in done.stderr


def test_the_exit_code_is_the_program_s_and_its_failure_ends_the_repetition(
    stand_in: StandIn, settings: dict[str, str], tmp_path: Path
) -> None:
    count = 'echo x >> runs; [ "$(wc -l < runs)" -lt 2 ] || exit 7'
    words = ("--repeat", "5", "--save", "a.runs", "--", "sh", "-c", count)
    done = stallscope("watch", *words, folder=tmp_path, **settings)
    assert done.returncode == 7
    assert [run.exit_code for run in run_file.load(tmp_path / "a.runs")] == [0, 7]


def test_a_signal_ends_the_repetition(settings: dict[str, str], tmp_path: Path) -> None:
    done = stallscope(
        "watch", "--repeat", "5", "--save", "a.runs", "--", "sh", "-c", "kill -INT $$", folder=tmp_path, **settings
    )
    assert done.returncode == 128 + signal.SIGINT
    assert len(run_file.load(tmp_path / "a.runs")) == 1


def test_a_report_is_saved_after_the_program_even_if_the_file_is_gone(
    stand_in: StandIn, settings: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "folder").mkdir()
    words = ("--save", "folder/a.runs", "--", "sh", "-c", "rmdir folder; exit 3")
    done = stallscope("watch", *words, folder=tmp_path, **settings)
    assert done.returncode == 3
    assert "folder/a.runs cannot be written" in done.stderr


def test_the_library_compares_reports_and_files_of_one_kind(saved: Path) -> None:
    fast, slow = (run_file.load(saved / name)[0] for name in ("fast.runs", "slow.runs"))
    assert stallprobes.compare(fast, [slow]).change == "worse"
    assert stallprobes.compare([slow, slow], saved / "fast.runs").change == "better"
    with pytest.raises(ValueError, match="no report"):
        stallprobes.compare([], fast)
    matrix = stallprobes.check(victims=["launch"], aggressors=["spin"], backend="sim")
    with pytest.raises(NotComparable, match="compare two of a kind"):
        stallprobes.compare(matrix, fast)
