"""Layouts of CUPTI's records: bytes laid out by hand, decoded by the tables and by the compiled decoder."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from stallprobes.engine.timeline import records, ring
from stallprobes.engine.timeline.collecting import decode_record
from stallprobes.engine.timeline.records import RecordKind

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
        "correlation": (92, "I"),
    },
    RecordKind.COPY: {
        "subkind": (4, "B"), "source": (5, "B"), "target": (6, "B"), "bytes": (8, "Q"), "start": (16, "Q"),
        "end": (24, "Q"), "device": (32, "I"), "context": (36, "I"), "stream": (40, "I"), "correlation": (44, "I"),
    },
    RecordKind.PEER_COPY: {
        "subkind": (4, "B"), "source": (5, "B"), "target": (6, "B"), "bytes": (8, "Q"), "start": (16, "Q"),
        "end": (24, "Q"), "device": (32, "I"), "context": (36, "I"), "stream": (40, "I"), "correlation": (60, "I"),
    },
    RecordKind.MEMSET: {
        "bytes": (8, "Q"), "start": (16, "Q"), "end": (24, "Q"), "device": (32, "I"), "context": (36, "I"),
        "stream": (40, "I"), "correlation": (44, "I"),
    },
    RecordKind.DRIVER_CALL: {
        "subkind": (4, "I"), "start": (8, "Q"), "end": (16, "Q"), "thread": (28, "I"), "correlation": (32, "I"),
    },
    RecordKind.OVERHEAD: {"subkind": (4, "I"), "start": (24, "Q"), "end": (32, "Q")},
    RecordKind.CONTEXT_SWITCH: {"context": (4, "I"), "start": (8, "Q"), "subkind": (16, "I")},
}  # fmt: skip
CASES = [(kind, version) for kind, sizes in SIZES.items() for version in sizes]
WORDS = {
    "start": ring.START_NS, "end": ring.END_NS, "device": ring.DEVICE, "context": ring.CONTEXT, "stream": ring.STREAM,
    "correlation": ring.CORRELATION, "bytes": ring.DETAIL, "subkind": ring.SUBKIND,
}  # fmt: skip


def laid_out(kind: RecordKind, version: int) -> tuple[bytes, dict[str, int]]:
    """The bytes of a record in which every field has another value, and the values."""
    raw = bytearray(b"\xa5" * SIZES[kind][version])
    struct.pack_into("<I", raw, 0, kind)
    values = {}
    for number, (name, (place, form)) in enumerate(PLACES[kind].items(), 1):
        values[name] = {"B": 0xF0, "I": 0xF000_0000, "Q": 1_763_777_777_000_000_000}[form] + number
        struct.pack_into(f"<{form}", raw, place, values[name])
    return bytes(raw), values


@pytest.mark.parametrize(("kind", "version"), CASES)
def test_a_record_of_every_version_is_decoded(kind: RecordKind, version: int) -> None:
    raw, values = laid_out(kind, version)
    assert records.size_of(kind, version) == len(raw)
    [(found, row), (again, _)] = records.decode(raw * 2, version)
    assert found is again is kind
    assert {name: int(row[name][0]) for name in values} == values
    assert set(row.dtype.names or ()) == {"kind", *values}


@pytest.mark.parametrize("kind", [kind for kind in SIZES if kind is not RecordKind.DRIVER_CALL])
def test_the_compiled_decoder_agrees_with_the_tables(kind: RecordKind) -> None:
    raw, values = laid_out(kind, max(SIZES[kind]))
    buffer = np.frombuffer(bytearray(raw), np.uint8)
    row = np.full(ring.RECORD_WORDS, 7, dtype=np.int64)
    decode_record(buffer.ctypes.data, kind, records.offset_table(), row)
    assert row[ring.KIND] == kind
    for name, word in WORDS.items():
        assert row[word] == values.get(name, 0), name
    assert row[ring.MEMORY] == values.get("source", 0) + 256 * values.get("target", 0)
    assert row[[ring.PROBE, ring.OP, ring.BEGAN_NS, ring.RETURNED_NS, ring.ITERATION]].tolist() == [-1] * 5


def test_kinds_that_a_version_does_not_have() -> None:
    assert RecordKind.CONTEXT_SWITCH not in records.kinds_of(130_001)
    assert RecordKind.CONTEXT_SWITCH in records.kinds_of(130_100)
    with pytest.raises(KeyError):
        records.size_of(RecordKind.CONTEXT_SWITCH, 28)


def test_a_record_of_an_unknown_kind_or_a_cut_one_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown kind 99 at byte 0"):
        list(records.decode(struct.pack("<II", 99, 0), 130_500))
    raw, _ = laid_out(RecordKind.COPY, 130_500)
    with pytest.raises(ValueError, match="cut off"):
        list(records.decode(raw[:-1], 130_500))
