"""Submissions of a program: its ops that put work on the GPU, their streams, and the channels of the timeline for
them."""

from __future__ import annotations

from dataclasses import dataclass

from stallprobes import model

# Driver functions that launch kernels. CUPTI delivers one record for each kernel. A launched graph has one record for
# each node.
_KERNELS = frozenset({"cuLaunchKernel", "cuGraphLaunch"})
# Driver functions that put copies on a stream.
_COPIES = frozenset(
    {"cuMemcpyDtoDAsync", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyPeerAsync", "cuMemcpyBatchAsync"}
)
# Driver functions that put memsets on a stream.
_MEMSETS = frozenset({"cuMemsetD8Async", "cuMemsetD32Async"})
# Driver functions without a stream among their arguments. These functions use the legacy default stream of the thread's
# context.
_ON_DEFAULT_STREAM = frozenset(
    {"cuMemcpyDtoH", "cuMemcpyHtoD", "cuMemcpyDtoD", "cuMemcpyPeer", "cuMemsetD8", "cuMemsetD32"}
)
# Driver functions of probes that submit kernels, copies or memsets.
SUBMITTING = _KERNELS | _COPIES | _MEMSETS | _ON_DEFAULT_STREAM
# Driver functions that wait for work.
_SYNCHRONIZING = frozenset({"cuStreamSynchronize", "cuCtxSynchronize", "cuEventSynchronize"})
# Name of the only function in _ON_DEFAULT_STREAM that always waits until all work of the default stream is complete.
# The other functions may return earlier.
_SYNCHRONIZES_DEFAULT_STREAM = "cuMemcpyDtoH"

# Number of later calls on a stream after which a call's work has certainly started, even without any wait. ``depth``
# returns no larger number. Reason for the value: the driver's queue of a stream holds about 1000 calls.
UNBOUNDED = 2048


@dataclass(frozen=True)
class Submission:
    """An op that puts work on the GPU: its index in the program, its stream, and the records that one call yields.

    ``awaited``: an op of the same iteration waits for the stream, so the work ends before the next iteration begins.
    """

    op: int
    stream: model.Stream
    label: str
    repeat: int
    records: int
    awaited: bool


@dataclass(frozen=True)
class StreamUse:
    """A stream on which a probe submits work.

    ``context`` and ``handle`` are the stream's CUcontext and CUstream.
    """

    probe: str
    stream: model.Stream
    context: int
    handle: int


def submissions(program: model.Program) -> tuple[Submission, ...]:
    """The ops of an iteration that put work on a stream: a named stream, or the default stream."""
    submitted = []
    for number, op in enumerate(program.ops):
        stream = _stream(op, program)
        if op.fn in SUBMITTING and stream is not None:
            awaited = any(_waits_for(later, stream, program) for later in program.ops[number:])
            submitted.append(Submission(number, stream, op.label, op.repeat, _records(op), awaited))
    return tuple(submitted)


def depth(program: model.Program, stream: model.Stream) -> int:
    """Number of later calls on ``stream`` after which a call's work has certainly started, at most UNBOUNDED.

    A program that waits for its stream in each iteration has one iteration in flight; a guard sets the number for its
    program.
    """
    each = sum(part.repeat for part in submissions(program) if part.stream == stream)
    waits = set(_SYNCHRONIZING)
    if stream.kind is model.StreamKind.NULL:
        waits.add(_SYNCHRONIZES_DEFAULT_STREAM)
    if any(op.fn in waits for op in program.ops):
        return min(each, UNBOUNDED)
    if program.guard is not None:
        return min(each * program.guard.ahead, UNBOUNDED)
    return UNBOUNDED


def crosses_gpus(program: model.Program) -> bool:
    """True if a call that puts work on a stream uses two GPUs: then the driver may run it on a stream of its own."""
    return any(op.fn in SUBMITTING and len(_devices(op)) > 1 for op in program.ops)


def _devices(op: model.Op) -> set[int]:
    devices = set()
    for arg in op.args:
        owner = arg.buffer if isinstance(arg, model.BufferPart) else arg
        if isinstance(owner, model.Buffer | model.Stream):
            devices.add(owner.context.device)
        elif isinstance(owner, model.Context):
            devices.add(owner.device)
    return devices


def timeline_channels(program: model.Program) -> tuple[model.Channel, ...]:
    """The channels that the timeline fills, besides those of the program: per phase, then per label and phase.

    A phase that the program measures itself, with a pair of events, keeps that source.
    """
    parts = submissions(program)
    if not parts:
        return ()
    phases = tuple(phase for phase in model.TIMELINE_PHASES if program.source(phase) is model.Source.TIMELINE)
    labels = dict.fromkeys(part.label for part in parts if part.label)
    return (*map(model.Channel, phases), *(model.Channel(phase, label) for label in labels for phase in phases))


def _stream(op: model.Op, program: model.Program) -> model.Stream | None:
    if op.fn in _ON_DEFAULT_STREAM:
        return None if program.context is None else model.null_stream(program.context)
    return next((arg for arg in op.args if isinstance(arg, model.Stream)), None)


def _waits_for(op: model.Op, stream: model.Stream, program: model.Program) -> bool:
    if op.fn == "cuStreamSynchronize":
        return stream in op.args
    if op.fn == _SYNCHRONIZES_DEFAULT_STREAM:
        return stream == _stream(op, program)
    return op.fn == "cuCtxSynchronize" and stream.context == program.context


def _records(op: model.Op) -> int:
    return next((arg.nodes for arg in op.args if isinstance(arg, model.Graph)), 1)
