"""Sentences about what bounds a program: verdicts, figures with their intervals, its start-up and its end."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice, zip_longest
from operator import itemgetter

from stallprobes.foreign_text import printable
from stallprobes.native.layouts.driver_calls import CallKind, function_of
from stallprobes.units import duration_ns, format_count, plural, size_text, three
from stallprobes.watch.attribution.evidence_text import alongside_text, thread_text
from stallprobes.watch.attribution.findings import CallInFlight, ProcessFindings
from stallprobes.watch.attribution.wait_cause import Certainty
from stallprobes.watch.division.binned_sums import CLOCK_ERROR, Figure
from stallprobes.watch.division.parts import COMMUNICATION_PARTS, Bound, Part
from stallprobes.watch.division.pending import FEW_BLOCKS
from stallprobes.watch.division.result import (
    CAUSE_LIMIT,
    GPU_LIMIT,
    MOST_UNKNOWN,
    BoundTime,
    KernelTime,
    PhaseDivision,
    ProcessDivision,
    SequenceDivision,
)
from stallprobes.watch.lines.result import LockHolder, ProgramSequence
from stallprobes.watch.rank_text import (
    LEAST_COMMUNICATION,
    late_clause,
    partners_text,
    short_waits_clause,
    waits_clause,
)
from stallprobes.watch.ranks.result import RankWait
from stallprobes.watch.reading.call_stack import FrameKind
from stallprobes.watch.reading.cpu_supply import Workers
from stallprobes.watch.reading.kernel_names import kernel_label
from stallprobes.watch.sentences import frame_text

# Smallest GPU time at which the report shows a sequence (threads that call by turns). The value is a share of the
# longest steady state of any sequence. For all other sequences together, the report gives only the number of threads.
_LEAST_GPU_SHARE = 0.005
# Limits for sequences (threads that call by turns) that the report shows despite a GPU time below _LEAST_GPU_SHARE.
# _LEAST_BLOCKED_SHARE: smallest time inside calls that block (_BLOCKED), as a share of the longest steady state of any
# sequence.
# _MOST_BLOCKED: largest number of these sequences.
_LEAST_BLOCKED_SHARE, _MOST_BLOCKED = CAUSE_LIMIT, 2
# Parts of the time inside calls that block for a cause which a verdict can name, or that wait for work of other
# sequences. Part.BLOCKED and Part.CONTEXT are not among them: no verdict names the cause of this time.
_BLOCKED = (Part.LOADING, Part.ALLOCATION, Part.FREE, Part.HOST_MEMORY, Part.LOCK, Part.COPY, Part.OTHER_WORK)
# The sentence on the cost of waits names functions that wait. _LEAST_WAIT: smallest share of this cost that a named
# function has. _MOST_WAITS: largest number of named functions.
_LEAST_WAIT, _MOST_WAITS = 0.1, 2
# Begin of the name of the MPS server: the process on a GPU through which its MPS clients share the GPU.
_MPS_SERVER = "nvidia-cuda-mps"
# Largest number of other processes on the GPU that a sentence names; the sentence counts the others. Also the largest
# number of threads that a sentence names because a sequence waits for their work.
_MOST_SHARERS = 4
# Smallest ratio of the longest mean step of a sequence's phases to the shortest. From this ratio on, the text gives the
# mean step of each phase.
_STEP_RATIO = 1.3
# Smallest ratio of the highest SM clock of a sequence's phases to the lowest. From this ratio on, the text gives the SM
# clock of each phase.
_CLOCK_RATIO = 1.05
# Smallest ratio of the 99th percentile of the step durations to the median step. From this ratio on, the text gives the
# percentile.
_SLOW_STEP_RATIO = 2.0
# Smallest share of a step's time at which the sentence on the step names a part of the time (kernels, copies, host, …).
_LEAST_OF_STEP = 0.03
# Smallest share at which the text reports time off the CPU and time ready to run without a CPU (shares of the time
# between calls), and waits for Python's global lock (share of all time). For the first two, the time between calls in
# which the GPU does nothing must also be at least this share of all time.
_LEAST_OFF_CPU = 0.1
# Smallest share at which a part counts as all in the text: of a line in the sampled launches of a kernel, and of a line
# where other threads have Python's global lock.
_NEARLY_ALL = 0.95
# Smallest time between a kernel and the next operation that its sentence has, as a share of the kernel's mean duration.
_MUCH_BETWEEN = 0.1
# Smallest share at which the text names a line where other threads have Python's global lock. The share is of the time
# for which the holder of the lock is known.
_LEAST_HOLDER = 0.1
# Smallest share of the time at which the text reports the time in which Python collects garbage.
_LEAST_COLLECTING = 0.05
# Smallest share of kernels of few blocks in the time of all kernels at which the text reports this share.
_LEAST_SMALL = 0.5
# Shortest time (ns) in one call from which on a thread counts as hanging. If all threads of a sequence hang, the text
# gives the oldest of their calls before the verdict.
_HANGS_NS = 10_000_000_000
# Shortest time (s) that is printed in minutes.
_LEAST_AS_MINUTES_S = 300
# Smallest share at which the text names a quota (share of the quota's periods in which the quota was used up) or a
# hypervisor (share of the machine's CPU time that the hypervisor took) as a cause for a lack of CPU. Also the smallest
# share of the time, on a CPU or ready to run, at which the text names a child process or another thread.
_LEAST_TAKEN = 0.02
# Largest number of threads of the process that want a CPU, per CPU that the process may use. Up to this number, the
# text blames other processes for a lack of CPU. With more threads, the process itself wants more CPUs than it may use.
_MOST_PER_CPU = 1.25
# Share of the time below which a figure would be rounded to 0 %. A smaller figure is printed as "less than 1 %" if the
# upper end of the figure's interval is also small: below this limit plus the error of the clocks (CLOCK_ERROR).
_LEAST_LIMIT = 0.005
# Smallest width (share of the time) of an interval that is printed with its figure. The error of the clocks alone makes
# the interval 2 * CLOCK_ERROR wide.
_LEAST_INTERVAL = 2.5 * CLOCK_ERROR
# Smallest part of the start-up that is said.
_LEAST_START_UP = 0.01
# Smallest rates of page faults (a second) that are reported. _MANY_FAULTS: all page faults of a process that uses
# managed memory. _MANY_DISK_FAULTS: page faults that read from a disk, each of which takes 0.1 ms or more.
_MANY_FAULTS, _MANY_DISK_FAULTS = 200, 20
# Verdicts whose reason is the GPU's work, not what the host does: they name no task of a library.
_OF_GPU = (Bound.GPU, Bound.GAPS, Bound.HELD, Bound.COMMUNICATION, Bound.SHARED, Bound.STREAMS)
# What a host that sleeps in a module of Python's library waits for, by the path of the module.
_AWAITED = {
    "another thread of its process": re.compile(r"/python3[^/]*/(?:threading|queue)\.py$"),
    "another process": re.compile(r"/python3[^/]*/(?:subprocess|multiprocessing/\w+)\.py$"),
    "a request or data from a socket": re.compile(r"/python3[^/]*/(?:selectors|socket|ssl|asyncio/\w+)\.py$"),
}
# Verdicts that name a compiler of device code as their reason, if it runs for half of the time without GPU work.
_COMPILING = (Bound.HOST, Bound.CHILD, Bound.ASLEEP)


def percent(share: float) -> str:
    """A share (0 to 1): ``41 %``, ``<1 %``."""
    return "<1 %" if 0 < share < 0.005 else f"{100 * share:.0f} %"


def figure_text(figure: Figure) -> str:
    """A figure with its interval, unless that is its digits: ``41 % (38 to 44)``."""
    if figure.high - figure.low < _LEAST_INTERVAL:
        return percent(figure.share)
    return f"{percent(figure.share)} ({100 * figure.low:.0f} to {100 * figure.high:.0f})"


def sequence_text(sequence: ProgramSequence, process: ProcessFindings) -> str:
    """The threads of a sequence, with its GPU where the process uses several: ``MainThread (with 1 more thread)``.

    The first thread has its id too where another sequence begins with one of its name.
    """
    names = {thread.id: thread.name for thread in process.threads}
    first = sequence.threads[0] if sequence.threads else 0
    name = names.get(first, "")
    begins = (each.threads[:1] for each in process.sequences)
    same = {ids for ids in begins if names.get(ids[0] if ids else 0, "") == name}
    words = [f"thread {first}"] if len(same) > 1 and name else []
    if len(sequence.threads) > 1:
        words.append(f"with {plural(len(sequence.threads) - 1, 'more thread')}")
    text = name or thread_text(first, name)
    text += f" ({', '.join(words)})" if words else ""
    return text + (f" on GPU {sequence.device}" if len({each.device for each in process.sequences}) > 1 else "")


def verdict_text(sequence: ProgramSequence, process: ProcessFindings) -> str:
    """The verdict about a sequence: ``MainThread is host-bound: the GPU waits for the host.``"""
    return verdict_texts(sequence, process)[0]


def verdict_texts(sequence: ProgramSequence, process: ProcessFindings) -> tuple[str, ...]:
    """Verdict about a sequence in sentences, each shorter than the one before; of the present where no call returns."""
    texts = _verdict_texts(sequence, process)
    call = _hanging_call(sequence, process)
    if call is None:
        return texts
    who, age = sequence_text(sequence, process), duration_ns(call.age_ns)
    short = f"No call of {who} has returned for {age}: it is in {call.function}"
    beside = f", {Certainty.BESIDE.preposition} {alongside_text(call.beside[0])}" if call.beside else ""
    return f"{short}{beside}. Before, {texts[0]}", f"{short}{beside}.", f"{short}."


def _other_gpus(sequence: ProgramSequence, process: ProcessFindings) -> str:
    """The other GPUs of a sequence's first thread: ``GPU 1``; "" where none is listed."""
    every = (one.device for one in process.sequences if one.threads[:1] == sequence.threads[:1])
    devices = {device for device in every if device is not None and device != sequence.device}
    return " or ".join(f"GPU {device}" for device in sorted(devices))


