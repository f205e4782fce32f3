"""The injected library beside the real driver and CUPTI: what it records of programs, and the causes that follow."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from factories.watched_programs import PROGRAMS, Watched, watch, watch_python
from stallprobes.engine.timeline.records import RecordKind
from stallprobes.machine.libcuda_survey import ask
from stallprobes.watch import layout
from stallprobes.watch.analysis import ProcessAnalysis
from stallprobes.watch.building import library
from stallprobes.watch.causes import WaitCause
from stallprobes.watch.driver_calls import MemoryKind
from stallprobes.watch.environment import WatchOptions, find_cupti
from stallprobes.watch.findings import ExplainedCall, ProcessFindings
from stallprobes.watch.layout import WatchState
from stallprobes.watch.process import ActivityRecord, SlowDriverCall
from stallprobes.watch.sentences import call_text

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]

ROUNDS = 50
KERNEL_NS = 5_000_000
# The part of a slow call that its kernel must account for.
ACCOUNTED = 0.9
# The part of a program's slow time that must have its right cause.
RIGHT = 0.95


def watch_read_back(folder: Path, memory: str, options: WatchOptions) -> Watched:
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
    watched = watch_read_back(tmp_path, memory, WatchOptions())
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
    watched = watch_read_back(tmp_path, "pageable", WatchOptions(calls_only=True))
    slow = slow_calls(watched, "cuMemcpyDtoHAsync_v2")
    assert watched.records == ()
    assert len(slow) >= ROUNDS - 2
    assert {(one.call.bytes, one.call.source, one.call.target) for one in slow} == {
        (4, MemoryKind.DEVICE, MemoryKind.PAGEABLE)
    }


# What each call of the example programs waits for when it is slow, written down before they were watched. A copy from
# pageable memory waits for the work in front of it and then copies.
Truth = Callable[[ExplainedCall], Collection[WaitCause]]
STARTS: dict[str, WaitCause] = {
    "cuDevicePrimaryCtxRetain": WaitCause.ITSELF,
    "cuCtxCreate": WaitCause.ITSELF,
    "cuMemHostAlloc": WaitCause.ITSELF,
    "cuModuleLoadData": WaitCause.MODULE_LOADING,
    "cuLibraryLoadData": WaitCause.MODULE_LOADING,
    "cuKernelGetFunction": WaitCause.MODULE_LOADING,
}
SYNC, LAUNCH, D2H, H2D = "cuStreamSynchronize", "cuLaunchKernel", "cuMemcpyDtoHAsync_v2", "cuMemcpyHtoDAsync_v2"


def secondary_context(call: ExplainedCall) -> Collection[WaitCause]:
    """Copies of the second context wait for the first one, which waits for its own kernel."""
    return (WaitCause.GPU_WORK,) if call.context == 1 else (WaitCause.OTHER_CONTEXT,)


def pageable_copies(call: ExplainedCall) -> Collection[WaitCause]:
    """Launches wait for the copies of the other thread."""
    if call.function == LAUNCH:
        assert call.culprit is None or (call.culprit.function, call.culprit.target) == (D2H, MemoryKind.PAGEABLE)
        return (WaitCause.PAGEABLE_COPY,)
    return (WaitCause.OWN_WORK,)


def gate(call: ExplainedCall) -> Collection[WaitCause]:
    """Launches wait for the copies, which wait for the host function."""
    if call.function == LAUNCH:
        return pageable_copies(call)
    return (WaitCause.HELD_STREAM,)


def training(call: ExplainedCall) -> Collection[WaitCause]:
    """Kernels load at their first launch, synchronizations wait for kernels."""
    if call.function == LAUNCH:
        return (WaitCause.LAZY_LOADING,)
    return (WaitCause.GPU_WORK, WaitCause.OWN_WORK) if call.function == H2D else (WaitCause.GPU_WORK,)


def peer_copy(call: ExplainedCall) -> Collection[WaitCause]:
    """Synchronizations behind the second copy wait for the first one, which waits for the kernel."""
    return (WaitCause.STAGED_COPY,)


@pytest.mark.parametrize(
    ("program", "truth"),
    [
        (("read_back.py", "libcuda.so.1", "50", "5000000", "pageable"), lambda call: (WaitCause.GPU_WORK,)),
        (("read_back.py", "libcuda.so.1", "50", "5000000", "pinned"), lambda call: (WaitCause.GPU_WORK,)),
        (("secondary_context.py", "40"), secondary_context),
        (("peer_copy.py", "20"), peer_copy),
        (("pageable_copies.py", "20"), pageable_copies),
        (("default_stream_gate.py", "8"), gate),
        (("training.py", "200", "none"), training),
        (("training.py", "200", "item"), training),
        (("training.py", "200", "pageable"), training),
        (("training.py", "200", "pinned"), training),
        (("quiet.py", "500"), lambda call: ()),
    ],
    ids=lambda value: " ".join(value).removesuffix(".py") if isinstance(value, tuple) else "",
)
def test_the_slow_time_of_a_program_has_its_right_causes(
    tmp_path: Path, program: tuple[str, ...], truth: Truth
) -> None:
    if truth is peer_copy:
        require_two_gpus()
    if program[0] == "training.py":
        pytest.importorskip("torch", reason="the training loop needs PyTorch")
    watched = watch_python(
        tmp_path / "out", *program, library=library(tmp_path / "cache"), options=WatchOptions(),
        cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip
    require_right_causes(" ".join(program), watched, truth)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The reports as a program of the runtime API."""
    compiler = shutil.which("nvcc")
    if compiler is None:
        pytest.skip("the reports with the runtime API need nvcc")
    program = tmp_path_factory.mktemp("reports") / "reports"
    subprocess.run([compiler, "-o", str(program), str(PROGRAMS / "reports.cu"), "-lcuda"], check=True)
    return program


