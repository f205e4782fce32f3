"""Rows of a watched program between two readings, and its slow calls in order."""

from __future__ import annotations

from factories.watch_calls import D2H, LAUNCH, MAIN, SYNC, at_ns, call, figures, process, slow, thread
from factories.watch_moments import findings, moments
from stallprobes.watch.live import live_view
from stallprobes.watch.live.live_view import LiveRows, WatchRow, WatchRowKey, alike_calls, calls_in_flight, slow_calls
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.sentences import took_text

S = 1_000_000


def launches(count: int, ms: int = 0, **of: object) -> WatchedProcess:
    """A process with ``count`` launches, read after ``ms``."""
    return process(thread(fast_us={LAUNCH: [5.0] * count}, **of), now=ms * 1000)  # type: ignore[arg-type]


def only(rows: tuple[WatchRow, ...]) -> WatchRow:
    (row,) = rows
    return row


def test_the_last_second_is_the_difference_to_a_reading_a_second_ago() -> None:
    live = LiveRows()
    first = only(live.rows([launches(1000)], at_ns(0)))
    # What was called before the first reading is not of the last second.
    assert (first.total.count, first.recent.count, first.calls_per_s) == (1000, 0, 0)
    for tenth in range(1, 31):
        row = only(live.rows([launches(1000 + 10 * tenth)], at_ns(tenth * S / 10)))
    assert row.total.count == 1300
    assert 100 <= row.recent.count <= 150
    assert row.window_ns == row.recent.count * 10_000_000
    assert row.calls_per_s == 100


def test_readings_that_are_kept_are_few() -> None:
    live = LiveRows()
    for tenth in range(100):
        live.rows([launches(tenth)], at_ns(tenth * S / 10))
        assert len(live._readings) <= 5


def test_percentiles_are_kept_while_nothing_is_called() -> None:
    live = LiveRows()
    first = only(live.rows([launches(10)], at_ns(0)))
    assert only(live.rows([launches(10)], at_ns(S))).total is first.total
    assert only(live.rows([launches(11)], at_ns(2 * S))).total is not first.total


def test_a_call_in_flight_has_a_row_and_an_age_that_grows() -> None:
    live = LiveRows()
    row = only(live.rows([process(thread(in_flight=[call(SYNC, 100)]))], at_ns(S)))
    assert (row.key.function, row.total.count, row.recent.count) == (SYNC, 0, 0)
    assert (row.age_ns(at_ns(600)), row.age_ns(at_ns(1100)), row.age_ns(0)) == (500_000, 1_000_000, 0)
    assert only(live.rows([launches(1)], at_ns(2 * S))).age_ns(at_ns(2 * S)) is None


def test_no_call_of_a_process_that_has_ended_is_in_flight() -> None:
    live, killed = LiveRows(), process(thread(in_flight=[call(SYNC, 100)], fast_us={LAUNCH: [5.0]}))
    live.use(findings(1).changed(processes=(findings(1).processes[0].changed(ended=True),)))
    found = live.rows([killed], at_ns(S))
    assert {row.key.function: row.begin_ns for row in found} == {LAUNCH: None, SYNC: None}


def test_another_thread_in_the_same_place_counts_from_its_begin() -> None:
    live = LiveRows()
    live.rows([launches(1000)], at_ns(0))
    row = only(live.rows([launches(3)], at_ns(S)))
    assert (row.total.count, row.recent.count) == (3, 3)


def test_rows_keep_their_order_until_there_are_new_findings() -> None:
    live, made = LiveRows(), moments(2)
    order = [row.key for row in made[1].rows]
    assert [key.function for key in order[:2]] == [D2H, D2H]
    live.use(made[1].findings)
    later = process(
        thread(MAIN, [slow(D2H, 0, 9000)], name="MainThread", fast_us={LAUNCH: [1e6] * 50}, in_flight=[call(SYNC, 0)])
    )
    assert [row.key.function for row in live.rows([later], at_ns(3 * S))] == [D2H, LAUNCH, SYNC]


def test_of_very_many_rows_those_that_lost_most_are_kept() -> None:
    live = LiveRows()
    many = process(*(thread(number, fast_us={LAUNCH: [5.0]}) for number in range(live_view.MOST_ROWS + 7)))
    assert len(live.rows([many], at_ns(0))) == live_view.MOST_ROWS
    assert live.hidden == 7


def test_recorded_rows_are_those_of_the_live_view() -> None:
    made = moments(3)
    again = LiveRows().recorded(made[2].findings, made[1].findings)
    assert [(row.key, row.total, row.recent, row.lost_ns, row.begin_ns, row.window_ns) for row in again] == [
        (row.key, row.total, row.recent, row.lost_ns, row.begin_ns, row.window_ns) for row in made[2].rows
    ]
    assert all(row.recent.count == 0 for row in LiveRows().recorded(made[0].findings, None))


def test_slow_calls_are_in_order_the_newest_first_and_old_calls_in_flight_are_named() -> None:
    found = findings(2)
    ends = [one.end_ns for one, _ in slow_calls(found)]
    assert ends == sorted(ends, reverse=True)
    assert [(one.function, one.age_ns) for one, _ in calls_in_flight(found)] == [(SYNC, 12_500_000)]
    assert calls_in_flight(findings(2, ended=True)) == []


def test_slow_calls_of_a_place_with_a_cause_are_alike() -> None:
    found = findings(2)
    every = slow_calls(found)
    groups = [calls for calls, _ in alike_calls(found)]
    assert sorted(call.end_ns for calls in groups for call in calls) == sorted(call.end_ns for call, _ in every)
    assert groups[0][0] == every[0][0]
    for calls in groups:
        assert len({(call.thread, call.function, call.bytes, call.cause) for call in calls}) == 1
        assert [call.end_ns for call in calls] == sorted((call.end_ns for call in calls), reverse=True)
    assert len(groups) < len(every)
    (process,) = found.processes
    odd = process.slow_calls[-1].changed(bytes=12345)
    changed = found.changed(processes=(process.changed(slow_calls=(*process.slow_calls[:-1], odd)),))
    assert len(alike_calls(changed)) == len(groups) + 1


def test_alike_calls_are_said_with_the_range_of_their_durations() -> None:
    call = slow_calls(findings(2))[0][0]
    longer = call.changed(duration_ns=2 * call.duration_ns)
    assert took_text(call, (call,)) == took_text(call)
    assert took_text(call, (call, call)).endswith(" took 5.00 ms in each of 2 calls, the last one")
    assert took_text(call, (call, longer)).endswith(" took 5.00 ms to 10.0 ms in 2 calls, the last one 5.00 ms")


def test_keys_are_of_process_thread_and_function() -> None:
    row = only(LiveRows().rows([launches(1)], at_ns(0)))
    assert row.key == WatchRowKey(100, 0, MAIN, LAUNCH)
    assert figures([5.0]).total == row.total
