"""Lines that launch kernels: sampled launches that are joined with the records of their kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from factories.time_samples import Sampled, line_stack, sample_batch
from factories.watch_calls import LAUNCH, MAIN, OTHER, SYNC, call_batch, kernel, rows_of, slow
from stallprobes.watch.division.result import KernelTime
from stallprobes.watch.lines.kernel_launches import KernelLaunches
from stallprobes.watch.lines.places import PACKAGES
from stallprobes.watch.reading.call_stack import CallStack, FrameKind, StackFrame
from stallprobes.watch.reading.process import GpuLimits, RecordBatch

STACKS = {1: line_stack(10), 2: line_stack(20)}
NAMES = {1: "gemm", 2: "relu"}


# An H100 or H200.
H200 = GpuLimits(132, 2048, 65536, 233472, 32, 1024)


def recorded(records: Iterable[Mapping[str, Any]] = ()) -> RecordBatch:
    """Records that are read together."""
    rows = rows_of(records)
    return RecordBatch(rows, NAMES, len(rows), 0)


def shaped(threads: int, registers: int, **of: Any) -> Mapping[str, Any]:
    """A kernel with the shape of its blocks; with 40 registers some are spilled."""
    # As on an H200: 576 bytes are reserved for each thread of a kernel without local memory.
    local = 132 * 2048 * (576 + (64 if registers == 40 else 0))
    return {**kernel(**of), "thread": threads - 1 | registers << 10, "bytes": local}


def described(launches: KernelLaunches, *threads: int) -> dict[str, KernelTime]:
    """The kernels of both names as the launches describe them."""
    made = tuple(
        KernelTime(name=name, share=0.5, count=9, mean_ns=10, deviation_ns=0, least_blocks=1, most_blocks=1)
        for name in NAMES.values()
    )
    return {each.name: each for each in launches.described(made, set(threads or (MAIN,)), STACKS, limits=H200)}


def calls_and_samples(stack: int, first: int, thread: int = MAIN) -> tuple[list[Any], list[Sampled]]:
    """Eight launches of 5 us, one every 100 us; half of the samples are inside them, half between them."""
    begins = [100 * number for number in range(first, first + 8)]
    calls = [slow(LAUNCH, at, at + 5, correlation=at, thread=thread) for at in begins]
    inside = [Sampled(at, at + 5, 50, stack=stack, thread=thread) for at in begins[::2]]
    between = [Sampled(at - 90, at - 1, 50, between=True, stack=stack, thread=thread) for at in begins[1::2]]
    return calls, [*inside, *between]


@pytest.mark.parametrize("late", [False, True])
def test_a_kernel_has_the_line_of_its_sampled_launches_and_its_shape(late: bool) -> None:
    launches = KernelLaunches()
    calls, samples = calls_and_samples(1, 1)
    more, others = calls_and_samples(2, 20)
    works = [shaped(128, 40, begin=call.correlation + 9, end=call.correlation + 20, name=1 if call in calls else 2,
                    correlation=call.correlation) for call in (*calls, *more)]  # fmt: skip
    launches.add(
        sample_batch([*samples, *others]), call_batch([*calls, *more]), recorded(() if late else works), STACKS
    )
    if late:
        launches.add(sample_batch(), call_batch(), recorded(works), STACKS)
    found = described(launches)
    assert [(found[name].place, found[name].place_share) for name in ("gemm", "relu")] == [
        (STACKS[1].place, 1.0), (STACKS[2].place, 1.0),
    ]  # fmt: skip
    assert (found["gemm"].threads, found["gemm"].registers) == (128, 40)


def test_a_kernel_that_ran_once_among_thousands_has_its_shape() -> None:
    launches = KernelLaunches()
    many = [shaped(128, 40, begin=at, end=at + 1, name=1) for at in range(2000)]
    once = shaped(256, 32, begin=1500, end=1501, name=2)
    launches.add(sample_batch(), call_batch(), recorded([*many[:1001], once, *many[1001:]]), STACKS)
    shapes = [(each.threads, each.registers, each.local_bytes) for each in described(launches).values()]
    assert shapes == [(128, 40, 64), (256, 32, 0)]


def test_what_is_reserved_for_all_kernels_is_no_kernels_local_memory() -> None:
    """What all kernels of a context have grows from 576 to 928 bytes a thread, as on an H200 once PyTorch has loaded
    other code; a kernel of the name "gemm" has 128 bytes of its own."""

    def of(at: int, name: int, a_thread: int, context: int = 1) -> Mapping[str, Any]:
        made = {**kernel(at, at + 5, name=name, context=context), "thread": 63 | 16 << 10}
        return {**made, "bytes": 132 * 2048 * a_thread}

    def local(*readings: Iterable[Mapping[str, Any]]) -> list[int]:
        launches = KernelLaunches()
        for each in readings:
            launches.add(sample_batch(), call_batch(), recorded(each), STACKS)
        return [kernel.local_bytes for kernel in described(launches).values()]

    early, late = [of(0, 2, 576), of(10, 2, 576)], [of(20, 2, 928), of(30, 2, 928)]
    assert local([*early, *late]) == local(early, late) == local([*early, of(40, 1, 928)], late) == [0, 0]
    # Records come in the order of their ends, or of their threads.
    assert local([of(40, 1, 1056), *late, of(50, 2, 928)]) == local([of(50, 2, 928), of(40, 1, 1056)]) == [128, 0]
    # The part of all may have grown since.
    assert local([*early, of(40, 1, 1056)]) == [0, 0]
    assert local([of(0, 1, 704), *late]) == [0, 0]
    # Contexts have parts of their own.
    assert local([of(0, 1, 928), of(10, 2, 576, context=2)]) == [0, 0]


@pytest.mark.parametrize(
    ("threads", "registers", "shared", "blocks"),
    [
        (1024, 32, 0, 2),
        (128, 168, 0, 3),
        (384, 168, 0, 1),
        (32, 16, 0, 32),
        (256, 32, 48 << 10, 4),
        (1024, 255, 0, 0),
        (160, 80, 0, 4),
    ],
)
def test_a_gpu_runs_as_many_blocks_at_once_as_the_occupancy_calculator_says(
    threads: int, registers: int, shared: int, blocks: int
) -> None:
    assert H200.blocks_at_once(threads, registers, shared) == 132 * blocks


def test_a_kernel_fills_a_part_of_its_gpu() -> None:
    launches = KernelLaunches()
    shape = {"thread": 127 | 168 << 10 | 3 << 18}
    launches.add(sample_batch(), call_batch(), recorded([{**kernel(0, 5), **shape}]), STACKS)
    made = KernelTime(name="gemm", share=1, count=9, mean_ns=10, deviation_ns=0, least_blocks=1, most_blocks=33)
    (small,) = launches.described((made,), {MAIN}, STACKS, limits=H200)
    assert small.fills == 0.25
    assert small.waves == pytest.approx(33 / (3 * 132), rel=0.01)
    (large,) = launches.described((made.changed(most_blocks=1320),), {MAIN}, STACKS, limits=H200)
    assert large.fills == 1
    assert large.waves == pytest.approx(10 / 3, rel=0.01)
    (unknown,) = launches.described((made,), {MAIN}, STACKS)
    assert (unknown.fills, unknown.waves, unknown.registers) == (None, None, 168)


def test_kernels_of_a_graph_have_the_line_of_its_launch() -> None:
    launches = KernelLaunches()
    calls, samples = calls_and_samples(1, 1)
    nodes = [kernel(call.correlation + node, call.correlation + node + 1, name=1 + node % 2,
                    correlation=call.correlation) for call in calls for node in range(10, 50)]  # fmt: skip
    launches.add(sample_batch(samples), call_batch(calls), recorded(nodes), STACKS)
    assert {each.place for each in described(launches).values()} == {STACKS[1].place}


def test_a_line_with_less_than_half_of_the_launches_or_hardly_any_is_not_named() -> None:
    launches = KernelLaunches()
    calls, samples = calls_and_samples(1, 1)
    works = [kernel(call.correlation + 9, call.correlation + 20, correlation=call.correlation) for call in calls]
    launches.add(sample_batch(samples[:2]), call_batch(calls), recorded(works), STACKS)
    assert described(launches)["gemm"].place is None
    # Launches of threads of other sequences do not count.
    launches.add(sample_batch(samples), call_batch(calls), recorded(works), STACKS)
    assert described(launches)["gemm"].place == STACKS[1].place
    assert described(launches, OTHER)["gemm"].place is None


def test_kernels_of_a_backward_pass_are_launched_there() -> None:
    launches = KernelLaunches()
    calls, samples = calls_and_samples(1, 1, OTHER)
    works = [kernel(call.correlation + 9, call.correlation + 20, correlation=call.correlation) for call in calls]
    torch = StackFrame(FrameKind.NATIVE, "gemm", "/usr/lib/python3/dist-packages/torch/lib/libtorch_cuda.so")
    stacks = {1: CallStack(native=(torch,))}
    launches.add(sample_batch(samples), call_batch(calls), recorded(works), stacks)
    made = (KernelTime(name="gemm", share=1, count=9, mean_ns=10, deviation_ns=0, least_blocks=1, most_blocks=1),)
    (other,) = launches.described(made, {OTHER}, stacks)
    (backward,) = launches.described(made, {OTHER}, stacks, roles={OTHER})
    assert (other.place, backward.place) == (None, PACKAGES)


def test_samples_of_other_calls_and_of_long_times_between_calls_say_nothing_of_launches() -> None:
    launches = KernelLaunches()
    calls, _ = calls_and_samples(1, 1)
    waits = [slow(SYNC, at.correlation + 6, at.correlation + 50) for at in calls]
    samples = [Sampled(at.correlation + 6, at.correlation + 50, 50, SYNC, stack=1) for at in calls]
    # Another thread looked at it meanwhile, maybe at another line.
    samples += [Sampled(at.correlation - 300, at.correlation, 50, between=True, stack=1) for at in calls]
    works = [kernel(call.correlation + 9, call.correlation + 20, correlation=call.correlation) for call in calls]
    launches.add(sample_batch(samples), call_batch([*calls, *waits]), recorded(works), STACKS)
    assert described(launches)["gemm"].place is None
    # Another thread takes no native frames.
    frames = StackFrame(FrameKind.NATIVE, "launch", "/home/me/program", 7)
    own = CallStack(STACKS[1].python, (frames,))
    launches.add(sample_batch(samples), call_batch([*calls, *waits]), recorded(works), {1: own})
    assert described(launches)["gemm"].place == STACKS[1].place
