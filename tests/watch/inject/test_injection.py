"""The injected library in host programs, beside stand-ins for libcuda and libcupti: what it writes, and what it leaves
alone."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.stand_in import COMPILER, VERSION, Outcome, StandIn, build_cupti
from factories.waiting import undisturbed, wait_until
from factories.watched_folders import ActivityRecord, activity_records, file_header, read_folder
from factories.watched_programs import watch_python
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.cupti import CopyKind, OverheadKind, RecordKind, SwitchOperation
from stallprobes.native.layouts.driver_calls import CallFamily
from stallprobes.native.layouts.watch_file import LossKind
from stallprobes.native.sources import INJECTED
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.reading.folder import ProcessLife, life_of
from stallprobes.watch.reading.map_reader import MapFile, watch_files
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.reading.words import Memory, ProcessState

MS = 1_000_000
CALLS_ONLY = WatchOptions(calls_only=True, cost=1.0)


def only(outcome: Outcome) -> WatchedProcess:
    """The one process of a program that ended well and said nothing."""
    assert (outcome.returncode, outcome.errors) == (0, "")
    (process,) = outcome.processes
    return process


def record_list(folder: Path) -> list[ActivityRecord]:
    """All activity records of the one process in ``folder``."""
    (path,) = watch_files(folder)
    with MapFile(path) as file:
        batch = file.records()
    assert batch.missed == 0
    return list(activity_records(batch))


def test_every_call_of_a_hundred_threads_is_counted(stand_in: StandIn, tmp_path: Path) -> None:
    process = only(stand_in.run(tmp_path / "out", "threads", "100", "40000", options=CALLS_ONLY))
    assert process.state is ProcessState.RECORDING
    assert (process.calls, process.lost_calls) == (100 * 40_000, 0)
    assert len({thread.id for thread in process.threads}) == 100
    assert {thread.calls for thread in process.threads} == {40_000}
    assert all(thread.ended_ns is not None and not thread.in_flight for thread in process.threads)


def test_slots_of_ended_threads_are_used_again_and_their_calls_kept(stand_in: StandIn, tmp_path: Path) -> None:
    threads = 2 * layout.SLOTS
    process = only(stand_in.run(tmp_path / "out", "short-threads", str(threads), "5", "8", options=CALLS_ONLY))
    assert (process.calls, process.lost_calls) == (5 * threads, 0)
    assert len(process.threads) == layout.SLOTS
    assert sum(thread.owners for thread in process.threads) == threads
    assert all(thread.calls == 5 * thread.owners for thread in process.threads)


def test_a_call_is_described_by_its_arguments(stand_in: StandIn, tmp_path: Path) -> None:
    process = undisturbed(
        lambda number: only(stand_in.run(tmp_path / f"out{number}", "copies")),
        lambda process: [len(thread.slow_calls) for thread in process.threads] == [8],
    )
    (thread,) = process.threads
    found = [(slow.function, slow.stream, slow.bytes, slow.source, slow.target) for slow in thread.slow_calls]
    unknown, pageable, pinned, device = None, Memory.PAGEABLE, Memory.PINNED, Memory.DEVICE
    assert found == [
        ("cuMemcpyDtoHAsync_v2", 0x11, 4096, device, pageable),
        ("cuMemcpyDtoHAsync_v2", 0x12, 96, device, pinned),
        ("cuMemcpyHtoDAsync_v2", 0, 1000, pinned, device),
        ("cuMemcpyDtoH_v2", None, 4, device, pageable),
        ("cuMemcpy2D_v2", None, 256, device, pinned),
        ("cuMemsetD8Async", 0, 512, unknown, device),
        ("cuStreamSynchronize", 0x11, None, unknown, unknown),
        # The same memory, no longer registered.
        ("cuMemcpyHtoDAsync_v2", 0, 1000, pageable, device),
    ]
    assert all(slow.duration_ns >= 2 * MS and slow.context == 1 for slow in thread.slow_calls)
    assert [slow.result for slow in thread.slow_calls] == [0, 0, 0, 0, 0, 0, 2, 0]
    assert {slow.thread for slow in thread.slow_calls} == {thread.id}


@pytest.mark.parametrize(
    ("ranges", "size", "kinds"),
    [
        (3, 4096, (Memory.PAGEABLE, Memory.PINNED, Memory.PAGEABLE)),
        # More than a callback searches: what is in no block of theirs is known all the same.
        (900, 1 << 16, (Memory.PAGEABLE, Memory.PINNED, Memory.PAGEABLE)),
        (900, 4096, (Memory.PAGEABLE, Memory.PINNED, None)),
        # More than there is place for: nothing is sure any more.
        (1100, 4096, (None,) * 3),
        # Larger than the filter takes.
        (2, 1 << 38, (Memory.PAGEABLE, Memory.PINNED, Memory.PAGEABLE)),
    ],
)
def test_the_kind_of_host_memory_is_never_guessed(
    stand_in: StandIn, tmp_path: Path, ranges: int, size: int, kinds: tuple[Memory | None, ...]
) -> None:
    arguments = ("ranges", str(ranges), str(size))
    process = undisturbed(
        lambda number: only(stand_in.run(tmp_path / f"out{number}", *arguments, options=CALLS_ONLY)),
        lambda process: [len(thread.slow_calls) for thread in process.threads] == [len(kinds)],
    )
    (thread,) = process.threads
    assert tuple(slow.target for slow in thread.slow_calls) == kinds


def test_calls_are_counted_by_function_with_their_failures(stand_in: StandIn, tmp_path: Path) -> None:
    (thread,) = only(stand_in.run(tmp_path / "out", "copies")).threads
    figures = thread.figures
    # What only asks is not watched.
    assert "cuCtxGetDevice" not in figures
    assert {name: found.total.count for name, found in figures.items() if name.startswith("cuMemcpy")} == {
        "cuMemcpyDtoHAsync_v2": 2, "cuMemcpyHtoDAsync_v2": 2, "cuMemcpyDtoH_v2": 1, "cuMemcpy2D_v2": 1,
    }  # fmt: skip
    assert (figures["cuStreamSynchronize"].failed, figures["cuStreamSynchronize"].slow) == (1, 1)
    # CUDA_ERROR_NOT_READY is an answer.
    assert figures["cuEventQuery"].failed == 0
    copies = figures["cuMemcpyDtoHAsync_v2"]
    slow = [one.duration_ns for one in thread.slow_calls if one.function == "cuMemcpyDtoHAsync_v2"]
    assert (copies.total.max_ns, copies.total_ns) == (max(slow), sum(slow))
    median = copies.total.percentile(50)
    assert median is not None
    assert median == pytest.approx(min(slow), rel=1 / 64)


def test_the_limit_of_slow_calls_is_a_setting(stand_in: StandIn, tmp_path: Path) -> None:
    options = WatchOptions(slow_ns=0, calls_only=True, cost=1.0)
    process = only(stand_in.run(tmp_path / "out", "threads", "1", "3000", options=options))
    (thread,) = process.threads
    assert process.slow_limit_ns == 0
    assert thread.slow_count == thread.figures["cuLaunchKernel"].slow == 3000
    # A ring: the last ones are kept, in order.
    assert layout.SLOW_CALLS - 1 <= len(thread.slow_calls) <= layout.SLOW_CALLS
    starts = [slow.begin_ns for slow in thread.slow_calls]
    assert starts == sorted(starts)


def test_activity_records_are_decoded(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    process = only(stand_in.run(folder, "records", "600"))
    found = record_list(folder)
    kernels = [record for record in found if record.kind is RecordKind.KERNEL]
    assert [record.name for record in kernels[:4]] == ["_Z3addPf", "_Z3mulPf"] * 2
    assert len(kernels) == 600
    assert (process.records, process.lost_records) == (len(found), 0)
    first, *_ = kernels
    assert (first.device, first.context, first.stream, first.end_ns - first.start_ns) == (3, 1, 7, 1000)
    # The clock is that of the calls.
    assert process.started.monotonic_ns < first.start_ns < (process.ended_ns or 0)
    others = {record.kind: record for record in found if record.kind is not RecordKind.KERNEL}
    copy, peer = others[RecordKind.COPY], others[RecordKind.PEER_COPY]
    assert (copy.detail, copy.bytes, copy.source, copy.target) == (
        CopyKind.DEVICE_TO_HOST, 64, Memory.DEVICE, Memory.PAGEABLE,
    )  # fmt: skip
    assert (peer.detail, peer.bytes, peer.device, peer.peer) == (CopyKind.PEER, 128, 3, 4)
    assert others[RecordKind.MEMSET].bytes == 256
    overhead = others[RecordKind.OVERHEAD]
    assert (overhead.detail, overhead.thread) == (OverheadKind.MODULE_LOADING, process.pid)
    assert overhead.correlation > 0
    assert len({record.correlation for record in kernels}) == 600
    # The GPU's own clock, near the real time.
    switch = others[RecordKind.CONTEXT_SWITCH]
    assert switch.detail is SwitchOperation.START
    assert abs(switch.start_ns - process.started.realtime_ns) < 3600 * 1000 * MS


@pytest.mark.parametrize("version", [18, 22, 26, 130_000, 130_500])
def test_records_of_other_versions_of_cupti_are_decoded(stand_in: StandIn, tmp_path: Path, version: int) -> None:
    library = tmp_path / "libcupti.so.13"
    build_cupti(library, version)
    switches = {} if version >= 130_100 else {"STAND_IN_REFUSED": "57"}
    process = only(stand_in.run(tmp_path / "out", "records", "300", cupti=library, settings=switches))
    kinds = [record.kind for record in record_list(tmp_path / "out")]
    assert kinds.count(RecordKind.KERNEL) == 300
    assert len(kinds) == 304 + (not switches)
    assert process.cupti_version == version
    header = file_header(tmp_path / "out", process)
    assert (header["refused_kind"], header["refused_code"]) == ((57, 14) if switches else (0, 0))


def test_with_calls_only_there_are_no_records(stand_in: StandIn, tmp_path: Path) -> None:
    process = only(stand_in.run(tmp_path / "out", "records", "10", options=CALLS_ONLY))
    assert (process.calls_only, process.kinds, process.records) == (True, frozenset(), 0)
    assert process.calls == 15


def test_every_record_is_kept_overwritten_or_dropped(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    process = only(stand_in.run(folder, "records", str(layout.RECORDS + 100)))
    (path,) = watch_files(folder)
    with MapFile(path) as file:
        batch = file.records()
        later = file.records(batch.next)
    assert process.records + process.lost_records == layout.RECORDS + 105
    assert batch.missed + len(batch) == process.records == batch.next
    assert (len(later), later.missed) == (0, 0)


@pytest.mark.parametrize(("count", "length"), [(3000, 3000), (20, 5000), (20, 100_000)])
def test_of_names_that_are_too_long_both_ends_are_kept(
    stand_in: StandIn, tmp_path: Path, count: int, length: int
) -> None:
    folder = tmp_path / "out"
    process = only(stand_in.run(folder, "names", str(count), str(length)))
    names = [record.name for record in record_list(folder) if record.kind is RecordKind.KERNEL]
    assert (len(names), process.losses[LossKind.NO_NAME]) == (count, 0)
    # Names are whole until half of the room for them is used.
    whole = [name for name in names if len(name) == length]
    ends = 2 * layout.NAME_ENDS + len(layout.NAME_GAP)
    assert {len(name) for name in names} <= {length, ends}
    assert names[: len(whole)] == whole
    assert len(whole) == (layout.NAME_BYTES // 2 // (4 + length) + 1 if length <= layout.LONGEST_NAME else 0)
    gap = layout.NAME_ENDS, layout.NAME_ENDS + len(layout.NAME_GAP)
    assert {name[slice(*gap)] for name in names[len(whole) :]} == {layout.NAME_GAP}
    if length < 1 << 16:
        assert [name[-8:] for name in names if name[-1] != "x"] == [
            f"{number:08}" for number in range(count) if number % 10
        ]


def test_records_without_times_are_counted_and_not_kept(stand_in: StandIn, tmp_path: Path) -> None:
    process = only(stand_in.run(tmp_path / "out", "records", "20", settings={"STAND_IN_UNTIMED": "1"}))
    assert (process.records, process.losses[LossKind.NO_TIME], process.lost_records) == (5, 20, 20)


def test_a_record_without_content_is_that_of_a_call_in_flight(stand_in: StandIn, tmp_path: Path) -> None:
    process = only(stand_in.run(tmp_path / "out", "records", "1", settings={"STAND_IN_UNFINISHED": "1"}))
    assert (process.unfinished, process.lost_records) == (1, 0)


def test_records_that_cupti_drops_are_counted(stand_in: StandIn, tmp_path: Path) -> None:
    process = only(stand_in.run(tmp_path / "out", "records", "20", settings={"STAND_IN_LEAKS": "1"}))
    assert (process.records, process.lost_records) == (0, 25)


@pytest.mark.parametrize(
    ("settings", "state", "function", "code"),
    [
        ({"STAND_IN_SUBSCRIBE": "39"}, ProcessState.CUPTI_TAKEN, "cuptiSubscribe", 39),
        ({"STAND_IN_SUBSCRIBE": "15"}, ProcessState.CUPTI_FAILED, "cuptiSubscribe", 15),
        ({"STAND_IN_VERSION": "17"}, ProcessState.CUPTI_TOO_OLD, "cuptiGetVersion", 0),
        ({layout.CUPTI_VARIABLE: "/nonexistent/libcupti.so"}, ProcessState.NO_CUPTI, "dlopen", 0),
    ],
)
def test_without_cupti_the_program_runs_and_the_file_says_why(
    stand_in: StandIn, tmp_path: Path, settings: dict[str, str], state: ProcessState, function: str, code: int
) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    environment = stand_in.environment(folder) | settings
    assert stand_in.wait(environment, "output") == (0, "only this\n", "")
    (process,) = read_folder(folder).processes
    assert (process.state, process.failed_function, process.code, process.calls) == (state, function, code, 0)


def test_the_libcupti_that_the_program_has_loaded_is_used(stand_in: StandIn, tmp_path: Path) -> None:
    other = tmp_path / "libcupti.so.13"
    build_cupti(other, 130_500)
    (process,) = stand_in.run(tmp_path / "out", program="profiler", cupti=other).processes
    assert (process.cupti_version, process.state) == (VERSION, ProcessState.RECORDING)
    assert process.cupti_path == str(stand_in.folder / "libcupti.so.13")
    (process,) = stand_in.run(tmp_path / "other", "output", cupti=other).processes
    assert (process.cupti_version, process.cupti_path) == (130_500, str(other))


@pytest.mark.parametrize(("version", "used"), [(130_500, 130_500), (130_000, 130_000), (None, 130_000)])
def test_one_that_records_context_switches_is_loaded_beside_the_programs_older_one(
    stand_in: StandIn, tmp_path: Path, version: int | None, used: int
) -> None:
    stand_in = StandIn(shutil.copytree(stand_in.folder, tmp_path / "stand_in"))
    other = tmp_path / "libcupti.so.13"
    own = stand_in.folder / "libcupti.so.13"
    build_cupti(own, 130_000)
    if version is not None:
        build_cupti(other, version)
    (process,) = stand_in.run(tmp_path / "out", program="profiler", cupti=other).processes
    assert (process.cupti_version, process.state) == (used, ProcessState.RECORDING)
    assert process.cupti_path == str(other if used == 130_500 else own)


@pytest.mark.parametrize("calls_only", [False, True])
def test_none_is_loaded_beside_the_programs_where_its_profiler_gets_cupti(
    stand_in: StandIn, tmp_path: Path, calls_only: bool
) -> None:
    stand_in = StandIn(shutil.copytree(stand_in.folder, tmp_path / "stand_in"))
    other, own = tmp_path / "libcupti.so.13", stand_in.folder / "libcupti.so.13"
    build_cupti(own, 130_000)
    build_cupti(other, 130_500)
    options = WatchOptions(yield_to_profiler=True, calls_only=calls_only)
    (process,) = stand_in.run(tmp_path / "out", program="profiler", cupti=other, options=options).processes
    assert (process.cupti_path, process.state) == (str(own), ProcessState.YIELDED)


def test_the_program_keeps_its_output_and_its_descriptors(stand_in: StandIn, tmp_path: Path) -> None:
    assert stand_in.run(tmp_path / "output", "output").output == "only this\n"
    # The library holds none: the program's first own descriptor is the lowest one, and a new histogram is possible.
    closed = stand_in.run(tmp_path / "closed", "close-descriptors")
    assert closed.output == "own\n"
    (process,) = closed.processes
    assert process.calls == 2


@pytest.mark.parametrize("folder", ["missing", "open to others", "link", "file"])
def test_a_folder_that_is_not_private_is_left_alone(stand_in: StandIn, tmp_path: Path, folder: str) -> None:
    place, elsewhere = tmp_path / "out", tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o700)
    if folder == "open to others":
        place.mkdir()
        place.chmod(0o770)
    elif folder == "link":
        place.symlink_to(elsewhere)
    elif folder == "file":
        place.touch()
    assert stand_in.wait(stand_in.environment(place), "output") == (0, "only this\n", "")
    assert list(elsewhere.iterdir()) == []
    assert not place.is_dir() or list(place.iterdir()) == []


def test_no_link_is_followed_by_a_new_file(stand_in: StandIn, tmp_path: Path) -> None:
    folder, victim = tmp_path / "out", tmp_path / "victim"
    folder.mkdir(mode=0o700)
    victim.write_text("kept")
    # The shell becomes the program, with the same number.
    before = f'ln -s "{victim}" "{folder}/$$-0.watch";'
    assert stand_in.wait(stand_in.environment(folder), "output", before=before) == (0, "only this\n", "")
    assert victim.read_text() == "kept"
    names = {path.name.split("-")[1]: path.is_symlink() for path in folder.iterdir()}
    assert names == {"0.watch": True, "1.watch": False}


def preloaded(folder: Path, text: str) -> dict[str, str]:
    """The variable with which functions of the C library are replaced, whose source is ``text``."""
    source, library = folder / "replaced.c", folder / "replaced.so"
    source.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\n#include <errno.h>\n" + text)
    assert COMPILER is not None
    subprocess.run([COMPILER, "-shared", "-fPIC", str(source), "-o", str(library), "-ldl"], check=True)
    return {"LD_PRELOAD": str(library)}


# As if the disk had more space than it has: others may fill it once there is a file.
SPACIOUS = """\
#include <sys/statvfs.h>
int fstatvfs(int file, struct statvfs *status)
{
    *status = (struct statvfs){.f_blocks = 1 << 30, .f_bavail = 1 << 30, .f_frsize = 4096};
    return 0;
}
"""
# As if the kernel had no MADV_POPULATE_WRITE; and calls in a row are interrupted, later each time another one.
OLD_KERNEL = """\
#include <sys/types.h>
int madvise(void *at, size_t size, int advice)
{
    int (*next)(void *, size_t, int) = (int (*)(void *, size_t, int))dlsym(RTLD_NEXT, "madvise");
    return advice == 23 ? (errno = EINVAL), -1 : next(at, size, advice);
}
int posix_fallocate(int file, off_t at, off_t size)
{
    static int calls;
    int (*next)(int, off_t, off_t) = (int (*)(int, off_t, off_t))dlsym(RTLD_NEXT, "posix_fallocate");
    return ++calls < 4 || calls % 2 ? EINTR : next(file, at, size);
}
"""


def run_on_disk(stand_in: StandIn, tmp_path: Path, size: str, replaced: str, *arguments: str) -> Path:
    """The folder with what a host program has written to a disk of a size, which has ended well."""
    disk, copy = tmp_path / "disk", tmp_path / "copy"
    disk.mkdir()
    copy.mkdir(mode=0o700)
    mount = f'mount -t tmpfs -o size={size},mode=700 none "{disk}" && mkdir -m 700 "{disk}/out"'
    if subprocess.run(["unshare", "-rm", "sh", "-c", mount], capture_output=True).returncode:
        pytest.skip("this user cannot mount a small disk")
    settings = preloaded(tmp_path, replaced) if replaced else {}
    names = " ".join(f"{name}={value}" for name, value in settings.items())
    program = f'env {names} "{stand_in.folder}/host" {" ".join(arguments)}'
    program = (
        f'{program}; code=$?; df -k --output=avail "{disk}" | tail -n 1; cp --sparse=always "{disk}"/out/* "{copy}"'
    )
    environment = stand_in.environment(disk / "out", CALLS_ONLY)
    line = ["unshare", "-rm", "sh", "-c", f"{mount} && {{ {program}; exit $code; }}"]
    done = subprocess.run(line, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (copy / "left").write_text(done.stdout)
    return copy


@pytest.mark.parametrize("old_kernel", [False, True])
@pytest.mark.parametrize("size", ["24k", "512k"])
def test_a_full_disk_does_not_end_the_program(stand_in: StandIn, tmp_path: Path, size: str, old_kernel: bool) -> None:
    replaced = SPACIOUS + (OLD_KERNEL if old_kernel else "")
    copy = run_on_disk(stand_in, tmp_path, size, replaced, "threads", "40", "50")
    if size == "24k":
        # Not even the beginning has space.
        assert "its private folder has no space" in problem_of(copy)
    else:
        (process,) = read_folder(copy).processes
        assert process.calls + process.lost_calls == 40 * 50
        # None is counted where the threads' own parts take all of the space before one has a histogram.
        assert process.lost_calls > 0


def test_a_small_disk_is_not_filled(stand_in: StandIn, tmp_path: Path) -> None:
    """As /dev/shm of a container: a quarter of what is free is used at most."""
    copy = run_on_disk(stand_in, tmp_path, "64m", "", "threads", "64", "20000")
    (process,) = read_folder(copy).processes
    header = file_header(copy, process)
    assert 0 < header["call_blocks"] < layout.CALL_BLOCKS
    assert process.calls + process.lost_calls == 64 * 20_000
    assert process.lost_calls == 0
    assert int((copy / "left").read_text()) >= 48 * 1024


def test_a_disk_that_is_too_small_is_left_alone(stand_in: StandIn, tmp_path: Path) -> None:
    copy = run_on_disk(stand_in, tmp_path, "8m", "", "threads", "4", "50")
    words = r"has 8 MiB left in the file system of its private folder, and recording takes \d+ MiB, so nothing of it is"
    assert re.search(words, problem_of(copy))
    assert int((copy / "left").read_text()) == 8 * 1024


def test_a_limit_of_the_file_size_does_not_end_the_program(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    environment = stand_in.environment(folder)
    for limit in ("0", "1000"):
        assert stand_in.wait(environment, "output", before=f"ulimit -f {limit};") == (0, "only this\n", "")
        assert (
            "as its limit of file sizes (ulimit -f), and recording takes 373 MiB, so nothing of it is recorded: raise"
            in problem_of(folder)
        )
        for path in watch_files(folder):
            path.unlink()


def problem_of(folder: Path) -> str:
    """What the reader says of the one process, which had no room for its file."""
    (path,) = watch_files(folder)
    pid = path.name.split("-")[0]
    found = read_folder(folder)
    assert (found.processes, found.incomplete) == ((), 0)
    (problem,) = found.problems
    assert problem.startswith(f"Process {pid} ")
    assert path.stat().st_size == 0
    return problem


def test_an_interrupted_wait_for_space_loses_no_call(stand_in: StandIn, tmp_path: Path) -> None:
    settings = preloaded(tmp_path, OLD_KERNEL)
    process = only(stand_in.run(tmp_path / "out", "threads", "40", "50", options=CALLS_ONLY, settings=settings))
    assert (process.calls, process.lost_calls) == (40 * 50, 0)
    assert not file_header(tmp_path / "out", process)["out_of_space"]


def is_forked(folder: Path, process: WatchedProcess) -> bool:
    return bool(int(file_header(folder, process)["flags"]) & layout.Flag.FORKED)


def test_a_forked_child_has_a_file_of_its_own_once_it_calls(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "fork")
    assert (outcome.returncode, outcome.errors) == (0, "")
    parent, child = sorted(outcome.processes, key=lambda process: is_forked(tmp_path / "out", process))
    # Two children were forked; the one without a call has no file, and neither wrote to its parent's.
    assert (parent.calls, child.calls) == (2, 3)
    assert [is_forked(tmp_path / "out", one) for one in (parent, child)] == [False, True]
    assert child.parent_pid == parent.pid
    assert child.state is ProcessState.RECORDING
    assert child.ended_ns is not None


def test_a_child_that_is_forked_while_libraries_are_listed_can_load_one(stand_in: StandIn, tmp_path: Path) -> None:
    """It would have the loader's lock of a thread that it has not. Another one returns from its first call, which makes
    its file, also where its thread is to be cancelled.
    """
    outcome = stand_in.run(tmp_path / "out", program="forks")
    assert (outcome.returncode, outcome.errors) == (0, "")


def test_a_child_may_be_the_first_to_use_cuda(stand_in: StandIn, tmp_path: Path) -> None:
    process = only(stand_in.run(tmp_path / "out", "fork-first"))
    assert (process.calls, is_forked(tmp_path / "out", process)) == (1, False)


def test_a_program_that_executes_another_has_a_file_for_each(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "exec")
    first, second = outcome.processes
    assert (first.pid, first.image, second.image) == (second.pid, 0, 1)
    assert (first.calls, second.calls) == (1, 5)
    assert (first.ended_ns, second.ended_ns is None) == (None, False)
    assert second.command.endswith("threads 1 5")


@pytest.mark.parametrize(("case", "code"), [("abort", -signal.SIGABRT), ("kill", -signal.SIGKILL), ("exit-hung", 7)])
def test_a_program_that_ends_in_any_way_leaves_a_readable_file(
    stand_in: StandIn, tmp_path: Path, case: str, code: int
) -> None:
    outcome = stand_in.run(tmp_path / "out", case)
    assert outcome.returncode == code
    (process,) = outcome.processes
    assert (process.calls, process.ended_ns is not None) == (1, case == "exit-hung")
    # The thread that hung in a call still does, as far as the file says.
    (hung,) = [thread for thread in process.threads if thread.in_flight]
    (call,) = hung.in_flight
    assert (hung.name, call.function, call.stream, call.bytes) == ("hung", "cuMemcpyDtoHAsync_v2", 0x55, 64)
    assert life_of(process) is ProcessLife.ENDED


def test_an_exit_does_not_wait_for_a_flush_that_hangs(stand_in: StandIn, tmp_path: Path) -> None:
    outcome = stand_in.run(tmp_path / "out", "records", "10", settings={"STAND_IN_FLUSH_MS": "3600000"})
    assert outcome.returncode == 0
    assert outcome.processes[0].ended_ns is not None


def test_the_last_records_are_taken_at_the_exit(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    assert stand_in.run(folder, "exit-hung").returncode == 7
    assert "_Z4lastv" in [record.name for record in record_list(folder)]


@pytest.fixture
def hung(stand_in: StandIn, tmp_path: Path) -> Iterator[Path]:
    """The folder of a program with a thread that hangs in a call, while it runs."""
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    process = stand_in.start(folder, "hang")
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "hung\n"
        yield folder
    finally:
        process.kill()
        process.communicate()


def test_a_call_in_flight_is_read_while_it_waits(hung: Path) -> None:
    (process,) = read_folder(hung).processes
    (thread,) = process.threads
    (call,) = thread.in_flight
    assert (call.function, call.family, call.target) == (
        "cuMemcpyDtoHAsync_v2", CallFamily.COPY, Memory.PAGEABLE,
    )  # fmt: skip
    assert process.started.monotonic_ns < call.begin_ns
    assert process.ended_ns is None
    assert life_of(process) is ProcessLife.RUNNING


def test_a_file_is_read_while_threads_write_to_it(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    # Threads that come and go, each call kept in the ring of slow ones, kernels with records.
    options = WatchOptions(slow_ns=0, cost=1.0)
    threads, calls = layout.SLOTS + 400, 10
    program = stand_in.start(folder, "short-threads", str(threads), str(calls), "8", options=options)
    counts = [0]
    while program.poll() is None:
        contents = read_folder(folder)
        assert contents.problems == ()
        for process in contents.processes:
            counts.append(process.calls)
            for thread in process.threads:
                assert {call.function for call in thread.in_flight} <= {"cuLaunchKernel"}
                assert all(slow.correlation for slow in thread.slow_calls)
                assert len(thread.slow_calls) <= layout.SLOW_CALLS
    assert program.communicate() == ("", "")
    assert counts == sorted(counts)
    (process,) = read_folder(folder).processes
    assert (process.calls, process.lost_calls) == (threads * calls, 0)


def test_a_program_that_was_replaced_no_longer_runs(stand_in: StandIn, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir(mode=0o700)
    program = stand_in.start(folder, "replace")
    try:
        wait_until(lambda: _life(folder) is ProcessLife.REPLACED, "the process is REPLACED")
    finally:
        program.kill()
        program.communicate()
    wait_until(lambda: _life(folder) is ProcessLife.ENDED, "the process is ENDED")


def _life(folder: Path) -> ProcessLife | None:
    processes = read_folder(folder).processes
    return life_of(processes[0]) if processes else None


@pytest.mark.parametrize(("memory", "kind"), [("pageable", Memory.PAGEABLE), ("pinned", Memory.PINNED)])
def test_a_python_program_is_recorded(stand_in: StandIn, tmp_path: Path, memory: str, kind: Memory) -> None:
    place, options = stand_in.folder, WatchOptions(slow_ns=0)
    watched = watch_python(
        tmp_path / "out", "read_back.py", str(place / "libcuda.so.1"), "3", "1000", memory,
        library=place / INJECTED, options=options, cupti=place / "libcupti.so.13",
    )  # fmt: skip
    (thread,) = watched.process.threads
    copies = [slow for slow in thread.slow_calls if slow.function == "cuMemcpyDtoHAsync_v2"]
    assert [(call.bytes, call.source, call.target) for call in copies] == [(4, Memory.DEVICE, kind)] * 3
    assert [record.name for record in watched.records if record.kind is RecordKind.KERNEL] == ["busy"] * 3
    # A record belongs to the call with its number.
    numbers = [record.correlation for record in watched.records if record.kind is RecordKind.COPY]
    assert numbers == [call.correlation for call in copies]


def test_a_profiler_of_the_program_finds_cupti_taken_unless_the_library_yields(
    stand_in: StandIn, tmp_path: Path
) -> None:
    taken = stand_in.run(tmp_path / "taken", program="profiler")
    (process,) = taken.processes
    assert (taken.output, process.state, process.calls) == ("39\n", ProcessState.RECORDING, 2)
    assert process.records == 2
    yielded = stand_in.run(tmp_path / "yielded", program="profiler", options=WatchOptions(yield_to_profiler=True))
    (process,) = yielded.processes
    # Its buffers are its own, and the time is CUPTI's.
    assert (yielded.output, yielded.errors) == ("0\n1 record of its own, by CLOCK_REALTIME\n", "")
    assert (process.state, process.calls, process.records) == (ProcessState.YIELDED, 1, 1)
    assert file_header(tmp_path / "yielded", process)["yielded_ns"]
