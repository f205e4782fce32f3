"""The lines of a program as data: where in its own code the time of each sequence passes, and what is done there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from msgspec import UNSET, Meta, field

from stallprobes.files.codec import Document, Ratio, Rounded, Sentence, Share, String, Unsigned, about, brief
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.limits import KernelLimit
from stallprobes.watch.division.result import SequenceDivision
from stallprobes.watch.ranks.result import RankWait, SequenceRanks
from stallprobes.watch.reading.call_stack import CallStack, StackFrame
from stallprobes.watch.reading.compilers import DeviceCompiler
from stallprobes.watch.reading.library_tasks import LibraryTask

Stack = Annotated[
    CallStack | None, about("Place of the stack in the list of the process; null if it was not recorded.")
]
# Description, in the JSON schema, of the price (largest possible cost) of waits: of all waits of a line, or of the
# waits of one function in a line.
_PRICE = about("What its waits cost at most, as a share of the time; 0 without a division.")


class LineTime(Document, kw_only=True):
    """The time of one sort at a line."""

    share: Share = 0.0
    """Of the time of the sequence."""
    function: String = ""
    """Function of the driver with most of it; empty without any."""


# Empty time of a line: the default for the line's time in waits, in calls and between calls.
NO_TIME = LineTime()


class InnerPlace(Document, kw_only=True):
    """The innermost frame at a line, such as that of a library's function, or the line itself."""

    place: StackFrame
    cost: Share
    """Its part of what the line costs."""


class ProgramLine(Document, kw_only=True):
    """The time of a sequence at one place of the program's own code, by samples.

    Its share is the sum of those of waits, calls and between.
    """

    place: StackFrame | None
    """The innermost frame of the program's own code, which led to code in a library; without an offset where a compiled
    function is known, without a function for installed packages to which no line of the program led; null for time
    without a call stack."""
    stack: Stack
    """The one with most of the time."""
    thread: Unsigned
    """Thread id of the system, of the thread with most of the time."""
    samples: Unsigned
    share: Figure
    """Share of the time of the sequence, with its interval by the samples."""
    waits: LineTime = NO_TIME
    """Inside calls that wait for the GPU, copies that block, and frees."""
    calls: LineTime = NO_TIME
    """Inside other calls."""
    between: LineTime = NO_TIME
    """Before the next call at the line, which is of the function; without a function, at the line itself, by samples of
    the compiled code that the thread runs."""
    since: StackFrame | None = None
    """At compiled code, whose time between calls has the place of the next call: the line of the call before, if that
    is another one and the same for nearly all of the time; else null. Samples of Python have the line where time
    passes."""
    compiles: Share = 0.0
    """Of the time of the sequence: between calls, in a compiler of device code, by the frames."""
    compiler: DeviceCompiler | None = None
    """Compiler with most of that time; null without any."""
    own_lock: Share = 0.0
    """Of the time of the sequence, by samples: asleep here for such a lock of another thread."""
    tasks: Mapping[LibraryTask, Share] = field(default_factory=dict)
    """What tasks of libraries beside the program's own work cost at most here."""
    price: Annotated[Share, _PRICE] = 0.0
    cost: Figure
    """What it costs at most: price, calls and between; its share of the time where the GPU is the limit."""
    inner: tuple[InnerPlace, ...] = ()
    """At most three, the one that costs most first; none if there is only the line itself."""
    sentence: Sentence = UNSET
    remedy: Sentence = UNSET
    """What helps; empty where nothing is known."""


class WaitPlace(Document, kw_only=True):
    """Waits of one function at one innermost frame of one line."""

    place: StackFrame | None
    """The line, as in the lines."""
    inner: StackFrame | None
    """The innermost frame; null where that is the line."""
    function: String
    thread: Unsigned
    """Thread id of the system, of the thread with most of them."""
    calls: Annotated[float, Meta(ge=0), Rounded(1)]
    """Their number by the log of calls, of which samples say what is here."""
    per_second: Ratio
    share: Share
    """Of the time of the sequence."""
    price: Annotated[Share, _PRICE]
    sentence: Sentence = UNSET


