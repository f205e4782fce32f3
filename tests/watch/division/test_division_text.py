"""What bounds a program, in words, as a bar and as JSON."""

from __future__ import annotations

import io
import json

import pytest

from factories.documents import validate
from factories.watch_moments import findings
from stallprobes.watch.attribution.findings import CallInFlight, ProcessFindings, WatchFindings
from stallprobes.watch.cost import WatchCost
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.result import (
    AwaitedThread,
    GrowingLine,
    KernelTime,
    PhaseDivision,
    ProcessDivision,
    WaitShare,
)
from stallprobes.watch.division.steps import Step
from stallprobes.watch.division_text import (
    cpus_text,
    end_text,
    faults_text,
    figure_text,
    figures_text,
    interpreter_text,
    kernel_text,
    other_threads_text,
    parts_text,
    shown_sequences,
    start_up_text,
    step_text,
    undivided_text,
    verdict_text,
    verdict_texts,
    workers_text,
)
from stallprobes.watch.lines.places import PACKAGES
from stallprobes.watch.lines.result import InnerPlace, LineTime, LockHolder, ProgramLine, ProgramSequence
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame
from stallprobes.watch.reading.cpu_supply import CpuSupply, Workers
from stallprobes.watch.report import document
from stallscope.report.columns import display_width
from stallscope.report.division_bar import bar, legend
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch

SECOND = 1_000_000_000
EXACT = Figure(0.5, 0.5, 0.5)
PARTS = {Part.KERNELS: 3 * SECOND, Part.SUBMITTING: SECOND, Part.HOST: 5 * SECOND, Part.QUEUED: SECOND}


def sequence(**of: object) -> ProgramSequence:
    """A sequence of the main thread; ``of`` replaces fields."""
    parts = of.get("parts", PARTS)
    assert isinstance(parts, dict)
    fields = {
        "threads": (100,), "device": 0, "covered_ns": sum(parts.values()), "parts": PARTS,
        "host": Figure(0.92, 0.92, 0.92), "gpu": Figure(0.3, 0.3, 0.3), "price": Figure(0.08, 0.08, 0.08),
        "submitting": 0.1, "queue_full": 0.0, "alone": True, "recorded": 1.0, "engine_known": True, "late_ns": 0,
        "verdict": Bound.HOST,
    }  # fmt: skip
    return ProgramSequence(**(fields | of))  # type: ignore[arg-type]


def divided(*sequences: ProgramSequence, **of: object) -> WatchFindings:
    """The findings about a training that has ended, with another division."""
    found = findings(8, ended=True)
    fields = {"steady": True, "start_up_ns": 4 * SECOND, "start_up": {Part.LOADING: SECOND}, "other_threads": 0}
    division = ProcessDivision(**(fields | of))  # type: ignore[arg-type]
    return found.changed(processes=(found.processes[0].changed(division=division, sequences=sequences),))


def process_of(*sequences: ProgramSequence) -> ProcessFindings:
    return divided(*sequences).processes[0]


def report(found: WatchFindings, width: int = 80, ascii: bool = False) -> str:
    stream = io.StringIO()
    show_watch(TextWriter(stream, width=width, ascii=ascii), found, "python train.py")
    return stream.getvalue()


def test_time_off_the_cpu_is_said_where_the_host_has_much_of_it() -> None:
    off = Figure(0.4, 0.35, 0.45)
    said = " Between calls, the host is off the CPU for 40 % (35 to 45) of the time: input, locks or sleep."
    assert figures_text(sequence(off_cpu=off)).endswith(said)
    assert "off the CPU" not in figures_text(sequence())
    busy_gpu = sequence(covered_ns=2_000_000_000, operations=24_600)
    assert figures_text(busy_gpu).endswith(" 12 300 operations a second run on it.")
    assert "off the CPU" not in figures_text(sequence(off_cpu=Figure(0.05, 0.05, 0.05)))
    busy = {Part.KERNELS: 95 * SECOND, Part.HOST: 5 * SECOND}
    assert "off the CPU" not in figures_text(sequence(off_cpu=off, parts=busy))


