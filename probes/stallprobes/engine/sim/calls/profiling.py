"""Calls of CUPTI, by which a process profiles itself, and what they add to its other calls."""

from __future__ import annotations

from stallprobes.engine.sim.clock import Call
from stallprobes.engine.sim.host_thread import INVALID_VALUE, SUCCESS, HostThread, call


@call("cupti:cuptiActivityRegisterCallbacks")
def register_callbacks(host: HostThread) -> Call:
    """(): registers the functions that hand over buffers. The first call attaches CUPTI: meanwhile no call submits."""
    name = "cupti:cuptiActivityRegisterCallbacks"
    if host.profiler.attached:
        yield from host.clock.wait(host.base_ns(name))
    else:
        yield from host.work_under(host.base_ns(f"attaching {name}"), *host.profiler.locks)
        host.profiler.update(attached=True)
    return SUCCESS


@call("cupti:cuptiActivityEnable")
def enable(host: HostThread, kind: int) -> Call:
    """(kind of records). The next call of each thread that submits work is longer."""
    if kind <= 0:
        return INVALID_VALUE
    yield from host.clock.wait(host.base_ns("cupti:cuptiActivityEnable"))
    host.profiler.profiles += not host.profiler.kinds
    host.profiler.kinds.add(kind)
    host.profiler.update(attached=True)
    return SUCCESS


@call("cupti:cuptiActivityDisable")
def disable(host: HostThread, kind: int) -> Call:
    """(kind of records). CUPTI stays attached."""
    yield from host.clock.wait(host.base_ns("cupti:cuptiActivityDisable"))
    host.profiler.kinds.discard(kind)
    host.profiler.update(host.profiler.attached)
    return SUCCESS


@call("cupti:cuptiActivityFlushAll")
def flush(host: HostThread, _forced: int) -> Call:
    """(flag): returns the buffers with records."""
    yield from host.clock.wait(host.base_ns("cupti:cuptiActivityFlushAll"))
    return SUCCESS


@call("cupti:cuptiFinalize")
def finalize(host: HostThread) -> Call:
    """(): detaches CUPTI from the process."""
    yield from host.clock.wait(host.base_ns("cupti:cuptiFinalize"))
    host.profiler.kinds.clear()
    host.profiler.update(attached=False)
    return SUCCESS


@call("native:discard_records")
def discard_records(host: HostThread, _with_cupti: int) -> Call:
    """(whether those that CUPTI holds too): frees buffers."""
    yield from host.clock.wait(host.base_ns("native:store"))
    return SUCCESS
