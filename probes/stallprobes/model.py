"""Operations, programs, probes and patterns as frozen data, without CUDA and without threads.

A program names its resources (contexts, streams, buffers, words) by value. A backend walks the program, creates each
distinct resource once, and makes a call of every op.

A resource with ``shared=False`` belongs to the probe that names it; with ``shared=True``, equal values in two probes of
one process are the same resource (two threads on one stream, a gate that another thread opens).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

# Number of bytes of a kibibyte.
KIB = 1024
# Number of bytes of a mebibyte.
MIB = 1024 * 1024
# Length (ns) of a microsecond.
US = 1_000
# Length (ns) of a millisecond.
MS = 1_000_000


class Phase(StrEnum):
    """The part of an operation that a latency measures. The values are those of the JSON documents.

    ``CALL``: time inside the driver call. ``WAIT``: from its return until the host sees the work complete. ``START``:
    from its return until the GPU starts the work. ``EARLY``: from the GPU's start of the work until the call's return,
    where the GPU starts first. ``GPU``: time on the GPU. ``DUE``: from when the call was scheduled until it returned,
    which counts the calls that a stall held up (coordinated omission).
    """

    CALL = "call"
    WAIT = "wait"
    START = "start"
    EARLY = "early"
    GPU = "gpu"
    DUE = "due"

    # The hash of str is C; the hash of an enum is Python code.
    __hash__ = str.__hash__

    @property
    def traits(self) -> PhaseTraits:
        """Measurement, judgement and display of the phase."""
        return PHASE_TRAITS[self]


class Source(StrEnum):
    """What measures a phase: the host's clock around the call, a pair of CUDA events, or the timeline.

    The values are those of the JSON documents. ``Program.source`` decides it.
    """

    HOST = "host"
    EVENTS = "events"
    TIMELINE = "timeline"


@dataclass(frozen=True)
class PhaseTraits:
    """Traits of a phase: measurement, judgement and display.

    - ``word``: its name in tables.
    - ``judged``: the rules give verdicts on it.
    - ``host``: the loop measures it on the host; otherwise the timeline does, or a program with pairs of events.
    - ``matrix``: a check compares it with the baseline in each cell.
    - ``meaning``: its explanation for a reader.
    - ``of_call``: it belongs to one op, so it can have the op's label; the due time belongs to the whole iteration.
    - ``phrase``: what a sentence says in place of ``word``.
    """

    word: str
    judged: bool
    host: bool
    matrix: bool
    meaning: str
    of_call: bool = True
    phrase: str = ""

    @property
    def in_sentence(self) -> str:
        """Name of the phase in a sentence."""
        return self.phrase or self.word


# Properties of each phase (a part of a call's latency): its words, and where the phase is used.
PHASE_TRAITS = {
    Phase.CALL: PhaseTraits("call", judged=True, host=True, matrix=True, meaning="time inside the driver call"),
    Phase.WAIT: PhaseTraits(
        "wait",
        judged=True,
        host=True,
        matrix=True,
        meaning="time from the call's return until the host sees the work complete",
    ),
    Phase.START: PhaseTraits(
        "start",
        judged=True,
        host=False,
        matrix=False,
        meaning="time from the call's return until the GPU starts the work",
        phrase="returned → GPU start",
    ),
    Phase.EARLY: PhaseTraits(
        "before return",
        judged=False,
        host=False,
        matrix=False,
        meaning="time from the GPU's start of the work until the call's return, where the GPU starts first; never a "
        "stall",
    ),
    Phase.GPU: PhaseTraits("gpu", judged=False, host=False, matrix=False, meaning="time of the work on the GPU"),
    Phase.DUE: PhaseTraits(
        "due",
        judged=False,
        host=True,
        matrix=False,
        meaning="time from when the call was scheduled until it returned",
        of_call=False,
    ),
}
# Phases (parts of a call's latency) that the timeline (CUPTI's records of GPU work) measures. If a program measures a
# phase itself with a pair of events, the phase keeps the figure of the events.
TIMELINE_PHASES = (Phase.START, Phase.EARLY, Phase.GPU)
# Phases (parts of a call's latency) that verdicts are about.
JUDGED_PHASES = tuple(phase for phase in Phase if phase.traits.judged)
# Phases (parts of a call's latency) that a check's matrix of victims and aggressors shows.
MATRIX_PHASES = tuple(phase for phase in Phase if phase.traits.matrix)


class Role(StrEnum):
    """A probe's role: measured at a steady rate, run to disturb, or a measure of the host's noise."""

    VICTIM = "victim"
    AGGRESSOR = "aggressor"
    HOST = "host"


class Process(StrEnum):
    """The process that runs a program: the engine, or a second process that the engine starts and ends with it.

    Processes share no resource. Equal contexts of two processes are two contexts.
    """

    ENGINE = "engine"
    SECOND = "second"

    # The hash of str is C; the hash of an enum is Python code.
    __hash__ = str.__hash__


class Space(StrEnum):
    """Kind of memory of a buffer."""

    DEVICE = "device"
    PINNED = "pinned"
    PAGEABLE = "pageable"


class StreamKind(StrEnum):
    """Synchronization of a stream with the legacy default stream of its context.

    ``NON_BLOCKING``: no synchronization. ``BLOCKING``: implicit synchronization. ``NULL``: the legacy default stream
    itself.
    """

    NON_BLOCKING = "non-blocking"
    BLOCKING = "blocking"
    NULL = "null"


@dataclass(frozen=True)
class Context:
    """A CUDA context: ``primary``, ``secondary``, ``third`` or ``green`` on GPU ``device`` (0 or 1) of the session.

    ``device`` is an index into the session's GPUs, not a CUDA ordinal.
    """

    name: str = "primary"
    device: int = 0


# The primary context of the session's first GPU, in which probes run by default.
PRIMARY = Context("primary")
# Second context in which probes run: created with cuCtxCreate, on the GPU of PRIMARY.
SECONDARY = Context("secondary")
# Third context in which probes run, on the GPU of PRIMARY.
THIRD = Context("third")
# Green context in which probes run. The context has a part of the SMs of PRIMARY.
GREEN = Context("green")
# The primary context of the session's second GPU.
PEER = Context("primary", 1)


@dataclass(frozen=True)
class Stream:
    """A stream of a context; ``kind`` NULL is the legacy default stream, one for each context."""

    name: str = "own"
    context: Context = PRIMARY
    kind: StreamKind = StreamKind.NON_BLOCKING
    shared: bool = False


def null_stream(context: Context = PRIMARY) -> Stream:
    """The legacy default stream of ``context``, shared by all probes."""
    return Stream("null", context, StreamKind.NULL, shared=True)


@dataclass(frozen=True)
class Buffer:
    """``nbytes`` bytes of memory in ``space``, allocated while ``context`` is current, before any probe runs.

    A pageable buffer is written once when it is allocated, so that its pages exist ("warm").
    """

    name: str
    space: Space
    nbytes: int
    context: Context = PRIMARY
    shared: bool = False


@dataclass(frozen=True)
class BufferPart:
    """An argument: the address of ``buffer`` plus ``offset`` bytes."""

    buffer: Buffer
    offset: int


@dataclass(frozen=True)
class Word:
    """A 64-bit word of host memory, initially 0.

    As an op's argument it means its address; ``Load(word)`` means its value at the time of the call. ``mapped`` words
    are in pinned memory that kernels can write.
    """

    name: str
    mapped: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Load:
    """An argument: the value of ``word`` when the op is called (for example, to free what another op allocated)."""

    word: Word


@dataclass(frozen=True)
class Event:
    """A CUDA event; cuEventElapsedTime requires ``timing``. With ``blocking``, cuEventSynchronize sleeps."""

    name: str
    context: Context = PRIMARY
    timing: bool = False
    shared: bool = False
    blocking: bool = False


@dataclass(frozen=True)
class Kernel:
    """A kernel of the package's module, loaded in ``context``.

    ``empty`` returns at once. ``spin`` occupies its SMs for a given time and counts its starts in a word. ``first`` is
    the kernel of the module image that aggressors load repeatedly.
    """

    name: str
    context: Context = PRIMARY


@dataclass(frozen=True)
class KernelArgs:
    """Arguments of a kernel: its duration (ns, 0 for ``empty``) and the word in which it counts its starts."""

    duration_ns: int = 0
    started: Word | None = None


@dataclass(frozen=True)
class Graph:
    """A graph of ``nodes`` empty kernels in sequence; with ``instantiated``, the executable graph."""

    name: str
    context: Context = PRIMARY
    nodes: int = 4
    instantiated: bool = True


@dataclass(frozen=True)
class Image:
    """The package's PTX module as bytes in memory, for cuModuleLoadData."""

    name: str = "first"


