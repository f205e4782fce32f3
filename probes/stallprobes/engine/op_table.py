"""Compiler from programs to op tables: rows of integers that the compiled loop executes.

This module does what is the same for every backend: the histogram that an op fills, the arguments that are read
through a pointer at call time, the accepted return codes. A Resolver gives the addresses of functions and the handles
of streams and buffers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from stallprobes.engine import loop
from stallprobes.model import Arg, BufferPart, Channel, KernelArgs, Load, Op, Program, Resource, Word, op_name

MAX_ARGS = loop.ARGUMENTS
MAX_OK = 3


class Resolver(Protocol):
    """Maps the functions and resources of one probe's program to addresses and handles."""

    def function(self, fn: str) -> int:
        """The address of an op's function. Raises Unsupported if this machine does not have it."""
        ...

    def value(self, resource: Resource | KernelArgs) -> int:
        """The integer that is passed for ``resource``: a handle or an address. Raises Unsupported."""
        ...

    def word(self, word: Word) -> int:
        """The address of ``word``."""
        ...

    def lower(self, op: Op) -> Sequence[Arg] | None:
        """The arguments of the C function, for an op whose arguments differ from it (such as cuLaunchKernel).

        None: the op's arguments are the function's. The result may contain resources and Loads.
        """
        ...


@dataclass(frozen=True)
class OpTable:
    """A compiled program: int64[ops][COLUMNS] for ``ops``, ``setup`` and ``teardown``, and the addresses of two words.

    ``guard_address`` is the guard's word (0: none) and ``guard_ahead`` its limit; ``proof_address`` is the proof word
    (0: none).
    """

    ops: NDArray[np.int64]
    setup: NDArray[np.int64]
    teardown: NDArray[np.int64]
    guard_address: int
    guard_ahead: int
    proof_address: int


def compile_program(program: Program, resolver: Resolver) -> OpTable:
    """The op tables of ``program``.

    Raises Unsupported if the resolver cannot provide a resource, ValueError if an op does not fit into a row.
    """
    channels = {channel: number for number, channel in enumerate(program.channels())}
    guard = program.guard
    return OpTable(
        ops=_rows(program.ops, resolver, channels),
        setup=_rows(program.setup, resolver, {}),
        teardown=_rows(program.teardown, resolver, {}),
        guard_address=0 if guard is None else resolver.word(guard.word),
        guard_ahead=0 if guard is None else guard.ahead,
        proof_address=0 if program.proof is None else resolver.word(program.proof),
    )


def _rows(ops: Sequence[Op], resolver: Resolver, channels: Mapping[Channel, int]) -> NDArray[np.int64]:
    rows = loop.empty_table(len(ops))
    for row, op in zip(rows, ops, strict=True):
        _fill(row, op, resolver, channels)
    return rows


def _fill(row: NDArray[np.int64], op: Op, resolver: Resolver, channels: Mapping[Channel, int]) -> None:
    lowered = resolver.lower(op)
    args = op.args if lowered is None else lowered
    if len(args) > MAX_ARGS:
        raise ValueError(f"{op_name(op)} has {len(args)} arguments, the loop passes at most {MAX_ARGS}")
    if len(op.ok) > MAX_OK:
        raise ValueError(f"{op_name(op)} has {len(op.ok)} accepted codes, a row holds {MAX_OK}")
    if op.repeat < 1:
        raise ValueError(f"{op_name(op)} has repeat {op.repeat}, which must be at least 1")
    row[loop.COL_FN] = resolver.function(op.fn)
    mask = 0
    for number, arg in enumerate(args):
        if isinstance(arg, Load):
            mask |= 1 << number
            row[loop.COL_A0 + number] = resolver.word(arg.word)
        else:
            row[loop.COL_A0 + number] = _signed(_value(arg, resolver))
    row[loop.COL_LOAD_MASK] = mask
    if op.phase is not None and channels:
        row[loop.COL_CHANNEL] = channels[Channel(op.phase)]
        if op.label:
            row[loop.COL_LABEL_CHANNEL] = channels[Channel(op.phase, op.label)]
    flags = 0
    if op.into is not None:
        flags |= loop.RETURN_IS_VALUE
        row[loop.COL_INTO] = resolver.word(op.into)
    if op.value is not None:
        flags |= loop.SAMPLE_IS_FLOAT_MS
        row[loop.COL_VALUE] = resolver.word(op.value)
    row[loop.COL_FLAGS] = flags
    for column, code in zip((loop.COL_OK0, loop.COL_OK1, loop.COL_OK2), op.ok, strict=False):
        row[column] = code
    row[loop.COL_REPEAT] = op.repeat


def _value(arg: int | BufferPart | KernelArgs | Resource, resolver: Resolver) -> int:
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
