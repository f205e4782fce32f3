"""Wording about a watched program: the effects of the watch, and missing records."""

from __future__ import annotations

from collections.abc import Iterator

from stallprobes.units import format_count
from stallprobes.watch.attribution.findings import ProcessFindings
from stallprobes.watch.rank_text import process_words
from stallprobes.watch.reading.process import ProcessHead
from stallprobes.watch.reading.words import ProcessState

# Clause about a profiler that the watched program starts itself, if ``watch`` has started the program.
PROFILER_FINDS_IT_TAKEN = "until it ends, a profiler of its own finds CUPTI taken unless --yield-to-profiler is given"
# Clause about a profiler that the watched program starts itself, if ``watch`` is attached to the program.
PROFILER_FINDS_IT_TAKEN_MEANWHILE = "a profiler of its own finds CUPTI taken until stallscope detaches"
# Clause about a profiler that the watched program starts itself, if watch has the option --yield-to-profiler.
PROFILER_GETS_IT = "a profiler of its own gets CUPTI, and from then on nothing is recorded"
# Clause for each state of a process in which its calls are not recorded.
_STATES = {
    ProcessState.STARTING: "its recording had not begun",
    ProcessState.NO_CUPTI: "libcupti was not found, so nothing was recorded; install it: pip install nvidia-cuda-cupti",
    ProcessState.CUPTI_TOO_OLD: "its libcupti is older than that of CUDA 12.0, so nothing was recorded; install a "
    "newer one",
    ProcessState.CUPTI_TAKEN: "another tool uses CUPTI in it, so nothing was recorded; run it without nsys, ncu, "
    "compute-sanitizer or a profiler of its own",
    ProcessState.CUPTI_FAILED: "CUPTI cannot be used in it, so nothing was recorded",
    ProcessState.YIELDED: "nothing was recorded since its own profiler began",
}
# States of a process in which calls were recorded. For these states, the report names the evidence that is missing.
_WITH_RECORDS = (ProcessState.RECORDING, ProcessState.YIELDED)


def state_problem(process: ProcessHead) -> str | None:
    """Why nothing is recorded of a process, as a sentence without its end.

    None while that is not known, or if all is well.
    """
    if process.state in (ProcessState.STARTING, ProcessState.RECORDING):
        return None
    return f"{process_words(process)}: {_state(process)}"


def not_recorded(process: ProcessFindings, several: bool = True) -> Iterator[str]:
    """Missing records of a process, a sentence each; with ``several`` processes, with its name."""
    who = process_words(process)
    if process.state in _STATES:
        yield f"{who}: {_state(process)}."
    if process.state in _WITH_RECORDS:
        for gap in process.gaps:
            yield f"{process_prefix(process, several)}{gap}"
    if process.dropped_slow_calls:
        older = f"{format_count(process.dropped_slow_calls)} older slow calls are counted, but not listed."
        yield f"{process_prefix(process, several)}{older}"


def still_running(process: ProcessHead) -> str:
    """Sentence that a process outlives the program that was watched."""
    return f"{process_words(process)} still runs: it was recorded until the end of the program that started it."


def process_prefix(process: ProcessHead, several: bool) -> str:
    """The process before a sentence about it, ``python (pid 4711): ``; "" unless there are several."""
    return f"{process_words(process)}: " if several else ""


def _state(process: ProcessHead) -> str:
    failed = f" ({process.failed_function} returned {process.code})" if process.code else ""
    return _STATES[process.state] + failed
