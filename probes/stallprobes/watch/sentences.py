"""Sentences about findings: what a slow call waited for, the time that a thread lost, and which evidence is missing."""

from __future__ import annotations

import os.path
from collections.abc import Iterable, Iterator, Sequence

from stallprobes.native.layouts.cupti import RecordKind
from stallprobes.native.layouts.watch_file import GRAPHS_PER_S, LossKind
from stallprobes.units import duration_ns, format_count, plural, size_text
from stallprobes.watch.attribution.evidence_text import alongside_text, thread_text
from stallprobes.watch.attribution.findings import CallInFlight, CallSite, ExplainedCall, ThreadFindings, TimeLost
from stallprobes.watch.attribution.record_store import RecordStore
from stallprobes.watch.attribution.wait_cause import Certainty, WaitCause
from stallprobes.watch.call_sums import SiteSums
from stallprobes.watch.causes.order import cause_of
from stallprobes.watch.cost import AttachingCost, WatchCost
from stallprobes.watch.division.divided_time import MOST_EVENTS
from stallprobes.watch.reading.call_stack import UNKNOWN_PYTHON, CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.kernel_names import short_name
from stallprobes.watch.reading.kernel_wait import RUNNING
from stallprobes.watch.reading.process import WatchedProcess

# Smallest number of context switches that a sentence reports as not placed on the host's clock. Reason: each process
# has a few of these switches at its start.
_MANY_SWITCHES = 16
# Smallest divided share of a process's time at which the division into parts counts as complete. A sentence reports a
# smaller share. Reason for a limit below 1: after a burst of calls, some time remains undivided.
_USUALLY_DIVIDED = 0.95
# Shortest time (ns) of calls at one place for which their rate is printed. For a shorter time, as in a start-up, the
# number and the time are printed.
_LASTS_NS = 5_000_000_000
# Smallest cost of watching (share of the time) that is printed as a figure.
_LEAST_COST = 0.001
# Smallest time that CUPTI adds to launches and instantiations of graphs, as a share of the program's time, that the
# report mentions.
_LEAST_OF_GRAPHS = 0.02


def cause_text(call: ExplainedCall) -> str:
    """What ``call`` waited for, as a clause: ``because of GPU work in front of it: reduce_kernel (15.1 ms)``."""
    cause = cause_of(call.cause)
    if cause.sentence or call.certainty is None:
        return cause.sentence
    named = ", ".join(cause.evidence(call))
    text = f"{call.certainty.preposition} {cause.clause}" + (f": {named}" if named else "")
    if call.evidence.alike:
        text += f", as {call.evidence.alike} calls like it while work was recorded"
    if call.evidence.known_by:
        text += f", a pair that stalls by {call.evidence.known_by}"
    if call.share < 1 and round(100 * call.share) < 100:
        text += f", which covers {100 * call.share:.0f} % of the delay"
    return text


def took_text(call: ExplainedCall, alike: Sequence[ExplainedCall] = ()) -> str:
    """A slow call and its duration: ``cuMemcpyDtoH_v2 of 4 bytes in MainThread (thread 7) took 5.03 ms``.

    With calls that are ``alike``, it is one of these: ``took 4.00 ms to 5.03 ms in 41 calls, the last one 5.03 ms``.
    """
    size = f" of {size_text(call.bytes)}" if call.bytes is not None else ""
    where = thread_text(call.thread, call.thread_name)
    place = call.stack.place if call.stack is not None else None
    made = f", called from {frame_text(place)}" if place is not None else ""
    made += f", in the NVTX range {call.range}" if call.range else ""
    made += "," if made else ""
    took = duration_ns(call.duration_ns)
    if len(alike) > 1:
        least, most = (duration_ns(each(other.duration_ns for other in alike)) for each in (min, max))
        same, differ = f"in each of {len(alike)} calls, the last one", f"in {len(alike)} calls, the last one {took}"
        took = f"{took} {same}" if least == most else f"{least} to {most} {differ}"
    return f"{call.function}{size} in {where}{made} took {took}"


