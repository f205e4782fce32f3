"""Times in which a thread is ready to run and has no CPU, by the kernel's switches."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time

import pytest

from factories.waiting import wait_until
from stallprobes.watch.reading import perf_events
from stallprobes.watch.reading.perf_events import SwitchEvents
from stallprobes.watch.reading.preemptions import Preemptions

BUSY = "while True: sum(range(1000))"
LOST, SWITCH, OUT, PREEMPTED = 2, 14, 1 << 13, 1 << 14


def test_two_programs_on_one_cpu_take_it_from_each_other() -> None:
    cpu = {min(os.sched_getaffinity(0))}
    programs = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(2)]
    try:
        for program in programs:
            os.sched_setaffinity(program.pid, cpu)
        try:
            SwitchEvents(programs[0].pid, 1).close()
        except OSError as error:
            pytest.skip(f"the kernel refuses perf_event_open: {error.strerror}")
        began_ns, preemptions = time.monotonic_ns(), Preemptions()

        def count() -> int:
            preemptions.look([(7, programs[0].pid)])
            return len(preemptions.times().get(7, ()))

        wait_until(lambda: count() >= 3, "three times without a CPU")
        times = preemptions.times()[7]
        preemptions.close()
        assert (times[:, 0] < times[:, 1]).all()
        assert (times[1:, 0] >= times[:-1, 1]).all()
        assert times[0, 0] >= began_ns
        assert times[-1, 1] <= time.monotonic_ns()
        # What was read stays.
        preemptions.look([])
        assert len(preemptions.times()[7]) == len(times)
    finally:
        for program in programs:
            program.kill()
            program.wait()


@pytest.mark.parametrize(
    ("records", "times"),
    [
        ([(SWITCH, OUT | PREEMPTED, 10), (SWITCH, 0, 30)], [(10, 30)]),
        # It sleeps, or the kernel has lost what was between.
        ([(SWITCH, OUT, 10), (SWITCH, 0, 30)], []),
        ([(SWITCH, OUT | PREEMPTED, 10), (LOST, 0, 0), (SWITCH, 0, 30)], []),
        ([(SWITCH, 0, 5), (SWITCH, OUT | PREEMPTED, 10), (SWITCH, OUT | PREEMPTED, 20), (SWITCH, 0, 25)], [(20, 25)]),
        ([(SWITCH, OUT | PREEMPTED, 10), (99, 0, 0)], []),
    ],
)
def test_only_what_was_taken_from_a_thread_that_runs_counts(
    monkeypatch: pytest.MonkeyPatch, records: list[tuple[int, int, int]], times: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(SwitchEvents, "__init__", lambda self: setattr(self, "_since_ns", 0))
    made = [(kind, flags, struct.pack("<Q", at)) for kind, flags, at in records]
    monkeypatch.setattr(SwitchEvents, "records", lambda self: iter(made))
    assert list(SwitchEvents().read()) == times  # type: ignore[call-arg]


def test_a_kernel_that_refuses_leaves_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_events, "_SYSTEM_CALL", None)
    preemptions = Preemptions()
    preemptions.look((thread, os.getpid()) for thread in range(20))
    assert preemptions.times() == {}
    preemptions.close()
