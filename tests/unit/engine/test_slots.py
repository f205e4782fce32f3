"""Slots: who may run when, as the schedule says it, and how it is written to the board."""

from __future__ import annotations

from itertools import pairwise

import pytest

from stallprobes.catalog import Placement, entries
from stallprobes.engine.board import Board, BoardLayout, counter_ns
from stallprobes.engine.slots import STEP_NS, SlotSchedule, SlotState, SlotWriter, grouped, longest_cycle
from stallprobes.model import GREEN, MS, PRIMARY, SECONDARY, SLOT_NS, THIRD, Context, Probe

ONE, TWO, THREE = (0, "primary"), (0, "secondary"), (0, "third")
OTHER_GPU = ((1, "primary"), (1, "secondary"))


def victim(entry: str, context: Context = PRIMARY, **options: object) -> Probe:
    return entries()[entry].probe(Placement(context), name=f"{entry}@{context.name}{context.device}", **options)  # type: ignore[arg-type]


def history(schedule: SlotSchedule, on: set[str], milliseconds: int) -> list[set[str]]:
    """The victims whose slot is open in each millisecond."""
    states = (schedule.update(at * MS, on, set()) for at in range(milliseconds))
    return [{name for name, state in each.items() if state.is_open} for each in states]


def lengths(each: list[set[str]]) -> list[tuple[set[str], int]]:
    """The runs of equal values with their lengths."""
    starts = [0, *(at for at, (before, now) in enumerate(pairwise(each), 1) if before != now), len(each)]
    return [(each[start], end - start) for start, end in pairwise(starts)]


def test_groups_of_one_gpu_run_one_after_the_other_for_100_ms() -> None:
    schedule = SlotSchedule({"a": ONE, "b": TWO, "c": ONE, "d": THREE})
    found = lengths(history(schedule, {"a", "b", "c", "d"}, 700))
    one, two, three = {"a", "c"}, {"b"}, {"d"}
    assert found == [(group, 100) for group in (one, two, three, one, two, three, one)]


def test_only_groups_with_a_victim_that_is_on_take_part() -> None:
    schedule = SlotSchedule({"a": ONE, "b": TWO, "c": ONE, "d": THREE})
    found = lengths(history(schedule, {"c", "d"}, 400))
    assert found == [({"c"}, 100), ({"d"}, 100)] * 2


def test_a_group_that_is_alone_keeps_its_slot() -> None:
    schedule = SlotSchedule({"a": ONE, "b": TWO})
    assert lengths(history(schedule, {"b"}, 1000)) == [({"b"}, 1000)]
    assert schedule.due_ns is None


def test_a_victim_that_is_switched_on_runs_at_once_where_the_other_had_its_time() -> None:
    schedule = SlotSchedule({"a": ONE, "b": TWO})
    history(schedule, {"a"}, 500)
    states = schedule.update(500 * MS, {"a", "b"}, set())
    assert not states["a"].is_open
    assert states["b"].is_open
    assert states["a"].opens_ns == 600 * MS
    # And where the other is switched off, at once as well.
    states = schedule.update(510 * MS, {"a"}, set())
    assert states["a"].is_open
    assert not states["b"].is_open


def test_nothing_is_open_while_nothing_is_on() -> None:
    schedule = SlotSchedule({"a": ONE, "b": TWO})
    assert lengths(history(schedule, set(), 300)) == [(set(), 300)]
    assert schedule.due_ns is None


def test_two_gpus_are_independent() -> None:
    """One has two groups, the other two as well, of which only one is on: it is never interrupted."""
    schedule = SlotSchedule({"a": ONE, "b": TWO, "x": OTHER_GPU[0], "y": OTHER_GPU[1]})
    found = history(schedule, {"a", "b", "x"}, 400)
    assert lengths([each - {"x"} for each in found]) == [({"a"}, 100), ({"b"}, 100)] * 2
    assert all("x" in each for each in found)


def test_a_slot_does_not_wait_for_a_call_in_flight_and_the_other_group_is_not_alone_until_it_returns() -> None:
    schedule = SlotSchedule({"a": ONE, "b": TWO, "c": ONE, "x": OTHER_GPU[0]})
    on = {"a", "b", "c", "x"}
    schedule.update(0, on, {"a"})
    states = schedule.update(SLOT_NS, on, {"a"})
    assert states["b"] == SlotState(True, True, SLOT_NS)
    assert states["x"] == SlotState(True, False, 0)
    assert not states["a"].is_open
    assert schedule.update(SLOT_NS + MS, on, set())["b"] == SlotState(True, False, SLOT_NS)
    # In its own group's next slot a call in flight is what the slot is for.
    states = schedule.update(2 * SLOT_NS, on, {"a"})
    assert states["a"] == states["c"] == SlotState(True, False, 2 * SLOT_NS)
    # A victim that was switched off may still have a call in flight.
    assert schedule.update(3 * SLOT_NS, on - {"a"}, {"a"})["b"].not_alone


