"""Ranks that are watched together: which one waits for which in communication, and what makes that one late.

The ranks are simulated, and their files written as the injected library would: the truth is the program that they run.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from factories.documents import validate
from factories.rank_files import FIRST_PID, WatchedRanks, torchrun
from factories.rank_programs import ALL_GATHER, MS, SYNC_ALL, US, Action, Call, Host, Kernel, Reduce, Sync, run_ranks
from stallprobes.watch import analysis
from stallprobes.watch.analysis import watch_findings
from stallprobes.watch.attribution.findings import ProcessFindings, WatchFindings
from stallprobes.watch.division.divider import ProcessDivider
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division_text import figures_text, ranks_text, verdict_text
from stallprobes.watch.lines.result import ProgramSequence
from stallprobes.watch.rank_text import ranks_texts
from stallprobes.watch.ranks.result import Partners, SequenceRanks
from stallprobes.watch.reading.folder import create_folder
from stallprobes.watch.report import document
from stallprobes.watch.sentences import cause_text
from stallscope.report.text import TextWriter
from stallscope.report.watch_text import show_watch

SLOW_LINE, SLOW_KERNEL = 31, "_Z4slowPf"
HOST_SENTENCE = "rank 0 waits in NCCL for rank 1, which is host-bound before train.py:31 in step."
Program = Callable[[int, int], Sequence[Action]]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An empty private folder."""
    return create_folder(tmp_path)


def varied(ns: int, share: float = 0.1) -> Callable[[], int]:
    """About so many nanoseconds, each time others."""
    random = np.random.default_rng(5)
    return lambda: max(round(ns * (1 + share * random.normal())), 1000)


def steps(slow: int | None = None, by: str = "host", turns: bool = False) -> Program:
    """Steps with one collective, which all wait for; the ``slow`` rank is so by its host or its GPU.

    ``turns``: each rank is slow in its turn.
    """
    host = varied(MS)

    def program(rank: int, step: int) -> Sequence[Action]:
        is_slow = rank == (step % 2 if turns else slow)
        actions: list[Action] = [Host(host(), 30)]
        if is_slow and by == "host":
            actions.append(Host(5 * MS, SLOW_LINE))
        actions.append(Kernel(2 * MS))
        if is_slow and by == "gpu":
            actions.append(Kernel(3 * MS, SLOW_KERNEL))
        if is_slow and by == "allocation":
            actions.append(Call(4 * MS, line=SLOW_LINE))
        return [*actions, Kernel(100 * US), Reduce(MS), Sync()]

    return program


def buckets(slow: int | None = None, by: str = "host") -> Program:
    """A backward pass beside whose kernels gradients are reduced, in buckets; what follows needs the last one."""
    host = varied(200 * US)

    def program(rank: int, step: int) -> Sequence[Action]:
        extra = 500 * US if rank == slow and by == "gpu" else 0
        actions: list[Action] = [Host(host(), 30), Kernel(3 * MS)]
        if rank == slow and by == "host":
            actions.insert(0, Host(3 * MS, SLOW_LINE))
        for bucket in range(6):
            actions += [Kernel(MS + extra, "_Z8backwardv"), Reduce(300 * US, waited=bucket == 5)]
        return [*actions, Kernel(MS, "_Z9optimizerv"), Sync()]

    return program


def sequence_of(process: ProcessFindings) -> ProgramSequence:
    (found,) = process.sequences
    return found


def ranks_of(process: ProcessFindings) -> SequenceRanks:
    (found,) = (sequence.ranks for sequence in process.sequences if sequence.ranks is not None)
    return found


def by_rank(found: WatchFindings) -> list[ProcessFindings]:
    assert found.problems == ()
    return sorted(found.processes, key=lambda process: process.pid)


def share(process: ProcessFindings, part: Part) -> float:
    return sequence_of(process).share(part)


