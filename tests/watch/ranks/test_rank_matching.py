"""Matching of collectives by their ends, rounds, ranks by their environments, and what operations kernels are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from factories.recorded_programs import RECORDED
from stallprobes.watch.division.collectives import COLLECTIVE, operation_of
from stallprobes.watch.division.instants import CoveredTime, Spans
from stallprobes.watch.division.parts import NUMBERS, Bound, Part
from stallprobes.watch.division.pending import communicate
from stallprobes.watch.intervals import Int64s, int64s
from stallprobes.watch.rank_text import late_clause
from stallprobes.watch.ranks.matching import CLOCK_ERROR_NS, Kernels, match
from stallprobes.watch.ranks.result import RankDelay
from stallprobes.watch.ranks.rounds import Member, rounds_of
from stallprobes.watch.reading.call_stack import FrameKind, StackFrame
from stallprobes.watch.reading.process_rank import Rank, environment_of, rank_of

MS, US = 1_000_000, 1_000


def kernels(starts: Int64s, ends: Int64s, operations: Int64s | None = None) -> Kernels:
    """Kernels whose partners are all recorded, in the order of their ends."""
    order = np.argsort(ends, kind="stable")
    kinds = np.zeros(len(ends), dtype=np.int64) if operations is None else operations
    return Kernels(starts[order], ends[order], kinds[order], kinds[order], np.ones(len(ends), dtype=np.bool_))


def collectives(
    seed: int, rounds: int, offset_ns: int, scatter_ns: int, late_ns: int = 0
) -> tuple[Kernels, Kernels, Int64s]:
    """The kernels of two ranks, the second one's times ``offset_ns`` later, and by how much that was late in each
    round."""
    random = np.random.default_rng(seed)
    # One has ended when the next one begins, as on a stream.
    begins = np.cumsum(random.integers(4 * MS, 9 * MS, rounds))
    late = int64s(random.integers(0, late_ns + 1, rounds))
    ends = begins + late + random.integers(50 * US, MS, rounds)
    first = kernels(begins, ends + random.integers(0, scatter_ns + 1, rounds))
    second = kernels(begins + late + offset_ns, ends + offset_ns + random.integers(0, scatter_ns + 1, rounds))
    return first, second, late


@given(
    seed=st.integers(0, 2**32 - 1),
    offset_ns=st.integers(-900 * US, 900 * US),
    scatter_ns=st.integers(0, 20 * US),
    late_ns=st.sampled_from([0, 100 * US, 2 * MS]),
)
@settings(deadline=None, max_examples=30)
def test_collectives_are_matched_whatever_the_error_of_the_clocks(
    seed: int, offset_ns: int, scatter_ns: int, late_ns: int
) -> None:
    first, second, _ = collectives(seed, 60, offset_ns, scatter_ns, late_ns)
    found = match(first, second)
    assert found is not None
    assert (found.matched, found.eligible, found.ambiguous) == (60, 60, False)
    assert found.first.tolist() == found.second.tolist() == list(range(60))
    assert abs(found.offset_ns - offset_ns) <= scatter_ns
    assert found.tolerance_ns >= 5 * US


@given(seed=st.integers(0, 2**32 - 1), hidden=st.integers(1, 30), shift=st.integers(0, 30))
@settings(deadline=None, max_examples=30)
def test_collectives_of_which_records_are_missing_leave_the_others_matched(seed: int, hidden: int, shift: int) -> None:
    first, second, _ = collectives(seed, 80, 100 * US, 5 * US)
    kept = np.r_[0:shift, shift + hidden : 80]
    known = np.zeros(80, dtype=np.bool_)
    known[kept] = True
    missing = kernels(second.starts[kept], second.ends[kept])
    found = match(replace(first, eligible=known), missing)
    assert found is not None
    assert found.share == 1.0
    assert found.first.tolist() == kept.tolist()


@given(seed=st.integers(0, 2**32 - 1))
@settings(deadline=None, max_examples=30)
def test_kernels_of_different_jobs_are_not_matched(seed: int) -> None:
    first, _, _ = collectives(seed, 100, 0, 0)
    second, _, _ = collectives(seed + 1, 100, 0, 0)
    found = match(first, second)
    assert found is None or found.share < 0.5


def test_a_collective_that_ends_before_the_other_one_begins_is_another_one() -> None:
    starts = int64s([5 * MS * number for number in range(10, 30)])
    first = kernels(starts, starts + 100 * US)
    # The clocks may be 0.3 ms apart, not 1.1 ms.
    found = match(first, kernels(starts + 300 * US, starts + 400 * US))
    assert found is not None
    assert found.offset_ns == 300 * US
    assert match(first, kernels(starts + CLOCK_ERROR_NS, starts + CLOCK_ERROR_NS + 200 * US)) is None
    # What is no all-reduce in one of them is none.
    assert match(first, replace(first, names=first.names + 1, operations=first.operations + 1)) is None


def test_a_row_of_equal_collectives_has_several_matches() -> None:
    ends = int64s([200 * US * number for number in range(1, 400)])
    found = match(kernels(ends - 150 * US, ends), kernels(ends - 150 * US, ends))
    assert found is not None
    assert found.ambiguous
    # With a pause of which both know the begin, it has one.
    ends = int64s([200 * US * number + 9 * MS * (number // 50) for number in range(1, 400)])
    found = match(kernels(ends - 150 * US, ends), kernels(ends - 150 * US, ends))
    assert found is not None
    assert (found.ambiguous, found.share) == (False, 1.0)
    # As it was known before, no other one is looked for.
    near = match(kernels(ends - 150 * US, ends), kernels(ends - 150 * US, ends), 0)
    assert near is not None
    assert not near.ambiguous


def member(
    starts: list[int],
    ends: list[int],
    offset_ns: int = 0,
    known: list[int] | None = None,
    divided: tuple[int, int] = (-(10**9), 10**9),
) -> Member:
    """A rank that did nothing but wait between its kernels, and was the host's in 1 us of it.

    ``divided`` is when the divided time begins and ends.
    """
    rows = np.zeros(len(starts), COLLECTIVE)
    rows["start"], rows["end"] = int64s(starts) + offset_ns, int64s(ends) + offset_ns
    rows["parts"][:, NUMBERS[Part.HOST]] = int64s(ends) - ends[0]
    exposed = CoveredTime(Spans(int64s(rows["start"]), int64s(rows["end"])).within(*divided))
    whole = CoveredTime(Spans(*(int64s([time]) for time in divided)))
    places = int64s(range(len(starts)) if known is None else known)
    return Member(rows=rows, places=places, offset_ns=offset_ns, tolerance_ns=5 * US, exposed=exposed, divided=whole)


def test_the_last_rank_of_a_round_is_waited_for() -> None:
    first = member([0, 1000 * US, 2000 * US], [500 * US, 1500 * US, 2500 * US])
    second = member([300 * US, 1002 * US, 1950 * US], [500 * US, 1500 * US, 2500 * US])
    found = rounds_of([first, second])
    assert found.last.tolist() == [1, 1, 0]
    # 2 us are within the error.
    assert found.waits.tolist() == [[300 * US, 0, 0], [0, 0, 50 * US]]
    assert found.exposed.tolist() == found.waits.tolist()
    assert found.communicates[0].tolist() == [500 * US] * 3
    assert found.whole.tolist() == [[False, True, True]] * 2


def test_of_a_kernel_that_began_before_the_divided_time_the_wait_is_known_and_no_share() -> None:
    times = [0, 1000 * US, 2000 * US], [500 * US, 1500 * US, 2500 * US]
    first = member(*times, divided=(100 * US, 3000 * US))
    found = rounds_of([first, member([300 * US, 1300 * US, 2300 * US], times[1])])
    assert found.waits[0].tolist() == [300 * US] * 3
    assert found.exposed[0].tolist() == [0, 300 * US, 300 * US]
    assert found.communicates[0].tolist() == [0, 500 * US, 500 * US]


def test_a_wait_is_the_shorter_one_by_either_reading_of_the_ends() -> None:
    first = member([0, 1000 * US], [500 * US, 1500 * US])
    second = member([300 * US, 1300 * US], [500 * US, 1500 * US], offset_ns=-40 * US)
    assert rounds_of([first, second]).waits[0].tolist() == [260 * US] * 2
    second = member([300 * US, 1300 * US], [500 * US, 1500 * US], offset_ns=40 * US)
    assert rounds_of([first, second]).waits[0].tolist() == [300 * US] * 2


def test_ranks_that_are_not_known_in_a_round_are_left_out() -> None:
    first = member([0, 1000 * US], [500 * US, 1500 * US])
    second = member([100 * US], [500 * US], known=[0, -1])
    third = member([1300 * US], [1500 * US], known=[-1, 0])
    found = rounds_of([first, second, third])
    assert found.waits[0].tolist() == [100 * US, 300 * US]
    assert found.last.tolist() == [1, 2]
    # A kernel that ended before another one began is in no round with that.
    third = member([1600 * US], [1700 * US], known=[-1, 0])
    assert rounds_of([first, third]).waits[0].tolist() == [0, 0]
    assert not rounds_of([first, third]).present[:, 1].any()


@pytest.mark.parametrize(
    ("name", "operation"),
    [
        ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "allreduce"),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)", "allreduce"),
        ("ncclAllReduceRingLLKernel_sum_f32(ncclColl)", "allreduce"),
        ("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL", "reducescatter"),
        ("ncclDevKernel_AllGather_RING_LL", "allgather"),
        ("ncclDevKernel_Reduce_Sum_f32_RING_LL", "reduce"),
        ("ncclKernel_Broadcast_RING_LL_Sum_int8_t", "broadcast"),
        ("ncclDevKernel_SendRecv", "sendrecv"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "sendrecv"),
        ("ncclDevKernel_Generic_4", "ncclDevKernel_Generic_4"),
    ],
)
def test_kernels_of_all_versions_of_nccl_are_known(name: str, operation: str) -> None:
    assert communicate({3: name}) == {3}
    assert operation_of(name) == operation


@pytest.mark.parametrize(
    ("name", "communicates"),
    [
        ("void vllm::cross_device_reduce_1stage<__nv_bfloat16, 2>(vllm::RankData*)", True),
        ("tensorrt_llm::kernels::ar_fusion::allreduce_fusion_kernel_oneshot_lamport<...>", True),
        ("void one_shot_all_reduce_kernel<c10::BFloat16, 16, 8>(c10::BFloat16**)", True),
        ("deep_ep::internode_ll::dispatch<false, 3, 7168>(void*)", True),
        ("mscclpp::allgather6<...>", True),
        ("void all_to_all_kernel(int*)", True),
        ("void cub::DeviceReduceKernel<...>", False),
        ("void softmaxBlockAllReduce<float>(float*)", False),
        ("void layer_norm<warp_all_reduce>(float*)", False),
        ("void at::native::vectorized_gather_kernel<16, long>", False),
        ("void at::native::reduce_kernel<512, 1>", False),
    ],
)
def test_kernels_of_other_libraries_communicate_too(name: str, communicates: bool) -> None:
    assert communicate({3: name}) == ({3} if communicates else set())


@pytest.mark.parametrize(
    ("environment", "rank"),
    [
        ({}, None),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, Rank(number=3, size=8, variable="RANK")),
        ({"OMPI_COMM_WORLD_RANK": "1"}, Rank(number=1, variable="OMPI_COMM_WORLD_RANK")),
        ({"SLURM_PROCID": "0", "SLURM_NTASKS": "2"}, Rank(number=0, size=2, variable="SLURM_PROCID")),
        ({"PMI_RANK": "1", "PMI_SIZE": "2"}, Rank(number=1, size=2, variable="PMI_RANK")),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}, Rank(number=1, size=2, variable="LOCAL_RANK")),
        # What is none is not taken for one.
        ({"RANK": "-1"}, None),
        ({"RANK": "first"}, None),
        ({"RANK": "9" * 40}, None),
        ({"RANK": "4", "WORLD_SIZE": "2"}, Rank(number=4, variable="RANK")),
        ({"RANK": "", "LOCAL_RANK": "0"}, Rank(number=0, variable="LOCAL_RANK")),
    ],
)
def test_the_rank_is_what_its_launcher_says(environment: dict[str, str], rank: Rank | None) -> None:
    assert rank_of(environment) == rank


def test_the_environment_is_that_of_the_process(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "environ").write_bytes(b"RANK=1\0LANG=\xff\0RANK=2\0nothing\0")
    assert environment_of(7, tmp_path)["RANK"] == "1"
    assert environment_of(8, tmp_path) == {}


@pytest.mark.parametrize(
    ("delay", "clause"),
    [
        (None, ", and why that is late is not known"),
        (RankDelay(bound=None), ", and why that is late is not known"),
        (RankDelay(bound=Bound.HOST), ", which is host-bound"),
        (
            RankDelay(
                bound=Bound.HOST, place=StackFrame(FrameKind.PYTHON, "load", "/a/data.py", 7), off_cpu=True
            ),
            ", which is host-bound before data.py:7 in load (off the CPU: input, locks or sleep)",
        ),
        (
            RankDelay(bound=Bound.COPY, place=StackFrame(FrameKind.PYTHON, "load", "/a/data.py", 7)),
            ", which is copy-bound at data.py:7 in load",
        ),
        (RankDelay(bound=Bound.GPU), ", whose kernels take longer"),
        (RankDelay(bound=Bound.GPU, kernel="gemm"), ", which is GPU-bound in gemm"),
        (RankDelay(bound=Bound.COMMUNICATION, rank="rank 3"), ", which waits in NCCL for rank 3"),
        (RankDelay(bound=Bound.COMMUNICATION), ", which is communication-bound"),
    ],
)  # fmt: skip
def test_why_a_rank_is_late_is_a_clause(delay: RankDelay | None, clause: str) -> None:
    assert late_clause(delay) == clause


def recorded(rows: Int64s) -> Kernels:
    """Recorded kernels, int64[n][3]: when each began and ended (ns), and the number of its name."""
    starts, ends, names = rows.T
    return Kernels(starts, ends, names, np.zeros_like(names), np.ones(len(rows), dtype=np.bool_))


@pytest.mark.parametrize("run", ["none", "gpu"])
def test_recorded_collectives_just_behind_each_other_are_matched(run: str) -> None:
    """On two H100 the small all-reduce ends 10 to 30 us after the large one, whose ends differ by as much."""
    with np.load(RECORDED / "ranks" / "h100x2.npz") as data:
        first, second = (recorded(data[f"{run}_{rank}"]) for rank in range(2))
    found = match(first, second)
    assert found is not None
    assert (found.matched, found.eligible, found.ambiguous) == (386, 386, False)
    assert np.array_equal(found.first, found.second)


def test_a_name_that_one_process_alone_has_is_matched_by_what_the_kernel_does() -> None:
    first, second, _ = collectives(3, 60, 0, 20 * US)
    found = match(first, replace(second, names=second.names + 1))
    assert found is not None
    assert found.matched == 60