def call_text(call: ExplainedCall, alike: Sequence[ExplainedCall] = ()) -> str:
    """A slow call and its cause in a sentence, with calls that are ``alike``, as ``took_text`` says them."""
    return f"{took_text(call, alike)} {cause_text(call)}."


def no_stall_text(limit_ns: int) -> str:
    """The sentence about a program without a slow call."""
    return f"No stall: no finished call took {duration_ns(limit_ns)} or longer."


def in_flight_text(call: CallInFlight, ended: bool = False) -> str:
    """A call in flight in a sentence, with the calls beside which it has not returned; ``ended``: its process has."""
    text = f"{call.function} in {thread_text(call.thread, call.thread_name)} has not returned for "
    text += duration_ns(call.age_ns)
    if call.beside:
        text += f", {Certainty.BESIDE.preposition} {alongside_text(call.beside[0])}"
    place = call.stack.place if call.stack is not None else None
    if place is not None:
        text += f"; it was called from {frame_text(place)}"
    if call.kernel_wait == RUNNING:
        text += "; its thread runs on a CPU"
    elif call.kernel_wait:
        text += f"; its thread waits in the kernel ({call.kernel_wait})"
    return f"{text}." + (" It had not when the process ended." if ended else "")


def frame_text(frame: StackFrame) -> str:
    """A frame as a sentence names it: ``train.py:42 in step``, ``solve in solver``."""
    folder, file = os.path.split(frame.file)
    # Its name alone says nothing.
    file = os.path.join(os.path.basename(folder), file) if file == "__init__.py" else file
    if frame == UNKNOWN_PYTHON:
        return "an unknown line of Python"
    if frame.kind is FrameKind.PYTHON:
        line = f":{frame.line}" if frame.line is not None else ""
        return f"{file or 'an unknown file'}{line}" + (f" in {frame.function}" if frame.function else "")
    if frame.source:
        return f"{os.path.basename(frame.source)}:{frame.line}" + (
            f" in {short_name(frame.function)}" if frame.function else ""
        )
    if frame.function:
        return short_name(frame.function) + (f" in {file}" if file else "")
    return f"{file}+{frame.offset or 0:#x}" if file else f"address {frame.offset or 0:#x}"


def stack_text(stack: CallStack) -> str:
    """The place of a stack, with the caller of its function: ``train.py:42 in step, called by train.py:80 in main``."""
    if not stack.own:
        return "an unknown place"
    caller = f", called by {frame_text(stack.own[1])}" if len(stack.own) > 1 and stack.python else ""
    return frame_text(stack.own[0]) + caller


def site_text(site: CallSite) -> str:
    """The calls of a place: ``400 blocking 4-byte copies a second from train.py:42 in step``."""
    about = "about " if site.calls > site.recorded else ""
    rate, span_ns = site.per_second, site.last_ns - site.first_ns
    often, count = "", site.calls
    if rate is not None and rate >= 1:
        lasts = span_ns >= _LASTS_NS
        often, count = (" a second", round(rate)) if lasts else (f" in {duration_ns(span_ns)}", count)
    if site.is_copy:
        size = "" if site.bytes is None else size_text(site.bytes).replace("bytes", "byte").replace(" ", "-") + " "
        what = f"{'blocking ' if site.blocking else ''}{size}{'copy' if count == 1 else 'copies'}"
    else:
        what = f"{'call' if count == 1 else 'calls'} of {site.function}"
    return f"{about}{count} {what}{often} from {stack_text(site.stack)}"


def attaching_text(cost: AttachingCost) -> str:
    """What attaching cost a process."""
    if cost.stopped_ns:
        begin = f"To load the library, a thread of process {cost.pid} was stopped for {duration_ns(cost.stopped_ns)}."
    else:
        begin = f"The library was in process {cost.pid} already."
    text = f"{begin} Attaching and detaching held a call up for {duration_ns(cost.held_up_ns)} at most."
    if cost.profiler:
        text += (
            " Its own profiler gets no records until it ends: a second libcupti recorded it, which tells the "
            "time-slices of other processes."
        )
    if cost.after_high < _LEAST_COST and not cost.graphs:
        return text
    low = f"{100 * cost.after_low:.1f} to " if cost.after_low else "up to "
    text += f" Until it ends, the process stays slower by {low}{100 * cost.after_high:.1f} % (computed from its calls)"
    text += ", and each node of a graph that it instantiates by 0.6 to 2.4 µs" if cost.graphs else ""
    return f"{text}; with --calls-only it is less, or nothing." if cost.after_low else f"{text}."


