"""Calls that create, destroy, select and synchronize contexts, and that enable peer access."""

from __future__ import annotations

from itertools import count

from stallprobes.engine.sim import host_thread
from stallprobes.engine.sim.clock import Call, Wait
from stallprobes.engine.sim.device import GpuContext, HostWord, us
from stallprobes.engine.sim.jobs import Job

# Numbers in the names of contexts that probes create.
_numbers = count(1)


@host_thread.call("cuCtxCreate")
def create(host: host_thread.HostThread, into: HostWord, _flags: int, device: int) -> Call:
    """(word for the context, flags, device). The new context becomes current."""
    simulation = host.simulation
    if device >= len(simulation.gpus):
        return host_thread.INVALID_VALUE
    context = GpuContext(host.clock, f"made {next(_numbers)}", simulation.gpus[device], simulation.wakeup)
    context.queue.traced = host.context is None or host.context.queue.traced
    yield from _work(host, context, host.call_ns("cuCtxCreate"))
    into.put(context)
    host.contexts.append(context)
    return host_thread.SUCCESS


@host_thread.call("cuCtxDestroy")
def destroy(host: host_thread.HostThread, context: GpuContext) -> Call:
    """(context)."""
    if not isinstance(context, GpuContext) or not context.live:
        return host_thread.INVALID_CONTEXT
    yield from _work(host, context, host.call_ns("cuCtxDestroy"))
    context.destroy()
    if host.context is context:
        host.contexts.pop()
    return host_thread.SUCCESS


def _work(host: host_thread.HostThread, context: GpuContext, ns: int) -> Wait:
    """The work of ``ns`` on the host to create or destroy a context, and its work on the graphics engine.

    That is many short pieces in the context itself, and a long one at the end.
    """
    parameters = host.simulation.profile.engine
    gpu = context.gpu
    pieces = parameters.new_context_pieces
    for _ in range(pieces):
        yield from host.clock.wait(ns // (pieces + 1))
        context.run_internal(us(parameters.piece_us))
    yield from host.clock.wait(ns // (pieces + 1))
    job = Job(host.clock, gpu.graphics, us(parameters.new_context_us), us(parameters.start_us), 0, 1, None, "context")
    context.null.submit(job)
    for unfinished in context.unfinished():
        yield from host.wait_for_job(unfinished)


@host_thread.call("cuCtxPushCurrent")
def push(host: host_thread.HostThread, context: GpuContext) -> Call:
    """(context)."""
    yield from host.clock.wait(host.call_ns("cuCtxPushCurrent"))
    host.contexts.append(context)
    return host_thread.SUCCESS


@host_thread.call("cuCtxSetCurrent")
def set_current(host: host_thread.HostThread, context: GpuContext) -> Call:
    """(context)."""
    yield from host.clock.wait(host.call_ns("cuCtxPushCurrent"))
    host.contexts[-1:] = [context]
    return host_thread.SUCCESS


@host_thread.call("cuCtxPopCurrent")
def pop(host: host_thread.HostThread, into: HostWord) -> Call:
    """(word for the context)."""
    if not host.contexts:
        return host_thread.INVALID_CONTEXT
    yield from host.clock.wait(host.call_ns("cuCtxPopCurrent"))
    into.put(host.contexts.pop())
    return host_thread.SUCCESS


@host_thread.call("cuCtxSynchronize")
def synchronize(host: host_thread.HostThread) -> Call:
    """(): holds the context's lock for the call itself and waits for the context's work without it."""
    context = host.context
    if context is None:
        return host_thread.INVALID_CONTEXT
    yield from host.work_under(host.call_ns("cuCtxSynchronize"), context.lock)
    unfinished = context.unfinished()
    if unfinished:
        yield from host.wait_for_jobs(unfinished)
    host.record_synchronization()
    return host_thread.SUCCESS


@host_thread.call("cuCtxEnablePeerAccess")
def enable_peer_access(host: host_thread.HostThread, peer: GpuContext, _flags: int) -> Call:
    """(context of the other GPU, flags): enables access from the current context."""
    context = host.context
    if context is None:
        return host_thread.INVALID_CONTEXT
    ns = host.call_ns("cuCtxEnablePeerAccess")
    yield from host.work_under(ns, context.locks.content, context.locks.memory, context.lock)
    if not host.simulation.profile.machine.peer_access:
        return host_thread.PEER_ACCESS_UNSUPPORTED
    if peer in context.peers:
        return host_thread.PEER_ACCESS_ALREADY_ENABLED
    context.peers.add(peer)
    return host_thread.SUCCESS
