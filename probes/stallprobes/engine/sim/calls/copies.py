"""Calls that copy memory: by a kernel, by a copy engine, staged through the host, and between two GPUs."""

from __future__ import annotations

from stallprobes.engine.sim.clock import Call
from stallprobes.engine.sim.copy_engine import CopyEngine
from stallprobes.engine.sim.device import GpuContext, SimGpu, SimStream, Storage, transfer_ns, us
from stallprobes.engine.sim.host_thread import INVALID_VALUE, SUCCESS, HostThread, call
from stallprobes.engine.sim.jobs import UNCONTENDED, CallingEngine, Job, StagedCopy
from stallprobes.engine.sim.locks import Lock
from stallprobes.model import MIB, CopyAttributes, Space, StreamKind

# Duration (ns) of a simulated transfer above which the transfer slows other calls down.
_HEAVY_NS = 50_000


def _fits(storage: object, nbytes: int) -> bool:
    return isinstance(storage, Storage) and storage.live and nbytes <= storage.nbytes


@call("cuMemcpyDtoDAsync")
def d2d(host: HostThread, target: Storage, source: Storage, nbytes: int, stream: SimStream) -> Call:
    """(target, source, bytes, stream). Within a GPU the copy is a kernel."""
    if not (_fits(target, nbytes) and _fits(source, nbytes)):
        return INVALID_VALUE
    if target.gpu is not source.gpu:
        return (yield from _peer(host, target, stream.context, source, nbytes, stream))
    yield from host.copy_call(host.call_ns("cuMemcpyDtoDAsync"), stream)
    _copy_kernel(host, nbytes, stream)
    return SUCCESS


@call("cuMemcpyBatchAsync")
def d2d_batch(
    host: HostThread, target: Storage, source: Storage, nbytes: int, _attributes: CopyAttributes, stream: SimStream
) -> Call:
    """(target, source, bytes, attributes, stream): one copy. The attribute for overlap has no effect."""
    if not (_fits(target, nbytes) and _fits(source, nbytes)):
        return INVALID_VALUE
    yield from host.copy_call(host.call_ns("cuMemcpyBatchAsync"), stream)
    _copy_kernel(host, nbytes, stream)
    return SUCCESS


def _copy_kernel(host: HostThread, nbytes: int, stream: SimStream) -> None:
    parameters = host.simulation.profile.copy
    ns = us(parameters.d2d_base_us) + transfer_ns(nbytes, parameters.d2d_gbps)
    stream.submit(stream.context.gpu.kernel(ns, parameters.d2d_threads, "d2d", nbytes))


@call("cuMemcpyDtoHAsync")
def d2h(host: HostThread, target: Storage, source: Storage, nbytes: int, stream: SimStream) -> Call:
    """(target, source, bytes, stream)."""
    if not (_fits(target, nbytes) and _fits(source, nbytes)) or source.gpu is None:
        return INVALID_VALUE
    parameters, gpu = host.simulation.profile.copy, source.gpu
    if target.space is Space.PAGEABLE:
        gbps = parameters.warm_gbps if target.touched else parameters.fresh_gbps
        drag = host.simulation.profile.drag.warm if target.touched else host.simulation.profile.drag.fresh
        call_ns = host.call_ns("pageable cuMemcpyDtoHAsync") + host.profiler.added_ns
        yield from _staged(host, gpu.to_host, nbytes, gbps, parameters.d2h_gbps, drag, call_ns, stream)
        target.touched = True
        return SUCCESS
    yield from host.copy_call(host.call_ns("cuMemcpyDtoHAsync", kind="transfer"), stream)
    stream.submit(
        _transfer(host, gpu.to_host, gpu, nbytes, parameters.d2h_gbps, host.simulation.profile.drag.d2h, "d2h")
    )
    return SUCCESS