@pytest.mark.parametrize(
    ("supply", "said"),
    [
        (CpuSupply(allowed=1, wanted=3.24), "It may use 1 CPU, and 3.2 of its threads want one."),
        (
            CpuSupply(allowed=8, wanted=1.0),
            "It may use 8 CPUs, and 1.0 of its threads want one; other processes use these CPUs too.",
        ),
        (
            CpuSupply(allowed=8, wanted=2.0, quota=1.5, throttled=0.4, stolen=0.11),
            "It may use 8 CPUs, and 2.0 of its threads want one; its quota (cgroup) of 1.5 CPUs was used up in 40 % of "
            "the periods; the hypervisor took 11 % of the machine's CPUs.",
        ),
    ],
)
def test_why_there_is_no_cpu_is_said_where_threads_are_ready(supply: CpuSupply, said: str) -> None:
    ready = sequence(off_cpu=Figure(0.5, 0.5, 0.5), ready=Figure(0.3, 0.3, 0.3))
    assert cpus_text(ready, process_of(ready).changed(cpus=supply)) == said
    assert cpus_text(ready, process_of(ready)) == ""
    assert cpus_text(sequence(), process_of(ready).changed(cpus=supply)) == ""


def test_page_faults_are_said_where_they_are_many() -> None:
    supply = CpuSupply(allowed=8, wanted=1.0, page_faults=5200.4, disk_faults=25.0)
    process = process_of(sequence()).changed(cpus=supply)
    disk = (
        "It had 25 page faults a second that read from a disk: memory is short, or the files that it maps are not in "
        "memory."
    )
    assert faults_text(process) == disk
    (row, *_), *_ = (thread.rows for thread in process.threads)
    managed = process.threads[0].changed(rows=(row.changed(function="cuMemAllocManaged"),))
    moves = (
        "It uses managed memory and had 5 200 page faults a second: each may wait for pages that move from the GPU, "
        "and its kernels may wait for their way back."
    )
    assert faults_text(process.changed(threads=(managed,))) == moves
    few = supply.changed(page_faults=150.0, disk_faults=2.0)
    assert faults_text(process.changed(threads=(managed,), cpus=few)) == ""
    assert faults_text(process_of(sequence())) == ""


def test_a_wait_for_pythons_lock_is_said_where_it_takes_time() -> None:
    said = "It waits for Python's global lock 46 % of the time: another thread has it."
    assert interpreter_text(sequence(interpreter=0.46)) == said
    places = [StackFrame(FrameKind.PYTHON, name, "/home/me/load.py", 9) for name in ("decode", "crop", "log")]
    holders = tuple(LockHolder(*each) for each in zip(places, (0.7, 0.25, 0.05), strict=True))
    assert interpreter_text(sequence(interpreter=0.46, lock_holders=holders)) == (
        f"{said[:-1]}, 70 % of that at load.py:9 in decode and 25 % of that at load.py:9 in crop."
    )
    alone = sequence(interpreter=0.46, lock_holders=(holders[0].changed(share=0.97),))
    assert interpreter_text(alone) == f"{said[:-1]}, at load.py:9 in decode."
    assert interpreter_text(sequence(interpreter=0.05)) == ""
    # Of a thread that waits for another one, for a lock of the program or for data.
    waits = sequence(verdict=Bound.THREAD, lock_holders=holders)
    assert interpreter_text(waits) == (
        "Another thread runs Python meanwhile, at load.py:9 in decode (70 %), at load.py:9 in crop (25 %)."
    )
    assert interpreter_text(waits.changed(verdict=Bound.HOST)) == ""
    # A lock of its own says who has it, so that what runs meanwhile says nothing more.
    held = waits.changed(own_lock=0.52, own_lock_holders=holders[:1])
    assert interpreter_text(held) == (
        "It waits for a lock of its own 52 % of the time: another thread has it, 70 % of that at load.py:9 in decode."
    )


