"""The call that submits a host function, and the native host functions."""

from __future__ import annotations

from functools import partial

from stallprobes.engine.sim.calls.host_calls import LOCK_STEP_NS
from stallprobes.engine.sim.clock import Call, Process
from stallprobes.engine.sim.device import BoundHostFunction, SimStream, us
from stallprobes.engine.sim.engines import HostExecutor
from stallprobes.engine.sim.host_thread import SUCCESS, HostThread, call
from stallprobes.engine.sim.jobs import Job

_BUSY = "busy"


@call("cuLaunchHostFunc")
def launch_host_function(host: HostThread, stream: SimStream, bound: BoundHostFunction) -> Call:
    """(stream, host function). A thread of the driver calls the host function in stream order."""
    yield from host.submit_call(host.call_ns("cuLaunchHostFunc"), stream)
    lead = us(host.simulation.profile.locks.callback_us)
    wake_ns = host.sample_ns(host.simulation.callback_wake)
    function = _occupy if bound.function.name == _BUSY else _wait_for_word
    engine = HostExecutor(partial(stream.context.callbacks.add, call=partial(function, host, bound), wake_ns=wake_ns))
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
    clock, open_value = host.clock, bound.function.open_value

    def is_open() -> bool:
        return bool(bound.word.value) is bool(open_value)

    began = clock.now
    deadline = began + bound.timeout_ns
    while not is_open() and clock.now < deadline and not host.simulation.quit:
        yield from host.wait_for_word(bound.word, deadline)
        yield from clock.wait(-(clock.now - began) % LOCK_STEP_NS)
    if not is_open():
        bound.forced.add(1)
        if open_value:
            bound.word.put(open_value)
