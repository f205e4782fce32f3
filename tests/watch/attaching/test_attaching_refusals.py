"""Processes that cannot be attached: each is refused by one sentence, and left as it was."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
import resource
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from factories.attaching import NOBODY, Attached, RunningProgram, as_user, open_to_all, use_built
from factories.command_line import start
from factories.stand_in import StandIn
from factories.waiting import wait_until
from stallprobes.errors import WatchError
from stallprobes.native.layouts.watch_file import CUPTI_VARIABLE
from stallprobes.watch.attaching import refusals
from stallprobes.watch.attaching import target as targets
from stallprobes.watch.attaching.control import Control
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.refusals import refusal
from stallprobes.watch.attaching.target import Mapping, Target

_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="changing the user needs root")
_PR_SET_DUMPABLE, _PR_SET_SECCOMP, _PR_SET_NO_NEW_PRIVS = 4, 22, 38
# Allow everything: a filter with one instruction, "return SECCOMP_RET_ALLOW".
_ALLOW = 0x7FFF0000
_NO_PROCESS = 4_194_303


def sentence(pid: int) -> str:
    """Why a process is refused: one sentence that says what to do."""
    found = refusal(pid)
    assert found is not None
    assert re.fullmatch(r"[^\n]+[^.]\.", found)
    assert ": " in found
    return found


@pytest.fixture
def program(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningProgram]:
    """A program that can be attached."""
    use_built(stand_in, monkeypatch)
    open_to_all(stand_in.folder)
    with RunningProgram(stand_in, "poll") as started:
        yield started


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A program without CUDA."""
    started = subprocess.Popen(["sleep", "1000"])
    yield started.pid
    started.kill()
    started.wait()


def test_a_program_that_can_be_attached_has_none(program: RunningProgram) -> None:
    assert refusal(program.pid) is None


def test_what_is_no_process() -> None:
    assert sentence(_NO_PROCESS).startswith(f"there is no process {_NO_PROCESS}, or it is in a PID namespace that")
    assert sentence(os.getpid()) == f"process {os.getpid()} is stallscope itself: give the number of another one."


def test_a_thread_is_no_process() -> None:
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    try:
        code = f"from stallprobes.watch.attaching.refusals import refusal; print(refusal({thread.native_id}))"
        done = subprocess.run([sys.executable, "-c", code], env=_environment(), capture_output=True, text=True)
    finally:
        ended.set()
        thread.join()
    assert done.stdout == f"{thread.native_id} is a thread of process {os.getpid()}: give --pid {os.getpid()}.\n"


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_a_thread_of_the_kernel() -> None:
    try:
        found = next(
            int(folder.name)
            for folder in Path("/proc").iterdir()
            if folder.name.isdigit() and Target(int(folder.name)).numbers("PPid") == (2,)
        )
    except StopIteration:
        pytest.skip("no thread of the kernel is visible")
    assert sentence(found).endswith("is a thread of the kernel: give the number of a program.")


def test_a_program_without_cuda(sleeper: int) -> None:
    assert sentence(sleeper) == (
        f"sleep (process {sleeper}) has not loaded libcuda, so it makes no CUDA calls: attach once it does."
    )


def test_a_zombie() -> None:
    child = os.fork()
    if not child:
        os._exit(0)
    wait_until(lambda: Target(child).state == "Z", "a zombie")
    assert sentence(child).endswith("has ended, and waits for its parent only: there is nothing to attach to.")
    os.waitpid(child, 0)


def test_a_stopped_program(program: RunningProgram) -> None:
    os.kill(program.pid, signal.SIGSTOP)
    wait_until(lambda: Target(program.pid).state == "T", "a stop")
    assert sentence(program.pid).endswith(f"is stopped: let it continue (kill -CONT {program.pid}), then attach.")
    os.kill(program.pid, signal.SIGCONT)
    program.launches()


def test_a_traced_program(program: RunningProgram) -> None:
    reading, writing = os.pipe()
    tracer = os.fork()
    if not tracer:
        # PTRACE_SEIZE, which stops nothing.
        ctypes.CDLL(None).ptrace(0x4206, program.pid, None, None)
        os.write(writing, b"t")
        signal.pause()
    assert os.read(reading, 1) == b"t"
    found = sentence(program.pid)
    os.kill(tracer, signal.SIGKILL)
    os.waitpid(tracer, 0)
    assert re.search(rf"is traced by .* \(process {tracer}\): end that first\.$", found)
    wait_until(lambda: refusal(program.pid) is None, "an end of the trace")
    program.launches()


