"""Source of a watched program: read in a thread, with its output, NVML's values and kept traces."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from stallprobes.errors import NvmlUnavailable, WatchError, kind_and_text
from stallprobes.machine import nvml
from stallprobes.machine.gpus import processes_on
from stallprobes.machine.shortage import shortage
from stallprobes.machine.telemetry import Telemetry, TelemetrySnapshot, all_fields
from stallprobes.traces.trace import RecordedTrace, Trace
from stallprobes.watch.attaching.attachment import DETACH_S
from stallprobes.watch.live.beside_trial import BesideTrial
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.live_view import WatchedProgram, WatchMoment
from stallprobes.watch.live.recorder import OutputLines, WatchRecorder
from stallprobes.watch.live.trace_history import TriggeringCall
from stallscope.tui.sources.pane_program import PaneProgram, ShownOutput

# Period (s) at which the screen looks again for the GPU that the watched program uses.
_RETRY_S = 2.0
# Reason why the header has no GPU values until the watched program uses a GPU.
NOT_YET = "the program uses no GPU yet"
# Largest number of traces (records of calls and GPU work, for the timeline) that are kept for frozen views. With more
# traces, the oldest trace is dropped.
_MOST_TRACES = 64
# Usual and shortest pause (s) between two reads of the file into which the watched program records its calls. A longer
# pause follows a read that took much CPU time. Reason for the value: the file has room for all calls of such a pause,
# except in a burst of calls.
READ_S = 0.1
# Longest time (s) that a watched program's report may take after a signal. After this time, stallscope ends without the
# report.
REPORT_S = 10.0
# Period (s) of the reads of the record files after the program has ended. Reason: processes that the program started
# may still write.
_ENDED_READ_S = 1.0


class ProgramGpu:
    """Reads NVML's values of the first GPU with a computing process of ``follow``.

    On a machine with one GPU it reads this GPU. ``name`` is its model, ``why`` the reason while there are no values.
    """

    def __init__(self, load: Callable[[], Any] = nvml.load) -> None:
        self.name = ""
        self.why = NOT_YET
        self._load = load
        self._pids: frozenset[int] = frozenset()
        self._telemetry: Telemetry | None = None
        self._thread: threading.Thread | None = None
        self._quit = threading.Event()

    def follow(self, pids: Iterable[int]) -> None:
        """Look for the GPU of these processes."""
        self._pids = frozenset(pids)
        if self._pids and self._thread is None:
            self._thread = threading.Thread(target=self._find, name="program GPU", daemon=True)
            self._thread.start()

    def snapshot(self) -> TelemetrySnapshot | None:
        """The last values; None without any."""
        return None if self._telemetry is None else self._telemetry.snapshot()

    def close(self) -> None:
        """End the reading. Returns at once."""
        self._quit.set()
        if self._telemetry is not None:
            self._telemetry.stop()

    def _find(self) -> None:
        """Look until the GPU is found. NVML may hang, so this has a thread of its own."""
        while not self._quit.is_set():
            try:
                uuid = self._uuid(self._load())
            except NvmlUnavailable as problem:
                self.why = problem.reason
                return
            except Exception as error:
                self.why, uuid = nvml.error_text(error), None
            if uuid is not None:
                telemetry = Telemetry(uuid, fields=all_fields(gpm_counters=False))
                telemetry.start()
                self._telemetry = telemetry
                return
            self._quit.wait(_RETRY_S)

    def _uuid(self, module: Any) -> str | None:
        count = module.nvmlDeviceGetCount()
        for number in range(count):
            handle = module.nvmlDeviceGetHandleByIndex(number)
            # In a container processes have other numbers; with one GPU there is no doubt.
            if count == 1 or any(process.pid in self._pids for process in processes_on(module, handle)):
                self.name = nvml.text(module.nvmlDeviceGetName(handle))
                return nvml.text(module.nvmlDeviceGetUUID(handle))
        self.why = "NVML lists the program's processes on none of the GPUs"
        return None


class KeptTraces:
    """The traces of ``live``."""

    slow_calls_only = True
    problem: str | None = None

    def __init__(self, live: LiveProgram) -> None:
        self._live = live
        self._kept: list[Trace] = []
        # The number of the kept trace that a frozen view shows.
        self._shown: int | None = None

    def keep(self, call: TriggeringCall | None) -> None:
        """Keep the trace of a slow call, or the present one, also after the view is no longer frozen."""
        with contextlib.suppress(ValueError):
            self._kept.append(self._live.present_trace() if call is None else self._live.trace_of(call))
            del self._kept[:-_MOST_TRACES]
            self._shown = len(self._kept) - 1

    def show_present(self) -> None:
        """Let the timeline show the present trace."""
        self._shown = None

    @property
    def at_s(self) -> float:
        """The position: the present."""
        return 0.0 if self._live.moment is None else self._live.moment.seconds

    @property
    def traces(self) -> tuple[RecordedTrace, ...]:
        """The kept traces and the present one."""
        present_s = time.time() if self._live.moment is None else self._live.moment.wall_s
        ends_s = [*(trace.wall_s(trace.end_ns) for trace in self._kept), present_s]
        return tuple(RecordedTrace(number, wall_s, self.at_s) for number, wall_s in enumerate(ends_s))

    def nearest_trace(self, at_s: float) -> RecordedTrace | None:
        """The trace of the frozen view, else the present one."""
        traces = self.traces
        return traces[-1 if self._shown is None or self._shown >= len(traces) else self._shown]

    def trace(self, recorded: RecordedTrace) -> Trace | None:
        """A trace; the present one is cut anew."""
        if recorded.number < len(self._kept):
            return self._kept[recorded.number]
        return self._live.present_trace()


class MomentSource:
    """The readings of ``live`` in a thread, with NVML's values.

    ``look`` is called before each reading, in the thread that reads. Each moment that has new findings is put into
    ``recorder``, with the lines of ``output``. ``failure`` says why the reading ended early, "" if it has not.
    """

    engine = playback = None
    report_s = REPORT_S

    def __init__(
        self,
        live: LiveProgram,
        gpu: ProgramGpu | None = None,
        recorder: WatchRecorder | None = None,
        look: Callable[[], None] = lambda: None,
        output: Callable[[], OutputLines | None] = lambda: None,
    ) -> None:
        self.live, self.gpu = live, gpu or ProgramGpu()
        self.failure = ""
        self.kept_traces = self.recorded_traces = KeptTraces(live)
        self._look, self._output = look, output
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
    def moment(self) -> WatchMoment | None:
        """The last moment; None before the first one."""
        return self.live.moment

    @property
    def trial(self) -> BesideTrial | None:
        """The trial of aggressors beside the program."""
        return self.live.trial

    @property
    def note(self) -> str:
        """What is wrong with the recording that is being made; "" for nothing."""
        return "" if self._recorder is None else self._recorder.problem

    @property
    def program_state(self) -> WatchedProgram:
        """The program as it is now."""
        return self.live.program

    @property
    def gpu_values(self) -> tuple[TelemetrySnapshot | None, str]:
        """NVML's values and the GPU's name, or None and why there are none."""
        values = self.gpu.snapshot()
        return values, self.gpu.name if values is not None else self.gpu.why

    def _run(self) -> None:
        rest_s = 0.0
        while not self._stop.wait(rest_s):
            begun_s = time.thread_time()
            self._look()
            # Before the reading, which then has all that the program wrote until its end.
            program = self.program_state
            try:
                if self.live.update(program):
                    self.gpu.follow(process.pid for process in self.live.processes if process.ended_ns is None)
                    self._record()
            except WatchError as error:
                self.failure = str(error)
                return
            except Exception as error:  # of any kind: a screen without new values must say why
                if (why := shortage(error)) is not None:
                    self.failure = f"The reading failed: {why}."
                    return
                self.failure = f"The reading failed ({kind_and_text(error)}); this is a defect of stallscope."
                return
            least_s = READ_S if program.exit_code is None else _ENDED_READ_S
            rest_s = max(least_s, self.live.rest_s(time.thread_time() - begun_s))

    def _record(self) -> None:
        """Put the moment into the recording; what follows the end of all processes is of no use."""
        moment = self.live.moment
        if self._recorder is None or moment is None or self._end_recorded:
            return
        self._recorder.put(moment, self._output(), self.gpu.snapshot())
        ended = all(process.ended for process in moment.findings.processes)
        self._end_recorded = ended and moment.program.exit_code is not None


class WatchedProgramSource(MomentSource):
    """The watched program ``live``, which runs as ``program``."""

    def __init__(
        self,
        live: LiveProgram,
        program: PaneProgram,
        gpu: ProgramGpu | None = None,
        recorder: WatchRecorder | None = None,
    ) -> None:
        super().__init__(live, gpu, recorder, output=lambda: self.output_lines)
        self.program = program

    @property
    def program_state(self) -> WatchedProgram:
        """The program as it is now."""
        return replace(self.live.program, pid=self.program.pid, exit_code=self.program.exit_code)

    @property
    def output(self) -> ShownOutput:
        """The program's output."""
        file = self.program.file
        return ShownOutput(self.program.output.lines(), f"It goes to {file}." if file is not None else "")

    @property
    def output_lines(self) -> OutputLines:
        """The complete lines of the output, for a recording."""
        count, lines = self.program.output.complete()
        return OutputLines(count - len(lines), lines)

    @property
    def running_text(self) -> str:
        """The program in words while it runs; "" once it has ended."""
        return f"{self.program.arguments[0]} (pid {self.program.pid})" if self.program.running else ""

    def suspend(self) -> None:
        """Stop the program while the screen is suspended."""
        self.program.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Let the program continue."""
        self.program.send(signal.SIGCONT)


class AttachedSource(MomentSource):
    """Processes that were attached: they run, and write, elsewhere, also while the screen is suspended.

    ``waits_for`` says why there are no rows yet, or that the processes have ended; "" for nothing.
    """

    program = None
    report_s = REPORT_S + DETACH_S
    running_text = ""
    output = ShownOutput(elsewhere="The program was attached: its output is where it was started.")

    def __init__(
        self,
        live: LiveProgram,
        look: Callable[[], None],
        waits_for: Callable[[], str],
        recorder: WatchRecorder | None = None,
    ) -> None:
        super().__init__(live, recorder=recorder, look=look)
        self._waits_for = waits_for

    @property
    def note(self) -> str:
        """What the source waits for, else the problem of the present recording; "" for nothing."""
        return self._waits_for() or super().note

    def suspend(self) -> None:
        """Nothing is stopped."""

    def resume(self) -> None:
        """Nothing was stopped."""
