"""Layout of the file that the injected library writes, one for each process, and the C header that declares it.

The header is generated from the tables here, so that library and reader cannot differ; the offsets of CUPTI's records
are those of ``engine.timeline.records``. All values are little-endian; each word has one writer, except the counts that
several threads add to. What is not yet in use is a hole of the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any

import numpy as np

from stallprobes.engine.timeline.records import FIELDS, Field, RecordKind
from stallprobes.latency.histogram import BUCKETS, SUB_BITS
from stallprobes.watch.injection.driver_calls import ANY, HOST, HostMemoryUse, MemoryKind, prefixes, shapes

FORMAT = 2
MAGIC = int.from_bytes(b"stallsw1", "little")

# Environment variables of the library.
FOLDER_VARIABLE = "STALLSCOPE_WATCH_FOLDER"
CUPTI_VARIABLE = "STALLSCOPE_WATCH_CUPTI"
SLOW_VARIABLE = "STALLSCOPE_WATCH_SLOW_NS"
CALLS_ONLY_VARIABLE = "STALLSCOPE_WATCH_CALLS_ONLY"
YIELD_VARIABLE = "STALLSCOPE_WATCH_YIELD"
NO_STACKS_VARIABLE = "STALLSCOPE_WATCH_NO_STACKS"
# A call that takes as long is kept, unless the variable says otherwise.
DEFAULT_SLOW_NS = 1_000_000

PAGE = 4096
APIS = 512
SLOTS = 1024
HISTOGRAMS = 8192
DEPTH = 4
# More than one of the limit's length each, in the second that a reader may take between two readings.
SLOW_CALLS = 1024
RECORDS = 1 << 16
NAME_BYTES = 1 << 20
LONGEST_NAME = 4096
MODULES = 512
STACKS = 1024
STACK_FRAMES = 64
STACK_TEXT = 7664
# Bytes of the name of an NVTX range that are kept, with a zero.
RANGE = 64
# A thread spends one part of so many of its time on stacks.
STACK_SHARE = 100


class WatchState(IntEnum):
    """What the library does in a process."""

    STARTING = 0
    RECORDING = 1
    NO_CUPTI = 2
    CUPTI_TOO_OLD = 3
    CUPTI_TAKEN = 4
    CUPTI_FAILED = 5
    YIELDED = 6


class SlotUse(IntEnum):
    """Who owns a slot: nobody yet, a live thread, a thread that has ended, or the next one, which prepares it."""

    UNUSED = 0
    LIVE = 1
    ENDED = 2
    CLAIMED = 3


class LossKind(IntEnum):
    """Why something was not recorded: calls (the first four), activity records, names of kernels, or
    call stacks.

    NO_BUFFER counts how often CUPTI asked for a buffer and got none; the records that it dropped then are
    DROPPED_BY_CUPTI.
    """

    NO_SLOT = 0
    NO_HISTOGRAM = 1
    UNMATCHED = 2
    BEFORE_FILE = 3
    NO_BUFFER = 4
    DROPPED_BY_CUPTI = 5
    UNKNOWN_RECORD = 6
    NO_NAME = 7
    NO_STACK = 8

    @property
    def is_call(self) -> bool:
        """Whether what was lost are calls."""
        return self <= LossKind.BEFORE_FILE

    @property
    def is_record(self) -> bool:
        """Whether what was lost are activity records."""
        return self in (LossKind.DROPPED_BY_CUPTI, LossKind.UNKNOWN_RECORD)


class Flag(IntEnum):
    """A bit of the header's flags.

    NO_STACKS: the user wants none. NATIVE_STACKS, PYTHON_STACKS: which frames the library can record.
    """

    CALLS_ONLY = 1
    YIELD = 2
    FORKED = 4
    NO_STACKS = 8
    NATIVE_STACKS = 16
    PYTHON_STACKS = 32


class CallFlag(IntEnum):
    """A bit of a call's flags: what the function has as an argument."""

    STREAM = 1
    BYTES = 2


class StackFlag(IntEnum):
    """A bit of a stack's flags: there are more frames than were recorded."""

    NATIVE_CUT = 1
    PYTHON_CUT = 2


def _structure(*fields: tuple[Any, ...]) -> np.dtype[Any]:
    return np.dtype(list(fields), align=True)


