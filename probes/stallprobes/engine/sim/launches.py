"""Launches of kernels and graphs, and the modules and graphs they need."""

from __future__ import annotations

from typing import Any

from stallprobes.engine.sim.clock import Call, Wait
from stallprobes.engine.sim.device import Function, GraphHandle, HostWord, Module, us
from stallprobes.engine.sim.host import INVALID_HANDLE, SUCCESS, Host, call
from stallprobes.engine.sim.jobs import Job, SimStream
from stallprobes.model import Image, Text

_WARP = 32
_FILL = 0


def room_in_queue(host: Host, stream: SimStream) -> Wait:
    """Wait until the stream's queue takes one more launch. No lock is held meanwhile."""
    pending, now = stream.pending, host.clock.now
    while pending and pending[0].end <= now:
        pending.popleft()
    while len(pending) >= host.world.profile.engine.queue:
        yield from host.until_done(pending[0])
        while pending and pending[0].end <= host.clock.now:
            pending.popleft()


@call("cuLaunchKernel")
def launch_kernel(
    host: Host, kernel: Function, blocks: int, threads: int, stream: SimStream, args: tuple[int, HostWord | None]
) -> Call:
    """(kernel, blocks, threads, stream, (duration ns, word that counts starts))."""
    if not isinstance(kernel, Function):
        return INVALID_HANDLE
    world, gpu, figures = host.world, stream.context.gpu, host.world.profile.engine
    duration_ns, started = args
    if len(stream.pending) >= figures.queue:
        yield from room_in_queue(host, stream)
    ns = host.took("cuLaunchKernel" if kernel.loaded else "first launch")
    if kernel.module is not None:
        # Lazy loading: the code is brought to the GPU by the first launch.
        kernel.loaded = kernel.module.on_gpu = True
    yield from host.submitting(ns, stream)
    need = gpu.threads if blocks == _FILL else blocks * max(threads, _WARP)
    job = Job(
        world.clock,
        gpu.graphics,
        duration_ns + us(figures.spin_extra_us) if kernel.spins else us(figures.empty_us),
        us(figures.start_us),
        us(figures.gap_us),
        need,
        None if started is None else _counter(started),
        "kernel",
    )
    job.by_clock = kernel.spins
    stream.submit(job)
    stream.pending.append(job)
    return SUCCESS


def _counter(word: HostWord) -> Any:
    def count() -> None:
        word.add(1)

    return count


@call("cuGraphLaunch")
def graph_launch(host: Host, graph: GraphHandle, stream: SimStream) -> Call:
    """(executable graph, stream)."""
    if not isinstance(graph, GraphHandle) or not graph.live:
        return INVALID_HANDLE
    figures = host.world.profile.engine
    yield from host.submitting(host.took("cuGraphLaunch"), stream)
    ns = us(figures.empty_us) + us(figures.node_us) * (graph.nodes - 1)
    gpu = stream.context.gpu
    stream.submit(Job(host.clock, gpu.graphics, ns, us(figures.start_us), us(figures.gap_us), _WARP, None, "graph"))
    return SUCCESS


@call("cuGraphInstantiate")
def graph_instantiate(host: Host, into: HostWord, graph: GraphHandle, _flags: int) -> Call:
    """(word for the executable graph, graph, flags)."""
    assert host.context is not None
    yield from host.under(host.took("cuGraphInstantiate"), host.context.lock)
    into.put(GraphHandle(graph.nodes))
    return SUCCESS


@call("cuGraphExecDestroy")
def graph_destroy(host: Host, graph: GraphHandle) -> Call:
    """(executable graph)."""
    assert host.context is not None
    if not isinstance(graph, GraphHandle) or not graph.live:
        return INVALID_HANDLE
    yield from host.under(host.took("cuGraphExecDestroy"), host.context.lock)
    graph.live = False
    return SUCCESS


@call("cuModuleLoadData")
def module_load(host: Host, into: HostWord, _image: Image) -> Call:
    """(word for the module, image)."""
    assert host.context is not None
    yield from host.under(host.took("cuModuleLoadData"), host.context.lock)
    into.put(Module())
    return SUCCESS


@call("cuModuleGetFunction")
def module_function(host: Host, into: HostWord, module: Module, _name: Text) -> Call:
    """(word for the function, module, name)."""
    assert host.context is not None
    if not isinstance(module, Module) or not module.live:
        return INVALID_HANDLE
    yield from host.under(host.took("cuModuleGetFunction"), host.context.lock)
    into.put(Function(spins=False, loaded=module.on_gpu, module=module))
    return SUCCESS


@call("cuModuleUnload")
def module_unload(host: Host, module: Module) -> Call:
    """(module)."""
    assert host.context is not None
    if not isinstance(module, Module) or not module.live:
        return INVALID_HANDLE
    # Code that a launch has brought to the GPU is taken off it again.
    name = "loaded cuModuleUnload" if module.on_gpu else "cuModuleUnload"
    yield from host.under(host.took(name), host.context.lock)
    module.live = False
    return SUCCESS
