"""The compiled loop and its slots, in virtual time: what it waits for, and what it measures."""

from __future__ import annotations

import pytest

from factories.loop_stage import MS, START, Stage
from stallprobes.engine.board import counter_ns
from stallprobes.engine.snapshot import ProbeSnapshot
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import Window
from stallprobes.model import Channel, Op, Phase
from stallprobes.native.layouts.board import ProbeState

CALL, WAIT, DUE = Channel(Phase.CALL), Channel(Phase.WAIT), Channel(Phase.DUE)
SLOT = 10 * MS

pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")


class SlottedStage(Stage):
    """A stage whose slot is open for 10 ms and closed for 10 ms, from its start on; its calls take ``durations``."""

    def __init__(self, *durations: int, period_ns: int = MS, ops: tuple[Op, ...] = (Op("x"),)) -> None:
        super().__init__(ops, period_ns)
        self.words.slot.changes = 2
        self.began: list[int] = []
        self.durations = list(durations)
        self.on_nap = self.set_slot
        self.set_slot()
        for op in range(len(ops)):
            self.script(op, self.call)

    def set_slot(self) -> None:
        """What the engine would write until now."""
        words = self.words
        while True:
            changes = int(words.slot.changes)
            at = START + (changes - 2) * SLOT
            words.opens_ns = at
            if self.now < at:
                return
            opening = changes % 2 == 0
            total = counter_ns(words.slot, at)
            if opening:
                words.slot.offset_ns = at - total
            else:
                words.slot.total_ns = total
            words.slot.changes += 1

    def call(self, *_: int) -> int:
        self.began.append(self.now - START)
        self.now += self.durations.pop(0)
        self.set_slot()
        return self.quit() if not self.durations else 0

    def run(self) -> ProbeSnapshot:
        seen = super().run()
        assert ProbeState(seen.state) is ProbeState.ENDED
        return seen


