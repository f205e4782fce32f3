"""The injected library beside the real driver and CUPTI: what it records of programs, and the causes that follow."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from factories import program_truths as truths
from factories.program_truths import Truth, require_right_causes
from factories.watched_folders import ActivityRecord
from factories.watched_programs import PROGRAMS, Watched, findings_of, launches_by_record, watch, watch_python
from stallprobes.machine.libcuda_survey import ask
from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.watch.attribution.findings import ExplainedCall
from stallprobes.watch.attribution.stream_numbers import StreamNumbers
from stallprobes.watch.environment import WatchOptions, find_cupti, library
from stallprobes.watch.folder_analysis import FolderAnalysis
from stallprobes.watch.reading.process import SlowDriverCall
from stallprobes.watch.reading.words import Memory, ProcessState

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]

ROUNDS = 50
KERNEL_NS = 5_000_000
# The part of a slow call that its kernel must account for.
ACCOUNTED = 0.9


def watch_read_back(folder: Path, memory: str, options: WatchOptions) -> Watched:
    """``read_back.py`` on the first GPU."""
    return watch_python(
        folder / "out", "read_back.py", "libcuda.so.1", str(ROUNDS), str(KERNEL_NS), memory,
        library=library(), options=options, cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip


def slow_calls(watched: Watched, function: str) -> list[SlowDriverCall]:
    """The slow calls of a function after the first one, which may load code."""
    (thread,) = watched.process.threads
    return [slow for slow in thread.slow_calls if slow.function == function][1:]


def overlapped_ns(slow: SlowDriverCall, kernels: list[ActivityRecord]) -> int:
    """How long kernels ran during the call."""
    spans = [(max(slow.begin_ns, one.start_ns), min(slow.end_ns, one.end_ns)) for one in kernels]
    return sum(max(end - start, 0) for start, end in spans)


@pytest.mark.parametrize(
    ("memory", "function"), [("pageable", "cuMemcpyDtoHAsync_v2"), ("pinned", "cuStreamSynchronize")]
)
def test_a_slow_call_is_recorded_with_the_kernel_that_it_waits_for(tmp_path: Path, memory: str, function: str) -> None:
    watched = watch_read_back(tmp_path, memory, WatchOptions(cost=1.0))
    process = watched.process
    assert (process.state, process.lost_calls, process.lost_records) == (
        ProcessState.RECORDING, 0, 0,
    )  # fmt: skip
    slow = slow_calls(watched, function)
    assert len(slow) >= ROUNDS - 2
    kernels = [record for record in watched.records if record.kind is RecordKind.KERNEL]
    assert [record.name for record in kernels] == ["busy"] * ROUNDS
    numbers = StreamNumbers()
    numbers.add(watched.calls, watched.batch.rows)
    for one in slow:
        assert one.context == kernels[0].context
        assert one.stream is not None
        number = numbers.number_of(one.context, one.stream, one.begin_ns, one.thread, one.function)
        assert number == kernels[0].stream
        # A busy machine may make a call longer, but not the kernel.
        assert overlapped_ns(one, kernels) >= ACCOUNTED * min(each.end_ns - each.start_ns for each in kernels)
    copies = [record for record in watched.records if record.kind is RecordKind.COPY]
    assert {record.target for record in copies} == {Memory[memory.upper()]}
    assert len({one.stream for one in slow}) == 1


def test_calls_alone_are_recorded_without_the_gpus_work(tmp_path: Path) -> None:
    watched = watch_read_back(tmp_path, "pageable", WatchOptions(calls_only=True))
    slow = slow_calls(watched, "cuMemcpyDtoHAsync_v2")
    assert watched.records == ()
    assert len(slow) >= ROUNDS - 2
    assert {(one.bytes, one.source, one.target) for one in slow} == {(4, Memory.DEVICE, Memory.PAGEABLE)}


@pytest.mark.parametrize(
    ("program", "truth"),
    [
        # Those of one GPU that call the driver are in test_recorded_streams.py.
        (("peer_copy.py", "20"), truths.peer_copy),
        (("training.py", "200", "none"), truths.training),
        (("training.py", "200", "item"), truths.training),
        (("training.py", "200", "pageable"), truths.training),
        (("training.py", "200", "pinned"), truths.training),
        (("quiet.py", "500"), truths.nothing),
    ],
    ids=lambda value: " ".join(value).removesuffix(".py") if isinstance(value, tuple) else "",
)
def test_the_slow_time_of_a_program_has_its_right_causes(
    tmp_path: Path, program: tuple[str, ...], truth: Truth
) -> None:
    if truth is truths.peer_copy:
        require_two_gpus()
    if program[0] == "training.py":
        pytest.importorskip("torch", reason="the training loop needs PyTorch")
    watched = watch_python(
        tmp_path / "out", *program, library=library(), options=WatchOptions(cost=1.0),
        cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip
    found = findings_of(watched)
    require_right_causes(" ".join(program), found, truth)
    if program[-1] == "item":
        require_line("loss.item()", [call for call in found.slow_calls if call.function == "cuStreamSynchronize"])


def test_kernels_have_the_line_that_launches_them_and_what_they_fill_of_the_gpu(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="the training loop needs PyTorch")
    watched = watch_python(
        tmp_path / "out", "training.py", "2000", "item", library=library(), options=WatchOptions(cost=1.0),
        cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip
    limits = watched.process.limits[0]
    assert limits is not None
    assert (limits.multiprocessors > 0, limits.threads % 32, limits.registers % 256) == (True, 0, 0)
    analysis = FolderAnalysis(tmp_path / "out")
    analysis.poll()
    kernels = [kernel for each in analysis.findings().processes[0].sequences for kernel in each.kernels]
    places = {Path(kernel.place.file).name for kernel in kernels if kernel.place is not None and kernel.place.file}
    assert places == {"training.py"}
    assert [kernel for kernel in kernels if kernel.waves is None or not 0 < (kernel.fills or 0) <= 1] == []


LOCAL_MEMORY = """
__global__ void spills(int *out, int n) {
    int values[64];
    for (int at = 0; at < 64; at++) values[(at * n) & 63] = at;
    out[threadIdx.x] = values[(n + threadIdx.x) & 63];
}
__global__ void plain(int *out, int n) { out[threadIdx.x] = n; }
int main() {
    int *out;
    cudaMalloc(&out, 4096);
    for (int number = 0; number < 2000; number++) {
        spills<<<1, 64>>>(out, number);
        plain<<<1, 64>>>(out, number);
        cudaDeviceSynchronize();
    }
    return cudaDeviceSynchronize();
}
"""


def test_kernels_that_use_local_memory_say_how_much(tmp_path: Path) -> None:
    compiler = shutil.which("nvcc")
    if compiler is None:
        pytest.skip("a kernel with local memory needs nvcc")
    (source := tmp_path / "local.cu").write_text(LOCAL_MEMORY)
    subprocess.run([compiler, "-o", str(tmp_path / "local"), str(source)], check=True)
    watch(
        tmp_path / "out", str(tmp_path / "local"), library=library(), options=WatchOptions(cost=1.0),
        cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip
    analysis = FolderAnalysis(tmp_path / "out")
    analysis.poll()
    (sequence,) = analysis.findings().processes[0].sequences
    local = {kernel.name.partition("(")[0]: kernel.local_bytes for kernel in sequence.kernels}
    assert local["plain"] == 0
    assert 256 <= local["spills"] < 1024


def test_every_launch_in_a_window_with_records_has_its_record(tmp_path: Path) -> None:
    """CUPTI loses all later records of a thread that is in a launch while kinds are switched."""
    watched = watch_python(
        tmp_path / "out", "many_launches.py", "2", "12", library=library(), options=WatchOptions(),
        cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip
    process = watched.process
    # So many launches may be recorded in a twentieth of the time.
    assert len(process.windows) >= 5
    assert (process.not_held, process.lost_records, process.lost_calls) == (0, 0, 0)
    found, missing = launches_by_record(tmp_path / "out")
    assert (found > 1000, missing) == (True, 0)


def require_line(text: str, calls: Sequence[ExplainedCall]) -> None:
    """That calls with a stack, at least one, are all made by the line of ``training.py`` with ``text``."""
    source = (PROGRAMS / "training.py").read_text().splitlines()
    places = {call.stack.place for call in calls if call.stack is not None}
    assert [(Path(one.file).name, text in source[(one.line or 0) - 1]) for one in places if one is not None] == [
        ("training.py", True)
    ]


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
        (1, 20, truths.secondary_context),
        (2, 20, truths.peer_copy),
        (3, 20, truths.pageable_copies),
        (4, 50, truths.gpu_work),
        (5, 8, truths.gate),
    ],
    ids=lambda value: str(value) if isinstance(value, int) else "",
)
def test_the_slow_time_of_a_report_with_the_runtime_api_has_its_right_causes(
    tmp_path: Path, reports: Path, number: int, rounds: int, truth: Truth
) -> None:
    if truth is truths.peer_copy:
        require_two_gpus()
    watched = watch(
        tmp_path / "out", str(reports), str(number), str(rounds), library=library(),
        options=WatchOptions(cost=1.0), cupti=find_cupti(ask().cuda_version or 0),
    )  # fmt: skip
    require_right_causes(f"report {number}", findings_of(watched), truth)


def require_two_gpus() -> None:
    """Skip the test on a machine with one GPU."""
    if len(ask().devices) < 2:
        pytest.skip("peer copies need two GPUs")
