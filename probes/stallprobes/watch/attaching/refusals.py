"""Why a process cannot be attached: a check from outside that touches nothing.

A process in which the library sleeps needs no ptrace: it is only asked whether it may be woken.
"""

from __future__ import annotations

import errno
import os
import platform
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.native.layouts.attaching import CONTROL_NAME, ControlState
from stallprobes.watch.attaching.control import Control
from stallprobes.watch.attaching.rights import may_become_others, may_trace_everything
from stallprobes.watch.attaching.target import (
    Mapping,
    Target,
    group_name,
    remedy_for_rights,
    replaced_sentence,
    user_name,
)

# Remedy for a process into which the library cannot be loaded: restart it with the library in it, asleep. Attaching
# then only wakes the library.
_ASLEEP = 'start it with the variables of "stallscope watch --print-env --asleep"'
# File with Yama's limit of ptrace (kernel.yama.ptrace_scope).
_PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")
# Mode of seccomp in /proc/PID/status with which a process may only read, write and end (SECCOMP_MODE_STRICT).
_STRICT_SECCOMP = "1"
# Longest wait (s) until a process without memory mappings has ended or has mappings again. Reason: such a process is
# ending, or is replacing its program (execve).
_ENDING_S = 0.5
# Limits by which a 32-bit program is recognised. _END_OF_32_BITS: end of the addresses that its mappings can have.
# _VSYSCALL: path of the only mapping above that end.
_END_OF_32_BITS, _VSYSCALL = 1 << 32, "[vsyscall]"


def refusal(pid: int) -> str | None:
    """Why the process ``pid`` cannot be attached and what to do about it, one sentence; None if it can be."""
    target = Target(pid)
    title, had_memory = target.title, target.has_memory
    reason = _reason(target)
    if reason is None or not had_memory or target.has_memory:
        return reason
    # What is missing of a process that is ending, or just executes another program, says nothing.
    due_s = time.monotonic() + _ENDING_S
    while time.monotonic() < due_s and not target.has_ended:
        if target.has_memory:
            return replaced_sentence(title)
        time.sleep(_ENDING_S / 100)
    return ended_meanwhile(title)


def ended_meanwhile(title: str) -> str:
    """The sentence on a process that has ended while it was attached."""
    return f"{title} has ended meanwhile: there is nothing to attach to."


def _reason(target: Target) -> str | None:
    for check in (_not_there, _ended, _not_a_program):
        if problem := check(target):
            return problem
    if problem := _access(target):
        return problem
    try:
        memory = list(target.mappings())
    except OSError as error:
        remedy = "start it with stallscope watch" if error.errno == errno.EFBIG else remedy_for_rights()
        return f"the memory of {target.title} cannot be read ({error.strerror}): {remedy}."
    try:
        control = Control.of(target)
    except WatchError as error:
        return str(error)
    if control is not None:
        with control:
            return _not_to_be_woken(target, control)
    checks: Sequence[Callable[[Target, Sequence[Mapping]], str | None]] = (
        _watched, _no_cuda, _not_supported, _traced, _ptrace_scope, _filtered, _no_thread,
    )  # fmt: skip
    for each in checks:
        if problem := each(target, memory):
            return problem
    return None


def _not_there(target: Target) -> str | None:
    own = Target(os.getpid())
    if os.readlink("/proc/self") != str(os.getpid()):
        return "/proc is of another PID namespace than stallscope: run stallscope where /proc is mounted for it."
    if target.pid == own.pid:
        return f"process {target.pid} is stallscope itself: give the number of another one."
    if not target.state:
        return (
            f"there is no process {target.pid}, or it is in a PID namespace that is not below that of stallscope: check"
            " the number, or run stallscope in the container of the process or on its host."
        )
    leader = target.numbers("Tgid")
    if leader and leader[0] != target.pid:
        return f"{target.pid} is a thread of process {leader[0]}: give --pid {leader[0]}."
    return None


def _ended(target: Target) -> str | None:
    if target.has_ended:
        return f"{target.title} has ended, and waits for its parent only: there is nothing to attach to."
    if target.state == "T":
        return f"{target.title} is stopped: let it continue (kill -CONT {target.pid}), then attach."
    return None


def _not_a_program(target: Target) -> str | None:
    if target.numbers("Kthread") == (1,) or not target.field("VmSize"):
        return f"{target.title} is a thread of the kernel: give the number of a program."
    with suppress(OSError):
        # Its file is not opened for that: it is one of the process's own choice.
        ends = [mapping.end for mapping in target.mappings() if mapping.path != _VSYSCALL]
        if ends and max(ends) <= _END_OF_32_BITS:
            return f"{target.title} is a 32-bit program: only 64-bit programs can be attached."
    return None


