"""Contexts: made, ended, made current, waited for, and let into each other's memory."""

from __future__ import annotations

from itertools import count

from stallprobes.engine.sim.clock import Call, Wait
from stallprobes.engine.sim.device import GpuContext, HostWord, us
from stallprobes.engine.sim.dice import Cost
from stallprobes.engine.sim.host import (
    INVALID_CONTEXT,
    INVALID_VALUE,
    PEER_ACCESS_ALREADY_ENABLED,
    PEER_ACCESS_UNSUPPORTED,
    SUCCESS,
    Host,
    call,
    plain,
)
from stallprobes.engine.sim.jobs import Job

_numbers = count(1)


@call("cuCtxCreate")
def create(host: Host, into: HostWord, _flags: int, device: int) -> Call:
    """(word for the context, flags, device). It is current afterwards."""
    world = host.world
    if device >= len(world.gpus):
        return INVALID_VALUE
    yield from host.clock.spend(host.took("cuCtxCreate"))
    context = GpuContext(host.clock, f"made {next(_numbers)}", world.gpus[device], world.reaction)
    yield from _on_the_gpu(host, context)
    into.put(context)
    host.contexts.append(context)
    return SUCCESS


@call("cuCtxDestroy")
def destroy(host: Host, context: GpuContext) -> Call:
    """(context)."""
    if not isinstance(context, GpuContext) or not context.live:
        return INVALID_CONTEXT
    yield from host.clock.spend(host.took("cuCtxDestroy"))
    yield from _on_the_gpu(host, context)
    context.end()
    if host.context is context:
        host.contexts.pop()
    return SUCCESS


def _on_the_gpu(host: Host, context: GpuContext) -> Wait:
    """The part of making and ending a context that the graphics engine does, in that context."""
    figures = host.world.profile.engine
    gpu = context.gpu
    job = Job(host.clock, gpu.graphics, us(figures.new_context_us), us(figures.start_us), 0, 1, None, "context")
    context.null.submit(job)
    for unfinished in context.unfinished():
        yield from host.until_done(unfinished)


@call("cuCtxPushCurrent")
def push(host: Host, context: GpuContext) -> Call:
    """(context)."""
    yield from host.clock.spend(host.took("cuCtxPushCurrent"))
    host.contexts.append(context)
    return SUCCESS


@call("cuCtxSetCurrent")
def set_current(host: Host, context: GpuContext) -> Call:
    """(context)."""
    yield from host.clock.spend(host.took("cuCtxPushCurrent"))
    host.contexts[-1:] = [context]
    return SUCCESS


@call("cuCtxPopCurrent")
def pop(host: Host, into: HostWord) -> Call:
    """(word for the context)."""
    if not host.contexts:
        return INVALID_CONTEXT
    yield from host.clock.spend(host.took("cuCtxPopCurrent"))
    into.put(host.contexts.pop())
    return SUCCESS


@call("cuCtxSynchronize")
def synchronize(host: Host) -> Call:
    """It takes the context's lock for a moment, and waits for the context's work without it."""
    context = host.context
    if context is None:
        return INVALID_CONTEXT
    yield from host.under(host.took("cuCtxSynchronize"), context.lock)
    unfinished = context.unfinished()
    if unfinished:
        yield from host.seen(unfinished)
    return SUCCESS


@call("cuCtxEnablePeerAccess")
def enable_peer_access(host: Host, peer: GpuContext, _flags: int) -> Call:
    """(context of the other GPU, flags): for the current context."""
    context = host.context
    if context is None:
        return INVALID_CONTEXT
    yield from host.under(host.took("cuCtxEnablePeerAccess"), context.gpu.memory_lock, context.lock)
    if not host.world.profile.machine.peer_access:
        return PEER_ACCESS_UNSUPPORTED
    if peer in context.peers:
        return PEER_ACCESS_ALREADY_ENABLED
    context.peers.add(peer)
    return SUCCESS


@plain("cuCtxSynchronize")
def plain_synchronize(host: Host) -> Cost | None:
    """While the context has nothing to do."""
    context = host.context
    if context is None or context.unfinished():
        return None
    return host.undisturbed("cuCtxSynchronize", context.lock)
