"""Signals while files are written: the first is deferred, the second is not."""

from __future__ import annotations

import os
import signal

import pytest

from stallscope.cli.process.signals import CommandSignals, InterruptHandler


def write(signals: int) -> list[str]:
    """What is written when so many signals come meanwhile."""
    written: list[str] = []

    def keep(interrupt: InterruptHandler) -> None:
        with interrupt.deferred():
            for _ in range(signals):
                os.kill(os.getpid(), signal.SIGINT)
            written.append("all of it")

    with InterruptHandler() as interrupt, pytest.raises(KeyboardInterrupt):
        keep(interrupt)
    return written


def test_a_signal_while_files_are_written_is_deferred() -> None:
    assert write(signals=1) == ["all of it"]


def test_a_second_signal_is_not_deferred() -> None:
    assert write(signals=2) == []


def test_a_signal_before_the_block_does_not_interrupt_it() -> None:
    with InterruptHandler() as interrupt:
        os.kill(os.getpid(), signal.SIGINT)
        with interrupt.deferred():
            signal.sigtimedwait([], 2 * InterruptHandler.GRACE_S)
        assert interrupt.stop_requested()


def test_signal_handlers_are_restored() -> None:
    before = signal.getsignal(signal.SIGINT)
    with InterruptHandler():
        assert signal.getsignal(signal.SIGINT) != before
    assert signal.getsignal(signal.SIGINT) == before


def test_a_signal_after_the_last_question_is_not_lost() -> None:
    """The measurement is complete and the report is written, but the user asked for the end."""
    with pytest.raises(KeyboardInterrupt), InterruptHandler():
        os.kill(os.getpid(), signal.SIGINT)


def test_a_signal_that_some_code_caught_is_noted() -> None:
    with CommandSignals() as received:
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        assert received.interrupted


def test_an_ignored_interrupt_stays_ignored() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with CommandSignals() as received:
            os.kill(os.getpid(), signal.SIGINT)
        assert not received.interrupted
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
