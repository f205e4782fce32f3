"""Sentences about the lines of a program: where its time passes, what is done there, what it costs and what helps."""

from __future__ import annotations

import os.path
import re
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from stallprobes.foreign_text import printable
from stallprobes.native.layouts.driver_calls import CallFamily, CallKind, family_of, function_of
from stallprobes.units import duration_ns, format_count, plural
from stallprobes.watch import division_text
from stallprobes.watch.attribution.evidence_text import thread_text
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.attribution.wait_cause import OTHER_THREAD, WaitCause, cause_of_task
from stallprobes.watch.causes.order import cause_of
from stallprobes.watch.division.outside_waits import OUTSIDE_NAME
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.result import GPU_LIMIT, LEAST_FEW
from stallprobes.watch.division_text import figure_text, moves_pages, percent
from stallprobes.watch.lines.lines import copies_always, count_alike
from stallprobes.watch.lines.places import PACKAGES, place_of
from stallprobes.watch.lines.result import HoldingCalls, InnerPlace, ProgramLine, ProgramSequence, TaskTime, WaitPlace
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame
from stallprobes.watch.reading.compilers import DeviceCompiler
from stallprobes.watch.reading.library_tasks import LibraryTask
from stallprobes.watch.sentences import frame_text

# Smallest share of a program line's cost at which one sort of time (in waits, in calls, between calls) is named.
_LEAST_NAMED = 0.1
# Smallest cost (share of the time) at which a line of the program is shown with a remedy, or a place in the code that
# waits is shown. A place with at least one call per second is shown too. Also the smallest difference between the time
# and the price of a line's waits at which the report gives the time too.
_LEAST_SHOWN = 0.01
# Smallest cost (share of the time) of a program line at which a sentence names the places in called functions where
# most of that cost is.
_LEAST_WITH_INNER = 0.1
# Smallest cost (share of the time) of a task of a library at which a sentence is about it, and the share of the task at
# one line from which on it counts as all of it.
_LEAST_TASK, _NEARLY_ALL = 0.05, 0.95
# Smallest rate (calls a second) that is printed without a decimal.
_LEAST_RATE = 9.5
# Smallest price (largest possible cost of waits, as a share of the time) that is printed as a figure. A smaller price
# is printed as "less than 1 %". If a line mostly waits and has a smaller price, its remedy is about its GPU work.
_LEAST_PRICE = 0.005
# Smallest part of a line's cost that a task of a library must have for its remedy: _LEAST_OF_MAIN for the task that is
# the reason of the verdict.
_LEAST_OF_TASK, _LEAST_OF_MAIN = 0.5, 0.25
# Remedy for time between calls.
_BETWEEN_REMEDY = "Do this work of the host once, in another thread, or while the GPU has work in its queue."
# Remedy for time inside calls that submit work, such as launches.
_CALLS_REMEDY = "Submit more work with each call: larger batches, fused kernels, or a CUDA graph."
# Remedy for time inside launches of CUDA graphs.
_GRAPHS_REMEDY = "Submit more work with each call: larger batches, fused kernels, or several steps in one graph."
# Remedies for time between calls in which the host does not compute, by the verdict about the sequence.
_HOST_REMEDIES = {
    Bound.ASLEEP: "The host sleeps here: if it waits for input, prepare it ahead in other threads or processes; if it "
    "waits for requests, it has time to spare.",
    Bound.OWN_SLEEP: "The host sleeps here for a time that it sets: sleep less, or wait for what is needed.",
    Bound.CHILD: "The host waits here for a child process: start it ahead, or keep what it makes.",
    Bound.INPUT: "The host waits here for data: have more or faster processes prepare it.",
    Bound.THREAD: "The host waits here for another thread: make that one faster, or have it prepare more ahead.",
    Bound.IDLE: "The host waits here for data or requests from outside: it has time to spare.",
    Bound.CPUS: "The host is ready to run here: give it more CPUs, or use fewer threads and processes beside it.",
}
# Remedy for time between calls in which the thread waits for the lock of Python's interpreter.
_INTERPRETER_REMEDY = (
    "The host waits here for Python's global lock: have other threads work in processes, or in code that releases it."
)
# Remedy for time between calls in which the thread waits for a lock of the module threading.
_OWN_LOCK_REMEDY = (
    "The host waits here for a lock: have the thread that has it give it back sooner, such as to work on a copy."
)
# Remedy for the line with most of the host's time, in a process with page faults in managed memory.
_PAGES_REMEDY = (
    "The host may wait here for pages of managed memory that move from the GPU: prefetch them (cudaMemPrefetchAsync), "
    "or copy only what it needs."
)
# Remedy for a line at which Python collects garbage for most of the host's time.
_COLLECTING_REMEDY = (
    "Python collects garbage here: collect less often (gc.set_threshold, or fewer calls of gc.collect), or let it skip "
    "what stays (gc.freeze)."
)
# Remedies for a compiler of device code that runs in the steady state.
_COMPILER_REMEDIES = {
    DeviceCompiler.TRITON: "pass what changes as a plain argument, not as tl.constexpr, or compile all cases ahead.",
    DeviceCompiler.TORCH: "compile with dynamic=True, or keep shapes and what its guards check the same "
    "(TORCH_LOGS=recompiles names the guard).",
    DeviceCompiler.JAX: "keep shapes, types and static arguments the same (JAX_LOG_COMPILES=1 names what is compiled).",
    DeviceCompiler.CUPY: "keep the kernel and call it again: one with another source or other types is compiled anew.",
    DeviceCompiler.NUMBA: "call the kernel with the same types, or compile it ahead for all signatures.",
    DeviceCompiler.NVRTC: "keep what is compiled, and compile for all cases before the critical part.",
}
# Remedy for waits in which kernels wait for kernels of other streams.
_STREAMS_REMEDY = "Its streams wait for each other meanwhile: leave out events between work that does not depend on it."
# Remedy for waits for the GPU.
_WAITS_REMEDY = "Submit the next work before this wait, or wait for several steps at once."
# Remedy for time between calls that the program mostly spends in waits for the GPU outside calls.
_OUTSIDE_REMEDY = (
    "The program waits here for the GPU outside calls, as by polling memory or for a host function: submit the next "
    "work before that."
)
# Pattern of the name of a PyTorch thread that runs the backward pass.
_AUTOGRAD = re.compile(r"autograd \d+$")
# Pattern of functions that copy from one place of a GPU to another, or to another GPU.
_ON_GPUS = re.compile(r"cuMemcpy(?:DtoD|DtoA|AtoD|AtoA|(?:3D)?Peer)")
# Remedy for calls that copy to the GPU and block.
_UPLOAD_REMEDY = "Copy from pinned memory with an asynchronous call, which does not block."
# Causes of a wait that lie outside the waiting function: a remedy for the function does not help.
_OF_OTHERS = (
    WaitCause.HELD_STREAM, WaitCause.OTHER_CONTEXT, WaitCause.OTHER_PROCESS, WaitCause.STAGED_COPY, WaitCause.NO_CPU,
)  # fmt: skip
# Causes of a long call that lie outside the called function: those of _OF_OTHERS, and calls of other threads.
_OF_CALLS = (*_OF_OTHERS, *OTHER_THREAD)
# Remedy for lines of a sequence that communication bounds, if no late rank is known.
_COMMUNICATION_REMEDY = "The GPU communicates meanwhile: communicate less, or beside other kernels."
# Remedy for lines of a sequence whose GPU mostly goes from one small kernel to the next.
_GAPS_REMEDY = "The GPU has work meanwhile: fewer and larger kernels make the program faster, as by fusion."
# Remedy for lines of a sequence whose GPU mostly waits for host functions in its streams.
_HELD_REMEDY = (
    "The GPU waits meanwhile for functions on the host (cuLaunchHostFunc): make them shorter, or have them wake a "
    "thread that does their work beside the GPU's."
)
# Remedy for lines of a sequence whose GPUs wait for each other.
_TURNS_REMEDY = "Have its GPUs work at the same time: a pipeline of small batches, or a batch for each GPU."
# Remedy for lines of a copy-bound sequence whose GPU always works, but for copies that block.
_COPIES_REMEDY = "The GPU copies meanwhile: copy less, from pinned memory, or beside kernels on a stream of its own."
# Functions that wait for all work of the context.
_DEVICE_WAITS = ("cuCtxSynchronize", "cuCtxSynchronize_v2")
# Remedy for calls of _DEVICE_WAITS that also wait for work of other threads.
_DEVICE_REMEDY = "It waits for the work of other threads too: wait for a stream or an event of its own instead."
# Remedy for lines of a GPU-bound sequence, and for waits with a small price.
_GPU_REMEDY = "The GPU has work meanwhile: only less work for it makes the program faster."
# Remedy in place of _GPU_REMEDY if the host works nearly all the time too.
_BOTH_REMEDY = "The GPU and the host both work nearly all the time: less work for one of them alone gains little."
# Remedy in place of _GPU_REMEDY if the GPU works in kernels of few blocks.
_SMALL_REMEDY = (
    "The GPU has work meanwhile, but most of it is unused: kernels of more blocks, as by larger batches, or kernels "
    "beside each other on several streams make the program faster."
)


