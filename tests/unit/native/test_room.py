"""The room for a recording, by files of cgroups and of /proc that a test has written."""

from __future__ import annotations

import ctypes
import resource
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from factories.stand_in import COMPILER
from stallprobes.native.building.libraries import INJECTED_LIBRARY, write_header
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import BUFFER_BYTES, LARGE_BUFFER_BYTES, LARGE_BUFFERS, MOST_BUFFERS
from stallprobes.native.layouts.watch_file import Lack
from stallprobes.native.sources import NATIVE

pytestmark = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
MIB, GIB = 1 << 20, 1 << 30
STATUS = "VmSize:\t  100000 kB\nVmData:\t  10000 kB\nThreads:\t4\n"


class Room(ctypes.Structure):
    """struct ss_room."""

    _fields_ = [(name, ctypes.c_uint32) for name in ("records", "blocks", "large", "small")] + [
        ("growing", ctypes.c_uint64)
    ]


class Lacking(ctypes.Structure):
    """struct ss_lack."""

    _fields_ = [("reason", ctypes.c_uint32), ("needed", ctypes.c_uint64), ("available", ctypes.c_uint64)]


@dataclass
class Machine:
    """The files, and the library that reads them."""

    library: ctypes.CDLL
    proc: Path
    cgroups: Path

    def write(self, files: Mapping[str, str]) -> None:
        """Write files of cgroups, by their paths."""
        for name, text in files.items():
            path = self.cgroups / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def room(self, cgroup: str = "0::/\n", available_kib: int = 64 << 20, calls_only: bool = False) -> Room | Lacking:
        """What there is room for; else what is lacking."""
        (self.proc / "meminfo").write_text(f"MemTotal: 99999999 kB\nMemAvailable:   {available_kib} kB\n")
        (self.proc / "self" / "cgroup").write_text(cgroup)
        (self.proc / "self" / "status").write_text(STATUS)
        room = Room()
        sizes = ctypes.c_uint64(layout.FILE_BYTES), ctypes.c_uint64(0)
        if self.library.ss_find_room(ctypes.byref(room), -1, int(calls_only), *sizes):
            return Lacking.in_dll(self.library, "ss_lack")
        return room


@pytest.fixture(scope="module", name="built")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("room")
    write_header(folder)
    defines = [f'-DSS_PROC="{folder}/proc"', f'-DSS_CGROUPS="{folder}/cgroup"', "-D_GNU_SOURCE"]
    includes = [f"-I{path}" for path in (folder, *(NATIVE / name for name in ("common", *INJECTED_LIBRARY.folders)))]
    files = [str(path) for name in INJECTED_LIBRARY.folders for path in (NATIVE / name).glob("*.c")]
    line = [str(COMPILER), "-O0", "-shared", "-fPIC", *defines, *includes, *files, "-o", str(folder / "room.so")]
    subprocess.run([*line, "-lpthread", "-ldl"], check=True)
    return folder


@pytest.fixture(name="machine")
def _machine(built: Path) -> Machine:
    for name in ("proc", "cgroup"):
        if (built / name).exists():
            subprocess.run(["rm", "-r", str(built / name)], check=True)
    (built / "proc" / "self").mkdir(parents=True)
    (built / "cgroup").mkdir()
    return Machine(ctypes.CDLL(str(built / "room.so")), built / "proc", built / "cgroup")


def second(limit: str, used: int, inactive: int = 0, high: str = "max") -> dict[str, str]:
    """The files of a cgroup of the second version."""
    return {
        "memory.max": f"{limit}\n", "memory.high": f"{high}\n", "memory.current": f"{used}\n",
        "memory.stat": f"anon 1\nfile 2\nactive_file 77777777777\ninactive_file {inactive}\nshmem 5\n",
    }  # fmt: skip


def first(limit: int, used: int, inactive: int = 0) -> dict[str, str]:
    """The files of a cgroup of the first version."""
    return {
        "memory.limit_in_bytes": f"{limit}\n", "memory.usage_in_bytes": f"{used}\n",
        "memory.stat": f"cache 1\ninactive_file 5\nhierarchical_memory_limit 7\ntotal_inactive_file {inactive}\n",
    }  # fmt: skip


def within(folder: str, files: Mapping[str, str]) -> dict[str, str]:
    """The files in a folder."""
    return {f"{folder}/{name}": text for name, text in files.items()}


def whole(room: Room | Lacking) -> bool:
    """Whether all parts have the sizes that they have where there is room."""
    assert isinstance(room, Room)
    sizes = room.records, room.blocks, room.large, room.small
    return sizes == (layout.RECORDS, layout.CALL_BLOCKS, LARGE_BUFFERS, MOST_BUFFERS - LARGE_BUFFERS)