@dataclass(frozen=True)
class Text:
    """A C string, such as a kernel's name."""

    value: str


# Value of ``HostFunction.word`` at which the host function stops waiting, by the name of the function.
_OPEN_VALUES = {"gate": 1, "mutex": 0}


@dataclass(frozen=True)
class HostFunction:
    """A native host function that CUDA calls.

    ``gate`` waits until ``word`` is not 0, at most ``timeout_ns``; after a timeout it increments ``forced``.
    ``mutex`` takes the mutex ``word``, which other threads take with ``native:lock``, and releases it; it waits for it
    at most ``timeout_ns`` and then increments ``forced``. ``busy`` occupies its thread for ``timeout_ns`` and then
    increments ``word``.
    """

    name: str
    word: Word
    forced: Word
    timeout_ns: int

    @property
    def open_value(self) -> int | None:
        """The value of ``word`` with which the function ends; None for one that waits for nothing."""
        return _OPEN_VALUES.get(self.name)


@dataclass(frozen=True)
class Device:
    """The CUdevice of the session's GPU number ``index``; with ``nvml``, its nvmlDevice_t."""

    index: int = 0
    nvml: bool = False


@dataclass(frozen=True)
class CopyAttributes:
    """Attributes of a cuMemcpyBatchAsync of one copy; ``prefer_overlap`` requests overlap with compute."""

    prefer_overlap: bool = True


