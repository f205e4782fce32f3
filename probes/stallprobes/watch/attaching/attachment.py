"""A process that runs, with the injected library in it."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from stallprobes.errors import WatchError
from stallprobes.machine.gpus import shares_gpu
from stallprobes.native.layouts.attaching import ControlState
from stallprobes.native.layouts.watch_file import WatchState
from stallprobes.watch.attaching.control import Control
from stallprobes.watch.attaching.helper import TargetAccess
from stallprobes.watch.attaching.image import ProcessImage
from stallprobes.watch.attaching.loading import ATTACHER_S, Loaded
from stallprobes.watch.attaching.refusals import ended_meanwhile, refusal
from stallprobes.watch.attaching.target import Target, replaced_sentence
from stallprobes.watch.environment import WatchOptions, is_cupti_named, libcupti_of
from stallprobes.watch.reading.lack_text import lack_sentence

# Longest wait (s) until the thread that loaded the library has returned to its own system call. After a longer wait,
# the library does not free the memory that the attacher made in the process. A fiftieth of this time is the period of
# the checks, also in the wait for the control (_CONTROL_S).
_BACK_S = 0.1
# Longest wait (s) until the library in a newly attached process begins to record. After a longer wait, stallscope
# displays what the recording waits for. Reason: a first subscription to CUPTI can take seconds on a busy GPU.
ANSWER_S = 1.5
# Longest wait (s) until the library has detached from CUPTI: a call of the program that hangs may hold CUPTI's lock.
DETACH_S = 10.0
# Longest wait (s) until the loaded library has created its control: the memory in which stallscope and the library
# exchange requests. After a longer wait, attaching fails.
_CONTROL_S = 2.0
# Time (s) that is added to the wait for the library's answer when stallscope also sends a libcupti to the process.
_SENDING_S = 10.0
# Longest time (s) for attaching to a process, for the display of progress: the sum of the limits of all steps. The
# start of a helper process is not included.
ATTACH_S = ATTACHER_S + _BACK_S + _CONTROL_S + ANSWER_S + _SENDING_S
# Period (s) of the checks whether an attached process has replaced its program by another one (execve), which ends
# the attachment.
_LOOK_S = 1.0


@dataclass
class Attachment:
    """The injected library of the process ``target``, which records until ``detach``.

    ``stopped_ns`` is how long a thread of the process was stopped, 0 where the library was there already. ``access`` is
    the way to the process.
    """

    target: Target
    stopped_ns: int
    access: TargetAccess
    _control: Control = field(repr=False)
    _began_ns: int = field(default_factory=time.monotonic_ns, repr=False)
    _detached: bool = field(default=False, repr=False)
    _replaced: bool = field(default=False, repr=False)
    _looked_s: float = field(default=0.0, repr=False)

    @property
    def pid(self) -> int:
        """The number of the process here."""
        return self.target.pid

    @property
    def has_ended(self) -> bool:
        """True if the process, or the program that was attached, has ended."""
        return self.target.has_ended or self.is_replaced

    @property
    def is_replaced(self) -> bool:
        """True if the process now executes another program; checked once a second."""
        if not self._replaced and not self._detached and time.monotonic() - self._looked_s >= _LOOK_S:
            self._looked_s = time.monotonic()
            self._replaced = _is_replaced(self.target)
        return self._replaced

    def take_file(self) -> int | None:
        """The descriptor of the recording's file, which passes to the caller; None where it was not taken."""
        return self._control.take_file()

    @property
    def waits_for(self) -> str:
        """Clause that names what the recording waits for before it begins; "" once it has begun."""
        if self._control.is_done or self.has_ended:
            return ""
        return f"{self._control.step} has not returned in {self.target.title}"

    @property
    def held_up_ns(self) -> int:
        """Longest time (ns) for which a call of the program may have been held up while the recording began or
        ended."""
        return min(self._control.held_ns, time.monotonic_ns() - self._began_ns)

    @property
    def problem(self) -> str:
        """Why nothing is recorded, as a sentence; "" if it is, or is still to begin."""
        return _failure(self.target, self._control) if self._control.is_done and not self._detached else ""

    def detach(self) -> None:
        """Switch everything off and unsubscribe; the library stays in the process, asleep. Only the first time counts.

        Raises WatchError where the library does not answer in ``DETACH_S``: it falls asleep when it can.
        """
        if self._detached:
            return
        self._replaced = self._replaced or _is_replaced(self.target)
        self._detached = True
        with self._control as control:
            if self.target.has_ended or self._replaced:
                return
            control.sleep()
            if control.wait(DETACH_S, self.target) or self.target.has_ended:
                return
        self._replaced = _is_replaced(self.target)
        if self.target.state in ("T", "t"):
            raise WatchError(f"{self.target.title} is stopped: its recording ends once it continues.")
        if not self._replaced:
            raise WatchError(
                f"{self.target.title} is still recorded, since {control.step} does not return in it: that ends by"
                " itself once it does."
            )


