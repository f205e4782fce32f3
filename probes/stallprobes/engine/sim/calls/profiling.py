"""Calls of CUPTI, by which a process profiles itself, and what they add to its other calls."""

from __future__ import annotations

from stallprobes.engine.sim.clock import Call
from stallprobes.engine.sim.host_thread import INVALID_VALUE, SUCCESS, HostThread, call, call_without_effect


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


@call("cupti:cuptiFinalize")
def finalize(host: HostThread) -> Call:
    """(): detaches CUPTI from the process."""
    yield from host.clock.wait(host.base_ns("cupti:cuptiFinalize"))
    host.profiler.kinds.clear()
    host.profiler.update(attached=False)
    return SUCCESS


# Buffers with records are returned and freed.
call_without_effect("cupti:cuptiActivityFlushAll", "cupti:cuptiActivityFlushAll")
call_without_effect("native:discard_records")
