"""What the library takes in a process, what it gives back, and what it does where there is little of it."""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import re
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from factories.attaching import NOBODY, RunningProgram, open_to_all, run_attacher
from factories.stand_in import COMPILER, StandIn
from factories.waiting import wait_until
from factories.woken import Woken, figure_of
from stallprobes.native.layouts import watch_file as layout
from stallprobes.native.layouts.attaching import CONTROL_NAME, RECORDING_NAME, ControlState
from stallprobes.native.layouts.watch_file import Flag, Lack, LossKind, WatchState

pytestmark = pytest.mark.trust

MIB = 1 << 20
NO_LIMIT = resource.RLIM_INFINITY
SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW
# Locks its memory; after SIGUSR2 it may lock none, and after SIGUSR1 as much as before.
LOCKING = """\
#define _GNU_SOURCE
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
static struct rlimit before;
static void limit(int number)
{
    struct rlimit none = {0, before.rlim_max};
    setrlimit(RLIMIT_MEMLOCK, number == SIGUSR2 ? &none : &before);
}
__attribute__((constructor)) static void lock(void)
{
    getrlimit(RLIMIT_MEMLOCK, &before);
    signal(SIGUSR1, limit);
    signal(SIGUSR2, limit);
    mlockall(MCL_FUTURE);
}
"""
# A thread may use all CPUs; the main one is kept on the first, with a priority in real time.
PINNED = """\
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
static void *rest(void *unused)
{
    pause();
    return unused;
}
__attribute__((constructor)) static void pin(void)
{
    pthread_t thread;
    cpu_set_t all, first;
    CPU_ZERO(&first);
    sched_getaffinity(0, sizeof all, &all);
    for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
        if (CPU_ISSET(cpu, &all)) {
            CPU_SET(cpu, &first);
            break;
        }
    pthread_create(&thread, NULL, rest, NULL);
    sched_setaffinity(0, sizeof first, &first);
    sched_setscheduler(0, SCHED_RR, &(struct sched_param){.sched_priority = 1});
}
"""
# The second thread that is started with a small stack is not: "flush" has another one than "read".
NO_THREAD = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *), void *argument)
{
    static int large, failed;
    int (*next)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    void *found = dlsym(RTLD_NEXT, "pthread_create");
    size_t size = 0;
    memcpy(&next, &found, sizeof found);
    if (attributes && !pthread_attr_getstacksize(attributes, &size) && size == 1 << 20 && large++ == 1 && !failed++)
        return EAGAIN;
    return next(thread, attributes, body, argument);
}
"""


def preloaded(folder: Path, text: str) -> dict[str, str]:
    """The variable that loads a library, whose source is ``text``, into a program."""
    source, library = folder / "preloaded.c", folder / "preloaded.so"
    source.write_text(text)
    assert COMPILER is not None
    line = [COMPILER, "-shared", "-fPIC", str(source), "-o", str(library), "-lpthread", "-ldl"]
    subprocess.run(line, check=True)
    return {"LD_PRELOAD": str(library)}


def taken(program: RunningProgram) -> dict[str, int]:
    """What a program has: memory (KiB), descriptors that stay, threads."""
    names = ("VmSize", "VmLck", "RssAnon", "RssShmem", "Threads")
    descriptors = len(_lasting(program.pid))
    return {name: figure_of(program.pid, name) for name in names} | {"descriptors": descriptors}


def _lasting(pid: int) -> set[str]:
    """The descriptors that a process still has a while later: it reads files now and then."""
    found = set(os.listdir(f"/proc/{pid}/fd"))
    for _ in range(10):
        time.sleep(0.005)
        found &= set(os.listdir(f"/proc/{pid}/fd"))
    return found


STATES = ("not watched", "asleep", "recording", "rings are full", "asleep again")


def print_taken(stand_in: StandIn, *words: str) -> list[dict[str, int]]:
    """What the library takes in a program by what it does, printed."""
    # The C library reserves addresses for threads that first ask it for memory, as those of most programs have done.
    settings = {"MALLOC_ARENA_MAX": "1"}
    with RunningProgram(stand_in, "poll", *words, settings=settings) as plain:
        found = [taken(plain)]
    with Woken(stand_in, "poll", *words, settings=settings) as program:
        found.append(taken(program))
        program.wake()
        program.recorded(1000)
        found.append(taken(program))
        wait_until(lambda: program.header()["records"] > layout.RECORDS, "a full ring of records")
        found.append(taken(program))
        program.put_to_sleep()
        program.launches()
        found.append(taken(program))
        threads = found[0]["Threads"]
        assert program.end() == (0, "", "")
    for state, figures in zip(STATES[1:], found[1:], strict=True):
        more = {name: figures[name] - found[0][name] for name in figures}
        memory = (more["RssAnon"] + more["RssShmem"]) / 1024
        sys.stdout.write(
            f"{threads} threads, {state}: {memory:.1f} MiB of memory, {more['VmSize'] / 1024:.0f} MiB of address space,"
            f" {more['descriptors']} descriptors, {more['Threads']} threads\n"
        )
    return found


@pytest.mark.parametrize("words", [(), ("many",)], ids=["few", "many"])
def test_what_the_library_takes_is_as_documented(stand_in: StandIn, words: tuple[str, ...]) -> None:
    """The table of probes/README.md has the figures that this prints (pytest -s)."""
    plain, asleep, recording, full, again = print_taken(stand_in, *words)

    def memory(figures: dict[str, int]) -> float:
        return (figures["RssAnon"] + figures["RssShmem"] - plain["RssAnon"] - plain["RssShmem"]) / 1024

    assert memory(asleep) < 2
    assert memory(recording) < memory(full)
    # Records, calls, and buffers of CUPTI; a tenth of a MiB for each thread.
    assert memory(full) < 32 + 24 + 62 + 8 + 0.1 * plain["Threads"]
    assert memory(again) < 5
    assert asleep["descriptors"] - plain["descriptors"] == again["descriptors"] - plain["descriptors"] == 1
    assert full["descriptors"] - plain["descriptors"] == 2
    assert [figures["Threads"] - plain["Threads"] for figures in (asleep, recording, full)] == [1, 3, 3]
    assert full["VmSize"] - plain["VmSize"] < 450 << 10


def locked_of(program: Woken) -> int:
    """The memory (KiB) that a program has, and keeps there."""
    text = (program.proc / "smaps").read_text()
    return sum(map(int, re.findall(r"^Locked: +(\d+) kB$", text, re.MULTILINE)))


def test_ten_recordings_leave_what_one_leaves(stand_in: StandIn) -> None:
    with Woken(stand_in, "poll") as program:
        found = []
        for _ in range(10):
            assert program.wake() is ControlState.AWAKE
            program.recorded(500)
            assert program.put_to_sleep() is ControlState.ASLEEP
            wait_until(lambda: program.figure("Threads") <= 5, "the end of the helper threads")
            found.append(taken(program))
        first, last = found[0], found[-1]
        for name in ("VmSize", "descriptors", "Threads", "VmLck"):
            # A thread that ends may have left its stack to the next one by then, or not.
            assert last[name] <= first[name] + (16 << 10 if name == "VmSize" else 0), (name, found)
        # Some pages of the C library's.
        assert last["RssAnon"] <= first["RssAnon"] + 1024, found
        assert last["RssShmem"] <= 1024, found
        assert program.memfds(RECORDING_NAME) == []
        assert program.end() == (0, "", "")


def test_the_memory_of_a_recording_is_given_back(stand_in: StandIn) -> None:
    with Woken(stand_in, "poll") as program:
        before = taken(program)
        assert program.wake() is ControlState.AWAKE
        program.recorded(20_000)
        during = taken(program)
        program.put_to_sleep()
        after = taken(program)
        assert during["RssShmem"] > before["RssShmem"] + 1024
        assert after["RssShmem"] <= before["RssShmem"] + 256
        # A large buffer of CUPTI's was in use.
        assert after["RssAnon"] <= before["RssAnon"] + 1024


@pytest.mark.skipif(os.geteuid() != 0, reason="locking memory beyond the limit needs root")
def test_nothing_is_locked_in_a_program_that_locks_its_memory(stand_in: StandIn, tmp_path: Path) -> None:
    with Woken(stand_in, "poll", settings=preloaded(tmp_path, LOCKING)) as program:
        locked_before = locked_of(program)
        for _ in range(3):
            assert program.wake() is ControlState.AWAKE
            program.recorded(500)
            during, locked = taken(program), locked_of(program)
            program.put_to_sleep()
        # The stacks of the library's threads, and what their C library gives them. VmLck counts addresses too that it
        # reserves for them.
        assert locked - locked_before < 6 << 10
        assert during["RssShmem"] < 16 << 10
        after = taken(program)
        assert after["RssShmem"] < 1024
        assert program.end() == (0, "", "")


def lock_limit(program: Woken) -> int:
    """The bytes that a program may lock."""
    found = re.search(r"^Max locked memory +(\d+)", (program.proc / "limits").read_text(), re.MULTILINE)
    return int(found[1]) if found else -1


@pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
def test_a_limit_of_locked_memory_is_enough_for_a_program_that_locks_its_memory(
    stand_in: StandIn, tmp_path: Path
) -> None:
    """Only the stacks of threads count, as those of the program's own do."""
    settings = preloaded(tmp_path, LOCKING)
    for folder in (tmp_path, stand_in.folder):
        open_to_all(folder)
    locked, stack = resource.getrlimit(resource.RLIMIT_MEMLOCK), resource.getrlimit(resource.RLIMIT_STACK)
    most = 64 * MIB if locked[1] == NO_LIMIT else min(64 * MIB, locked[1])
    resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, locked[1]))
    resource.setrlimit(resource.RLIMIT_STACK, (MIB // 2, stack[1]))
    try:
        program = Woken(stand_in, "poll", settings=settings, user=NOBODY)
    finally:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, locked)
        resource.setrlimit(resource.RLIMIT_STACK, stack)
    with program:
        assert program.figure("VmLck") > 0
        assert program.wake() is ControlState.AWAKE
        program.recorded(100)
        header = program.header()
        assert (header["state"], header["function"], header["kinds"] > 0) == (WatchState.RECORDING, b"", True)
        os.kill(program.pid, signal.SIGUSR2)
        wait_until(lambda: lock_limit(program) == 0, "no memory that may be locked")
        assert program.put_to_sleep() is ControlState.ASLEEP
        program.recorded(100)
        assert program.wake() is ControlState.FAILED
        assert (program.control.recording, program.control.lack) == (WatchState.STARTING, Lack.LOCKED)
        os.kill(program.pid, signal.SIGUSR1)
        wait_until(lambda: lock_limit(program) == most, "memory that may be locked")
        assert program.wake() is ControlState.AWAKE
        program.recorded(100)
        program.put_to_sleep()
        assert program.end() == (0, "", "")


@pytest.mark.parametrize("mib", [0, 100])
def test_a_limit_of_file_sizes_ends_no_program(stand_in: StandIn, mib: int) -> None:
    with Woken(stand_in, "poll") as program:
        assert program.control
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (mib * MIB, NO_LIMIT))
        assert program.wake() is ControlState.FAILED
        control = program.control
        assert (control.recording, control.lack) == (WatchState.STARTING, Lack.FILE_SIZE)
        assert (control.lack_needed, control.lack_available) == (layout.FILE_BYTES, mib * MIB)
        program.launches()
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (NO_LIMIT, NO_LIMIT))
        assert program.wake() is ControlState.AWAKE
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (0, NO_LIMIT))
        program.recorded(100)
        assert program.put_to_sleep() is ControlState.ASLEEP
        program.launches()
        assert program.end() == (0, "", "")


