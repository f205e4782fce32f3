"""The text report of a watched program: what begins it, its limits, and text that the program chose."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import pytest

from factories.beside import beside_result
from factories.hostile_text import HOSTILE
from factories.watch_calls import (
    LAUNCH,
    MAIN,
    OTHER,
    SYNC,
    at_ns,
    batch,
    call,
    kernel,
    launch_batch,
    pageable_copy,
    process,
    slow,
    thread,
)
from stallprobes.foreign_text import is_printable
from stallprobes.watch.analysis import ProcessAnalysis, watch_findings
from stallprobes.watch.attribution.findings import ProcessFindings, WatchFindings
from stallprobes.watch.reading.process import WatchedProcess
from stallprobes.watch.reading.words import ProcessState
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import command_title, show_watch

TITLE = "python train.py"
FAST = {LAUNCH: [4.0] * 99, SYNC: [6.0] * 99}


def found(read: WatchedProcess, *kernels: Mapping[str, Any]) -> ProcessFindings:
    analysis = ProcessAnalysis()
    analysis.feed(read, batch(kernels), at_ns(1_000_000), calls=launch_batch(*kernels, stream=0))
    return analysis.findings()


def stalling(name: str = "MainThread", other: str = "loader") -> ProcessFindings:
    """A thread that waits for a kernel of 15 ms, and launches beside a pageable copy of 9 ms."""
    main = thread(
        MAIN,
        [slow(SYNC, 1_000, 16_500, correlation=7, stream=0), slow(LAUNCH, 50_001, 59_001, correlation=9, stream=5)],
        name=name,
        fast_us=FAST,
    )
    copying = thread(OTHER, [pageable_copy(50_000, 59_000, correlation=8)], name=other)
    return found(process(main, copying, ended=100_000), kernel(1_200, 16_400, correlation=6))


def text(findings: WatchFindings, width: int = 80, ascii: bool = False, full: bool = True) -> str:
    stream = io.StringIO()
    show_watch(TextWriter(stream, width=width, ascii=ascii), findings, TITLE, full=full)
    return stream.getvalue()


def report(*processes: ProcessFindings, width: int = 80, ascii: bool = False) -> str:
    return text(watch_findings(processes, 5), width, ascii)


def test_the_time_lost_and_its_causes_come_first() -> None:
    lines = report(stalling(), width=200).splitlines()
    assert lines[0].startswith("python train.py · 1 process · 100 ms · ")
    assert " % of the time of MainThread (thread 100) is waiting: " in lines[1]
    assert " % GPU work, " in lines[1]
    headings = ["Time lost by cause", "Slow calls", "Thread MainThread (100) · 100 ms", "Thread loader (101) · 100 ms"]
    places = [lines.index(heading) for heading in headings]
    assert places == sorted(places)
    causes = lines[places[0] : places[1]]
    assert any(line.startswith("GPU work ") for line in causes)
    assert any(line.startswith("pageable copy in loader (thread 101) ") for line in causes)
    # What helps.
    assert sum(line.startswith("  pageable copy: ") for line in causes) == 1
    assert "As code: `stallscope explain pageable-d2h-vs-launch`." in " ".join(" ".join(causes).split())
    calls = lines[places[1] + 1 : places[2]]
    assert calls[0].startswith("  at 0.001 s: cuStreamSynchronize in MainThread (thread 100) took 15.5 ms because of ")
    beside = "beside a pageable copy: cuMemcpyDtoHAsync_v2 of 256 MiB to pageable memory in loader"
    assert beside in " ".join(" ".join(calls).split())


def test_slow_calls_and_functions_are_in_the_full_report_alone() -> None:
    short = text(watch_findings([stalling()], 5), full=False).splitlines()
    assert "Slow calls" not in short
    assert not any(line.startswith("Thread ") for line in short)
    assert short[-1] == "The slow calls one by one, functions of each thread: --full."
    assert "Time lost by cause" in short
    assert not any("--full" in line for line in report(stalling()).splitlines())


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    assert max(map(len, report(stalling(), width=width).splitlines())) <= width


def test_in_ascii_nothing_else_is_printed() -> None:
    assert report(stalling(), ascii=True).isascii()


def test_names_that_the_program_chose_reach_no_terminal_raw() -> None:
    one = stalling(name=HOSTILE, other=HOSTILE).changed(name=HOSTILE, command=HOSTILE)
    both = report(one, one.changed(pid=2, state=ProcessState.CUPTI_FAILED, failed_function=HOSTILE, code=3))
    assert all(is_printable(line) for line in both.splitlines())


def test_a_program_without_a_slow_call_has_no_stall() -> None:
    lines = report(found(process(thread(fast_us=FAST), ended=100_000))).splitlines()
    assert lines[1] == "No stall: no finished call took 1.00 ms or longer."
    assert "Slow calls" not in lines


def test_a_call_that_never_returned_is_a_stall() -> None:
    hung = found(process(thread(in_flight=[call(LAUNCH, 0)], fast_us=FAST, name="hung")))
    assert "No stall" not in report(hung)
    assert "cuLaunchKernel in hung (thread 100) has not returned for 1.00 s." in report(hung, width=120)


@pytest.mark.parametrize("width", [80, 100])
def test_effects_of_aggressors_are_a_table(width: int) -> None:
    beside = beside_result()
    text = io.StringIO()
    show_watch(
        TextWriter(text, width=width),
        watch_findings([found(process(ended=10))], 0).changed(beside=beside),
        "python train.py",
    )
    lines = text.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    at = lines.index("Beside the program, step p50 without → with each aggressor:")
    assert [line.split() for line in lines[at + 1 : at + 4]] == [
        ["beside", "turns", "p50", "p99", "×", "95", "%"],
        ["spin", "6", "14.1", "→", "27.9", "ms", "15.0", "→", "29.6", "ms", "×1.98", "1.95–2.01"],
        ["h2d-pinned-large", "2", "14.1", "→", "14.2", "ms", "–", "–"],
    ]
    rest = " ".join(" ".join(lines[at + 4 :]).split())
    assert "spin: of its time, others' time-slices grew most: from 0 to 48 %." in rest
    assert "Beside h2d-pinned-large: not known (2 of at least 3 turns)." in rest
    assert "The SM clock was about the same in all turns (1980 MHz)." in rest
    assert "At least 38.2 GiB of the GPU's memory were free; aggressors end at 14.0 GiB." in rest


def test_a_refusal_of_aggressors_is_said() -> None:
    text = io.StringIO()
    problem = "No aggressor has run: NVML does not list the GPU of the program."
    beside = beside_result().changed(rows=(), on_ns=0, free_bytes=None, problem=problem)
    show_watch(
        TextWriter(text, width=100),
        watch_findings([found(process(ended=10))], 0).changed(beside=beside),
        "python train.py",
    )
    assert problem in text.getvalue()
    assert "without → with" not in text.getvalue()


def test_a_program_without_cuda_says_so() -> None:
    assert report().splitlines() == [
        "python train.py",
        "No process recorded a CUDA call while it was watched.",
    ]


@pytest.mark.parametrize("state", [state for state in ProcessState if state is not ProcessState.RECORDING])
def test_what_was_not_recorded_is_said(state: ProcessState) -> None:
    one = found(process(ended=10)).changed(state=state)
    lines = report(one, width=200).splitlines()
    assert lines[lines.index("Not recorded") + 1].startswith("  train (pid 100): ")


def test_a_long_command_is_cut() -> None:
    assert command_title(["sh", "-c", "exit 1"]) == "sh -c 'exit 1'"
    long = command_title(["python", "-c", "print(1)\n" * 1000])
    assert (len(long), long[-1], "\n" in long) == (100, "…", False)


def test_long_lists_are_cut_and_counted() -> None:
    many = [slow(f"cuMemcpy{number}", 2_000 * number, 2_000 * number + 1_500) for number in range(20)]
    shown = report(found(process(thread(calls=many, fast_us=FAST), ended=100_000)), width=120)
    assert "Slow calls (the slowest 10 of 20)" in shown
    assert "10 more functions, " in shown
    threads = [thread(number, fast_us=FAST, name=f"worker{number}") for number in range(1, 21)]
    assert "8 more threads made calls." in report(found(process(*threads, ended=100_000)))
