"""Calls in flight with the calls of other threads beside which they have not returned."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.files.codec import attributes
from stallprobes.native.layouts.driver_calls import function_of
from stallprobes.watch.attribution.findings import CallAlongside, CallInFlight
from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE
from stallprobes.watch.attribution.wait_cause import WaitCause, cause_of_task
from stallprobes.watch.division.call_columns import may_hold_up
from stallprobes.watch.reading.process import DriverCall, OutsideReading, WatchedProcess, WatchedThread


def calls_in_flight(
    process: WatchedProcess, thread: WatchedThread, now_ns: int, outside: OutsideReading
) -> Iterator[CallInFlight]:
    """The calls in flight of ``thread`` at ``now_ns`` (CLOCK_MONOTONIC), the outermost first."""
    for depth, call in enumerate(thread.in_flight):
        age_ns = max(now_ns - call.begin_ns, 0)
        beside = sorted(_beside(process, thread, call, age_ns, now_ns), key=lambda each: -each[1].duration_ns)
        yield CallInFlight(
            **(attributes(call, DriverCall) | {"thread_name": thread.name}),
            age_ns=age_ns,
            depth=depth,
            cause=beside[0][0] if beside else WaitCause.UNATTRIBUTED,
            beside=tuple(each for _, each in beside),
            stack=outside.stacks.get(call.key),
            kernel_wait=outside.kernel_waits.get(call.key, ""),
        )


def _beside(
    process: WatchedProcess, thread: WatchedThread, call: DriverCall, age_ns: int, now_ns: int
) -> Iterator[tuple[WaitCause, CallAlongside]]:
    """Calls in flight of other threads for which ``call`` may wait, once it is slow."""
    if age_ns < process.slow_limit_ns:
        return
    for other in process.threads:
        for each in other.in_flight[:1]:
            holds = function_of(each.function).holds(each.pageable)
            cause = cause_of_task(holds)
            overlap_ns = min(now_ns - each.begin_ns, age_ns)
            if other is thread or cause is None or overlap_ns < OVERLAP_SHARE * age_ns:
                continue
            if not may_hold_up(holds, each.context, call.context):
                continue
            if function_of(call.function).holds(True) and each.begin_ns > call.begin_ns:
                continue
            yield (
                cause,
                CallAlongside(
                    **(attributes(each, DriverCall) | {"thread_name": other.name}),
                    calls=1,
                    duration_ns=max(now_ns - each.begin_ns, 0),
                    overlap_ns=overlap_ns,
                ),
            )
