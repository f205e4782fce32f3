"""A process that runs, with the injected library in it."""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import time
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path

from stallprobes.errors import NativeLibraryError, WatchError
from stallprobes.foreign_text import printable
from stallprobes.native.layouts.attaching import ControlState
from stallprobes.native.layouts.watch_file import WatchState
from stallprobes.native.library import attacher, injected_library
from stallprobes.watch.attaching.control import Control
from stallprobes.watch.attaching.loaded_functions import find_functions
from stallprobes.watch.attaching.places import shared_folder
from stallprobes.watch.attaching.refusals import ended_meanwhile, refusal
from stallprobes.watch.attaching.target import Target, remedy_for_rights
from stallprobes.watch.environment import WatchOptions, named_cupti

# The attacher waits for the stub for 5 s itself.
_ATTACHER_S = 30.0
# How long the thread that was borrowed may take to be back in its system call.
_BACK_S = 0.1
# A first subscription can take seconds on a busy GPU: the caller shows what is waited for after so long.
ANSWER_S = 1.5
# How long a detach waits for the library: a call that hangs may hold CUPTI's lock.
DETACH_S = 10.0
_CONTROL_S = 2.0
_NOT_PERMITTED = os.strerror(errno.EPERM)
# How long more where a libcupti is sent to the process.
_SENDING_S = 10.0
# What attaching takes at most: each of its parts has a limit.
ATTACH_S = _ATTACHER_S + _BACK_S + _CONTROL_S + ANSWER_S + _SENDING_S


class _Outcome(IntEnum):
    """What the attacher says of itself (enum outcome in attach.c)."""

    ATTACHED = 0
    REFUSED = 3
    NO_THREAD = 4
    UNDER_WAY = 5
    NOT_LOADED = 6


@dataclass(frozen=True)
class _Loaded:
    """The library was loaded by a thread, which was stopped for ``stopped_ns``; ``region`` is the attacher's memory."""

    stopped_ns: int
    region: tuple[int, int]


@dataclass
class Attachment:
    """The injected library of the process ``pid``, which writes to ``folder`` until ``detach``.

    ``stopped_ns`` is how long a thread of the process was stopped, 0 where the library was there already.
    """

    pid: int
    folder: Path
    stopped_ns: int
    _control: Control = field(repr=False)
    _target: Target = field(repr=False)
    _detached: bool = field(default=False, repr=False)

    @property
    def waits_for(self) -> str:
        """What the recording waits for before it begins, as a clause; "" once it has begun."""
        if self._control.is_done or self._target.has_ended:
            return ""
        return f"{self._control.step} has not returned in {self._target.title}"

    @property
    def held_up_ns(self) -> int:
        """How long a call of the program may have been held up while the recording began or ended, at most (ns)."""
        return self._control.held_ns

    @property
    def problem(self) -> str:
        """Why nothing is recorded, as a sentence; "" if it is, or is still to begin."""
        return _failure(self._target, self._control) if self._control.is_done and not self._detached else ""

    def detach(self) -> None:
        """Switch everything off and unsubscribe; the library stays in the process, asleep. Only the first time counts.

        Raises WatchError where the library does not answer in ``DETACH_S``: it falls asleep when it can.
        """
        if self._detached:
            return
        self._detached = True
        with self._control as control:
            if self._target.has_ended:
                return
            control.sleep()
            if not control.wait(DETACH_S, self._target) and not self._target.has_ended:
                raise WatchError(
                    f"{self._target.title} is still recorded, since {control.step} does not return in it: that ends"
                    " by itself once it does."
                )


def attach(pid: int, options: WatchOptions, folder: Path) -> Attachment:
    """Let the injected library record the process ``pid`` to ``folder``.

    It is loaded where it is not there yet. The recording may begin later: see ``Attachment.waits_for``. Raises
    WatchError with the reason where the process cannot be attached or nothing can be recorded; the process then is as
    it was.
    """
    reason = refusal(pid)
    if reason is not None:
        raise WatchError(reason)
    target = Target(pid)
    title = target.title
    try:
        return _attached(target, options, folder)
    except (WatchError, OSError) as error:
        if target.has_ended:
            raise WatchError(ended_meanwhile(title)) from error
        if isinstance(error, OSError):
            raise WatchError(f"{title} cannot be read ({error.strerror}): try again.") from error
        raise


