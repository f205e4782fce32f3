"""Calls that map GPU memory into reserved addresses, and calls that allocate from a pool of the program.

On an H200, launches and copies beside these calls kept their time, although cuMemSetAccess and cuMemUnmap change the
page tables: the calls hold none of the locks of cuMemAlloc and cuMemFree. It is a guess that two threads with such
calls wait for each other.
"""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes.engine.sim.clock import Call, Wait
from stallprobes.engine.sim.device import HostWord, SimGpu, SimStream, Storage, us
from stallprobes.engine.sim.host_thread import INVALID_VALUE, OUT_OF_MEMORY, SUCCESS, HostThread, call
from stallprobes.engine.sim.jobs import UNCONTENDED, Job
from stallprobes.model import MIB, MemoryStruct, Space


@dataclass(eq=False)
class AddressRange:
    """Reserved addresses and the memory that is mapped there."""

    nbytes: int
    mapped: PhysicalMemory | None = None


@dataclass(eq=False)
class PhysicalMemory:
    """Memory of a GPU without an address. ``mapped``: it has one. ``live``: it is not released."""

    nbytes: int
    gpu: SimGpu
    mapped: bool = False
    live: bool = True

    def free_unless_used(self) -> None:
        """Give the memory back if it is neither live nor mapped."""
        if not self.live and not self.mapped:
            self.gpu.free_bytes += self.nbytes


@dataclass(eq=False)
class MemoryPool:
    """A pool of ``nbytes``. ``keeps``: a synchronization does not trim it."""

    nbytes: int = 0
    keeps: bool = False
    live: bool = True


def _manage_mapping(host: HostThread, name: str, us_per_mib: float = 0, nbytes: int = 0) -> Wait:
    return host.work_under(host.call_ns(name, us(us_per_mib * nbytes / MIB)), host.current.locks.mapping)


@call("cuMemAddressReserve")
def reserve(host: HostThread, into: HostWord, nbytes: int, _alignment: int, _address: int, _flags: int) -> Call:
    """(word for the address, bytes, alignment, address, flags)."""
    if nbytes <= 0:
        return INVALID_VALUE
    yield from _manage_mapping(host, "cuMemAddressReserve")
    into.put(AddressRange(nbytes))
    return SUCCESS


@call("cuMemAddressFree")
def free_addresses(host: HostThread, addresses: AddressRange, _nbytes: int) -> Call:
    """(address, bytes)."""
    if not isinstance(addresses, AddressRange) or addresses.mapped is not None:
        return INVALID_VALUE
    yield from _manage_mapping(host, "cuMemAddressFree")
    return SUCCESS


@call("cuMemCreate")
def create(host: HostThread, into: HostWord, nbytes: int, where: MemoryStruct, _flags: int) -> Call:
    """(word for the handle, bytes, properties, flags)."""
    simulation = host.simulation
    if nbytes <= 0 or where.device >= len(simulation.gpus):
        return INVALID_VALUE
    yield from _manage_mapping(host, "cuMemCreate", simulation.profile.memory.create_us_per_mib, nbytes)
    gpu = simulation.gpus[where.device]
    if nbytes > gpu.free_bytes:
        return OUT_OF_MEMORY
    gpu.free_bytes -= nbytes
    into.put(PhysicalMemory(nbytes, gpu))
    return SUCCESS


@call("cuMemRelease")
def release(host: HostThread, memory: PhysicalMemory) -> Call:
    """(handle). The memory is free once it is mapped nowhere."""
    if not isinstance(memory, PhysicalMemory) or not memory.live:
        return INVALID_VALUE
    us_per_mib = host.simulation.profile.memory.release_us_per_mib
    yield from _manage_mapping(host, "cuMemRelease", us_per_mib, memory.nbytes)
    memory.live = False
    memory.free_unless_used()
    return SUCCESS


@call("cuMemMap")
def map_memory(
    host: HostThread, addresses: AddressRange, nbytes: int, _offset: int, memory: PhysicalMemory, _flags: int
) -> Call:
    """(address, bytes, offset, handle, flags): the whole memory at the begin of a range."""
    fits = isinstance(addresses, AddressRange) and isinstance(memory, PhysicalMemory) and memory.live
    if not fits or addresses.mapped is not None or not nbytes == memory.nbytes <= addresses.nbytes:
        return INVALID_VALUE
    yield from _manage_mapping(host, "cuMemMap")
    addresses.mapped, memory.mapped = memory, True
    return SUCCESS


@call("cuMemSetAccess")
def set_access(host: HostThread, addresses: AddressRange, nbytes: int, _access: MemoryStruct, _count: int) -> Call:
    """(address, bytes, access, number of accesses)."""
    if not isinstance(addresses, AddressRange) or addresses.mapped is None:
        return INVALID_VALUE
    yield from _manage_mapping(host, "cuMemSetAccess", host.simulation.profile.memory.access_us_per_mib, nbytes)
    return SUCCESS


@call("cuMemUnmap")
def unmap_memory(host: HostThread, addresses: AddressRange, nbytes: int) -> Call:
    """(address, bytes). It waits for no work: the program has to do so before."""
    if not isinstance(addresses, AddressRange) or addresses.mapped is None:
        return INVALID_VALUE
    yield from _manage_mapping(host, "cuMemUnmap", host.simulation.profile.memory.gpu_unmap_us_per_mib, nbytes)
    memory, addresses.mapped = addresses.mapped, None
    memory.mapped = False
    memory.free_unless_used()
    return SUCCESS


@call("cuMemPoolCreate")
def create_pool(host: HostThread, into: HostWord, _properties: MemoryStruct) -> Call:
    """(word for the pool, properties)."""
    yield from _manage_mapping(host, "cuMemPoolCreate")
    into.put(MemoryPool())
    return SUCCESS


@call("cuMemPoolSetAttribute")
def set_pool_attribute(host: HostThread, pool: MemoryPool, _attribute: int, value: HostWord) -> Call:
    """(pool, attribute, word with its value): the release threshold, up to which the pool keeps its memory."""
    if not isinstance(pool, MemoryPool) or not pool.live:
        return INVALID_VALUE
    yield from _manage_mapping(host, "cuMemPoolSetAttribute")
    pool.keeps = value.value != 0
    return SUCCESS


@call("cuMemPoolDestroy")
def destroy_pool(host: HostThread, pool: MemoryPool) -> Call:
    """(pool)."""
    if not isinstance(pool, MemoryPool) or not pool.live:
        return INVALID_VALUE
    yield from _manage_mapping(host, "cuMemPoolDestroy")
    pool.live = False
    return SUCCESS


@call("cuMemAllocFromPoolAsync")
def alloc_from_pool(host: HostThread, into: HostWord, nbytes: int, pool: MemoryPool, stream: SimStream) -> Call:
    """(word for the address, bytes, pool, stream): under the stream's lock only, as cuMemAllocAsync.

    The pool grows, in the stream's order, while it holds too little; without a threshold it does so each time.
    """
    if not isinstance(pool, MemoryPool) or not pool.live or nbytes <= 0:
        return INVALID_VALUE
    yield from host.work_under(host.call_ns("cuMemAllocFromPoolAsync"), stream.lock)
    missing = nbytes - (pool.nbytes if pool.keeps else 0)
    if missing > 0:
        grow_ns = us(host.simulation.profile.memory.grow_us_per_mib * missing / MIB)
        stream.submit(Job(host.clock, UNCONTENDED, grow_ns, what="pool"))
        pool.nbytes = nbytes
    into.put(Storage(Space.DEVICE, nbytes, stream.context.gpu))
    return SUCCESS
