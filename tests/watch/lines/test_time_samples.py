"""Samples of the threads' time that programs beside the stand-ins leave: they add up to it, and name its places."""

from __future__ import annotations

import os
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from factories.pythons import VERSIONS, python_of
from factories.stand_in import SOURCES, StandIn
from stallprobes.native.layouts.watch_file import SAMPLE_NS, STACKS, SampledTime
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.intervals import int64s
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.map_reader import CallPosition, MapFile, watch_files
from stallprobes.watch.reading.process import CallBatch, SampleBatch
from stallprobes.watch.reading.stack_reader import StackReader

PYTHON_PROGRAM = SOURCES.parent / "slow_steps.py"
# The last points of a sum are at most so far apart.
LONGEST_NS = SAMPLE_NS * 3 // 2
# A stack is waited for as long at most.
DEFERRED_NS = 65 * SAMPLE_NS
# One of so many runs has samples of nearly all its time between calls, also on a busy machine.
MOST_RUNS = 8
# Numbers of steps of a program, the next one where samples lack what is looked for, as on a busy machine.
DOUBLED = ("50", "100", "200", "400", "800", "1600", "3200")


def samples_in(folder: Path) -> list[tuple[SampleBatch, CallBatch, dict[int, CallStack]]]:
    """The samples of each process, its calls, and its stacks."""
    found = []
    for path in watch_files(folder):
        reader = StackReader()
        with MapFile(path) as file:
            process = file.read()
            batch, calls = file.samples(), file.calls(CallPosition(), process)
            reader.read(file, process, batch)
        found.append((batch, calls, reader.stacks))
    return found


def check_sums(batch: SampleBatch, calls: CallBatch) -> int:
    """The samples of each thread are its time inside calls and that between them, but for what follows the last one.

    Returns the longest time between calls, in ns, that a thread's samples lack. How long it is depends on the machine:
    the library's own time between calls is not sampled, and is long where the thread loses its CPU within it.
    """
    assert batch.missed == calls.missed == 0
    lacking = 0
    for thread in np.unique(calls.rows["thread"]).tolist():
        own = calls.rows[calls.rows["thread"] == thread]
        began, returned = int64s(own["began_ns"]), int64s(own["returned_ns"])
        rows = batch.rows[batch.rows["thread"] == thread]
        for kind, begins, ends in (
            (SampledTime.INSIDE, began, returned),
            (SampledTime.BETWEEN, returned[:-1], began[1:]),
        ):
            mine = rows[rows["sampled"] == int(kind)]
            sampled, last = int(mine["ns"].sum()), int(mine["at_ns"].max(initial=0))
            until_last = int((np.minimum(ends, last) - np.minimum(begins, last)).sum())
            assert sampled <= int((ends - begins).sum())
            if kind is SampledTime.INSIDE:
                assert until_last - sampled <= LONGEST_NS
            else:
                lacking = max(lacking, until_last - sampled)
    return lacking


def by_place(batch: SampleBatch, stacks: dict[int, CallStack]) -> Counter[tuple[SampledTime, str, str]]:
    """The sampled time by its kind, the function of the driver, and the function of the program."""
    found: Counter[tuple[SampledTime, str, str]] = Counter()
    for row in batch.rows[batch.rows["sampled"] != int(SampledTime.WAITS)]:
        stack = stacks.get(int(row["stack"]))
        place = "" if stack is None or stack.place is None else stack.place.function
        found[SampledTime(int(row["sampled"])), batch.functions[int(row["api"])], place] += int(row["ns"])
    return found


def test_samples_add_up_to_the_time_of_the_thread_and_name_its_places(stand_in: StandIn, tmp_path: Path) -> None:
    for number in range(MOST_RUNS):
        stand_in.run(tmp_path / str(number), "short-steps", "2000")
        ((batch, calls, stacks),) = samples_in(tmp_path / str(number))
        if check_sums(batch, calls) <= DEFERRED_NS:
            break
    else:
        pytest.fail(f"{MOST_RUNS} programs lack samples of their time between calls")
    found = by_place(batch, stacks)
    # A compiler may make one function of the two. On a busy machine a stack takes so long that few samples have one.
    places = {
        (SampledTime.INSIDE, "cuStreamSynchronize"): {"wait_for_step"},
        (SampledTime.BETWEEN, "cuLaunchKernel"): {"launch", "launch_after_work"},
    }
    for (kind, function), named in places.items():
        assert {place for sampled, called, place in found if (sampled, called) == (kind, function)} <= named | {""}
    assert found.total() > 0


