"""Replay of schedules whose truth is known by hand, schedules by seed, and some that run beside the model of a GPU."""

from __future__ import annotations

import io
import math
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from factories import watch_calls as by_hand
from factories.shared_folder import shared_folder
from stallprobes.files import codec
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE
from stallprobes.watch import folder_analysis
from stallprobes.watch.analysis import ProcessAnalysis, watch_findings
from stallprobes.watch.reading.process import NOTHING_READ
from stallprobes.watch.report import document
from truth import kept_readings, reading, schedules, virtual
from truth.judging import MAX_SHARE_ERROR, Result, tables
from truth.programs import Programs, build
from truth.reading import Figure, Report
from truth.replay import GAP_NS, LATENCY_NS, Replay, Row
from truth.schedules import SHAPES, Actor, Operation, Schedule, op, schedule, without
from truth.truth import Truth, bounds_of, truth_of

# One millisecond (ns).
MS = 1_000_000
# Number of steps of a replay; ``gain`` measures the second half.
STEPS = 100


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program and its model of GPUs, compiled once."""
    if shutil.which("gcc") is None:
        pytest.skip("no gcc")
    return shared_folder(tmp_path_factory, "truth", lambda place: build(place, model=True))


def row(kind: str, *numbers: int, own_ms: float = 0, gpu_ms: float = 0, delay_ms: float = 0) -> Row:
    """A row of a replay."""
    gpu_ns = round(gpu_ms * MS)
    return Row(op(kind, *numbers), round(own_ms * MS), 0, round(delay_ms * MS), gpu_ns, gpu_ns)


# Rows of a replay: 3 ms of computing on the host, a wait for the stream, and the end of a step.
HOST3, SYNC, STEP = row("host", own_ms=3), row("sync"), row("step")


def kernel(ms: float, stream: int = 0, gpu: int = 0) -> Row:
    """A launch of a kernel, which takes the host no time."""
    return row("launch", round(ms * MS), 1, stream, gpu, gpu_ms=ms)


def gain(cause: str, *rows: Row, others: Sequence[tuple[Sequence[Row], str]] = (), base: Sequence[str] = ()) -> float:
    """What the removal of a cause takes off the time of steps of ``rows``, once they are at their pace."""
    actors = [(rows * STEPS, "main"), *others]

    def duration(removed: Sequence[str]) -> float:
        steps = Replay(actors, removed).steps
        return steps[-1] - steps[STEPS // 2]

    return 1 - duration([cause, *base]) / duration(base)


def near(value: float) -> object:
    """A share, to the latencies of some microseconds."""
    return pytest.approx(value, abs=0.01)


def test_host_and_gpu_in_turn() -> None:
    step = (kernel(5), SYNC, HOST3, STEP)
    assert gain("waits", *step) == near(3 / 8)
    assert gain("host", *step) == near(3 / 8)
    assert gain("kernels", *step) == near(5 / 8)
    assert gain("gaps", *step) == near(0)


def test_without_waits_the_longer_side_bounds() -> None:
    step = (kernel(5), HOST3, STEP)
    assert gain("host", *step) == near(0)
    assert gain("kernels", *step) == near(2 / 5)


def test_a_delay_without_a_cpu_is_a_cause_of_its_own() -> None:
    step = (row("host", own_ms=1, delay_ms=3), STEP)
    assert gain("CPUs", *step) == near(3 / 4)
    # What does not compute needs no CPU.
    assert gain("host", *step) == near(1)


def test_a_loader_limits_its_reader() -> None:
    loader = ([row("host", own_ms=10), row("send", 0)] * STEPS * 2, "feeds")
    step = (row("receive", 0), HOST3, kernel(4), SYNC, STEP)
    assert gain("input", *step, others=[loader]) == near(3 / 10)
    assert gain("waits", *step, others=[loader]) == near(0)
    assert gain("kernels", *step, others=[loader]) == near(0)


def test_a_lock_goes_to_who_asks_first_once_it_is_free() -> None:
    holder = ([row("lock", 0), row("host", own_ms=6), row("unlock", 0), row("host", own_ms=1)] * STEPS * 2, "other")
    step = (row("lock", 0), row("host", own_ms=2), row("unlock", 0), row("host", own_ms=2), STEP)
    assert gain("locks", *step, others=[holder]) > 0.3
    assert gain("waits", *step, others=[holder]) == near(0)


def test_gpus_in_turn_work_at_once_without_the_waits_between_them() -> None:
    step = (kernel(5), SYNC, kernel(5, gpu=1), row("sync", 0, 1), STEP)
    assert gain("turns", *step) == near(1 / 2)
    by_events = (row("await", 1, 0, 0), kernel(5), row("record", 0, 0, 0), row("await", 0, 0, 1), kernel(5, gpu=1))
    assert gain("turns", *by_events, row("record", 1, 0, 1), STEP) == near(1 / 2)


def test_copies_beside_kernels_and_in_front_of_them() -> None:
    beside = (row("copy", 0, 0, 0, 1, gpu_ms=4), kernel(5), STEP)
    assert gain("copies", *beside) == near(0)
    awaited = (row("copy", 0, 0, 0, 1, gpu_ms=4), row("record", 0, 1, 0), row("await", 0, 0, 0), kernel(5), SYNC, STEP)
    assert gain("copies", *awaited) == near(4 / 9)
    assert gain("queued", *awaited) == near(4 / 9)
    assert gain("copies", row("copy", 0, 0, 1, 0, gpu_ms=4), kernel(5), SYNC, STEP) == near(4 / 9)


def test_gaps_of_a_graph() -> None:
    launches = Row(op("graph", 1000, 900), 0, 0, 0, 1_800_000, 900_000)
    assert gain("gaps", launches, SYNC, row("host", own_ms=0.2), STEP) == near(0.9 / 2)


def test_a_server_is_judged_while_it_is_busy() -> None:
    client = ([row("pause", own_ms=32), row("send", 0)] * STEPS, "client")
    step = (row("receive", 0), row("host", own_ms=2), kernel(6), SYNC, STEP)
    assert gain("idle", *step, others=[client]) == near(0.75)
    assert gain("waits", *step, others=[client], base=["idle"]) == near(2 / 8)


def test_a_full_queue_holds_the_host_up() -> None:
    rows = [Row(Operation("launch", (10_000, 500, 0, 0)), MS, 0, 0, 5 * MS, 5 * MS), STEP] * 20
    steps = Replay([(rows, "main")]).steps
    assert steps[-1] - steps[-2] == pytest.approx(5 * MS + GAP_NS, abs=LATENCY_NS)


def test_verdicts_of_gains() -> None:
    assert bounds_of({"waits": 0.3, "own sleep": 0.27, "host": 0.6}) == ("waits", "own sleep")
    assert bounds_of({"waits": 0.1, "kernels": 0.9}) == ("kernels",)
    assert bounds_of({"waits": 0.2}, idle=0.9) == ("idle",)


def test_a_seed_is_a_schedule() -> None:
    made = [schedule(seed, 5, gpus=2) for seed in range(200)]
    assert made == [schedule(seed, 5, gpus=2) for seed in range(200)]
    assert {each.shape for each in made} == {*SHAPES, "mixture"}
    assert len({each.text for each in made}) == 200
    assert all(len(actor.operations) <= schedules.MAX_OPERATIONS for each in made for actor in each.actors)
    assert all(each.gpus == 1 for each in (schedule(seed) for seed in range(200)))


def test_a_cause_that_is_really_removed() -> None:
    made = Schedule("", (schedules.main(schedules.launch(5), schedules.SYNC, op("host", 3), schedules.STEP),))
    changed = without(made, "waits")
    assert changed is not None
    assert [each.kind for each in changed.actors[0].operations[:5]] == [
        "sync_event",
        "launch",
        "host",
        "record",
        "step",
    ]
    assert without(made, "turns") is None
    slept = without(Schedule("", (Actor("main", (op("sleep", 1), schedules.STEP)),)), "own sleep")
    assert slept == Schedule("", (schedules.main(schedules.STEP),))


def test_a_report_is_read() -> None:
    figure = {"share": 0.4, "low": 0.3, "high": 0.5}
    sequence = {"threads": [7, 9], "device": 0, "verdict": "wait", "second": None, "host": figure, "gpu": figure}
    sequence |= {"price": figure, "shares": {"kernels": 0.4}, "sentence": "It is wait-bound.", "phases": []}
    process = {"pid": 7, "began_ns": 5_000, "duration_ns": 3_000, "division": {"start_up_ns": 1_000}}
    read = reading.report_of({"processes": [process | {"sequences": [sequence]}]}, 7)
    assert (read.verdict, read.second, read.window_ns) == ("waits", "", (6_000, 8_000))
    assert read.phase_ns == read.window_ns
    phased = sequence | {"phases": [{"times": [[1_000, 1_200], [2_000, 2_500]]}]}
    assert reading.report_of({"processes": [process | {"sequences": [phased]}]}, 7).phase_ns == (7_000, 7_500)
    assert read.figures["price"] == reading.Figure(**figure)
    assert reading.report_of({"processes": []}, 7).problem
    assert reading.report_of({"processes": [process | {"sequences": []}]}, 7).problem


def test_outcomes() -> None:
    truth = Truth({"host": 0.6, "gpu": 0.4}, {"own sleep": 0.5, "host": 0.1}, 0.0, 100, 1e6, 0.0, 0.01)
    report = Report("host", "", {"host": Figure(0.7, 0.55, 0.8), "gpu": Figure(0.4, 0.4, 0.4)}, {}, (0, 0), "")
    result = Result(1, "own-sleep", False, True, truth, report)
    assert (result.outcome, result.excluded) == ("side", True)
    lines = list(tables([result, Result(2, "lock", True, True, None, None, "exit code 3")]))
    assert "intervals that hold the truth: 2 of 2" in "\n".join(lines)
    assert "exit code 3" in lines[-1]


def test_the_program_is_plain_c(folder: Path) -> None:
    # It was compiled with -Wall -Wextra -Werror.
    done = subprocess.run([folder / "program"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (3, "usage: program SCHEDULE TRACE\n")


def settings_of(folder: Path, runtime: Path) -> dict[str, str]:
    """Variables with which nothing of the user's is used."""
    return {"XDG_RUNTIME_DIR": str(runtime), "TMPDIR": str(runtime), CUPTI_VARIABLE: str(folder / "libcupti.so.13")}