def test_without_a_file_of_the_controls_size_there_is_no_control(stand_in: StandIn, tmp_path: Path) -> None:
    limiting = """\
#include <sys/resource.h>
__attribute__((constructor)) static void limit(void)
{
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){0, 0});
}
"""
    with Woken(stand_in, "poll", settings=preloaded(tmp_path, limiting)) as program:
        assert program.memfds(CONTROL_NAME) == []
        program.launches()
        assert program.end() == (0, "", "")


@pytest.mark.skipif(platform.machine() != "x86_64", reason="attaching works on x86-64 alone")
def test_the_attacher_says_what_a_process_lacks(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "poll") as program:

        def attach() -> tuple[int, list[str]]:
            done = run_attacher(stand_in, program.pid)
            return done.returncode, done.stdout.splitlines()

        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (0, NO_LIMIT))
        for _ in range(2):
            code, lines = attach()
            assert (code, f"lack {int(Lack.FILE_SIZE)}" in lines) == (6, True), lines
            program.launches()
        resource.prlimit(program.pid, resource.RLIMIT_FSIZE, (NO_LIMIT, NO_LIMIT))
        assert attach()[0] == 0
        tasks = Path(f"/proc/{program.pid}/task")
        wait_until(
            lambda: any("stallscope-wait" in path.read_text() for path in tasks.glob("*/comm")), "the library's thread"
        )
        program.launches()
        assert program.end() == (0, "", "")