def test_findings_have_the_lines_of_short_waits_and_what_they_cost(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "short-steps", "8000")
    analysis = FolderAnalysis(tmp_path / "out")
    analysis.poll()
    (process,) = analysis.findings().processes
    (sequence,) = process.sequences
    assert sum(line.share.share for line in sequence.lines) == pytest.approx(1)
    named = {line.place.function: line for line in sequence.lines if line.place is not None}
    wait = named["wait_for_step"]
    assert wait.waits.function == "cuStreamSynchronize"
    assert wait.price == pytest.approx(sequence.price.share)
    # By the log of all calls: the time inside waits, of that which was sampled.
    ((batch, calls, _),) = samples_in(tmp_path / "out")
    functions = {name: number for number, name in calls.functions.items()}
    waits = calls.rows[calls.rows["function"] == functions["cuStreamSynchronize"]]
    share = (waits["returned_ns"] - waits["began_ns"]).sum() / batch.rows["ns"][
        batch.rows["sampled"] != int(SampledTime.WAITS)
    ].sum()
    assert wait.share.low - 0.1 < share < wait.share.high + 0.1
    # On a busy machine the program may lose its CPU before another call.
    assert "cuLaunchKernel" in {line.between.function for line in sequence.lines if line.between.share}


def test_waits_that_take_hardly_any_time_have_samples_of_their_own(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "short-steps", "8000")
    ((batch, calls, stacks),) = samples_in(tmp_path / "out")
    waits = batch.rows[batch.rows["sampled"] == int(SampledTime.WAITS)]
    functions = {name: number for number, name in calls.functions.items()}
    made = calls.rows[calls.rows["function"] == functions["cuStreamSynchronize"]]
    # About one in 50 ms, fewer where a stack takes long, of waits of which all are at one line; those after the last
    # sample have none.
    seconds = (int(made["returned_ns"][-1]) - int(made["began_ns"][0])) / 1e9
    assert 0 < len(waits) < 60 * seconds + 5
    assert 0 < int(waits["ns"].sum()) <= len(made)
    places = Counter(stacks[int(row["stack"])].place.function for row in waits)  # type: ignore[union-attr]
    assert set(places) == {"wait_for_step"}
    # The time on a CPU only grows.
    for thread in np.unique(batch.rows["thread"]):
        rows = batch.rows[batch.rows["thread"] == thread]
        assert (np.diff(rows["cpu_ns"].astype(np.int64)) >= 0).all()
        assert 0 < rows["cpu_ns"][-1] < 60e9


def test_each_thread_is_sampled_by_itself(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "threads-of-short-steps", "300", "6")
    ((batch, calls, stacks),) = samples_in(tmp_path / "out")
    assert len(set(batch.rows["thread"].tolist())) == 6
    check_sums(batch, calls)
    # The rings of a sample and of the calls agree.
    inside = batch.rows[batch.rows["sampled"] == int(SampledTime.INSIDE)]
    keys = set(zip(calls.rows["thread"].tolist(), calls.rows["returned_ns"].tolist(), strict=True))
    assert set(zip(inside["thread"].tolist(), inside["at_ns"].tolist(), strict=True)) <= keys
    assert by_place(batch, stacks)


def test_a_forked_process_has_samples_of_its_own(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "fork-short-steps", "300")
    found = samples_in(tmp_path / "out")
    assert len(found) == 2
    for batch, calls, _ in found:
        assert len(batch)
        check_sums(batch, calls)


def test_without_stacks_there_are_no_samples(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "short-steps", "300", options=WatchOptions(stacks=False))
    ((batch, _, _),) = samples_in(tmp_path / "out")
    assert len(batch) == 0


