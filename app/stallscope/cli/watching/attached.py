"""Watching a process that runs already: attaching, what is read meanwhile, and the report after detaching."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress

from stallprobes.errors import EXIT_ENGINE, WatchError
from stallprobes.files.ending_signals import unwound_by_signals
from stallprobes.units import duration_ns, plural
from stallprobes.watch.attaching.attached_processes import AttachedProcesses
from stallprobes.watch.attaching.attachment import ATTACH_S, DETACH_S, Attachment
from stallprobes.watch.attaching.in_flight import ThreadInDriver
from stallprobes.watch.attaching.refusals import refusal
from stallprobes.watch.attaching.target import Target, family
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.cost import attaching_cost
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.live.beside_trial import BesideTrial
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.live.recorder import WatchRecorder
from stallprobes.watch.reading.folder_lock import places, remove_abandoned
from stallprobes.watch.reading.py_spy import PySpyRun
from stallprobes.watch.sentences import frame_text
from stallprobes.wording.watch_wording import PROFILER_FINDS_IT_TAKEN_MEANWHILE
from stallscope.cli.process import diagnostics, foreground
from stallscope.cli.process.foreground import WatchExit
from stallscope.cli.process.limits import collect_rarely
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.signals import InterruptHandler
from stallscope.cli.process.stdout import Output
from stallscope.cli.watching.files import WatchFiles
from stallscope.cli.watching.session import POLL_S, close_trial, kept, read_new, read_to_the_end, save_files
from stallscope.report.watch_text import show_watch
from stallscope.tui.settings import Settings

# Longest sleep (s) between two checks whether watch --pid must end, by ctrl+c, another signal or --seconds.
_ANSWER_S = 0.05
# Period (s) of the searches for descendants of the attached process.
_CHILDREN_S = 1.0
# Largest number of threads of which the report says that a call began before watch attached, and has not returned.
# Further threads with a call of this kind are only counted.
_MOST_NAMED = 8
# Longest wait (s) for py-spy's stacks at the end of watch --pid.
_PY_SPY_S = 5.0


def run_attached(
    pid: int,
    options: WatchOptions,
    files: WatchFiles,
    seconds: float | None,
    known: Settings | None = None,
    *,
    children: bool = False,
    no_screen: str = "",
    trial: BesideTrial | None = None,
) -> int:
    """Attach to the process ``pid``, show what it does, detach, report, and return the exit code (0 or 125).

    ``seconds``: detach after so long, None: at the user's wish or when the process ends. ``known`` are the settings of
    the screen, None for no screen, for the reason ``no_screen``, "" where none was asked for. ``children``: also its
    descendants. ``trial`` has aggressors beside it; without a screen and ``seconds``, its end is that of the watch.
    Raises WatchError where it cannot be attached.
    """
    reason = refusal(pid)
    # A launcher such as torchrun makes no CUDA calls itself.
    if reason is not None and not (children and any(_with_cuda(family(pid)[1:]))):
        raise WatchError(reason)
    remove_abandoned(places())
    with unwound_by_signals():
        watch = AttachedWatch(pid, options, files, children)
        watch.live.trial = trial
        try:
            if known is None:
                _watch_headless(watch, seconds, no_screen)
            else:
                watch.begin(no_screen)
                _show(watch, seconds, known)
        finally:
            # Whatever comes: the process must not be recorded any longer.
            watch.detach()
        try:
            return watch.report()
        finally:
            watch.remove()


def _watch_headless(watch: AttachedWatch, seconds: float | None, no_screen: str) -> None:
    """Attach, and read until the time is over, a signal comes, or no process is left."""
    with InterruptHandler(grace_s=0) as interrupt:
        signal.signal(foreground.REPORT_SIGNAL, lambda *_: watch.ask_for_report())
        watch.begin(no_screen)
        due_s = None if seconds is None else time.monotonic() + seconds
        while not interrupt.stop_requested() and not watch.has_ended:
            rest_s = max(POLL_S, watch.poll())
            if due_s is None and watch.live.trial is not None and watch.live.trial.complete:
                return
            wake_s = time.monotonic() + rest_s
            while (now_s := time.monotonic()) < wake_s and not interrupt.stop_requested():
                if due_s is not None and now_s >= due_s:
                    return
                time.sleep(min(_ANSWER_S, max(wake_s - now_s, 0)))


def _show(watch: AttachedWatch, seconds: float | None, known: Settings) -> None:
    """Show the screen until it is closed, or until the time is over."""
    from stallscope.cli import screen
    from stallscope.tui.sources.watched import AttachedSource

    collect_rarely()
    # The report is on the screen.
    signal.signal(foreground.REPORT_SIGNAL, signal.SIG_IGN)
    source = AttachedSource(watch.live, watch.look_for_children, watch.note, watch.recorder)
    source.start()
    ended = threading.Event()
    if seconds is not None:
        words = seconds, signal.getsignal(signal.SIGTERM), ended
        threading.Thread(target=_close_after, args=words, name="watch time", daemon=True).start()
    try:
        if screen.run_app(lambda: source, known, first="watch")[0] == EXIT_ENGINE:
            watch.failures.append(WatchError("the screen failed, as said above."))
    finally:
        ended.set()
        source.close()


def _close_after(seconds: float, handler: object, ended: threading.Event) -> None:
    """Close the screen, as SIGTERM does, once the time is over. ``handler`` is that of SIGTERM before the screen's."""
    ended.wait(seconds)
    while not ended.is_set():
        # Before the screen has its handler, the signal would end the command.
        if signal.getsignal(signal.SIGTERM) is not handler:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        ended.wait(_ANSWER_S)


