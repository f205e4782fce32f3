"""NVTX ranges of a program: those that its slow calls were in."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from factories.stand_in import Outcome, StandIn, build_with_nvtx
from factories.waiting import undisturbed
from factories.watch_calls import LAUNCH, at_ns, batch, process, slow, thread
from factories.watched_folders import read_folder
from stallprobes.native.layouts.watch_file import RANGE_BEGINS, THREAD_RANGES
from stallprobes.native.sources import INJECTED
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.environment import NVTX_VARIABLE, WatchOptions, variables
from stallprobes.watch.sentences import call_text

HEADERS = (Path("/usr/local/cuda/include"), *Path("/usr/local").glob("cuda-*/include"))
REAL = next((path for path in HEADERS if (path / "nvtx3" / "nvToolsExt.h").exists()), None)
# Outside of any, in step, in a range with a wide name, in loss, in that of a domain twice, in step again, outside.
RANGES = ["", "step", "vorwärts 😀", "loss", "reduce", "reduce", "step", ""]
# Outside of any, in request, in step, in a range with a wide name, in loss twice, in request, in that of a domain,
# outside; in other threads in request, also while the main thread is in step.
STARTED = ["", "request", "step", "vorwärts", "loss", "loss", "request", "reduce", "", "request", "request"]
# The levels that the functions returned.
LEVELS = "111\n"


def ranges_of(outcome: Outcome) -> list[str]:
    assert (outcome.returncode, outcome.errors) == (0, "")
    (read,) = outcome.processes
    return [one.range for each in read.threads for one in each.slow_calls]


def run_ranges(stand_in: StandIn, folder: Path, expected: list[str], *case: str) -> Outcome:
    """The program with ranges, repeated where more calls than expected were slow."""
    return undisturbed(
        lambda number: stand_in.run(folder / f"out{number}", *case, program="ranges"),
        lambda outcome: len(ranges_of(outcome)) == len(expected),
    )


def test_slow_calls_name_the_range_that_they_were_in(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = run_ranges(stand_in, tmp_path, RANGES)
    assert ranges_of(outcome) == RANGES
    assert outcome.output == LEVELS


def test_slow_calls_name_the_last_started_range_where_their_thread_has_pushed_none(
    stand_in: StandIn, tmp_path: Path
) -> None:
    assert ranges_of(run_ranges(stand_in, tmp_path, STARTED, "started")) == STARTED


def test_more_started_ranges_than_there_are_places_for(stand_in: StandIn, tmp_path: Path) -> None:
    expected = ["late", "", "again"]
    assert ranges_of(run_ranges(stand_in, tmp_path, expected, "started-many")) == expected


@pytest.mark.skipif(REAL is None, reason="no headers of NVTX")
def test_ranges_of_nvtx_itself(stand_in: StandIn, tmp_path: Path) -> None:
    assert REAL is not None
    program = tmp_path / "ranges"
    build_with_nvtx(program, REAL, stand_in)
    for case, expected, output in (("", RANGES, LEVELS), ("started", STARTED, "")):
        folder = tmp_path / f"out-{case}"
        folder.mkdir(mode=0o700)
        done = subprocess.run([program, case], env=stand_in.environment(folder), capture_output=True, text=True)
        contents = read_folder(folder)
        assert ranges_of(Outcome(done.returncode, done.stdout, done.stderr, contents.processes)) == expected
        assert done.stdout == output


def test_ranges_beyond_what_is_kept_are_counted(stand_in: StandIn, tmp_path: Path) -> None:
    assert ranges_of(stand_in.run(tmp_path / "out", "threads", program="ranges")) == ["deep"] * 8


def test_ranges_that_differ_in_numbers_have_one_name(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "steps", program="ranges")
    (read,) = outcome.processes
    found = {one.name: one for one in read.ranges}
    assert {name: found[name].begun for name in ("step # of #", "forward", "reduce", "request #")} == {
        "step # of #": 1501,
        "forward": 1500,
        "reduce": 1500,
        "request #": 20,
    }
    step, forward = found["step # of #"], found["forward"]
    assert step.thread == forward.thread == read.pid != found["request #"].thread
    # The last begins, of which the oldest may just be overwritten; a forward began within each step.
    assert len(step.begins) == RANGE_BEGINS - 1
    assert (step.begins[:-1] < forward.begins[1:]).all()
    assert (forward.begins[1:-1] < step.begins[1:-1]).all()
    assert 0 < forward.inside_ns < step.inside_ns < step.begins[-1] - read.started.monotonic_ns
    # The ranges of ended threads with one name are at one place; of all threads and names some are kept.
    assert len([one for one in read.ranges if one.thread == read.pid]) == THREAD_RANGES
    assert len(read.ranges) == THREAD_RANGES + 1


def test_a_forked_process_has_ranges_of_its_own(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "forked", program="ranges")
    found = {read.parent_pid == os.getpid(): {one.name: one.begun for one in read.ranges} for read in outcome.processes}
    assert found == {True: {"step": 3, "parent": 1}, False: {"step": 1, "child": 1}}


def test_ranges_of_another_tool_stay_with_it() -> None:
    found = variables(
        Path("/inject.so"), Path("/out"), WatchOptions(), {NVTX_VARIABLE: "/opt/nsys/libToolsInjection.so"}
    )
    assert NVTX_VARIABLE not in found


def test_a_program_that_is_not_watched_keeps_its_ranges(stand_in: StandIn, tmp_path: Path) -> None:
    """The variable may outlive the watch, as in a shell with the environment of --print-env."""
    environment = {"PATH": os.environ["PATH"], NVTX_VARIABLE: str(stand_in.folder / INJECTED)}
    done = subprocess.run([stand_in.folder / "ranges"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, LEVELS, "")


def test_a_sentence_names_the_range() -> None:
    analysis = ProcessAnalysis()
    call = slow(LAUNCH, 0, 5000).changed(range="forward")
    analysis.feed(process(thread(calls=[call])), batch([]), at_ns(10_000))
    (found,) = analysis.findings().slow_calls
    assert "cuLaunchKernel in thread-100 (thread 100), in the NVTX range forward, took 5.0" in call_text(found)
