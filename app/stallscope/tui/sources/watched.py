"""Source of a watched program: read in a thread, with its output, NVML's values and kept traces."""

from __future__ import annotations

import signal
import threading
import time
from dataclasses import replace

from stallprobes.errors import WatchError
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram, WatchMoment
from stallprobes.watch.live.recorder import OutputLines, WatchRecorder
from stallscope.tui.sources.kept_traces import KeptTraces
from stallscope.tui.sources.pane_program import PaneProgram
from stallscope.tui.sources.program_gpu import ProgramGpu

# Often enough that no ring of slow calls or records is overwritten before it is read, except by a burst.
READ_S = 0.1
# Time between two readings, as a multiple of what one takes: the program may need the CPU.
_REST = 9
# An ended program writes nothing more, but processes that it left may.
_ENDED_READ_S = 1.0


class WatchSource:
    """The watched program ``live``, which runs as ``program``.

    Each moment that has new findings is put into ``recorder``. ``failure`` says why the reading ended early, "" if it
    has not.
    """

    engine = playback = None

    def __init__(
        self,
        live: LiveProgram,
        program: PaneProgram,
        gpu: ProgramGpu | None = None,
        recorder: WatchRecorder | None = None,
    ) -> None:
        self.live, self.program, self.gpu = live, program, gpu or ProgramGpu()
        self.failure = ""
        self.kept_traces = KeptTraces(live)
        self._recorder = recorder
        self._end_recorded = False
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    def start(self) -> None:
        """Start to read."""
        if not self._thread.ident:
            self._thread.start()

    def close(self) -> None:
        """End the reading; the program continues."""
        self._stop.set()
        if self._thread.ident:
            self._thread.join()
        self.gpu.close()

    @property
    def recorded_traces(self) -> KeptTraces:
        """The traces for the timeline."""
        return self.kept_traces

    @property
    def moment(self) -> WatchMoment | None:
        """The last moment; None before the first one."""
        return self.live.moment

    @property
    def output(self) -> list[str]:
        """The last lines of the program's output."""
        return self.program.output.lines()

    @property
    def output_lines(self) -> OutputLines:
        """The complete lines of the output, for a recording."""
        count, lines = self.program.output.complete()
        return OutputLines(count - len(lines), lines)

    @property
    def note(self) -> str:
        """What is wrong with the recording that is being made; "" for nothing."""
        return "" if self._recorder is None else self._recorder.problem

    @property
    def output_elsewhere(self) -> str:
        """Where the output goes if not to the pane, as a sentence; "" if it does."""
        return f"It goes to {self.program.file}." if self.program.file is not None else ""

    @property
    def program_state(self) -> WatchedProgram:
        """The program as it is now."""
        return replace(self.live.program, pid=self.program.pid, exit_code=self.program.exit_code)

    @property
    def running_text(self) -> str:
        """The program in words while it runs; "" once it has ended."""
        return f"{self.program.arguments[0]} (pid {self.program.pid})" if self.program.running else ""

    @property
    def telemetry(self) -> TelemetrySnapshot | None:
        """NVML's values; None without any."""
        return self.gpu.snapshot()

    @property
    def gpu_text(self) -> str:
        """The GPU's name, or why it has no values."""
        return self.gpu.name if self.gpu.snapshot() is not None else self.gpu.why

    def _run(self) -> None:
        rest_s = 0.0
        while not self._stop.wait(rest_s):
            begun_s = time.thread_time()
            # Before the reading: what the program wrote until its end is then read.
            code = self.program.exit_code
            try:
                program = self.live.program
                if self.live.update(replace(program, pid=self.program.pid, exit_code=code)):
                    self.gpu.follow(process.pid for process in self.live.processes if process.ended_ns is None)
                    self._record()
            except WatchError as error:
                self.failure = str(error)
                return
            except Exception as error:  # of any kind: a screen without new values must say why
                self.failure = f"The reading failed ({type(error).__name__}: {error}); this is a defect of stallscope."
                return
            least_s = READ_S if code is None else _ENDED_READ_S
            rest_s = max(least_s, _REST * (time.thread_time() - begun_s))

    def _record(self) -> None:
        """Put the moment into the recording; what follows the end of all processes is of no use."""
        moment = self.live.moment
        if self._recorder is None or moment is None or self._end_recorded:
            return
        self._recorder.put(moment, self.output_lines, self.telemetry)
        ended = all(process.ended for process in moment.findings.processes)
        self._end_recorded = ended and moment.program.exit_code is not None

    def suspend(self) -> None:
        """Stop the program while the screen is suspended."""
        self.program.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the program continue."""
        self.program.send(signal.SIGCONT)
