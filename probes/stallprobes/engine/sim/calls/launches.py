"""Calls that launch kernels and graphs, and that load modules and instantiate graphs."""

from __future__ import annotations

from functools import partial

from stallprobes.engine.sim.clock import Call, Wait
from stallprobes.engine.sim.device import GraphHandle, HostWord, LoadedFunction, Module, SimStream, us
from stallprobes.engine.sim.host_thread import INVALID_HANDLE, SUCCESS, HostThread, call
from stallprobes.model import Image, Text

# Number of threads in a warp. On the simulated GPU, a block of a kernel occupies at least this many threads, and a
# graph exactly this many.
_WARP = 32
# Number of blocks that stands for "fill the GPU" (FILL_GPU of the catalogue).
_FILL = 0


def wait_for_queue(host: HostThread, stream: SimStream) -> Wait:
    """Wait, without a lock, until the stream's launch queue has room."""
    pending, now = stream.pending, host.clock.now
    while pending and pending[0].end <= now:
        pending.popleft()
    while len(pending) >= host.simulation.profile.engine.queue:
        yield from host.wait_for_job(pending[0])
        while pending and pending[0].end <= host.clock.now:
            pending.popleft()


@call("cuLaunchKernel")
def launch_kernel(
    host: HostThread,
    kernel: LoadedFunction,
    blocks: int,
    threads: int,
    stream: SimStream,
    args: tuple[int, HostWord | None],
) -> Call:
    """(kernel, blocks, threads, stream, (duration ns, word that counts starts))."""
    if not isinstance(kernel, LoadedFunction):
        return INVALID_HANDLE
    gpu = stream.context.gpu
    duration_ns, started = args
    if len(stream.pending) >= host.simulation.profile.engine.queue:
        yield from wait_for_queue(host, stream)
    ns = host.call_ns("cuLaunchKernel" if kernel.loaded else "first launch")
    if kernel.module is not None:
        # Lazy loading: the first launch copies the code to the GPU.
        kernel.loaded = kernel.module.on_gpu = True
    yield from host.submit_call(ns, stream)
    need = gpu.threads if blocks == _FILL else blocks * max(threads, _WARP)
    ns = duration_ns + gpu.spin_extra_ns if kernel.spins else gpu.empty_ns
    job = gpu.kernel(ns, need, "kernel", on_start=None if started is None else partial(started.add, 1))
    job.own_clock = kernel.spins
    stream.submit(job)
    stream.pending.append(job)
    return SUCCESS


@call("cuGraphLaunch")
def graph_launch(host: HostThread, graph: GraphHandle, stream: SimStream) -> Call:
    """(executable graph, stream)."""
    if not isinstance(graph, GraphHandle) or not graph.live:
        return INVALID_HANDLE
    parameters = host.simulation.profile.engine
    yield from host.submit_call(host.call_ns("cuGraphLaunch"), stream)
    ns = us(parameters.empty_us) + us(parameters.node_us) * (graph.nodes - 1)
    stream.submit(stream.context.gpu.kernel(ns, _WARP, "graph"))
    return SUCCESS


@call("cuGraphInstantiate")
def graph_instantiate(host: HostThread, into: HostWord, graph: GraphHandle, _flags: int) -> Call:
    """(word for the executable graph, graph, flags). It waits for a copy to pageable memory of its context.

    On an H200 no victim of that context is stalled beside both, as it is beside the instantiation alone
    (tests/gpu/recorded/agreement-h200.json.gz).
    """
    yield from host.current.locks.staging.pass_through(host)
    yield from host.work_under(host.call_ns("cuGraphInstantiate"), host.current.lock)
    into.put(GraphHandle(graph.nodes))
    return SUCCESS


@call("cuGraphExecDestroy")
def graph_destroy(host: HostThread, graph: GraphHandle) -> Call:
    """(executable graph)."""
    if not isinstance(graph, GraphHandle) or not graph.live:
        return INVALID_HANDLE
    yield from host.work_under(host.call_ns("cuGraphExecDestroy"), host.current.lock)
    graph.live = False
    return SUCCESS


@call("cuModuleLoadData")
def module_load(host: HostThread, into: HostWord, _image: Image) -> Call:
    """(word for the module, image). Loading needs a short piece of work on the graphics engine."""
    context = host.current
    yield from host.work_under(host.call_ns("cuModuleLoadData"), context.locks.content, context.lock)
    context.run_internal(us(host.simulation.profile.engine.piece_us))
    into.put(Module())
    return SUCCESS


@call("cuModuleGetFunction")
def module_function(host: HostThread, into: HostWord, module: Module, _name: Text) -> Call:
    """(word for the function, module, name)."""
    if not isinstance(module, Module) or not module.live:
        return INVALID_HANDLE
    yield from host.work_under(host.call_ns("cuModuleGetFunction"), host.current.lock)
    into.put(LoadedFunction(spins=False, loaded=module.on_gpu, module=module))
    return SUCCESS


@call("cuModuleUnload")
def module_unload(host: HostThread, module: Module) -> Call:
    """(module)."""
    if not isinstance(module, Module) or not module.live:
        return INVALID_HANDLE
    locks = host.current.locks
    yield from host.work_under(host.call_ns("cuModuleUnload"), locks.content, locks.submission)
    if module.on_gpu:
        # Code that a launch has copied to the GPU is removed from it, after the locks are released.
        yield from host.clock.wait(host.call_ns("loaded cuModuleUnload"))
    host.record_synchronization()
    module.live = False
    return SUCCESS