# All shapes, those of two GPUs too, and mixtures of one GPU, in groups that one command watches. How right a report is
# shows on a machine that does nothing else.
WATCHED = [
    *(schedule(seed, gpus=2) for seed in range(0, 2 * len(SHAPES), 2)),
    *(schedule(seed, gpus=1) for seed in range(1, 90, 8)),
]
GROUPS = 4


def kinds(made: Iterable[Schedule]) -> set[str]:
    return {operation.kind for each in made for actor in each.actors for operation in actor.operations}


def test_watched_schedules_have_all_shapes_and_kinds_of_operations() -> None:
    assert {each.shape for each in WATCHED} == {*SHAPES, "mixture"}
    assert kinds(WATCHED) == kinds(schedule(seed, gpus=2) for seed in range(400))


@pytest.mark.parametrize("group", range(GROUPS))
def test_schedules_are_watched(folder: Path, tmp_path: Path, group: int) -> None:
    place = tmp_path / "run"
    place.mkdir()
    for name in ("program", "libcuda.so.1", "libcupti.so.13"):
        (place / name).symlink_to(folder / name)
    chosen = [replace(made, seconds=0.3) for made in WATCHED[group::GROUPS]]
    every = Programs(place, True, ("--cost", "100"), settings_of(place, tmp_path)).run_all(chosen)
    for made, watched in zip(chosen, every, strict=True):
        truth, report = truth_of(made, watched.trace), watched.report
        assert report is not None
        assert report.problem == "", made
        assert report.sentence
        assert {"host", "gpu", "price"} <= set(report.figures)
        assert all(0 <= figure.low <= figure.share <= figure.high <= 1 for figure in report.figures.values())
        assert truth.shares["copies"] is not None
        assert not math.isnan(sum(truth.gains.values()))


