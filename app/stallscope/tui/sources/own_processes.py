"""Processes of this program on a GPU, among those that NVML lists there."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

from stallprobes.machine.gpus import GpuProcess


class OwnProcesses:
    """This process, the engines that it has started, and their second processes."""

    def __init__(self) -> None:
        self._pids = {os.getpid()}

    def add(self, pids: Iterable[int]) -> None:
        """Add the processes of a session."""
        self._pids.update(pids)

    def others(self, known: Sequence[GpuProcess], session_pids: Sequence[int]) -> tuple[str, ...]:
        """Name and process id of each process of ``known`` that is not one of these.

        ``session_pids`` are those of the session that runs, empty without one.
        """
        # NVML's list is seconds old, so it may contain an engine that has ended.
        # The engines of a check are children of this process too, and their second processes are children of these.
        for one in known:
            parent = _parent(one.pid)
            if os.getpid() in (parent, None if parent is None else _parent(parent)):
                self._pids.add(one.pid)
        others = [one for one in known if one.pid not in self._pids]
        # In a container NVML has other process ids: the session's are then among the processes without a name.
        if not any(one.pid in self._pids for one in known):
            for nameless in [one for one in others if one.name == "?"][: len(session_pids)]:
                others.remove(nameless)
        return tuple(f"{one.name} (pid {one.pid})" for one in others)


def _parent(pid: int) -> int | None:
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None
