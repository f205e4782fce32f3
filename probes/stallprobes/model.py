"""Ops, programs, probes and patterns as frozen data: no CUDA and no threads in here.

A program names what it needs (contexts, streams, buffers, words) by value. Whoever executes it, the CUDA side or
the simulated GPU, walks the program, makes each distinct resource once and turns every op into a call.

Resources with ``shared=False`` belong to the probe that names them; with ``shared=True`` the same value named by
two probes of a session is one and the same thing (two threads on one stream, a gate that another thread opens).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

KIB = 1024
MIB = 1024 * 1024
US = 1_000
MS = 1_000_000


class Phase(StrEnum):
    """What a latency is the latency of. The values are those of the JSON documents, version 1.

    ``CALL``: time inside the driver call. ``WAIT``: from its return until the host sees the work complete. ``START``:
    from its return until the GPU starts the work. ``GPU``: time on the GPU. ``DUE``: from when the call was scheduled
    until it returned, which counts the calls that a stall held up (coordinated omission).
    """

    CALL = "call"
    WAIT = "wait"
    START = "start"
    GPU = "gpu"
    DUE = "intended"

    @property
    def traits(self) -> PhaseTraits:
        """How the phase is measured, and where it is judged and shown."""
        return PHASE_TRAITS[self]


@dataclass(frozen=True)
class PhaseTraits:
    """What may be done with a phase.

    ``word`` in sentences and tables. ``judged``: the rules give verdicts on it. ``host``: the loop times it on the host.
    ``matrix``: each cell of a check compares it with the cell's baseline. ``of_call``: an op has it, so it may carry
    the op's label; the due time belongs to the whole iteration.
    """

    word: str
    judged: bool
    host: bool
    matrix: bool
    of_call: bool = True


PHASE_TRAITS = {
    Phase.CALL: PhaseTraits("call", judged=True, host=True, matrix=True),
    Phase.WAIT: PhaseTraits("wait", judged=True, host=True, matrix=True),
    Phase.START: PhaseTraits("start", judged=True, host=False, matrix=False),
    Phase.GPU: PhaseTraits("gpu", judged=False, host=False, matrix=False),
    Phase.DUE: PhaseTraits("due", judged=False, host=True, matrix=False, of_call=False),
}
JUDGED_PHASES = tuple(phase for phase in Phase if phase.traits.judged)
MATRIX_PHASES = tuple(phase for phase in Phase if phase.traits.matrix)


class Role(StrEnum):
    """A probe's part: measured at a steady pace, run to disturb, or the machine's own noise."""

    VICTIM = "victim"
    AGGRESSOR = "aggressor"
    HOST = "host"


class Space(StrEnum):
    """Where a buffer lies."""

    DEVICE = "device"
    PINNED = "pinned"
    PAGEABLE = "pageable"


class StreamKind(StrEnum):
    """How a stream stands to the legacy default stream of its context."""

    NON_BLOCKING = "non-blocking"
    BLOCKING = "blocking"
    NULL = "null"


@dataclass(frozen=True)
class Context:
    """A CUDA context. ``primary``, ``secondary``, ``third`` or ``green`` on GPU ``device`` (0 or 1) of the session.

    ``device`` counts the GPUs that the session was given, not CUDA's ordinals.
    """

    name: str = "primary"
    device: int = 0


PRIMARY = Context("primary")
SECONDARY = Context("secondary")
THIRD = Context("third")
GREEN = Context("green")
PEER = Context("primary", 1)


@dataclass(frozen=True)
class Stream:
    """A stream of one context; ``kind`` NULL is the legacy default stream, one for each context."""

    name: str = "own"
    context: Context = PRIMARY
    kind: StreamKind = StreamKind.NON_BLOCKING
    shared: bool = False


def null_stream(context: Context = PRIMARY) -> Stream:
    """The legacy default stream of ``context``: the same one for every probe."""
    return Stream("null", context, StreamKind.NULL, shared=True)


@dataclass(frozen=True)
class Buffer:
    """``nbytes`` of memory in ``space``, allocated while ``context`` is current, before anything runs.

    A pageable buffer is written once when it is made, so it is "warm".
    """

    name: str
    space: Space
    nbytes: int
    context: Context = PRIMARY
    shared: bool = False


@dataclass(frozen=True)
class BufferPart:
    """``buffer`` from byte ``offset`` on, as an argument."""

    buffer: Buffer
    offset: int


@dataclass(frozen=True)
class Word:
    """A 64-bit word of host memory, 0 at first.

    As an op's argument it stands for its address; ``Load(word)`` stands for its value at the time of the call.
    ``mapped`` words lie in pinned memory that kernels can write.
    """

    name: str
    mapped: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Load:
    """The value that ``word`` holds when the op is called (so that allocate-then-free works)."""

    word: Word


@dataclass(frozen=True)
class Event:
    """A CUDA event; only with ``timing`` may it serve cuEventElapsedTime."""

    name: str
    context: Context = PRIMARY
    timing: bool = False
    shared: bool = False


@dataclass(frozen=True)
class Kernel:
    """A kernel of the package's module, loaded in ``context``.

    ``empty`` returns at once. ``spin`` holds its SMs for a given time and counts its start in a word. ``first`` is
    the kernel of the module image that aggressors load anew.
    """

    name: str
    context: Context = PRIMARY


@dataclass(frozen=True)
class KernelArgs:
    """What a kernel is called with: the time it shall run (ns, 0 for ``empty``) and the word in which it counts
    its starts."""

    duration_ns: int = 0
    started: Word | None = None


@dataclass(frozen=True)
class Graph:
    """A graph of ``nodes`` empty kernels in a row. ``instantiated`` names the executable one."""

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


@dataclass(frozen=True)
class HostFunction:
    """A native host function that CUDA calls. ``gate`` waits until ``word`` is not 0, at most ``timeout_ns``, then
    counts in ``forced`` if it had to open by itself."""

    name: str
    word: Word
    forced: Word
    timeout_ns: int


@dataclass(frozen=True)
class Device:
    """The CUdevice of the session's GPU number ``index``; for NVML calls, its nvmlDevice_t (``nvml``)."""

    index: int = 0
    nvml: bool = False


