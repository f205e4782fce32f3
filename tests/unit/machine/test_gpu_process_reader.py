"""The thread that reads the processes: it reads again after errors, and a driver that hangs holds nobody up."""

from __future__ import annotations

import threading

import pytest

from factories.waiting import LIMIT_S, wait_until
from stallprobes.machine import gpu_process_reader
from stallprobes.machine.gpu_process_reader import GpuProcessReader
from stallprobes.machine.gpu_processes import GpuProcessList


def test_it_reads_again_and_again_until_it_is_stopped() -> None:
    numbers = iter(range(10**9))
    reader = GpuProcessReader(lambda: GpuProcessList(float(next(numbers))), period_s=0.001)
    reader.start()
    try:
        assert reader.wait(LIMIT_S) is not None
        wait_until(lambda: reader.latest is not None and reader.latest.at_s > 2, "it has read several times")
    finally:
        reader.stop()


def test_an_error_is_stated_and_the_next_reading_follows() -> None:
    may_succeed = threading.Event()

    def read() -> GpuProcessList:
        if not may_succeed.is_set():
            raise ValueError("a structure of another version")
        return GpuProcessList(1.0)

    reader = GpuProcessReader(read, period_s=0.001)
    reader.start()
    try:
        assert reader.wait(LIMIT_S) is None
        assert reader.failure == "ValueError: a structure of another version"
        may_succeed.set()
        wait_until(lambda: reader.latest is not None, "a reading succeeded")
        wait_until(lambda: not reader.failure, "the error is over")
    finally:
        reader.stop()


def test_a_driver_that_hangs_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    hung = threading.Event()

    def read() -> GpuProcessList:
        hung.wait(LIMIT_S)
        return GpuProcessList(1.0)

    reader = GpuProcessReader(read)
    reader.start()
    try:
        assert reader.wait(0.01) is None
        wait_until(lambda: reader.silent_s > 0.01, "the time of the reading counts")
        assert gpu_process_reader.SILENT_AFTER_S > gpu_process_reader.PERIOD_S
    finally:
        reader.stop()
        hung.set()
