"""Steps by NVTX ranges, else by the most regular blocking call, and what is none."""

from __future__ import annotations

import numpy as np
import pytest

from factories.recorded_divisions import findings_of
from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.native.layouts.watch_file import CallFlag
from stallprobes.records.rows import DRIVER_CALL
from stallprobes.watch.division.steps import LEAST_STEPS, StepBook
from stallprobes.watch.division_text import step_text
from stallprobes.watch.intervals import int64s
from stallprobes.watch.reading.process import CallBatch, NamedRange

FUNCTIONS = {0: "cuLaunchKernel", 1: "cuStreamSynchronize", 2: "cuMemcpyHtoDAsync_v2"}
MS = 1_000_000
# A call of the main thread: its function, and how long after the begin of a step (ms) it begins.
Made = tuple[int, float, int]


def batch(*steps: tuple[float, list[Made]], thread: int = 1, flags: int = 0) -> CallBatch:
    """Calls (function, ms after the begin, bytes) of steps that begin at some times (ms)."""
    made = [(begin + after, function, size) for begin, calls in steps for function, after, size in calls]
    rows = np.zeros(len(made), DRIVER_CALL)
    for row, (begin, function, size) in zip(rows, made, strict=True):
        row["began_ns"], row["returned_ns"] = round(begin * MS), round(begin * MS) + 1000
        row["function"], row["bytes"], row["thread"], row["flags"] = function, size, thread, flags
        row["source"] = MemoryKind.PAGEABLE if size else 0
    return CallBatch(rows, FUNCTIONS, 0)


def book(*batches: CallBatch, begin_ns: int = 0) -> StepBook:
    found = StepBook()
    for one in batches:
        found.add(one, (), begin_ns)
    return found


# One upload in each, and waits at odd places.
STEP: list[Made] = [(2, 0.0, 4096), (0, 0.2, 0), (1, 1.0, 0), (1, 9.0, 0)]


def test_the_most_regular_blocking_call_is_the_step() -> None:
    step = book(batch(*((10.0 * at, STEP) for at in range(40)))).step_of([1])
    assert step is not None
    assert (step.function, step.bytes, step.thread, step.steps) == ("cuMemcpyHtoDAsync_v2", 4096, 1, 39)
    assert step.ns == pytest.approx(10 * MS, rel=0.05)
    assert step.low_ns == step.high_ns == step.ns


def test_the_slowest_one_of_a_hundred_steps_is_known_from_500_on() -> None:
    begins = np.cumsum([100.0 if number % 50 == 25 else 10.0 for number in range(600)])
    assert (few := book(batch(*((at, STEP) for at in begins[:400]))).step_of([1])) is not None
    assert few.slow_ns is None
    assert (step := book(batch(*((at, STEP) for at in begins))).step_of([1])) is not None
    assert step.slow_ns == pytest.approx(100 * MS, rel=0.05)


def test_steps_reach_over_readings_and_begin_with_the_steady_state() -> None:
    readings = [batch(*((10.0 * at, STEP) for at in range(first, first + 5))) for first in range(0, 40, 5)]
    step = book(*readings).step_of([1])
    assert step is not None
    assert step.steps == 39
    late = book(*readings)
    late.add(batch(*((10.0 * at, STEP) for at in range(40, 65))), (), begin_ns=400 * MS)
    found = late.step_of([1])
    assert found is not None
    assert found.steps == 24


@pytest.mark.parametrize(
    "calls",
    [
        batch(*((10.0 * at, STEP) for at in range(LEAST_STEPS))),
        batch(*((float(at) ** 1.7, STEP) for at in range(60))),
        batch(*((0.05 * at, [(1, 0.0, 0)]) for at in range(60))),
        batch(*((10.0 * at, [(0, 0.0, 0)]) for at in range(60))),
        batch(*((10.0 * at, STEP) for at in range(60)), thread=2),
        batch(*((10.0 * at, STEP) for at in range(60)), flags=int(CallFlag.NESTED)),
    ],
    ids=["too few", "irregular", "too short", "no blocking call", "another sequence", "nested"],
)
def test_what_is_no_step(calls: CallBatch) -> None:
    assert book(calls).step_of([1]) is None


NO_CALLS = batch()


def ranges(
    name: str, *begins: float, begun: int | None = None, mean_ms: float = 1.0, place: int = 0, thread: int = 1
) -> NamedRange:
    """Ranges with a name that began at some times (ms), the last of ``begun``, and took so long on average."""
    count = len(begins) if begun is None else begun
    return NamedRange(
        place, thread, name, count, int64s([round(at * MS) for at in begins]), round(count * mean_ms * MS)
    )


def every(ms: float, count: int = 40, begin: float = 0.0) -> list[float]:
    return [begin + ms * number for number in range(count)]


def test_ranges_are_steps_before_calls_are() -> None:
    found = StepBook()
    found.add(batch(*((10.0 * at, STEP) for at in range(40))), [ranges("step #", *every(20.0))], 0)
    step = found.step_of([1])
    assert step is not None
    assert (step.range, step.function, step.bytes, step.thread, step.steps) == ("step #", "", 0, 1, 39)
    assert step.ns == pytest.approx(20 * MS, rel=0.05)
    # Ranges of threads of another sequence are none of its steps.
    other = found.step_of([2])
    assert other is None


