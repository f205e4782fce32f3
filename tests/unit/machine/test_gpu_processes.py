"""The list of processes that use the GPUs: by NVML, in containers, with MIG, and where something fails."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from factories.documents import validate
from factories.gpu_machine import CONTAINER_NAMESPACE, MIB, OWN_PID, FakeGpu, FakeMachine
from stallprobes.errors import NvmlUnavailable
from stallprobes.files import codec
from stallprobes.machine import nvml
from stallprobes.machine.gpu_processes import (
    NOT_VISIBLE_REFUSAL,
    OWN_REFUSAL,
    ContextKind,
    GpuProcessLister,
    GpuUse,
    ProcessesDocument,
    ProcessSource,
)
from stallprobes.wording import process_wording

NO_DRIVER = NvmlUnavailable("no NVIDIA driver: libnvidia-ml.so.1 was not found", "install the NVIDIA driver")


def no_nvml() -> Any:
    raise NO_DRIVER


def test_each_process_has_its_gpus_memory_utilization_and_kinds(tmp_path: Path) -> None:
    first = FakeGpu(compute={900: 100 * MIB, 800: 300 * MIB}, graphics={800: 300 * MIB}, samples=[(900, 0.4, 97)])
    second = FakeGpu(compute={900: 50 * MIB}, samples=[(900, 1.5, 12), (900, 0.5, 33)])
    machine = FakeMachine(tmp_path, first, second)
    machine.add(900, ["python", "train.py"], start=1)
    machine.add(800, ["Xorg"], start=2)
    listing = machine.lister().read()
    assert listing.source is ProcessSource.NVML
    assert listing.gpus == {0: "NVIDIA H200", 1: "NVIDIA H200"}
    training, desktop = listing.processes
    assert training.gpus == (GpuUse(0, 100 * MIB, 97), GpuUse(1, 50 * MIB, 33))
    assert training.command == "python train.py"
    assert training.memory_bytes == 150 * MIB
    assert training.utilization_percent == 65
    assert training.kinds == (ContextKind.COMPUTE,)
    assert training.refusal is None
    # Both lists state the same memory, and a process without a sample did not work.
    assert desktop.gpus == (GpuUse(0, 300 * MIB, 0),)
    assert desktop.kinds == (ContextKind.COMPUTE, ContextKind.GRAPHICS)


def test_the_order_is_by_gpu_and_start_and_stays_while_figures_change(tmp_path: Path) -> None:
    gpus = FakeGpu(compute={30: 5 * MIB, 10: 9 * MIB, 20: 1 * MIB}), FakeGpu(compute={5: 1 * MIB})
    machine = FakeMachine(tmp_path, *gpus)
    for pid, start in ((30, 1), (10, 3), (20, 2), (5, 0)):
        machine.add(pid, ["a"], start=start)
    lister = machine.lister()
    assert [process.pid for process in lister.read().processes] == [30, 20, 10, 5]
    gpus[0].compute.update({20: 700 * MIB, 30: 1})
    machine.add(7, ["new"], start=9)
    gpus[0].compute[7] = MIB
    assert [process.pid for process in lister.read().processes] == [30, 20, 10, 7, 5]


def test_samples_that_are_too_old_or_impossible_do_not_count(tmp_path: Path) -> None:
    gpu = FakeGpu(compute=dict.fromkeys((1001, 1002, 1003), MIB), samples=[(1001, 5, 50), (1002, 0.1, 4_000_000_000)])
    machine = FakeMachine(tmp_path, gpu)
    for pid in gpu.compute:
        machine.add(pid, ["a"])
    gpu.samples.append((1003, 0.2, 8))
    percents = {process.pid: process.utilization_percent for process in machine.lister().read().processes}
    assert percents == {1001: 0, 1002: 0, 1003: 8}


@pytest.mark.parametrize(
    ("code", "of_gpu", "percent"),
    [
        (nvml.NOT_FOUND, 0, 0),
        (0, 0, 0),
        # NVML has no samples yet.
        (nvml.NOT_FOUND, 88, None),
        (nvml.NOT_SUPPORTED, 0, None),
        (nvml.NO_PERMISSION, 0, None),
    ],
)
def test_without_samples_nothing_worked_if_the_gpu_was_idle_else_it_is_unknown(
    tmp_path: Path, code: int, of_gpu: int, percent: int | None
) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB}, percent=of_gpu))
    machine.add(900, ["a"])
    machine.nvml.broken["nvmlDeviceGetProcessUtilization"] = code
    (process,) = machine.lister().read().processes
    assert process.utilization_percent == percent


def test_memory_that_nvml_does_not_state_is_unknown(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: None}), FakeGpu(compute={900: MIB}))
    machine.add(900, ["a"])
    (process,) = machine.lister().read().processes
    assert [use.memory_bytes for use in process.gpus] == [None, MIB]
    assert process.memory_bytes is None


def test_own_engines_are_marked_and_the_reader_itself_is_left_out(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={OWN_PID: MIB, 501: MIB, 502: MIB, 900: MIB}))
    machine.add(501, ["engine"], parent=OWN_PID)
    machine.add(502, ["second process"], parent=501)
    machine.add(900, ["train"])
    by_pid = {process.pid: process for process in machine.lister().read().processes}
    assert set(by_pid) == {501, 502, 900}
    assert [by_pid[pid].refusal for pid in (501, 502, 900)] == [OWN_REFUSAL, OWN_REFUSAL, None]
    assert machine.asked == [900]


def test_a_refusal_is_asked_again_after_some_seconds(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB}))
    machine.add(900, ["a"])
    machine.refusals[900] = "a debugger traces it: end the debugger."
    lister = machine.lister()
    assert lister.read().processes[0].refusal == machine.refusals[900]
    machine.refusals.clear()
    assert lister.read().processes[0].refusal is not None
    machine.now_s = 60.0
    assert lister.read().processes[0].refusal is None
    assert machine.asked == [900, 900]


def test_one_that_ends_while_it_is_looked_at_hides_no_other_one(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB, 901: MIB}))
    machine.add(900, ["a"])
    machine.add(901, ["b"])

    def refusal(pid: int) -> str | None:
        if pid == 900:
            raise ProcessLookupError(errno.ESRCH, "No such process")
        return None

    lister = GpuProcessLister(
        refusal, load=lambda: machine.nvml, proc=machine.proc, dev=machine.dev, own_pid=OWN_PID, clock=lambda: 0.0
    )
    refusals = {process.pid: process.refusal for process in lister.read().processes}
    assert refusals == {900: "its files in /proc cannot be read (No such process): it may have ended.", 901: None}


def test_one_that_may_be_attached_is_looked_at_less_often(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB}))
    machine.add(900, ["a"])
    lister = machine.lister()
    for seconds in range(0, 60, 1):
        machine.now_s = float(seconds)
        lister.read()
    assert machine.asked == [900, 900]


def test_one_that_has_just_ended_is_gone_and_memory_that_stays_is_listed(tmp_path: Path) -> None:
    gpu = FakeGpu(compute={900: MIB, 901: MIB})
    machine = FakeMachine(tmp_path, gpu)
    machine.add(900, ["a"])
    machine.add(901, ["b"])
    lister = machine.lister()
    assert [process.pid for process in lister.read().processes] == [900, 901]
    machine.end(900)
    gpu.compute[900] = MIB
    assert [process.pid for process in lister.read().processes] == [901]
    later = lister.read().processes
    assert [(process.pid, not process.visible) for process in later] == [(900, True), (901, False)]


def test_a_later_process_of_the_same_number_is_another_one(tmp_path: Path) -> None:
    gpu = FakeGpu(compute={900: MIB})
    machine = FakeMachine(tmp_path, gpu)
    machine.add(900, ["a"], start=1)
    machine.refusals[900] = "no."
    lister = machine.lister()
    (before,) = lister.read().processes
    machine.end(900)
    machine.add(900, ["b"], start=2)
    gpu.compute[900] = MIB
    machine.refusals.clear()
    (after,) = lister.read().processes
    assert before.key != after.key
    assert after.refusal is None


# Containers.


def test_where_nvml_lists_none_the_processes_with_open_devices_count(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(minor=1), FakeGpu(minor=0), namespace=CONTAINER_NAMESPACE)
    machine.add(12, ["python", "train.py"], devices=["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia1"])
    machine.add(13, ["bash"])
    listing = machine.lister().read()
    assert listing.source is ProcessSource.DEVICES
    (process,) = listing.processes
    # The device's number is not NVML's index.
    assert process.gpus == (GpuUse(0, None, None),)
    assert (process.pid, process.kinds, process.memory_bytes, process.utilization_percent) == (12, (), None, None)
    assert process_wording.headline(listing) == "1 process has /dev/nvidia* open; NVML lists none."


def test_ids_of_the_host_are_not_taken_for_processes_of_the_container(tmp_path: Path) -> None:
    gpu = FakeGpu(compute={4711: MIB, 13: MIB})
    machine = FakeMachine(tmp_path, gpu, namespace=CONTAINER_NAMESPACE)
    machine.add(12, ["python"], devices=["/dev/nvidia0"])
    machine.add(13, ["bash"])
    listing = machine.lister().read()
    assert [(one.pid, one.visible) for one in listing.processes] == [(13, False), (4711, False), (12, True)]
    assert listing.processes[0].refusal == NOT_VISIBLE_REFUSAL
    assert machine.asked == [12]
    assert (
        process_wording.headline(listing) == "1 process has /dev/nvidia* open; NVML lists 2 that are not visible here."
    )


def test_where_nvml_lists_processes_the_open_files_of_others_are_not_looked_at(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB}))
    machine.add(900, ["a"])
    machine.add(901, ["nvidia-persistenced"], devices=["/dev/nvidia0"])
    assert [process.pid for process in machine.lister().read().processes] == [900]


def test_open_files_are_looked_at_again_when_the_share_of_a_core_allows_it(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(), namespace=CONTAINER_NAMESPACE)
    lister = machine.lister()
    assert lister.read().processes == ()
    machine.add(12, ["a"], devices=["/dev/nvidia0"])
    machine.now_s = 3600.0
    assert [process.pid for process in lister.read().processes] == [12]
    machine.end(12)
    assert lister.read().processes == ()


def test_without_nvml_open_devices_are_listed_and_the_reason_is_stated(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(), namespace=CONTAINER_NAMESPACE)
    machine.add(12, ["a"], devices=["/dev/nvidia0"])
    listing = machine.lister(no_nvml).read()
    assert listing.usable
    assert [process.gpu_numbers for process in listing.processes] == [(0,)]
    (problem,) = process_wording.problems(listing)
    assert problem.startswith("NVML cannot be used: no NVIDIA driver")


def test_without_nvml_and_devices_nothing_can_be_listed(tmp_path: Path) -> None:
    listing = FakeMachine(tmp_path).lister(no_nvml).read()
    assert not listing.usable
    assert process_wording.unusable_text(listing).endswith("was not found; install the NVIDIA driver")


def test_nvml_is_asked_for_again_after_it_could_not_be_used(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB}))
    machine.add(900, ["a"])
    answers: list[Any] = [NO_DRIVER, machine.nvml]

    def load() -> Any:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    lister = machine.lister(load)
    assert lister.read().nvml_problem
    assert [process.pid for process in lister.read().processes] == [900]


def test_nvml_is_started_again_after_a_driver_was_loaded_again(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB}))
    machine.add(900, ["a"])
    loaded: list[int] = []

    def load() -> Any:
        loaded.append(1)
        return machine.nvml

    lister = machine.lister(load)
    machine.nvml.broken["nvmlDeviceGetCount"] = nvml.DRIVER_NOT_LOADED
    assert lister.read().processes == ()
    machine.nvml.broken.clear()
    assert [process.pid for process in lister.read().processes] == [900]
    lister.read()
    assert len(loaded) == 2


def test_a_process_that_took_the_number_of_an_ended_one_has_not_its_devices(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(), namespace=CONTAINER_NAMESPACE)
    machine.add(12, ["a"], devices=["/dev/nvidia0"], start=1)
    lister = machine.lister()
    assert [process.pid for process in lister.read().processes] == [12]
    machine.end(12)
    machine.add(12, ["b"], start=2)
    # The open files are looked at later only, however fast that was.
    lister._scan_due_s = 3600.0
    assert lister.read().processes == ()


# MIG, and what fails.


def test_with_mig_the_devices_are_asked_where_the_gpu_needs_privileges(tmp_path: Path) -> None:
    gpu = FakeGpu(mig=[FakeGpu(compute={900: MIB}), FakeGpu(compute={901: 2 * MIB})])
    machine = FakeMachine(tmp_path, gpu)
    machine.add(900, ["a"])
    machine.add(901, ["b"])
    machine.nvml.broken["nvmlDeviceGetComputeRunningProcesses", 0] = nvml.NO_PERMISSION
    machine.nvml.broken["nvmlDeviceGetProcessUtilization"] = nvml.NOT_SUPPORTED
    listing = machine.lister().read()
    assert [(one.pid, one.gpus) for one in listing.processes] == [
        (900, (GpuUse(0, MIB, None),)),
        (901, (GpuUse(0, 2 * MIB, None),)),
    ]
    assert listing.gpu_problems == ()


def test_a_gpu_that_is_lost_hides_no_other_one(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB}), FakeGpu(compute={901: MIB}))
    machine.add(901, ["a"])
    machine.nvml.broken["nvmlDeviceGetComputeRunningProcesses", 0] = nvml.GPU_IS_LOST
    listing = machine.lister().read()
    assert [process.pid for process in listing.processes] == [901]
    assert process_wording.problems(listing) == ["GPU 0: the GPU is lost."]


def test_clients_of_mps_are_listed_beside_its_server(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: 30 * MIB}, mps={901: 500 * MIB}))
    machine.add(900, ["nvidia-cuda-mps-server"])
    machine.add(901, ["python3"])
    server, client = machine.lister().read().processes
    assert (server.kinds, client.kinds) == ((ContextKind.COMPUTE,), (ContextKind.MPS,))
    assert client.memory_bytes == 500 * MIB
    assert process_wording.kinds_text(client) == "M"


def test_a_gpu_without_graphics_and_mps_has_its_computing_processes(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu(compute={900: MIB}))
    machine.add(900, ["a"])
    machine.nvml.broken["nvmlDeviceGetGraphicsRunningProcesses"] = nvml.NOT_SUPPORTED
    machine.nvml.broken["nvmlDeviceGetMPSComputeRunningProcesses"] = nvml.NOT_SUPPORTED
    assert [process.pid for process in machine.lister().read().processes] == [900]


def test_nvml_that_counts_no_gpus_is_a_problem_and_no_failure(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path, FakeGpu())
    machine.nvml.broken["nvmlDeviceGetCount"] = nvml.NO_PERMISSION
    assert process_wording.problems(machine.lister().read()) == ["NVML lists no GPU: no permission."]


# Words and document.


@pytest.mark.parametrize(
    ("numbers", "text"),
    [((), ""), ((0,), "0"), ((0, 1), "0-1"), ((0, 2), "0,2"), ((0, 1, 2, 3, 6), "0-3,6"), ((1, 4, 5), "1,4-5")],
)
def test_indexes_of_gpus_are_short(numbers: tuple[int, ...], text: str) -> None:
    assert process_wording.ranges_text(numbers) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "n/a"), (0, "0 MiB"), (512 * MIB, "512 MiB"), (1536 * MIB, "1.50 GiB"), (140 * 1024 * MIB, "140 GiB")],
)
def test_memory_in_words(size: int | None, text: str) -> None:
    assert process_wording.memory_text(size) == text


def test_the_empty_list_says_what_it_may_mean(tmp_path: Path) -> None:
    on_host = FakeMachine(tmp_path / "host", FakeGpu()).lister().read()
    inside = FakeMachine(tmp_path / "container", FakeGpu(), namespace=CONTAINER_NAMESPACE).lister().read()
    assert process_wording.empty_text(on_host).startswith("No process uses a GPU: NVML lists none")
    assert "container" not in process_wording.empty_text(on_host)
    assert "--pid=host" in process_wording.empty_text(inside)


def test_the_document_has_every_process_and_fits_its_schema(tmp_path: Path) -> None:
    gpu = FakeGpu(compute={900: 100 * MIB, 4711: None}, samples=[(900, 0.4, 97)])
    machine = FakeMachine(tmp_path, gpu)
    machine.add(900, ["python", "train.py"])
    machine.refusals[900] = "it runs already under a debugger: end that."
    listing = machine.lister().read()
    made = codec.plain(ProcessesDocument.of_list(listing, process_wording.problems(listing)))
    validate(made, "stallscope.processes/2")
    hidden, training = made["processes"]
    assert training["pid"] == 900
    assert training["command"] == "python train.py"
    assert training["kinds"] == ["compute"]
    assert training["gpus"] == [{"gpu": 0, "memory_bytes": 100 * MIB, "utilization_percent": 97}]
    assert training["refusal"] == machine.refusals[900]
    assert (hidden["user"], hidden["command"], hidden["own"]) == (None, None, False)
    assert hidden["gpus"][0]["memory_bytes"] is None