def place_text(line: ProgramLine, process: ProcessFindings) -> str:
    """Place of a line: ``train.py:42 in step``; without a line of the program, the activity of the thread."""
    return _where(line.place, line.thread, process)


def what_text(line: ProgramLine, by_time: bool) -> str:
    """Activity at a line: ``waits in cuStreamSynchronize``, ``host time before cuLaunchKernel 9 %, ...``.

    Waits have their price, unless lines are ordered ``by_time``, and their time where it is longer.
    """
    sorts = sorted(_sorts(line, by_time), key=lambda sort: -sort[0])
    named = [sort for sort in sorts if sort[0] >= _LEAST_NAMED * line.cost.share or sort[2]] or sorts[:1]
    if len(named) == 1:
        return named[0][1] + named[0][2]
    return ", ".join(f"{text} {percent(share)}{more}" for share, text, more in named)


def line_text(line: ProgramLine, process: ProcessFindings, sequence: ProgramSequence) -> str:
    """A line of ``sequence`` in a sentence: its place, what it costs or its share of the time, and what is done there.

    The thread is named unless it is the first one of the sequence.
    """
    where, by_time = place_text(line, process), count_alike(sequence)
    if line.thread != sequence.threads[0] and line.place is not None:
        where += f" ({_name_of(line.thread, process) or thread_text(line.thread, '')})"
    figure = f"has {figure_text(line.cost)} of the time" if by_time else f"costs up to {figure_text(line.cost)}"
    return f"{where} {figure}: {what_text(line, by_time)}."