def test_threads_that_end_are_sampled_as_others(stand_in: StandIn, tmp_path: Path) -> None:
    stand_in.run(tmp_path / "out", "short-threads", "40", "8000", "4")
    ((batch, calls, _),) = samples_in(tmp_path / "out")
    check_sums(batch, calls)


def run_python(stand_in: StandIn, folder: Path, version: str, *case: str) -> None:
    folder.mkdir(mode=0o700)
    done = subprocess.run(
        [python_of(version), str(PYTHON_PROGRAM), str(stand_in.folder / "libcuda.so.1"), *case],
        env={**os.environ, **stand_in.environment(folder)}, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def lines_of(batch: SampleBatch, stacks: dict[int, CallStack], kind: SampledTime) -> Counter[str]:
    """The sampled time of one kind by the text behind the line's comment sign, "" for other lines."""
    lines = PYTHON_PROGRAM.read_text().splitlines()
    found: Counter[str] = Counter()
    for row in batch.rows[batch.rows["sampled"] == int(kind)]:
        stack = stacks.get(int(row["stack"]))
        line = None if stack is None or stack.place is None else stack.place.line
        found[lines[line - 1].partition("  # ")[2] if line else ""] += int(row["ns"])
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_lines_of_a_python_program_are_sampled_without_a_threshold(
    stand_in: StandIn, tmp_path: Path, version: str
) -> None:
    run_python(stand_in, tmp_path / "out", version, "short", "500")
    ((batch, calls, stacks),) = samples_in(tmp_path / "out")
    check_sums(batch, calls)
    # Which has most of the time is another matter where the program loses its CPU.
    assert lines_of(batch, stacks, SampledTime.INSIDE)["the line of the waits"] > 0
    assert lines_of(batch, stacks, SampledTime.BETWEEN)["the line behind work"] > 0


@pytest.mark.parametrize("version", VERSIONS)
def test_time_between_calls_is_at_the_lines_where_it_passes(stand_in: StandIn, tmp_path: Path, version: str) -> None:
    # On a busy machine the library's thread sees a few of the gaps; the others are at the line of the next call.
    for count in DOUBLED[1:]:
        run_python(stand_in, tmp_path / count, version, "prepared", count)
        ((batch, calls, stacks),) = samples_in(tmp_path / count)
        check_sums(batch, calls)
        found = lines_of(batch, stacks, SampledTime.BETWEEN)
        if found["the line that sleeps"] and found["the line that computes"]:
            break
    assert found["the line that sleeps"] > 0
    assert found["the line that computes"] > 0
    assert batch.functions[int(batch.rows["api"][-1])] == "cuEventQuery"


@pytest.mark.parametrize("version", VERSIONS)
def test_the_line_that_has_pythons_lock_is_known_while_a_thread_waits_for_it(
    stand_in: StandIn, tmp_path: Path, version: str
) -> None:
    # On a busy machine the library's thread sees a few of the gaps.
    for count in DOUBLED[1:]:
        run_python(stand_in, tmp_path / count, version, "contended", count)
        ((batch, _, stacks),) = samples_in(tmp_path / count)
        holders = Counter(int(row["holder"]) for row in batch.rows if row["holder"])
        if holders:
            break
    found = {stacks[number].python[0].function for number in holders}
    assert "compute_input" in found <= {"compute_input", "compute_for_ever"}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("kind", ["RLock", "Lock"])
def test_the_line_that_has_a_lock_is_known_while_a_thread_waits_for_it(
    stand_in: StandIn, tmp_path: Path, version: str, kind: str
) -> None:
    # On a busy machine the library's thread sees a few of the gaps.
    for count in DOUBLED[:-1]:
        run_python(stand_in, tmp_path / count, version, kind, count)
        ((batch, _, stacks),) = samples_in(tmp_path / count)
        waits = batch.rows[batch.rows["holder"] > STACKS]
        if len(waits):
            break
    lines = {stacks[int(number)].place for number in np.unique(waits["stack"])}
    assert {place.function for place in lines if place is not None} == {"locked_steps"}
    found = {stacks[int(number) - STACKS].python[0].function for number in np.unique(waits["holder"])}
    # It may be on the way to give it back, or to take it.
    assert "sleep_for_input" in found <= {"sleep_for_input", "hold_for_ever"}
