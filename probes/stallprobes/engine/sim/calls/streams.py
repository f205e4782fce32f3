"""Calls on streams and events."""

from __future__ import annotations

from stallprobes.engine.sim.clock import Call
from stallprobes.engine.sim.device import EventHandle, HostWord, SimStream, us
from stallprobes.engine.sim.host_thread import INVALID_HANDLE, NOT_READY, SUCCESS, HostThread, call
from stallprobes.engine.sim.jobs import UNCONTENDED, Job, staging_delay_ns
from stallprobes.model import StreamKind

# Flag of a new stream that does not wait for the default stream.
_NON_BLOCKING = 1


@call("cuStreamSynchronize")
def synchronize(host: HostThread, stream: SimStream) -> Call:
    """(stream)."""
    jobs = stream.unfinished()
    if jobs:
        yield from host.wait_for_jobs(jobs)
    else:
        yield from host.clock.wait(host.shared_look_ns(host.call_ns("cuStreamSynchronize"), stream.context))
    return SUCCESS


@call("cuStreamQuery")
def query_stream(host: HostThread, stream: SimStream) -> Call:
    """(stream)."""
    yield from host.clock.wait(host.call_ns("cuStreamQuery"))
    return NOT_READY if stream.unfinished() else SUCCESS


@call("cuStreamCreate")
def create(host: HostThread, into: HostWord, flags: int) -> Call:
    """(word for the stream, flags)."""
    context = host.current
    yield from host.work_under(host.call_ns("cuStreamCreate"), context.locks.content, context.lock)
    kind = StreamKind.NON_BLOCKING if flags & _NON_BLOCKING else StreamKind.BLOCKING
    into.put(context.create_stream(kind))
    return SUCCESS


@call("cuStreamDestroy")
def destroy(host: HostThread, stream: SimStream) -> Call:
    """(stream). Its unfinished jobs still run."""
    if not isinstance(stream, SimStream) or stream not in stream.context.streams:
        return INVALID_HANDLE
    context = stream.context
    yield from host.work_under(host.call_ns("cuStreamDestroy"), context.locks.content, context.lock)
    context.streams.remove(stream)
    return SUCCESS


@call("cuEventRecord")
def record(host: HostThread, event: EventHandle, stream: SimStream) -> Call:
    """(event, stream)."""
    parameters = host.simulation.profile.engine
    yield from host.record_call(host.call_ns("cuEventRecord"), stream)
    job = Job(
        host.clock,
        UNCONTENDED,
        0,
        us(parameters.marker_start_us),
        us(parameters.marker_us),
        what="event",
    )
    stream.submit(job)
    event.job = job
    if event.blocking:
        stream.context.hardware.used = True
        stream.hardware_queue(busy=True).blocked_by = job
    return SUCCESS


@call("cuEventQuery")
def query(host: HostThread, event: EventHandle) -> Call:
    """(event): takes no lock, and longer while the event is pending."""
    pending = _unfinished(host, event)
    ns = host.call_ns("pending cuEventQuery" if pending else "cuEventQuery")
    if pending and host.context is not None:
        ns = host.shared_look_ns(ns, host.context)
    if pending and pending[0].staging:
        most = us(host.simulation.profile.copy.staging_query_us)
        ns += min(staging_delay_ns(pending[0].staging, host.clock.now, host), most)
    yield from host.clock.wait(ns)
    return NOT_READY if _unfinished(host, event) else SUCCESS


@call("cuEventSynchronize")
def synchronize_event(host: HostThread, event: EventHandle) -> Call:
    """(event)."""
    pending = _unfinished(host, event)
    if not pending:
        yield from host.clock.wait(host.call_ns("cuEventQuery"))
    elif event.blocking:
        began = host.clock.now
        yield from host.wait_for_job(*pending)
        yield from host.clock.wait(host.simulation.wakeup.asleep.draw(host.random))
        host.record_sleep(host.clock.now - began)
    else:
        yield from host.wait_for_jobs(pending)
    return SUCCESS


@call("native:poll")
def poll(host: HostThread, target: EventHandle | SimStream, step_ns: int, timeout_ns: int) -> Call:
    """(event or stream, ns between two queries, timeout ns): queries until the work is complete.

    A query takes no lock: on an H200 the queries beside calls that hold a context's locks for milliseconds keep their
    time. Threads that query without a pause may still make the calls of others longer, in proportion to their number.
    """
    clock, gpu = host.clock, None if host.context is None else host.context.gpu
    name = "cuEventQuery" if isinstance(target, EventHandle) else "cuStreamQuery"
    began = clock.now
    jobs = _unfinished(host, target)
    if jobs:
        query_ns = host.call_ns(f"pending {name}")
        period_ns = query_ns + (step_ns + host.simulation.timer.draw(host.random) if step_ns else 0)
        share = 0.0 if step_ns else host.simulation.profile.drag.poll
        if gpu is not None:
            gpu.slowdowns.add_polling(1, share)
        yield from host.wait_at_most(jobs, began + timeout_ns)
        if gpu is not None:
            gpu.slowdowns.add_polling(-1, share)
        # The query that is being made, or the sleep, ends first.
        yield from clock.wait(-(clock.now - began) % period_ns)
        host.record_wait(clock.now - began)
        if _unfinished(host, target):
            return NOT_READY
    yield from clock.wait(host.call_ns(name))
    return NOT_READY if _unfinished(host, target) else SUCCESS


def _unfinished(host: HostThread, target: EventHandle | SimStream) -> list[Job]:
    if isinstance(target, SimStream):
        return target.unfinished()
    return [target.job] if target.job is not None and target.job.end > host.clock.now else []


@call("cuStreamWaitEvent")
def wait_event(host: HostThread, stream: SimStream, event: EventHandle, _flags: int) -> Call:
    """(stream, event, flags)."""
    yield from host.submit_call(host.call_ns("cuStreamWaitEvent"), stream)
    stream.waits += _unfinished(host, event)
    return SUCCESS


@call("cuEventElapsedTime")
def elapsed(host: HostThread, into: HostWord, begin: EventHandle, end: EventHandle) -> Call:
    """(word for the float of milliseconds, first event, second event)."""
    yield from host.clock.wait(host.call_ns("cuEventElapsedTime"))
    if not (begin.timing and end.timing) or begin.job is None or end.job is None:
        return INVALID_HANDLE
    if max(begin.job.end, end.job.end) > host.clock.now:
        return NOT_READY
    into.put((end.job.end - begin.job.end) / 1e6)
    return SUCCESS