class MemoryStructKind(StrEnum):
    """The structure of the driver's API that a MemoryStruct is."""

    ALLOCATION = "CUmemAllocationProp"
    ACCESS = "CUmemAccessDesc"
    POOL = "CUmemPoolProps"


@dataclass(frozen=True)
class MemoryStruct:
    """A structure that names memory on the session's GPU number ``device``: to allocate, read and write, or pool."""

    kind: MemoryStructKind
    device: int = 0


# What an argument of an operation can name; it exists once the engine has made it.
Resource = (
    Context
    | Stream
    | Buffer
    | Word
    | Event
    | Kernel
    | Graph
    | Image
    | Text
    | HostFunction
    | Device
    | CopyAttributes
    | MemoryStruct
)
# An argument of an operation.
Arg = int | Load | BufferPart | KernelArgs | Resource


@dataclass(frozen=True)
class Op:
    """One call.

    ``fn`` is a driver function by its plain name (``cuMemcpyDtoDAsync``), ``libc:NAME``, ``nvml:NAME``, ``cupti:NAME``,
    or ``native:NAME`` for the package's own compiled helpers. ``args`` follow the C signature, with these exceptions:

    - ``cuLaunchKernel``: (kernel or Load of a function handle, blocks, threads, stream, KernelArgs); 0 blocks means as
      many as fill the GPU
    - ``cuMemcpyBatchAsync``: (dst, src, nbytes, CopyAttributes, stream), one copy
    - ``cuLaunchHostFunc``: (stream, HostFunction)
    - ``cuCtxCreate``: (Word for the context, flags, Device)
    - ``native:poll``: (Event or Stream, ns between two queries or 0, timeout in ns); queries until the work is complete
    - ``cupti:cuptiActivityRegisterCallbacks``: (), which registers the package's buffers

    ``phase`` None: the call is checked but not measured. ``label``: the op has a histogram of its own in addition to
    that of its phase. ``ok``: accepted return codes besides 0. ``into``: the word that stores the return value, which
    is then not a status (mmap). ``value``: a word that holds a float of milliseconds, which is the sample in place of
    the call's time (cuEventElapsedTime). ``repeat``: number of calls, each of them measured.
    """

    fn: str
    args: tuple[Arg, ...] = ()
    phase: Phase | None = Phase.CALL
    label: str = ""
    ok: tuple[int, ...] = ()
    into: Word | None = None
    value: Word | None = None
    repeat: int = 1


def op_name(op: Op) -> str:
    """The name of an op in messages: its function, with its label if that says more."""
    return f"{op.fn} ({op.label})" if op.label and op.label != op.fn else op.fn


