"""Layout of compiled programs: the rows of an op table, and what a probe's loop is called with."""

import ctypes
from enum import IntFlag
from typing import Annotated, Any

from stallprobes.native.layouts.structure import Function, Int64, Pointer, UInt64, structure

# Largest number of arguments of a call in a probe's program.
ARGUMENTS = 11
# Largest number of result codes besides success that a call in a probe's program accepts.
ACCEPTED = 3
# Number that stands for "no channel", and for "no further accepted result code".
NONE = -1


class OpFlag(IntFlag):
    """A bit of an op's flags.

    RETURN_IS_VALUE: the call returns a value, not a status. SAMPLE_IS_FLOAT_MS: the measured value is the float (ms) at
    ``value``, not the call's duration.
    """

    RETURN_IS_VALUE = 1
    SAMPLE_IS_FLOAT_MS = 2


@structure
class OpRow(ctypes.Structure):
    """One op of a table.

    ``load_mask`` has a bit for each argument that is the address of a word to be loaded at call time. The return value
    is stored at ``into``, if that is not 0. ``accepted`` are codes that are accepted besides 0. The call is made
    ``repeat`` times.
    """

    function: Annotated[int, ctypes.c_uint64, Function("ss_function")]
    arguments: Annotated[Any, ctypes.c_int64 * ARGUMENTS]
    channel: Int64
    label_channel: Int64
    load_mask: Int64
    flags: Int64
    into: Annotated[int, ctypes.c_uint64, Pointer("int64_t")]
    value: Annotated[int, ctypes.c_uint64, Pointer("uint32_t")]
    accepted: Annotated[Any, ctypes.c_int64 * ACCEPTED]
    repeat: Int64


@structure
class Loop(ctypes.Structure):
    """Data of a probe's loop: its ops, its section of the board, the board's header, and the clock.

    ``hist`` has BUCKETS counts for each channel. ``clock_gettime`` and ``clock_nanosleep`` are the C library's, or a
    test's.
    """

    ops: Annotated[int, ctypes.c_uint64, Pointer("const struct ss_op_row")]
    op_count: UInt64
    words: Annotated[int, ctypes.c_uint64, Pointer("struct ss_probe_words")]
    hist: Annotated[int, ctypes.c_uint64, Pointer("uint64_t")]
    stats: Annotated[int, ctypes.c_uint64, Pointer("struct ss_channel_stats")]
    samples: Annotated[int, ctypes.c_uint64, Pointer("struct ss_sample")]
    host_calls: Annotated[int, ctypes.c_uint64, Pointer("struct ss_host_call")]
    header: Annotated[int, ctypes.c_uint64, Pointer("const struct ss_board_header")]
    timeline: Annotated[int, ctypes.c_uint64, Pointer("const struct ss_timeline_words")]
    clock_gettime: Annotated[int, ctypes.c_uint64, Function("ss_clock_gettime")]
    clock_nanosleep: Annotated[int, ctypes.c_uint64, Function("ss_clock_nanosleep")]
