"""Types of the catalogue: an entry, its traits, its placement, and the causes of the stalls that it produces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Flag, StrEnum, auto

from stallprobes.model import (
    GREEN,
    MS,
    PRIMARY,
    Arg,
    Context,
    Needs,
    Op,
    Phase,
    Probe,
    Process,
    Program,
    Role,
    SlotGroup,
    Stream,
    StreamKind,
    null_stream,
)

# Period (ns) at which most victims (probes whose calls are measured) begin an iteration.
VICTIM_PERIOD_NS = 1 * MS
# Position in the table of the default check for a probe whose entry gives no position. The value is larger than every
# given position, which places the probe after all others.
LAST = 1_000_000
# Name of a stream that no other probe uses. In a probe's name, a stream follows "/".
OWN = "own"
# Name of the second process, which runs probes beside the engine, and of its primary context. In a probe's name, a
# context follows "@".
SECOND_PROCESS = "second-process"


@dataclass(frozen=True)
class Placement:
    """Context, stream and process of a probe. Without ``stream``, it gets a non-blocking stream of its own."""

    context: Context = PRIMARY
    stream: Stream | None = None
    process: Process = Process.ENGINE

    def resolved_stream(self, name: str = "own") -> Stream:
        """The given stream, else the probe's own non-blocking stream called ``name``."""
        return self.stream if self.stream is not None else Stream(name, self.context)

    @property
    def context_label(self) -> str:
        """The context's name, with the GPU unless it is the first, and with the process unless it is the engine."""
        name = self.context.name
        if self.process is Process.SECOND:
            name = SECOND_PROCESS if name == PRIMARY.name else f"{name} of {SECOND_PROCESS}"
        return name if self.context.device == 0 else f"{name} of GPU 2"

    @property
    def stream_label(self) -> str:
        """``own``, ``NULL``, ``shared``, or the stream's name."""
        if self.stream is None:
            return "own"
        if self.stream.kind is StreamKind.NULL:
            return "NULL"
        return "shared" if self.stream.shared else self.stream.name


def on_null_stream(context: Context = PRIMARY) -> Placement:
    """Placement on the legacy default stream of ``context``."""
    return Placement(context, null_stream(context))


def on_shared_stream(context: Context = PRIMARY, name: str = "X") -> Placement:
    """Placement on a non-blocking stream that several probes share."""
    return Placement(context, Stream(name, context, shared=True))


# Makes a program from a placement and a size in bytes.
ProgramMaker = Callable[[Placement, int], Program]


class Hardware(Flag):
    """Hardware that a probe's work occupies; members combine with ``|``.

    ``GRAPHICS_ENGINE``: kernels, and copies that the driver makes with a kernel. ``D2H_ENGINE`` and ``H2D_ENGINE``: the
    copy engine of that direction. ``HOST_BUS``: transfers to and from the host. ``INLINE_COPY``: small H2D copies that
    travel in the command stream. ``PEER_TRANSFER``: copies to another GPU that share the order of its transfers.
    ``STAGING_BUFFERS``: the driver's buffers through which copies to pageable memory and to another GPU pass.
    ``HOST_THREAD``: the driver's thread that calls host functions.
    """

    NONE = 0
    GRAPHICS_ENGINE = auto()
    D2H_ENGINE = auto()
    H2D_ENGINE = auto()
    HOST_BUS = auto()
    INLINE_COPY = auto()
    PEER_TRANSFER = auto()
    STAGING_BUFFERS = auto()
    HOST_THREAD = auto()


# Words for each kind of hardware, for texts about the cause of a stall.
HARDWARE_LABELS = {
    Hardware.GRAPHICS_ENGINE: "the graphics engine",
    Hardware.D2H_ENGINE: "the D2H copy engine",
    Hardware.H2D_ENGINE: "the H2D copy engine",
    Hardware.HOST_BUS: "the bus to the host",
    Hardware.INLINE_COPY: "small copies in the command stream",
    Hardware.PEER_TRANSFER: "transfers to another GPU",
    Hardware.STAGING_BUFFERS: "the driver's staging buffers",
    Hardware.HOST_THREAD: "the driver's thread for host functions",
}