# The library writes ``magic`` last, so that a file without it is not yet complete.
HEADER = _structure(
    ("magic", "<u8"),
    ("format", "<u4"),
    ("flags", "<u4"),
    ("pid", "<u4"),
    ("parent_pid", "<u4"),
    ("start_ticks", "<u8"),
    ("state", "<u4"),
    ("code", "<i4"),
    ("cupti_version", "<u4"),
    ("refused_kind", "<u4"),
    ("refused_code", "<i4"),
    ("unused", "<u4"),
    ("kinds", "<u8"),
    ("slow_ns", "<u8"),
    ("started_ns", "<u8"),
    ("started_realtime_ns", "<u8"),
    ("clock_sequence", "<u8"),
    ("clock_ns", "<u8"),
    ("clock_realtime_ns", "<u8"),
    ("yielded_ns", "<u8"),
    ("ended_ns", "<u8"),
    ("records", "<u8"),
    ("losses", "<u8", (len(LossKind),)),
    ("apis", "<u4"),
    ("slots", "<u4"),
    ("histograms", "<u4"),
    ("name_bytes", "<u4"),
    ("out_of_space", "<u4"),
    ("ended_slots", "<u4"),
    ("modules", "<u4"),
    ("unused_too", "<u4"),
    # How many stacks were taken, and how long that took.
    ("stacks", "<u8"),
    ("stacks_ns", "<u8"),
    ("function", "S48"),
    ("program", "S16"),
    # The version of the Python interpreter in the process, empty without one.
    ("python", "S16"),
    ("cupti_path", "S512"),
    ("command", "S1024"),
)
API = _structure(("number", "<u4"), ("name", "S60"))
CALL = _structure(
    ("start_ns", "<u8"),
    ("stream", "<u8"),
    ("bytes", "<u8"),
    ("context", "<u4"),
    ("correlation", "<u4"),
    ("api", "<u4"),
    ("source", "u1"),
    ("target", "u1"),
    ("flags", "u1"),
    ("unused", "u1"),
)
# ``stack`` is the number of the call's stack, from 1; 0 for none. ``range`` is the NVTX range of the call.
# ``sequence`` is 2n + 1 while entry number n is written and 2n + 2 once it is complete; so in the ring of records.
SLOW_CALL = _structure(
    ("sequence", "<u8"), ("end_ns", "<u8"), ("call", CALL), ("result", "<i4"), ("thread", "<u4"), ("stack", "<u4"),
    ("unused", "<u4"), ("range", f"S{RANGE}"),
)  # fmt: skip
# Where there are no more slots, a new thread continues one whose owner has ended: it adds to the same figures.
# ``owners`` counts the threads. ``sequence`` is odd while ``depth`` and ``calls`` change. ``histograms`` has for each
# API the number of the slot's histogram, from 1.
SLOT = _structure(
    ("use", "<u4"),
    ("thread", "<u4"),
    ("started_ns", "<u8"),
    ("ended_ns", "<u8"),
    ("lost", "<u8"),
    ("slow_calls", "<u8"),
    ("sequence", "<u8"),
    ("depth", "<u4"),
    ("owners", "<u4"),
    ("name", "S16"),
    ("calls", CALL, (DEPTH,)),
    ("slow", SLOW_CALL, (SLOW_CALLS,)),
    ("histograms", "<u4", (APIS,)),
)
HISTOGRAM = _structure(
    ("api", "<u4"),
    ("slot", "<u4"),
    ("max_ns", "<u8"),
    ("total_ns", "<u8"),
    ("slow", "<u8"),
    ("failed", "<u8"),
    ("counts", "<u8", (BUCKETS,)),
)
# ``name`` is the offset of the kernel's name in the names, plus 1. ``subkind`` is the direction of a copy, the reason
# of an overhead, the type of a synchronization, or the operation of a context switch, whose ``start`` is the GPU's own
# clock. ``peer`` is the other device of a peer copy, ``thread`` the thread of an overhead.
RECORD = _structure(
    ("sequence", "<u8"),
    ("start", "<u8"),
    ("end", "<u8"),
    ("bytes", "<u8"),
    ("kind", "<u2"),
    ("source", "u1"),
    ("target", "u1"),
    ("subkind", "<u4"),
    ("correlation", "<u4"),
    ("device", "<u4"),
    ("context", "<u4"),
    ("stream", "<u4"),
    ("name", "<u4"),
    ("thread", "<u4"),
)
# A program or library with frames of stacks: its code is from ``start`` to ``end``; it was moved by ``base`` from the
# addresses for which it is linked.
MODULE = _structure(
    ("start", "<u8"),
    ("end", "<u8"),
    ("base", "<u8"),
    ("build_id_bytes", "<u4"),
    ("build_id", "u1", (20,)),
    ("path", "S464"),
)
# A call stack: ``addresses`` of its native frames, and ``text`` of its Python frames as Python writes it; both begin
# with the innermost.
STACK = _structure(
    ("ready", "<u4"),
    ("frames", "<u4"),
    ("text_bytes", "<u4"),
    ("flags", "<u4"),
    ("addresses", "<u8", (STACK_FRAMES,)),
    ("text", f"S{STACK_TEXT}"),
)
STRUCTURES = {
    "sw_header": HEADER,
    "sw_api": API,
    "sw_call": CALL,
    "sw_slow_call": SLOW_CALL,
    "sw_slot": SLOT,
    "sw_histogram": HISTOGRAM,
    "sw_record": RECORD,
    "sw_module": MODULE,
    "sw_stack": STACK,
}