def test_the_control_and_the_recording_keep_their_sizes(stand_in: StandIn) -> None:
    with Woken(stand_in, "poll") as program:
        program.wake()
        for name in (CONTROL_NAME, RECORDING_NAME):
            (link,) = program.memfds(name)
            descriptor = os.open(link, os.O_RDWR)
            try:
                assert fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) == SEALS
                for size in (0, 1 << 30):
                    with pytest.raises(PermissionError):
                        os.ftruncate(descriptor, size)
            finally:
                os.close(descriptor)
        program.launches()


@pytest.mark.parametrize("mib", [60, 600])
def test_a_limit_of_address_space_is_said(stand_in: StandIn, mib: int) -> None:
    with Woken(stand_in, "poll") as program:
        assert program.control
        limit = (program.figure("VmSize") << 10) + mib * MIB
        resource.prlimit(program.pid, resource.RLIMIT_AS, (limit, NO_LIMIT))
        assert program.wake() is ControlState.FAILED
        control = program.control
        assert (control.recording, control.lack) == (WatchState.STARTING, Lack.ADDRESSES)
        assert 0 < control.lack_available <= mib * MIB < control.lack_needed
        program.launches()
        resource.prlimit(program.pid, resource.RLIMIT_AS, (limit + 1000 * MIB, NO_LIMIT))
        assert program.wake() is ControlState.AWAKE
        program.recorded(100)
        assert program.end() == (0, "", "")