# Largest H2D copy (bytes) that the driver sends in the command stream. The graphics engine writes the data of a small
# copy, and may have to change over to the copy's context first. Larger copies use a copy engine, which needs no
# change-over.
_INLINE_BYTES = 65_536


# Phases of a victim that a lock in the driver delays: its calls.
CALLS = frozenset({Phase.CALL})
# Phases of a victim that a queue delays: the start of its GPU work, and the wait for the work's end.
WAITS = frozenset({Phase.WAIT, Phase.START})
# Phases of a victim that a lock and a queue together delay.
BOTH = CALLS | WAITS


class Relation(StrEnum):
    """Relation of a victim's context or stream to the aggressor's."""

    SAME = "same"
    OTHER = "other"


@dataclass(frozen=True)
class Cause:
    """Reason why an aggressor stalls a victim, and the remedy.

    ``short`` and ``short_remedy`` say the same in a clause each, for one line of a narrow screen. It applies to delays
    of the ``phases``, when the contexts, streams and processes have the given relations (None: either) and the victim
    uses some of the hardware in ``uses`` (NONE: any victim). ``null_stream``: it applies only to victims on the legacy
    default stream.
    """

    phases: frozenset[Phase]
    short: str
    short_remedy: str
    why: str
    remedy: str
    context: Relation | None = None
    stream: Relation | None = None
    uses: Hardware = Hardware.NONE
    null_stream: bool = False
    process: Relation | None = None

    def applies(
        self, context: Relation, stream: Relation, process: Relation, used: Hardware, on_null_stream: bool
    ) -> bool:
        """True if it stalls a victim with these relations to the aggressor, and with work on the hardware ``used``."""
        return (
            self.context in (None, context)
            and self.stream in (None, stream)
            and self.process in (None, process)
            and (not self.uses or bool(self.uses & used))
            and (on_null_stream or not self.null_stream)
        )

    def explains(self, phase: Phase | None, used: Hardware) -> bool:
        """True if it explains a delay in ``phase`` (None: in any) of a victim that uses the hardware ``used``.

        A copy through staging buffers waits for its engine inside the call.
        """
        inside = bool(used & Hardware.STAGING_BUFFERS) and phase is Phase.CALL and bool(self.phases & WAITS)
        return phase is None or phase in self.phases or inside


@dataclass(frozen=True)
class CheckPlacement:
    """One row or column of the default check: an entry in ``context`` on ``stream``, for a column in several threads.

    ``stream`` is "own", "shared" or "null"; "" is the default of the role: victims have their own stream, aggressors
    share one. ``position`` orders the check and ``quick_position`` the quick check, which leaves it out when None.
    Equal positions keep the order of the catalogue.
    """

    context: str = PRIMARY.name
    stream: str = ""
    position: int = LAST
    quick_position: int | None = None
    threads: int = 1

    def probe_name(self, entry: str) -> str:
        """The name of ``entry`` at this placement, as the command line takes it."""
        return placed_name(entry, self.context, self.stream, self.threads, usual_stream="")