@pytest.mark.parametrize(
    ("file", "awaited"),
    [
        ("/usr/lib/python3.12/threading.py", "another thread of its process"),
        ("/opt/conda/lib/python3.11/multiprocessing/connection.py", "another process"),
        ("/usr/lib/python3.13t/selectors.py", "a request or data from a socket"),
        ("/usr/lib/python3.12/site-packages/pool/threading.py", "input, a lock, a timer or a request"),
        ("/home/me/queue.py", "input, a lock, a timer or a request"),
    ],
)
def test_a_host_that_sleeps_in_a_module_of_python_waits_for_what_the_module_does(file: str, awaited: str) -> None:
    inner = (InnerPlace(place=StackFrame(FrameKind.PYTHON, "wait", file, 355), cost=0.5),)
    line = ProgramLine(
        place=StackFrame(FrameKind.PYTHON, "step", "/home/me/train.py", 45), stack=None, thread=1, samples=50,
        share=EXACT, cost=EXACT, between=LineTime(share=0.5, function="cuLaunchKernel"), inner=inner,
    )  # fmt: skip
    asleep = sequence(verdict=Bound.ASLEEP, lines=(line,))
    said = "MainThread is asleep: the GPU waits for the host, and the host for"
    assert verdict_text(asleep, process_of(asleep)) == f"{said} {awaited}."
    # Most of the time without GPU work passes elsewhere.
    less = asleep.changed(lines=(line.changed(inner=(inner[0].changed(cost=0.1),)),))
    assert verdict_text(less, process_of(less)) == f"{said} input, a lock, a timer or a request."


def test_a_host_that_sleeps_for_some_of_its_time_is_said() -> None:
    sleeps = sequence(
        verdict=Bound.HOST, second=Bound.ASLEEP, off_cpu=Figure(0.5, 0.45, 0.55), ready=Figure(0.1, 0.08, 0.12)
    )
    assert verdict_text(sleeps, process_of(sleeps)) == (
        "MainThread is host-bound: the GPU waits for the host. Its threads sleep 20 % of the time: for input, a lock "
        "or a time of their own."
    )
    unknown = sleeps.changed(off_cpu=None, ready=None)
    assert verdict_text(unknown, process_of(unknown)).endswith("Whether its threads compute or sleep is not known.")


def test_garbage_collection_is_said_with_what_makes_it_less() -> None:
    text = interpreter_text(sequence(collects=0.24))
    assert text == (
        "Python collects garbage 24 % of the time: after gc.freeze() it looks at no object that was made before, with "
        "larger thresholds (gc.set_threshold) it collects less often."
    )
    assert interpreter_text(sequence(collects=0.04)) == ""
    idle = sequence(gpu=Figure(0.6, 0.6, 0.6), verdict=Bound.HOST, collects=0.24)
    assert verdict_text(idle, process_of(idle)) == (
        "MainThread is host-bound: Python collects garbage while the GPU waits."
    )
    either = idle.changed(second=Bound.WAIT, may_wait=0.2)
    assert verdict_text(either, process_of(either)) == (
        "MainThread is host-bound: Python collects garbage while the GPU waits. It may wait for the GPU outside calls "
        "20 % of the time."
    )
    less = idle.changed(collects=0.1)
    assert verdict_text(less, process_of(less)) == "MainThread is host-bound: the GPU waits for the host."


def test_child_processes_are_named_where_it_waits_for_them() -> None:
    children = (
        Workers(name="pt_data_worker", most=4, busy=0.98),
        Workers(name="ptxas", most=1, busy=0.3),
        Workers(name="cat", most=1, busy=0.001),
    )
    waits = sequence(verdict=Bound.INPUT)
    assert workers_text(waits, process_of(waits).changed(children=children)) == (
        "Its child processes: pt_data_worker (4, the busiest on a CPU for 98 % of the time), ptxas (on a CPU for 30 % "
        "of the time)."
    )
    ends = sequence(verdict=Bound.CHILD)
    named = workers_text(ends, process_of(ends).changed(children=children))
    assert named == "Its child processes: pt_data_worker, ptxas."
    assert workers_text(sequence(), process_of(waits).changed(children=children)) == ""
    assert workers_text(waits, process_of(waits)) == ""


def test_other_threads_are_named_where_it_waits_for_one() -> None:
    others = (Workers(name="prefetch", most=2, busy=0.98), Workers(name="logger", most=1, busy=0.001))
    said = "Its other threads: prefetch (2, the busiest on a CPU for 98 % of the time)."
    for verdicts in ({"verdict": Bound.THREAD}, {"verdict": Bound.WAIT, "second": Bound.THREAD}):
        waits = sequence(**verdicts)
        assert workers_text(waits, process_of(waits).changed(others=others)) == said


