"""What records add is measured by calls with and without them, and taken off what was divided with them."""

from __future__ import annotations

import numpy as np
import pytest

from factories.watch_calls import BASE_NS, LAUNCH, SYNC, US, call_batch, process, slow
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import Window
from stallprobes.watch.division import slowdown
from stallprobes.watch.division.instants import COLUMNS, LEAST_GAPS, SUBMITS, WAITING
from stallprobes.watch.division.parts import NUMBERS, Part
from stallprobes.watch.division.slowdown import NEVER_SWITCHED, NO_SLOWDOWN, Slowdown, SlowdownSums, without_slowdown
from stallprobes.watch.reading.process import FinishedCall, WatchedProcess
from stallprobes.watch.reading.record_windows import RecordWindows

THREAD = 100
GRAPH = "cuGraphLaunch"
WINDOW_US = 10_000


def windows(count: int, nodes: int = 0) -> WatchedProcess:
    """A process with windows, of which those with odd numbers have records: of so many nodes of graphs."""
    rows = np.zeros(count, dtype_of(Window))
    for number, row in enumerate(rows):
        row["began_ns"] = BASE_NS + number * WINDOW_US * US
        row["ended_ns"] = row["began_ns"] + WINDOW_US * US
        row["records"] = number % 2
        row["counted"] = number % 2 * nodes
    return process(now=count * WINDOW_US).changed(windows=RecordWindows.of(rows))


def steps(begin: int, launch: int, wait: int, host: int, function: str) -> list[FinishedCall]:
    """The calls of a window, each step of which takes ``launch + wait + host`` us."""
    begins = range(begin, begin + WINDOW_US - launch - wait - host, launch + wait + host)
    return [
        call
        for at in begins
        for call in (
            slow(function, at, at + launch, thread=THREAD),
            slow(SYNC, at + launch, at + launch + wait, thread=THREAD),
        )
    ]


def measured(
    with_records: tuple[int, int, int],
    without: tuple[int, int, int],
    count: int = 4,
    function: str = GRAPH,
    nodes: int = 0,
) -> Slowdown:
    sums = SlowdownSums()
    each = (steps(number * WINDOW_US, *(with_records if number % 2 else without), function) for number in range(count))
    calls = call_batch(call for window in each for call in window)
    sums.add(windows(count, nodes), calls, BASE_NS, BASE_NS + count * WINDOW_US * US)
    return sums.of([THREAD])


def test_launches_of_graphs_that_take_longer_make_the_program_slower() -> None:
    found = measured((40, 30, 30), (20, 30, 30))
    assert found.known
    assert found.added == pytest.approx(0.2, abs=0.01)
    assert found.slower == pytest.approx(0.2, abs=0.01)
    assert found.waits == pytest.approx((0.3, 30 / 80), abs=0.01)
    assert found.off == 0.5
    # In windows without records it makes 100 steps where it makes 80 with them.
    assert found.pace == pytest.approx(1.125, abs=0.01)


@pytest.mark.parametrize(
    ("function", "nodes", "present"),
    # A hundred launches in 10 ms, each with so many nodes, of 180 ns each; without CUPTI a launch takes 5 us.
    [(GRAPH, 10_000, 0.18), (GRAPH, 40_000, 0.55), (GRAPH, 0, 0.0), (LAUNCH, 10_000, 0.0)],
)
def test_cupti_makes_launches_of_graphs_longer_without_records_too(function: str, nodes: int, present: float) -> None:
    found = measured((60, 20, 20), (60, 20, 20), function=function, nodes=nodes)
    assert found.present == pytest.approx(present, rel=0.02)


def test_launches_of_graphs_are_known_as_such_behind_a_reading_without_calls() -> None:
    sums, now_ns = SlowdownSums(), BASE_NS + 4 * WINDOW_US * US
    each = (steps(number * WINDOW_US, *((40, 30, 30) if number % 2 else (20, 30, 30)), GRAPH) for number in range(4))
    sums.add(windows(4), call_batch(call for window in each for call in window), BASE_NS, now_ns)
    sums.add(windows(4), call_batch([]), BASE_NS, now_ns + 1)
    assert sums.of([THREAD]).added == pytest.approx(0.2, abs=0.01)


def test_no_launch_of_a_kernel_takes_longer_by_more_than_a_record_does() -> None:
    # In a queue that is full meanwhile, it does.
    found = measured((40, 30, 30), (20, 30, 30), function=LAUNCH)
    assert found.added == pytest.approx(5 / 100, abs=0.01)
    assert found.slower <= 1.4 * found.added


def test_it_is_no_slower_where_it_waits_for_less_instead() -> None:
    found = measured((40, 30, 30), (20, 50, 30))
    assert found.added == pytest.approx(0.2, abs=0.01)
    assert found.slower == pytest.approx(0, abs=0.01)
    assert found.waits == pytest.approx((0.3, 0.5), abs=0.01)


def test_a_program_that_does_something_else_meanwhile_is_not_slower_by_records() -> None:
    found = measured((20, 30, 130), (20, 30, 30))
    assert (found.added, found.slower) == (0, 0)


def test_nothing_is_known_without_windows_of_both_kinds() -> None:
    assert measured((40, 30, 30), (20, 30, 30), count=1) == NO_SLOWDOWN
    sums = SlowdownSums()
    sums.add(process(), call_batch(), BASE_NS, BASE_NS)
    # Where records are never switched, nothing differs.
    assert sums.of([THREAD]) == NEVER_SWITCHED


