"""Readings of watched processes: kept while ``stallscope watch`` runs, and analyzed again by today's rules.

python -m truth.kept_readings FILE watch ARGUMENT ...
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import TimeSample
from stallprobes.watch import folder_analysis
from stallprobes.watch.analysis import ProcessAnalysis, watch_findings
from stallprobes.watch.attribution.findings import ProcessFindings, WatchFindings
from stallprobes.watch.reading.process import SampleBatch


def keep(file: BinaryIO) -> None:
    """Have each reading that is analyzed from now on written to ``file``, with what is known of its process beside."""
    feed, findings = ProcessAnalysis.feed, folder_analysis._findings

    def kept_feed(self: ProcessAnalysis, *arguments: Any) -> None:
        pickle.dump((arguments[0].pid, "feed", arguments), file)
        feed(self, *arguments)

    def kept_findings(*arguments: Any) -> ProcessFindings:
        made = findings(*arguments)
        beside = {name: getattr(made, name) for name in ("cpus", "settings", "children", "others", "ended")}
        pickle.dump((made.pid, "beside", beside), file)
        return made

    # Whoever reads the processes has no place to ask for this.
    for owner, name, function in ((ProcessAnalysis, "feed", kept_feed), (folder_analysis, "_findings", kept_findings)):
        setattr(owner, name, function)


def analyzed(file: BinaryIO) -> WatchFindings:
    """The findings of all readings in ``file``. Whoever wrote it is trusted."""
    analyses: dict[int, ProcessAnalysis] = {}
    beside: dict[int, dict[str, Any]] = {}
    began_at_ns = 0
    for pid, kind, kept in _entries(file):
        if kind == "feed":
            began_at_ns = min(began_at_ns or kept[0].started.realtime_ns, kept[0].started.realtime_ns)
            process, records, *others = kept
            # Kept ones may be as CUPTI wrote them.
            records = replace(records, rows=process.windows.cut(records.rows))
            others = [as_today(each) if isinstance(each, SampleBatch) else each for each in others]
            analyses.setdefault(pid, ProcessAnalysis()).feed(process, records, *others)
        else:
            beside[pid] = kept
    findings = [analysis.findings().changed(**beside.get(pid, {})) for pid, analysis in analyses.items()]
    return watch_findings(findings, began_at_ns)


def as_today(samples: SampleBatch) -> SampleBatch:
    """Samples whose rows may be from before they had the holder of Python's lock, as they are today."""
    return replace(samples, rows=samples.rows.view(dtype_of(TimeSample)))


def _entries(file: BinaryIO) -> Iterator[tuple[int, str, Any]]:
    while True:
        try:
            yield pickle.load(file)
        except EOFError:
            return


def main() -> None:
    """Run ``stallscope`` with its arguments, and keep the readings in the file that is named first."""
    from stallscope.cli import main as command_line

    with Path(sys.argv.pop(1)).open("wb") as file:
        keep(file)
        command_line.main()


if __name__ == "__main__":
    main()