def test_without_a_descriptor_nothing_is_recorded_until_there_is_one(stand_in: StandIn) -> None:
    with Woken(stand_in, "poll") as program:
        assert program.control
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (3, 1024))
        assert program.wake() is ControlState.FAILED
        assert (program.control.recording, program.control.lack) == (WatchState.STARTING, Lack.DESCRIPTORS)
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (1024, 1024))
        assert program.wake() is ControlState.AWAKE
        # Space needs none.
        resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (3, 1024))
        program.recorded(20_000)
        losses = program.header()["losses"]
        assert losses.sum() == 0
        assert program.header()["records"] > 0
        program.put_to_sleep()
        assert program.end() == (0, "", "")


# No space behind the beginning of the file while there is one with the name in the environment, which has the error.
FULL = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int madvise(void *at, size_t size, int advice)
{
    int (*next)(void *, size_t, int);
    void *found = dlsym(RTLD_NEXT, "madvise");
    memcpy(&next, &found, sizeof found);
    static int first = 1;
    int full = advice == 23 && !__atomic_exchange_n(&first, 0, __ATOMIC_RELAXED) ? open(getenv("FULL"), O_RDONLY) : -1;
    char text[8] = "";
    if (full < 0)
        return next(at, size, advice);
    if (read(full, text, sizeof text - 1) < 0)
        abort();
    close(full);
    errno = atoi(text);
    return -1;
}
"""


@pytest.mark.parametrize(("error", "lasts"), [(errno.EFAULT, True), (errno.ENOMEM, False), (errno.EINTR, False)])
def test_recording_goes_on_behind_a_lack_of_space(stand_in: StandIn, tmp_path: Path, error: int, lasts: bool) -> None:
    full = tmp_path / "full"
    settings = {**preloaded(tmp_path, FULL), "FULL": str(full)}
    with Woken(stand_in, "poll", "many", settings=settings) as program:
        full.write_text(str(error))
        assert program.wake() is ControlState.AWAKE
        wait_until(lambda: program.header()["losses"][LossKind.NO_SLOT] > 0, "lost calls")
        wait_until(lambda: program.header()["losses"][LossKind.NO_SPACE] > 0, "lost records")
        if lasts:
            wait_until(lambda: program.header()["out_of_space"], "a lack of space")
        else:
            assert not program.header()["out_of_space"]
        full.unlink()
        wait_until(lambda: program.header()["records"] > layout.RECORDS_STEP, "records")
        wait_until(lambda: program.header()["blocks"] > layout.BLOCKS_STEP, "blocks of calls")
        wait_until(lambda: program.header()["slots"] >= 64, "a slot for each thread")
        assert not program.header()["out_of_space"]
        program.put_to_sleep()
        assert program.end() == (0, "", "")


# As a kernel without MADV_POPULATE_WRITE.
OLD_KERNEL = """\
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <string.h>
int madvise(void *at, size_t size, int advice)
{
    int (*next)(void *, size_t, int);
    void *found = dlsym(RTLD_NEXT, "madvise");
    memcpy(&next, &found, sizeof found);
    errno = EINVAL;
    return advice == 23 ? -1 : next(at, size, advice);
}
"""


def test_an_old_kernel_gives_space_by_a_descriptor(stand_in: StandIn, tmp_path: Path) -> None:
    with Woken(stand_in, "poll", settings=preloaded(tmp_path, OLD_KERNEL)) as program:
        assert program.wake() is ControlState.AWAKE
        program.recorded(20_000)
        header = program.header()
        assert (header["losses"].sum(), header["out_of_space"]) == (0, 0)
        assert header["records"] > 0
        program.put_to_sleep()
        assert program.end() == (0, "", "")


def policies(program: Woken) -> dict[str, tuple[str, int]]:
    """The CPUs and the scheduling policy of each thread of the library."""
    found = {}
    for task in (program.proc / "task").iterdir():
        # A thread may end meanwhile.
        with suppress(OSError):
            name = (task / "comm").read_text().strip()
            if name.startswith("stallscope"):
                status = (task / "status").read_text()
                cpus = re.search(r"^Cpus_allowed:\t(.*)$", status, re.MULTILINE)
                assert cpus is not None
                found[name] = cpus[1], os.sched_getscheduler(int(task.name))
    return found


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="there is one CPU")
def test_the_librarys_threads_have_the_cpus_of_the_process(stand_in: StandIn, tmp_path: Path) -> None:
    own = re.search(r"^Cpus_allowed:\t(.*)$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert own is not None
    with Woken(stand_in, "poll", settings=preloaded(tmp_path, PINNED)) as program:
        main = re.search(r"^Cpus_allowed:\t(.*)$", (program.proc / "status").read_text(), re.MULTILINE)
        assert main is not None
        assert main[1] != own[1]
        assert program.wake() is ControlState.AWAKE
        names = {"stallscope-wait", "stallscope-read", "stallscope-flus"}
        wait_until(lambda: set(policies(program)) == names, "three threads of the library")
        wait_until(lambda: set(policies(program).values()) == {(own[1], os.SCHED_OTHER)}, "threads with all CPUs")
        program.put_to_sleep()
        assert program.end() == (0, "", "")


def test_where_the_second_helper_cannot_be_started_the_first_one_ends(stand_in: StandIn, tmp_path: Path) -> None:
    with Woken(stand_in, "poll", settings=preloaded(tmp_path, NO_THREAD)) as program:
        assert program.wake() is ControlState.AWAKE
        assert program.header()["function"] == b"pthread_create"
        assert program.header()["kinds"] == 0
        wait_until(lambda: "stallscope-read" not in policies(program), "the end of the first helper")
        program.put_to_sleep()
        assert program.wake() is ControlState.AWAKE
        assert program.header()["kinds"] != 0
        names = {"stallscope-wait", "stallscope-read", "stallscope-flus"}
        wait_until(lambda: set(policies(program)) == names, "three threads of the library")
        program.put_to_sleep()
        assert program.end() == (0, "", "")


def _own_cgroup() -> Path | None:
    """The folder of a new cgroup's parent of the memory controller, None where there is none."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    for line in lines:
        _, controllers, _ = line.split(":", 2)
        if "memory" in controllers.split(","):
            return Path("/sys/fs/cgroup/memory")
    root = Path("/sys/fs/cgroup")
    controls = root / "cgroup.subtree_control"
    return root if controls.exists() and "memory" in controls.read_text().split() else None