def inner_text(line: ProgramLine) -> str:
    """Where a line that costs much does so: ``Of it modeling.py:245 in forward 12 %, linear.py:125 in forward 9 %.``"""
    others = [inner for inner in line.inner if not _is_line(inner.place, line.place)]
    if not others or line.cost.share < _LEAST_WITH_INNER:
        return ""
    return f"Of it {', '.join(inner_place_text(inner, line) for inner in line.inner)}."


def inner_place_text(inner: InnerPlace, line: ProgramLine) -> str:
    """An innermost frame of a line with its part of the cost: ``modeling.py:245 in forward 12 %``."""
    return f"{_inner(inner.place, line)} {percent(inner.cost)}"


def short_line_text(line: ProgramLine, process: ProcessFindings, sequence: ProgramSequence) -> str:
    """Line of ``sequence`` in few words, its cost or its share of the time first: `` 41 % train.py:42 in step: waits in
    cuStreamSynchronize``."""
    return f"{percent(line.cost.share):>5} {place_text(line, process)}: {what_text(line, count_alike(sequence))}"


def wait_text(wait: WaitPlace, process: ProcessFindings, sequence: ProgramSequence) -> str:
    """Waits in a sentence: ``train.py:42 in step, in loss.py:7 in item: about 900 calls of cuStreamSynchronize a
    second, which cost up to 1 %.``"""
    where = _where(wait.place, wait.thread, process)
    named = wait.inner is not None and wait.place != PACKAGES and not _is_line(wait.inner, wait.place)
    inner = f", in {frame_text(wait.inner)}" if wait.inner is not None and named else ""
    rate = format_count(round(wait.per_second)) if wait.per_second >= _LEAST_RATE else f"{wait.per_second:.1f}"
    # A run of queries is one wait.
    call, by = ("wait", "by") if family_of(wait.function) is CallFamily.QUERY else ("call", "of")
    calls = f"about {rate} {call}{'' if rate == '1' else 's'} {by} {wait.function} a second"
    if count_alike(sequence):
        return f"{where}{inner}: {calls}, {percent(wait.share)} of the time."
    if not sequence.price.is_known:
        return f"{where}{inner}: {calls}."
    price = f"up to {percent(wait.price)}" if wait.price >= _LEAST_PRICE else "less than 1 %"
    return f"{where}{inner}: {calls}, which cost {price}."