def _attached(target: Target, options: WatchOptions, folder: Path) -> Attachment:
    shared = shared_folder(target, folder)
    control, loaded = Control.of(target), _Loaded(0, (0, 0))
    if control is None:
        loaded = _load(target)
        control = _new_control(target)
    try:
        if not control.lock():
            raise WatchError(f"{target.title} is watched by another stallscope: end that first.")
        cupti, sends = _cupti(target)
        control.record(shared.there, options, cupti, loaded.region, sends)
        control.wait(ANSWER_S + (_SENDING_S if sends else 0), target)
        if control.is_done and (failure := _failure(target, control)):
            raise WatchError(failure)
    except BaseException:
        control.close()
        raise
    return Attachment(target.pid, folder, loaded.stopped_ns, control, target)


def _load(target: Target) -> _Loaded:
    """Let a thread of the process load the library. Raises WatchError."""
    try:
        program, library = attacher(), injected_library()
    except NativeLibraryError as error:
        raise WatchError(error.sentence) from error
    found = find_functions(target)
    addresses = [found.syscall, found.sigreturn, *found.functions]
    words = [str(program), str(target.pid), *(f"{address:x}" for address in addresses), str(library)]
    try:
        done = subprocess.run(
            [*words, *map(str, target.sleeping_threads())], stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_ATTACHER_S, errors="replace",
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise WatchError(f"the attacher cannot be run ({error}): reinstall stallscope.") from error
    said = dict(line.partition(" ")[::2] for line in done.stdout.splitlines())
    reason = printable(said.get("reason", "")) or f"exit code {done.returncode}"
    who = target.title
    match done.returncode:
        case _Outcome.ATTACHED:
            region = int(said["region"]), int(said["region_bytes"])
            back = _is_back(target, int(said["tid"]))
            return _Loaded(int(said["stopped_ns"]), region if back else (0, 0))
        case _Outcome.UNDER_WAY:
            raise WatchError(f"attaching to {who} is still under way: a thread of it loads the library; try again.")
        case _Outcome.NO_THREAD:
            raise WatchError(f"{reason} in {who}: try again.")
        case _Outcome.NOT_LOADED:
            raise WatchError(f"{who} cannot load the library ({reason}): start it with stallscope watch.")
        case _:
            remedy = remedy_for_rights() if _NOT_PERMITTED in reason else "try again"
            raise WatchError(f"{who} cannot be attached ({reason}) and was left as it was: {remedy}.")


def _is_back(target: Target, thread: int) -> bool:
    """Whether the thread that was borrowed is out of the attacher's memory again."""
    due = time.monotonic() + _BACK_S
    while time.monotonic() < due:
        with contextlib.suppress(OSError):
            if thread in target.sleeping_threads():
                return True
        time.sleep(_BACK_S / 50)
    return False


def _new_control(target: Target) -> Control:
    due = time.monotonic() + _CONTROL_S
    while (control := Control.of(target)) is None:
        if time.monotonic() >= due or target.has_ended:
            raise WatchError(
                f"the library in {target.title} does not answer: restart the program with stallscope watch."
            )
        time.sleep(_BACK_S / 50)
    return control


def _cupti(target: Target) -> tuple[Path | None, bool]:
    """The libcupti for a process that has none, None without one, and whether it has to be sent.

    Another user's process may not be allowed to read the file.
    """
    has_own = any("/libcupti.so" in one.path for one in target.mappings())
    if target.shares_files() and (has_own or target.owner()[0] == os.geteuid()):
        return named_cupti(), False
    found = None if has_own else named_cupti()
    return found, found is not None


def _failure(target: Target, control: Control) -> str:
    """Why a recording did not begin, a sentence with what to do; "" if it did."""
    if control.state is not ControlState.FAILED:
        return ""
    who = target.title
    match control.recording:
        case WatchState.CUPTI_TAKEN:
            return (
                f"another tool uses CUPTI in {who}, which was left as it was: end nsys, ncu, compute-sanitizer or the"
                " program's own profiler first."
            )
        case WatchState.NO_CUPTI:
            return f"{who} finds no libcupti: install it where the program runs (pip install nvidia-cuda-cupti)."
        case WatchState.CUPTI_TOO_OLD:
            return f"the libcupti of {who} is older than that of CUDA 12.0: install a newer one."
        case WatchState.STARTING:
            return f"{who} cannot write to its private folder: make room in /dev/shm or /tmp."
        case _:
            return f"CUPTI cannot be used in {who} ({control.step} returned {control.code}): restart the program."