def cost_text(cost: WatchCost) -> str:
    """What watching costs, in a sentence: ``Watching cost the program 2.1 to 4.3 % of its time (measured 9 times).``"""
    share = f"Watching cost the program {_share_text(cost, ' to ')} of its time"
    if cost.compared:
        share += f" (measured {cost.compared} times)."
    else:
        share += f": computed from its {'calls and records' if cost.recorded else 'calls'}, not measured."
    if cost.graphs < _LEAST_OF_GRAPHS:
        return share
    graphs = f"by up to {100 * cost.graphs:.1f} % of its time"
    return f"{share} CUPTI itself makes launches and instantiations of its graphs longer: {graphs}, with any --cost."


def short_cost_text(cost: WatchCost) -> str:
    """What watching costs, in few words: ``watching costs 2.1–4.3 %``; if not measured, ``watching may cost 5.0 %``."""
    if cost.compared or cost.high < _LEAST_COST:
        return f"watching costs {_share_text(cost, '–')}"
    return f"watching may cost {_share_text(cost.changed(low=cost.high), '–')}"


def _share_text(cost: WatchCost, between: str) -> str:
    """The limits of a cost in percent: ``2.1 to 4.3 %``."""
    if cost.high < _LEAST_COST:
        return f"less than {100 * _LEAST_COST:g} %"
    most = f"{100 * cost.high:.1f} %"
    if cost.low < _LEAST_COST:
        return f"up to {most}"
    return most if cost.low == cost.high else f"{100 * cost.low:.1f}{between}{most}"


def loss_text(loss: TimeLost) -> str:
    """A cause with its culprit: ``pageable copy in loader (thread 101)``."""
    return cause_of(loss.cause).word + (
        f" in {thread_text(loss.thread, loss.thread_name)}" if loss.thread is not None else ""
    )


def headline(thread: ThreadFindings) -> str:
    """The time that a thread lost, by cause: ``23 % of the time of MainThread is waiting: 61 % GPU work, 30 % …``."""
    who = thread_text(thread.id, thread.name)
    if not thread.lost_ns:
        return f"No call of {who} was slow."
    shares = [(round(100 * loss.ns / thread.lost_ns), loss_text(loss)) for loss in thread.lost]
    causes = ", ".join(f"{share} % {text}" for share, text in shares if share)
    share = "Less than 1 %" if thread.lost_share < 0.005 else f"{100 * thread.lost_share:.0f} %"
    return f"{share} of the time of {who} is waiting: {causes}."


def skipped_texts(names: int, files: int) -> Iterator[str]:
    """The sentences about ``names`` of functions and ``files`` of code that are beyond what is read."""
    if names:
        yield (
            f"{plural(names, 'name')} of functions could not be demangled within the limits of time and memory, and "
            f"{'is' if names == 1 else 'are'} shown as in the program."
        )
    if files:
        yield (
            f"{plural(files, 'file')} of code could not be read within the limits of time and memory: "
            f"{'its' if files == 1 else 'their'} functions and lines have no names."
        )