def holding_text(holding: Sequence[HoldingCalls], process: ProcessFindings) -> str:
    """Calls of one function in one thread that hold up those of one or several sequences, in a sentence:
    ``cuMemFree_v2 in server.py:10 in cleaner holds up about 5 calls a second of other threads, 3 % of their time.``"""
    first = holding[0]
    rate = sum(each.per_second for each in holding)
    number = f"{rate:.0f}" if rate >= _LEAST_RATE else f"{rate:.1f}"
    share = sum(each.share for each in holding) / len(holding)
    most = max(holding, key=lambda each: each.calls).held
    return (
        f"{_holder(first, process)} holds up {number} calls a second of other threads, most of them {most}: "
        f"{percent(share)} of their time."
    )


def task_text(task: TaskTime, process: ProcessFindings) -> str:
    """A task of a library in a sentence: ``cuDNN searches for an algorithm up to 41 % of the time, at train.py:42 in
    step: keep the shapes ...``"""
    where = _where(task.place, task.thread, process)
    place = f"{'' if task.place_share >= _NEARLY_ALL else 'most of it '}at {where}"
    traits = task.task.traits
    failed = _failed_allocations(process) if task.task is LibraryTask.CACHE_FREE else 0
    counted = f" ({plural(failed, 'allocation')} failed)" if failed else ""
    return f"{traits.clause} up to {percent(task.cost)} of the time, {place}{counted}: {traits.remedy}"


def _failed_allocations(process: ProcessFindings) -> int:
    rows = (row for thread in process.threads for row in thread.rows)
    return sum(row.failed for row in rows if function_of(row.function).kind is CallKind.ALLOCATES)


def tasks_text(sequence: ProgramSequence, process: ProcessFindings) -> str:
    """What tasks of libraries cost a sequence; "" without any that cost much."""
    shown = (task for task in sequence.tasks if task.cost >= _LEAST_TASK)
    return " ".join(task_text(task, process) for task in shown)


def sequence_texts(sequence: ProgramSequence, process: ProcessFindings) -> tuple[str, ...]:
    """Sentences beside the verdict of a sequence, in their order; "" for those with nothing to say."""
    return (
        division_text.figures_text(sequence),
        division_text.interpreter_text(sequence),
        tasks_text(sequence, process),
        division_text.awaited_text(sequence, process),
        division_text.workers_text(sequence, process),
        division_text.cpus_text(sequence, process),
        division_text.faults_text(process),
        division_text.ranks_text(sequence, process),
    )