@call("cuMemcpyHtoDAsync")
def h2d(host: HostThread, target: Storage, source: Storage, nbytes: int, stream: SimStream) -> Call:
    """(target, source, bytes, stream). A small copy travels in the command stream and the graphics engine writes it.

    To another GPU than the stream's, the copy is ordered with staged transfers.
    """
    if not (_fits(target, nbytes) and _fits(source, nbytes)) or target.gpu is None:
        return INVALID_VALUE
    parameters, drags, gpu = host.simulation.profile.copy, host.simulation.profile.drag, target.gpu
    if source.space is Space.PAGEABLE and nbytes > parameters.inline_bytes:
        call_ns = host.call_ns("pageable cuMemcpyHtoDAsync") + host.profiler.added_ns
        upload = parameters.upload_gbps
        yield from _staged(host, gpu.to_gpu, nbytes, upload, parameters.h2d_gbps, drags.upload, call_ns, stream)
        return SUCCESS
    name, foreign = "cuMemcpyHtoDAsync", gpu is not stream.context.gpu
    if foreign:
        name = "foreign cuMemcpyHtoDAsync"
    elif source.space is Space.PAGEABLE:
        name = "inline cuMemcpyHtoDAsync"
    yield from host.copy_call(host.call_ns(name, kind="transfer"), stream)
    if foreign:
        job = _transfer(host, gpu.to_gpu, gpu, nbytes, parameters.h2d_gbps, drags.h2d, "foreign h2d")
        stream.submit(job, host.simulation.staged_tail)
        host.simulation.staged_tail = job
    elif nbytes <= parameters.inline_bytes:
        # The graphics engine writes a small copy, without an SM.
        ns = us(parameters.inline_us) + transfer_ns(nbytes, parameters.h2d_gbps)
        stream.submit(gpu.kernel(ns, 0, "inline", nbytes, reads=2))
    else:
        stream.submit(_transfer(host, gpu.to_gpu, gpu, nbytes, parameters.h2d_gbps, drags.h2d, "h2d"))
    return SUCCESS


def _transfer(
    host: HostThread, engine: CopyEngine, gpu: SimGpu, nbytes: int, gbps: float, drag: float, what: str
) -> Job:
    parameters = host.simulation.profile.copy
    ns = us(parameters.base_us) + transfer_ns(nbytes, gbps)
    # A transfer of the other direction does not wait for those to the GPU, but its commands do.
    start_us = us(parameters.start_us)
    lead = start_us if engine is gpu.to_gpu else gpu.lead_ns(start_us, 2)
    job = Job(host.clock, engine, ns, lead, us(parameters.gap_us), what=what, nbytes=nbytes)
    if ns > _HEAVY_NS and drag != 1:
        job.on_start = lambda: gpu.slowdowns.add(drag, job.end)
    return job


def _staged(
    host: HostThread,
    engine: CopyEngine,
    nbytes: int,
    gbps: float,
    engine_gbps: float,
    drag: float,
    call_ns: int,
    stream: SimStream,
) -> Call:
    """A copy from or to pageable memory, which this thread stages chunk by chunk.

    It holds the stream's lock while it waits for its predecessors and copies, on the legacy default stream also the
    context's lock. A copy to the host holds the context's staging buffers while it copies.
    """
    clock, parameters, context = host.clock, host.simulation.profile.copy, stream.context
    to_host = engine is context.gpu.to_host
    held: list[Lock] = [stream.lock]
    yield from host.pass_streams(stream)
    yield from stream.lock.acquire(host)
    yield from host.work_under(call_ns >> 3, context.locks.memory)
    if stream.kind is StreamKind.NULL:
        yield from context.lock.acquire(host)
        held.append(context.lock)
        yield from clock.wait(call_ns - (call_ns >> 3))
    else:
        yield from host.work_under(call_ns - (call_ns >> 3), context.lock)
    may_begin = clock.event()
    what = "staged d2h" if to_host else "staged h2d"
    job = Job(clock, CallingEngine(lambda _, ready: may_begin.succeed(ready)), 0, what=what, nbytes=nbytes)
    stream.submit(job)
    yield may_begin
    if to_host:
        yield from context.locks.staging.acquire(host)
        held.append(context.locks.staging)
    yield from clock.wait(max(engine.free_at - clock.now, 0))
    job.start = clock.now
    total = us(parameters.staging_base_us) + transfer_ns(nbytes, gbps)
    chunk = min(parameters.staging_chunk, nbytes)
    period = max(transfer_ns(chunk, gbps), 1)
    busy = min(transfer_ns(chunk, engine_gbps), period)
    engine.staging.append(StagedCopy(clock.now, clock.now + total, busy, period))
    engine.moved_ns += transfer_ns(nbytes, engine_gbps)
    if to_host and nbytes >= parameters.staging_chunk:
        write = us(parameters.staging_write_us) if gbps > parameters.fresh_gbps else 0
        hold = min(us(parameters.staging_hold_us) + write, period)
        # The host works on a chunk only when the GPU has transferred it.
        context.gpu.staging.append((host, StagedCopy(clock.now + busy, clock.now + busy + total, hold, period)))
    if total > _HEAVY_NS and drag != 1:
        context.slowdowns.add(drag, clock.now + total)
    yield from clock.wait(total)
    job.set_end(clock.now)
    for lock in reversed(held):
        lock.release()
    return SUCCESS