def gaps(
    process: WatchedProcess,
    lost: Iterable[TimeLost],
    store: RecordStore,
    run_delays: bool,
    sites: SiteSums,
    now_ns: int,
    sampled: bool = False,
    missed_samples: int = 0,
    divided_share: float = 1.0,
) -> Iterator[str]:
    """What evidence about ``process`` is missing at ``now_ns``, and why.

    ``run_delays``: the time for which threads had no CPU was read. ``sampled``: threads took samples of their time, of
    which ``missed_samples`` were overwritten before they were read. ``divided_share`` of its time (0 to 1) is divided.
    """
    unexplained = any(loss.cause is WaitCause.UNATTRIBUTED for loss in lost)
    if process.calls_only:
        yield "Only calls were recorded: what waited for the GPU's work has no cause."
    elif process.leaves_graphs:
        yield (
            f"Work of the GPU was not recorded while the program instantiated {GRAPHS_PER_S} graphs a second or more: "
            f"watching may cost {100 * process.budget:g} % of its time. --cost 100 records all of it."
        )
    elif not process.kinds:
        yield "No work of the GPU was recorded: what waited for it has no cause."
    elif RecordKind.CONTEXT_SWITCH not in process.kinds:
        yield (
            "Context switches were not recorded, so time-slices of other contexts and processes are not known: "
            "they need CUPTI 13.1 or later."
        )
    elif store.unplaced >= _MANY_SWITCHES and unexplained:
        yield (
            f"{store.unplaced} of {store.switches} context switches could not be placed on the host's "
            "clock: too little work started after them to show the GPU's clock."
        )
    if len(process.windows) and process.kinds:
        share = 100 * process.windows.share_on(now_ns)
        yield (
            f"Work of the GPU was recorded in {share:.0f} % of the time, to cost the program at most "
            f"{100 * process.budget:g} %: --cost 100 records all of it."
        )
    if process.windows.quiet.any():
        yield (
            f"Launches, queries and other frequent calls were followed in "
            f"{100 * process.windows.share_followed(now_ns):.0f} % of the time, to cost the program at most "
            f"{100 * process.budget:g} %: slow ones in the rest of it are not known. --cost 100 follows all calls."
        )
    if any(name.startswith("cuMemAllocManaged") for thread in process.threads for name in thread.figures):
        yield "The program uses managed memory: its kernels may contain page migration, which is not recorded."
    if divided_share < _USUALLY_DIVIDED:
        yield (
            f"Only {100 * divided_share:.0f} % of its time was divided, as a sample: what is watched makes more than "
            f"{format_count(MOST_EVENTS)} calls and operations of the GPU a second."
        )
    if process.not_held:
        yield (
            f"{process.not_held} calls of the program could not be held while records were switched: some records may "
            "be missing from then on. Use --cost 100, which switches none."
        )
    if unexplained and not run_delays:
        yield (
            "Whether threads lacked a CPU is not known: that is read ten times a second, while stallscope runs beside "
            "the program."
        )
    missed = store.missed + process.lost_records
    if missed:
        yield f"{missed} records of GPU work were lost: some waits have no cause."
    if process.unfinished:
        yield (
            f"{plural(process.unfinished, 'record')} of calls that were held up had no content when CUPTI gave its "
            "buffers back: their work is missing."
        )
    if process.nameless_kernels:
        yield (
            f"{plural(process.nameless_kernels, 'kernel')} ran without a name: there was no space for more different "
            "ones. Whether such a kernel communicates, or ran for the first time, is not known: it counts as computing."
        )
    if process.lost_calls:
        yield f"{process.lost_calls} calls were not recorded."
    unlogged = process.losses.get(LossKind.NO_BLOCK, 0)
    if unlogged:
        yield f"{unlogged} calls are counted, and in no trace: there was no space to log them."
    if not process.no_stacks:
        yield from _stack_gaps(process, sites, sampled)
    if missed_samples:
        yield f"{missed_samples} samples of the threads' time were overwritten before they were read."


def _stack_gaps(process: WatchedProcess, sites: SiteSums, sampled: bool) -> Iterator[str]:
    without = sites.without.total()
    if not without and not sites.sites and not sampled:
        return
    if process.python and not process.python_stacks:
        python = "free-threaded Python" if process.free_threaded else f"this build of Python {process.python}"
        yield (
            "Lines of Python code are known only of calls that py-spy saw in flight: stallscope does not know how "
            f"{python} keeps its frames, only how 3.11 to 3.15 do with the global lock."
        )
    if not process.native_stacks:
        yield "Native frames were not recorded: libgcc_s.so.1 was not found in the program's environment."
    no_space = process.losses.get(LossKind.NO_STACK, 0)
    if no_space:
        yield f"{no_space} call stacks were not recorded: there was no space for more different ones."
    elif without and sites.sites:
        yield (
            f"{without} of {without + sites.calls} slow calls have no call stack: stacks are taken for at most 1 % of "
            "the time."
        )
