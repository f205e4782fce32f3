"""Rights: the ids of a process, what this process may do, and how it becomes another user.

The kernel's rules are those of credentials(7), capabilities(7) and ptrace(2).
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from pathlib import Path
from typing import NamedTuple

from stallprobes.watch.reading.proc_files import content

# Numbers of capabilities (linux/capability.h).
CAP_SETGID, CAP_SETUID, CAP_SYS_PTRACE = 6, 7, 19
# Operations of prctl(2).
_PR_SET_PDEATHSIG, _PR_SET_KEEPCAPS, _PR_SET_NO_NEW_PRIVS, _PR_CAP_AMBIENT = 1, 8, 38, 47
# Argument of PR_CAP_AMBIENT that adds a capability.
_PR_CAP_AMBIENT_RAISE = 2
# Version of capset(2) with two words of 32 bits for each set: _LINUX_CAPABILITY_VERSION_3.
_CAPABILITY_VERSION = 0x20080522


class Identity(NamedTuple):
    """The user, the group and the further groups of a process, by number."""

    user: int
    group: int
    groups: tuple[int, ...]


def capabilities() -> int:
    """The capabilities that this process can use, a bit for each."""
    lines = content(Path("/proc/self/status")).splitlines()
    return next((int(line.split()[1], 16) for line in lines if line.startswith(b"CapEff:")), 0)


def may_trace_everything() -> bool:
    """True if this process may trace those of other users (CAP_SYS_PTRACE)."""
    return bool(capabilities() >> CAP_SYS_PTRACE & 1)


def may_become_others() -> bool:
    """True if this process may take the ids of another user (CAP_SETUID and CAP_SETGID)."""
    held = capabilities()
    return all(held >> capability & 1 for capability in (CAP_SETUID, CAP_SETGID))


def become(identity: Identity, parent: int) -> None:
    """Take the ids of ``identity`` for good, and keep the capability to trace alone, for executed programs too.

    For a process with one thread. It ends with its parent, the process ``parent``. Raises OSError where the kernel
    refuses a step; the process has to end then.
    """
    library = ctypes.CDLL(None, use_errno=True)
    keeps = capabilities() & (1 << CAP_SYS_PTRACE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if identity != Identity(os.geteuid(), os.getegid(), tuple(sorted(os.getgroups()))):
        os.setgroups(identity.groups)
        _checked(library.prctl(_PR_SET_KEEPCAPS, 1, 0, 0, 0))
        os.setresgid(identity.group, identity.group, identity.group)
        os.setresuid(identity.user, identity.user, identity.user)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable, first the lower 32 capabilities.
    sets = (ctypes.c_uint32 * 6)(keeps, keeps, keeps, 0, 0, 0)
    _checked(library.capset(header, sets))
    _checked(library.prctl(_PR_SET_KEEPCAPS, 0, 0, 0, 0))
    _checked(library.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    if keeps:
        _checked(library.prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_RAISE, CAP_SYS_PTRACE, 0, 0))
    # Behind the change of ids, which clears it.
    _checked(library.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0))
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _checked(result: int) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