def holding_calls(process: ProcessFindings) -> list[tuple[HoldingCalls, ...]]:
    """Calls that hold up those of other threads, each with its effect on every sequence, most time first."""
    calls: dict[tuple[int, str], list[HoldingCalls]] = {}
    for sequence in process.sequences:
        for calling in sequence.holding:
            calls.setdefault((calling.thread, calling.function), []).append(calling)
    return sorted(map(tuple, calls.values()), key=lambda group: -sum(each.share for each in group))


def shown_waits(sequence: ProgramSequence, most: int) -> tuple[WaitPlace, ...]:
    """First waits of a sequence that cost something or are many, at most ``most``."""
    named = (waits for waits in sequence.wait_places if waits.place is not None)
    return tuple(waits for waits in named if waits.price >= _LEAST_SHOWN or waits.per_second >= 1)[:most]


def shown_lines(sequence: ProgramSequence, most: int) -> tuple[ProgramLine, ...]:
    """First lines of a sequence that are worth showing, at most ``most``."""
    return tuple(line for line in sequence.lines if line.cost.share >= _LEAST_SHOWN)[:most]


def lines_title(sequence: ProgramSequence) -> str:
    """The title of the lines of ``sequence``."""
    return "Lines with most of the time" if count_alike(sequence) else "Lines that cost most"


def remedy_text(line: ProgramLine, process: ProcessFindings, sequence: ProgramSequence) -> str:
    """Remedy for the largest cost of a line of ``sequence``, by its cause; "" where none is known, or needed."""
    if line.place is None or (line.cost.share < _LEAST_SHOWN and not count_alike(sequence)):
        return ""
    task = max(line.tasks, key=lambda each: line.tasks[each], default=None)
    # What is seen of a task is a least.
    least = _LEAST_OF_MAIN if task is not None and task is sequence.main_task else _LEAST_OF_TASK
    if task is not None and line.tasks[task] >= least * line.cost.share:
        return f"{task.traits.clause} here: {task.traits.remedy}"
    for holding in sequence.holding:
        inside = line.calls.share > max(line.between.share, line.price)
        if inside and holding.held == line.calls.function and holding.share >= line.calls.share / 2:
            return f"It waits for {_holder(holding, process)}. {_of_call(holding.function)}"
    if sequence.verdict is Bound.STREAMS and line.waits.share > max(line.between.share, line.calls.share):
        return _STREAMS_REMEDY
    if sequence.verdict is Bound.TURNS:
        return _TURNS_REMEDY
    if sequence.verdict is Bound.GAPS:
        return _GAPS_REMEDY
    if sequence.verdict is Bound.HELD:
        return _HELD_REMEDY
    if sequence.verdict is Bound.GPU:
        # The program is no faster without such a wait, but what comes behind it is.
        by_waits = line.waits.share > max(line.between.share, line.calls.share)
        staged = _of_cause(line, line.waits.function, process, (WaitCause.STAGED_COPY,)) if by_waits else ""
        return f"{_gpu_remedy(sequence)} {staged}".rstrip()
    if sequence.verdict is Bound.COMMUNICATION and sequence.gpu.share >= sequence.host.share:
        blamed = sequence.blamed
        return (
            _COMMUNICATION_REMEDY
            if blamed is None
            else f"The GPU waits for {printable(blamed.name)}: make that faster."
        )
    if copies_always(sequence):
        if family_of(line.waits.function) is CallFamily.COPY and line.waits.share > line.between.share:
            return _of_cause(line, line.waits.function, process, _OF_OTHERS) or _of_wait(line.waits.function)
        if count_alike(sequence):
            return _COPIES_REMEDY
    waits = line.price if sequence.divided else line.waits.share
    if line.between.share > waits and line.between.share >= line.calls.share:
        if sequence.verdict is Bound.WAIT and sequence.waits and sequence.waits[0].function == OUTSIDE_NAME:
            return _OUTSIDE_REMEDY
        if line.compiler is not None and 2 * line.compiles >= line.between.share:
            return _compiles(line.compiler, sequence)
        if 2 * _collects_at(line, sequence) >= line.between.share:
            return _COLLECTING_REMEDY
        if sequence.verdict is Bound.THREAD and 2 * sequence.interpreter >= line.between.share:
            return _INTERPRETER_REMEDY
        if 2 * line.own_lock >= line.between.share:
            return _OWN_LOCK_REMEDY
        most = max((each.between.share for each in sequence.lines), default=0.0)
        if 2 * line.between.share < most:
            return _of_host(line)
        moving = _PAGES_REMEDY if moves_pages(process) else ""
        return _HOST_REMEDIES.get(sequence.verdict) or moving or _of_host(line)
    if line.calls.share > waits:
        return _of_cause(line, line.calls.function, process, _OF_CALLS) or _of_call(line.calls.function)
    if sequence.divided and line.price < _LEAST_PRICE:
        return _gpu_remedy(sequence)
    if sequence.awaited and line.waits.function in _DEVICE_WAITS:
        return _DEVICE_REMEDY
    return _of_cause(line, line.waits.function, process, _OF_OTHERS) or _of_wait(line.waits.function)


