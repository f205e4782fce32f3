"""Resolver of the simulated machine: creates simulated objects for resources, and steps for ops."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from stallprobes import model
from stallprobes.engine.board import ProbeSection
from stallprobes.engine.sim import device
from stallprobes.engine.sim.calls import (
    allocations,
    contexts,
    copies,
    host_calls,
    launches,
    mapping,
    profiling,
    streams,
)
from stallprobes.engine.sim.clock import Call
from stallprobes.engine.sim.host_thread import CALLS, BoundOp, HostThread, bound_op
from stallprobes.engine.sim.probe_thread import SimProbeThread
from stallprobes.errors import Unsupported

# Modules of calls; the import of a module registers its calls.
FAMILIES = (allocations, contexts, copies, launches, host_calls, mapping, profiling, streams)

# Name of the green context, which uses SMs of the primary context.
_GREEN = "green"
# Name of the primary context.
_PRIMARY = "primary"
# Beginning of the names of NVML's functions.
_NVML = "nvml:"


class SimMachine:
    """Creates the objects that probes name, one for each distinct resource of a process.

    The context of a second process shares the graphics engine as a second context of one process does. Its time-slices
    are as long on an H200: a D2D waited 2.35 ms for another process, 2.38 ms for another context. Three assumptions are
    guesses, taken from two contexts of one process: the change-over to it costs as much, the processes share the copy
    engines in order, and its staged copies slow the threads of all processes.
    """

    def __init__(self, simulation: device.Simulation, watchdog_ns: int, max_memory: int) -> None:
        self.simulation = simulation
        self._watchdog_ns = watchdog_ns
        self._max_memory = max_memory
        self._device_bytes = 0
        self._contexts: dict[tuple[model.Process, model.Context], device.GpuContext] = {}
        self._processes: dict[str, model.Process] = {}
        self._objects: dict[tuple[model.Process, str, model.Resource], Any] = {}
        self._gates: list[device.BoundHostFunction] = []
        self._profilers = {process: device.ProcessProfiler(simulation.profile.locks) for process in model.Process}

    def thread(self, probe: model.Probe, part: ProbeSection, seed: int) -> SimProbeThread:
        """The thread of ``probe``. Raises Unsupported if this machine lacks something that it needs."""
        program = probe.program
        self._processes[probe.name] = program.process
        host = HostThread(self.simulation, probe.name, seed, self._profilers[program.process])
        if program.context is not None:
            host.contexts.append(self._context(program.process, program.context))

        def steps(ops: Sequence[model.Op], channels: Sequence[model.Channel]) -> Sequence[BoundOp]:
            word = partial(self._word, probe.name)
            return [bound_op(op, self._bind(op, host), word, channels) for op in ops]

        guard = None if program.guard is None else (self._word(probe.name, program.guard.word), program.guard.ahead)
        proof = None if program.proof is None else self._word(probe.name, program.proof)
        return SimProbeThread(probe, host, part, steps, guard, proof)

    def open_gates(self) -> None:
        """Open all gates."""
        for gate in self._gates:
            gate.word.put(gate.function.open_value)

    @property
    def contexts(self) -> list[str]:
        """The names of the contexts."""
        return [context.name for context in self._contexts.values()]

    @property
    def engine_contexts(self) -> list[device.GpuContext]:
        """The contexts of the engine's own process."""
        return [context for (process, _), context in self._contexts.items() if process is model.Process.ENGINE]

    def _bind(self, op: model.Op, host: HostThread) -> Callable[[], Call]:
        """A function that makes the call of ``op`` and reads its Loads at that time."""
        if op.fn.startswith(_NVML):
            return partial(host_calls.nvml, host, op.fn[len(_NVML) :])
        if op.fn not in CALLS:
            raise Unsupported(f"the simulated GPU has no {op.fn}")
        self._check_supported(op)
        call = CALLS[op.fn]
        args = [self._value(host.name, arg) for arg in op.args]
        loads = [number for number, arg in enumerate(op.args) if isinstance(arg, model.Load)]
        if not loads:
            return partial(call, host, *args)

        def call_with_loads() -> Call:
            now = [arg.value if number in loads else arg for number, arg in enumerate(args)]
            return call(host, *now)

        return call_with_loads

    def _check_supported(self, op: model.Op) -> None:
        machine = self.simulation.profile.machine
        if op.fn == "cuMemcpyBatchAsync" and not machine.batch_copies:
            raise Unsupported(f"{machine.title} with CUDA {machine.cuda} has no cuMemcpyBatchAsync")
        if op.fn == "cuCtxEnablePeerAccess" and not machine.peer_access:
            raise Unsupported(f"the GPUs of {machine.title} cannot reach each other's memory")

    def _value(self, probe: str, arg: model.Arg) -> Any:
        match arg:
            case int():
                return arg
            case model.Load(word):
                return self._word(probe, word)
            case model.BufferPart(buffer, _):
                return self._value(probe, buffer)
            case model.KernelArgs(duration_ns, started):
                return duration_ns, None if started is None else self._word(probe, started)
            case model.Context():
                return self._context(self._processes[probe], arg)
            case model.Image() | model.Text() | model.CopyAttributes() | model.MemoryStruct():
                return arg
            case model.Device(index):
                return index
            case _:
                return self._object(probe, arg)

    def _object(self, probe: str, resource: model.Resource) -> Any:
        key = self._processes[probe], "" if getattr(resource, "shared", False) else probe, resource
        if key not in self._objects:
            self._objects[key] = self._make(probe, resource)
        return self._objects[key]

    def _word(self, probe: str, word: model.Word) -> device.HostWord:
        cell: device.HostWord = self._object(probe, word)
        return cell

    def _make(self, probe: str, resource: model.Resource) -> Any:
        process = self._processes[probe]
        match resource:
            case model.Word():
                return device.HostWord()
            case model.Stream(_, context, model.StreamKind.NULL):
                return self._context(process, context).null
            case model.Stream(name, context, kind):
                return self._context(process, context).create_stream(kind, name)
            case model.Buffer(_, model.Space.DEVICE, nbytes, context):
                self._device_bytes += nbytes
                if self._device_bytes > self._max_memory:
                    raise Unsupported(
                        f"the probes' buffers need more than the limit of {self._max_memory} bytes of GPU memory"
                    )
                gpu = self._context(process, context).gpu
                if nbytes > gpu.free_bytes:
                    raise Unsupported(f"the simulated GPU has no {nbytes} bytes left for {resource.name}")
                gpu.free_bytes -= nbytes
                return device.Storage(model.Space.DEVICE, nbytes, gpu)
            case model.Buffer(_, space, nbytes, _):
                return device.Storage(space, nbytes)
            case model.Event(_, _, timing, _, blocking):
                return device.EventHandle(timing, blocking=blocking)
            case model.Kernel(name, _):
                return device.LoadedFunction(spins=name == "spin")
            case model.Graph(_, _, nodes, _):
                return device.GraphHandle(nodes)
            case model.HostFunction(_, word, forced, timeout_ns):
                waits = resource.open_value is not None
                # The session's watchdog overrides the timeout of a function that waits, as in the CUDA backend.
                limit_ns = self._watchdog_ns if waits else timeout_ns
                bound = device.BoundHostFunction(resource, self._word(probe, word), self._word(probe, forced), limit_ns)
                if waits:
                    self._gates.append(bound)
                return bound
            case _:
                raise Unsupported(f"the simulated GPU has no {type(resource).__name__.lower()}")

    def _context(self, process: model.Process, context: model.Context) -> device.GpuContext:
        if (process, context) in self._contexts:
            return self._contexts[process, context]
        machine = self.simulation.profile.machine
        if context.device >= len(self.simulation.gpus):
            raise Unsupported(f"{context.device + 1} GPUs are needed, the simulated {machine.title} has {machine.gpus}")
        within = None
        if context.name == _GREEN:
            if not machine.green_contexts:
                raise Unsupported(f"{machine.title} with CUDA {machine.cuda} has no green contexts")
            within = self._context(process, model.Context(_PRIMARY, context.device))
        simulation = self.simulation
        name = context.name if process is model.Process.ENGINE else f"{context.name} of the second process"
        made = device.GpuContext(simulation.clock, name, simulation.gpus[context.device], simulation.wakeup, within)
        made.queue.traced = process is model.Process.ENGINE
        self._contexts[process, context] = made
        locks = self._profilers[process].locks
        if made.lock not in locks:
            locks.append(made.lock)
        return made