def test_no_thread_that_can_be_borrowed(stand_in: StandIn) -> None:
    with RunningProgram(stand_in, "futex") as program:
        assert "no thread of" in sentence(program.pid)
        assert "sleeps where it can be borrowed, such as in poll: try again, or start it with" in sentence(program.pid)


def test_a_device_that_does_not_answer(program: RunningProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Target, "sleeping_threads", lambda self: [])
    monkeypatch.setattr(Target, "state", "D")
    assert sentence(program.pid).endswith("waits for a device and cannot be interrupted: attach once it continues.")


@_ROOT
def test_a_program_of_another_user(program: RunningProgram) -> None:
    found = as_user(NOBODY, lambda: refusal(program.pid))
    assert found.endswith("belongs to user root: run stallscope as that user, or with sudo.")


@_ROOT
def test_a_set_uid_program(stand_in: StandIn, tmp_path: Path) -> None:
    copy = tmp_path / "sleep"
    shutil.copy("/bin/sleep", copy)
    copy.chmod(0o4755)
    open_to_all(tmp_path)
    started = subprocess.Popen([str(copy), "1000"], user=NOBODY, group=NOBODY, extra_groups=[])
    try:
        wait_until(lambda: Target(started.pid).field("Name") == "sleep", "the program")
        assert sentence(started.pid) == (
            f"sleep (process {started.pid}) is a set-uid program, which runs with the rights of user root: start it as"
            " that user itself."
        )
    finally:
        started.kill()
        started.wait()


@_ROOT
def test_a_program_that_protects_its_memory() -> None:
    def check() -> str | None:
        reading, writing = os.pipe()
        child = os.fork()
        if not child:
            ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)
            os.write(writing, b"p")
            signal.pause()
        os.read(reading, 1)
        try:
            return refusal(child)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)

    found = as_user(NOBODY, check)
    assert found.endswith("protects its memory from other processes (not dumpable): run stallscope with sudo.")


def test_root_without_the_capability_is_not_told_to_use_sudo(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(_: Target) -> Iterator[Mapping]:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(Target, "mappings", unreadable)
    for user, remedy in ((0, "root needs CAP_SYS_PTRACE here"), (NOBODY, "run stallscope with sudo.")):
        monkeypatch.setattr(os, "geteuid", lambda user=user: user)
        monkeypatch.setattr(refusals, "_access", lambda _: None)
        found = refusal(os.getppid())
        assert found is not None
        assert f"cannot be read (Permission denied): {remedy}" in found


@pytest.mark.parametrize(
    ("scope", "may_all", "expected"),
    [
        ("0", False, None),
        ("1", False, "kernel.yama.ptrace_scope is 1, so that only root can attach to"),
        ("2", False, "kernel.yama.ptrace_scope is 2, so that only root can attach to"),
        ("2", True, None),
        ("3", True, "kernel.yama.ptrace_scope is 3, so that no process can be attached until the next boot: start it"),
    ],
)
def test_ptrace_scope(
    program: RunningProgram,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scope: str,
    may_all: bool,
    expected: str | None,
) -> None:
    (tmp_path / "ptrace_scope").write_text(f"{scope}\n")
    monkeypatch.setattr(refusals, "_PTRACE_SCOPE", tmp_path / "ptrace_scope")
    monkeypatch.setattr(refusals, "may_trace_everything", lambda: may_all)
    assert (refusal(program.pid) or "").startswith(expected or "")
    assert (refusal(program.pid) is None) is (expected is None)


def test_a_program_with_a_filter_of_system_calls(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    field = Target.field
    with RunningProgram(stand_in, "poll") as program:
        for mode, filters, expected in (("1", "0", True), ("2", "1", True), ("0", "0", False)):
            changed = {"Seccomp": mode, "Seccomp_filters": filters}

            def changed_field(self: Target, name: str, changed: dict[str, str] = changed) -> str:
                return changed[name] if self.pid == program.pid and name in changed else field(self, name)

            monkeypatch.setattr(Target, "field", changed_field)
            found = refusal(program.pid)
            assert (found is not None) is expected
            assert found is None or "filters its system calls (seccomp), and may be ended for those" in found


def test_a_real_filter_is_seen() -> None:
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        library = ctypes.CDLL(None)
        instruction = ctypes.create_string_buffer(struct.pack("<HBBI", 6, 0, 0, _ALLOW))
        filters = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 1, ctypes.addressof(instruction)))
        library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        library.prctl(_PR_SET_SECCOMP, 2, filters)
        os.write(writing, b"f")
        signal.pause()
    os.read(reading, 1)
    target = Target(child)
    found = refusals._filtered(target, ())
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert found is not None
    assert "filters its system calls (seccomp)" in found


