"""Calls that allocate and register memory, and the locks of the context that they hold."""

from __future__ import annotations

from stallprobes.engine.sim.clock import Call, Wait
from stallprobes.engine.sim.device import HostWord, SimStream, Storage, us
from stallprobes.engine.sim.host_thread import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, HostThread, call
from stallprobes.engine.sim.jobs import UNCONTENDED, Job
from stallprobes.model import MIB, Space


def _manage(host: HostThread, name: str, us_per_mib: float, nbytes: int, before_ns: int = 0) -> Wait:
    """A call that changes the context's address space, after ``before_ns``: it holds the locks all the time."""
    ns, context = host.call_ns(name, us(us_per_mib * nbytes / MIB)), host.current
    yield from host.work_under(before_ns + ns, context.locks.content, context.locks.memory, context.lock)


def _pin(host: HostThread, name: str, us_per_mib: float, nbytes: int) -> Wait:
    """A call that pins or unpins memory: its end comes after the locks are released."""
    yield from _manage(host, name, us_per_mib, nbytes)
    yield from host.clock.wait(us(host.simulation.profile.memory.pin_tail_us))


def _live(storage: object, space: Space) -> bool:
    return isinstance(storage, Storage) and storage.live and storage.space is space


@call("cuMemAlloc")
def mem_alloc(host: HostThread, into: HostWord, nbytes: int) -> Call:
    """(word for the address, bytes)."""
    context = host.current
    if nbytes <= 0:
        return INVALID_VALUE
    yield from _manage(host, "cuMemAlloc", host.simulation.profile.memory.alloc_us_per_mib, nbytes)
    if nbytes > context.gpu.free_bytes:
        return OUT_OF_MEMORY
    context.gpu.free_bytes -= nbytes
    into.put(Storage(Space.DEVICE, nbytes, context.gpu))
    return SUCCESS


@call("cuMemFree")
def mem_free(host: HostThread, storage: Storage) -> Call:
    """(address). It waits for all work of the context while it holds the context's lock, then it unmaps the memory.

    That waits for a change-over of the graphics engine that has begun: beside a kernel of another context, a launch
    waits 0.14 ms longer (agreement-h200.json.gz). The memory is cleared after the call.
    """
    context = host.current
    if not _live(storage, Space.DEVICE) or storage.gpu is None:
        return INVALID_VALUE
    yield from context.lock.acquire(host)
    for job in context.unfinished():
        yield from host.wait_for_job(job)
    context.lock.release()
    # What the graphics engine does next begins when the context's work ends.
    yield from host.clock.wait(1)
    changing_ns = max(context.gpu.graphics.available - host.clock.now, 0)
    free_us_per_mib = host.simulation.profile.memory.free_us_per_mib
    yield from _manage(host, "cuMemFree", free_us_per_mib, storage.nbytes, changing_ns)
    host.record_synchronization()
    storage.gpu.free_bytes += storage.nbytes
    storage.gpu.clear(storage.nbytes)
    storage.live = False
    return SUCCESS


@call("cuMemHostAlloc")
def host_alloc(host: HostThread, into: HostWord, nbytes: int, _flags: int) -> Call:
    """(word for the address, bytes, flags)."""
    if nbytes <= 0:
        return INVALID_VALUE
    yield from _pin(host, "cuMemHostAlloc", host.simulation.profile.memory.pin_us_per_mib, nbytes)
    into.put(Storage(Space.PINNED, nbytes))
    return SUCCESS


@call("cuMemFreeHost")
def host_free(host: HostThread, storage: Storage) -> Call:
    """(address)."""
    if not _live(storage, Space.PINNED):
        return INVALID_VALUE
    yield from _pin(host, "cuMemFreeHost", host.simulation.profile.memory.unpin_us_per_mib, storage.nbytes)
    host.record_synchronization()
    storage.live = False
    return SUCCESS


@call("cuMemHostRegister")
def host_register(host: HostThread, storage: Storage, nbytes: int, _flags: int) -> Call:
    """(memory, bytes, flags)."""
    if not _live(storage, Space.PAGEABLE) or nbytes > storage.nbytes:
        return INVALID_VALUE
    yield from _pin(host, "cuMemHostRegister", host.simulation.profile.memory.register_us_per_mib, nbytes)
    storage.space, storage.touched = Space.PINNED, True
    return SUCCESS


@call("cuMemHostUnregister")
def host_unregister(host: HostThread, storage: Storage) -> Call:
    """(memory)."""
    if not _live(storage, Space.PINNED):
        return INVALID_VALUE
    yield from _pin(host, "cuMemHostUnregister", host.simulation.profile.memory.unregister_us_per_mib, storage.nbytes)
    host.record_synchronization()
    storage.space = Space.PAGEABLE
    return SUCCESS


@call("cuMemAllocAsync")
def alloc_async(host: HostThread, into: HostWord, nbytes: int, stream: SimStream) -> Call:
    """(word for the address, bytes, stream): from a pool, under the stream's lock only.

    Each synchronization trims the pool, so the next allocation grows it: work in the stream's order that occupies no
    engine of the GPU.
    """
    simulation = host.simulation
    yield from host.work_under(host.call_ns("cuMemAllocAsync"), stream.lock)
    grow_ns = us(simulation.profile.memory.grow_us_per_mib * nbytes / MIB)
    stream.submit(Job(host.clock, UNCONTENDED, grow_ns, what="pool"))
    into.put(Storage(Space.DEVICE, nbytes, stream.context.gpu))
    return SUCCESS


@call("cuMemFreeAsync")
def free_async(host: HostThread, storage: Storage, stream: SimStream) -> Call:
    """(address, stream): back to the pool."""
    if not _live(storage, Space.DEVICE):
        return INVALID_VALUE
    yield from host.work_under(host.call_ns("cuMemFreeAsync"), stream.lock)
    storage.live = False
    return SUCCESS
