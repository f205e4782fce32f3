"""Calls that are not CUDA's: the C library's, the package's own helpers, and NVML's."""

from __future__ import annotations

from functools import cache

from stallprobes.engine.sim.clock import Call
from stallprobes.engine.sim.device import HostWord, Storage, us
from stallprobes.engine.sim.dice import Cost
from stallprobes.engine.sim.host import SUCCESS, Host, call, plain
from stallprobes.model import Space

_MIB = 1 << 20
_TIMED_OUT = 1
_HEAVY_NS = 50_000
_NVML = "nvml:"


@call("libc:mmap")
def mmap(host: Host, _address: int, nbytes: int, _protection: int, _flags: int, _file: int, _offset: int) -> Call:
    """Fresh pages: they are not there before they are touched. Returns the memory."""
    yield from host.clock.spend(host.plain("libc:mmap"))
    return Storage(Space.PAGEABLE, nbytes, touched=False)  # type: ignore[return-value]


@call("libc:munmap")
def munmap(host: Host, storage: Storage, nbytes: int) -> Call:
    """It gives back the pages that were touched."""
    pages = us(host.world.profile.memory.unmap_us_per_mib * nbytes / _MIB) if storage.touched else 0
    ns = host.plain("libc:munmap", pages)
    if host.context is not None and ns > _HEAVY_NS:
        host.context.gpu.drag(host.world.profile.drag.unmap, host.clock.now + ns)
    yield from host.clock.spend(ns)
    storage.live = False
    return SUCCESS


@call("native:store")
def store(host: Host, word: HostWord, value: int) -> Call:
    """(word, value)."""
    yield from host.clock.spend(host.plain("native:store"))
    word.put(value)
    return SUCCESS


@call("native:add")
def add(host: Host, word: HostWord, value: int) -> Call:
    """(word, value)."""
    yield from host.clock.spend(host.plain("native:store"))
    word.add(value)
    return SUCCESS


@call("native:wait")
def wait(host: Host, word: HostWord, value: int, timeout_ns: int) -> Call:
    """(word, value, timeout ns): until the word is at least the value; 1 when it did not come in time."""
    yield from host.clock.spend(host.plain("native:store"))
    deadline = host.clock.now + timeout_ns
    while word.value < value and host.clock.now < deadline and not host.world.quit:
        yield from host.word_changed(word, deadline)
    return SUCCESS if word.value >= value else _TIMED_OUT


@call("native:sleep")
def sleep(host: Host, ns: int) -> Call:
    """(ns)."""
    yield from host.clock.spend(ns + host.draw(host.world.timer))
    return SUCCESS


@plain("native:work")
def plain_work(host: Host, iterations: int) -> Cost:
    """Always."""
    return _work(host, iterations)


def _work(host: Host, iterations: int) -> Cost:
    locks = host.world.profile.locks
    return _arithmetic(iterations, locks.work_ns, locks.work_spread)


@call("native:work")
def work(host: Host, iterations: int) -> Call:
    """(iterations)."""
    yield from host.clock.spend(host.draw(_work(host, iterations)))
    return SUCCESS


@cache
def _arithmetic(iterations: int, step_ns: float, spread: float) -> Cost:
    median = max(iterations * step_ns, 1)
    return Cost(median, max(spread, 1) * median)


@call("native:nothing")
def nothing(host: Host) -> Call:
    """Nothing."""
    yield from host.clock.spend(host.plain("native:store"))
    return SUCCESS


def nvml(host: Host, name: str) -> Call:
    """An NVML query: the GPU's management unit answers, and no lock of CUDA is in its way."""
    yield from host.clock.spend(host.draw(plain_nvml(host, name)))
    return SUCCESS


def plain_nvml(host: Host, name: str) -> Cost:
    """Always."""
    full = _NVML + name
    return host.world.profile.cost(full if full in host.world.profile.calls else "nvml:other")