def test_a_late_update_shortens_no_slot() -> None:
    schedule = SlotSchedule({"a": ONE, "b": TWO})
    schedule.update(0, {"a", "b"}, set())
    assert schedule.update(5 * SLOT_NS, {"a", "b"}, set())["b"].is_open
    assert schedule.due_ns == 6 * SLOT_NS
    assert schedule.update(6 * SLOT_NS - 1, {"a", "b"}, set())["b"].is_open


def test_primary_and_green_are_one_group_and_every_other_context_is_one_per_gpu() -> None:
    probes = [victim("launch"), victim("d2d", GREEN), victim("d2d", SECONDARY), victim("launch", THIRD)]
    assert [probe.slot_group for probe in probes] == [ONE, ONE, TWO, THREE]
    assert victim("launch", Context("green", 1)).slot_group == OTHER_GPU[0]
    assert longest_cycle(probes, together=False) == 3
    assert longest_cycle(probes, together=True) == 1


@pytest.mark.parametrize("entry", ["d2h-pinned", "d2d-by-host", "d2h-pageable", "event", "host", "spin", "alloc-free"])
def test_copy_engines_the_host_control_and_aggressors_need_no_slot(entry: str) -> None:
    assert victim(entry, SECONDARY).slot_group is None


def test_a_small_upload_travels_in_the_command_stream_and_a_large_one_by_a_copy_engine() -> None:
    assert victim("h2d-pinned", SECONDARY).slot_group == TWO
    assert victim("h2d-pinned", SECONDARY, size=1 << 20).slot_group is None


def test_victims_of_one_group_on_each_gpu_have_no_slots() -> None:
    probes = [victim("launch"), victim("d2d", GREEN), victim("d2d", Context("secondary", 1)), victim("host")]
    assert grouped(probes) == {}


def written(*probes: Probe, together: bool = False) -> tuple[Board, SlotWriter]:
    board = Board.create(BoardLayout.of(probes))
    return board, SlotWriter(probes, board, together)


def switch_on(board: Board) -> None:
    for number in range(len(board.layout.names)):
        board[number].words.run = 1


def test_allowed_time_accumulates_over_slots_while_the_victim_is_on() -> None:
    launch, copy, read = victim("launch"), victim("d2d", SECONDARY), victim("d2h-pinned")
    board, writer = written(launch, copy, read)
    begin = 10 * SLOT_NS
    switch_on(board)
    for at in range(begin, begin + 5 * SLOT_NS, STEP_NS):
        writer.update(at)
    snapshot = board.snapshot(begin + 5 * SLOT_NS)
    times = {name: part.allowed_ns for name, part in snapshot.probes.items()}
    assert times == {launch.name: 3 * SLOT_NS, copy.name: 2 * SLOT_NS, read.name: snapshot.at_ns}
    assert [snapshot.probes[name].in_slots for name in times] == [True, True, False]
    # A victim that is off has no allowed time, though its group would have the slot.
    board[launch.name].words.run = 0
    writer.update(begin + 5 * SLOT_NS)
    assert counter_ns(board[launch.name].words.slot, begin + 9 * SLOT_NS) == 3 * SLOT_NS
    board.close()


def test_together_there_are_no_slots() -> None:
    probes = victim("launch"), victim("d2d", SECONDARY)
    board, writer = written(*probes, together=True)
    assert not writer.needed
    before = board.snapshot(100)
    window = board.snapshot(300).minus(before)[probes[0].name]
    assert (window.duration_ns, window.in_slots, window.not_alone_ns) == (200, False, 0)
    board.close()


def test_time_beside_a_stuck_call_of_another_group_is_counted() -> None:
    launch, copy = victim("launch"), victim("d2d", SECONDARY)
    board, writer = written(launch, copy)
    switch_on(board)
    board[launch.name].words.inflight_op = 1
    writer.update(0)
    writer.update(SLOT_NS)
    assert writer.not_alone
    board[launch.name].words.inflight_op = 0
    writer.update(SLOT_NS + 30 * MS)
    assert not writer.not_alone
    assert counter_ns(board[copy.name].words.not_alone, 2 * SLOT_NS) == 30 * MS
    assert counter_ns(board[launch.name].words.not_alone, 2 * SLOT_NS) == 0
    board.close()