def test_calls_of_a_program_that_never_becomes_steady_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slowdown, "_MOST_KEPT", 1000)
    sums = SlowdownSums()
    for number in range(20):
        calls = call_batch(steps(number * WINDOW_US, 40, 30, 30, GRAPH))
        sums.add(windows(4), calls, None, BASE_NS + (number + 1) * WINDOW_US * US)
    assert sum(len(rows) for rows, _ in sums._calls) <= 1000


def bins(**parts: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    sums = np.zeros((1, COLUMNS), dtype=np.int64)
    for name, value in parts.items():
        column = {"waiting": WAITING, "submits": SUBMITS, "least_gaps": LEAST_GAPS}.get(name)
        sums[0, NUMBERS[Part[name]] if column is None else column] = value
    return sums


def share(sums: np.ndarray[tuple[int, int], np.dtype[np.int64]], column: int) -> float:
    return float(sums[0, column] / 1000)


def test_what_made_it_slower_is_taken_off_the_time_in_which_it_submits() -> None:
    sums = bins(KERNELS=600, SUBMITTING=300, HOST=100, submits=300)
    found = without_slowdown(sums, np.array([1000]), Slowdown(0.2, 0.2, off=1.0, known=True))
    assert share(found, NUMBERS[Part.KERNELS]) == pytest.approx(0.75, abs=0.002)
    assert share(found, NUMBERS[Part.SUBMITTING]) == pytest.approx(0.125, abs=0.002)
    assert share(found, WAITING) == 0
    # Where half of the time has records, half of that.
    half = without_slowdown(sums, np.array([1000]), Slowdown(0.2, 0.2, off=0.5, known=True))
    assert share(half, NUMBERS[Part.KERNELS]) == pytest.approx(0.675, abs=0.002)


def test_a_program_that_is_slower_by_more_than_its_calls_are_longer() -> None:
    sums = bins(KERNELS=500, BLOCKED=450, HOST=50, submits=450)
    found = without_slowdown(sums, np.array([1000]), Slowdown(0.3, 0.4, None, 1.0, known=True))
    # The nodes of graphs are hardly longer by records, so that the rest is taken off the launches too.
    assert share(found, NUMBERS[Part.KERNELS]) == pytest.approx(0.5 * 0.915 / 0.6, abs=0.003)
    assert share(found, NUMBERS[Part.BLOCKED]) == pytest.approx((0.45 - 0.4 + 0.5 * 0.085) / 0.6, abs=0.003)


def test_the_least_gaps_stay() -> None:
    sums = bins(KERNELS=600, SUBMITTING=200, QUEUED=200, least_gaps=300)
    found = without_slowdown(sums, np.array([1000]), Slowdown(0.2, 0.2, off=1.0, known=True))
    assert share(found, NUMBERS[Part.SUBMITTING]) + share(found, NUMBERS[Part.QUEUED]) >= 0.3


def test_the_host_waits_for_what_its_calls_took_longer() -> None:
    sums = bins(KERNELS=900, HOST=100, waiting=200, submits=500)
    found = without_slowdown(sums, np.array([1000]), Slowdown(0.2, 0.0, None, 1.0, known=True))
    assert share(found, NUMBERS[Part.KERNELS]) == 0.9
    assert share(found, WAITING) == pytest.approx(0.4, abs=0.002)
    # Or for as much as it did.
    found = without_slowdown(sums, np.array([1000]), Slowdown(0.2, 0.0, (0.2, 0.3), 1.0, known=True))
    assert share(found, WAITING) == pytest.approx(0.3, abs=0.002)


def test_a_wait_for_work_of_other_threads_stays_one() -> None:
    sums = bins(KERNELS=100, OTHER_WORK=600, SUBMITTING=300, waiting=650, submits=300)
    found = without_slowdown(sums, np.array([1000]), Slowdown(0.1, 0.0, None, 1.0, known=True))
    assert share(found, WAITING) == 0.65


def test_nothing_changes_where_records_add_nothing() -> None:
    sums = bins(KERNELS=900, HOST=100, waiting=200)
    assert without_slowdown(sums, np.array([1000]), NO_SLOWDOWN) is sums


def test_what_cupti_adds_to_launches_of_graphs_is_taken_off() -> None:
    # Where the GPU has nothing meanwhile, the step becomes shorter.
    sums = bins(KERNELS=600, BLOCKED=300, HOST=100, waiting=600, submits=300)
    found = without_slowdown(sums, np.array([1000]), Slowdown(present=0.2, off=0.9, known=True))
    assert share(found, NUMBERS[Part.KERNELS]) == pytest.approx(0.75, abs=0.002)
    assert share(found, NUMBERS[Part.BLOCKED]) == pytest.approx(0.125, abs=0.002)
    assert share(found, WAITING) == pytest.approx(0.75, abs=0.002)
    # Where it works, the host waits instead.
    sums = bins(KERNELS=1000, waiting=400, submits=300)
    found = without_slowdown(sums, np.array([1000]), Slowdown(present=0.2, off=0.9, known=True))
    assert share(found, NUMBERS[Part.KERNELS]) == 1.0
    assert (share(found, WAITING), share(found, SUBMITS)) == pytest.approx((0.6, 0.1), abs=0.002)


def test_what_records_add_is_taken_off_bins_by_their_submissions() -> None:
    """Launches of one bin take three times as long as those of the other one."""
    sums = np.concatenate(
        (bins(KERNELS=400, SUBMITTING=600, submits=600), bins(KERNELS=800, SUBMITTING=200, submits=200))
    )
    found = without_slowdown(sums, np.array([1000, 1000]), Slowdown(0.2, 0.2, off=1.0, known=True))
    assert found[:, NUMBERS[Part.KERNELS]].tolist() == pytest.approx([400 / 0.7, 800 / 0.9], abs=2)