def test_a_step_has_its_parts_in_time() -> None:
    step = Step(
        thread=100, function="cuMemcpyHtoDAsync_v2", bytes=12 << 20, ns=10_000_000, low_ns=9_500_000,
        high_ns=11_000_000, steps=40,
    )  # fmt: skip
    assert step_text(sequence(step=step)) == (
        "A step, from one cuMemcpyHtoDAsync_v2 of 12 MiB to the next, takes 10.0 ms (9.50 ms to 11.0 ms): host 5.00 "
        "ms, kernels 3.00 ms, submitting 1.00 ms, queued 1.00 ms."
    )
    assert step_text(sequence()) == ""
    assert "1 in 100" not in step_text(sequence(step=step.changed(slow_ns=15_000_000)))
    assert "to 11.0 ms), and 1 in 100 takes 70.0 ms or longer: host 5.00 ms" in step_text(
        sequence(step=step.changed(slow_ns=70_000_000))
    )


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": Figure(0.95, 0.95, 0.95)}, ": the GPU works nearly all the time."),
        (
            {"gpu": Figure(0.95, 0.95, 0.95), "parts": {Part.COPIES: 60, Part.KERNELS: 35, Part.HOST: 5}},
            ": the GPU works nearly all the time, most of it in copies.",
        ),
        ({"gpu": Figure(0.8, 0.8, 0.8), "host": Figure(0.6, 0.6, 0.6)}, ": its GPU work takes longer than the host's."),
        (
            {"waits": (WaitShare(function="cuMemFreeHost", calls=9, ns=9, share=1.0),)},
            ": calls that free memory wait for",
        ),
        ({"queue_full": 0.2}, ": its launches wait for room in the GPU's queue."),
        ({}, "MainThread is GPU-bound."),
        # The reason is that of the phase that the verdict is of.
        (
            {"phases": (PhaseDivision(verdict=Bound.GPU, gpu=Figure(0.95, 0.9, 1.0), times=((0, SECOND),)),)},
            ": the GPU works nearly all the time.",
        ),
    ],
)
def test_the_reason_of_a_gpu_bound_program_is_what_was_seen(changes: dict[str, object], reason: str) -> None:
    bound = sequence(verdict=Bound.GPU, **changes)
    assert reason in verdict_text(bound, process_of(bound))


def test_the_verdict_names_threads_reason_and_what_is_close_to_it() -> None:
    one = sequence()
    assert verdict_text(one, process_of(one)) == "MainThread is host-bound: the GPU waits for the host."
    both = sequence(threads=(100, 101), second=Bound.GPU)
    assert verdict_text(both, process_of(both)).startswith("MainThread (with 1 more thread) is host-bound: ")
    assert verdict_text(both, process_of(both)).endswith("It is GPU-bound too, or nearly.")
    second = sequence(device=1, threads=(7,))
    assert verdict_text(second, process_of(one, second)).startswith("thread 7 on GPU 1 is host-bound")
    found = process_of(sequence(), sequence(threads=(101,)))
    found = found.changed(threads=tuple(thread.changed(name="server") for thread in found.threads))
    assert verdict_text(sequence(threads=(101,)), found).startswith("server (thread 101) is host-bound: ")
    more = found.changed(sequences=(sequence(), sequence(threads=(101, 7))))
    assert verdict_text(sequence(threads=(101, 7)), more).startswith("server (thread 101, with 1 more thread) is ")
    unknown = sequence(parts={Part.HOST: 9, Part.UNKNOWN: 1}, verdict=Bound.UNKNOWN)
    assert verdict_text(unknown, process_of(unknown)) == (
        "What bounds MainThread is not known: 10 % of its time was not recorded."
    )
    late = sequence(late_ns=2 * SECOND, verdict=Bound.UNKNOWN)
    assert verdict_text(late, process_of(late)) == (
        "What bounds MainThread is not known: CUPTI returned the records of 20 % of its time too late, as it may while "
        "the GPU is never idle."
    )


def test_a_kernel_that_does_not_end_is_said_in_place_of_a_verdict() -> None:
    kernel = KernelTime(
        name="serve(int*)", share=1.0, count=1, mean_ns=8 * SECOND, deviation_ns=0, least_blocks=1, most_blocks=1,
        threads=32, registers=16,
    )  # fmt: skip
    busy = Figure(1.0, 0.97, 1.0)
    fields = {"verdict": Bound.UNKNOWN, "gpu": busy, "parts": {Part.KERNELS: 9 * SECOND}, "covered_ns": 9 * SECOND}
    polls = sequence(**fields, host=busy, kernels=(kernel,))
    assert verdict_text(polls, process_of(polls)) == (
        "What bounds MainThread is not known: serve runs nearly all the time, and no record says whether it works or "
        "waits."
    )
    assert sequence(**fields, host=busy, kernels=(kernel.changed(mean_ns=3 * SECOND, count=3),)).endless is None
    # A host that waits for the kernel is bound by it.
    assert sequence(**fields, host=Figure(0.1, 0.05, 0.15), kernels=(kernel,)).endless is None


