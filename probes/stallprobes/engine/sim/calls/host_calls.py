"""Calls of the C library, of the package's native helpers, and of NVML, and the host functions that CUDA calls."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial

from stallprobes.engine.sim.clock import Call, Process
from stallprobes.engine.sim.device import BoundHostFunction, HostWord, SimStream, Storage, us
from stallprobes.engine.sim.host_thread import SUCCESS, HostThread, call, call_without_effect
from stallprobes.engine.sim.jobs import CallingEngine, Job
from stallprobes.engine.sim.sampling import LatencyDistribution
from stallprobes.model import MIB, Space

# Result of a native helper whose condition did not come true before its time limit.
_TIMED_OUT = 1
# Period (ns) at which a native helper polls its condition.
_STEP_NS = 20_000
# Duration (ns) of a simulated munmap above which the munmap slows other calls down.
_HEAVY_NS = 50_000
# Prefix of the names of NVML's functions in a profile of the simulation.
_NVML = "nvml:"
# Name of the host function that occupies its thread for a given time; all others wait for a memory word.
_BUSY = "busy"


@call("libc:mmap")
def mmap(host: HostThread, _address: int, nbytes: int, _protection: int, _flags: int, _file: int, _offset: int) -> Call:
    """Returns new memory whose pages are created at the first access."""
    yield from host.clock.wait(host.base_ns("libc:mmap"))
    return Storage(Space.PAGEABLE, nbytes, touched=False)  # type: ignore[return-value]


@call("libc:munmap")
def munmap(host: HostThread, storage: Storage, nbytes: int) -> Call:
    """Frees the pages that were touched, in a time proportional to their number."""
    pages = us(host.simulation.profile.memory.unmap_us_per_mib * nbytes / MIB) if storage.touched else 0
    ns = host.base_ns("libc:munmap", pages)
    if host.context is not None and ns > _HEAVY_NS:
        host.context.gpu.slowdowns.add(host.simulation.profile.drag.unmap, host.clock.now + ns)
    yield from host.clock.wait(ns)
    storage.live = False
    return SUCCESS


@call("native:store")
def store(host: HostThread, word: HostWord, value: int) -> Call:
    """(word, value)."""
    yield from host.clock.wait(host.base_ns("native:store"))
    word.put(value)
    return SUCCESS


@call("native:add")
def add(host: HostThread, word: HostWord, value: int) -> Call:
    """(word, value)."""
    yield from host.clock.wait(host.base_ns("native:store"))
    word.add(value)
    return SUCCESS


@call("native:wait")
def wait(host: HostThread, word: HostWord, value: int, timeout_ns: int) -> Call:
    """(word, value, timeout ns): waits until the word is at least the value; 1 after the timeout."""
    yield from host.clock.wait(host.base_ns("native:store"))
    deadline = host.clock.now + timeout_ns
    while word.value < value and host.clock.now < deadline and not host.simulation.quit:
        yield from host.wait_for_word(word, deadline)
    return SUCCESS if word.value >= value else _TIMED_OUT


def _look_at(host: HostThread, word: HostWord, is_done: Callable[[], bool], timeout_ns: int) -> Process:
    """Look at ``word`` each 20 us until ``is_done``, for at most ``timeout_ns``."""
    clock, began = host.clock, host.clock.now
    while not is_done() and clock.now < began + timeout_ns and not host.simulation.quit:
        yield from host.wait_for_word(word, began + timeout_ns)
        yield from clock.wait(-(clock.now - began) % _STEP_NS)


@call("native:lock")
def lock(host: HostThread, word: HostWord, timeout_ns: int) -> Call:
    """(word, timeout ns): takes the mutex; 1 after the timeout."""
    began = host.clock.now
    yield from host.clock.wait(host.base_ns("native:store"))
    yield from _look_at(host, word, lambda: word.value == 0, timeout_ns)
    host.record_sleep(host.clock.now - began)
    if word.value != 0:
        return _TIMED_OUT
    word.put(1)
    return SUCCESS


@call("native:spin")
def spin(host: HostThread, ns: int) -> Call:
    """(ns)."""
    yield from host.clock.wait(ns)
    host.record_wait(ns)
    return SUCCESS


@call("native:sleep")
def sleep(host: HostThread, ns: int) -> Call:
    """(ns)."""
    yield from host.clock.wait(ns + host.simulation.timer.draw(host.random))
    host.record_sleep(ns)
    return SUCCESS


@call("native:work")
def work(host: HostThread, iterations: int) -> Call:
    """(iterations): arithmetic of a fixed length."""
    locks = host.simulation.profile.locks
    yield from host.clock.wait(_arithmetic(iterations, locks.work_ns, locks.work_spread).draw(host.random))
    return SUCCESS


@cache
def _arithmetic(iterations: int, step_ns: float, spread: float) -> LatencyDistribution:
    median = max(iterations * step_ns, 1)
    return LatencyDistribution(median, max(spread, 1) * median)


call_without_effect("native:nothing")


def nvml(host: HostThread, name: str) -> Call:
    """An NVML query: answered by the GPU's management unit, without locks of CUDA."""
    costs = host.simulation.profile.costs
    yield from host.clock.wait(costs.get(_NVML + name, costs["nvml:other"]).draw(host.random))
    return SUCCESS


@call("cuLaunchHostFunc")
def launch_host_function(host: HostThread, stream: SimStream, bound: BoundHostFunction) -> Call:
    """(stream, host function). A thread of the driver calls the host function in stream order."""
    yield from host.submit_call(host.call_ns("cuLaunchHostFunc"), stream)
    lead = us(host.simulation.profile.locks.callback_us)
    wake_ns = host.simulation.callback_wake.draw(host.random)
    function = _occupy if bound.function.name == _BUSY else _wait_for_word
    engine = CallingEngine(partial(stream.context.callbacks.add, call=partial(function, host, bound), wake_ns=wake_ns))
    stream.submit(Job(host.clock, engine, 0, lead, lead))
    return SUCCESS


def _occupy(host: HostThread, bound: BoundHostFunction) -> Process:
    """``busy``: occupies its thread, then counts."""
    yield from host.clock.wait(bound.timeout_ns)
    bound.word.add(1)


def _wait_for_word(host: HostThread, bound: BoundHostFunction) -> Process:
    """``gate`` and ``mutex``: look at their word each 20 us; after the timeout they count, and a gate opens itself.

    A mutex is released as soon as it is taken, which takes no time.
    """
    open_value = bound.function.open_value

    def is_open() -> bool:
        return bool(bound.word.value) is bool(open_value)

    yield from _look_at(host, bound.word, is_open, bound.timeout_ns)
    if not is_open():
        bound.forced.add(1)
        if open_value:
            bound.word.put(open_value)