def in_slots(stage: SlottedStage) -> list[list[int]]:
    """The calls of each slot, as times since it opened."""
    found: dict[int, list[int]] = {}
    for at in stage.began:
        found.setdefault(at // SLOT, []).append(at % SLOT)
    assert all(number % 2 == 0 for number in found)
    return [found[number] for number in sorted(found)]


def test_it_calls_in_its_slots_only_and_restarts_its_schedule_with_each() -> None:
    stage = SlottedStage(*[1000] * 25)
    seen = stage.run()
    assert in_slots(stage) == [[n * MS for n in range(10)], [n * MS for n in range(10)], [n * MS for n in range(5)]]
    assert seen.iterations == 25
    assert seen.missed == 0


def test_those_that_begin_together_begin_with_the_slot_and_then_at_multiples_of_their_period() -> None:
    """The first iteration, which is not measured, is at once: a slot may be hardly longer than a period."""
    stage = SlottedStage(*[1000] * 10, period_ns=3 * MS)
    stage.words.aligned = 1
    stage.run()
    first, *others = in_slots(stage)
    # The first slot opens between two multiples of 3 ms, 1 s being none.
    assert first == [0, 2 * MS, 5 * MS, 8 * MS]
    assert others == [[0, 3 * MS, 6 * MS, 9 * MS], [0, 1 * MS]]


def test_the_first_call_of_a_slot_is_not_measured() -> None:
    first, other = 140_000, 1000
    stage = SlottedStage(*([first] + [other] * 9) * 3)
    seen = stage.run()
    # The probe's very first call is apart, as always.
    assert seen.first_ns[CALL] == first
    assert seen.channels[CALL] == seen.channels[DUE] == Histogram.of([other] * 27)
    assert len(seen.samples) == 28


def test_the_first_call_of_a_slot_is_measured_if_it_lasts_beyond_the_slot() -> None:
    stage = SlottedStage(*[1000] * 10, 25 * MS, *[1000] * 3)
    seen = stage.run()
    # It began at 20 ms and ended at 45 ms, in the next slot, which it did not begin: that is the one after it.
    assert seen.channels[CALL] == Histogram.of([1000] * 9 + [25 * MS] + [1000] * 2)
    assert in_slots(stage) == [[n * MS for n in range(10)], [0], [5 * MS, 6 * MS, 7 * MS]]


def test_each_call_of_the_first_iteration_is_judged_by_itself() -> None:
    """The call that submits is short; the wait lasts beyond the slot."""
    ops = Op("x"), Op("y", phase=Phase.WAIT)
    stage = SlottedStage(*[1000] * 20, 2000, 15 * MS, *[1000] * 4, ops=ops)
    seen = stage.run()
    assert seen.channels[CALL] == Histogram.of([1000] * 9 + [1000])
    assert seen.channels[WAIT] == Histogram.of([1000] * 9 + [15 * MS] + [1000])


def test_a_call_that_begins_after_the_slot_is_not_measured() -> None:
    """The call that submits lasts beyond the slot, so the wait meets the work of the next slot's group."""
    ops = Op("x"), Op("y", phase=Phase.WAIT)
    stage = SlottedStage(*[1000] * 6, 15 * MS, 140_000, *[1000] * 4, ops=ops)
    seen = stage.run()
    assert seen.channels[CALL] == Histogram.of([1000] * 2 + [15 * MS] + [1000])
    assert seen.channels[WAIT] == Histogram.of([1000] * 2 + [1000])


def test_calls_that_were_due_while_the_slot_was_closed_are_neither_missed_nor_delayed() -> None:
    # It begins at 4 ms of the first slot and returns at 22 ms, 2 ms into the next slot: 8 ms of its own time.
    stage = SlottedStage(*[1000] * 4, 18 * MS, *[1000] * 3)
    seen = stage.run()
    assert seen.missed == 7
    delayed = [*range(7 * MS, 0, -MS)]
    assert seen.channels[DUE] == Histogram.of([1000] * 3 + [18 * MS, *delayed] + [1000] * 2)


def test_a_period_longer_than_a_slot_still_gives_samples() -> None:
    stage = SlottedStage(*[1000] * 6, period_ns=50 * MS)
    seen = stage.run()
    assert in_slots(stage) == [[0, MS], [0, MS], [0, MS]]
    assert seen.channels[CALL].count == 3


def test_back_to_back_only_the_first_of_each_slot_is_left_out() -> None:
    stage = SlottedStage(*[MS] * 25, period_ns=0)
    assert stage.run().channels[CALL].count == 25 - 3


def test_while_its_slot_is_closed_it_counts_as_running_and_sleeps() -> None:
    stage = SlottedStage(*[1000] * 11)
    states: set[int] = set()
    own = stage.on_nap

    def look() -> None:
        own()
        states.add(int(stage.words.state))

    stage.on_nap = look
    stage.run()
    assert states == {ProbeState.RUNNING}
    # It looks each millisecond while the slot cannot open, then every 100 us.
    closed = [until - at for at, until in stage.naps if START + SLOT <= at < START + 2 * SLOT]
    assert closed == [MS] * 9 + [100_000] * 10


def test_it_can_be_switched_off_and_told_to_quit_while_its_slot_is_closed() -> None:
    stage = SlottedStage(*[1000] * 100)

    def off() -> None:
        stage.words.run = 0
        if stage.words.state == ProbeState.PARKED:
            stage.quit()

    stage.on_nap = lambda: off() if stage.now >= START + SLOT else stage.set_slot()
    assert stage.run().iterations == 10


def test_a_call_in_flight_counts_as_waited_in_the_time_of_its_slots_only() -> None:
    stage = SlottedStage(*[1000] * 4, 30 * MS, 1000)
    windows: list[Window] = []
    before = stage.board.snapshot(START)

    def look(*_: int) -> int:
        if len(stage.durations) == 2:
            # 26 ms into the call: 6 ms of the first slot, all of 10 ms closed, 10 ms of the next slot, closed again.
            stage.now += 26 * MS
            stage.set_slot()
            windows.append(stage.board.snapshot(stage.now).minus(before)["p"])
            stage.now -= 26 * MS
        return stage.call()

    stage.script(0, look)
    stage.run()
    (window,) = windows
    assert window.in_flight is not None
    assert window.in_flight.age_ns == 26 * MS
    assert window.in_flight.allowed_ns == 16 * MS
    assert window.duration_ns == 20 * MS
    assert window.channels[DUE].count == 3 + 16