def taken(room: Room, calls_only: bool = False) -> int:
    """What a recording takes at most (bytes)."""
    records, blocks = 0 if calls_only else room.records * 64, room.blocks * layout.BLOCK_PITCH
    return int(records + blocks + room.large * LARGE_BUFFER_BYTES + room.small * BUFFER_BYTES + room.growing)


def test_where_there_is_room_all_parts_are_whole(machine: Machine) -> None:
    assert whole(machine.room())
    machine.write(second("max", 5 * GIB))
    assert whole(machine.room())
    machine.write(second(str(8 * GIB), 5 * GIB))
    assert whole(machine.room())


@pytest.mark.parametrize(
    ("cgroup", "files"),
    [
        ("0::/\n", second(str(200 * MIB), 100 * MIB)),
        # Pages that the kernel drops count as free.
        ("0::/\n", second(str(400 * MIB), 390 * MIB, inactive=90 * MIB)),
        ("0::/\n", second("max", 300 * MIB, high=str(400 * MIB))),
        # Of a cgroup, and of one above it.
        ("0::/a/b\n", within("a/b", second(str(200 * MIB), 100 * MIB))),
        ("0::/a/b\n", {**within("a", second(str(200 * MIB), 100 * MIB)), **within("a/b", second("max", MIB))}),
        # The container's own cgroup is the root there, and names of the host are not known.
        ("0::/../../host/name\n", second(str(200 * MIB), 100 * MIB)),
        ("0::/docker/0123\n", second(str(200 * MIB), 100 * MIB)),
        ("3:cpu,memory:/docker/0123\n1:name=systemd:/\n", within("memory", first(200 * MIB, 100 * MIB))),
        ("3:memory:/a/b\n0::/\n", within("memory/a", first(200 * MIB, 150 * MIB, inactive=50 * MIB))),
        ("4:cpu:/\n0::/x\n", within("unified/x", second(str(200 * MIB), 100 * MIB))),
    ],
)
@pytest.mark.parametrize("calls_only", [False, True])
def test_a_recording_takes_a_quarter_of_what_a_cgroup_has_left(
    machine: Machine, cgroup: str, files: dict[str, str], calls_only: bool
) -> None:
    machine.write(files)
    room = machine.room(cgroup, calls_only=calls_only)
    assert isinstance(room, Room)
    assert 15 * MIB < taken(room, calls_only) <= 25 * MIB
    assert room.records % layout.RECORDS_STEP == room.blocks % layout.BLOCKS_STEP == 0
    assert room.blocks < layout.CALL_BLOCKS or calls_only
    assert (room.large + room.small > 0) is not calls_only


@pytest.mark.parametrize("left", [0, MIB, 12 * MIB])
def test_too_little_of_a_cgroups_memory_is_said(machine: Machine, left: int) -> None:
    machine.write(second(str(64 * MIB), 64 * MIB - left))
    lack = machine.room()
    assert isinstance(lack, Lacking)
    assert (lack.reason, lack.available) == (Lack.CGROUP, left)
    assert 12 * MIB < lack.needed < 40 * MIB
    # Whatever is said to be needed is enough.
    machine.write(second(str(64 * MIB), 64 * MIB - int(lack.needed)))
    room = machine.room()
    assert isinstance(room, Room)
    assert (room.records, room.blocks) == (layout.RECORDS_STEP, layout.LEAST_BLOCKS)
    assert taken(room) * 4 <= lack.needed + 4 * MIB


def test_too_little_of_the_machines_memory_is_said(machine: Machine) -> None:
    lack = machine.room(available_kib=8 << 10)
    assert isinstance(lack, Lacking)
    assert (lack.reason, lack.available) == (Lack.MEMORY, 8 * MIB)


@pytest.mark.parametrize("text", ["", "max", "-1", "99999999999999999999999999", "x" * 100_000, "\0\0"])
def test_files_with_other_contents_limit_nothing(machine: Machine, text: str) -> None:
    machine.write({"memory.max": text, "memory.current": text, "memory.stat": text, "memory.high": text})
    assert whole(machine.room())
    for cgroup in (text, "0::", ":::", "0::" + "/a" * 5000, "1:memory\n", "::\n::\n"):
        assert whole(machine.room(cgroup))


def test_sizes_grow_with_the_memory(machine: Machine) -> None:
    before = 0
    for mib in (32, 48, 64, 100, 150, 200, 300, 400, 600, 800):
        room = machine.room(available_kib=mib << 10)
        assert isinstance(room, Room)
        assert taken(room) >= before
        assert taken(room) <= mib * MIB / 4 + MIB
        before = taken(room)


def test_a_limit_of_file_sizes_is_said(machine: Machine) -> None:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100 * MIB, before[1]))
    try:
        lack = machine.room()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert isinstance(lack, Lacking)
    assert (lack.reason, lack.needed, lack.available) == (Lack.FILE_SIZE, layout.FILE_BYTES, 100 * MIB)