class AttachedWatch:
    """The attachments of a process and, if wanted, of its descendants; what they write is read as ``live``."""

    def __init__(self, pid: int, options: WatchOptions, files: WatchFiles, children: bool) -> None:
        """Nothing is attached yet."""
        self._target = Target(pid)
        self._options, self._files, self._children = options, files, children
        self._processes = AttachedProcesses()
        self._refused: dict[int, str] = {}
        self._in_flight: list[ThreadInDriver] = []
        self._spied: PySpyRun | None = None
        self._looked_s = 0.0
        self._report_wanted = False
        self.failures: list[Exception] = []
        program = WatchedProgram(self._target.name or "a process", pid=pid)
        self.live = LiveProgram(self._processes, program, options.known, files.keep_ns)
        self.live.metrics = files.metrics
        self.recorder = None if files.record is None else WatchRecorder(files.record, self.live.trace_of)

    @property
    def _attachments(self) -> dict[int, Attachment]:
        return self._processes.attachments

    def begin(self, no_screen: str) -> None:
        """Attach, and say so. Raises WatchError; then nothing is attached."""
        try:
            with Progress() as progress:
                progress.begin(f"attaching to {self._target.title}", at_most_s=ATTACH_S)
                self._in_flight = self._processes.in_driver(self._target)
                first = self._attach_first()
        except BaseException:
            self.remove()
            raise
        if self._in_flight and not first.access.no_spy and self._target.shares_files():
            self._spied = first.access.spy(first.target)
        self._attach_children()
        where = f" without a screen: {no_screen}" if no_screen else ""
        stopped = f", of which a thread was stopped for {duration_ns(first.stopped_ns)}" if first.stopped_ns else ""
        several = "processes" if len(self._attachments) > 1 else "a process"
        several_of = "" if first.pid == self._target.pid else f"{several} of "
        diagnostics.print_message(
            f"attached to {several_of}{self._target.title}{stopped}{where}; {PROFILER_FINDS_IT_TAKEN_MEANWHILE}"
        )

    @property
    def has_ended(self) -> bool:
        """True if all attached processes have ended, or execute other programs."""
        return all(attachment.has_ended for attachment in list(self._attachments.values()))

    def note(self) -> str:
        """What the watch waits for, or that the processes have ended; "" for nothing."""
        # Another thread may add some.
        attached = list(self._attachments.values())
        if all(attachment.has_ended for attachment in attached):
            is_replaced = any(attachment.is_replaced for attachment in attached)
            return "the process has executed another program" if is_replaced else "the process has ended"
        waits = next((text for attachment in attached if (text := attachment.waits_for)), "")
        problem = next((text for attachment in attached if (text := attachment.problem)), "")
        return f"waiting: {waits}" if waits else problem.rstrip(".")

    def ask_for_report(self) -> None:
        """Have the next poll write the report so far to stderr."""
        self._report_wanted = True

    def poll(self) -> float:
        """Read what is new. Returns the pause (s) until the next poll."""
        begun_s = time.thread_time()
        if not self.failures:
            with kept(self.failures):
                read_new(self.live, self.recorder)
        self.look_for_children()
        if self._report_wanted:
            self._report_wanted = False
            with Output.on_stderr() as out:
                findings = self.live.findings()
                show_watch(out, self._noted(findings), self._target.title, self._files.full)
        return self.live.rest_s(time.thread_time() - begun_s)

    def look_for_children(self) -> None:
        """Attach to descendants that began to use CUDA, if that is wanted and the last search is some time ago."""
        if self._children and time.monotonic() - self._looked_s >= _CHILDREN_S:
            self._attach_children()

    def detach(self) -> None:
        """Detach from all processes. What fails is said in the report."""
        with kept(self.failures, WatchError):
            close_trial(self.live)
        with Progress() as progress:
            for attachment in self._attachments.values():
                if attachment.problem:
                    self.failures.append(WatchError(attachment.problem))
                progress.begin(f"detaching from {Target(attachment.pid).title}", at_most_s=DETACH_S)
                with kept(self.failures, WatchError):
                    attachment.detach()

    def report(self) -> int:
        """Write the report to stdout, and the files; returns the exit code of the command."""
        with Progress() as progress:
            with kept(self.failures):
                if self._spied is not None:
                    progress.begin("waiting for py-spy", at_most_s=_PY_SPY_S)
                    self._spied.wait(_PY_SPY_S)
                read_to_the_end(self.live, progress)
            findings = self._noted(self.live.findings())
            save_files(self._files, self.live, findings, self.recorder, progress, self.failures)
        with Output() as out:
            show_watch(out, findings, self._target.title, self._files.full)
        for failure in self.failures:
            diagnostics.print_failure(failure)
        return WatchExit.FAILED if self.failures else 0

    def _noted(self, findings: WatchFindings) -> WatchFindings:
        """``findings`` with what attaching cost the processes, and ``notes``."""
        recorded = {process.pid: process for process in self.live.processes}
        costs = (
            attaching_cost(
                each.pid, each.stopped_ns, each.held_up_ns, None if each.has_ended else recorded.get(each.pid)
            )
            for each in self._attachments.values()
        )
        return findings.with_problems(self.notes()).changed(attached=tuple(costs))

    def notes(self) -> list[str]:
        """Sentences on processes that were not attached, on what was lost, and on calls that had begun before."""
        replaced = (attachment.target.title for attachment in self._attachments.values() if attachment.is_replaced)
        return [
            *(f"Not attached: {reason}" for reason in self._refused.values()),
            *(f"{title} has executed another program, of which nothing is recorded." for title in replaced),
            *(f"{problem[:1].upper()}{problem[1:]}" for problem in self._processes.problems),
            *self._begun_before(),
        ]

    def remove(self) -> None:
        """Release everything that was taken for the processes."""
        self._processes.close()

    def _begun_before(self) -> Iterator[str]:
        """The calls that were in flight when the recording began and still are, by where their threads wait."""
        before = {thread.thread for thread in self._in_flight}
        seen = {thread.id for process in self.live.processes for thread in process.threads if thread.calls}
        # A thread that has made calls since has returned from that one.
        still = [thread for thread in self._processes.in_driver(self._target) if thread.thread in before - seen]
        spied = None if self._spied is None else self._spied.found
        for thread in still[:_MOST_NAMED]:
            text = f"A call of thread {thread.name} ({thread.thread}) was in flight before, and has not returned"
            place = None if spied is None or (stack := spied.stacks.get(thread.thread)) is None else stack.place
            called = "" if place is None else f"; it was called from {frame_text(place)}"
            yield f"{text}: it waits{f' in {thread.wait}' if thread.wait else ''}{called}."
        if len(still) > _MOST_NAMED:
            yield f"So do {plural(len(still) - _MOST_NAMED, 'other thread')}."

    def _attach_first(self) -> Attachment:
        """Attach to the process, or to those that it started if it uses no CUDA itself. Raises WatchError."""
        pid = self._target.pid
        if not self._children or any(_with_cuda([pid])):
            self._processes.attach(pid, self._options)
        else:
            self._attach_children()
        if not self._attachments:
            raise WatchError(next(iter(self._refused.values()), refusal(pid) or f"{self._target.title} has ended."))
        return next(iter(self._attachments.values()))

    def _attach_children(self) -> None:
        if not self._children:
            return
        self._looked_s = time.monotonic()
        new = (pid for pid in family(self._target.pid)[1:] if pid not in self._attachments.keys() | self._refused)
        for pid in _with_cuda(new):
            try:
                self._processes.attach(pid, self._options)
            except WatchError as error:
                self._refused[pid] = str(error)


def _with_cuda(pids: Iterable[int]) -> Iterator[int]:
    """The processes that have loaded libcuda."""
    for pid in pids:
        with suppress(OSError):
            if any("/libcuda.so" in mapping.path for mapping in Target(pid).mappings()):
                yield pid
