"""Our decoder against a C program with NVIDIA's header: the same bytes give the same figures, bit for bit."""

from __future__ import annotations

import os
import random
import re
import shutil
import struct
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from factories.cupti_records import decoded
from stallprobes.native.layouts.cupti import RecordKind, kinds_of, size_of

SOURCES = Path(__file__).parents[2] / "data" / "cupti"
RECORDS = 3000
# The columns of the program's lines.
COLUMNS = (
    "kind", "start", "end", "device", "context", "stream", "correlation", "subkind", "source", "target", "bytes",
    "thread", "name", "source_device", "target_device",
)  # fmt: skip
STRUCTS = {
    "KERNEL": "Kernel", "COPY": "Memcpy", "PEER_COPY": "MemcpyPtoP", "MEMSET": "Memset", "OVERHEAD": "Overhead",
}  # fmt: skip
SIZED = (
    RecordKind.KERNEL, RecordKind.COPY, RecordKind.PEER_COPY, RecordKind.MEMSET, RecordKind.DRIVER_CALL,
    RecordKind.OVERHEAD, RecordKind.STREAM, RecordKind.CONTEXT_SWITCH,
)  # fmt: skip


def header() -> Path | None:
    """The folder of CUPTI's header: CUPTI_INCLUDE, or that of the installed package."""
    if os.environ.get("CUPTI_INCLUDE"):
        return Path(os.environ["CUPTI_INCLUDE"])
    spec = find_spec("nvidia")
    places = [] if spec is None else [Path(place) for place in spec.submodule_search_locations or ()]
    found = [header.parent for place in places for header in place.glob("*/include/cupti_activity.h")]
    return found[0] if found else None


def newest_structs(include: Path) -> list[str]:
    """The compiler's definitions of the newest struct of each kind."""
    text = (include / "cupti_activity.h").read_text(encoding="utf-8", errors="replace")
    found = []
    for name, struct_name in STRUCTS.items():
        numbers = re.findall(rf"^\s*}} CUpti_Activity{struct_name}(\d*);", text, re.MULTILINE)
        newest = max(numbers, key=lambda number: int(number or 0))
        found.append(f"-D{name}=CUpti_Activity{struct_name}{newest}")
    if "CUpti_ActivityComputeEngineCtxSwitch;" in text:
        found.append("-DSWITCH=CUpti_ActivityComputeEngineCtxSwitch")
    return found


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The C program."""
    include, compiler = header(), shutil.which("cc") or shutil.which("gcc")
    if include is None or compiler is None:
        pytest.skip("no CUPTI header" if include is None else "no C compiler")
    built = tmp_path_factory.mktemp("header") / "decode"
    flags = ["-std=gnu11", f"-I{SOURCES}", f"-isystem{include}", *newest_structs(include)]
    subprocess.run([compiler, *flags, str(SOURCES / "decode.c"), "-o", str(built)], check=True)
    return built


def lines(program: Path, raw: bytes, folder: Path) -> list[list[int]]:
    """What the program prints of ``raw``."""
    file = folder / "records"
    file.write_bytes(raw)
    text = subprocess.run([str(program), str(file)], check=True, capture_output=True, text=True).stdout
    return [[int(word) for word in line.split()] for line in text.splitlines()]


def test_records_of_random_bytes_are_decoded_as_by_the_header(program: Path, tmp_path: Path) -> None:
    [[version, *sizes]] = lines(program, b"", tmp_path)
    assert sizes == [size_of(kind, version) for kind in SIZED if kind in kinds_of(version)]
    chance = random.Random(version)
    kinds = [chance.choice(kinds_of(version)) for _ in range(RECORDS)]
    # Times and sizes are below 2^63, as on any machine; every other bit is random.
    raw = b"".join(
        struct.pack("<I", kind) + _below_2_63(chance.randbytes(size_of(kind, version) - 4)) for kind in kinds
    )
    _, *expected = lines(program, raw, tmp_path)
    at, left = 0, iter(expected)
    for kind in kinds:
        found = decoded(raw[at : at + size_of(kind, version)], version)
        assert found is not None
        assert [found[column] for column in COLUMNS] == next(left)
        if kind is RecordKind.KERNEL:
            blocks, threads, registers, shared, local = next(left)
            shape = (
                min(max(threads, 1) - 1, 0x3FF) | min(registers, 0xFF) << 10 | min((shared + 15) // 16, 0x3FFF) << 18
            )
            assert (found["blocks"], found["shape"], found["local"]) == (min(blocks, 2**32 - 1), shape, local)
        at += size_of(kind, version)
    assert next(left, None) is None


def _below_2_63(raw: bytes) -> bytes:
    """``raw``, which follows a word of 4 bytes, with the highest bit of each aligned 8 bytes cleared."""
    changed = bytearray(raw)
    for place in range(11, len(changed), 8):
        changed[place] &= 0x7F
    return bytes(changed)