@pytest.mark.parametrize(
    "name",
    [
        "accumulation", "bursts", "downloads", "fork-join", "freed-ahead", "logs-now-and-then", "own-sleep", "prefetch",
        "shared-stream", "sleeping-poll", "streamed", "training", "uneven-loaders",
    ],
)  # fmt: skip
def test_what_bounds_a_program_in_virtual_time_is_what_the_replay_says(name: str) -> None:
    made = replace(SHAPES[name](Random(name)), seed=1, seconds=4.0)
    ran = virtual.run(made)
    truth = truth_of(made, ran.trace, ran.report.window_ns)
    result = Result(made.seed, made.shape, False, made.knowable, truth, ran.report)
    assert truth.known
    assert (result.outcome in ("right", "second"), result.excluded) == (True, False), result
    for figure in ("host", "gpu"):
        if (value := truth.shares[figure]) is not None:
            assert ran.report.figures[figure].share == pytest.approx(value, abs=MAX_SHARE_ERROR)


def test_readings_that_were_kept_are_analyzed_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    for owner, name in ((ProcessAnalysis, "feed"), (folder_analysis, "_findings")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    kept, analysis = io.BytesIO(), ProcessAnalysis()
    kept_readings.keep(kept)
    calls = by_hand.call_batch([by_hand.slow(by_hand.LAUNCH, 1, 2), by_hand.slow(by_hand.SYNC, 2, 9_000)])
    read = (
        by_hand.process(by_hand.thread(), now=10_000),
        by_hand.batch([by_hand.kernel(3, 8_000)]),
        by_hand.at_ns(10_000),
    )
    analysis.feed(*read, {}, {}, NOTHING_READ, calls)
    kept.seek(0)
    found = kept_readings.analyzed(kept)
    assert codec.encoded(document(found)) == codec.encoded(document(watch_findings([analysis.findings()], 0)))
