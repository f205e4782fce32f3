"""Backend of a real GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial

from stallprobes.engine.backend import (
    CUPTI,
    Options,
    ProbeFailure,
    check_profilers,
    for_each,
    on_behalf_of,
    real_time_only,
    timeline_refusal,
)
from stallprobes.engine.board import Board
from stallprobes.engine.cuda.api import STICKY_ERRORS, Api, CudaError
from stallprobes.engine.cuda.devices import Contexts, choose, peer_access_problem
from stallprobes.engine.cuda.gpu_state import GpuClock, StreamsIdle
from stallprobes.engine.cuda.resolver import CudaResolver, SessionResources
from stallprobes.engine.gpu_work import StreamUse, submissions
from stallprobes.engine.host_resolver import error_text
from stallprobes.engine.op_table import compile_program
from stallprobes.engine.timeline.collector import Collector
from stallprobes.engine.workers import ProbeThreads
from stallprobes.errors import EXIT_ENGINE, BackendError, Unsupported
from stallprobes.model import Context, Op, Probe
from stallprobes.records.libcupti import load as load_cupti
from stallprobes.records.timeline import OFF, TimelineStatus

# Longest wait (s) for the end of the thread that collects CUPTI's records. After this wait, the engine ends although
# the thread still runs. Reason: a driver call that hangs may block the thread.
_COLLECTOR_STOP_S = 0.2
# Environment variable with the folder in which a CUDA program finds the MPS server (NVIDIA's documentation of MPS), and
# a folder without one.
_MPS_PIPES, _NO_SERVER = "CUDA_MPS_PIPE_DIRECTORY", "/dev/null"


class CudaBackend:
    """Backend for probes on one or two GPUs."""

    virtual = False

    def __init__(self) -> None:
        self._workers = ProbeThreads()
        self._resolvers: list[CudaResolver] = []
        self._api: Api | None = None
        self._collector: Collector | None = None
        self._shared: SessionResources | None = None
        # States of a timeline that a probe excludes: on request, and at present.
        self._refusal: TimelineStatus | None = None
        self._refused = OFF

    def prepare(self, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        """Create contexts, modules, buffers, streams and events.

        Raises Unsupported if this GPU or driver lacks something, BackendError with EXIT_NO_GPU without a GPU and with
        EXIT_ENGINE if a call fails.
        """
        if options.without_mps:
            # libcuda reads it once, when it is initialized. It finds no server there, and works without one.
            os.environ[_MPS_PIPES] = _NO_SERVER
        api = self._api = Api()
        try:
            return self._prepare(api, probes, board, options)
        except CudaError as error:
            raise BackendError(EXIT_ENGINE, f"the setup of the GPU failed: {error}") from error

    def start(self) -> None:
        """Start the threads; on return each is parked or has failed."""
        self._workers.start()

    def poll(self) -> list[ProbeFailure]:
        """Copy proof words to the board; returns the probes that failed since the last call."""
        if self._collector is not None:
            self._collector.limit_hold()
        return self._workers.poll(self._explain)

    def advance(self, ns: int) -> None:
        """Raises BackendError: time is real."""
        raise real_time_only()

    def switch_timeline(self, on: bool) -> None:
        """Begin to switch CUPTI on or off."""
        if self._refusal is not None:
            self._refused = self._refusal if on else OFF
        elif self._collector is not None:
            self._collector.switch(on)

    def timeline(self) -> TimelineStatus | None:
        """The state of the timeline; None while CUPTI has not answered."""
        if self._refusal is not None or self._collector is None:
            return self._refused
        return self._collector.status if self._collector.settled else None

    def stop(self, deadline_s: float) -> bool:
        """Open the gates and wait for the threads to end."""
        for resolver in self._resolvers:
            resolver.memory.open_gates()
        ended = self._workers.stop(deadline_s)
        if self._collector is not None:
            # A flush may hang behind a call that hangs; the end of the process ends both.
            self._collector.stop(_COLLECTOR_STOP_S)
        return ended

    def _prepare(self, api: Api, probes: Sequence[Probe], board: Board, options: Options) -> dict[str, object]:
        check_profilers(probes, options)
        self._refusal = timeline_refusal(probes)
        contexts = Contexts(api, choose(api, options.gpu))
        shared = self._shared = SessionResources(api, contexts, options)
        for_each(probes, lambda probe: self._check_peers(api, contexts, probe))
        for probe in probes:
            with on_behalf_of(probe):
                for context in _contexts(probe):
                    contexts.handle(context)
        for probe in probes:
            resolver = CudaResolver(shared)
            self._resolvers.append(resolver)
            current = probe.program.context
            if current is not None:
                contexts.use(current)
            with on_behalf_of(probe):
                table = compile_program(probe.program, resolver)
            use = None if current is None else partial(contexts.use, current)
            self._workers.add(probe, table, board, use)
        uses = [use for probe, resolver in zip(probes, self._resolvers, strict=True) for use in _uses(probe, resolver)]
        version = api.version
        clock = GpuClock(shared)
        idle = StreamsIdle(shared, uses)
        self._collector = Collector(
            lambda: load_cupti(version), board, probes, uses, self._workers.numbers, clock.read, idle.wait
        )
        return {
            "devices": [
                {"name": gpu.name, "uuid": f"GPU-{gpu.uuid}", "cuda_index": gpu.ordinal, "sms": gpu.sms}
                for gpu in contexts.gpus
            ],
            "contexts": [f"{context.name} on GPU {context.device}" for context in contexts.made()],
            "cuda_version": api.version,
        }

    def _check_peers(self, api: Api, contexts: Contexts, probe: Probe) -> None:
        for context in _contexts(probe):
            contexts.device(context.device)
        enabling = any(op.fn == "cuCtxEnablePeerAccess" for op in probe.program.setup)
        problem = peer_access_problem(api, contexts.gpus) if enabling else None
        if problem is not None:
            raise Unsupported(f"no peer access: {problem}")

    def _explain(self, op: Op, code: int) -> tuple[str, bool]:
        if op.fn.startswith(CUPTI) and self._shared is not None:
            return self._shared.cupti.text(code), False
        # The polls return the code of the driver function that they call.
        if (":" in op.fn and op.fn != "native:poll") or self._api is None:
            return error_text(op, code), False
        return self._api.text(code), code in STICKY_ERRORS


def preload() -> None:
    """Load and initialize libcuda, without a context. Raises BackendError without a GPU."""
    Api()


# What the engine makes.
create = CudaBackend


def _uses(probe: Probe, resolver: CudaResolver) -> list[StreamUse]:
    streams = dict.fromkeys(work.stream for work in submissions(probe.program))
    return [StreamUse(probe.name, stream, resolver.value(stream.context), resolver.value(stream)) for stream in streams]


def _contexts(probe: Probe) -> list[Context]:
    return [resource for resource in probe.program.resources if isinstance(resource, Context)]