@dataclass(frozen=True)
class Entry:
    """A probe of the catalogue that is not yet placed, with its traits.

    - ``program``: makes the program from a placement and a size in bytes (0 for entries without a size).
    - ``period_ns``: the default time between calls, 0 for back to back.
    - ``uses``: the hardware that the work occupies.
    - ``check``: its places in the default check.
    - ``needs``: what a machine must have.
    - ``control``: an aggressor that stalls no victim; simulated checks pace it, since each of its calls costs real
      time.
    - ``beside``: of an aggressor that may run beside a watched program, its place among these, from 1 on; 0 for none.
      It must be bounded, and small.
    - ``note``: a remark for ``explain``.
    """

    name: str
    title: str
    role: Role
    program: ProgramMaker
    what: str
    source: str
    period_ns: int = 0
    size: int = 0
    uses: Hardware = Hardware.NONE
    check: tuple[CheckPlacement, ...] = ()
    needs: Needs = field(default_factory=Needs)
    control: bool = False
    causes: tuple[Cause, ...] = ()
    beside: int = 0
    note: str = ""

    def probe(
        self,
        placement: Placement | None = None,
        *,
        size: int | None = None,
        name: str | None = None,
        period_ns: int | None = None,
        baseline_period_ns: int | None = None,
    ) -> Probe:
        """A probe of this entry at ``placement``, with ``size`` in bytes and one iteration each ``period_ns``.

        ``baseline_period_ns`` is the period of its baseline, if another. Raises ValueError when a size is given to an
        entry without one.
        """
        if size is not None and not self.size:
            raise ValueError(f"{self.name} has no size to set")
        placement = placement if placement is not None else Placement()
        program = self.program(placement, size if size is not None else self.size)
        program = replace(program, process=placement.process)
        context = placement.context_label if program.context is not None else "none"
        stream = placement.stream_label if program.context is not None else "none"
        where = "" if program.context is None else f" · {context} · {stream} stream"
        idle = "" if period_ns is None or baseline_period_ns is None else f" each {_round_duration(period_ns)}"
        return Probe(
            name=name or placed_name(self.name, context, stream),
            title=self.title + idle + where,
            role=self.role,
            program=program,
            period_ns=self.period_ns if period_ns is None else period_ns,
            entry=self.name,
            context=context,
            stream=stream,
            baseline_period_ns=baseline_period_ns,
            slot_group=None if program.context is None else self.slot_group(program.context, size, placement.process),
        )

    def slot_group(
        self, context: Context, size: int | None = None, process: Process = Process.ENGINE
    ) -> SlotGroup | None:
        """The group of victims with which a probe of this entry and ``size`` in ``context`` shares its slot.

        None if it needs no slot: an aggressor, or a victim whose work does not wait for another context. Green
        contexts belong to the group of their GPU's primary context. Equal contexts of two processes are two groups.
        """
        inline = bool(self.uses & Hardware.INLINE_COPY) and (size if size is not None else self.size) <= _INLINE_BYTES
        if self.role is not Role.VICTIM or not (inline or self.uses & Hardware.GRAPHICS_ENGINE):
            return None
        name = PRIMARY.name if context.name == GREEN.name else context.name
        return context.device, name if process is Process.ENGINE else f"{name} of {SECOND_PROCESS}"


def placed_name(entry: str, context: str, stream: str, threads: int = 1, *, usual_stream: str = OWN) -> str:
    """The shortest name by which probes of ``entry`` are selected, ``ENTRY-xTHREADS@CONTEXT/STREAM``."""
    several = f"-x{threads}" if threads > 1 else ""
    at = "" if context in (PRIMARY.name, "none") else f"@{context}"
    where = stream.lower()
    return entry + several + at + ("" if where in (usual_stream, "none") else f"/{where}")


def _round_duration(ns: int) -> str:
    return f"{ns / 1e9:g} s" if ns >= 1_000 * MS else f"{ns / MS:g} ms"


def in_threads(probe: Probe, threads: int, name: str) -> tuple[Probe, ...]:
    """``probe`` in ``threads`` threads, called ``NAME 1``, ``NAME 2`` and so on."""
    return tuple(replace(probe, name=f"{name} {number}") for number in range(1, threads + 1))


def called(fn: str, *args: Arg) -> Op:
    """A measured call of ``fn`` with a histogram of its own, as where an iteration makes several."""
    return Op(fn, args, label=fn)


def synchronized(stream: Stream, *ops: Op) -> tuple[Op, ...]:
    """``ops``, then cuStreamSynchronize of ``stream``, which is the phase ``wait``."""
    return (*ops, Op("cuStreamSynchronize", (stream,), Phase.WAIT))


def repeated(ops: Callable[[Placement, int], tuple[Op, ...]]) -> ProgramMaker:
    """Maker of the program of ``ops`` of a placement and a size."""
    return lambda placement, size: Program(ops=ops(placement, size), context=placement.context)


def repeated_on_stream(ops: Callable[[Stream, int], tuple[Op, ...]]) -> ProgramMaker:
    """Maker of the program of ``ops`` of a placement's stream and a size, with a synchronization of the stream."""

    def program(placement: Placement, size: int) -> Program:
        stream = placement.resolved_stream()
        return Program(ops=synchronized(stream, *ops(stream, size)), context=placement.context)

    return program