@pytest.mark.parametrize(
    ("others", "expected"),
    [
        ([("forward", every(20.0), 6.0), ("backward", every(20.0, begin=7.0), 11.0)], "step"),
        ([("layer", every(2.0, 400), 1.9)], "step"),
        ([("validation", every(400.0, 30), 40.0)], "step"),
        # Less than 20 of them.
        ([("epoch", every(400.0, 15), 400.0)], "step"),
        ([("epoch", every(400.0, 25), 400.0)], "epoch"),
        ([("XlaPass:#name=fusion,module=jit_step#", every(20.0), 19.0)], "step"),
        ([("ncclReduceScatter", every(20.0), 19.0)], "step"),
        ([("cub::DeviceRadixSort", every(20.0), 19.0)], "step"),
        ([("irregular", [at**1.7 for at in every(10.0)], 500.0)], "step"),
    ],
)
def test_the_range_with_most_of_the_time_is_the_step(
    others: list[tuple[str, list[float], float]], expected: str
) -> None:
    # As many steps as there are in the longest time.
    found = [ranges("step", *every(20.0, 500), mean_ms=19.0)]
    found += [ranges(name, *begins, mean_ms=ms, place=place) for place, (name, begins, ms) in enumerate(others, 1)]
    for order in (found, found[::-1]):
        book = StepBook()
        book.add(NO_CALLS, order, 0)
        step = book.step_of([1])
        assert step is not None
        assert step.range == expected


def test_ranges_in_bursts_are_no_steps() -> None:
    # Four layers are submitted in 6 ms of a step of 31 ms.
    ahead = StepBook()
    ahead.add(NO_CALLS, [ranges("layer", *(31.0 * at + 2.0 * layer for at in range(50) for layer in range(4)))], 0)
    assert ahead.step_of([1]) is None
    # A pause now and then takes less than half of the time.
    paused = StepBook()
    paused.add(NO_CALLS, [ranges("layer", *(70.0 * at + 2.0 * layer for at in range(10) for layer in range(20)))], 0)
    step = paused.step_of([1])
    assert step is not None
    assert step.ns == pytest.approx(2 * MS, rel=0.05)


def test_ranges_reach_over_readings_and_begin_with_the_steady_state() -> None:
    found = StepBook()
    for last in range(5, 45, 5):
        # Each reading has the last ten.
        found.add(NO_CALLS, [ranges("step", *every(20.0, last)[-10:], begun=last)], 0)
    step = found.step_of([1])
    assert step is not None
    assert step.steps == 39
    late = every(20.0, 65)
    found.add(NO_CALLS, [ranges("step", *late[-40:], begun=65)], begin_ns=800 * MS)
    step = found.step_of([1])
    assert step is not None
    assert step.steps == 24


def test_the_time_to_a_range_that_was_not_read_is_no_step() -> None:
    found = StepBook()
    found.add(NO_CALLS, [ranges("step", *every(20.0, 30))], 0)
    # 970 began meanwhile, of which the last 10 are known.
    found.add(NO_CALLS, [ranges("step", *every(20.0, 10, begin=20_000.0), begun=1000)], 0)
    step = found.step_of([1])
    assert step is not None
    assert step.steps == 29 + 9
    assert step.high_ns == step.ns


def test_a_step_by_ranges_in_a_sentence() -> None:
    sequences = findings_of("image_training").sequences
    sequence = sequences[0]
    assert sequence.step is not None
    named = sequence.changed(step=sequence.step.changed(range="step #", function="", bytes=0))
    assert step_text(named).startswith('A step, from one NVTX range "step #" to the next, takes 14')


@pytest.mark.parametrize(
    ("name", "ms"), [("image_training", 14.0), ("image_training_pinned", 11.2), ("gaussian_process", 19.6)]
)
def test_steps_of_real_programs_are_as_long_as_they_say(name: str, ms: float) -> None:
    """By the rates that the programs printed: 71.4 and 89.6 steps a second, 51.1 fits a second."""
    sequences = findings_of(name).sequences
    step = sequences[0].step
    assert step is not None
    assert step.ns == pytest.approx(ms * MS, rel=0.1)


def test_the_last_begins_of_a_step_are_known() -> None:
    found = book(*(batch(*((10.0 * at, STEP) for at in range(first, first + 20))) for first in (0, 20)))
    step = found.step_of([1])
    assert step is not None
    assert found.last_begins(step).tolist() == [10 * MS * at for at in range(40)]
    # At once, though others are counted later.
    found.add(batch((400.0, STEP)), (), 0)
    assert found.last_begins(step).tolist()[-2:] == [390 * MS, 400 * MS]
    # Uploads and waits, which are no steps.
    assert len(found.blocking) == 3 * 41
    assert (np.diff(found.blocking) >= 0).all()
    named = StepBook()
    named.add(NO_CALLS, [ranges("step #", *every(20.0))], 0)
    step = named.step_of([1])
    assert step is not None
    assert named.last_begins(step).tolist() == [20 * MS * at for at in range(40)]
    assert found.last_begins(step).tolist() == []
