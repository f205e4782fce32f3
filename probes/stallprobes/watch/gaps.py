"""Sentences that say which evidence about a watched process is missing, and why."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import LossKind
from stallprobes.watch.attribution.causes import WaitCause
from stallprobes.watch.attribution.findings import TimeLost
from stallprobes.watch.attribution.record_store import RecordStore
from stallprobes.watch.call_sites import SiteSums
from stallprobes.watch.reading.process import WatchedProcess


def gaps(
    process: WatchedProcess, lost: Iterable[TimeLost], store: RecordStore, run_delays: bool, sites: SiteSums
) -> Iterator[str]:
    """The sentences about ``process``. ``run_delays``: the time for which threads had no CPU was read."""
    unexplained = any(one.cause is WaitCause.UNATTRIBUTED for one in lost)
    if process.calls_only:
        yield "Only calls were recorded: what waited for the GPU's work has no cause."
    elif not process.kinds:
        yield "No work of the GPU was recorded: what waited for it has no cause."
    elif RecordKind.CONTEXT_SWITCH not in process.kinds:
        yield (
            "Context switches were not recorded, so time-slices of other contexts and processes are not known: "
            "they need CUPTI 13.1 or later."
        )
    elif store.unplaced and unexplained:
        yield (
            f"{store.unplaced} of {store.switches} context switches could not be placed on the host's "
            "clock: too little work started after them to show the GPU's clock."
        )
    if unexplained and not run_delays:
        yield (
            "Whether threads lacked a CPU is not known: that is read ten times a second, while stallscope runs beside "
            "the program."
        )
    missed = store.missed + process.lost_records
    if missed:
        yield f"{missed} records of GPU work were lost: some waits have no cause."
    if process.lost_calls:
        yield f"{process.lost_calls} calls were not recorded."
    if not process.no_stacks:
        yield from _stack_gaps(process, sites)


def _stack_gaps(process: WatchedProcess, sites: SiteSums) -> Iterator[str]:
    without = sum(sites.without.values())
    if not without and not sites.count:
        return
    if process.python and not process.python_stacks:
        yield (
            f"Lines of Python code are known only of calls that py-spy saw in flight: Python {process.python} has no "
            "function that writes them, as 3.11 and 3.12 have."
        )
    if not process.native_stacks:
        yield "Native frames were not recorded: libgcc_s.so.1 was not found in the program's environment."
    no_space = process.losses.get(LossKind.NO_STACK, 0)
    if no_space:
        yield f"{no_space} call stacks were not recorded: there was no space for more different ones."
    elif without and sites.count:
        yield (
            f"{without} of {without + sites.calls} slow calls have no call stack: stacks are taken for at most 1 % of "
            "the time."
        )
