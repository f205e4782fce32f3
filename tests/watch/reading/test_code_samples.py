"""Samples of the code that a compiled program runs, by the kernel."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from factories.stand_in import COMPILER
from factories.waiting import wait_until
from stallprobes.machine import perf_events
from stallprobes.machine.perf_events import CodeEvents
from stallprobes.watch.reading import code_samples
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame
from stallprobes.watch.reading.code_samples import PERIOD_NS, CodeSamples
from stallprobes.watch.reading.compilers import DeviceCompiler

SECOND = 1_000_000_000
BUSY = "volatile unsigned long count; int main(void) { for (;;) count++; }"


def frame(function: str, line: int | None = 7, file: str = "/home/me/solver", source: str = "a.c") -> StackFrame:
    """A frame of compiled code."""
    return StackFrame(FrameKind.NATIVE, function, file, line, 0x10, source)


class FakeEvents:
    """The samples of the thread 77."""

    found: ClassVar[list[tuple[int, int]]] = []

    def __init__(self, thread: int, period_ns: int, pages: int) -> None:
        assert (thread, period_ns) == (77, PERIOD_NS)

    def read(self) -> list[tuple[int, int]]:
        found, FakeEvents.found = self.found, []
        return found

    def close(self) -> None: ...


def sampled(monkeypatch: pytest.MonkeyPatch, addresses: list[int]) -> CodeSamples:
    """Samples of the thread 7, all in one second."""
    FakeEvents.found = [(10 * SECOND + at, address) for at, address in enumerate(addresses)]
    monkeypatch.setattr(code_samples, "CodeEvents", FakeEvents)
    monkeypatch.setattr(time, "monotonic_ns", lambda: 9 * SECOND + 1)
    samples = CodeSamples()
    assert samples.look([(7, 77)]) == set(addresses)
    return samples


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[int]:
    """A program that computes; its process number."""
    if COMPILER is None:
        pytest.skip("the program needs a C compiler")
    subprocess.run([COMPILER, "-x", "c", "-", "-o", str(tmp_path / "busy")], input=BUSY, text=True, check=True)
    with subprocess.Popen([tmp_path / "busy"]) as program:
        yield program.pid
        program.kill()


def test_the_addresses_of_a_program_that_computes_are_sampled(busy: int) -> None:
    samples = CodeSamples()
    try:
        CodeEvents(busy, PERIOD_NS, 1).close()
    except OSError as error:
        pytest.skip(f"the kernel refuses perf_event_open: {error.strerror}")
    wait_until(lambda: len(samples.look([(1, busy)])) > 0, "samples")
    lines = Path(f"/proc/{busy}/maps").read_text().splitlines()
    code = next(line.split()[0] for line in lines if "r-xp" in line and line.endswith("busy"))
    begin, end = (int(word, 16) for word in code.split("-"))
    (address, *_) = samples.look([])
    assert begin <= address < end
    samples.close()
    assert samples.look([]) == samples.look([(2, busy)] * 2)
    samples.close()


def test_places_are_looked_up_more_rarely_where_that_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    samples, now = sampled(monkeypatch, [1]), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    for took_s, pause_s, address in ((0.0, 1, 2), (0.5, 10, 3)):
        samples.note({each: (frame("f"),) for each in samples.unknown}, took_s=took_s)
        FakeEvents.found = [(10 * SECOND, address)]
        now[0] += pause_s - 0.1
        assert samples.look([]) == set()
        assert samples.unknown == {address}
        now[0] += 0.2
        assert samples.look([]) == {address}


def test_code_of_a_library_that_no_stack_went_through_is_of_the_file_that_is_mapped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    maps = [
        "1000-2000 r-xp 00000000 fd:00 17 /opt/my solver", "2000-3000 rw-p 00000000 00:00 0 ",
        "5000-6000 r-xp 00000000 fd:00 18                 /opt/cuda/lib64/libnvrtc.so.13", "damaged",
    ]  # fmt: skip
    (tmp_path / "maps").write_text("\n".join(maps))
    samples = sampled(monkeypatch, [0x1800, 0x2800, 0x5800, 0x5801, 0x9000])
    unknown = {address: (frame("", None, "", ""),) for address in samples.look([])}
    samples.note(unknown, tmp_path)
    assert {address: place.file for address, place in samples.places.items()} == {
        0x1800: "/opt/my solver", 0x2800: "", 0x5800: "/opt/cuda/lib64/libnvrtc.so.13",
        0x5801: "/opt/cuda/lib64/libnvrtc.so.13", 0x9000: "",
    }  # fmt: skip
    assert samples.compiling(7, 10 * SECOND, 11 * SECOND) == {
        DeviceCompiler.NVRTC: pytest.approx(2 * PERIOD_NS / SECOND)
    }
    assert samples.shares(7, 10 * SECOND, 11 * SECOND) == {}
    # The process has ended.
    CodeSamples().note(unknown, tmp_path / "none")


def test_a_kernel_that_refuses_leaves_the_lines_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perf_events, "_SYSTEM_CALL", None)
    samples = CodeSamples()
    assert samples.look([(1, os.getpid())]) == set()
    assert samples.shares(1, 0, time.monotonic_ns()) == {}
    samples.close()


def test_time_is_that_of_functions_by_their_line_with_most_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """In seconds that were sampled in full, of the program's own code."""
    samples = sampled(monkeypatch, 30 * [1, 1, 2, 3, 4, 5])
    assert samples.look([]) == {1, 2, 3, 4, 5}
    # An inlined function comes first; code of libraries has no line of the program.
    samples.note({
        1: (frame("relax.constprop.0", 9), frame("main", 30)),
        2: (frame("relax.constprop.0", 10), frame("main", 30)),
        3: (frame("main", 31),),
        4: (frame("", None, "/lib/x86_64-linux-gnu/libc.so.6", ""),),
        5: (frame("cuLaunchKernel", None, "/usr/lib/libcuda.so.1", ""),),
    })  # fmt: skip
    assert samples.look([]) == set()
    assert samples.compiling(7, 10 * SECOND, 11 * SECOND) == {}
    part = 30 * PERIOD_NS / SECOND
    expected = {
        frame("relax", 9).changed(offset=None): pytest.approx(3 * part),
        frame("main", 31).changed(offset=None): pytest.approx(part),
    }
    assert samples.shares(7, 10 * SECOND, 11 * SECOND) == expected
    assert samples.shares(7, 11 * SECOND, 12 * SECOND) == {}
    assert samples.shares(8, 10 * SECOND, 11 * SECOND) == {}
    # The second in which it was looked at first does not count.
    assert samples.shares(7, 0, 11 * SECOND) == expected
    # A long time has bins of several seconds.
    monkeypatch.setattr(code_samples, "_MOST_BINS", 4)
    FakeEvents.found = [((10 + second) * SECOND, 3) for second in range(1, 7)]
    samples.look([])
    whole = samples.shares(7, 10 * SECOND, 18 * SECOND)
    assert whole[frame("main", 31).changed(offset=None)] == pytest.approx((30 + 6) * PERIOD_NS / (8 * SECOND))
    assert len(samples._counts) == 4
