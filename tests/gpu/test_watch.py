"""The injected library beside the real driver and CUPTI: what it records of report 4 as a program."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.watched_programs import Watched, watch_python
from stallprobes.engine.timeline.records import RecordKind
from stallprobes.machine.libcuda_survey import ask
from stallprobes.watch import layout
from stallprobes.watch.building import library
from stallprobes.watch.driver_calls import MemoryKind
from stallprobes.watch.environment import WatchOptions, find_cupti
from stallprobes.watch.layout import WatchState
from stallprobes.watch.process import ActivityRecord, SlowDriverCall

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]

ROUNDS = 50
KERNEL_NS = 5_000_000
# The part of a slow call that its kernel must account for.
ACCOUNTED = 0.9


def watch(folder: Path, memory: str, options: WatchOptions) -> Watched:
    """``read_back.py`` on the first GPU."""
    return watch_python(
        folder / "out", "read_back.py", "libcuda.so.1", str(ROUNDS), str(KERNEL_NS), memory,
        library=library(folder / "cache"), options=options, cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip


def slow_calls(watched: Watched, function: str) -> list[SlowDriverCall]:
    """The slow calls of a function after the first one, which may load code."""
    (thread,) = watched.process.threads
    return [slow for slow in thread.slow_calls if slow.call.function == function][1:]


def overlapped_ns(slow: SlowDriverCall, kernels: list[ActivityRecord]) -> int:
    """How long kernels ran during the call."""
    spans = [(max(slow.call.start_ns, one.start_ns), min(slow.end_ns, one.end_ns)) for one in kernels]
    return sum(max(end - start, 0) for start, end in spans)


@pytest.mark.parametrize(
    ("memory", "function", "kind"),
    [
        ("pageable", "cuMemcpyDtoHAsync_v2", RecordKind.COPY),
        ("pinned", "cuStreamSynchronize", layout.SYNCHRONIZATION),
    ],
)
def test_a_slow_call_is_recorded_with_the_kernel_that_it_waits_for(
    tmp_path: Path, memory: str, function: str, kind: int
) -> None:
    watched = watch(tmp_path, memory, WatchOptions())
    process = watched.process
    assert (process.state, process.problem, process.lost_calls, process.lost_records) == (
        WatchState.RECORDING, "", 0, 0,
    )  # fmt: skip
    slow = slow_calls(watched, function)
    assert len(slow) >= ROUNDS - 2
    kernels = [record for record in watched.records if record.kind is RecordKind.KERNEL]
    assert [record.name for record in kernels] == ["busy"] * ROUNDS
    records = {record.correlation: record for record in watched.records if record.kind == kind}
    for one in slow:
        own = records[one.call.correlation]
        assert (own.context, own.stream) == (one.call.context, kernels[0].stream)
        assert overlapped_ns(one, kernels) >= ACCOUNTED * one.duration_ns
    copies = [record for record in watched.records if record.kind is RecordKind.COPY]
    assert {record.target for record in copies} == {MemoryKind[memory.upper()]}
    assert len({one.call.stream for one in slow}) == 1


def test_calls_alone_are_recorded_without_the_gpus_work(tmp_path: Path) -> None:
    watched = watch(tmp_path, "pageable", WatchOptions(calls_only=True))
    slow = slow_calls(watched, "cuMemcpyDtoHAsync_v2")
    assert watched.records == ()
    assert len(slow) >= ROUNDS - 2
    assert {(one.call.bytes, one.call.source, one.call.target) for one in slow} == {
        (4, MemoryKind.DEVICE, MemoryKind.PAGEABLE)
    }
