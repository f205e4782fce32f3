"""Files that ``watch`` writes at the end of a program, or while it runs."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

from stallprobes.errors import RunFileError
from stallprobes.files import atomic
from stallprobes.machine.nvml import version_of
from stallprobes.traces import chrome
from stallprobes.traces.chrome import TitledTrace
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.comparing import run_file
from stallprobes.watch.live.live_program import LiveProgram
from stallprobes.watch.live.trace_history import KEEP_NS
from stallprobes.watch.prometheus import MetricsFile
from stallprobes.watch.report import document
from stallscope.cli.process import diagnostics
from stallscope.cli.process.progress import Progress
from stallscope.cli.process.stdout import Output


@dataclass(frozen=True)
class WatchFiles:
    """Paths of the files, None for a file that is not written; ``force`` replaces existing ones.

    ``json`` is the report, ``trace`` a trace for Perfetto, ``record`` a recording, which never replaces a file.
    ``output`` gets the program's output, in place of the screen's pane. ``full``: the text report has all of its parts.
    ``runs`` gets the report as one more run, for comparisons.
    ``prometheus`` gets metrics, while the program runs and at its end; it is always replaced.
    """

    json: Path | None = None
    trace: Path | None = None
    record: Path | None = None
    output: Path | None = None
    force: bool = False
    full: bool = False
    runs: Path | None = None
    prometheus: Path | None = None

    @property
    def metrics(self) -> MetricsFile | None:
        """A new file with metrics; None where none is written."""
        return None if self.prometheus is None else MetricsFile(self.prometheus)

    @property
    def keep_ns(self) -> int | None:
        """Time (ns) of the program that is kept for traces, None for all."""
        return KEEP_NS if self.trace is None else None

    def save_report(self, findings: WatchFindings, progress: Progress) -> None:
        """Write the report. Raises FileNotWritten."""
        if self.json is not None:
            progress.begin(f"writing {self.json.name}")
            text = io.StringIO()
            Output(text).json(document(findings))
            atomic.write(self.json, (text.getvalue().encode(),), force=self.force)

    def save_run(self, findings: WatchFindings, progress: Progress) -> None:
        """Append the report to the file of runs. Raises RunFileError; then the file has its earlier runs."""
        if self.runs is not None:
            if findings.beside is not None and findings.beside.on_ns:
                raise RunFileError(f"{self.runs}: the run is not saved, since aggressors ran beside the program.")
            progress.begin(f"saving to {self.runs.name}")
            run_file.append(findings, self.runs)
            diagnostics.print_message(f"run saved to {self.runs}; compare it with stallscope compare")

    def save_trace(self, live: LiveProgram, findings: WatchFindings, progress: Progress) -> None:
        """Write the trace, and say where it is and what it leaves out. Raises FileNotWritten."""
        if self.trace is not None:
            progress.begin(f"writing {self.trace.name}")
            trace = live.whole_trace()
            about = {
                "program": f"stallscope {version_of('stallscope') or ''}".rstrip(),
                "watched": live.program.title,
                "processes": [f"{process.name} (pid {process.pid})" for process in findings.processes],
                "calls": "all, also those in flight",
            }
            writing = progress.shower(f"writing {self.trace.name}")
            chrome.save([TitledTrace(trace)], self.trace, about, force=self.force, progress=writing)
            lost_s = max(live.history.left_out_ns - findings.began_ns, 0) / 1e9
            left_out = (
                f"; it leaves out records and calls of the first {lost_s:.1f} s, which were too many" if lost_s else ""
            )
            diagnostics.print_message(
                f"trace written to {self.trace}; open it in Perfetto or chrome://tracing{left_out}"
            )