@dataclass(frozen=True)
class CopyAttributes:
    """Attributes of a cuMemcpyBatchAsync with one copy; ``prefer_overlap`` asks for overlap with compute."""

    prefer_overlap: bool = True


Resource = (
    Context | Stream | Buffer | Word | Event | Kernel | Graph | Image | Text | HostFunction | Device | CopyAttributes
)
Arg = int | Load | BufferPart | KernelArgs | Resource


@dataclass(frozen=True)
class Op:
    """One call.

    ``fn`` is a driver function by its plain name (``cuMemcpyDtoDAsync``), ``libc:NAME``, ``nvml:NAME``, or
    ``native:NAME`` for the package's own compiled helpers. ``args`` follow the C signature, with these exceptions:

    - ``cuLaunchKernel``: (kernel or Load of a function handle, blocks, threads, stream, KernelArgs); 0 blocks are as
      many as fill the GPU
    - ``cuMemcpyBatchAsync``: (dst, src, nbytes, CopyAttributes, stream), one copy
    - ``cuLaunchHostFunc``: (stream, HostFunction)
    - ``cuCtxCreate``: (Word for the context, flags, Device)

    ``phase`` None: called, its result checked, but not measured. ``label`` gives the op a histogram of its own
    beside the one of its phase. ``ok`` are return codes that are fine besides 0. ``into`` takes the return value,
    which then is no status (mmap). ``value`` is a word whose float of milliseconds is the sample, in place of the
    time of the call (cuEventElapsedTime). ``repeat`` calls it that many times, each one measured.
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
    """How an op is called in a message: its function, with the label that tells it from its like."""
    return f"{op.fn} ({op.label})" if op.label else op.fn


@dataclass(frozen=True)
class Guard:
    """A turn is taken only while ``turns - value of word < ahead``: at most ``ahead`` turns that have not started."""

    word: Word
    ahead: int = 1


@dataclass(frozen=True)
class Program:
    """The ops one thread repeats with ``context`` current (None: no CUDA at all).

    ``setup`` runs once in the thread before its first turn, ``teardown`` once after its last; neither is measured.
    ``proof`` counts from the GPU that the work really ran; without it the probe's own turns are its proof.
    """

    ops: tuple[Op, ...]
    context: Context | None = PRIMARY
    setup: tuple[Op, ...] = ()
    teardown: tuple[Op, ...] = ()
    guard: Guard | None = None
    proof: Word | None = None

    def resources(self) -> Iterator[Resource]:
        """Every resource named anywhere in the program, in order of first use, contexts first for their users."""
        seen: dict[Resource, None] = {}
        if self.context is not None:
            seen[self.context] = None
        extra: list[Arg] = []
        if self.guard is not None:
            extra.append(self.guard.word)
        if self.proof is not None:
            extra.append(self.proof)
        for op in (*self.setup, *self.ops, *self.teardown):
            extra.extend(op.args)
            extra.extend(word for word in (op.into, op.value) if word is not None)
        for arg in extra:
            for resource in _resources_of(arg):
                seen.setdefault(resource)
        return iter(seen)

    def channels(self) -> tuple[Channel, ...]:
        """The histograms the program fills: one for each phase it has, the intended-time one, one for each label."""
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
        case Context() | Image() | Text() | Device() | Word() | CopyAttributes():
            yield arg
        case _:
            yield arg.context
            yield arg


@dataclass(frozen=True)
class Channel:
    """One histogram of a probe: a phase, or with ``label`` one op's share of it."""

    phase: Phase
    label: str = ""


