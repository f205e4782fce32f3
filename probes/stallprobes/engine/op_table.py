"""Compiler from programs to op tables: rows of integers that the compiled loop executes.

This module does what is the same for every backend: the histogram that an op fills, the arguments that are read
through a pointer at call time, the accepted return codes. A resolver gives the addresses of functions and the handles
of streams and buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from stallprobes.engine.host_resolver import HostResolver
from stallprobes.engine.loop import OpRows, op_rows
from stallprobes.model import BufferPart, Channel, KernelArgs, Load, Op, Program, Resource, op_name
from stallprobes.native.layouts.program import ACCEPTED, ARGUMENTS, OpFlag, OpRow


@dataclass(frozen=True)
class OpTable:
    """A compiled program: the rows of its ops, and the addresses of two words.

    ``guard_address`` is the guard's word (0: none) and ``guard_ahead`` its limit; ``proof_address`` is the proof word
    (0: none).
    """

    ops: OpRows
    setup: OpRows
    teardown: OpRows
    undo: OpRows
    guard_address: int
    guard_ahead: int
    proof_address: int


def compile_program(program: Program, resolver: HostResolver) -> OpTable:
    """The op tables of ``program``.

    Raises Unsupported if the resolver cannot provide a resource, ValueError if an op does not fit into a row.
    """
    channels = {channel: number for number, channel in enumerate(program.channels)}
    guard, undo = program.guard, _rows(program.undo, resolver, {})
    for row in undo:
        # The loop checks no return code of these.
        row.flags |= OpFlag.RETURN_IS_VALUE
    return OpTable(
        ops=_rows(program.ops, resolver, channels),
        setup=_rows(program.setup, resolver, {}),
        teardown=_rows(program.teardown, resolver, {}),
        undo=undo,
        guard_address=0 if guard is None else resolver.word(guard.word),
        guard_ahead=0 if guard is None else guard.ahead,
        proof_address=0 if program.proof is None else resolver.word(program.proof),
    )


def _rows(ops: Sequence[Op], resolver: HostResolver, channels: Mapping[Channel, int]) -> OpRows:
    rows = op_rows(len(ops))
    for row, op in zip(rows, ops, strict=True):
        _fill(row, op, resolver, channels)
    return rows


def _fill(row: OpRow, op: Op, resolver: HostResolver, channels: Mapping[Channel, int]) -> None:
    lowered = resolver.lower(op)
    args = op.args if lowered is None else lowered
    if len(args) > ARGUMENTS:
        raise ValueError(f"{op_name(op)} has {len(args)} arguments, the loop passes at most {ARGUMENTS}")
    if len(op.ok) > ACCEPTED:
        raise ValueError(f"{op_name(op)} has {len(op.ok)} accepted codes, a row holds {ACCEPTED}")
    if op.repeat < 1:
        raise ValueError(f"{op_name(op)} has repeat {op.repeat}, which must be at least 1")
    row.function = resolver.function(op.fn)
    for number, arg in enumerate(args):
        if isinstance(arg, Load):
            row.load_mask |= 1 << number
            row.arguments[number] = resolver.word(arg.word)
        else:
            row.arguments[number] = _signed(_value(arg, resolver))
    if op.phase is not None and channels:
        row.channel = channels[Channel(op.phase)]
        if op.label:
            row.label_channel = channels[Channel(op.phase, op.label)]
    if op.into is not None:
        row.flags |= OpFlag.RETURN_IS_VALUE
        row.into = resolver.word(op.into)
    if op.value is not None:
        row.flags |= OpFlag.SAMPLE_IS_FLOAT_MS
        row.value = resolver.word(op.value)
    row.accepted[: len(op.ok)] = op.ok
    row.repeat = op.repeat


def _value(arg: int | BufferPart | KernelArgs | Resource, resolver: HostResolver) -> int:
    match arg:
        case int():
            return arg
        case BufferPart(buffer, offset):
            return resolver.value(buffer) + offset
        case _:
            return resolver.value(arg)


def _signed(value: int) -> int:
    """The signed 64-bit integer with the bits of ``value``. Raises ValueError if ``value`` does not fit."""
    if not -(1 << 63) <= value < 1 << 64:
        raise ValueError(f"{value} does not fit into 64 bits")
    return value - (1 << 64) if value >= 1 << 63 else value