def _pages(size: int) -> int:
    return -(-size // PAGE) * PAGE


APIS_AT = _pages(HEADER.itemsize)
RECORDS_AT = APIS_AT + _pages(APIS * API.itemsize)
NAMES_AT = RECORDS_AT + RECORDS * RECORD.itemsize
SLOTS_AT = NAMES_AT + NAME_BYTES
SLOT_PITCH = _pages(SLOT.itemsize)
HISTOGRAMS_AT = SLOTS_AT + SLOTS * SLOT_PITCH
HISTOGRAM_PITCH = _pages(HISTOGRAM.itemsize)
STACKS_AT = HISTOGRAMS_AT + HISTOGRAMS * HISTOGRAM_PITCH
STACK_PITCH = _pages(STACK.itemsize)
MODULES_AT = STACKS_AT + STACKS * STACK_PITCH
FILE_BYTES = MODULES_AT + _pages(MODULES * MODULE.itemsize)

# A kind that the timeline's table does not have: what a synchronization call waited for.
SYNCHRONIZATION = 38
SYNCHRONIZATION_FIELDS = {
    Field.SUBKIND: ("<u4", 4),
    Field.START: ("<u8", 8),
    Field.END: ("<u8", 16),
    Field.CORRELATION: ("<u4", 24),
    Field.CONTEXT: ("<u4", 28),
    Field.STREAM: ("<u4", 32),
}
# Fields that only the library reads.
KERNEL_NAME = 104
PEER_DEVICES = (44, 52)
OVERHEAD_OBJECT, OVERHEAD_THREAD, OVERHEAD_CORRELATION = 8, 16, 40
# Since CUDA 12.3.
OVERHEAD_CORRELATION_SINCE = 21
# The kinds that are collected, and of these the ones whose lack is no failure.
COLLECTED = (
    int(RecordKind.KERNEL), int(RecordKind.COPY), int(RecordKind.PEER_COPY), int(RecordKind.MEMSET), SYNCHRONIZATION,
    int(RecordKind.OVERHEAD), int(RecordKind.CONTEXT_SWITCH),
)  # fmt: skip
_C_TYPES = {
    "u1": "uint8_t", "u2": "uint16_t", "u4": "uint32_t", "u8": "uint64_t", "i4": "int32_t",
}  # fmt: skip
_CONSTANTS = {
    "FORMAT": FORMAT, "DEFAULT_SLOW_NS": DEFAULT_SLOW_NS,
    "PAGE": PAGE, "APIS": APIS, "SLOTS": SLOTS, "HISTOGRAMS": HISTOGRAMS, "DEPTH": DEPTH,
    "SLOW_CALLS": SLOW_CALLS, "RECORDS": RECORDS, "NAME_BYTES": NAME_BYTES, "LONGEST_NAME": LONGEST_NAME,
    "BUCKETS": BUCKETS, "SUB_BITS": SUB_BITS, "APIS_AT": APIS_AT,
    "RECORDS_AT": RECORDS_AT, "NAMES_AT": NAMES_AT, "SLOTS_AT": SLOTS_AT, "SLOT_PITCH": SLOT_PITCH,
    "HISTOGRAMS_AT": HISTOGRAMS_AT, "HISTOGRAM_PITCH": HISTOGRAM_PITCH, "FILE_BYTES": FILE_BYTES,
    "MODULES": MODULES, "MODULES_AT": MODULES_AT, "STACKS": STACKS, "STACKS_AT": STACKS_AT, "STACK_PITCH": STACK_PITCH,
    "STACK_FRAMES": STACK_FRAMES, "STACK_SHARE": STACK_SHARE,
    "SYNCHRONIZATION": SYNCHRONIZATION, "KERNEL_NAME": KERNEL_NAME, "PEER_SOURCE_DEVICE": PEER_DEVICES[0],
    "PEER_TARGET_DEVICE": PEER_DEVICES[1], "OVERHEAD_OBJECT": OVERHEAD_OBJECT, "OVERHEAD_THREAD": OVERHEAD_THREAD,
    "OVERHEAD_CORRELATION": OVERHEAD_CORRELATION, "OVERHEAD_CORRELATION_SINCE": OVERHEAD_CORRELATION_SINCE,
    "HOST": HOST, "ANY": ANY,
}  # fmt: skip
_ENUMS: dict[str, type[IntEnum]] = {
    "STATE": WatchState, "SLOT": SlotUse, "LOST": LossKind, "FLAG": Flag, "CALL_HAS": CallFlag, "MEMORY": MemoryKind,
    "USE": HostMemoryUse, "KIND": RecordKind, "STACK": StackFlag,
}  # fmt: skip
_VARIABLES = {
    "FOLDER": FOLDER_VARIABLE, "CUPTI": CUPTI_VARIABLE, "SLOW": SLOW_VARIABLE, "CALLS_ONLY": CALLS_ONLY_VARIABLE,
    "YIELD": YIELD_VARIABLE, "NO_STACKS": NO_STACKS_VARIABLE,
}  # fmt: skip


def header_text() -> str:
    """The C header ``layout.h``."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "/* Generated from layout.py and driver_calls.py. */"
    yield "#ifndef STALLSCOPE_LAYOUT_H"
    yield "#define STALLSCOPE_LAYOUT_H"
    yield "#include <stddef.h>"
    yield "#include <stdint.h>"
    yield f"#define SW_MAGIC UINT64_C({MAGIC})"
    for name, value in _CONSTANTS.items():
        yield f"#define SW_{name} {value}"
    for prefix, members in _ENUMS.items():
        for member in members:
            yield f"#define SW_{prefix}_{member.name} {int(member)}"
    yield f"#define SW_LOSSES {len(LossKind)}"
    for name, variable in _VARIABLES.items():
        yield f'#define SW_VARIABLE_{name} "{variable}"'
    for name, structure in STRUCTURES.items():
        yield from _structure_lines(name, structure)
    yield from _record_lines()
    yield from _call_lines()
    yield "#endif"


def _structure_lines(name: str, structure: np.dtype[Any]) -> Iterator[str]:
    assert structure.fields is not None
    assert structure.names is not None
    yield f"struct {name} {{"
    for field in structure.names:
        yield f"    {_declaration(field, structure.fields[field][0])};"
    yield "};"
    yield f'_Static_assert(sizeof(struct {name}) == {structure.itemsize}, "size of {name}");'
    for field in structure.names:
        offset = structure.fields[field][1]
        yield f'_Static_assert(offsetof(struct {name}, {field}) == {offset}, "{field} of {name}");'


def _declaration(field: str, form: np.dtype[Any]) -> str:
    count = f"[{form.shape[0]}]" if form.shape else ""
    base = form.base
    if base.names is not None:
        name = next(name for name, known in STRUCTURES.items() if known == base)
        return f"struct {name} {field}{count}"
    if base.kind == "S":
        return f"char {field}[{base.itemsize}]"
    return f"{_C_TYPES[base.str[1:]]} {field}{count}"


def _record_lines() -> Iterator[str]:
    """A table with a row for each kind that is collected: offset of each field, 0 without it; size of ``subkind``."""
    fields = {kind: FIELDS[RecordKind(kind)] for kind in COLLECTED if kind != SYNCHRONIZATION}
    fields[SYNCHRONIZATION] = SYNCHRONIZATION_FIELDS
    names = [field for field in Field if field is not Field.THREAD]
    yield "struct sw_record_layout {"
    yield f"    uint8_t kind, {', '.join(str(field) for field in names)}, subkind_bytes;"
    yield "};"
    # A header used by several files: one that does not use a table is no reason for a warning.
    yield "__attribute__((unused)) static const struct sw_record_layout sw_record_layouts[] = {"
    for kind in COLLECTED:
        places = [fields[kind].get(field, ("", 0))[1] for field in names]
        subkind = fields[kind].get(Field.SUBKIND)
        width = np.dtype(subkind[0]).itemsize if subkind else 0
        yield f"    {{{kind}, {', '.join(map(str, places))}, {width}}},"
    yield "};"


def _call_lines() -> Iterator[str]:
    yield "struct sw_prefix {"
    yield "    const char *text;"
    yield "    int watched;"
    yield "};"
    yield "__attribute__((unused)) static const struct sw_prefix sw_prefixes[] = {"
    for text, watched in prefixes():
        yield f'    {{"{text}", {int(watched)}}},'
    yield "};"
    yield "struct sw_shape {"
    yield "    const char *name;"
    yield "    int8_t stream, bytes, rows, units, source, target, source_kind, target_kind;"
    yield "    int8_t description, dimensions, use;"
    yield "};"
    yield "__attribute__((unused)) static const struct sw_shape sw_shapes[] = {"
    for shape in shapes():
        values = (
            shape.stream, shape.bytes, shape.rows, shape.units, shape.source, shape.target, shape.source_kind,
            shape.target_kind, shape.description, shape.dimensions, int(shape.use),
        )  # fmt: skip
        yield f'    {{"{shape.name}", {", ".join(map(str, values))}}},'
    yield "};"
