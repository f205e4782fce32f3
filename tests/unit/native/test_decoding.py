"""Decoding of CUPTI's records: bytes laid out by hand, as C decodes them and as their layouts read them in Python."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from factories.cupti_records import decoded
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.cupti import OVERHEAD_CORRELATION_SINCE, RECORDS, RecordKind, kinds_of, size_of

# Size of a record by CUPTI's version, from the headers of NVIDIA's wheels; 18 is CUDA 12.0, 28 is 12.9 update 1.
VERSIONS = (18, 20, 21, 22, 23, 24, 26, 28, 130_000, 130_001, 130_100, 130_202, 130_301, 130_401, 130_500)
SIZES = {
    RecordKind.KERNEL: dict(zip(VERSIONS, (*[208] * 8, 216, 216, 224, 224, 232, 248, 248), strict=True)),
    RecordKind.COPY: dict(zip(VERSIONS, (*[88] * 6, *[96] * 7, 112, 112), strict=True)),
    RecordKind.PEER_COPY: dict.fromkeys(VERSIONS, 96),
    RecordKind.MEMSET: dict(zip(VERSIONS, (*[88] * 13, 104, 104), strict=True)),
    RecordKind.DRIVER_CALL: dict.fromkeys(VERSIONS, 40),
    RecordKind.OVERHEAD: dict(zip(VERSIONS, (40, 40, 48, *[56] * 12), strict=True)),
    RecordKind.CONTEXT_SWITCH: {version: 24 for version in VERSIONS if version >= 130_100},
}
# Fields with their place and their struct format.
PLACES = {
    RecordKind.KERNEL: {
        "start": (16, "Q"), "end": (24, "Q"), "device": (40, "I"), "context": (44, "I"), "stream": (48, "I"),
        "correlation": (92, "I"), "name": (104, "Q"), "registers": (6, "H"), "grid_x": (52, "i"), "grid_y": (56, "i"),
        "grid_z": (60, "i"), "block_x": (64, "i"), "block_y": (68, "i"), "block_z": (72, "i"),
        "fixed_shared": (76, "i"), "shared": (80, "i"), "local": (192, "Q"),
    },
    RecordKind.COPY: {
        "subkind": (4, "B"), "source": (5, "B"), "target": (6, "B"), "bytes": (8, "Q"), "start": (16, "Q"),
        "end": (24, "Q"), "device": (32, "I"), "context": (36, "I"), "stream": (40, "I"), "correlation": (44, "I"),
    },
    RecordKind.PEER_COPY: {
        "subkind": (4, "B"), "source": (5, "B"), "target": (6, "B"), "bytes": (8, "Q"), "start": (16, "Q"),
        "end": (24, "Q"), "device": (32, "I"), "context": (36, "I"), "stream": (40, "I"), "source_device": (44, "I"),
        "target_device": (52, "I"), "correlation": (60, "I"),
    },
    RecordKind.MEMSET: {
        "bytes": (8, "Q"), "start": (16, "Q"), "end": (24, "Q"), "device": (32, "I"), "context": (36, "I"),
        "stream": (40, "I"), "correlation": (44, "I"),
    },
    RecordKind.DRIVER_CALL: {
        "subkind": (4, "I"), "start": (8, "Q"), "end": (16, "Q"), "thread": (28, "I"), "correlation": (32, "I"),
    },
    RecordKind.OVERHEAD: {
        "subkind": (4, "I"), "object": (8, "I"), "thread": (16, "I"), "start": (24, "Q"), "end": (32, "Q"),
    },
    RecordKind.CONTEXT_SWITCH: {"context": (4, "I"), "start": (8, "Q"), "subkind": (16, "I")},
}  # fmt: skip
CASES = [(kind, version) for kind, sizes in SIZES.items() for version in sizes]
THREAD = 2
SHAPE = ("registers", "grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z", "fixed_shared", "shared")


def laid_out(kind: RecordKind, version: int) -> tuple[bytes, dict[str, int]]:
    """The bytes of a record in which every field has another value, and the values."""
    raw = bytearray(b"\xa5" * SIZES[kind][version])
    struct.pack_into("<I", raw, 0, kind)
    values = {}
    for number, (name, (place, form)) in enumerate(PLACES[kind].items(), 1):
        values[name] = {"B": 0xF0, "H": 0xF000, "i": 0x7000_0000, "I": 0xF000_0000, "Q": 1_763_777_777_000_000_000}[
            form
        ] + number
        if name == "object":
            values[name] = THREAD
        struct.pack_into(f"<{form}", raw, place, values[name])
    if kind is RecordKind.OVERHEAD and version >= OVERHEAD_CORRELATION_SINCE:
        values["correlation"] = 0xF000_1000
        struct.pack_into("<I", raw, 40, values["correlation"])
    return bytes(raw), values


@pytest.mark.parametrize(("kind", "version"), CASES)
def test_a_record_of_every_version_is_decoded(kind: RecordKind, version: int) -> None:
    raw, values = laid_out(kind, version)
    assert size_of(kind, version) == len(raw)
    found = decoded(raw, version)
    assert found is not None
    # The largest numbers that fit.
    shape = {"blocks": 2**32 - 1, "shape": 2**32 - 1} if kind is RecordKind.KERNEL else {}
    assert found == {name: values.get(name, 0) for name in found} | {"kind": kind} | shape
    # The other way round: nothing of the record is left out.
    assert {name for name in values if name not in ("object", *SHAPE)} <= set(found)


def test_the_shape_of_a_kernel_is_packed() -> None:
    raw = bytearray(laid_out(RecordKind.KERNEL, 130_500)[0])
    for name, value in zip(SHAPE, (40, 4, 3, 2, 32, 4, 2, 1000, 33), strict=True):
        place, form = PLACES[RecordKind.KERNEL][name]
        struct.pack_into(f"<{form}", raw, place, value)
    found = decoded(bytes(raw), 130_500)
    assert found is not None
    assert found["blocks"] == 24
    # 256 threads with 40 registers each, and 1033 bytes of shared memory.
    assert found["shape"] == 255 | 40 << 10 | 65 << 18


@pytest.mark.parametrize("kind", SIZES)
def test_python_reads_the_same_fields(kind: RecordKind) -> None:
    raw, values = laid_out(kind, max(SIZES[kind]))
    form = dtype_of(RECORDS[kind])
    row = np.frombuffer(raw, form, 1)[0]
    assert {name: int(row[name]) for name in form.names or ()} == values | {"kind": kind}


def test_an_overhead_of_something_else_than_a_thread_names_none() -> None:
    raw = bytearray(laid_out(RecordKind.OVERHEAD, 130_100)[0])
    struct.pack_into("<I", raw, 8, THREAD + 1)
    found = decoded(bytes(raw), 130_100)
    assert found is not None
    assert found["thread"] == 0


def test_kinds_that_a_version_does_not_have() -> None:
    assert RecordKind.CONTEXT_SWITCH not in kinds_of(130_001)
    assert RecordKind.CONTEXT_SWITCH in kinds_of(130_100)
    with pytest.raises(KeyError):
        size_of(RecordKind.CONTEXT_SWITCH, 28)


def test_a_record_of_an_unknown_kind_is_not_decoded() -> None:
    assert decoded(struct.pack("<IIQ", 99, 0, 0), 130_500) is None
