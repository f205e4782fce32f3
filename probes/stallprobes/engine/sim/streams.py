"""Streams, events and host functions."""

from __future__ import annotations

from stallprobes.engine.sim.clock import Call, Wait
from stallprobes.engine.sim.device import EventHandle, Gate, HostWord, us
from stallprobes.engine.sim.dice import Cost
from stallprobes.engine.sim.engines import HostEngine
from stallprobes.engine.sim.host import INVALID_HANDLE, NOT_READY, SUCCESS, Host, call, plain
from stallprobes.engine.sim.jobs import Job, SimStream
from stallprobes.model import StreamKind

_NON_BLOCKING = 1
_GATE_STEP_NS = 20_000


@call("cuStreamSynchronize")
def synchronize(host: Host, stream: SimStream) -> Call:
    """(stream)."""
    jobs = stream.unfinished()
    if jobs:
        yield from host.seen(jobs)
    else:
        yield from host.clock.spend(host.took("cuStreamSynchronize"))
    return SUCCESS


@plain("cuStreamSynchronize")
def plain_synchronize(host: Host, stream: SimStream) -> Cost | None:
    """While the stream has nothing to do."""
    return None if stream.unfinished() else host.undisturbed("cuStreamSynchronize")


@call("cuStreamQuery")
def query_stream(host: Host, stream: SimStream) -> Call:
    """(stream)."""
    yield from host.clock.spend(host.took("cuStreamQuery"))
    return NOT_READY if stream.unfinished() else SUCCESS


@call("cuStreamCreate")
def create(host: Host, into: HostWord, flags: int) -> Call:
    """(word for the stream, flags)."""
    context = host.context
    assert context is not None
    yield from host.under(host.took("cuStreamCreate"), context.gpu.memory_lock, context.lock)
    kind = StreamKind.NON_BLOCKING if flags & _NON_BLOCKING else StreamKind.BLOCKING
    into.put(context.stream(kind))
    return SUCCESS


@call("cuStreamDestroy")
def destroy(host: Host, stream: SimStream) -> Call:
    """(stream). What is in it is still done."""
    if not isinstance(stream, SimStream) or stream not in stream.context.streams:
        return INVALID_HANDLE
    context = stream.context
    yield from host.under(host.took("cuStreamDestroy"), context.gpu.memory_lock, context.lock)
    context.streams.remove(stream)
    return SUCCESS


@plain("cuStreamCreate")
def plain_create(host: Host, _into: HostWord, _flags: int) -> Cost | None:
    """While nobody has a lock: the stream of such a turn is made and ended before anyone could look."""
    context = host.context
    return None if context is None else host.undisturbed("cuStreamCreate", context.gpu.memory_lock, context.lock)


@plain("cuStreamDestroy")
def plain_destroy(host: Host, _stream: object) -> Cost | None:
    """The same."""
    context = host.context
    return None if context is None else host.undisturbed("cuStreamDestroy", context.gpu.memory_lock, context.lock)


@call("cuEventRecord")
def record(host: Host, event: EventHandle, stream: SimStream) -> Call:
    """(event, stream)."""
    figures = host.world.profile.engine
    yield from host.submitting(host.took("cuEventRecord"), stream)
    job = Job(host.clock, host.world.uncontended, 0, us(figures.marker_start_us), us(figures.marker_us), what="event")
    stream.submit(job)
    event.job = job
    return SUCCESS


@call("cuEventQuery")
def query(host: Host, event: EventHandle) -> Call:
    """(event). It takes no lock, and longer while the event has not come."""
    pending = event.job is not None and event.job.end > host.clock.now
    yield from host.clock.spend(host.took("pending cuEventQuery" if pending else "cuEventQuery"))
    return NOT_READY if event.job is not None and event.job.end > host.clock.now else SUCCESS


@call("cuEventSynchronize")
def synchronize_event(host: Host, event: EventHandle) -> Call:
    """(event)."""
    if event.job is not None and event.job.end > host.clock.now:
        yield from host.seen([event.job])
    else:
        yield from host.clock.spend(host.took("cuEventQuery"))
    return SUCCESS


@call("cuStreamWaitEvent")
def wait_event(host: Host, stream: SimStream, event: EventHandle, _flags: int) -> Call:
    """(stream, event, flags)."""
    yield from host.submitting(host.took("cuStreamWaitEvent"), stream)
    if event.job is not None and event.job.end > host.clock.now:
        stream.waits.append(event.job)
    return SUCCESS


@call("cuEventElapsedTime")
def elapsed(host: Host, into: HostWord, begin: EventHandle, end: EventHandle) -> Call:
    """(word for the float of milliseconds, first event, second event)."""
    yield from host.clock.spend(host.took("cuEventElapsedTime"))
    if not (begin.timing and end.timing) or begin.job is None or end.job is None:
        return INVALID_HANDLE
    if max(begin.job.end, end.job.end) > host.clock.now:
        return NOT_READY
    into.put((end.job.end - begin.job.end) / 1e6)
    return SUCCESS


@call("cuLaunchHostFunc")
def launch_host_function(host: Host, stream: SimStream, gate: Gate) -> Call:
    """(stream, gate). A thread of the driver calls it when its turn in the stream has come."""
    yield from host.submitting(host.took("cuLaunchHostFunc"), stream)
    clock = host.clock
    lead = us(host.world.profile.locks.callback_us)
    stream.submit(Job(clock, HostEngine(lambda job, _: clock.process(_guard(host, gate, job))), 0, lead, lead))
    return SUCCESS


def _guard(host: Host, gate: Gate, job: Job) -> Wait:
    """The native gate: it looks each 20 us whether its word is set, and opens by itself when its time is over."""
    clock = host.clock
    yield from clock.spend(max(job.start - clock.now, 0))
    began = clock.now
    deadline = began + gate.timeout_ns
    while gate.word.value == 0 and clock.now < deadline and not host.world.quit:
        yield from host.word_changed(gate.word, deadline)
        yield from clock.spend(-(clock.now - began) % _GATE_STEP_NS)
    if gate.word.value == 0:
        gate.forced.add(1)
        gate.word.put(1)
    job.ends(clock.now)
