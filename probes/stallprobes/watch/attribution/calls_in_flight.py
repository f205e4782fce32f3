"""Calls in flight of a watched process: their age, what they wait beside, and where they were made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from stallprobes.native.layouts.cupti import MemoryKind
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.attribution.findings import CallAlongside, CallInFlight
from stallprobes.watch.attribution.gpu_waits import OVERLAP_SHARE
from stallprobes.watch.attribution.slow_calls import blame_of
from stallprobes.watch.reading.call_stack import CallStack
from stallprobes.watch.reading.process import CallKey, DriverCall, WatchedProcess, WatchedThread


@dataclass(frozen=True)
class WaitingCall:
    """What was read of a call in flight from outside its process: its stack, and where its thread is in the kernel."""

    stack: CallStack | None = None
    kernel_wait: str = ""


@dataclass(frozen=True)
class OutsideReading:
    """What is known of a process from outside.

    ``waiting`` has the calls in flight that were inspected, and those that have returned since. ``problems`` are
    sentences that say what could not be read.
    """

    waiting: Mapping[CallKey, WaitingCall] = field(default_factory=dict)
    problems: tuple[str, ...] = ()


NOTHING_READ = OutsideReading()
_NOT_LOOKED_AT = WaitingCall()


def calls_in_flight(
    process: WatchedProcess, thread: WatchedThread, now_ns: int, waiting: Mapping[CallKey, WaitingCall]
) -> Iterator[CallInFlight]:
    """The calls in flight of ``thread`` at ``now_ns`` (CLOCK_MONOTONIC), the outermost first."""
    for depth, call in enumerate(thread.in_flight):
        age_ns = max(now_ns - call.begin_ns, 0)
        beside = sorted(_beside(process, thread, call, age_ns, now_ns), key=lambda each: -each[1].duration_ns)
        seen = waiting.get(call.key, _NOT_LOOKED_AT)
        yield CallInFlight(
            **(vars(call) | {"thread_name": thread.name}),
            age_ns=age_ns,
            depth=depth,
            cause=beside[0][0] if beside else WaitCause.UNATTRIBUTED,
            beside=tuple(each for _, each in beside),
            stack=seen.stack,
            kernel_wait=seen.kernel_wait,
        )


def _beside(
    process: WatchedProcess, thread: WatchedThread, call: DriverCall, age_ns: int, now_ns: int
) -> Iterator[tuple[WaitCause, CallAlongside]]:
    """Calls in flight of other threads for which ``call`` may wait, once it is slow."""
    if age_ns < process.slow_limit_ns:
        return
    for other in process.threads:
        for each in other.in_flight[:1]:
            pageable = MemoryKind.PAGEABLE in (each.source, each.target)
            cause = blame_of(each.function, each.family, pageable)
            overlap_ns = min(now_ns - each.begin_ns, age_ns)
            same = each.context == call.context != 0 or cause is WaitCause.CONTEXT
            if other is thread or cause is None or not same or overlap_ns < OVERLAP_SHARE * age_ns:
                continue
            if blame_of(call.function, call.family, True) is not None and each.begin_ns > call.begin_ns:
                continue
            yield (
                cause,
                CallAlongside(
                    **(vars(each) | {"thread_name": other.name}),
                    calls=1,
                    duration_ns=max(now_ns - each.begin_ns, 0),
                    overlap_ns=overlap_ns,
                ),
            )