@pytest.fixture
def limited() -> Iterator[Path]:
    """A cgroup with a limit of 100 MiB of memory, and no swap."""
    parent = _own_cgroup()
    if parent is None:
        pytest.skip("there is no controller of memory")
    cgroup = parent / f"stallscope-test-{os.getpid()}"
    try:
        cgroup.mkdir()
    except OSError as error:
        pytest.skip(f"no cgroup can be made: {error.strerror}")
    try:
        first = (cgroup / "memory.limit_in_bytes").exists()
        (cgroup / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(100 * MIB))
        yield cgroup
    finally:
        wait_until(lambda: not (cgroup / "cgroup.procs").read_text(), "an empty cgroup")
        cgroup.rmdir()


def oom_kills(cgroup: Path) -> int:
    """How many processes were killed in a cgroup."""
    events = cgroup / "memory.oom_control"
    text = (events if events.exists() else cgroup / "memory.events").read_text()
    found = re.search(r"^oom_kill (\d+)$", text, re.MULTILINE)
    return int(found[1]) if found else 0


def test_a_program_near_its_cgroups_limit_lives(stand_in: StandIn, limited: Path) -> None:
    with Woken(stand_in, "poll", "many") as program:
        (limited / "cgroup.procs").write_text(str(program.pid))
        assert program.wake() is ControlState.AWAKE
        header = program.header()
        assert 0 < header["record_places"] < layout.RECORDS
        assert 0 < header["call_blocks"] < layout.CALL_BLOCKS
        program.recorded(400_000)
        # Records begin a while after calls, once no call is in flight.
        wait_until(lambda: program.header()["records"] > program.header()["record_places"], "a ring that is full")
        wait_until(lambda: program.header()["blocks"] > program.header()["call_blocks"], "a log that is full")
        assert oom_kills(limited) == 0
        used = program.figure("RssShmem") + program.figure("RssAnon")
        assert used < 50 << 10, used
        program.put_to_sleep()
        assert program.end() == (0, "", "")


def test_a_program_at_its_cgroups_limit_is_not_recorded(stand_in: StandIn, limited: Path) -> None:
    with Woken(stand_in, "poll") as program:
        assert program.control
        (limited / "cgroup.procs").write_text(str(program.pid))
        first = limited / "memory.limit_in_bytes"
        (first if first.exists() else limited / "memory.max").write_text(str(12 * MIB))
        for flags in (0, Flag.CALLS_ONLY):
            assert program.wake(int(flags)) is ControlState.FAILED
            control = program.control
            assert (control.recording, control.lack) == (WatchState.STARTING, Lack.CGROUP)
            assert 0 < control.lack_available <= 12 * MIB < control.lack_needed
        assert oom_kills(limited) == 0
        program.launches()
        assert program.end() == (0, "", "")