def _collects_at(line: ProgramLine, sequence: ProgramSequence) -> float:
    """The least share of the time in which Python collects garbage at a line: what other lines leave no room for."""
    between = max(sum(each.between.share for each in sequence.lines), sequence.share(Part.HOST))
    return sequence.collects - (between - line.between.share)


def _compiles(compiler: DeviceCompiler, sequence: ProgramSequence) -> str:
    """How often a compiler works for a sequence, and its remedy: ``Triton compiles here again and again, 2.1 modules a
    second, 84 ms each: ...``."""
    rate, often = sequence.loads_per_second, ""
    if rate:
        number = f"{rate:.0f}" if rate >= _LEAST_RATE else f"{rate:.2g}"
        each = duration_ns(round(1e9 * sequence.compiles / rate))
        often = f", {number} {'module' if number == '1' else 'modules'} a second, {each} each"
    return f"{compiler} compiles here again and again{often}: {_COMPILER_REMEDIES[compiler]}"


def _gpu_remedy(sequence: ProgramSequence) -> str:
    if min(sequence.gpu.share, sequence.host.share) >= GPU_LIMIT and sequence.second in (Bound.HOST, Bound.SUBMISSION):
        return _BOTH_REMEDY
    return _SMALL_REMEDY if sequence.few_blocks >= LEAST_FEW else _GPU_REMEDY


def _where(place: StackFrame | None, thread: int, process: ProcessFindings) -> str:
    name = _name_of(thread, process)
    if place is None:
        return f"{thread_text(thread, name)}, without a call stack"
    if place == PACKAGES or (place.is_installed and not place.function):
        if _AUTOGRAD.match(name):
            return "backward pass"
        return f"{os.path.basename(place.file) or 'a library'}, without a line of the program"
    return frame_text(place)


def _holder(holding: HoldingCalls, process: ProcessFindings) -> str:
    """``cuMemFree_v2 in server.py:10 in cleaner``, with the thread unless the place has its name."""
    name = _name_of(holding.thread, process) or thread_text(holding.thread, "")
    if holding.place is None:
        return f"{holding.function} in {name}"
    thread = "" if name == holding.place.function else f" ({name})"
    return f"{holding.function} in {_where(holding.place, holding.thread, process)}{thread}"


def _name_of(thread: int, process: ProcessFindings) -> str:
    return next((each.name for each in process.threads if each.id == thread), "")


