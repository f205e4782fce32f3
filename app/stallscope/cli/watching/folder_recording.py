"""Recording of programs that were started elsewhere, from what they write to a folder while they run."""

from __future__ import annotations

import threading
import time

from stallprobes.errors import FileNotWritten
from stallprobes.foreign_text import printable
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.recorder import WatchRecorder
from stallprobes.watch.reading.process import WatchedProcess
from stallscope.cli.process import diagnostics
from stallscope.cli.process.signals import InterruptHandler

# As for a program that watch starts itself.
_READ_S = 0.1
# Time between two readings, as a multiple of what one takes.
_REST = 9
# Time in which the main thread answers a signal.
_ANSWER_S = 0.05


class FolderRecording:
    """Puts the moments of ``live`` into ``recorder`` until none of its processes runs any more, or until a signal."""

    def __init__(self, live: LiveProgram, recorder: WatchRecorder) -> None:
        self._live, self._recorder = live, recorder
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="folder recording", daemon=True)

    def run(self) -> None:
        """Record while processes run; returns at once where none does.

        SIGINT, SIGTERM or SIGHUP ends it. Raises WatchError where the folder cannot be read any more.
        """
        if not self._live.running:
            return
        with InterruptHandler() as interrupt:
            diagnostics.print_message(
                f"recording {_names(self._live.running)} until its end; ctrl+c ends the recording"
            )
            self._thread.start()
            while self._thread.is_alive() and not interrupt.stop_requested():
                self._thread.join(_ANSWER_S)
            interrupt.stop_requested()
            self._stop.set()
            self._thread.join()
        if self._error is not None:
            # What was recorded before stays readable.
            self._recorder.close()
            raise self._error

    def finish(self) -> None:
        """Put the last moment into the recording and close it. Raises FileNotWritten."""
        if self._live.moment is not None:
            self._recorder.put(self._live.moment, last=True)
        self._recorder.close()
        if self._recorder.problem:
            raise FileNotWritten(f"--record: {self._recorder.problem}.")
        diagnostics.print_message(f"recorded to {self._recorder.path}; stallscope replay shows it")

    def _run(self) -> None:
        rest_s = 0.0
        while self._live.running and not self._recorder.problem and not self._stop.wait(rest_s):
            begun_s = time.thread_time()
            try:
                if self._live.update() and self._live.moment is not None:
                    self._recorder.put(self._live.moment)
            except Exception as error:  # of any kind: the main thread raises it
                self._error = error
                return
            rest_s = max(_READ_S, _REST * (time.thread_time() - begun_s))


def _names(processes: tuple[WatchedProcess, ...]) -> str:
    """The processes in words: the first one's name, and how many more."""
    first = f"{printable(processes[0].name)} (pid {processes[0].pid})"
    return f"{first} and {len(processes) - 1} more" if len(processes) > 1 else first