def test_rates_are_those_of_all_time() -> None:
    slowed = sequence(operations=12_300, covered_ns=SECOND, pace=2.0)
    assert " 24 600 operations a second run on it." in figures_text(slowed)


@pytest.mark.parametrize(
    ("low", "recorded", "how"),
    [(0.2, 0.5, "for 50 s or longer"), (0.2, 0.01, "for 38 minutes or longer"), (0.0, 0.01, "longer")],
)
def test_what_is_not_known_says_for_how_long_to_watch(low: float, recorded: float, how: str) -> None:
    gpu = Figure(0.5, low, 1 - low)
    rough = sequence(host=gpu, gpu=gpu, recorded=recorded, verdict=Bound.UNKNOWN)
    assert verdict_text(rough, process_of(rough)) == (
        f"What bounds MainThread is not known: its work was recorded for {round(100 * recorded)} % of the time, which "
        f"is too little. Watch it {how}, or with --cost 100."
    )


def test_figures_have_intervals_where_not_all_of_the_time_was_recorded() -> None:
    assert [figure_text(one) for one in (EXACT, Figure(0.41, 0.38, 0.442))] == ["50 %", "41 % (38 to 44)"]
    assert figures_text(sequence()) == (
        "The GPU works for it 30 % of the time; 92 % of the time the host does not wait for the GPU. Its waits cost at "
        "most 8 % of the time."
    )
    waits = (
        WaitShare(function="cuStreamSynchronize", calls=100, ns=5, share=0.8),
        WaitShare(function="cuMemcpyDtoHAsync_v2", calls=9, ns=5, share=0.15),
        WaitShare(function="cuEventSynchronize", calls=9, ns=5, share=0.05),
    )
    assert figures_text(sequence(waits=waits)).endswith(
        "at most 8 % of the time, 80 % of that in cuStreamSynchronize and 15 % of that in cuMemcpyDtoHAsync_v2."
    )
    wide = sequence(waits=waits, price=Figure(0.001, 0.0, 0.9))
    assert figures_text(wide).endswith("Its waits cost a part that is not known (0 to 90 %) of the time.")
    shared = sequence(engine_known=False, price=Figure(0.0, 0.0, 0.001))
    assert figures_text(shared).startswith("The GPU works for it or for others 30 %")
    assert figures_text(shared).endswith("Its waits cost less than 1 % of the time.")
    wide = shared.changed(price=Figure(0.001, 0.0, 0.14))
    assert "Its waits cost between 0 and 14 % of the time" in figures_text(wide)
    assert "Its waits cost at most 2 % (0 to 14) of the time" in figures_text(
        wide.changed(price=Figure(0.02, 0.0, 0.14))
    )


