"""Sequences: which threads call by turns, also where many come and go."""

from __future__ import annotations

from stallprobes.watch.division.instants import Spans
from stallprobes.watch.division.sequences import MOST_THREADS, SequenceBook
from stallprobes.watch.intervals import int64s

MAIN, BACKWARD, FIRST_SHORT = 1, 2, 100


def spans(*times: int, ns: int = 100) -> Spans:
    begins = int64s(times)
    return Spans(begins, begins + ns)


def test_threads_that_stay_are_known_where_hundreds_come_and_go() -> None:
    book, number = SequenceBook(), FIRST_SHORT
    for at in range(0, 20_000, 10_000):
        threads = {MAIN: spans(at, at + 1000)}
        for place in range(4 * MOST_THREADS):
            threads[number] = spans(at + 100 * place + 50, ns=20)
            number += 1
        # It is last, and calls between the main thread's calls.
        threads[BACKWARD] = spans(at + 500, at + 1500)
        book.note(threads)
        assert book.knows(MAIN)
        assert book.knows(BACKWARD)
    assert book.leader(BACKWARD) == book.leader(MAIN) == MAIN