@dataclass(frozen=True)
class Guard:
    """Limit of iterations in advance of the GPU: the next one waits while ``iterations - word >= ahead``."""

    word: Word
    ahead: int = 1


@dataclass(frozen=True)
class Program:
    """The ops that one thread of ``process`` repeats with ``context`` current (None: without CUDA).

    ``setup`` runs once in the thread before the first iteration, ``teardown`` once after the last; neither is measured.
    ``undo`` runs once in place of ``teardown`` after an iteration with an unexpected return code, unless its first op
    returned the code; the return codes of ``undo`` do not matter. ``proof`` is the word in which the GPU counts the
    work that ran; without it, the iterations are the proof. ``aligned``: the iterations begin at multiples of the
    period, at the same time as those of other aligned probes with the same period; otherwise the moment of switching on
    sets the distance.
    """

    ops: tuple[Op, ...]
    context: Context | None = PRIMARY
    setup: tuple[Op, ...] = ()
    teardown: tuple[Op, ...] = ()
    undo: tuple[Op, ...] = ()
    guard: Guard | None = None
    proof: Word | None = None
    process: Process = Process.ENGINE
    aligned: bool = False

    def __getstate__(self) -> dict[str, object]:
        # Not ``__dict__``, to which another thread may add a computed value meanwhile.
        return {field.name: getattr(self, field.name) for field in fields(self)}

    @property
    def all_ops(self) -> tuple[Op, ...]:
        """The ops of setup, iteration, teardown and undo."""
        return (*self.setup, *self.ops, *self.teardown, *self.undo)

    @cached_property
    def resources(self) -> tuple[Resource, ...]:
        """All resources of the program in order of first use, each context before the resources in it."""
        seen: dict[Resource, None] = {}
        if self.context is not None:
            seen[self.context] = None
        extra: list[Arg] = []
        if self.guard is not None:
            extra.append(self.guard.word)
        if self.proof is not None:
            extra.append(self.proof)
        for op in self.all_ops:
            extra.extend(op.args)
            extra.extend(word for word in (op.into, op.value) if word is not None)
        for arg in extra:
            for resource in _resources_of(arg):
                seen.setdefault(resource)
        return tuple(seen)

    def source(self, phase: Phase) -> Source:
        """The source of ``phase`` of the calls: the host's clock, the program's pairs of events, or the timeline."""
        if phase.traits.host:
            return Source.HOST
        return Source.EVENTS if any(op.phase is phase for op in self.ops) else Source.TIMELINE

    def measures_first(self, channel: Channel) -> bool:
        """True if the first value of ``channel`` is of the first call.

        It is not where an iteration reads the times of the one before: the first one then reads events of no work.
        """
        if self.source(channel.phase) is not Source.EVENTS:
            return True
        read = next((n for n, op in enumerate(self.ops) if op.phase is channel.phase), 0)
        return any(op.phase is Phase.CALL for op in self.ops[:read])

    @cached_property
    def channels(self) -> tuple[Channel, ...]:
        """The channels of the program: one for each of its phases, the due time, and one for each label."""
        measured = [op for op in self.ops if op.phase is not None]
        phases = [p for p in Phase if p.traits.of_call and any(op.phase is p for op in measured)]
        labelled: dict[Channel, None] = {}
        for op in measured:
            if op.label and op.phase is not None:
                labelled.setdefault(Channel(op.phase, op.label))
        return (*(Channel(p) for p in phases), Channel(Phase.DUE), *labelled)


def _resources_of(arg: Arg) -> Iterator[Resource]:
    match arg:
        case int():
            return
        case Load(word):
            yield word
        case BufferPart(buffer, _):
            yield buffer.context
            yield buffer
        case KernelArgs(_, started):
            if started is not None:
                yield started
        case HostFunction(_, word, forced, _):
            yield word
            yield forced
            yield arg
        case Context() | Image() | Text() | Device() | Word() | CopyAttributes() | MemoryStruct():
            yield arg
        case _:
            yield arg.context
            yield arg


class Channel(NamedTuple):
    """A histogram of a probe: of a phase, or with ``label`` of one op in the phase.

    A key of most dictionaries, and therefore no dataclass, whose hash is Python code.
    """

    phase: Phase
    label: str = ""

    @property
    def in_sentence(self) -> str:
        """Name of the channel in a sentence: ``call``, ``wait of LABEL``, ``returned → GPU start``."""
        name = self.phase.traits.in_sentence
        return f"{name} of {self.label}" if self.label else name


