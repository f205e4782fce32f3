"""NUMA nodes on whose CPUs the threads of a watched process run, against those of its GPUs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

from stallprobes.watch.reading.proc_files import content, stat_fields
from stallprobes.watch.reading.process import WatchedThread

# Place of the number of the CPU on which a thread ran last in /proc/PID/task/TID/stat, behind its name (processor in
# proc(5)).
_PROCESSOR = 36
# Smallest number of looks at a thread for a statement about its NUMA node, and smallest share of these looks in which
# it ran on CPUs of that node.
_LEAST_LOOKS, _LEAST_SHARE = 8, 0.9


class NumaNodes:
    """Looks at the threads of a process that make calls."""

    def __init__(self, system: Path = Path("/sys"), driver: Path = Path("/proc/driver/nvidia")) -> None:
        self._system, self._driver = system, driver
        # The looks at each thread by node, and the node of each CPU.
        self._looks: dict[int, Counter[int]] = {}
        self._nodes: dict[int, int | None] = {}
        self._several = sum(1 for _ in (system / "devices/system/node").glob("node[0-9]*")) > 1

    def look(self, thread: WatchedThread, folder: Path | None) -> None:
        """Note the node of the CPU on which a thread ran last; ``folder`` is that of the thread in /proc."""
        cpu = None if folder is None or not self._several else _processor(folder)
        if cpu is None:
            return
        if cpu not in self._nodes:
            names = (self._system / f"devices/system/cpu/cpu{cpu}").glob("node[0-9]*")
            self._nodes[cpu] = next((int(path.name.removeprefix("node")) for path in names), None)
        node = self._nodes[cpu]
        if node is not None:
            self._looks.setdefault(thread.id, Counter())[node] += 1

    def sentences(self, name: str, thread: int, gpus: Mapping[int, str]) -> Iterator[str]:
        """Sentences on a thread that runs far from ``gpus``: the UUIDs (without GPU-) of those that are used, by CUDA's
        numbers."""
        looks = self._looks.get(thread, Counter())
        if looks.total() < _LEAST_LOOKS:
            return
        node, count = looks.most_common(1)[0]
        for number, uuid in gpus.items():
            near = self._node_of_gpu(uuid)
            if near is not None and near != node and count >= _LEAST_SHARE * looks.total():
                yield (
                    f"{name} runs on CPUs of NUMA node {node}, and GPU {number} is at node {near}: launches, waits and "
                    f"copies take the way between the nodes (numactl --cpunodebind={near} keeps it near)."
                )

    def _node_of_gpu(self, uuid: str) -> int | None:
        """The NUMA node of a GPU; None where it is not known."""
        for folder in (self._driver / "gpus").glob("*"):
            if f"GPU-{uuid}".encode() in content(folder / "information"):
                text = content(self._system / "bus/pci/devices" / folder.name / "numa_node").strip()
                return int(text) if text.isdigit() else None
        return None


def _processor(folder: Path) -> int | None:
    words = stat_fields(folder)
    return int(words[_PROCESSOR]) if len(words) > _PROCESSOR and words[_PROCESSOR].isdigit() else None
