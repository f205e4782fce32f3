"""Times in which a thread is ready to run and has no CPU, by the kernel's switches."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
import time

import pytest

from factories.waiting import wait_until
from stallprobes.machine import perf_events
from stallprobes.machine.perf_events import SwitchEvents
from stallprobes.watch.reading import preemptions
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
        began_ns, followed = time.monotonic_ns(), Preemptions()

        def count() -> int:
            followed.look([(7, programs[0].pid)])
            return len(followed.times().get(7, ()))

        wait_until(lambda: count() >= 3, "three times without a CPU")
        times = followed.times()[7]
        followed.close()
        assert (times[:, 0] < times[:, 1]).all()
        assert (times[1:, 0] >= times[:-1, 1]).all()
        assert times[0, 0] >= began_ns
        assert times[-1, 1] <= time.monotonic_ns()
        # What was read stays.
        followed.look([])
        assert len(followed.times()[7]) == len(times)
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
    made = [(kind, flags, struct.pack("<Q", at)) for kind, flags, at in records]
    monkeypatch.setattr(SwitchEvents, "records", lambda self: iter(made))
    events = object.__new__(SwitchEvents)
    events.switches = events._since_ns = 0
    assert list(events.read()) == times


def test_a_thread_that_switches_very_often_is_followed_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    class Events:
        def __init__(self, thread: int, pages: int) -> None:
            self.switches = 0

        def read(self) -> list[tuple[int, int]]:
            self.switches += next(rates)
            return [(self.switches, self.switches + 1)]

        def close(self) -> None:
            closed.append(self)

    closed: list[Events] = []
    rates, clock = iter([0, 400, 600, 0]), iter(at / 10 for at in range(100))
    monkeypatch.setattr(preemptions, "SwitchEvents", Events)
    monkeypatch.setattr(time, "monotonic", lambda: next(clock))
    made = Preemptions()
    for count in (1, 2, 3, 3):
        made.look([(7, 77)])
        assert len(made.times()[7]) == count
    assert len(closed) == 1


def test_a_kernel_that_refuses_leaves_no_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_events, "_SYSTEM_CALL", None)
    followed = Preemptions()
    followed.look((thread, os.getpid()) for thread in range(20))
    assert followed.times() == {}
    followed.close()