def _access(target: Target) -> str | None:
    if problem := _set_uid(target):
        return problem
    users = target.numbers("Uid")[:3]
    effective = os.geteuid()
    if users and users[0] != effective and effective and not may_trace_everything():
        return f"{target.title} belongs to user {user_name(users[0])}: run stallscope as that user, or with sudo."
    if users and users[0] != effective and not may_become_others():
        return (
            f"{target.title} belongs to user {user_name(users[0])}, whom stallscope has to become for what it reads of"
            f" the process, and may not (CAP_SETUID and CAP_SETGID): {_remedy_for_ids()}."
        )
    if may_trace_everything():
        return None
    with suppress(OSError):
        # The folder itself always has the process's user.
        if os.stat(target.folder / "environ").st_uid != effective:
            remedy = remedy_for_rights()
            return f"{target.title} protects its memory from other processes (not dumpable): {remedy}."
    return None


def _remedy_for_ids() -> str:
    if os.geteuid():
        return "run stallscope as that user, or with sudo"
    return "run stallscope as that user, or give root both, as `docker run --cap-add SETUID --cap-add SETGID` does"


def _set_uid(target: Target) -> str | None:
    for kind, whose, name_of in (("Uid", "user", user_name), ("Gid", "group", group_name)):
        numbers = target.numbers(kind)
        if len({*numbers}) > 1:
            return (
                f"{target.title} is a set-{kind.lower()} program, which runs with the rights of {whose}"
                f" {name_of(numbers[1])}: start it as that {whose} itself."
            )
    return None


def _not_to_be_woken(target: Target, control: Control) -> str | None:
    if control.state is None:
        return f"the memory by which stallscope wakes the library in {target.title} is damaged: restart the program."
    if control.state not in (ControlState.ASLEEP, ControlState.FAILED) or not control.is_free():
        return f"{target.title} is watched by another stallscope: end that first."
    return None


def _watched(target: Target, memory: Sequence[Mapping]) -> str | None:
    if any(CONTROL_NAME in mapping.path for mapping in memory):
        return (
            f"{target.title} has closed the file by which stallscope wakes the library in it: restart it to watch it"
            " again."
        )
    if any(mapping.path.endswith("/stallscope-inject.so") for mapping in memory):
        return (
            f"{target.title} was started to be watched, by stallscope watch or with the variables of --print-env: use"
            " that, or --attach FOLDER."
        )
    return None


def _no_cuda(target: Target, memory: Sequence[Mapping]) -> str | None:
    if not any("/libcuda.so" in mapping.path for mapping in memory):
        return f"{target.title} has not loaded libcuda, so it makes no CUDA calls: attach once it does."
    return None


def _not_supported(target: Target, memory: Sequence[Mapping]) -> str | None:
    if platform.machine() != "x86_64":
        return f"a process that runs can be attached on x86-64 only, not on {platform.machine()}: {_ASLEEP}."
    if any("/ld-musl-" in mapping.path for mapping in memory):
        return f"the C library of {target.title} is musl: only programs with glibc can be attached."
    if "shstk" in target.field("x86_Thread_features").split():
        return f"{target.title} has a shadow stack, which no other process can extend: {_ASLEEP}."
    return None


def _traced(target: Target, memory: Sequence[Mapping]) -> str | None:
    tracer = target.numbers("TracerPid")
    if tracer and tracer[0]:
        return f"{target.title} is traced by {Target(tracer[0]).title}: end that first."
    return None


def _ptrace_scope(target: Target, memory: Sequence[Mapping]) -> str | None:
    try:
        scope = int(_PTRACE_SCOPE.read_text())
    except (OSError, ValueError):
        return None
    if scope == 3:
        return f"kernel.yama.ptrace_scope is 3, so that no process can be attached until the next boot: {_ASLEEP}."
    if scope and not may_trace_everything():
        return (
            f"kernel.yama.ptrace_scope is {scope}, so that only root can attach to {target.title}:"
            f" {remedy_for_rights()}, or {_ASLEEP}."
        )
    return None


def _filtered(target: Target, memory: Sequence[Mapping]) -> str | None:
    """Refusal because of the program's own system call filter; a container's filter only forbids calls."""
    mode, filters = target.field("Seccomp"), target.numbers("Seccomp_filters")
    if mode in ("", "0"):
        return None
    own = Target(os.getpid())
    alike = (own, target.first_of_namespace() or own)
    shared = [process.numbers("Seccomp_filters") for process in alike if process.field("Seccomp") == mode]
    if mode != _STRICT_SECCOMP and filters and filters in shared:
        return None
    return (
        f"{target.title} filters its system calls (seccomp), and may be ended for those that attaching takes:"
        f" {_ASLEEP}."
    )


def _no_thread(target: Target, memory: Sequence[Mapping]) -> str | None:
    try:
        if target.sleeping_threads():
            return None
    except OSError:
        return None
    if target.state == "D":
        return f"{target.title} waits for a device and cannot be interrupted: attach once it continues."
    return f"no thread of {target.title} sleeps where it can be borrowed, such as in poll: try again, or {_ASLEEP}."