def test_start_up_and_end_are_a_paragraph_of_their_own() -> None:
    found = process_of(sequence()).division
    assert found is not None
    assert start_up_text(found, True) == "Start-up took 4.00 s, of it inside calls: loading 1.00 s."
    assert start_up_text(found.changed(start_up={}), True) == "Start-up took 4.00 s."
    hardly = {Part.LOADING: 5 * SECOND // 100, Part.FREE: 970}
    assert start_up_text(found.changed(start_up=hardly), True) == (
        "Start-up took 4.00 s, of it inside calls: loading 50.0 ms."
    )
    assert start_up_text(found.changed(start_up_ns=0), True) == ""
    assert start_up_text(found.changed(steady=False), True).startswith("There was no steady state: ")
    assert start_up_text(found.changed(steady=False), False).startswith("The start-up is not over")
    assert end_text(sequence()) == ""
    ended = sequence(parts={**PARTS, Part.END: SECOND})
    assert end_text(ended) == "After its last operation on the GPU 1.00 s passed."
    assert [part for part, _ in parts_text(ended)] == list(PARTS)
    assert ended.share(Part.KERNELS) == sequence().share(Part.KERNELS) == 0.3


def test_threads_with_nothing_to_say_share_a_line() -> None:
    busy, idle = sequence(), sequence(threads=(200,), gpu=Figure(0.0001, 0.0001, 0.0001))
    (found,) = divided(busy, idle, other_threads=2).processes
    shown, others = shown_sequences(found)
    assert (shown, others) == ((busy,), 3)
    assert other_threads_text(others) == "3 more threads had hardly any work on the GPU."
    assert other_threads_text(0) == ""
    # One that is alone is shown, however little it does.
    assert shown_sequences(found.changed(sequences=(idle,)))[0] == (idle,)


def test_a_thread_that_a_lock_blocks_has_a_line_though_the_gpu_hardly_works_for_it() -> None:
    little = Figure(0.0001, 0.0001, 0.0001)
    busy = sequence()
    blocked = [
        sequence(threads=(number,), gpu=little, parts={Part.LOCK: 9 * SECOND, Part.HOST: SECOND})
        for number in (200, 300, 400)
    ]
    short = sequence(threads=(500,), gpu=little, parts={Part.LOCK: SECOND // 10, Part.HOST: SECOND // 10})
    found = process_of(short, *blocked, busy)
    # Many threads that are blocked alike are no more worth reading than two.
    assert shown_sequences(found) == ((*blocked[:2], busy), 2)


def test_a_line_that_grows_is_said_without_a_step() -> None:
    place = StackFrame(kind=FrameKind.PYTHON, function="watch_layer", file="hooks.py", line=10)
    found = sequence(growing=GrowingLine(place, (0.02, 0.3, 0.7)))
    assert step_text(found) == (
        "hooks.py:10 in watch_layer takes ever more of the time: 2 % at first, 30 % later, 70 % at last."
    )


def test_a_thread_that_waits_for_the_work_of_others_has_a_line_which_says_so() -> None:
    busy, little = sequence(threads=(200,)), Figure(0.0001, 0.0001, 0.0001)
    tracker = sequence(
        gpu=little, parts={Part.OTHER_WORK: 9 * SECOND, Part.HOST: SECOND}, verdict=Bound.WAIT,
        price=Figure(0.9, 0.9, 0.9), awaited=(AwaitedThread(200, 0.9),),
    )  # fmt: skip
    found = process_of(busy, tracker)
    assert shown_sequences(found)[0] == (busy, tracker)
    assert verdict_texts(tracker, found)[0].endswith(": the host waits for the GPU, which works for other threads.")


def test_gpus_in_turn_are_named() -> None:
    one, other = (sequence(device=device, verdict=Bound.TURNS) for device in (0, 3))
    found = process_of(one, other)
    assert verdict_texts(one, found)[0].endswith("on GPU 0 is bound by GPUs in turn: it waits while GPU 3 works.")


@pytest.mark.parametrize("width", [1, 7, 20, 80, 160])
def test_a_bar_has_its_width_and_each_part_its_share(width: int) -> None:
    one = sequence()
    cells = {text[0]: len(text) for text, _ in bar(one, width)}
    assert sum(cells.values()) == width
    for part, ns in PARTS.items():
        assert abs(cells.get(part.traits.mark, 0) - width * ns / one.steady_ns) < 1
    lines = legend(one, max(width, 20))
    assert all(sum(display_width(text) for text, _ in line) <= max(width, 20) for line in lines)
    words = "".join(text for line in lines for text, _ in line)
    assert [f"{part.word} " in words for part in PARTS] == [True] * 4
    assert bar(sequence(parts={}), width) == []


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_the_report_begins_with_the_verdict_and_its_bar(width: int) -> None:
    lines = report(divided(sequence(), sequence(threads=(101,), verdict=Bound.LOCK)), width).splitlines()
    assert max(map(display_width, lines)) <= width
    assert lines[0].startswith("python train.py · 1 process")
    text = " ".join(" ".join(lines).split())
    places = [text.index(part) for part in ("MainThread is host-bound", "loader is lock-bound", "Start-up took 4.00 s")]
    assert places == sorted(places)
    assert places[-1] < text.index("is waiting: ")
    assert lines[lines.index(next(line for line in lines if "kernels 30 %" in line)) - 1].count("█") > 0


def test_the_bar_is_drawn_in_ascii_too() -> None:
    text = report(divided(sequence()), ascii=True)
    assert text.isascii()
    assert "# kernels 30 %" in text
    assert "?" not in text.splitlines()[2]


def test_the_document_has_the_division() -> None:
    wait = WaitShare(function="cuStreamSynchronize", calls=3, ns=5000, share=1.0)
    ended = sequence(parts={**PARTS, Part.END: SECOND}, second=Bound.WAIT, waits=(wait,))
    made = json.loads(json.dumps(document(divided(ended))))
    validate(made, "stallscope.watch/3")
    division = made["processes"][0]["division"]
    assert division == {
        "steady": True, "start_up_ns": 4 * SECOND, "start_up": {"loading": SECOND}, "other_threads": 0
    }  # fmt: skip
    (one,) = made["processes"][0]["sequences"]
    assert sum(one["parts"].values()) == one["covered_ns"] == 11 * SECOND
    assert sum(one["shares"].values()) == pytest.approx(1)
    assert (one["verdict"], one["second"], one["gpu"]["share"]) == ("host", "wait", 0.3)
    assert one["waits"] == [{"function": "cuStreamSynchronize", "calls": 3, "ns": 5000, "share": 1.0}]
    assert one["sentence"].startswith("MainThread is host-bound")
    nothing = document(divided().changed(processes=(process_of().changed(division=None),)))
    assert nothing["processes"][0]["division"] is None


def test_a_training_is_divided_from_its_readings() -> None:
    (process,) = findings(8, ended=True).processes
    (one,) = process.sequences
    # Each step of 100 ms has a kernel of 5.4 ms and a copy of 0.09 ms.
    assert one.gpu.share == pytest.approx(0.0549, abs=0.001)
    assert one.verdict is Bound.HOST
    assert sum(one.parts.values()) == one.covered_ns == 7 * SECOND


HANGS = "No call of MainThread has returned for 12.0 s: it is in cuStreamSynchronize"


@pytest.mark.parametrize(
    ("ages_s", "ended", "said"),
    [
        (
            (12.0,),
            False,
            "No call of MainThread has returned for 12.0 s: it is in cuStreamSynchronize. Before, MainThread",
        ),
        ((9.0,), False, "MainThread is host-bound"),
        ((12.0,), True, "MainThread is host-bound"),
        ((), False, "MainThread is host-bound"),
        # The other thread makes calls.
        ((12.0, 0.1), False, "MainThread (with 1 more thread) is host-bound"),
    ],
)
def test_a_call_that_does_not_return_is_said_first(ages_s: tuple[float, ...], ended: bool, said: str) -> None:
    one = sequence(threads=(100, 101)[: max(len(ages_s), 1)])
    found = process_of(one)
    (thread, *_) = found.threads
    calls = [
        CallInFlight(
            function="cuStreamSynchronize", thread=100 + at, thread_name="MainThread", begin_ns=0, stream=None,
            age_ns=round(age * SECOND), bytes=None, source=None, target=None, context=1, correlation=1, depth=0,
        )
        for at, age in enumerate(ages_s)
    ]  # fmt: skip
    threads = tuple(thread.changed(id=call.thread, name="MainThread", in_flight=(call,)) for call in calls)
    alone = thread.changed(id=100, name="MainThread", in_flight=())
    found = found.changed(ended=ended, threads=threads or (alone,))
    assert verdict_text(one, found).startswith(said)


def test_where_spinning_and_computing_look_alike_every_sentence_names_both() -> None:
    either = sequence(second=Bound.WAIT, may_wait=0.45)
    texts = verdict_texts(either, process_of(either))
    assert texts[0] == (
        "MainThread is host-bound or wait-bound: 45 % of the time it computes, or waits for the GPU outside calls; "
        "its lines show which."
    )
    assert all(text.startswith("MainThread is host-bound or wait-bound") for text in texts)
    assert [len(text) for text in texts] == sorted(map(len, texts), reverse=True)


def kernel(name: str = "void gemm<float>(float*)", share: float = 0.5, **of: object) -> KernelTime:
    fields = {"count": 5000, "mean_ns": 33_200, "deviation_ns": 410, "least_blocks": 64, "most_blocks": 64}
    return KernelTime(name=name, share=share, **(fields | of))  # type: ignore[arg-type]


def test_kernels_are_listed_with_their_durations_and_blocks() -> None:
    bound = sequence()
    assert kernel_text(kernel(), bound) == "50 % gemm: 33.2 µs each (± 0.41 µs), 500 a second, 64 blocks."
    assert kernel_text(kernel(least_blocks=1, most_blocks=4096), bound).endswith("1 to 4 096 blocks.")
    assert kernel_text(kernel(least_blocks=1, most_blocks=1), bound).endswith(", 1 block.")
    unknown = kernel(name="", least_blocks=0, most_blocks=0, count=2)
    assert kernel_text(unknown, bound) == "50 % kernels without a name: 33.2 µs each (± 0.41 µs), 0.20 a second."
    assert kernel_text(kernel(), bound, whole=True).startswith("50 % void gemm<float>(float*): ")
    shaped = kernel(threads=128, registers=90)
    assert kernel_text(shaped, bound, whole=True).endswith("64 blocks, 128 threads in each with 90 registers.")
    small = shaped.changed(fills=0.0303, waves=0.02)
    assert kernel_text(small, bound).endswith("64 blocks on 3 % of the multiprocessors.")
    assert "64 blocks in 1.20 waves, 128" in kernel_text(shaped.changed(fills=1.0, waves=1.2), bound, whole=True)
    nearly = kernel_text(shaped.changed(fills=1.0, waves=0.97), bound, whole=True)
    assert "64 blocks on all multiprocessors, 97 % of a wave, 128" in nearly
    place = StackFrame(FrameKind.PYTHON, "step", "/home/me/train.py", 42)
    launched = kernel(place=place, place_share=1.0)
    assert kernel_text(launched, bound).endswith("64 blocks, launched at train.py:42 in step.")
    assert kernel_text(launched.changed(place=PACKAGES), bound).endswith(", launched in the backward pass.")
    assert kernel_text(shaped.changed(registers=0), bound, whole=True).endswith("64 blocks, 128 threads in each.")
    assert kernel_text(launched.changed(place_share=0.7), bound).endswith(", mostly launched at train.py:42 in step.")


@pytest.mark.parametrize(
    ("verdict", "full", "listed"), [(Bound.GPU, False, 5), (Bound.HOST, False, 3), (Bound.HOST, True, 8)]
)
def test_the_report_lists_the_kernels_with_most_time(verdict: Bound, full: bool, listed: int) -> None:
    kernels = tuple(kernel(f"k{number}", 0.125) for number in range(8))
    out = io.StringIO()
    show_watch(TextWriter(out, width=100), divided(sequence(verdict=verdict, kernels=kernels)), "train.py", full)
    lines = out.getvalue().splitlines()
    assert sum(" each (±" in line for line in lines) == listed
    # Where kernels hardly take time, they are in the long report alone.
    few = sequence(verdict=verdict, kernels=kernels, parts={Part.KERNELS: SECOND, Part.HOST: 9 * SECOND})
    out = io.StringIO()
    show_watch(TextWriter(out, width=100), divided(few), "train.py", full)
    assert (" each (±" in out.getvalue()) is full


def test_work_that_could_not_be_divided_is_said() -> None:
    (process,) = findings(8, ended=True).processes
    (thread, *_) = process.threads
    undivided = process.changed(division=None, sequences=(ProgramSequence(threads=(thread.id,)),))
    launches = thread.changed(rows=(thread.rows[0].changed(function="cuLaunchKernel"),))
    short = f"What bounds {thread.name} is not known"
    assert undivided_text(undivided.changed(threads=(launches,), cost=None)) == (
        f"{short}: no work of the GPU was recorded."
    )
    cost = WatchCost(low=0.0, high=0.1, compared=0, recorded=0.06, followed=1.0, budget=0.05)
    assert undivided_text(undivided.changed(threads=(launches,), cost=cost)) == (
        f"{short}: its work was recorded for 6 % of the time, which is too little. Watch it longer, or with --cost 100."
    )
    # Where all of the time was recorded, more of it is no advice.
    assert undivided_text(undivided.changed(threads=(launches,), cost=cost.changed(recorded=1.0))) == (
        f"{short}: no work of the GPU was recorded."
    )
    # A process that only asks for something has nothing that could be bound.
    asks = thread.changed(rows=(thread.rows[0].changed(function="cuMemGetInfo_v2"),))
    assert undivided_text(undivided.changed(threads=(asks,), cost=cost)) == ""
    assert undivided_text(process_of(sequence())) == ""
