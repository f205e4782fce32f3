"""The backend without a GPU: programs of libc and native ops, such as the host control, against the real machine."""

from __future__ import annotations

import os
from collections.abc import Sequence

from stallprobes.engine import native
from stallprobes.engine.backend import Options, ProbeFailure, real_time_only
from stallprobes.engine.board import Board
from stallprobes.engine.host_memory import HostMemory
from stallprobes.engine.op_table import compile_program
from stallprobes.engine.workers import ProbeThreads
from stallprobes.errors import Unsupported
from stallprobes.model import Arg, Buffer, HostFunction, KernelArgs, Op, Probe, Resource, Space, Text, Word


class HostResolver:
    """What a program's names stand for as far as it takes no GPU: libc and native functions, and host memory.

    A resolver for a GPU asks its own names first and this one for the rest.
    """

    def __init__(self, memory: HostMemory, watchdog_ns: int | None = None) -> None:
        """``watchdog_ns``, where given, is the patience of every gate, in place of the program's own."""
        self.memory = memory
        self._watchdog_ns = watchdog_ns

    def function(self, fn: str) -> int:
        """The address of ``libc:NAME`` or ``native:NAME``. Raises Unsupported for any other name."""
        kind, _, name = fn.partition(":")
        try:
            if kind == "libc" and name:
                return native.libc_address(name)
            if kind == "native" and name:
                return native.address(name)
        except KeyError:
            raise Unsupported(f"there is no {fn} on this machine") from None
        raise Unsupported(f"{fn} needs a GPU")

    def value(self, resource: Resource | KernelArgs) -> int:
        """The address of a word, a text, a pageable buffer or a host function's data. Raises Unsupported for others."""
        match resource:
            case Word():
                return self.word(resource)
            case Text():
                return self.memory.text(resource)
            case Buffer(space=Space.PAGEABLE):
                return self._pageable(resource)
            case HostFunction(_, word, forced, timeout_ns):
                patience = timeout_ns if self._watchdog_ns is None else self._watchdog_ns
                return self.memory.gate(resource, self.word(word), self.word(forced), patience)
            case _:
                raise Unsupported(f"a {type(resource).__name__.lower()} needs a GPU")

    def word(self, word: Word) -> int:
        """The address of ``word``. Raises Unsupported for one that a GPU is to write."""
        if word.mapped:
            raise Unsupported("a word that a kernel writes needs a GPU")
        return self.memory.word(word)

    def lower(self, op: Op) -> Sequence[Arg] | None:
        """None: no op of the host is spelled otherwise than its function."""
        return None

    def _pageable(self, buffer: Buffer) -> int:
        try:
            return self.memory.pageable(buffer)
        except (OSError, MemoryError) as error:
            raise Unsupported(f"no {buffer.nbytes} bytes of memory for {buffer.name}: {error}") from error


class HostBackend:
    """Runs probes whose programs have no context."""

    virtual = False

    def __init__(self) -> None:
        self._workers = ProbeThreads()
        self._memories = [HostMemory()]

    def prepare(self, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        """Make tables and memory. Raises Unsupported when a program needs a GPU."""
        for probe in probes:
            if probe.program.context is not None:
                raise Unsupported(f"{probe.name} needs a GPU: it runs in the {probe.program.context.name} context")
            memory = HostMemory(self._memories[0])
            self._memories.append(memory)
            self._workers.add(probe, compile_program(probe.program, HostResolver(memory)), board)
        return {"devices": [], "contexts": []}

    def start(self) -> None:
        """Start the threads; on return they are parked or failed. Raises BackendError when one could not begin."""
        self._workers.start()

    def poll(self) -> list[ProbeFailure]:
        """Proofs to the board; the probes that stopped since the last call."""
        return self._workers.poll(lambda op, code: (error_text(op, code), False))

    def advance(self, ns: int) -> None:
        """Raises BackendError: the host's time is real."""
        raise real_time_only()

    def stop(self, deadline_s: float) -> bool:
        """Open the gates and wait for the threads' end."""
        for memory in self._memories:
            memory.open_gates()
        return self._workers.stop(deadline_s)


def create() -> HostBackend:
    """A fresh backend, for the engine."""
    return HostBackend()


def error_text(op: Op, code: int) -> str:
    """What a wrong code of a libc or native op means: the C library's text where the code is an errno value."""
    if op.fn == "native:wait":
        return "the time was over"
    if op.fn.startswith("libc:") and code > 0:
        return os.strerror(code)
    return "0 was expected"
