"""Layouts of CUPTI's activity records, for CUDA 12.0 to 13.5.

A record grows only at its end from version to version, so the fields have one offset each and only the sizes differ.
The tables agree with NVIDIA's headers of 15 versions, on x86-64 and AArch64 (little-endian).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum, StrEnum
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray


class RecordKind(IntEnum):
    """Kind of a record; the values are those of CUpti_ActivityKind."""

    COPY = 1
    MEMSET = 2
    DRIVER_CALL = 4
    KERNEL = 10
    OVERHEAD = 17
    PEER_COPY = 22
    CONTEXT_SWITCH = 57

    @property
    def word(self) -> str:
        """The kind in words: ``peer copy``."""
        return self.name.lower().replace("_", " ")


GPU_WORK = frozenset({RecordKind.KERNEL, RecordKind.COPY, RecordKind.PEER_COPY, RecordKind.MEMSET})


class SwitchOperation(IntEnum):
    """What a context-switch record reports: a context has got the graphics engine, or has left it."""

    START = 1
    END = 2


class CopyKind(IntEnum):
    """Direction of a copy, as in CUpti_ActivityMemcpyKind."""

    UNKNOWN = 0
    HOST_TO_DEVICE = 1
    DEVICE_TO_HOST = 2
    DEVICE_TO_DEVICE = 8
    HOST_TO_HOST = 9
    PEER = 10


class OverheadKind(IntEnum):
    """Reason of an overhead record, as in CUpti_ActivityOverheadKind."""

    UNKNOWN = 0
    DRIVER_COMPILER = 1
    BUFFER_FLUSH = 1 << 16
    INSTRUMENTATION = 2 << 16
    RESOURCE = 3 << 16
    MODULE_LOADING = 4 << 16
    LAZY_FUNCTION_LOADING = 5 << 16
    COMMAND_BUFFER_FULL = 6 << 16
    ACTIVITY_BUFFER_REQUEST = 7 << 16


class Field(StrEnum):
    """A field of a record."""

    START = "start"
    END = "end"
    DEVICE = "device"
    CONTEXT = "context"
    STREAM = "stream"
    CORRELATION = "correlation"
    BYTES = "bytes"
    SUBKIND = "subkind"
    SOURCE = "source"
    TARGET = "target"
    THREAD = "thread"


_GPU_COPY = {
    Field.SUBKIND: ("<u1", 4),
    Field.SOURCE: ("<u1", 5),
    Field.TARGET: ("<u1", 6),
    Field.BYTES: ("<u8", 8),
    Field.START: ("<u8", 16),
    Field.END: ("<u8", 24),
    Field.DEVICE: ("<u4", 32),
    Field.CONTEXT: ("<u4", 36),
    Field.STREAM: ("<u4", 40),
}

# Type and offset (bytes) of each field. SUBKIND is the copy's direction, the overhead's reason, the driver call's
# number, or the switch's operation; SOURCE and TARGET are kinds of memory.
FIELDS: Mapping[RecordKind, Mapping[Field, tuple[str, int]]] = {
    RecordKind.KERNEL: {
        Field.START: ("<u8", 16),
        Field.END: ("<u8", 24),
        Field.DEVICE: ("<u4", 40),
        Field.CONTEXT: ("<u4", 44),
        Field.STREAM: ("<u4", 48),
        Field.CORRELATION: ("<u4", 92),
    },
    RecordKind.COPY: {**_GPU_COPY, Field.CORRELATION: ("<u4", 44)},
    RecordKind.PEER_COPY: {**_GPU_COPY, Field.CORRELATION: ("<u4", 60)},
    RecordKind.MEMSET: {
        Field.BYTES: ("<u8", 8),
        Field.START: ("<u8", 16),
        Field.END: ("<u8", 24),
        Field.DEVICE: ("<u4", 32),
        Field.CONTEXT: ("<u4", 36),
        Field.STREAM: ("<u4", 40),
        Field.CORRELATION: ("<u4", 44),
    },
    RecordKind.DRIVER_CALL: {
        Field.SUBKIND: ("<u4", 4),
        Field.START: ("<u8", 8),
        Field.END: ("<u8", 16),
        Field.THREAD: ("<u4", 28),
        Field.CORRELATION: ("<u4", 32),
    },
    RecordKind.OVERHEAD: {Field.SUBKIND: ("<u4", 4), Field.START: ("<u8", 24), Field.END: ("<u8", 32)},
    RecordKind.CONTEXT_SWITCH: {
        Field.CONTEXT: ("<u4", 4),
        Field.START: ("<u8", 8),
        Field.SUBKIND: ("<u4", 16),
    },
}

# The size of a record in bytes from a version of CUPTI on (``cuptiGetVersion``: 18 for CUDA 12.0, 130100 for 13.1).
SIZES: Mapping[RecordKind, Mapping[int, int]] = {
    RecordKind.KERNEL: {18: 208, 130_000: 216, 130_100: 224, 130_300: 232, 130_400: 248},
    RecordKind.COPY: {18: 88, 26: 96, 130_400: 112},
    RecordKind.PEER_COPY: {18: 96},
    RecordKind.MEMSET: {18: 88, 130_400: 104},
    RecordKind.DRIVER_CALL: {18: 40},
    RecordKind.OVERHEAD: {18: 40, 21: 48, 22: 56},
    RecordKind.CONTEXT_SWITCH: {130_100: 24},
}

# Rows of the table of offsets, for the compiled decoder.
KINDS = max(RecordKind) + 1
FIELD_NUMBERS = {field: number for number, field in enumerate(Field)}
ABSENT = -1


def kinds_of(version: int) -> tuple[RecordKind, ...]:
    """The kinds that CUPTI of ``version`` has."""
    return tuple(kind for kind in RecordKind if version >= min(SIZES[kind]))


def size_of(kind: RecordKind, version: int) -> int:
    """The size in bytes of a record of ``kind``. Raises KeyError if CUPTI of ``version`` does not have the kind."""
    sizes = SIZES[kind]
    since = [each for each in sizes if each <= version]
    if not since:
        raise KeyError(kind)
    return sizes[max(since)]


@cache
def layout(kind: RecordKind, version: int) -> np.dtype[Any]:
    """The structured type of a record, with the fields of ``FIELDS`` and ``kind``. Raises KeyError as ``size_of``."""
    fields: dict[str, tuple[str, int]] = {"kind": ("<u4", 0)}
    fields |= {str(field): place for field, place in FIELDS[kind].items()}
    return np.dtype(
        {
            "names": list(fields),
            "formats": [form for form, _ in fields.values()],
            "offsets": [offset for _, offset in fields.values()],
            "itemsize": size_of(kind, version),
        }
    )


def offset_table() -> NDArray[np.int64]:
    """The tables as int64[KINDS][number of fields][2]: offset and size in bytes of each field, ABSENT without it."""
    table = np.full((KINDS, len(Field), 2), ABSENT, dtype=np.int64)
    for kind, fields in FIELDS.items():
        for field, (form, offset) in fields.items():
            table[kind, FIELD_NUMBERS[field]] = offset, np.dtype(form).itemsize
    return table


def decode(buffer: bytes | memoryview, version: int) -> Iterator[tuple[RecordKind, NDArray[Any]]]:
    """Each record of a buffer that CUPTI of ``version`` filled, as its kind and a structured array of one element.

    Raises ValueError at a record of a kind that is not in the tables, whose size is unknown.
    """
    at = 0
    while at + 4 <= len(buffer):
        number = int.from_bytes(buffer[at : at + 4], "little")
        try:
            kind = RecordKind(number)
            form = layout(kind, version)
        except (ValueError, KeyError):
            raise ValueError(f"a record of the unknown kind {number} at byte {at}") from None
        if at + form.itemsize > len(buffer):
            raise ValueError(f"the record at byte {at} is cut off")
        yield kind, np.frombuffer(buffer, form, 1, at)
        at += form.itemsize
