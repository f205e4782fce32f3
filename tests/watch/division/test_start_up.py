"""Where the steady state of a program begins: its first seconds, with launches and without."""

from __future__ import annotations

import numpy as np

from stallprobes.watch.division.start_up import SECOND_NS, StartUp

BEGAN_NS = 7_300_000_000


def seconds(*numbers: float) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return BEGAN_NS + np.array([round(number * SECOND_NS) for number in numbers], dtype=np.int64)


def test_seconds_in_which_weights_are_copied_are_not_steady() -> None:
    start_up = StartUp(BEGAN_NS)
    # Nothing is loaded in the first 20 seconds, and nothing launched.
    start_up.note(seconds(20.5, 21.5))
    launched = seconds(*range(22, 40))
    start_up.note_launches(launched, launched)
    assert start_up.steady_ns(int(seconds(40)[0]), ended=False) == int(seconds(22)[0])
    # Without launches, a run that has ended is divided from its first quiet seconds on.
    assert StartUp(BEGAN_NS).steady_ns(int(seconds(40)[0]), ended=True) == BEGAN_NS


def test_in_times_that_are_not_followed_there_may_be_launches() -> None:
    start_up = StartUp(BEGAN_NS)
    first = seconds(0.2)
    start_up.note_launches(first, first)
    assert start_up.steady_ns(int(seconds(10)[0]), ended=False) is None
    start_up.note_launches(seconds(0.5), seconds(4.5))
    assert start_up.steady_ns(int(seconds(10)[0]), ended=False) == BEGAN_NS


def test_a_program_that_compiles_for_minutes_becomes_steady_after_that() -> None:
    start_up = StartUp(BEGAN_NS)
    start_up.note(seconds(*range(91)))
    launched = seconds(*range(300))
    start_up.note_launches(launched, launched)
    assert start_up.steady_ns(int(seconds(100)[0]), ended=False) is None
    # After the first minute, few seconds may be the first of the steady state.
    assert start_up.steady_ns(int(seconds(130)[0]), ended=False) == int(seconds(120)[0])
    assert not start_up.is_settled(int(seconds(124)[0]))
    assert start_up.is_settled(int(seconds(130)[0]))
    assert StartUp(BEGAN_NS).steady_ns(int(seconds(2)[0]), ended=True) is None


def test_weights_that_are_copied_for_minutes_are_start_up_once_kernels_run() -> None:
    start_up = StartUp(BEGAN_NS)
    # After a minute without launches, they may be all that the program does.
    assert start_up.steady_ns(int(seconds(62)[0]), ended=False) is None
    assert start_up.steady_ns(int(seconds(70)[0]), ended=False) == BEGAN_NS
    assert not start_up.is_settled(int(seconds(70)[0]))
    launched = seconds(*range(150, 300))
    start_up.note_launches(launched, launched)
    assert start_up.steady_ns(int(seconds(200)[0]), ended=False) == int(seconds(180)[0])
