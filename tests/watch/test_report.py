"""The report of a watched program: what is set when it is written, and what its members name."""

from __future__ import annotations

from msgspec import UNSET

from factories.beside import beside_result
from factories.documents import validate
from factories.time_samples import line_stack
from factories.watch_calls import MAIN, at_ns
from factories.watch_moments import findings
from stallprobes.files.codec import encoded
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.report import described, document


def test_sentences_are_set_when_a_report_is_written() -> None:
    (process,) = findings(8, ended=True).processes
    assert {call.sentence for call in process.slow_calls} == {UNSET}
    assert b"sentence" not in encoded(process)
    made = described(process)
    assert all(call.sentence is not UNSET for call in made.slow_calls)
    assert all(row.p50_ns is not UNSET for thread in made.threads for row in thread.rows)


def test_a_stack_is_in_the_list_once_and_named_by_its_place() -> None:
    found = findings(8, ended=True)
    (process,) = found.processes
    first, second = line_stack(10), line_stack(20)
    calls = tuple(
        call.changed(stack=stack)
        for call, stack in zip(process.slow_calls, (first, second, line_stack(10), None), strict=False)
    )
    sequences = tuple(sequence.changed(lines=()) for sequence in process.sequences)
    made = document(found.changed(processes=(process.changed(slow_calls=calls, sequences=sequences),)))
    (read,) = made["processes"]
    assert [call["stack"] for call in read["slow_calls"]] == [0, 1, 0, None]
    assert [stack["python"][1]["line"] for stack in read["stacks"]] == [10, 20]
    # Where there is no list, it has its frames.
    assert CallStack.of_json({"python": read["stacks"][0]["python"]}) == CallStack(first.python)


def test_of_a_sequence_without_records_no_figure_is_known() -> None:
    found = findings(8, ended=True)
    alone = found.processes[0].changed(division=None, sequences=(ProgramSequence(threads=(MAIN,)),))
    made = document(found.changed(processes=(alone,)))
    validate(made, "stallscope.watch/3")
    (sequence,) = made["processes"][0]["sequences"]
    assert (sequence["device"], sequence["verdict"], sequence["sentence"]) == (None, Bound.UNKNOWN, "")
    assert sequence["host"] == {"share": 0.0, "low": 0.0, "high": 1.0}
    assert ProgramSequence(threads=(MAIN,)).host == Figure(0.0, 0.0, 1.0)


def test_effects_of_aggressors_are_a_part_of_it() -> None:
    made = document(findings(8, ended=True).changed(beside=beside_result()))
    validate(made, "stallscope.watch/3")
    first, second = made["beside"]["rows"]
    assert (first["aggressor"], first["outcome"], first["ratio"]["ratio"]) == ("spin", "slower", 1.984)
    assert first["grew"] == {"part": "shared", "off": 0.0, "on": 0.48}
    assert (second["ratio"], second["reason"]) == (None, "2 of at least 3 turns")
    assert document(findings(8, ended=True))["beside"] is None


def test_times_of_events_are_on_the_clock_of_the_begin() -> None:
    made = document(findings(8, ended=True))
    assert made["began_ns"] == made["processes"][0]["began_ns"] == at_ns(0)
    assert made["processes"][0]["slow_calls"][0]["begin_ns"] > at_ns(0)