def attach(target: Target, options: WatchOptions, access: TargetAccess) -> Attachment:
    """Let the injected library record a process to a memfd of that process.

    It is loaded where it is not there yet, by ``access``. The recording may begin later: see ``Attachment.waits_for``.
    Raises WatchError with the reason where the process cannot be attached or nothing can be recorded; the process then
    is as it was.
    """
    reason = refusal(target.pid)
    if reason is not None:
        raise WatchError(reason)
    title = target.title
    try:
        return _attached(target, options, access)
    except (WatchError, OSError) as error:
        if target.has_ended:
            raise WatchError(ended_meanwhile(title)) from error
        if isinstance(error, OSError):
            raise WatchError(f"{title} cannot be read ({error.strerror}): try again.") from error
        raise


def _attached(target: Target, options: WatchOptions, access: TargetAccess) -> Attachment:
    began_ns = time.monotonic_ns()
    beside = is_cupti_named() or shares_gpu(target.pid)
    control, loaded = Control.of(target), Loaded(0, 0, (0, 0))
    if control is None:
        with ProcessImage.of(target.pid) as image:
            loaded = access.load(target, image, target.sleeping_threads())
        control = _new_control(target)
    try:
        if not control.lock():
            raise WatchError(f"{target.title} is watched by another stallscope: end that first.")
        region = loaded.region if loaded.thread and _is_back(target, loaded.thread) else (0, 0)
        cupti, sends = _cupti(target)
        control.record(options, cupti, region, sends, beside)
        control.wait(ANSWER_S + (_SENDING_S if sends else 0), target)
        if control.is_done and (failure := _failure(target, control)):
            raise WatchError(failure)
        if not control.is_done and _is_replaced(target):
            raise WatchError(replaced_sentence(target.title))
    except BaseException:
        control.close()
        raise
    # The process measures its own stop, which cannot have been longer than all of this.
    stopped_ns = min(max(loaded.stopped_ns, 0), time.monotonic_ns() - began_ns)
    return Attachment(target, stopped_ns, access, control, began_ns)


def _is_replaced(target: Target) -> bool:
    """True if a process that had the library executes another program."""
    with contextlib.suppress(OSError):
        return not target.has_ended and not target.has_library
    return False


def _is_back(target: Target, thread: int) -> bool:
    """True if the borrowed thread has left the attacher's memory."""
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
        if _is_replaced(target):
            raise WatchError(replaced_sentence(target.title))
        if time.monotonic() >= due or target.has_ended:
            raise WatchError(
                f"the library in {target.title} does not answer: restart the program with stallscope watch."
            )
        time.sleep(_BACK_S / 50)
    return control


def _cupti(target: Target) -> tuple[Path | None, bool]:
    """libcupti for a process without one, None if there is none, and whether it has to be sent.

    Another user's process may not be allowed to read the file.
    """
    has_own = any("/libcupti.so" in mapping.path for mapping in target.mappings())
    if target.shares_files() and (has_own or target.owner()[0] == os.geteuid()):
        return libcupti_of(os.environ), False
    cupti = None if has_own else libcupti_of(os.environ)
    return cupti, cupti is not None


def _failure(target: Target, control: Control) -> str:
    """Why a recording did not begin, a sentence with what to do; "" if it did."""
    who = target.title
    if control.state is None or control.recording is None:
        return f"the memory by which stallscope wakes the library in {who} is damaged: restart the program."
    if control.state is not ControlState.FAILED:
        return ""
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
            return lack_sentence(who, *control.lack)
        case _:
            return f"CUPTI cannot be used in {who} ({control.step} returned {control.code}): restart the program."