def test_a_filter_of_the_container_is_none_of_the_program(
    program: RunningProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    field = Target.field

    def filtered(self: Target, name: str) -> str:
        return {"Seccomp": "2", "Seccomp_filters": "1"}.get(name) or field(self, name)

    monkeypatch.setattr(Target, "field", filtered)
    assert refusal(program.pid) is None


def test_a_32_bit_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "4711"
    folder.mkdir()
    (folder / "status").write_text("Name:\told\nState:\tS (sleeping)\nTgid:\t4711\nVmSize:\t8 kB\n")
    (folder / "maps").write_text("ff800000-fffff000 rw-p 00000000 00:00 0    [stack]\n")
    target = Target(4711, tmp_path)
    assert refusals._not_a_program(target) == (
        "old (process 4711) is a 32-bit program: only 64-bit programs can be attached."
    )


@pytest.mark.parametrize(
    ("machine", "path", "features", "expected"),
    [
        (
            "aarch64",
            "/lib/libc.so.6",
            "",
            "a process that runs can be attached on x86-64 only, not on aarch64: start it",
        ),
        ("x86_64", "/lib/ld-musl-x86_64.so.1", "", " is musl: only programs with glibc can be attached."),
        ("x86_64", "/lib/libc.so.6", "shstk wrss", " has a shadow stack, which no other process can extend: start it"),
    ],
)
def test_what_is_not_supported(
    program: RunningProgram, monkeypatch: pytest.MonkeyPatch, machine: str, path: str, features: str, expected: str
) -> None:
    field = Target.field
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(
        Target, "field", lambda self, name: features if name == "x86_Thread_features" else field(self, name)
    )
    memory = [Mapping(0, 1, "r-xp", 0, path), Mapping(0, 1, "r-xp", 0, "/lib/libcuda.so.1")]
    assert expected in (refusals._not_supported(Target(program.pid), memory) or "")


def test_a_program_with_more_mappings_than_are_read(program: RunningProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hostile one can have gigabytes of them."""
    monkeypatch.setattr(targets, "MOST_BYTES_OF_MAPS", 1000)
    assert sentence(program.pid) == (
        f"the memory of attached (process {program.pid}) cannot be read (it has too many mappings): start it with"
        " stallscope watch."
    )


def test_a_c_library_without_what_is_needed(program: RunningProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    from stallprobes.watch.attaching import loaded_functions

    monkeypatch.setattr(loaded_functions, "NAMES", ("dlopen", "no_such_function"))
    with (
        ProcessImage.of(program.pid) as image,
        pytest.raises(WatchError, match=r"^no_such_function cannot be found in the C library of .*: only programs"),
    ):
        loaded_functions.find_functions(Target(program.pid), image)
    program.launches()


def test_a_c_library_whose_file_was_deleted(stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As behind an upgrade of the system."""
    use_built(stand_in, monkeypatch)
    line = next(one.path for one in Target(os.getpid()).mappings() if one.path.endswith("/libc.so.6"))
    shutil.copy(line, tmp_path / "libc.so.6")
    with RunningProgram(stand_in, "poll", settings={"LD_LIBRARY_PATH": f"{tmp_path}:{stand_in.folder}"}) as program:
        (tmp_path / "libc.so.6").unlink()
        assert any(one.path.endswith("/libc.so.6 (deleted)") for one in Target(program.pid).mappings())
        Attached(program.pid).detach()
        program.launches()
        assert program.end() == (0, "", "")


def test_a_program_that_was_started_to_be_watched(stand_in: StandIn, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir(mode=0o700)
    settings = stand_in.environment(tmp_path / "out")
    with RunningProgram(stand_in, "poll", settings=settings) as program:
        found = sentence(program.pid)
    assert "was started to be watched, by stallscope watch or with the variables of --print-env: use" in found


def test_a_library_of_another_version(program: RunningProgram, monkeypatch: pytest.MonkeyPatch) -> None:
    from stallprobes.native.layouts import attaching as layout

    Attached(program.pid).detach()
    monkeypatch.setattr(layout, "CONTROL_FORMAT", layout.CONTROL_FORMAT + 1)
    assert sentence(program.pid).endswith("is of another version of stallscope: restart it.")


def test_a_control_that_the_program_closed(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    use_built(stand_in, monkeypatch)
    with RunningProgram(stand_in, "poll") as program:
        Attached(program.pid).detach()
        monkeypatch.setattr(Control, "of", lambda target: None)
        assert "has closed the file by which stallscope wakes the library in it" in sentence(program.pid)


@pytest.mark.skipif(os.geteuid() != 0, reason="a namespace needs root")
def test_a_program_in_a_namespace_of_its_own(
    stand_in: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With numbers and files of its own, as in a container."""
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    use_built(stand_in, monkeypatch)
    # It sees no libcupti as a file: one is sent.
    hidden = "mount -t tmpfs none /dev/shm && cp attached libcuda.so.1 /dev/shm && mount -t tmpfs none ."
    command = f"{hidden} && LD_LIBRARY_PATH=/dev/shm exec /dev/shm/attached poll"
    started = subprocess.Popen(
        ["unshare", "--pid", "--mount", "--fork", "--mount-proc", "sh", "-c", command],
        cwd=stand_in.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert started.stdout is not None
    if started.stdout.readline().strip() != "ready":
        pytest.skip("namespaces cannot be made")
    (pid,) = map(int, Path(f"/proc/{started.pid}/task/{started.pid}/children").read_text().split())
    try:
        assert len(Target(pid).numbers("NSpid")) > len(Target(os.getpid()).numbers("NSpid"))
        assert refusal(pid) is None
        # The stand-in for libcupti, under a name that is not covered.
        cupti = tmp_path / "libcupti.so.13"
        shutil.copy(stand_in.folder / "libcupti.so.13", cupti)
        watch = start("watch", "--pid", str(pid), "--seconds", "1", "--headless", env={CUPTI_VARIABLE: str(cupti)})
        done = watch.communicate()
        assert watch.returncode == 0, done[1]
        assert f"attached (process {pid}) · 1 process" in done[0]
    finally:
        started.communicate()
    assert started.returncode == 0


def test_a_program_without_a_free_descriptor(program: RunningProgram) -> None:
    """The first system call that is made in it succeeds, and the second fails: the memory is returned."""
    before = resource.prlimit(program.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(program.pid, resource.RLIMIT_NOFILE, (3, before[1]))
    parts = len(list(Target(program.pid).mappings()))
    with pytest.raises(WatchError, match=r"\(memfd_create: Too many open files\) and was left as it was: try again\.$"):
        Attached(program.pid)
    assert len(list(Target(program.pid).mappings())) == parts
    program.launches()
    resource.prlimit(program.pid, resource.RLIMIT_NOFILE, before)
    Attached(program.pid).detach()
    program.launches()
    assert program.end() == (0, "", "")


def test_a_small_stack_is_left_alone(stand_in: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads have small stacks where the limit of the process is small."""
    use_built(stand_in, monkeypatch)
    before = resource.getrlimit(resource.RLIMIT_STACK)
    resource.setrlimit(resource.RLIMIT_STACK, (1 << 17, before[1]))
    try:
        with RunningProgram(stand_in, "poll") as program:
            resource.setrlimit(resource.RLIMIT_STACK, before)
            Attached(program.pid).detach()
            program.launches()
            assert program.end() == (0, "", "")
    finally:
        resource.setrlimit(resource.RLIMIT_STACK, before)


def stat_fields(state: str, flags: int, threads: int) -> list[bytes]:
    """Fields of a stat from the state on."""
    fields = [b"0"] * 40
    fields[0], fields[6], fields[17] = state.encode(), str(flags).encode(), str(threads).encode()
    return fields


@pytest.mark.parametrize(
    ("looks", "ended"),
    [
        ([stat_fields("S", 0, 3)], False),
        ([stat_fields("Z", 4, 1)], True),
        ([stat_fields("Z", 4, 2)], False),
        ([stat_fields("S", 4, 1)], True),
        ([[]], True),
        # The first thread was released while it was read: another one took its place, or none did.
        ([stat_fields("X", 4, 0), stat_fields("S", 0, 1)], False),
        ([stat_fields("X", 4, 0), []], True),
    ],
)
def test_a_process_has_ended_with_its_last_thread(
    looks: list[list[bytes]], ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = iter(looks)
    monkeypatch.setattr(Target, "_stat", lambda _: next(left))
    assert Target(4711).has_ended is ended
    assert next(left, None) is None
