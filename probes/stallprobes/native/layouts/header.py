"""The C header ``layout.h``: structures, constants and enumerations of the other modules of this folder."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from enum import IntEnum, IntFlag
from types import ModuleType
from typing import Any

from stallprobes.native.layouts import (
    attaching,
    board,
    cupti,
    driver_calls,
    histogram,
    program,
    schedule,
    timeline,
    watch_file,
)
from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.native.layouts.structure import Function, Pointer, c_name, offset_of, pointer_of

# Structures that the generated C header declares, in this order. Reason for the order: a structure must follow the
# structures of its members.
STRUCTURES: tuple[type[ctypes.Structure], ...] = (
    board.BoardHeader, board.TimeCounter, board.ProbeWords, board.ChannelStats, board.Sample, board.HostCall,
    board.TimelineWords, board.GpuRecord,
    program.OpRow, program.Loop, schedule.Schedule,
    *cupti.RECORDS.values(), cupti.CallbackData, cupti.Activity, cupti.Buffer, cupti.BufferPool,
    timeline.TrackOp, timeline.Track, timeline.DriverCall, timeline.GpuClock, timeline.TracedContext,
    timeline.Collector, timeline.Detachment,
    watch_file.FileHeader, watch_file.Api, watch_file.Call, watch_file.SlowCall,
    watch_file.LoggedCall, watch_file.CallBlock, watch_file.Slot,
    watch_file.CallHistogram, watch_file.WatchRecord, watch_file.Window, watch_file.Module, watch_file.Stack,
    watch_file.NamedRange, watch_file.TimeSample,
    attaching.Control, attaching.Stub,
)  # fmt: skip
# Enumerations that the generated C header declares, by the prefix of their constants.
ENUMERATIONS: Mapping[str, type[IntEnum | IntFlag]] = {
    "PROBE": board.ProbeState, "OP": program.OpFlag, "NEXT": schedule.NextStep, "KIND": cupti.RecordKind,
    "SWITCH": cupti.SwitchOperation,
    "COPY": cupti.CopyKind, "MEMORY": cupti.MemoryKind,
    "CUPTI": cupti.CuptiCode, "BUFFER": cupti.BufferState,
    "STATE": watch_file.WatchState, "SLOT": watch_file.SlotUse, "LOST": watch_file.LossKind, "LACK": watch_file.Lack,
    "FLAG": watch_file.Flag, "CALL": watch_file.CallFlag, "BLOCK": watch_file.BlockState,
    "STACK": watch_file.StackFlag, "SAMPLED": watch_file.SampledTime,
    "USE": driver_calls.CallUse, "CONTROL": attaching.ControlState, "STUB": attaching.StubState,
}  # fmt: skip
# Modules whose constants the generated C header declares.
_MODULES: tuple[ModuleType, ...] = (histogram, board, program, schedule, cupti, timeline, watch_file, attaching)
# Types of fields in the generated C header, by their types in Python.
_C_TYPES = {
    ctypes.c_int64: "int64_t", ctypes.c_uint64: "uint64_t", ctypes.c_int32: "int32_t", ctypes.c_uint32: "uint32_t",
    ctypes.c_uint16: "uint16_t", ctypes.c_uint8: "uint8_t", ctypes.c_char: "char",
}  # fmt: skip


def text() -> str:
    """The text of the header."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "/* Generated from the modules of native/layouts. */"
    yield "#ifndef STALLSCOPE_LAYOUT_H"
    yield "#define STALLSCOPE_LAYOUT_H"
    yield "#include <stddef.h>"
    yield "#include <stdint.h>"
    yield '#include "functions.h"'
    for name, value in constants().items():
        yield f"#define SS_{name} {_literal(value)}"
    for owner in STRUCTURES:
        yield from _structure(owner)
    for name, kinds in (("COLLECTED", watch_file.COLLECTED), ("SWITCHED", watch_file.SWITCHED)):
        yield f"#define SS_{name}_KINDS {{{', '.join(str(int(kind)) for kind in kinds)}}}"
    yield from _calls()
    yield "#endif"


def constants() -> dict[str, int | str]:
    """The constants by their names in C without the prefix. Raises ValueError for a name with two values."""
    values: dict[str, int | str] = {"HOST": driver_calls.HOST, "ANY": driver_calls.ANY}
    values["LOSSES"] = len(watch_file.LossKind)
    for module in _MODULES:
        for name, value in vars(module).items():
            if name.isupper() and not name.startswith("_") and isinstance(value, (int, str)):
                _add(values, name, value)
    for prefix, members in ENUMERATIONS.items():
        for member in members:
            _add(values, f"{prefix}_{member.name}", int(member))
    return values


def _add(constants: dict[str, int | str], name: str, value: int | str) -> None:
    if constants.setdefault(name, value) != value:
        raise ValueError(f"two constants have the name {name}")


def _literal(value: int | str) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    # Beyond 32 bits a plain number would have a type that depends on the machine.
    if not -(1 << 31) <= value < 1 << 31:
        return f"INT64_C({value})"
    return f"({value})" if value < 0 else str(value)


def _structure(owner: type[ctypes.Structure]) -> Iterator[str]:
    name = c_name(owner)
    yield f"struct {name} {{"
    for field, kind in ((each[0], each[1]) for each in owner._fields_):
        yield f"    {_declaration(owner, field, kind)};"
    yield "};"
    yield f'_Static_assert(sizeof(struct {name}) == {ctypes.sizeof(owner)}, "size of {name}");'
    for field in (each[0] for each in owner._fields_):
        at = offset_of(owner, field)
        yield f'_Static_assert(offsetof(struct {name}, {field}) == {at}, "{field} of {name}");'


def _declaration(owner: type[ctypes.Structure], field: str, kind: Any) -> str:
    target = pointer_of(owner, field)
    match target:
        case Pointer(to):
            return f"{to} *{field}"
        case Function(function):
            return f"{function} {field}"
    count = ""
    if issubclass(kind, ctypes.Array):
        count, kind = f"[{kind._length_}]", kind._type_
    return f"{_C_TYPES.get(kind) or f'struct {c_name(kind)}'} {field}{count}"


def _calls() -> Iterator[str]:
    yield "struct ss_prefix {"
    yield "    const char *text;"
    yield "    uint8_t watched, waits, asks;"
    yield "};"
    # A header that several files use: one that does not use a table is no reason for a warning.
    yield "__attribute__((unused)) static const struct ss_prefix ss_prefixes[] = {"
    for prefix, family in driver_calls.prefixes().items():
        traits = (family is each for each in (CallFamily.WAIT, CallFamily.QUERY))
        yield f'    {{"{prefix}", {int(family is not None)}, {", ".join(str(int(each)) for each in traits)}}},'
    yield "};"
    yield "struct ss_shape {"
    yield "    const char *name;"
    yield "    int8_t stream, bytes, rows, units, source, target, source_kind, target_kind;"
    yield "    int8_t description, dimensions, event, config, use;"
    yield "};"
    yield "__attribute__((unused)) static const struct ss_shape ss_shapes[] = {"
    for shape in driver_calls.shapes():
        values = (
            shape.stream, shape.bytes, shape.rows, shape.units, shape.source, shape.target, shape.source_kind,
            shape.target_kind, shape.description, shape.dimensions, shape.event, shape.config, int(shape.use),
        )  # fmt: skip
        yield f'    {{"{shape.name}", {", ".join(map(str, values))}}},'
    yield "};"
