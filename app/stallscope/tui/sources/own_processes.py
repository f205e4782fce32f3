"""Processes of this program on a GPU, among those that NVML lists there."""

from __future__ import annotations

import os
from collections.abc import Sequence

from stallprobes.machine.gpus import GpuProcess


class OwnProcesses:
    """This process, its children and the engines that it has started."""

    def __init__(self) -> None:
        self._engine_pids: set[int] = set()

    def add_engine(self, pid: int | None) -> None:
        """Add an engine; None for one that has ended already."""
        self._engine_pids.add(pid or 0)

    def others(self, known: Sequence[GpuProcess], engine_pid: int | None) -> tuple[str, ...]:
        """Name and process id of each process of ``known`` that is not one of these.

        ``engine_pid`` is that of the engine that runs, None without one.
        """
        # NVML's list is seconds old, so it may contain an engine that has ended.
        # The engines of a check are children of this process too.
        self._engine_pids.update(one.pid for one in known if _parent(one.pid) == os.getpid())
        own = {os.getpid(), *self._engine_pids}
        others = [one for one in known if one.pid not in own]
        # In a container NVML has other process ids: the engine is then one of the processes without a name.
        if engine_pid is not None and not any(one.pid in own for one in known):
            nameless = next((one for one in others if one.name == "?"), None)
            if nameless is not None:
                others.remove(nameless)
        return tuple(f"{one.name} (pid {one.pid})" for one in others)


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None
