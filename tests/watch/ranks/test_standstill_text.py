"""Where the ranks of a job are that all stand still, in a sentence."""

from __future__ import annotations

from factories.watch_calls import MAIN, SYNC, at_ns, batch, process, thread
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.attribution.findings import ProcessFindings, Standstill
from stallprobes.watch.rank_text import ranks_texts
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame
from stallprobes.watch.reading.process_rank import Rank

SECOND = 1_000_000_000


def place(line: int, function: str) -> StackFrame:
    return StackFrame(FrameKind.PYTHON, function, "/home/me/train.py", line)


def rank(number: int | None, still: Standstill | None) -> ProcessFindings:
    analysis = ProcessAnalysis()
    analysis.feed(process(thread(MAIN, fast_us={SYNC: [6.0]})), batch(()), at_ns(1_000_000))
    found = analysis.findings().changed(pid=100 + (number or 0), name="python", standstill=still)
    return found if number is None else found.changed(rank=Rank(number=number, size=4))


WAITS = Standstill(
    ns=12 * SECOND, begun=True, function="cuStreamSynchronize", place=place(42, "step"), collective="ncclAllReduce"
)
SLEEPS = Standstill(ns=14 * SECOND, begun=True, place=place(7, "load_shard"), kernel_wait="hrtimer_nanosleep")
STUCK = Standstill(ns=9 * SECOND, begun=False, place=place(42, "step"), kernel_wait="running")


def test_ranks_that_hang_are_named_with_where_they_are() -> None:
    assert ranks_texts([rank(1, SLEEPS), rank(0, WAITS), rank(2, WAITS)]) == [
        "For 12.0 s no call has returned: rank 0 and rank 2 are in cuStreamSynchronize at train.py:42 in step, behind "
        "ncclAllReduce; rank 1 is at train.py:7 in load_shard (asleep in hrtimer_nanosleep) and makes no call."
    ]


def test_ranks_in_which_cupti_cannot_begin_say_so() -> None:
    assert ranks_texts([rank(1, SLEEPS), rank(0, STUCK)]) == [
        "For 9.00 s no call has returned: rank 0 is at train.py:42 in step (on a CPU), and CUPTI cannot begin in it, "
        "as where a kernel does not end; rank 1 is at train.py:7 in load_shard (asleep in hrtimer_nanosleep) and makes "
        "no call."
    ]
    # So does a single process.
    (text,) = ranks_texts([rank(None, STUCK)])
    assert text.startswith(
        "For 9.00 s no call has returned: python (pid 100) is at train.py:42 in step (on a CPU), and"
    )


def test_a_rank_that_has_ended_is_named_beside_those_that_wait_for_it() -> None:
    (text,) = ranks_texts([rank(1, None).changed(ended=True), rank(0, WAITS)])
    assert text.endswith("train.py:42 in step, behind ncclAllReduce; rank 1 has ended.")
    ended = [each.changed(ended=True) for each in (rank(0, WAITS), rank(1, SLEEPS))]
    assert ranks_texts(ended)[0].startswith("For 12.0 s no call had returned at the end: rank 0 is in")


def test_ranks_of_which_one_works_or_that_only_sleep_do_not_hang() -> None:
    assert ranks_texts([rank(0, WAITS), rank(1, None)]) == []
    assert ranks_texts([rank(0, SLEEPS), rank(1, SLEEPS)]) == []
    # Its own verdict says that no call returns.
    assert ranks_texts([rank(None, WAITS)]) == []