# Length (ns) of a slot. Groups of victims take turns: during a slot only the victims of one group run.
SLOT_NS = 100 * MS
# The GPU's index in the session, and the name of the group.
SlotGroup = tuple[int, str]


@dataclass(frozen=True)
class Probe:
    """A program with a name, a role, a context, a stream and a period: one thread, one set of histograms.

    - ``name`` and ``title``: what selects it, and what explains it.
    - ``period_ns``: the time between due times, 0 for back to back.
    - ``entry``: its name in the catalog.
    - ``context`` and ``stream``: names for display.
    - ``slot_group``: the GPU's index and the name of a group of victims with a common slot; None for a probe without a
      slot: an aggressor, the host control, and a victim that other contexts do not disturb.
    - ``baseline_period_ns``: the period while the baseline is measured, None for the same: a longer ``period_ns`` shows
      what the idle time before each call costs.
    """

    name: str
    title: str
    role: Role
    program: Program
    period_ns: int
    entry: str
    context: str = "primary"
    stream: str = "own"
    slot_group: SlotGroup | None = None
    baseline_period_ns: int | None = None

    @property
    def idles(self) -> bool:
        """True if it makes its calls after longer idle times than in its baseline."""
        return self.is_idle_at(self.period_ns)

    def is_idle_at(self, period_ns: int) -> bool:
        """True if calls each ``period_ns`` are made after longer idle times than in its baseline."""
        return self.baseline_period_ns is not None and period_ns > self.baseline_period_ns


class Kind(StrEnum):
    """Purpose of a variant: to show the stall, its absence (control), or a remedy."""

    STALL = "stall"
    CONTROL = "control"
    REMEDY = "remedy"


@dataclass(frozen=True)
class Needs:
    """Requirements of a variant. ``peer_access``: True on, False off, None either. ``libcupti``: NVIDIA's library."""

    gpus: int = 1
    peer_access: bool | None = None
    green_contexts: bool = False
    batch_copies: bool = False
    libcupti: bool = False


@dataclass(frozen=True)
class Variant:
    """One configuration of a pattern: its probes, the expected result, its cause and its remedy."""

    name: str
    kind: Kind
    title: str
    probes: tuple[Probe, ...]
    expect: str
    why: str
    remedy: str = ""
    needs: Needs = field(default_factory=Needs)

    @property
    def aggressors(self) -> tuple[Probe, ...]:
        """The probes that run to disturb."""
        return tuple(probe for probe in self.probes if probe.role is Role.AGGRESSOR)

    @property
    def victims(self) -> tuple[Probe, ...]:
        """The probes that are measured, without the host control."""
        return tuple(probe for probe in self.probes if probe.role is Role.VICTIM)


class Symptom(StrEnum):
    """The visible effect of a stall. ``SYMPTOM_TITLES`` has the words."""

    SLOW_LAUNCHES = "slow-launches"
    WAITING_COPIES = "waiting-copies"
    HANG = "hang"
    SLOW_FIRST_CALL = "slow-first-call"


# Words for each symptom, the visible effect of a stall.
SYMPTOM_TITLES = {
    Symptom.SLOW_LAUNCHES: "launches are slow",
    Symptom.WAITING_COPIES: "copies wait",
    Symptom.HANG: "everything hangs",
    Symptom.SLOW_FIRST_CALL: "first call is slow",
}


@dataclass(frozen=True)
class ReportedLatency:
    """Latencies (ns) of a report.

    ``gpu`` is the reporter's GPU. ``baseline_ns`` is the latency without the stall, or the part of the latency for the
    work of the call itself.
    """

    gpu: str
    baseline_ns: int
    stalled_ns: int


@dataclass(frozen=True)
class Pattern:
    """A reported stall as probes: symptom, cause, remedy and source.

    ``symptom`` is what a user notices first. ``latency`` has the reporter's figures, None where the report has none.
    """

    name: str
    title: str
    see: str
    why: str
    remedy: str
    reported: str
    variants: tuple[Variant, ...]
    symptom: Symptom
    latency: ReportedLatency | None = None

    def variant(self, name: str) -> Variant:
        """The variant called ``name``. Raises KeyError if there is none."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise KeyError(name)