class LockHolder(Document):
    """A line of the program at which another thread has Python's global lock, or one of the module threading."""

    place: StackFrame
    share: Share
    """Of the samples between calls in which it was seen who has the lock."""


class TaskTime(Document, kw_only=True):
    """What a task of a library beside the program's own work costs a sequence, by samples of its calls."""

    task: LibraryTask
    cost: Share
    """Of the time, at most."""
    place: StackFrame | None
    """The line with most of it, as in the lines."""
    place_share: Share
    """Of the cost, at the line."""
    thread: Unsigned
    """Thread id of the system, of the thread with most of the line."""


class HoldingCalls(Document, kw_only=True):
    """Calls of a function in another thread beside which calls of the sequence are unusually long."""

    thread: Unsigned
    """Thread id of the system, of the thread that makes them."""
    function: String
    place: StackFrame | None
    """The line that made most of them; null if no sample says so."""
    held: String
    """Function of most of the calls that they hold up."""
    calls: Unsigned
    """Calls of the sequence that they hold up."""
    per_second: Ratio
    share: Share
    """Part of the time of the sequence in which its calls are held up."""


class ProgramSequence(SequenceDivision, kw_only=True):
    """Threads that hardly ever call the driver at the same time: what bounds them on one GPU, and at which lines their
    time passes, in the steady state or in the whole run without one.

    Without a GPU, its figures are not known, and its verdict is unknown.
    """

    samples: Unsigned = 0
    ns: Unsigned = 0
    """The time for which all samples stand."""
    loads_per_second: Ratio = 0.0
    """Calls that load device code, by the log of calls."""
    lines: tuple[ProgramLine, ...] = ()
    """Those that cost most first."""
    wait_places: tuple[WaitPlace, ...] = ()
    """Places of waits, those that cost most first, also such as cost hardly anything."""
    holding: tuple[HoldingCalls, ...] = ()
    """Calls of other threads that hold up those of the sequence, those with most of its time first."""
    lock_holders: tuple[LockHolder, ...] = ()
    """Where other threads have Python's global lock while the sequence is between calls, by samples; at most three, the
    one with most of them first. None too if it hardly waits for the lock or for another thread, or if the lock was not
    found."""
    own_lock: Share = 0.0
    """Of the time, by samples: its threads sleep for a lock of the module threading that another one has."""
    own_lock_holders: tuple[LockHolder, ...] = ()
    """Where other threads have these locks; at most three, the one with most of the samples first."""
    tasks: tuple[TaskTime, ...] = ()
    """Tasks of libraries beside the program's own work, the one that costs most first."""
    limit: KernelLimit | None = None
    """What limits its kernels, by NVML's counters of its GPU; null without such counters, or kernels."""
    no_limit: String = ""
    """Why these counters say nothing; empty if they do, and where that is not known."""
    ranks: SequenceRanks | None = None
    """Null where it has no kernels of NCCL."""
    sentence: Sentence = UNSET
    """The verdict; empty without a division."""

    def __repr__(self) -> str:
        return brief(self, "threads", "device", "verdict", "covered_ns")

    @property
    def compiles(self) -> float:
        """Share of its time (0 to 1) that it spends in compilers of device code, between calls."""
        return sum(line.compiles for line in self.lines)

    @property
    def main_task(self) -> LibraryTask | None:
        """The task of a library that takes most of its time without GPU work, so that it is the reason of a verdict."""
        if not self.tasks or self.tasks[0].cost < self.tasks[0].task.traits.least * (1 - self.gpu.share):
            return None
        return self.tasks[0].task

    @property
    def blamed(self) -> RankWait | None:
        """The rank that slows it down most; None without one."""
        return None if self.ranks is None else self.ranks.blamed