@pytest.mark.parametrize(
    ("number", "rounds", "truth"),
    [
        (1, 20, secondary_context),
        (2, 20, peer_copy),
        (3, 20, pageable_copies),
        (4, 50, lambda call: (WaitCause.GPU_WORK,)),
        (5, 8, gate),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_the_slow_time_of_a_report_with_the_runtime_api_has_its_right_causes(
    tmp_path: Path, reports: Path, number: int, rounds: int, truth: Truth
) -> None:
    if truth is peer_copy:
        require_two_gpus()
    watched = watch(
        tmp_path / "out", str(reports), str(number), str(rounds), library=library(tmp_path / "cache"),
        options=WatchOptions(), cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip
    require_right_causes(f"report {number}", watched, truth)


def require_two_gpus() -> None:
    """Skip the test on a machine with one GPU."""
    if len(ask().devices) < 2:
        pytest.skip("peer copies need two GPUs")


def require_right_causes(name: str, watched: Watched, truth: Truth) -> None:
    """That the slow time of a program has its right causes, and no call a wrong one."""
    slow = [call for call in findings(watched).slow_calls if not call.nested]
    total = sum(call.excess_ns for call in slow)
    found = {id(call): {call.cause, *(part.cause for part in call.also)} for call in slow}
    right = sum(
        call.explained_ns + sum(part.ns for part in call.also)
        for call in slow
        if call.cause in (expected(call, truth) or (None,))
    )
    sys.stderr.write(f"{name}: {len(slow)} slow calls, {total / 1e6:.1f} ms, {right / max(total, 1):.1%} right\n")
    assert [call_text(call) for call in slow if not found[id(call)] <= allowed(call, truth)] == []
    assert right >= RIGHT * total, [call_text(call) for call in slow if call.cause is WaitCause.UNATTRIBUTED]


def allowed(call: ExplainedCall, truth: Truth) -> set[WaitCause]:
    """The causes that are not wrong: the right ones, none, and smaller parts that the GPU had in the same wait."""
    parts = {WaitCause.GPU_WORK, WaitCause.OWN_WORK, WaitCause.OTHER_CONTEXT} - {call.cause}
    return {*expected(call, truth), *parts, WaitCause.UNATTRIBUTED}


def expected(call: ExplainedCall, truth: Truth) -> Collection[WaitCause]:
    """What a call may be found to wait for."""
    start = next((cause for name, cause in STARTS.items() if call.function.startswith(name)), None)
    return (start,) if start else truth(call)


def findings(watched: Watched) -> ProcessFindings:
    """The findings about a program that has ended."""
    analysis, process = ProcessAnalysis(), watched.process
    analysis.feed(process, watched.batch, process.ended_ns or process.clocks.monotonic_ns)
    return analysis.findings()
