"""Backend without a GPU: executes programs of libc and native ops, such as the host control, on this machine."""

from __future__ import annotations

from collections.abc import Sequence

from stallprobes.engine.backend import Options, ProbeFailure, real_time_only
from stallprobes.engine.board import Board
from stallprobes.engine.host_resolver import HostMemory, HostResolver, error_text
from stallprobes.engine.op_table import compile_program
from stallprobes.engine.workers import ProbeThreads
from stallprobes.errors import Unsupported
from stallprobes.model import Probe
from stallprobes.records.timeline import OFF, TimelineProblem, TimelineStatus


class HostBackend:
    """Backend for probes whose programs have no context."""

    virtual = False

    def __init__(self) -> None:
        self._workers = ProbeThreads()
        self._memories = [HostMemory()]
        self._timeline = OFF

    def prepare(self, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        """Create op tables and memory. Raises Unsupported if a program needs a GPU."""
        for probe in probes:
            if probe.program.context is not None:
                raise Unsupported(f"{probe.name} needs a GPU: it runs in the {probe.program.context.name} context")
            memory = HostMemory(self._memories[0])
            self._memories.append(memory)
            self._workers.add(probe, compile_program(probe.program, HostResolver(memory)), board)
        return {"devices": [], "contexts": []}

    def start(self) -> None:
        """Start the threads; on return each is parked or has failed. Raises BackendError if one ended in an error."""
        self._workers.start()

    def poll(self) -> list[ProbeFailure]:
        """Copy proof words to the board; returns the probes that failed since the last call."""
        return self._workers.poll(lambda op, code: (error_text(op, code), False))

    def advance(self, ns: int) -> None:
        """Raises BackendError: time is real."""
        raise real_time_only()

    def switch_timeline(self, on: bool) -> None:
        """Refuses: there is no GPU."""
        self._timeline = TimelineStatus(False, TimelineProblem.NO_GPU, "there is no GPU in this session") if on else OFF

    def timeline(self) -> TimelineStatus | None:
        """The state of the timeline."""
        return self._timeline

    def stop(self, deadline_s: float) -> bool:
        """Open the gates and wait for the threads to end."""
        for memory in self._memories:
            memory.open_gates()
        return self._workers.stop(deadline_s)


# What the engine makes.
create = HostBackend
