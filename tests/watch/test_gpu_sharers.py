"""Who shares a GPU with a watched process: other watched processes, and those that NVML lists."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from factories.watch_moments import findings
from stallprobes.errors import NvmlUnavailable
from stallprobes.machine import nvml
from stallprobes.watch.attribution.findings import GpuSharer, ProcessFindings
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division_text import sharers_text
from stallprobes.watch.gpu_sharers import PAUSE_NS, GpuSharers
from stallprobes.watch.lines.result import ProgramSequence

SECOND = 1_000_000_000
HALF = Figure(0.5, 0.5, 0.5)


class FakeNvml:
    """NVML with two GPUs and the processes of each."""

    NVMLError = RuntimeError

    def __init__(self, *gpus: tuple[int, ...]) -> None:
        self.gpus, self.asked = gpus, 0

    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:
        return index

    def nvmlDeviceGetComputeRunningProcesses(self, index: int) -> list[SimpleNamespace]:
        self.asked += 1
        return [SimpleNamespace(pid=pid, usedGpuMemory=None) for pid in self.gpus[index]]


def process(pid: int, shared: int = 5, device: int = 0, began_s: int = 0) -> ProcessFindings:
    """A process of 10 s, of which others had the GPU for ``shared`` s."""
    parts = {Part.KERNELS: 5 * SECOND, Part.SHARED: shared * SECOND} if shared else {Part.KERNELS: 5 * SECOND}
    sequence = ProgramSequence(
        threads=(pid,), device=device, covered_ns=sum(parts.values()), parts=parts, host=HALF, gpu=HALF, price=HALF,
        submitting=0.0, queue_full=0.0, alone=True, recorded=1.0, engine_known=True, late_ns=0, verdict=Bound.SHARED,
    )  # fmt: skip
    return (
        findings(8)
        .processes[0]
        .changed(pid=pid, sequences=(sequence,), began_ns=began_s * SECOND, duration_ns=10 * SECOND)
    )


@pytest.fixture(name="gpus")
def _gpus(monkeypatch: pytest.MonkeyPatch) -> FakeNvml:
    fake = FakeNvml((10, 20, 30), (40,))
    monkeypatch.setattr(nvml, "load", lambda: fake)
    return fake


def test_a_watched_process_on_the_same_gpu_at_the_same_time_is_named(gpus: FakeNvml) -> None:
    sharers = GpuSharers()
    sharers.look([10], 0)
    every = (process(10), process(20), process(21, device=1), process(22, began_s=11))
    first, *_ = sharers.named(every)
    # And one that NVML lists.
    assert [(each.pid, each.watched) for each in first.sharers] == [(20, True), (30, False)]
    assert sharers_text(first).startswith(f"On the same GPU: {first.name} (pid 20), ")


def test_gpus_are_compared_by_their_uuids() -> None:
    """Each rank of a job may see one GPU alone, as number 0."""
    first, second, third = (process(pid).changed(gpus=(uuid,)) for pid, uuid in ((10, "a"), (20, "b"), (30, "b")))
    both = process(40, device=1).changed(gpus=("a", "b"))
    found = {
        each.pid: [sharer.pid for sharer in each.sharers] for each in GpuSharers().named([first, second, third, both])
    }
    assert found == {10: [], 20: [30, 40], 30: [20, 40], 40: [20, 30]}
    # Where the library is older than that, or the driver, by their numbers.
    assert [len(each.sharers) for each in GpuSharers().named([first, process(50)])] == [1, 1]


def test_clients_of_an_mps_server_are_not_named() -> None:
    server = GpuSharer(pid=7, name="nvidia-cuda-mps-server", watched=False)
    text = sharers_text(process(10).changed(sharers=(server,)))
    assert text.endswith("(pid 7). The MPS server works for its clients, of which this process may be one.")


def test_without_another_watched_process_those_are_named_that_nvml_lists(gpus: FakeNvml) -> None:
    sharers = GpuSharers()
    sharers.look([10, 50], 0)
    sharers.look([10, 50], PAUSE_NS - 1)
    assert gpus.asked == len(gpus.gpus)
    (found,) = sharers.named([process(10)])
    assert [(one.pid, one.watched) for one in found.sharers] == [(20, False), (30, False)]
    # A process that NVML does not list under this id, and one with the GPU for itself.
    assert [one.sharers for one in sharers.named([process(50)])] == [()]
    assert [one.sharers for one in sharers.named([process(10, shared=0)])] == [()]


def test_without_nvml_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def load() -> None:
        asked.append(1)
        raise NvmlUnavailable("no NVIDIA driver", "install it")

    monkeypatch.setattr(nvml, "load", load)
    sharers = GpuSharers()
    for second in range(3):
        sharers.look([10], second * PAUSE_NS)
    assert len(asked) == 1
    assert sharers_text(sharers.named([process(10)])[0]).startswith("Who has the GPU meanwhile is not known")


def test_of_many_some_are_named() -> None:
    every = tuple(GpuSharer(pid=pid, name="python3", watched=False) for pid in range(1, 7))
    text = sharers_text(process(10).changed(sharers=every))
    assert text.endswith("python3 (pid 4), 2 more.")