@dataclass(frozen=True)
class Probe:
    """A program with a name, a part, a place and a pace; one thread, one set of histograms.

    ``period_ns`` is the time between intended starts, 0 for back to back. ``context`` and ``stream`` say in words
    where it runs. ``entry`` is its name in the catalogue.
    """

    name: str
    title: str
    role: Role
    program: Program
    period_ns: int
    entry: str
    context: str = "primary"
    stream: str = "own"

    @property
    def short_title(self) -> str:
        """The title without the stream where the probe has its own, which is the usual case."""
        stream = f" · {self.stream} stream"
        if not self.title.endswith(stream):
            return self.title
        return self.title.removesuffix(stream) if self.stream == "own" else self.title.removesuffix(" stream")


class Kind(StrEnum):
    """What a variant is there to show."""

    STALL = "stall"
    CONTROL = "control"
    REMEDY = "remedy"


@dataclass(frozen=True)
class Needs:
    """What a variant cannot run without. ``peer_access``: None does not matter, True on, False off."""

    gpus: int = 1
    peer_access: bool | None = None
    green_contexts: bool = False
    batch_copies: bool = False


@dataclass(frozen=True)
class Variant:
    """One setting of a pattern: its probes, what they show, why, and what helps."""

    name: str
    kind: Kind
    title: str
    probes: tuple[Probe, ...]
    expect: str
    why: str
    helps: str = ""
    needs: Needs = field(default_factory=Needs)


@dataclass(frozen=True)
class Pattern:
    """A named story told by probes: what you will see, why, what helps, where it was reported."""

    name: str
    title: str
    see: str
    why: str
    helps: str
    reported: str
    variants: tuple[Variant, ...]

    def variant(self, name: str) -> Variant:
        """The variant called ``name``. Raises KeyError when there is none."""
        for variant in self.variants:
            if variant.name == name:
                return variant
        raise KeyError(name)