@call("cuMemcpyPeerAsync")
def peer(
    host: HostThread,
    target: Storage,
    target_context: GpuContext,
    source: Storage,
    _source_context: GpuContext,
    nbytes: int,
    stream: SimStream,
) -> Call:
    """(target, its context, source, its context, bytes, stream)."""
    if not (_fits(target, nbytes) and _fits(source, nbytes)):
        return INVALID_VALUE
    return (yield from _peer(host, target, target_context, source, nbytes, stream))


def _peer(
    host: HostThread, target: Storage, target_context: GpuContext, source: Storage, nbytes: int, stream: SimStream
) -> Call:
    """A copy to another GPU.

    Without peer access it is staged: its first half is on the stream, its second half on a stream of the driver in the
    target's context, in one order for all streams.
    """
    parameters, simulation = host.simulation.profile.copy, host.simulation
    assert target.gpu is not None
    assert source.gpu is not None
    direct = any(context.gpu is target.gpu for context in stream.context.peers)
    lead, gap = us(parameters.start_us), us(parameters.gap_us)
    if direct:
        yield from host.copy_call(host.call_ns("direct cuMemcpyPeerAsync"), stream)
        ns = us(parameters.peer_base_us) + transfer_ns(nbytes, parameters.peer_gbps)
        stream.submit(Job(host.clock, source.gpu.to_peer, ns, lead, gap, what="peer", nbytes=nbytes))
        return SUCCESS
    extra = parameters.relay_call_us_per_mib * nbytes / MIB
    before = simulation.staged_tail
    if stream.unfinished() or (before is not None and before.end > host.clock.now):
        extra += parameters.relay_behind_us
    yield from host.copy_call(host.call_ns("cuMemcpyPeerAsync") + us(extra), stream)
    yield from stream.context.locks.staging.pass_through(host)
    ns = us(parameters.relay_base_us) + transfer_ns(nbytes, parameters.relay_gbps)
    first_ns = transfer_ns(nbytes, parameters.d2h_gbps)
    second_ns = max(min(first_ns, ns - first_ns), 0)
    between_ns = max(ns - first_ns - second_ns, 0)
    engine = CallingEngine(source.gpu.to_host.relay)
    first = Job(host.clock, engine, first_ns, lead, gap, what="staged peer out", nbytes=nbytes)
    second = Job(host.clock, UNCONTENDED, second_ns, 0, between_ns, what="staged peer in", nbytes=nbytes)
    blocks = simulation.profile.machine.staged_copies_block
    if blocks:
        yield from stream.context.lock.acquire(host)
    stream.submit(first)
    target_context.driver_stream.submit(second, first, simulation.staged_tail)
    # What follows on the stream, and who waits for it, waits for both halves.
    stream.tail = second
    second.staging = stream.context.gpu.staging
    simulation.staged_tail = second
    if blocks:
        yield from host.wait_for_jobs([second])
        stream.context.lock.release()
    return SUCCESS