@pytest.mark.parametrize(("most", "least", "highest"), [(900, 0.3, 0.6), (100, 0.12, 0.2)])
def test_of_ranks_that_make_many_calls_the_same_parts_are_divided(
    folder: Path, monkeypatch: pytest.MonkeyPatch, most: int, least: float, highest: float
) -> None:
    monkeypatch.setattr(analysis, "ProcessDivider", partial(ProcessDivider, most_events=most))
    runs = run_ranks(steps(1), steps=2600)
    first, second = by_rank(
        found := WatchedRanks(folder, runs, devices=(0, 1)).found(polls=np.arange(1, 24, 1.1).tolist())
    )
    assert ranks_texts(found.processes) == [HOST_SENTENCE]
    for process in (first, second):
        assert least < sequence_of(process).recorded < highest
        assert 0.9 * ranks_of(process).collectives < ranks_of(process).matched
    assert share(first, Part.RANK_WAIT) == pytest.approx(5 / 9.15, abs=0.02)
    assert share(second, Part.RANK_WAIT) == 0
    assert sequence_of(first).verdict is Bound.COMMUNICATION


def test_collectives_that_come_seldom_are_matched_across_the_parts_that_are_divided(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(analysis, "ProcessDivider", partial(ProcessDivider, most_events=1))

    def program(rank: int, _: int) -> Sequence[Action]:
        return [Host((200 + 100 * rank) * MS, SLOW_LINE), Kernel(2 * MS), Reduce(MS), Sync()]

    runs = run_ranks(program, steps=200)
    first, _ = by_rank(found := WatchedRanks(folder, runs, devices=(0, 1)).found(polls=np.arange(1, 60, 1.1).tolist()))
    assert ranks_texts(found.processes) == [HOST_SENTENCE]
    assert sequence_of(first).recorded < 0.2
    # Of a step of 303 ms, 100 ms.
    assert share(first, Part.RANK_WAIT) == pytest.approx(100 / 303, abs=0.05)


def test_a_rank_that_is_slow_by_its_host_is_what_the_other_one_waits_for(folder: Path) -> None:
    first, second = by_rank(found := WatchedRanks(folder, run_ranks(steps(1)), devices=(0, 1)).found())
    assert ranks_texts(found.processes) == [HOST_SENTENCE]
    # Of a step of 9.1 ms, 5 ms.
    assert share(first, Part.RANK_WAIT) == pytest.approx(5 / 9.15, abs=0.02)
    assert share(first, Part.COMMUNICATION) == pytest.approx(1 / 9.15, abs=0.01)
    assert share(second, Part.RANK_WAIT) == 0
    assert sum(sequence_of(first).parts.values()) == sequence_of(first).covered_ns
    assert sequence_of(first).verdict is Bound.COMMUNICATION
    clause = HOST_SENTENCE.removeprefix("rank 0 ")
    assert verdict_text(sequence_of(first), first).startswith(f"MainThread is communication-bound: it {clause}")
    assert "(communication 11 %, waiting for ranks 55 %)" in figures_text(sequence_of(first))
    (wait,) = ranks_of(first).waits
    assert (wait.name, wait.pid, wait.device, wait.sure, wait.blamed) == ("rank 1", FIRST_PID + 1, 1, True, True)
    assert wait.delay is not None
    assert (wait.delay.bound, wait.delay.place and wait.delay.place.line) == (Bound.HOST, SLOW_LINE)
    assert ranks_of(second).waits == ()
    assert (first.rank, second.rank) != (None, None)


@pytest.mark.parametrize(
    ("by", "clause"),
    [
        ("gpu", "which is GPU-bound in slow"),
        ("allocation", "which is allocation-bound at train.py:31 in step"),
    ],
)
def test_what_makes_a_rank_late_is_what_it_does_for_longer(folder: Path, by: str, clause: str) -> None:
    found = WatchedRanks(folder, run_ranks(steps(1, by), steps=700)).found()
    assert ranks_texts(found.processes) == [f"rank 0 waits in NCCL for rank 1, {clause}."]


@pytest.mark.parametrize("program", [steps(), buckets()], ids=["one collective", "buckets"])
def test_nobody_is_blamed_among_equal_ranks(folder: Path, program: Program) -> None:
    found = WatchedRanks(folder, run_ranks(program)).found()
    assert not any("NCCL" in text for text in ranks_texts(found.processes))
    for process in by_rank(found):
        ranks = ranks_of(process)
        assert ranks.partners is Partners.WATCHED
        assert ranks.matched >= 0.98 * ranks.collectives > 0
        assert not any(wait.blamed for wait in ranks.waits)
        assert share(process, Part.RANK_WAIT) < 0.03
        assert ranks_text(sequence_of(process), process) == ""


def test_ranks_that_are_late_in_turn_are_not_blamed(folder: Path) -> None:
    found = WatchedRanks(folder, run_ranks(steps(turns=True))).found()
    assert not any("NCCL" in text for text in ranks_texts(found.processes))
    for process in by_rank(found):
        assert share(process, Part.RANK_WAIT) > 0.2
        assert "it waits in NCCL for ranks that are late in turn" in verdict_text(sequence_of(process), process)


def test_communication_beside_other_kernels_is_no_bound(folder: Path) -> None:
    for process in by_rank(WatchedRanks(folder, run_ranks(buckets())).found()):
        # 1.8 ms of a step of 10.3 ms communicate, of that 0.3 ms alone.
        assert share(process, Part.COMMUNICATION) == pytest.approx(0.03, abs=0.01)
        assert sequence_of(process).verdict is Bound.GPU


@pytest.mark.parametrize(
    ("by", "clause"),
    [("host", "which is host-bound before train.py:31 in step"), ("gpu", "which is GPU-bound in backward")],
)
def test_a_delay_is_found_also_where_other_kernels_hide_a_part_of_it(folder: Path, by: str, clause: str) -> None:
    """The delay of one step's begin shows as kernels that come later in front of each bucket."""
    found = WatchedRanks(folder, run_ranks(buckets(1, by))).found()
    assert ranks_texts(found.processes) == [f"rank 0 waits in NCCL for rank 1, {clause}."]
    first = by_rank(found)[0]
    assert 0.1 < share(first, Part.RANK_WAIT) < 3.2 / 13.3
    text = ranks_text(sequence_of(first), first)
    assert text.startswith("It waits in NCCL 1")
    assert text.endswith(f"of the time for rank 1, {clause}.")


def test_the_one_late_rank_of_four_is_named_by_all_others(folder: Path) -> None:
    found = WatchedRanks(folder, run_ranks(steps(2), ranks=4)).found()
    assert ranks_texts(found.processes) == [
        "rank 0, rank 1 and rank 3 wait in NCCL for rank 2, which is host-bound before train.py:31 in step."
    ]
    assert [share(process, Part.RANK_WAIT) > 0.5 for process in by_rank(found)] == [True, True, False, True]


def test_a_rank_whose_partner_is_not_watched_says_so(folder: Path) -> None:
    run = run_ranks(steps(1))[0]
    (process,) = WatchedRanks(folder, [run], environments={0: torchrun(0, 2)}).found().processes
    assert ranks_of(process).partners is Partners.NONE
    assert (ranks_of(process).waiting, ranks_of(process).waits) == (None, ())
    # What of it is waiting is not known.
    assert share(process, Part.RANK_WAIT) == 0
    assert share(process, Part.COMMUNICATION) > 0.6
    assert sequence_of(process).verdict is Bound.COMMUNICATION
    assert ranks_text(sequence_of(process), process) == (
        "Which rank waits for which in NCCL is not known: no other process that is watched uses NCCL."
    )


def test_a_job_with_ranks_that_are_not_watched_says_so(folder: Path) -> None:
    runs = [run for run in run_ranks(steps(2), ranks=4) if run.number in (0, 2)]
    environments = {number: torchrun(number, 4) for number in (0, 2)}
    found = WatchedRanks(folder, runs, environments=environments).found()
    first = by_rank(found)[0]
    assert ranks_texts(found.processes)[0].startswith("rank 0 waits in NCCL for rank 2, which is host-bound")
    assert ranks_of(first).partners is Partners.SOME
    assert ranks_text(sequence_of(first), first) == (
        "Not all of 4 ranks are watched: it may wait in NCCL for one that is not."
    )


def windows_of(phase: float, until: float) -> list[tuple[float, float, bool]]:
    """Windows with records in 42 % of the time, of another ``phase`` in each process."""
    found = [(0.0, 0.5 + phase, True)]
    while found[-1][1] < until:
        begin, on = found[-1][1], not found[-1][2]
        found.append((begin, begin + (0.25 if on else 0.35), on))
    return found


def test_collectives_are_matched_across_windows_without_records(folder: Path) -> None:
    windows = {number: windows_of(0.17 * number, 15.0) for number in range(2)}
    runs = [
        run.without(*((begin, end) for begin, end, on in windows[run.number] if not on))
        for run in run_ranks(steps(1), steps=1300)
    ]
    first, second = by_rank(found := WatchedRanks(folder, runs, windows=windows).found())
    assert ranks_texts(found.processes) == [HOST_SENTENCE]
    ranks = ranks_of(first)
    # A third of the kernels that are known are so of both.
    assert 0.2 < ranks.matched / ranks.collectives < 0.6
    assert ranks.waiting is not None
    assert ranks.waiting.low < ranks.waiting.high
    assert share(first, Part.RANK_WAIT) == pytest.approx(5 / 9.15, abs=0.03)
    assert share(second, Part.RANK_WAIT) == 0


def test_ranks_that_are_attached_one_after_the_other_are_matched_from_then_on(folder: Path) -> None:
    runs = run_ranks(steps(2), ranks=4, steps=900)
    runs = [run.since({1: 2.0, 2: 1.1, 3: 0.5}[run.number]) if run.number else run for run in runs]
    found = WatchedRanks(folder, runs, late=(1, 2, 3)).found()
    assert ranks_texts(found.processes) == [
        "rank 0, rank 1 and rank 3 wait in NCCL for rank 2, which is host-bound before train.py:31 in step."
    ]


def test_a_rank_may_communicate_with_others_too(folder: Path) -> None:
    """Rank 0 has three collectives with ranks that are not watched for each one with rank 1."""

    def program(rank: int, step: int) -> Sequence[Action]:
        of_others = [Reduce(50 * US, "others", ALL_GATHER) for _ in range(3)] if rank == 0 else []
        late = [Host(4 * MS, SLOW_LINE)] if rank == 1 else []
        return [Host(MS, 30), *late, Kernel(MS), *of_others, Reduce(MS), Sync()]

    found = WatchedRanks(folder, run_ranks(program, communicators={"others": (0,)})).found()
    assert ranks_texts(found.processes) == [HOST_SENTENCE]
    first, second = by_rank(found)
    assert ranks_of(first).collectives == pytest.approx(4 * ranks_of(second).collectives, rel=0.05)
    assert ranks_of(first).matched == pytest.approx(ranks_of(second).matched, rel=0.05)


def test_each_communicator_has_its_own_rounds(folder: Path) -> None:
    """Two pairs of ranks; rank 1 is slow, and so delays rank 0, and the other pair at each step's end."""
    layers = varied(300 * US, 0.05)

    def program(rank: int, step: int) -> Sequence[Action]:
        pair, across = ("tensor01" if rank < 2 else "tensor23"), ("data02" if rank % 2 == 0 else "data13")
        forward: list[Action] = []
        for _ in range(4):
            slow = 700 * US if rank == 1 else 0
            forward += [Kernel(layers() + slow, "_Z7forwardv"), Reduce(100 * US, pair, ALL_GATHER, line=50)]
        return [Host(500 * US, 30), *forward, Kernel(500 * US), Reduce(MS, across, line=60), Sync()]

    communicators = {"tensor01": (0, 1), "tensor23": (2, 3), "data02": (0, 2), "data13": (1, 3)}
    found = WatchedRanks(folder, run_ranks(program, ranks=4, steps=500, communicators=communicators)).found()
    ranks = by_rank(found)
    assert [share(process, Part.RANK_WAIT) > 0.3 for process in ranks] == [True, False, True, True]
    blamed = [ranks_of(process).blamed for process in ranks]
    assert blamed[1] is None
    assert blamed[0] is not None
    assert blamed[0].name == "rank 1"
    assert blamed[0].delay is not None
    assert (blamed[0].delay.bound, blamed[0].delay.kernel) == (Bound.GPU, "forward")
    # The other pair waits for both of the slow one.
    for wait in (blamed[2], blamed[3]):
        assert wait is not None
        assert wait.name in ("rank 0", "rank 1")


def test_processes_that_do_not_communicate_are_no_ranks(folder: Path) -> None:
    """A data loader has its rank's environment, and may use CUDA."""

    def program(rank: int, step: int) -> Sequence[Action]:
        if rank == 2:
            return [Host(MS, 70), Kernel(500 * US), Sync()]
        return [Host(MS, 30), *([Host(4 * MS, SLOW_LINE)] if rank else []), Kernel(MS), Reduce(MS), Sync()]

    runs = run_ranks(program, ranks=3, communicators={"world": (0, 1)})
    environments = {0: torchrun(0, 2), 1: torchrun(1, 2), 2: torchrun(0, 2)}
    found = WatchedRanks(folder, runs, environments=environments).found()
    assert ranks_texts(found.processes) == [HOST_SENTENCE]
    loader = by_rank(found)[2]
    assert (loader.rank, [sequence.ranks for sequence in loader.sequences]) == (None, [None])
    assert [process.rank and process.rank.size for process in by_rank(found)] == [2, 2, None]


def test_jobs_beside_each_other_are_not_matched(folder: Path) -> None:
    """Each of two ranks communicates with one that is not watched."""

    def program(rank: int, step: int) -> Sequence[Action]:
        return [Host(MS + 37 * US * rank, 30), Kernel(MS), Reduce(MS, f"job{rank}"), Sync()]

    found = WatchedRanks(folder, run_ranks(program, communicators={"job0": (0,), "job1": (1,)})).found()
    assert not any("NCCL" in text for text in ranks_texts(found.processes))
    for process in by_rank(found):
        ranks = ranks_of(process)
        assert (ranks.partners, ranks.matched, ranks.waits, ranks.waiting) == (Partners.UNMATCHED, 0, (), None)
        assert ranks_text(sequence_of(process), process) == (
            "Which rank waits for which in NCCL is not known: its collectives could not be matched with those of other "
            "processes."
        )


def test_collectives_of_which_several_matches_are_possible_are_not_matched(folder: Path) -> None:
    """One follows the other at once, all of one length: nothing says how far the clocks are apart."""

    def program(rank: int, step: int) -> Sequence[Action]:
        actions: list[Action] = [each for _ in range(20) for each in (Kernel(50 * US), Reduce(200 * US))]
        return [*actions, Sync()] if step % 40 == 39 else actions

    for process in by_rank(WatchedRanks(folder, run_ranks(program, steps=200)).found()):
        assert (ranks_of(process).partners, ranks_of(process).matched) == (Partners.UNMATCHED, 0)


@pytest.mark.parametrize("offset_us", [-600, -30, 30, 600])
def test_the_error_of_the_clocks_makes_nobody_late(folder: Path, offset_us: int) -> None:
    found = WatchedRanks(folder, run_ranks(steps(), offsets_ns=(0, offset_us * US))).found()
    assert not any("NCCL" in text for text in ranks_texts(found.processes))
    for process in by_rank(found):
        assert ranks_of(process).matched == ranks_of(process).collectives
        # As the first one of the ranks that are not blamed.
        assert share(process, Part.RANK_WAIT) < 0.03


@pytest.mark.parametrize("offset_us", [-600, 600])
def test_the_error_of_the_clocks_hides_no_late_rank(folder: Path, offset_us: int) -> None:
    found = WatchedRanks(folder, run_ranks(steps(1), offsets_ns=(0, offset_us * US))).found()
    assert ranks_texts(found.processes) == [HOST_SENTENCE]
    # At least: it is not known whether the ends or the clocks are so far apart.
    waits = share(by_rank(found)[0], Part.RANK_WAIT)
    assert 5 / 9.15 - 0.08 < waits < 5 / 9.15 + 0.02


def test_it_is_known_while_the_ranks_run(folder: Path) -> None:
    runs = run_ranks(steps(1), steps=900)
    found = WatchedRanks(folder, runs).found(polls=[1, 2, 3, 3.3, 4, 5.5, 6, 7], ended=False)
    assert ranks_texts(found.processes) == [HOST_SENTENCE]
    assert share(by_rank(found)[0], Part.RANK_WAIT) == pytest.approx(5 / 9.15, abs=0.02)


def test_ranks_without_an_environment_have_the_numbers_of_their_gpus(folder: Path) -> None:
    nothing: dict[int, dict[str, str]] = {0: {}, 1: {}}
    found = WatchedRanks(folder, run_ranks(steps(1)), environments=nothing, devices=(1, 0)).found()
    assert ranks_texts(found.processes) == [
        "rank 1 waits in NCCL for rank 0, which is host-bound before train.py:31 in step."
    ]


def test_ranks_that_are_not_known_are_named_as_processes(folder: Path) -> None:
    nothing: dict[int, dict[str, str]] = {0: {}, 1: {}}
    found = WatchedRanks(folder, run_ranks(steps(1)), environments=nothing).found()
    assert ranks_texts(found.processes) == [
        f"python3 (pid {FIRST_PID}) waits in NCCL for python3 (pid {FIRST_PID + 1}), which is host-bound before "
        "train.py:31 in step."
    ]
    assert [process.rank for process in found.processes] == [None, None]


def test_a_slow_call_names_the_rank_for_which_its_work_waited(folder: Path) -> None:
    def program(rank: int, step: int) -> Sequence[Action]:
        late = [Host(5 * MS, SLOW_LINE)] if rank else []
        return [Host(MS, 30), *late, Kernel(MS), Reduce(MS), Sync(function=SYNC_ALL)]

    first, second = by_rank(WatchedRanks(folder, run_ranks(program)).found())
    assert len(first.slow_calls) >= 300
    for call in first.slow_calls:
        assert re.fullmatch(
            r"because of GPU work in front of it: ncclDevKernel_AllReduce_Sum_f32_RING_LL \(6\.0. ms, of that 5\.0. ms "
            r"waiting for rank 1\), gemm \(.*\)",
            cause_text(call),
        )
    assert second.slow_calls == ()
    made = document(watch_findings([first], 0))
    validate(made, "stallscope.watch/3")
    work = made["processes"][0]["slow_calls"][0]["evidence"]["work"]
    assert [(one["rank"], round(one["rank_ns"] / 1e6)) for one in work] == [("rank 1", 5), ("", 0)]


def test_few_rounds_are_no_evidence(folder: Path) -> None:
    found = WatchedRanks(folder, run_ranks(steps(1), steps=6)).found()
    assert ranks_texts(found.processes) == [
        "Of 2 processes, rank 0 is communication-bound, and rank 1 is wait-bound.",
    ]


def test_the_document_and_the_report_say_it(folder: Path) -> None:
    found = WatchedRanks(folder, run_ranks(steps(1))).found()
    made = document(found)
    validate(made, "stallscope.watch/3")
    first = json.loads(json.dumps(made))["processes"][0]
    assert first["rank"] == {"number": 0, "size": 2, "variable": "RANK"}
    (sequence,) = first["sequences"]
    ranks = sequence["ranks"]
    assert (ranks["partners"], ranks["sentence"]) == ("watched", HOST_SENTENCE)
    assert ranks["waits"][0]["delay"]["place"]["line"] == SLOW_LINE
    assert {"rank-wait", "communication"} <= sequence["parts"].keys()
    stream = io.StringIO()
    show_watch(TextWriter(stream, width=100), found, "torchrun train.py", full=False)
    text = stream.getvalue()
    assert f"\nR{HOST_SENTENCE[1:]}\n" in text
    assert "rank 0 (python3, pid 4000): MainThread is communication-bound: it waits in NCCL for rank 1" in text
    assert "w waiting for ranks 55 %" in text