def _about(ns: int) -> str:
    """A time in tens of seconds, or in minutes: ``40 s``."""
    seconds = -(-ns // 10_000_000_000) * 10
    return f"{seconds} s" if seconds < _LEAST_AS_MINUTES_S else f"{-(-seconds // 60)} minutes"


def _hanging_call(sequence: ProgramSequence, process: ProcessFindings) -> CallInFlight | None:
    """The call of a sequence that has not returned for longest, if that is _HANGS_NS or more, and no call since."""
    threads = [thread for thread in process.threads if thread.id in sequence.threads]
    calls = [call for thread in threads for call in thread.in_flight if not call.depth]
    if process.ended or not calls or len(calls) < len(sequence.threads):
        return None
    youngest = min(calls, key=lambda call: call.age_ns)
    return max(calls, key=lambda call: call.age_ns) if youngest.age_ns >= _HANGS_NS else None


def _verdict_texts(sequence: ProgramSequence, process: ProcessFindings) -> tuple[str, ...]:
    who = sequence_text(sequence, process)
    if sequence.verdict is Bound.UNKNOWN:
        share = sequence.share(Part.UNKNOWN)
        short = f"What bounds {who} is not known"
        if (kernel := sequence.endless) is not None:
            name = kernel_label(kernel.name) or "one of its kernels"
            return (
                f"{short}: {name} runs nearly all the time, and no record says whether it works or waits.",
                f"{short}.",
            )
        if share <= MOST_UNKNOWN and sequence.divided and sequence.vague:
            long = "longer" if sequence.needed_ns is None else f"for {_about(sequence.needed_ns)} or longer"
            return f"{short}: {_too_little(sequence.recorded)}. Watch it {long}, or with --cost 100.", f"{short}."
        late = min(sequence.late_ns / max(sequence.covered_ns, 1), 1.0)
        if late > max(share, MOST_UNKNOWN):
            why = f"CUPTI returned the records of {percent(late)} of its time too late"
            return f"{short}: {why}, as it may while the GPU is never idle.", f"{short}."
        why = f"{percent(share)} of its time" if share > MOST_UNKNOWN else "too much"
        return f"{short}: {why} was not recorded.", f"{short}."
    when, others = _phases(sequence, process.ended)
    short = f"{when}{who} is {sequence.verdict.word}"
    blamed = sequence.blamed if sequence.verdict is Bound.COMMUNICATION else None
    clause = sequence.verdict.traits.clause
    of_ranks = 2 * sequence.share(Part.RANK_WAIT) >= sequence.share(*COMMUNICATION_PARTS)
    if sequence.verdict is Bound.COMMUNICATION and of_ranks:
        clause = "it waits in NCCL for ranks that are late in turn"
    if sequence.verdict is Bound.THREAD and 2 * sequence.interpreter >= 1 - sequence.gpu.share:
        clause = "it waits for Python's global lock"
    if sequence.verdict is Bound.THREAD and 2 * sequence.own_lock >= 1 - sequence.gpu.share:
        clause = "it waits for a lock that another thread has"
    if sequence.verdict is Bound.HOST and sequence.collects >= max((1 - sequence.gpu.share) / 2, _LEAST_COLLECTING):
        clause = "Python collects garbage while the GPU waits"
    if sequence.verdict is Bound.ASLEEP and (awaited := _awaited(sequence)):
        clause = f"the GPU waits for the host, and the host for {awaited}"
    compiler = max(sequence.lines, key=lambda line: line.compiles).compiler if sequence.lines else None
    if sequence.verdict in _COMPILING and compiler is not None and 2 * sequence.compiles >= 1 - sequence.gpu.share:
        clause = f"{compiler} compiles while the GPU waits"
    if sequence.verdict not in _OF_GPU and sequence.main_task is not None:
        clause = sequence.main_task.traits.clause
    if sequence.verdict is Bound.GPU:
        clause = _gpu_clause(sequence)
    if sequence.verdict is Bound.TURNS:
        busy = _other_gpus(sequence, process)
        clause = f"it waits while {busy} works" if busy else clause
    if sequence.verdict is Bound.WAIT and 2 * sum(each.share for each in sequence.awaited) >= 1 - sequence.host.share:
        clause = "the host waits for the GPU, which works for other threads"
    reasons = (
        [f"{short}: {clause}." if clause else f"{short}."]
        if blamed is None
        else [f"{short}: it {waits_clause(blamed)}.", f"{short}: it {short_waits_clause(blamed)}."]
    )
    may_wait = sequence.second is Bound.WAIT and sequence.may_wait >= CAUSE_LIMIT
    if may_wait and clause == sequence.verdict.traits.clause:
        either = f"{short} or {Bound.WAIT.word}"
        why = f"{percent(sequence.may_wait)} of the time it computes, or waits for the GPU outside calls"
        return f"{either}: {why}; its lines show which.{others}", f"{either}: it computes or waits.", f"{either}."
    too = "" if sequence.second is None else f" It is {sequence.second.word} too, or nearly."
    if may_wait:
        too = f" It may wait for the GPU outside calls {percent(sequence.may_wait)} of the time."
    if sequence.second is Bound.WAIT and sequence.could_overlap:
        too = " Without its waits, kernels of its streams could run beside each other."
    if sequence.verdict is Bound.HOST and sequence.second is Bound.ASLEEP:
        too = _asleep_text(sequence)
    texts = (f"{reasons[0]}{too}{others}", f"{reasons[0]}{others}", *reasons, f"{short}.")
    return tuple(dict.fromkeys(texts))


def _asleep_text(sequence: SequenceDivision) -> str:
    """How long the threads of a host-bound sequence sleep between calls."""
    if sequence.off_cpu is None:
        return " Whether its threads compute or sleep is not known."
    ready = 0.0 if sequence.ready is None else sequence.ready.share
    asleep = sequence.share(Part.HOST) * max(sequence.off_cpu.share - ready, 0.0)
    return f" Its threads sleep {percent(asleep)} of the time: for input, a lock or a time of their own."


def undivided_text(process: ProcessFindings) -> str:
    """Why the time of a process without a division could not be divided, in a sentence; "" if it submitted no work."""
    functions = {row.function for thread in process.threads for row in thread.rows}
    submits = any(function_of(function).submits for function in functions)
    if process.division is not None or not process.sequences or not submits:
        return ""
    short = f"What bounds {sequence_text(process.sequences[0], process)} is not known"
    recorded = 0.0 if process.cost is None else process.cost.recorded
    if recorded in (0, 1):
        return f"{short}: no work of the GPU was recorded."
    return f"{short}: {_too_little(recorded)}. Watch it longer, or with --cost 100."


def _too_little(recorded: float) -> str:
    return f"its work was recorded for {percent(recorded)} of the time, which is too little"


def _gpu_clause(sequence: SequenceDivision) -> str:
    """Why a sequence is GPU-bound, by the shares of the phase that the verdict is of; "" if no reason is known."""
    bound: BoundTime = sequence.phases[0] if sequence.phases else sequence
    if bound.gpu.share >= GPU_LIMIT:
        copies = not sequence.phases and 2 * sequence.share(Part.COPIES) > bound.gpu.share
        return f"{Bound.GPU.traits.clause}, most of it in copies" if copies else Bound.GPU.traits.clause
    if bound.gpu.share >= bound.host.share:
        return "its GPU work takes longer than the host's"
    if any(function_of(wait.function).kind is CallKind.FREES for wait in sequence.waits):
        return "calls that free memory wait for its GPU work"
    return "its launches wait for room in the GPU's queue" if sequence.queue_full >= CAUSE_LIMIT else ""


def _phases(sequence: ProgramSequence, ended: bool) -> tuple[str, str]:
    """Words in front of the verdict that say of which time it is, and sentences on the other phases: ``Since 9.00 s, ``
    and `` From 1.00 s to 9.00 s, it was GPU-bound.``; empty without phases."""
    if not sequence.phases:
        return "", ""
    first, *others = sequence.phases
    ranks = sequence.ranks.phases[1:] if sequence.ranks is not None else ()
    verb = "is" if ended else "was"
    when = f"{_when(first, sequence, not ended)}{_differs(first, sequence)}, "
    texts = [
        f" {_when(phase, sequence)}, it {verb} {phase.verdict.word}{_differs(phase, sequence)}"
        f"{_waiting(phase, rank, verb)}."
        for phase, rank in zip_longest(others, ranks)
    ]
    return when, f"{''.join(texts)} Figures and lines are of the first of these times."


def _waiting(phase: PhaseDivision, rank: RankWait | None, verb: str) -> str:
    """The rank that a sequence waits for in a phase: ``, waiting in NCCL for rank 1, which was host-bound``."""
    if rank is None or phase.verdict is not Bound.COMMUNICATION:
        return ""
    probably = "" if rank.sure else "probably "
    late = late_clause(rank.delay).replace(", which is ", f", which {verb} ")
    return f", {probably}waiting in NCCL for {printable(rank.name)}{late}"


def _varies(values: Sequence[float | None], factor: float) -> bool:
    """True if known values differ by a factor."""
    known = [value for value in values if value is not None]
    return len(known) > 1 and max(known) >= factor * min(known)


def _when(phase: PhaseDivision, sequence: SequenceDivision, present: bool = False) -> str:
    """Of which time a phase is: ``From 1.00 s to 9.00 s``; of one that recurs its share of the time."""
    begin, end = (duration_ns(ns) for ns in phase.times[-1])
    if len(phase.times) == 1:
        return f"Since {begin}" if present else f"From {begin} to {end}" if phase.times[0][0] else f"Until {end}"
    share = percent(phase.ns / sum(each.ns for each in sequence.phases))
    return f"Now, and in {share} of the time" if present else f"In {share} of the time, by turns"


def _differs(phase: PhaseDivision, sequence: SequenceDivision) -> str:
    """In what a phase differs from others beside its verdict: `` (steps of 7.99 ms, SM clock 1410 MHz: power cap)``."""
    phases, words = sequence.phases, []
    if phase.step_ns is not None and _varies([each.step_ns for each in phases], _STEP_RATIO):
        words.append(f"steps of {duration_ns(phase.step_ns)}")
    if phase.sm_clock_mhz is not None and _varies([each.sm_clock_mhz for each in phases], _CLOCK_RATIO):
        reasons = f": {' and '.join(phase.clock_reasons)}" if phase.clock_reasons else ""
        words.append(f"SM clock {phase.sm_clock_mhz:.0f} MHz{reasons}")
    if phase.power_limit_w is not None and _varies([each.power_limit_w for each in phases], _CLOCK_RATIO):
        words.append(f"power limit {phase.power_limit_w:.0f} W")
    if phase.pcie_lanes is not None and _varies([each.pcie_lanes for each in phases], _CLOCK_RATIO):
        words.append(f"PCIe ×{phase.pcie_lanes}")
    return f" ({', '.join(words)})" if words else ""


def ranks_text(sequence: ProgramSequence, process: ProcessFindings) -> str:
    """What a sequence waits for in communication, beyond its verdict, and what is unknown of it; "" where it hardly
    communicates."""
    texts = []
    blamed = sequence.blamed
    if blamed is not None and sequence.verdict is not Bound.COMMUNICATION:
        clause = waits_clause(blamed).replace("in NCCL", f"in NCCL {figure_text(blamed.share)} of the time", 1)
        texts.append(f"It {clause}.")
    if sequence.share(*COMMUNICATION_PARTS) >= LEAST_COMMUNICATION:
        texts.append(partners_text(sequence.ranks, process))
    return " ".join(filter(None, texts))


def figures_text(sequence: SequenceDivision) -> str:
    """Figures behind a verdict, in sentences: g, h and the price of waiting, each with its interval."""
    works = "The GPU works for it" if sequence.engine_known else "The GPU works for it or for others"
    if sequence.verdict is Bound.HELD and sequence.share(Part.BETWEEN) >= CAUSE_LIMIT:
        works += ", or waits for host functions,"
    return (
        f"{works} {figure_text(sequence.gpu)} of the time{_communication(sequence)}; {figure_text(sequence.host)} of "
        f"the time the host does not wait for the GPU. Its waits cost {_at_most(sequence.price)} of the time"
        f"{_waits(sequence)}.{_off_cpu(sequence)}{_operations(sequence)}"
    )


def cpus_text(sequence: SequenceDivision, process: ProcessFindings) -> str:
    """Why a sequence that is ready to run has no CPU: ``It may use 2 CPUs, and 5.2 of its threads want one.``; "" where
    it has one."""
    cpus, ready = process.cpus, sequence.ready
    if cpus is None or ready is None or ready.share < _LEAST_OFF_CPU or sequence.share(Part.HOST) < _LEAST_OFF_CPU:
        return ""
    text = f"It may use {plural(cpus.allowed, 'CPU')}, and {cpus.wanted:.1f} of its threads want one"
    if cpus.quota is not None and cpus.throttled >= _LEAST_TAKEN:
        text += f"; its quota (cgroup) of {cpus.quota:g} CPUs was used up in {percent(cpus.throttled)} of the periods"
    if cpus.stolen >= _LEAST_TAKEN:
        text += f"; the hypervisor took {percent(cpus.stolen)} of the machine's CPUs"
    if cpus.wanted <= _MOST_PER_CPU * cpus.allowed and max(cpus.throttled, cpus.stolen) < _LEAST_TAKEN:
        text += "; other processes use these CPUs too"
    return f"{text}."


def kernel_text(kernel: KernelTime, sequence: SequenceDivision, whole: bool = False) -> str:
    """Kernels of one name in a sentence: ``41 % gemm: 33.2 µs each (± 4.10 µs), 1 234 a second, 128 blocks.``

    With their ``whole`` name, else with what a person recognises of it.
    """
    name = (kernel.name if whole else kernel_label(kernel.name)) or "kernels without a name"
    rate = sequence.per_second(kernel.count)
    number = format_count(round(rate)) if rate >= 1 else three(rate)
    blocks = [format_count(count) for count in dict.fromkeys((kernel.least_blocks, kernel.most_blocks))]
    spread = duration_ns(kernel.deviation_ns)
    words = [
        f"{duration_ns(kernel.mean_ns)} each (± {'<1 %' if 100 * kernel.deviation_ns < kernel.mean_ns else spread})",
        f"{number} a second",
        *([f"{' to '.join(blocks)} {'block' if kernel.most_blocks == 1 else 'blocks'}"] if kernel.most_blocks else []),
    ]
    if kernel.fills is not None and kernel.fills < 1:
        words[-1] += f" on {percent(kernel.fills)} of the multiprocessors"
    elif whole and kernel.waves is not None:
        part = f"on all multiprocessors, {percent(kernel.waves)} of a wave"
        words[-1] += f" in {three(kernel.waves)} waves" if kernel.waves >= 1 else f" {part}"
    if whole and kernel.threads:
        registers = f" with {kernel.registers} registers" if kernel.registers else ""
        words.append(f"{plural(kernel.threads, 'thread')} in each{registers}")
    if kernel.local_bytes:
        size = size_text(kernel.local_bytes)
        words.append(f"at least {size} of local memory for each thread (spilled registers, arrays)")
    if kernel.between_ns >= _MUCH_BETWEEN * kernel.mean_ns:
        words.append(f"then {duration_ns(kernel.between_ns)} until the next")
    if kernel.place is not None:
        mostly = "" if kernel.place_share >= _NEARLY_ALL else "mostly "
        where = f"at {frame_text(kernel.place)}" if kernel.place.file else "in the backward pass"
        words.append(f"{mostly}launched {where}")
    return f"{percent(kernel.share)} {name}: {', '.join(words)}."


def faults_text(process: ProcessFindings) -> str:
    """Page faults that can cost a process time: in managed memory, or with reads from a disk; "" if there are few."""
    cpus, texts = process.cpus, []
    if cpus is None:
        return ""
    managed = _uses_managed(process)
    if moves_pages(process):
        number = format_count(round(cpus.page_faults))
        texts.append(
            f"It uses managed memory and had {number} page faults a second: each may wait for pages that move from the "
            "GPU, and its kernels may wait for their way back."
        )
    # A page that moves from the GPU counts as one that is read from a disk.
    if cpus.disk_faults >= _MANY_DISK_FAULTS and not managed:
        texts.append(
            f"It had {format_count(round(cpus.disk_faults))} page faults a second that read from a disk: memory is "
            "short, or the files that it maps are not in memory."
        )
    return " ".join(texts)


def _awaited(sequence: ProgramSequence) -> str:
    """What a sequence sleeps for in most of the time without GPU work, by the innermost frames of its lines; "" if they
    do not say it."""
    times = dict.fromkeys(_AWAITED, 0.0)
    for inner in (each for line in sequence.lines for each in line.inner if each.place.kind is FrameKind.PYTHON):
        for what, pattern in _AWAITED.items():
            times[what] += inner.cost if pattern.search(inner.place.file) else 0.0
    what, most = max(times.items(), key=itemgetter(1))
    return what if 2 * most >= 1 - sequence.gpu.share else ""


def _uses_managed(process: ProcessFindings) -> bool:
    return any(row.function.startswith("cuMemAllocManaged") for thread in process.threads for row in thread.rows)


def moves_pages(process: ProcessFindings) -> bool:
    """True if a process uses managed memory, and has many page faults: the host may wait for pages from the GPU."""
    return process.cpus is not None and process.cpus.page_faults >= _MANY_FAULTS and _uses_managed(process)


def interpreter_text(sequence: ProgramSequence) -> str:
    """How long a sequence waits for Python's global lock or its own, and how long Python collects garbage: ``It waits
    for Python's global lock 46 % of the time: another thread has it, 92 % of that at load.py:9 in decode.``, or what
    another thread for which it waits does; "" where it hardly waits."""
    waits = _lock_text("Python's global lock", sequence.interpreter, sequence.lock_holders)
    own_lock = _lock_text("a lock of its own", sequence.own_lock, sequence.own_lock_holders)
    holders = [each for each in sequence.lock_holders if each.share >= _LEAST_HOLDER]
    if sequence.verdict is Bound.THREAD and holders and not waits and not own_lock:
        parts = ["" if each.share >= _NEARLY_ALL else f" ({percent(each.share)})" for each in holders]
        places = (f"at {frame_text(each.place)}{part}" for part, each in zip(parts, holders, strict=True))
        waits = f"Another thread runs Python meanwhile, {', '.join(places)}."
    collects = (
        f"Python collects garbage {percent(sequence.collects)} of the time: after gc.freeze() it looks at no object "
        "that was made before, with larger thresholds (gc.set_threshold) it collects less often."
    )
    texts = (waits, own_lock, collects if sequence.collects >= _LEAST_COLLECTING else "")
    return " ".join(filter(None, texts))


def _lock_text(lock: str, share: float, holders: Sequence[LockHolder]) -> str:
    """How long a sequence waits for a lock, and where others have it; "" where it hardly waits."""
    if share < _LEAST_OFF_CPU:
        return ""
    shown = [each for each in holders if each.share >= _LEAST_HOLDER]
    parts = ["" if each.share >= _NEARLY_ALL else f"{percent(each.share)} of that " for each in shown]
    places = " and ".join(f"{part}at {frame_text(each.place)}" for part, each in zip(parts, shown, strict=True))
    return f"It waits for {lock} {percent(share)} of the time: another thread has it{', ' if places else ''}{places}."


def awaited_text(sequence: SequenceDivision, process: ProcessFindings) -> str:
    """For whose work a sequence waits, beside its own: ``It waits for work of encoder 33 % of the time.``; "" where it
    does not."""
    names = {thread.id: thread.name for thread in process.threads}
    awaited = ((names.get(each.thread, ""), each) for each in sequence.awaited[:_MOST_SHARERS])
    named = [f"{name or thread_text(each.thread, name)} {percent(each.share)}" for name, each in awaited]
    return f"It waits for work of {', of '.join(named)} of the time." if named else ""


def workers_text(sequence: SequenceDivision, process: ProcessFindings) -> str:
    """The child processes or threads that a sequence waits for: ``Its child processes: pt_data_worker (4, the busiest
    on a CPU for 98 % of the time).``; "" where it waits for none.

    Processes whose end it waits for live for moments, and are seen too rarely for a share.
    """
    verdicts = {sequence.verdict, sequence.second}
    if verdicts & {Bound.CHILD, Bound.INPUT}:
        named, who = process.children, "child processes"
    elif Bound.THREAD in verdicts:
        named, who = process.others, "other threads"
    else:
        return ""
    named = tuple(worker for worker in named if worker.name and worker.busy >= _LEAST_TAKEN)
    lives = Bound.CHILD not in verdicts or sequence.verdict is Bound.INPUT
    words = (f"{worker.name} ({_busy(worker)})" if lives else worker.name for worker in named)
    return f"Its {who}: {', '.join(words)}." if named else ""


def _busy(worker: Workers) -> str:
    several = f"{worker.most}, the busiest " if worker.most > 1 else ""
    return f"{several}on a CPU for {percent(worker.busy)} of the time"


def step_text(sequence: SequenceDivision) -> str:
    """A step in a sentence: ``A step, from one cuMemcpyHtoDAsync_v2 of 12 MiB to the next, takes 13.3 ms (12.9 to
    14.1): host 7.1 ms, kernels 3.6 ms.`` or ``A step, from one NVTX range "step #" to the next, …``. "" without one."""
    step, growth = sequence.step, sequence.growth
    grew = ""
    if growth is not None:
        more = "longer" if growth.last_ns > growth.first_ns else "shorter"
        first, last = duration_ns(growth.first_ns), duration_ns(growth.last_ns)
        at = f", most of the difference at {frame_text(growth.place)}" if growth.place else ""
        grew = f"Its steps became ever {more}: {first} at first, {last} at last{at}."
    elif sequence.growing is not None:
        first, later, last = map(percent, sequence.growing.shares)
        line = frame_text(sequence.growing.place)
        grew = f"{line} takes ever more of the time: {first} at first, {later} later, {last} at last."
    if step is None:
        return grew
    size = f" of {size_text(step.bytes)}" if step.bytes else ""
    begin = f'NVTX range "{step.range}"' if step.range else f"{step.function}{size}"
    span = f" ({duration_ns(step.low_ns)} to {duration_ns(step.high_ns)})" if step.high_ns > step.low_ns else ""
    rare = step.slow_ns is not None and step.slow_ns >= _SLOW_STEP_RATIO * step.ns
    slow = f", and 1 in 100 takes {duration_ns(step.slow_ns)} or longer" if rare else ""
    shares = {part: sequence.share(part) for part in sequence.parts if part is not Part.END}
    parts = ", ".join(
        f"{part.word} {duration_ns(round(share * step.ns))}"
        for part, share in sorted(shares.items(), key=lambda item: -item[1])
        if share >= _LEAST_OF_STEP
    )
    return (
        f"A step, from one {begin} to the next, takes {duration_ns(step.ns)}{span}{slow}: {parts}.{grew and f' {grew}'}"
    )


def sharers_text(process: ProcessFindings) -> str:
    """The processes that share the GPU of one that is shared, in a sentence: ``On the same GPU: python3 (pid 806).``"""
    if not process.sharers:
        return (
            "Who has the GPU meanwhile is not known: NVML names nobody else, as where that runs outside this container."
        )
    named = [f"{sharer.name} (pid {sharer.pid})" for sharer in process.sharers[:_MOST_SHARERS]]
    if len(process.sharers) > _MOST_SHARERS:
        named.append(f"{len(process.sharers) - _MOST_SHARERS} more")
    server = any(sharer.name.startswith(_MPS_SERVER) for sharer in process.sharers)
    clients = " The MPS server works for its clients, of which this process may be one." if server else ""
    return f"On the same GPU: {', '.join(named)}.{clients}"


def start_up_text(division: ProcessDivision, ended: bool) -> str:
    """The start-up: ``Start-up took 4.00 s, of it inside calls: loading 1.20 s.`` ``ended``: the run has."""
    if not division.steady and not ended:
        return "The start-up is not over, or there is none: the whole run so far is divided."
    if not division.steady:
        return (
            "There was no steady state: no three seconds in a row without code that was loaded, a new context or a new "
            "kernel. The whole run is divided."
        )
    if not division.start_up_ns:
        return ""
    least = _LEAST_START_UP * division.start_up_ns
    inside = ", ".join(f"{part.word} {duration_ns(ns)}" for part, ns in division.start_up.items() if ns >= least)
    return f"Start-up took {duration_ns(division.start_up_ns)}" + (
        f", of it inside calls: {inside}." if inside else "."
    )


def end_text(sequence: SequenceDivision) -> str:
    """The time after the last operation, in a sentence; "" without any."""
    end_ns = sequence.parts.get(Part.END, 0)
    return f"After its last operation on the GPU {duration_ns(end_ns)} passed." if end_ns else ""


def shown_sequences(process: ProcessFindings) -> tuple[tuple[ProgramSequence, ...], int]:
    """The sequences that are worth lines of their own, and the number of threads beside them; none without a
    division."""
    if process.division is None:
        return (), 0
    sequences = process.sequences
    most = max((each.steady_ns for each in sequences), default=0)
    worth = {id(each) for each in sequences if each.gpu.share * each.steady_ns >= _LEAST_GPU_SHARE * most}
    others = (each for each in sequences if id(each) not in worth and _blocked_ns(each) >= _LEAST_BLOCKED_SHARE * most)
    worth.update(map(id, islice(others, _MOST_BLOCKED)))
    shown = tuple(each for each in sequences if id(each) in worth) or sequences[:1]
    named = {thread for each in shown for thread in each.threads}
    left_out = {thread for each in sequences for thread in each.threads} - named
    return shown, len(left_out) + process.division.other_threads


def _blocked_ns(sequence: SequenceDivision) -> int:
    return sum(sequence.parts.get(part, 0) for part in _BLOCKED)


def other_threads_text(count: int) -> str:
    """The threads without a line of their own, in a sentence; "" without any."""
    return f"{plural(count, 'more thread')} had hardly any work on the GPU." if count else ""


def parts_text(sequence: SequenceDivision) -> Iterator[tuple[Part, str]]:
    """The parts of a sequence's time with their shares, in their order: ``kernels 41 %``."""
    for part, ns in sequence.parts.items():
        if part is not Part.END and ns:
            yield part, f"{part.word} {percent(sequence.share(part))}"


def _communication(sequence: SequenceDivision) -> str:
    """The part of the GPU's time in which it only communicates: `` (communication 12 %, waiting for ranks 30 %)``."""
    named = [part for part in COMMUNICATION_PARTS if sequence.parts.get(part)]
    return f" ({', '.join(f'{part.word} {percent(sequence.share(part))}' for part in named)})" if named else ""


def _operations(sequence: SequenceDivision) -> str:
    """The rate of kernels, copies and fills in a sentence, and whether the kernels are small; "" without any."""
    rate = sequence.per_second(sequence.operations)
    small = ""
    if sequence.few_blocks >= _LEAST_SMALL and sequence.gpu.share >= CAUSE_LIMIT:
        small = (
            f" Kernels of at most {FEW_BLOCKS} blocks, which leave most of a GPU unused, take "
            f"{percent(sequence.few_blocks)} of its kernels' time."
        )
    said = f" {format_count(round(rate)) if rate >= 10 else three(rate)} operations a second run on it."
    return f"{said}{small}" if rate else ""


def _at_most(figure: Figure) -> str:
    if not figure.is_known:
        return f"a part that is not known ({100 * figure.low:.0f} to {100 * figure.high:.0f} %)"
    if _is_small(figure):
        return "less than 1 %"
    # The figure would be "at most 0 %", with an interval that says something else.
    return f"between 0 and {percent(figure.high)}" if figure.share < _LEAST_LIMIT else f"at most {figure_text(figure)}"


def _is_small(figure: Figure) -> bool:
    return max(figure.share, figure.high - CLOCK_ERROR) < _LEAST_LIMIT


def _waits(sequence: SequenceDivision) -> str:
    """The functions whose waits cost most: ``, 80 % of that in cuStreamSynchronize``; "" where they cost little."""
    if _is_small(sequence.price) or not sequence.price.is_known:
        return ""
    named = [wait for wait in sequence.waits if wait.share >= _LEAST_WAIT][:_MOST_WAITS]
    parts = [f"{percent(wait.share)} of that in {wait.function}" for wait in named]
    return f", {' and '.join(parts)}" if parts else ""


def _off_cpu(sequence: SequenceDivision) -> str:
    """Share of the host's time without a CPU, in a sentence; "" where it is little or unknown."""
    off = sequence.off_cpu
    if off is None or off.share < _LEAST_OFF_CPU or sequence.share(Part.HOST) < _LEAST_OFF_CPU:
        return ""
    ready = sequence.ready
    if ready is None or ready.share < _LEAST_OFF_CPU:
        return f" Between calls, the host is off the CPU for {figure_text(off)} of the time: input, locks or sleep."
    return (
        f" Between calls, the host is off the CPU for {figure_text(off)} of the time: ready to run without a CPU "
        f"{figure_text(ready)}, else input, locks or sleep."
    )
