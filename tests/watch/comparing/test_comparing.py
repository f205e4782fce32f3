"""Comparison of watched runs: nothing is worse or better without a change, and a change is seen and explained."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from msgspec.structs import replace

from factories.watched_runs import GPU, NAMES, halves, place, program_run, recorded, slower, varied
from stallprobes.errors import NotComparable
from stallprobes.matrix.comparing.comparison import Change
from stallprobes.watch.attribution.findings import WatchFindings
from stallprobes.watch.beside.result import BesideResult
from stallprobes.watch.comparing.compare import compare
from stallprobes.watch.comparing.comparison import Sort
from stallprobes.watch.comparing.measures import WorkUnit, program_of
from stallprobes.watch.comparing.places import Place, matched, own_line
from stallprobes.watch.comparing.spread import Spread
from stallprobes.watch.cost import WatchCost
from stallprobes.watch.division.binned_sums import Figure
from stallprobes.watch.division.parts import Bound, Part
from stallprobes.watch.division.result import PhaseDivision
from stallprobes.watch.lines.places import PACKAGES
from stallprobes.watch.reading.call_stack import UNKNOWN_PYTHON, FrameKind, StackFrame

MS = 1_000_000
HOST_AND_GPU = {Part.HOST: 0.6, Part.KERNELS: 0.4}
# Programs whose kernels run fewer than 20 times in a second: without a step, nothing is compared then.
FEW_OPERATIONS = ("copies_and_launches", "pin_each_batch")
CALM = (Change.SAME, Change.UNSURE)


@pytest.mark.parametrize("name", NAMES)
def test_no_program_is_worse_or_better_without_a_change(name: str) -> None:
    chance = Random(name)
    for _ in range(20):
        old, new = ([varied(recorded(name), chance) for _ in range(chance.choice((1, 2)))] for _ in range(2))
        result = compare(old, new)
        assert result.change in CALM, result.sentence


def test_the_repr_of_a_comparison_is_its_sentence() -> None:
    run = recorded("image_training")
    result = compare([run], [run])
    assert repr(result).startswith("RunsComparison(change=<Change.")
    assert len(repr(result)) < 200 + len(result.sentence)
    assert len(repr(run)) < 400


@pytest.mark.parametrize("name", NAMES)
def test_the_halves_of_a_program_are_no_change(name: str) -> None:
    first, second = halves(name)
    for old, new in ((first, second), (second, first)):
        result = compare([old], [new])
        assert result.change in CALM, result.sentence


def test_hardly_any_pair_of_many_runs_is_worse_or_better_without_a_change() -> None:
    chance = Random(7)
    counts = dict.fromkeys(Change, 0)
    for name in ("image_training", "pageable_upload", "text_generation", "sync_each_op"):
        for _ in range(60):
            sides = [[varied(recorded(name), chance) for _ in range(chance.choice((3, 4, 5)))] for _ in range(2)]
            counts[compare(*sides).change] += 1
    assert counts[Change.WORSE] + counts[Change.BETTER] <= 2
    assert counts[Change.SAME] >= 200


def test_other_programs_are_not_compared() -> None:
    for one, other in itertools.permutations(NAMES, 2):
        if {one, other} == {"image_training", "image_training_pinned"}:
            continue
        result = compare([recorded(one)], [recorded(other)])
        assert (result.change, result.ratio) == (Change.UNSURE, None), (one, other, result.sentence)


@pytest.mark.parametrize("name", [name for name in NAMES[::3] if name not in FEW_OPERATIONS])
def test_a_change_by_a_factor_of_two_is_seen(name: str) -> None:
    chance, run = Random(name), recorded(name)
    if compare([run], [run]).ratio is None:
        pytest.skip("its pace is not its own")
    for factor, change in ((2.2, Change.WORSE), (1 / 2.2, Change.BETTER)):
        result = compare([run], [slower(run, factor)])
        assert result.change is change
        old, new = ([varied(slower(run, by), chance) for _ in range(5)] for by in (1.0, factor))
        assert compare(old, new).change is change


def test_alike_runs_show_a_small_change() -> None:
    chance, run = Random(3), recorded("image_training")
    old, new = ([varied(slower(run, by), chance, 0.99, 1.01) for _ in range(5)] for by in (1.0, 1.2))
    result = compare(old, new)
    assert (result.change, result.measured) == (Change.WORSE, True)
    assert 1 < (result.detectable or 0) < 1.15
    assert (result.low or 0) < 1.2 < (result.high or 0)
    # Of so few runs the spread is not known.
    assert compare(old[:2], new[:2]).change is Change.SAME


def test_what_changed_is_said_first() -> None:
    parts = {Part.HOST: 0.3, Part.KERNELS: 0.35, Part.SUBMITTING: 0.05, Part.WAKE_UP: 0.3}
    old = program_run(20 * MS, parts, verdict=Bound.WAIT, lines={31: 0.3, 42: 0.35}, waits={42: 0.35})
    new = program_run(10 * MS, {Part.HOST: 0.6, Part.KERNELS: 0.4}, lines={31: 0.6})
    result = compare([old], [new])
    assert result.sentence == (
        "BETTER: a step takes 20.0 → 10.0 ms (−50 %); waits at train.py:42 in step are gone; now host-bound before "
        "train.py:31 in step."
    )
    assert [(item.sort, item.name) for item in result.items[:2]] == [
        (Sort.WAIT, "train.py:42 in step"),
        (Sort.LINE, "train.py:42 in step"),
    ]
    worse = compare([new], [old])
    assert worse.change is Change.WORSE
    assert (
        "waits at train.py:42 in step 7.00 ms, which is new; now wait-bound at train.py:42 in step." in worse.sentence
    )


def test_a_line_that_moved_is_the_same_line() -> None:
    old = program_run(20 * MS, HOST_AND_GPU, lines={31: 0.3, 50: 0.3})
    new = program_run(10 * MS, HOST_AND_GPU, lines={33: 0.3, 54: 0.3})
    names = {item.name for item in compare([old], [new]).items if item.sort is Sort.LINE}
    assert names == {"train.py:33 in step", "train.py:54 in step"}
    before = {(Place.of(place(42)), "cuStreamSynchronize"): 1, (Place.of(place(50)), "cuStreamSynchronize"): 2}
    after = {(Place.of(place(52)), "cuStreamSynchronize"): 3}
    assert [(was[0].line, key[0].line, one, other) for was, key, one, other in matched(before, after)] == [
        (50, 52, 2, 3),
        (42, 42, 1, None),
    ]
    other_call = {(Place.of(place(50)), "cuCtxSynchronize"): 3}
    assert [(one, other) for *_, one, other in matched(before, other_call)] == [(1, None), (2, None), (None, 3)]


def test_steps_that_other_calls_mark_are_compared_by_their_kernels() -> None:
    # Three calls mark a step in the old program, two in the new one: its steps seem longer.
    old = program_run(12 * MS, HOST_AND_GPU, per_step=3)
    result = compare([old], [program_run(12 * MS, HOST_AND_GPU, per_step=2)])
    assert (result.change, result.unit) == (Change.SAME, WorkUnit.KERNELS)
    faster = compare([old], [program_run(6 * MS, HOST_AND_GPU, per_step=1, function="cuCtxSynchronize")])
    assert (faster.change, faster.unit) == (Change.BETTER, WorkUnit.KERNELS)
    assert faster.sentence.startswith("BETTER: the work of a step takes 4.00 → 2.00 ms (−50 %)")


def test_steps_without_a_common_kernel_need_the_same_call_and_as_many_kernels() -> None:
    old = program_run(12 * MS, HOST_AND_GPU, kernels={"float": 10})
    assert compare([old], [program_run(6 * MS, HOST_AND_GPU, kernels={"half": 12})]).change is Change.BETTER
    for new in (
        program_run(6 * MS, HOST_AND_GPU, kernels={"half": 30}),
        program_run(6 * MS, HOST_AND_GPU, kernels={"half": 10}, function="cuCtxSynchronize"),
        program_run(6 * MS, HOST_AND_GPU, kernels={"half": 10}, command=("python", "other.py")),
    ):
        result = compare([old], [new])
        assert (result.change, result.ratio) == (Change.UNSURE, None)
        assert "its kernels are others" in result.why or "whose kernels are others" in result.why


def test_the_step_may_be_that_of_another_thread() -> None:
    def backward(run: WatchFindings) -> WatchFindings:
        """A run whose kernels are those of a thread that waits for nothing."""
        (process,) = run.processes
        (main,) = process.sequences
        own = main.changed(step=None, threads=(101,), operations=2 * main.operations)
        main = main.changed(kernels=(), operations=0, gpu=Figure(0.1, 0.0, 0.2))
        return run.changed(processes=(process.changed(sequences=(main, own)),))

    old = program_run(12 * MS, HOST_AND_GPU, kernels={"float": 10})
    new = backward(program_run(4 * MS, HOST_AND_GPU, kernels={"half": 12}))
    for runs, change in (((old, new), Change.BETTER), ((new, old), Change.WORSE)):
        result = compare(*([run] for run in runs))
        assert (result.change, result.operations) == (change, False)


def test_the_lines_that_launch_other_kernels_are_named_where_the_gpu_bounds() -> None:
    def launched(run: WatchFindings) -> WatchFindings:
        (process,) = run.processes
        (sequence,) = process.sequences
        kernels = tuple(kernel.changed(place=place(31)) for kernel in sequence.kernels)
        return run.changed(processes=(process.changed(sequences=(sequence.changed(kernels=kernels),)),))

    parts = {Part.HOST: 0.05, Part.KERNELS: 0.95}
    for verdict, said in (
        (Bound.GPU, "the kernels that train.py:31 in step launches 19.0 ms → 9.50 ms"),
        (Bound.HOST, "the cost of train.py:42 in step 18.0 ms → 9.00 ms"),
    ):
        sides = [
            launched(program_run(step, parts, verdict=verdict, lines={42: 0.9}, kernels={name: 4}))
            for step, name in ((20 * MS, "float"), (10 * MS, "half"))
        ]
        result = compare(sides[:1], sides[1:])
        assert f"; {said}; still" in result.sentence
        assert {item.sort for item in result.items} == {Sort.LINE, Sort.LAUNCH, Sort.KERNEL, Sort.PART}


def test_lines_that_say_nothing_of_the_program_are_not_named() -> None:
    wheel = "/usr/lib/python3/site-packages/torch/lib/libtorch.so"
    for frame in (None, PACKAGES, UNKNOWN_PYTHON, StackFrame(FrameKind.NATIVE, "", wheel)):
        assert own_line(frame) is None
    assert own_line(place(31)) == place(31)


def test_runs_whose_records_were_lost_are_unsure() -> None:
    run = program_run(10 * MS, HOST_AND_GPU)
    lost = run.changed(processes=tuple(each.changed(records=1000, missed_records=100) for each in run.processes))
    # Other calls mark its steps.
    new = program_run(20 * MS, HOST_AND_GPU, per_step=2)
    assert compare([run], [new]).change is Change.WORSE
    result = compare([lost], [new])
    assert result.change is Change.UNSURE
    assert "records of its work were lost" in result.sentence


def test_a_line_that_is_gone_has_its_old_number() -> None:
    # The wait of line 42 is removed, and that of line 44, which has always been there, takes some time now.
    old = program_run(20 * MS, HOST_AND_GPU, lines={42: 0.6})
    result = compare([old], [program_run(10 * MS, HOST_AND_GPU, lines={44: 0.005})])
    assert [item.name for item in result.items if item.sort is Sort.LINE] == ["train.py:42 in step"]


def test_records_that_slow_kernels_down_do_not_make_a_change_smaller() -> None:
    def recorded_in_part(run: WatchFindings, high: float, longer: float) -> WatchFindings:
        """A run of which a fourth is recorded; its steps are so many times as long there as in all of the time."""
        (process,) = run.processes
        (sequence,) = process.sequences
        assert sequence.step is not None
        step = sequence.step.changed(ns=round(sequence.step.ns / longer))
        cost = WatchCost(low=0.0, high=high, compared=0, recorded=0.25, followed=0.25, budget=0.05)
        return run.changed(processes=(process.changed(cost=cost, sequences=(sequence.changed(step=step),)),))

    old = recorded_in_part(program_run(20 * MS, HOST_AND_GPU), 0.02, 1.0)
    for high, longer, unit, ratio in (
        (0.25, 1.8, WorkUnit.STEP, 0.4 / 1.8),
        (0.02, 1.8, WorkUnit.KERNELS, 0.4),
        (0.25, 3.0, WorkUnit.KERNELS, 0.4),
    ):
        result = compare([old], [recorded_in_part(program_run(8 * MS, HOST_AND_GPU), high, longer)])
        assert (result.change, result.unit) == (Change.BETTER, unit)
        assert result.ratio == pytest.approx(ratio, rel=0.02)
    # Twice as many waits in the same time are no change.
    same = compare([old], [recorded_in_part(program_run(20 * MS, HOST_AND_GPU), 0.25, 1.9)])
    assert (same.change, same.unit) == (Change.SAME, WorkUnit.KERNELS)


def test_kernels_of_other_sizes_do_other_work() -> None:
    result = compare([program_run(12 * MS, HOST_AND_GPU)], [program_run(24 * MS, HOST_AND_GPU, blocks=512)])
    assert (result.change, result.ratio) == (Change.UNSURE, None)
    assert "256 → 512 blocks" in result.why


def test_a_program_that_waits_for_requests_has_no_speed() -> None:
    for bound in (Bound.IDLE, Bound.ASLEEP):
        result = compare([program_run(12 * MS, HOST_AND_GPU)], [program_run(40 * MS, HOST_AND_GPU, verdict=bound)])
        assert (result.change, result.ratio) == (Change.UNSURE, None)
        assert "its pace" in result.why or "their pace" in result.why


def test_a_run_beside_aggressors_is_left_out() -> None:
    run = program_run(10 * MS, HOST_AND_GPU)
    beside = run.changed(beside=BesideResult(on_ns=10**9))
    result = compare([run, beside], [run])
    assert (result.change, result.old.runs) == (Change.SAME, 1)
    assert result.old.left_out == ("1 run: aggressors ran beside it (--beside).",)
    assert compare([run], [beside]).change is Change.UNSURE


def test_the_longest_phases_must_do_the_same_work() -> None:
    forward = {"a": 10, "b": 10, "c": 10}
    train = program_run(30 * MS, HOST_AND_GPU, kernels={**forward, "d": 20, "e": 20, "f": 20})
    evaluation = program_run(10 * MS, HOST_AND_GPU, kernels=forward)

    def with_phases(run: WatchFindings) -> WatchFindings:
        (sequence,) = run.processes[0].sequences
        times = ((0, 6 * 10**9),), ((6 * 10**9, 10 * 10**9),)
        phases = tuple(PhaseDivision(verdict=Bound.HOST, times=each) for each in times)
        return run.changed(processes=(run.processes[0].changed(sequences=(sequence.changed(phases=phases),)),))

    result = compare([with_phases(train)], [with_phases(evaluation)])
    assert (result.change, result.ratio) == (Change.UNSURE, None)
    assert "its longest phase runs other kernels" in result.why
    faster = compare([with_phases(train)], [with_phases(slower(train, 0.5))])
    assert faster.change is Change.BETTER
    assert "The new runs have phases: the longest one is compared, 60 % of the time." in faster.notes


def test_the_clock_of_the_gpu_is_not_the_program() -> None:
    busy = {Part.KERNELS: 0.97, Part.HOST: 0.03}
    old = program_run(10 * MS, busy, verdict=Bound.GPU)
    new = program_run(15 * MS, busy, verdict=Bound.GPU, gpu=GPU.changed(sm_clock_mhz=1320.0))
    result = compare([old], [new])
    assert result.change is Change.UNSURE
    assert "SM clock" in result.why
    assert any("take ×1.50 as long; the SM clock was 1980 → 1320 MHz." in note for note in result.notes)
    # A clock that is higher is no reason for a longer step, nor is one of a GPU that waits.
    assert compare([new], [program_run(25 * MS, busy, verdict=Bound.GPU)]).change is Change.WORSE
    host = {Part.KERNELS: 0.03, Part.HOST: 0.97}
    low = program_run(15 * MS, host, gpu=GPU.changed(sm_clock_mhz=1320.0))
    assert compare([program_run(10 * MS, host)], [low]).change is Change.WORSE


def test_time_slices_of_others_are_not_the_program() -> None:
    old = program_run(10 * MS, HOST_AND_GPU)
    new = program_run(20 * MS, {Part.HOST: 0.3, Part.KERNELS: 0.2, Part.SHARED: 0.5})
    result = compare([old], [new])
    assert result.change is Change.UNSURE
    assert "Other processes" in result.why


def test_what_differs_is_listed_first() -> None:
    old = program_run(10 * MS, HOST_AND_GPU)
    new = program_run(
        10 * MS,
        HOST_AND_GPU,
        command=("python", "train.py", "--fast"),
        gpu=GPU.changed(driver="590.1", sm_clock_mhz=1500),
    )
    new = replace(new, exit_code=1)
    keys = {row.key: (row.old, row.new) for row in compare([old], [new]).differences}
    assert keys == {
        "command": ("python train.py", "python train.py --fast"),
        "exit code": (0, 1),
        "driver": ("580.159.04", "590.1"),
        "SM clock (MHz)": (1980, 1500),
    }


def test_versions_that_both_sides_know_are_compared() -> None:
    run = program_run(10 * MS, HOST_AND_GPU)
    old, new = (
        replace(run, processes=tuple(each.changed(libraries=libraries) for each in run.processes))
        for libraries in ({"PyTorch": "2.8.0", "cuDNN": "9.1", "NCCL": "2.27"}, {"PyTorch": "2.9.0", "cuDNN": "9.1"})
    )
    assert [(row.key, row.old, row.new) for row in compare([old, old], [new]).differences] == [
        ("PyTorch", "2.8.0", "2.9.0")
    ]
    assert compare([old], [run]).differences == ()


def test_other_models_of_gpu_are_compared_only_by_force() -> None:
    sides = ([program_run(10 * MS, HOST_AND_GPU)], [program_run(30 * MS, HOST_AND_GPU, gpu=GPU.changed(model="A100"))])
    with pytest.raises(NotComparable, match="NVIDIA H200"):
        compare(*sides)
    assert compare(*sides, force=True).change is Change.WORSE


def test_runs_of_another_command_than_the_last_are_left_out() -> None:
    other = program_run(90 * MS, HOST_AND_GPU, command=("python", "eval.py"))
    run = program_run(10 * MS, HOST_AND_GPU)
    result = compare([other, run], [run])
    assert (result.change, result.old.runs, len(result.old.left_out)) == (Change.SAME, 1, 1)


def test_runs_without_a_process_are_unsure() -> None:
    empty = replace(program_run(10 * MS, HOST_AND_GPU), processes=())
    for sides in (([empty], [empty]), ([program_run(10 * MS, HOST_AND_GPU)], [empty])):
        result = compare(*sides)
        assert (result.change, result.ratio) == (Change.UNSURE, None)
        assert "no process of it recorded a call" in result.sentence


def test_two_speeds_of_one_program_are_no_change() -> None:
    for old, new in (([0.85], [1.2]), ([0.85, 0.85], [1.2, 1.2]), ([0.85], [1.2] * 9)):
        spread = Spread.of(old, new)
        assert spread.change(0.345) is Change.UNSURE


@pytest.mark.parametrize(
    ("command", "program"),
    [
        (("python", "/a/train.py", "--x"), "train.py"),
        (("python3.12", "-u", "train.py"), "train.py"),
        (("torchrun", "--nproc_per_node", "2", "train.py"), "train.py"),
        (("./solver", "--steps", "3"), "solver"),
        (("/usr/bin/python3 /a/train.py 3",), "train.py"),
        ((), ""),
    ],
)
def test_a_command_names_its_program(command: tuple[str, ...], program: str) -> None:
    assert program_of(command) == program
