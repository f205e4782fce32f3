"""A program that is watched by a Python program, without a screen: ``stallprobes.watched``."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from stallprobes.errors import WatchError
from stallprobes.watch.attaching.attached_processes import AttachedProcesses
from stallprobes.watch.attaching.refusals import refusal
from stallprobes.watch.attaching.target import Target
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.environment import WatchOptions
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram
from stallprobes.watch.report import described
from stallprobes.watch.setup import WatchSetup, given_environment, prepare

# Usual time (s) between two readings of what the program recorded.
_POLL_S = 0.1


class Watched:
    """A watched program, read by a thread from the begin of the ``with`` block to its end.

    ``report`` is then the report tree; inside the block it is the report until now.
    """

    def __init__(self, program: Sequence[str] | int, options: WatchOptions) -> None:
        """``program`` is a command with its arguments, or the number of a process that runs."""
        self._program, self._options = program, options
        self._live: LiveProgram
        self._attached: AttachedProcesses | None = None
        self._setup: WatchSetup | None = None
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._reader = threading.Thread(target=self._read, name="watch reader", daemon=True)
        self._error: WatchError | None = None
        self._report: WatchFindings | None = None
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def report(self) -> WatchFindings:
        """The report: of the whole run after the block, until now inside it. Raises WatchError."""
        if self._report is None:
            with self._lock:
                return self._described()
        return self._report

    def __enter__(self) -> Self:
        """Start the program, or attach to the process. Raises WatchError, and OSError for a program that is none."""
        if isinstance(self._program, int):
            self._attach(self._program)
        else:
            self._start(tuple(self._program))
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Wait for the end of the program (SIGTERM ends it if the block raised), or detach; then make the report.

        Raises WatchError.
        """
        try:
            self._end(failed=kind is not None)
            with self._lock:
                self._live.finish_looking()
                self._live.read()
                self._report = self._described()
        finally:
            self._close()
        if self._error is not None and kind is None:
            raise self._error

    def _start(self, command: tuple[str, ...]) -> None:
        self._setup = prepare(self._options, given_environment())
        try:
            if self._setup.folder is None:
                raise WatchError(f"{self._setup.problem}.")
            self._live = LiveProgram(
                self._setup.folder, WatchedProgram(" ".join(command), command), self._options.known
            )
            self.process = subprocess.Popen(command, env=dict(self._setup.environment))
        except BaseException:
            self._close()
            raise

    def _attach(self, pid: int) -> None:
        if (why := refusal(pid)) is not None:
            raise WatchError(why)
        self._attached = AttachedProcesses()
        self._live = LiveProgram(self._attached, WatchedProgram(Target(pid).name or "", pid=pid), self._options.known)
        try:
            self._attached.attach(pid, self._options)
        except BaseException:
            self._close()
            raise

    def _read(self) -> None:
        rest_s = 0.0
        while not self._ended.wait(max(_POLL_S, rest_s)):
            begun_s = time.thread_time()
            try:
                with self._lock:
                    self._live.read()
            except WatchError as error:
                self._error = error
                return
            rest_s = self._live.rest_s(time.thread_time() - begun_s)

    def _end(self, *, failed: bool) -> None:
        try:
            if self.process is not None:
                if failed:
                    self.process.terminate()
                self.process.wait()
            elif self._attached is not None:
                for attachment in self._attached.attachments.values():
                    attachment.detach()
        except BaseException:
            # ctrl+c while the program runs: it ends too.
            if self.process is not None:
                self.process.terminate()
                with suppress(subprocess.TimeoutExpired):
                    self.process.wait(10)
            raise
        finally:
            self._ended.set()
            self._reader.join()

    def _described(self) -> WatchFindings:
        findings = self._live.findings()
        code = None if self.process is None else self.process.returncode
        return findings.changed(
            program=None if isinstance(self._program, int) else tuple(self._program),
            exit_code=None if code is None else code if code >= 0 else 128 - code,
            processes=tuple(map(described, findings.processes)),
        )

    def _close(self) -> None:
        if self._setup is not None:
            self._setup.remove()
        if self._attached is not None:
            self._attached.close()