def _sorts(line: ProgramLine, by_time: bool) -> Iterator[tuple[float, str, str]]:
    """The share, the words of each sort of time at a line, and what else is known of it."""
    if line.waits.share:
        longer = not by_time and line.waits.share >= line.price + _LEAST_SHOWN
        more = f" ({percent(line.waits.share)} of the time)" if longer else ""
        yield line.waits.share if by_time else line.price, f"waits in {line.waits.function}", more
    if line.calls.share:
        yield line.calls.share, f"inside {line.calls.function}", ""
    if line.between.share:
        compiles = line.compiler is not None and line.compiles >= max(_LEAST_SHOWN, _LEAST_NAMED * line.between.share)
        more = f" ({line.compiler} compiles {percent(line.compiles)})" if compiles else ""
        waits = line.own_lock >= max(_LEAST_SHOWN, _LEAST_NAMED * line.between.share)
        more = f" (waits for a lock {percent(line.own_lock)})" if waits and not compiles else more
        before = f"host time{_since(line)} before {line.between.function}"
        before = before if line.between.function else "computing between calls"
        yield line.between.share, before, more


def _since(line: ProgramLine) -> str:
    """`` since line 30``, in another file `` since load.py:30 in load``; "" where it is not known since which line."""
    since, place = line.since, line.place
    if since is None or place is None:
        return ""
    same = since.line is not None and (since.kind, since.source or since.file) == (
        place.kind,
        place.source or place.file,
    )
    return f" since line {since.line}" if same else f" since {frame_text(since)}"


def _is_line(inner: StackFrame, place: StackFrame | None) -> bool:
    """True if an innermost frame is the line itself; in compiled code, if it is in the same function."""
    if place is None or inner.kind is not place.kind or inner.kind is FrameKind.PYTHON:
        return inner == place
    same = (inner.file, inner.function, inner.source, inner.line)
    return bool(place.function) and same == (place.file, place.function, place.source, place.line)


def _inner(place: StackFrame, line: ProgramLine) -> str:
    if _is_line(place, line.place):
        return "the line itself"
    name = os.path.basename(place.file)
    return name if place.kind is FrameKind.NATIVE and not place.function and place.offset is None else frame_text(place)


def _of_host(line: ProgramLine) -> str:
    """Remedy for host time: fewer launches, where most of it passes in a library that launches kernels."""
    library = sum(inner.cost for inner in line.inner if inner.place.is_installed) >= line.cost.share / 2
    launches = library and family_of(line.between.function) is CallFamily.LAUNCH
    return _of_launches(line.between.function) if launches else _BETWEEN_REMEDY


def _of_cause(line: ProgramLine, function: str, process: ProcessFindings, causes: Collection[WaitCause]) -> str:
    """Remedy for most of the slow time of a function at a line, where one of ``causes`` has it; else ""."""
    times: Counter[WaitCause] = Counter()
    for site in process.sites:
        if site.function == function and place_of(site.stack) == line.place:
            times[site.cause] += site.lost_ns
    cause = max(times, key=lambda cause: times[cause], default=WaitCause.UNATTRIBUTED)
    if cause not in causes:
        return ""
    return f"It waits for {cause_of(cause).clause}. {cause_of(cause).helps(function)[0]}"


def _of_wait(function: str) -> str:
    family = family_of(function)
    if family is CallFamily.COPY and not _ON_GPUS.match(function):
        return _UPLOAD_REMEDY if "HtoD" in function else cause_of(WaitCause.OWN_WORK).remedy
    if family in (CallFamily.HOST_MEMORY, CallFamily.MODULE):
        return cause_of(WaitCause.GPU_WORK).by_family[family]
    return cause_of(WaitCause.FREE).remedy if family is CallFamily.ALLOCATION else _WAITS_REMEDY


def _of_call(function: str) -> str:
    task = function_of(function).task_of(pageable=True)
    cause = None if _ON_GPUS.match(function) else cause_of_task(task)
    return _of_launches(function) if cause is None else cause_of(cause).remedy


def _of_launches(function: str) -> str:
    return _GRAPHS_REMEDY if function.startswith("cuGraphLaunch") else _CALLS_REMEDY
