"""NUMA nodes of threads and GPUs, by folders as the kernel and the driver have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from factories.watch_calls import thread
from stallprobes.watch.reading.numa_nodes import NumaNodes

UUID = "b6e1ac64-22d4-4ff1-8c5c-3b2f0f1d6a70"
THREAD = thread()


class Machine:
    """Files of a machine with two nodes of two CPUs each, and a GPU at node 0."""

    def __init__(self, folder: Path, nodes: int = 2) -> None:
        self.folder = folder
        for node in range(nodes):
            self.write(f"sys/devices/system/node/node{node}/cpulist", "")
            for cpu in (2 * node, 2 * node + 1):
                self.write(f"sys/devices/system/cpu/cpu{cpu}/node{node}/cpulist", "")
        self.write("nvidia/gpus/0000:4f:00.0/information", f"Model: NVIDIA H200\nGPU UUID: GPU-{UUID}\n")
        self.write("sys/bus/pci/devices/0000:4f:00.0/numa_node", "0\n")

    def write(self, name: str, text: str) -> None:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def nodes(self) -> NumaNodes:
        return NumaNodes(self.folder / "sys", self.folder / "nvidia")

    def look(self, nodes: NumaNodes, cpu: int, times: int = 10) -> None:
        fields = " ".join("0" for _ in range(35))
        self.write("task/stat", f"7 (a (odd) name) S {fields} {cpu} 0 0\n")
        for _ in range(times):
            nodes.look(THREAD, self.folder / "task")


def said(nodes: NumaNodes, uuid: str = UUID) -> list[str]:
    return list(nodes.sentences("MainThread", THREAD.id, {1: uuid}))


def test_a_thread_that_runs_far_from_its_gpu_is_said(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    nodes = machine.nodes()
    machine.look(nodes, cpu=3)
    assert said(nodes) == [
        "MainThread runs on CPUs of NUMA node 1, and GPU 1 is at node 0: launches, waits and copies take the way "
        "between the nodes (numactl --cpunodebind=0 keeps it near)."
    ]
    assert said(nodes, "another") == []


@pytest.mark.parametrize(("far", "near"), [(0, 10), (7, 0), (8, 2)])
def test_a_thread_that_runs_near_or_here_and_there_or_is_hardly_known_is_not(
    tmp_path: Path, far: int, near: int
) -> None:
    machine = Machine(tmp_path)
    nodes = machine.nodes()
    machine.look(nodes, 2, far)
    machine.look(nodes, 1, near)
    assert said(nodes) == []


def test_nothing_is_said_of_one_node_or_without_files(tmp_path: Path) -> None:
    machine = Machine(tmp_path, nodes=1)
    nodes = machine.nodes()
    machine.look(nodes, cpu=3)
    assert said(nodes) == []
    machine = Machine(tmp_path / "two")
    machine.write("sys/bus/pci/devices/0000:4f:00.0/numa_node", "-1\n")
    nodes = machine.nodes()
    machine.look(nodes, cpu=3)
    nodes.look(THREAD, tmp_path / "missing")
    nodes.look(THREAD, None)
    assert said(nodes) == []
