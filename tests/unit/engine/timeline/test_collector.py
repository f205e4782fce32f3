"""The collector: records of a fake CUPTI reach the probes' phases and the ring; switching on and off; refusals."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import pytest

from factories.fake_cupti import NEWEST, FakeCupti, record, request
from factories.timeline_values import TimelineSnapshot, snapshot_of
from factories.waiting import wait_until
from stallprobes import catalog
from stallprobes.catalog import Placement, on_shared_stream
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.gpu_work import StreamUse, submissions, timeline_channels
from stallprobes.engine.timeline.collector import SUBMITTING_CALLS, Collector
from stallprobes.engine.timeline.reader import read_rows
from stallprobes.model import (
    PRIMARY,
    SECONDARY,
    Buffer,
    Channel,
    Context,
    Op,
    Phase,
    Probe,
    Program,
    Role,
    Space,
    Stream,
    StreamKind,
)
from stallprobes.native.layouts.board import CALL_FIRST, CALL_MEASURED, HOST_CALLS, ProbeState
from stallprobes.native.layouts.cupti import BufferState, RecordKind
from stallprobes.native.layouts.timeline import CLOCK_SAMPLES, IDS, SWITCH_TO_WORK_NS
from stallprobes.native.library import core
from stallprobes.records.timeline import BEGINNING, TimelineProblem, TimelineUnavailable

US = 1_000
CONTEXT_NUMBERS = {"primary": 1, "secondary": 2}
PRIMARY_NUMBER = CONTEXT_NUMBERS["primary"]
# The GPU's clock is near the time since 1970.
GPU_OFFSET_NS = 1_795_331_849_675_918_124


def probe(entry: str, placement: Placement | None = None, name: str = "") -> Probe:
    made = catalog.entries()[entry].probe(placement or Placement())
    return replace(made, name=name or entry)


class Rig:
    """Probes on a board, a fake CUPTI, and a collector; stream handle ``n`` is that of the n-th probe."""

    def __init__(self, *probes: Probe, cupti: FakeCupti | None = None, shared: bool = False) -> None:
        self.probes = probes
        self.board = Board.create(BoardLayout.of(probes))
        self.cupti = cupti or FakeCupti()
        uses = [
            StreamUse(each.name, stream, CONTEXT_NUMBERS[stream.context.name], 7 if shared else number)
            for number, each in enumerate(probes)
            for stream in dict.fromkeys(work.stream for work in submissions(each.program))
        ]
        threads = {each.name: 1000 + number for number, each in enumerate(probes)}
        self.clock_offset_ns: int | None = 0
        self.clock_reads: list[Context] = []
        self.idle = True
        self.collector = Collector(
            lambda: self.cupti, self.board, probes, uses, lambda: threads, self.read_clock, self.wait_idle
        )
        # There are no loops that could be held.
        for each in probes:
            self.board[each.name].words.state = ProbeState.ENDED

    def read_clock(self, context: Context) -> int | None:
        self.clock_reads.append(context)
        return self.clock_offset_ns

    def wait_idle(self, seconds: float) -> bool:
        assert seconds < 1
        assert self.board.header.hold
        return self.idle

    def on(self) -> None:
        self.collector.switch(True)
        wait_until(lambda: self.collector.settled, "the switch", 60)

    def off(self) -> None:
        self.collector.switch(False)
        wait_until(lambda: self.collector.settled, "the switch", 60)

    def call(self, name: str, began_ns: int, returned_ns: int, op: int = 0, bits: int = CALL_MEASURED) -> None:
        part = self.board[name]
        head = int(part.words.host_calls)
        part.host_calls[head % HOST_CALLS] = began_ns, returned_ns, op | bits, head
        part.words.host_calls = head + 1

    def iterate(self, name: str, iteration: int, *calls: tuple[int, int, int]) -> None:
        """Calls of one iteration: began, returned and op of each."""
        for began_ns, returned_ns, op in calls:
            self.call(name, began_ns, returned_ns, op)
            part = self.board[name]
            part.host_calls["iteration"][(int(part.words.host_calls) - 1) % HOST_CALLS] = iteration

    def rounds(self, count: int = 2) -> TimelineSnapshot:
        """The timeline after ``count`` whole rounds of the collector."""
        words = self.board.timeline.words
        until = words.rounds + count
        while words.rounds < until:
            time.sleep(0.001)
        return self.snapshot()

    def snapshot(self) -> TimelineSnapshot:
        return snapshot_of(read_rows(self.board, BEGINNING, self.collector.status), self.board.layout.names)

    def values(self, name: str, phase: Phase, label: str = "") -> tuple[int, int]:
        """Number and maximum of the values of a channel."""
        found = self.board.snapshot(1).probes[name].channels[Channel(phase, label)]
        return found.count, found.max_ns


@pytest.fixture(name="rig")
def _rig() -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []
    core().discard_buffers(1)

    def make(*probes: Probe, cupti: FakeCupti | None = None, shared: bool = False) -> Rig:
        made.append(Rig(*probes, cupti=cupti, shared=shared))
        return made[-1]

    yield make
    for each in made:
        each.collector.stop(10)


def kernel(start: int, end: int, stream: int = 0, **more: int) -> bytes:
    fields = {"context": PRIMARY_NUMBER, "device": 0, "correlation": 0} | more
    return record(RecordKind.KERNEL, start=start, end=end, stream=stream, **fields)


def test_a_record_gives_start_and_gpu_of_its_call(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    one.call("launch", 1_000_000, 1_003_000)
    one.cupti.put(kernel(1_005_260, 1_006_460))
    seen = one.rounds()
    [interval] = seen.intervals
    assert (interval.probe, interval.op, interval.iteration) == ("launch", 0, 0)
    assert (interval.began_ns, interval.returned_ns, interval.delay_ns) == (1_000_000, 1_003_000, 2_260)
    assert one.values("launch", Phase.START) == (1, 2_260)
    assert one.values("launch", Phase.GPU) == (1, 1_200)
    assert one.values("launch", Phase.EARLY) == (0, 0)
    assert seen.losses.lost == seen.losses.unmatched == seen.losses.unanswered == 0


def test_a_start_before_the_return_is_counted_by_its_magnitude(rig: Callable[..., Rig]) -> None:
    one = rig(probe("d2h-pageable"))
    one.on()
    one.call("d2h-pageable", 1_000_000, 1_030_000)
    one.cupti.put(
        record(RecordKind.COPY, start=1_010_000, end=1_029_000, context=1, stream=0, correlation=0, device=0,
               bytes=4096, subkind=2, source=3, target=1)
    )  # fmt: skip
    [interval] = one.rounds().intervals
    assert (interval.delay_ns, interval.nbytes, interval.copy, interval.memory) == (-20_000, 4096, 2, (3, 1))
    assert one.values("d2h-pageable", Phase.EARLY) == (1, 20_000)
    assert one.values("d2h-pageable", Phase.START) == (0, 0)


def test_calls_that_are_not_measured_are_shown_and_not_counted(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    one.call("launch", 1_000_000, 1_003_000, bits=CALL_MEASURED | CALL_FIRST)
    one.call("launch", 2_000_000, 2_003_000, bits=0)
    one.cupti.put(kernel(1_013_000, 1_014_000), kernel(2_005_000, 2_006_000))
    assert [each.iteration for each in one.rounds().intervals] == [0, 1]
    assert one.values("launch", Phase.START) == (0, 0)
    assert one.board.snapshot(1).probes["launch"].first_ns[Channel(Phase.START)] is None
    one.board["launch"].words.iterations = 1
    assert one.board.snapshot(1).probes["launch"].first_ns[Channel(Phase.START)] == 10_000


def test_a_record_waits_until_its_call_has_returned(rig: Callable[..., Rig]) -> None:
    one = rig(probe("d2h-pageable"))
    one.on()
    one.cupti.put(record(RecordKind.COPY, start=1_010_000, end=1_029_000, context=1, stream=0, correlation=0))
    assert not one.rounds().intervals
    one.call("d2h-pageable", 1_000_000, 1_030_000)
    [interval] = one.rounds().intervals
    assert interval.probe == "d2h-pageable"


def test_after_a_lost_record_the_next_one_finds_its_call(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    for number in range(1, 6):
        one.call("launch", number * 1_000_000, number * 1_000_000 + 3_000)
        one.call("launch", number * 1_000_000 + 4_000, number * 1_000_000 + 10_000, op=1)
    one.cupti.put(*(kernel(number * 1_000_000 + 5_000, number * 1_000_000 + 6_000) for number in (1, 4, 5)))
    seen = one.rounds()
    assert [each.delay_ns for each in seen.intervals] == [2_000] * 3
    assert seen.losses.unanswered == 2
    assert one.values("launch", Phase.START) == (3, 2_000)


def two_copies(*, awaited: bool) -> Probe:
    """A probe with two copies in each iteration, which waits for their stream after both or between them."""
    target, source, stream = Buffer("target", Space.PINNED, 4096), Buffer("source", Space.DEVICE, 4096), Stream()
    copied = Op("cuMemcpyDtoHAsync", (target, source, 4096, stream))
    wait = Op("cuStreamSynchronize", (stream,), Phase.WAIT)
    ops = (copied, copied, wait) if awaited else (copied, wait, copied)
    return Probe("copies", "copies", Role.VICTIM, Program(ops), 1_000_000, "copies")


@pytest.mark.parametrize("awaited", [True, False])
def test_a_call_without_a_record_does_not_take_that_of_the_next_iteration(
    rig: Callable[..., Rig], awaited: bool
) -> None:
    one = rig(two_copies(awaited=awaited))
    one.on()
    second = submissions(one.probes[0].program)[1].op
    for number in range(4):
        began = (number + 1) * 1_000_000
        one.iterate("copies", number, (began, began + 10_000, 0), (began + 20_000, began + 30_000, second))
        one.cupti.put(copy(began + 12_000, began + 14_000))
    seen = one.rounds()
    found = [(each.iteration, each.op, each.delay_ns) for each in seen.intervals]
    if awaited:
        assert found == [(number, 0, 2_000) for number in range(4)]
        assert one.values("copies", Phase.START) == (4, 2_000)
    else:
        # The second copy may start in the next iteration: nothing says that it did not.
        assert found[1] == (0, second, 982_000)


def test_calls_in_a_queue_are_matched_in_their_order(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch-then-open"))
    one.on()
    for number in range(20):
        one.call("launch-then-open", 1_000_000 + 5_000 * number, 1_003_000 + 5_000 * number)
    one.cupti.put(*(kernel(9_000_000 + 100_000 * number, 9_090_000 + 100_000 * number) for number in range(20)))
    seen = one.rounds()
    assert [each.iteration for each in seen.intervals] == list(range(20))
    assert seen.losses.unanswered == seen.losses.unmatched == 0


def test_a_graph_has_several_records_and_one_time_on_the_gpu(rig: Callable[..., Rig]) -> None:
    one = rig(probe("graph-launch"))
    [work] = submissions(one.probes[0].program)
    one.on()
    one.call("graph-launch", 1_000_000, 1_003_000)
    nodes = [kernel(1_010_000 + 2_000 * node, 1_011_000 + 2_000 * node) for node in range(work.records)]
    one.cupti.put(*nodes)
    seen = one.rounds()
    assert [each.probe for each in seen.intervals] == ["graph-launch"] * work.records
    assert one.values("graph-launch", Phase.START) == (1, 7_000)
    assert one.values("graph-launch", Phase.GPU) == (1, 2_000 * (work.records - 1) + 1_000)


def test_labels_have_phases_of_their_own_and_events_keep_the_time_on_the_gpu(rig: Callable[..., Rig]) -> None:
    one = rig(probe("scalar-readback"))
    program = one.probes[0].program
    assert all(channel.phase is not Phase.GPU for channel in timeline_channels(program))
    kernels = [work for work in submissions(program) if work.label == "reduction kernel"]
    one.on()
    one.call("scalar-readback", 1_000_000, 1_003_000, op=kernels[0].op)
    one.cupti.put(kernel(1_008_000, 6_008_000))
    one.rounds()
    assert one.values("scalar-readback", Phase.START, "reduction kernel") == (1, 5_000)
    assert one.values("scalar-readback", Phase.START, "final kernel") == (0, 0)
    assert one.values("scalar-readback", Phase.START) == (1, 5_000)


def test_on_a_shared_stream_the_correlation_id_finds_the_thread(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch", on_shared_stream(), "first"), probe("launch", on_shared_stream(), "second"), shared=True)
    one.on()
    assert RecordKind.DRIVER_CALL in one.collector.status.kinds
    # Waits and polls would be most of the records.
    assert len(one.cupti.left_out) > 1000
    assert one.cupti.left_out.isdisjoint(SUBMITTING_CALLS)
    one.call("first", 1_000_000, 1_010_000)
    one.call("second", 1_001_000, 1_003_000)
    calls = [
        record(RecordKind.DRIVER_CALL, subkind=307, start=start, end=end, thread=thread, correlation=number)
        for number, thread, start, end in ((5, 1001, 1_001_100, 1_002_900), (6, 1000, 1_000_100, 1_009_900))
    ]
    one.cupti.put(
        kernel(1_005_000, 1_006_000, 7, correlation=5), kernel(1_011_000, 1_012_000, 7, correlation=6), *calls
    )
    assert [each.probe for each in one.rounds().intervals] == ["second", "first"]
    assert one.values("first", Phase.START) == (1, 1_000)
    assert one.values("second", Phase.START) == (1, 2_000)


def test_without_records_of_calls_work_on_a_shared_stream_is_nobodys(rig: Callable[..., Rig]) -> None:
    probes = [probe("launch", on_shared_stream(), name) for name in ("first", "second")]
    one = rig(*probes, shared=True, cupti=FakeCupti(refused={RecordKind.DRIVER_CALL: 14}))
    one.on()
    one.call("first", 1_000_000, 1_010_000)
    one.cupti.put(kernel(1_011_000, 1_012_000, 7, correlation=6))
    one.rounds()
    one.off()
    seen = one.snapshot()
    assert [each.probe for each in seen.intervals] == [None]
    assert seen.losses.unmatched == 1


def read_back(name: str) -> Probe:
    """A probe that copies four bytes to the host, without naming a stream."""
    source, target = Buffer("source", Space.DEVICE, 4096), Buffer("target", Space.PAGEABLE, 4)
    program = Program((Op("cuMemcpyDtoH", (target, source, 4)),))
    return Probe(name, name, Role.VICTIM, program, 1_000_000, name)


def copy(start: int, end: int, correlation: int = 0, stream: int = 0) -> bytes:
    fields = {"context": PRIMARY_NUMBER, "device": 0, "correlation": correlation}
    return record(RecordKind.COPY, start=start, end=end, stream=stream, subkind=2, **fields)


def test_a_call_without_a_stream_has_its_record_on_the_default_stream(rig: Callable[..., Rig]) -> None:
    one = rig(read_back("read"))
    [use] = submissions(one.probes[0].program)
    assert (use.stream.kind, use.stream.context) == (StreamKind.NULL, PRIMARY)
    one.on()
    # What another call of the context, such as loading a module, has put on the default stream.
    one.cupti.put(copy(900_000, 901_000))
    for number in range(1, 5):
        one.call("read", number * 1_000_000, number * 1_000_000 + 30_000)
    # The record of the second call is lost.
    one.cupti.put(*(copy(number * 1_000_000 + 10_000, number * 1_000_000 + 12_000) for number in (1, 3, 4)))
    seen = one.rounds()
    assert [(each.probe, each.iteration, each.delay_ns) for each in seen.intervals] == [
        (None, None, None),
        ("read", 0, -20_000),
        ("read", 2, -20_000),
        ("read", 3, -20_000),
    ]
    assert (seen.losses.unmatched, seen.losses.unanswered) == (1, 1)
    assert one.values("read", Phase.EARLY) == (3, 20_000)


def test_calls_of_two_threads_on_the_default_stream_are_told_apart_by_their_driver_calls(
    rig: Callable[..., Rig],
) -> None:
    one = rig(read_back("one"), read_back("other"), shared=True)
    one.on()
    for number, name in enumerate(("one", "other", "one", "other"), 1):
        began = number * 100_000
        one.call(name, began, began + 30_000)
        thread = 1000 if name == "one" else 1001
        fields = {"start": began + 1_000, "end": began + 29_000, "thread": thread, "correlation": number}
        one.cupti.put(record(RecordKind.DRIVER_CALL, subkind=278, **fields))
        one.cupti.put(copy(began + 10_000, began + 12_000, correlation=number, stream=7))
    seen = one.rounds()
    assert [each.probe for each in seen.intervals] == ["one", "other", "one", "other"]
    assert seen.losses.unmatched == seen.losses.unanswered == 0


def test_work_of_an_unknown_stream_is_shown_without_a_call(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    one.cupti.put(kernel(1_000_000, 1_001_000, stream=99))
    seen = one.rounds()
    assert [(each.probe, each.delay_ns, each.stream) for each in seen.intervals] == [(None, None, 99)]
    assert seen.losses.unmatched == 1


# The two halves of a staged copy to another GPU, as an H200 records them: the first on the call's stream, the second on
# a stream of the driver's own in the context of the other GPU, with the same correlation id.


def driver_call(number: int, began: int, returned: int, correlation: int, thread: int = 1000) -> bytes:
    """The record of the call of the driver with the ``number`` of its function, within the probe's call."""
    fields = {"start": began + 100, "end": returned - 100, "thread": thread, "correlation": correlation}
    return record(RecordKind.DRIVER_CALL, subkind=number, **fields)


def peer_copy(one: Rig, began: int, returned: int, correlation: int) -> None:
    """A call of the probe ``peer-copy`` and its record."""
    one.call("peer-copy", began, returned)
    one.cupti.put(driver_call(319, began, returned, correlation))


def first_half(start: int, correlation: int) -> bytes:
    fields = {"context": PRIMARY_NUMBER, "device": 0, "stream": 0, "correlation": correlation, "bytes": 1 << 20}
    return record(RecordKind.COPY, start=start, end=start + 21 * US, subkind=2, source=3, target=3, **fields)


def second_half(start: int, correlation: int) -> bytes:
    fields = {"context": 9, "device": 1, "stream": 17, "correlation": correlation, "bytes": 1 << 20}
    return record(RecordKind.COPY, start=start, end=start + 21 * US, subkind=1, source=3, target=3, **fields)


def test_the_second_half_of_a_staged_copy_belongs_to_its_call(rig: Callable[..., Rig]) -> None:
    one = rig(probe("peer-copy"))
    one.on()
    peer_copy(one, 1_000_000, 1_040_000, 519)
    one.cupti.put(first_half(1_025_000, 519), second_half(94_000_000, 519))
    seen = one.rounds()
    assert [(each.probe, each.op, each.iteration, each.delay_ns) for each in seen.intervals] == [
        ("peer-copy", 0, 0, -15_000),
        ("peer-copy", 0, 0, 92_960_000),
    ]
    assert [(each.device, each.context, each.stream) for each in seen.intervals] == [(0, 1, 0), (1, 9, 17)]
    assert seen.losses.unmatched == seen.losses.unanswered == 0
    # The call's work starts on its own stream; what is between its halves is a delay.
    assert one.values("peer-copy", Phase.EARLY) == (1, 15_000)
    assert one.values("peer-copy", Phase.START) == (0, 0)
    assert one.values("peer-copy", Phase.GPU) == (1, 42_000)


def test_the_time_on_the_gpu_of_a_staged_copy_is_counted_once_and_with_its_second_half(
    rig: Callable[..., Rig],
) -> None:
    one = rig(probe("peer-copy"))
    one.on()
    peer_copy(one, 1_000_000, 1_040_000, 519)
    peer_copy(one, 2_000_000, 2_040_000, 520)
    one.cupti.put(first_half(1_025_000, 519), first_half(2_025_000, 520))
    one.rounds()
    assert one.values("peer-copy", Phase.GPU) == (0, 0)
    one.cupti.put(second_half(3_000_000, 520), second_half(3_100_000, 519), second_half(3_200_000, 519))
    one.rounds()
    assert one.values("peer-copy", Phase.GPU) == (2, 42_000)


def test_a_copy_to_the_host_has_no_second_half(rig: Callable[..., Rig]) -> None:
    one = rig(probe("d2h-pinned"))
    one.on()
    one.call("d2h-pinned", 1_000_000, 1_040_000)
    fields = {"context": PRIMARY_NUMBER, "stream": 0, "correlation": 7, "bytes": 4096, "source": 3, "target": 2}
    one.cupti.put(record(RecordKind.COPY, start=1_050_000, end=1_060_000, subkind=2, **fields))
    one.rounds()
    assert one.values("d2h-pinned", Phase.GPU) == (1, 10_000)


def test_a_second_half_belongs_to_its_own_call_whatever_was_called_since(rig: Callable[..., Rig]) -> None:
    one = rig(probe("peer-copy"))
    one.on()
    for number in range(4):
        began = 1_000_000 * (number + 1)
        peer_copy(one, began, began + 40_000, 7 + number)
        one.cupti.put(first_half(began + 50_000, 7 + number))
    one.rounds()
    one.cupti.put(*(second_half(9_000_000 + 30_000 * number, 7 + number) for number in range(4)))
    seen = one.rounds()
    assert [each.iteration for each in seen.intervals] == [0, 1, 2, 3] * 2
    assert seen.losses.unmatched == 0


def test_a_second_half_waits_while_the_first_one_does(rig: Callable[..., Rig]) -> None:
    one = rig(probe("peer-copy"))
    one.on()
    one.cupti.put(first_half(1_025_000, 5), second_half(1_060_000, 5))
    assert not one.rounds().intervals
    peer_copy(one, 1_000_000, 1_500_000, 5)
    seen = one.rounds()
    assert [each.probe for each in seen.intervals] == ["peer-copy"] * 2
    assert seen.losses.unmatched == 0


@pytest.mark.parametrize(
    ("start", "correlation"),
    [(2_000_000, 6), (2_000_000, 0), (2_000_000, 5 + IDS), (900_000, 5)],
    ids=["another id", "no id", "an id at the same place", "before the call"],
)
def test_work_of_another_call_is_not_linked(rig: Callable[..., Rig], start: int, correlation: int) -> None:
    one = rig(probe("peer-copy"))
    one.on()
    peer_copy(one, 1_000_000, 1_040_000, 5)
    one.cupti.put(first_half(1_050_000, 5), second_half(start, correlation))
    seen = one.rounds()
    assert {each.stream: each.probe for each in seen.intervals} == {0: "peer-copy", 17: None}
    assert seen.losses.unmatched == 1


def test_ids_of_before_a_switch_are_not_linked(rig: Callable[..., Rig]) -> None:
    one = rig(probe("peer-copy"))
    one.on()
    peer_copy(one, 1_000_000, 1_040_000, 5)
    one.cupti.put(first_half(1_050_000, 5))
    one.rounds()
    one.off()
    one.on()
    one.cupti.put(second_half(2_000_000, 5))
    assert [each.probe for each in one.rounds().intervals] == ["peer-copy", None]


@pytest.mark.parametrize("entry", ["host-relay-naive", "peer-copy-direct"])
def test_work_of_a_call_that_uses_two_gpus_is_found_on_a_stream_of_the_drivers(
    rig: Callable[..., Rig], entry: str
) -> None:
    """As an H200 records the second copy of the relay: in the other GPU's context, and with its own id."""
    one = rig(probe("launch"), probe(entry))
    one.on()
    last = len(submissions(one.probes[1].program)) - 1
    for number in range(3):
        began, correlation = 1_000_000 * (number + 1), 10 * number + 5
        if last:
            one.call(entry, began - 50_000, began - 30_000, op=0)
            copied = driver_call(279, began - 50_000, began - 30_000, correlation - 1, 1001)
            one.cupti.put(copied, copy(began - 20_000, began - 1_000, correlation - 1, stream=1))
        one.call(entry, began, began + 20_000, op=last)
        fields = {"context": 9, "device": 1, "stream": 19, "correlation": correlation}
        start = began + 25_000
        work = record(RecordKind.PEER_COPY, start=start, end=start + 21_000, subkind=10, source=2, target=3, **fields)
        one.cupti.put(driver_call(277, began, began + 20_000, correlation, 1001), work)
    seen = one.rounds()
    found = [(each.probe, each.op, each.iteration, each.delay_ns) for each in seen.intervals if each.stream == 19]
    assert found == [(entry, last, number * (1 + last) + last, 5_000) for number in range(3)]
    assert seen.losses.unmatched == seen.losses.unanswered == 0
    assert one.values(entry, Phase.START) == (3 * (1 + last), 10_000 if last else 5_000)


def test_work_of_a_thread_without_a_track_waits_for_no_call(rig: Callable[..., Rig]) -> None:
    one = rig(probe("peer-copy"))
    one.on()
    one.cupti.put(driver_call(307, 900_000, 910_000, 3, thread=77), kernel(905_000, 907_000, stream=99, correlation=3))
    seen = one.rounds()
    assert [each.probe for each in seen.intervals] == [None]
    assert seen.losses.unmatched == 1


def test_without_records_of_calls_copies_to_another_gpu_are_matched_in_their_order(rig: Callable[..., Rig]) -> None:
    one = rig(probe("peer-copy"), cupti=FakeCupti(refused={RecordKind.DRIVER_CALL: 14}))
    one.on()
    assert RecordKind.DRIVER_CALL not in one.collector.status.kinds
    one.call("peer-copy", 1_000_000, 1_040_000)
    one.cupti.put(first_half(1_050_000, 5))
    assert [each.probe for each in one.rounds().intervals] == ["peer-copy"]


def test_context_switches_and_overheads_are_in_the_ring(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    one.cupti.put(
        record(RecordKind.CONTEXT_SWITCH, context=2, start=3_000_000, subkind=2),
        record(RecordKind.CONTEXT_SWITCH, context=1, start=3_082_000, subkind=1),
        record(RecordKind.CONTEXT_SWITCH, context=1, start=5_300_000, subkind=2),
        record(RecordKind.OVERHEAD, subkind=6 << 16, start=4_000_000, end=4_500_000),
    )
    seen = one.rounds()
    assert [(each.context, each.at_ns, each.starts) for each in seen.switches] == [
        (2, 3_000_000, False), (1, 3_082_000, True), (1, 5_300_000, False),
    ]  # fmt: skip
    assert [(each.context, each.start_ns, each.end_ns) for each in seen.tenures()] == [(1, 3_082_000, 5_300_000)]
    assert [(each.reason, each.end_ns - each.start_ns) for each in seen.overheads] == [(6 << 16, 500_000)]


def test_a_reader_gets_each_record_once_and_calls_besides(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    one.call("launch", 1_000_000, 1_003_000)
    one.cupti.put(kernel(1_005_000, 1_006_000))
    first = one.rounds()
    one.call("launch", 2_000_000, 2_003_000, bits=0)
    second = snapshot_of(read_rows(one.board, first.position, one.collector.status), one.board.layout.names)
    assert len(first.intervals) == len(first.calls) == 1
    assert not second.intervals
    assert [(call.probe, call.iteration, call.measured) for call in second.calls] == [("launch", 1, False)]


def test_dropped_records_and_missing_buffers_are_counted(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    one.cupti.dropped = 3
    assert one.rounds().losses.dropped == 3
    one.cupti.put(kernel(0, 0))
    assert one.rounds().losses.dropped == 4
    # All buffers are with CUPTI, so it drops what it cannot store.
    for buffer in core().pool.states:
        buffer.state = BufferState.WITH_CUPTI
    one.cupti.put(*[kernel(1_000_000, 1_001_000, 99)] * 5)
    seen = one.rounds()
    assert (seen.losses.dropped, seen.losses.exhausted) == (9, 1)
    core().discard_buffers(1)


def test_more_records_than_fit_into_one_batch_lose_none(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    count = 12_000
    one.cupti.put(*(kernel(1_000_000 + number, 1_000_001 + number, 99) for number in range(count)))
    seen = one.rounds(3)
    assert [each.start_ns - 1_000_000 for each in seen.intervals] == list(range(count))
    assert seen.cost.records == count


def test_channels_appear_with_the_timeline(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    before = one.board.snapshot(1).probes["launch"]
    assert not {channel.phase for channel in before.channels} & {Phase.START, Phase.EARLY, Phase.GPU}
    one.on()
    one.call("launch", 1_000_000, 1_003_000)
    one.cupti.put(kernel(1_005_000, 1_006_000))
    one.rounds()
    window = one.board.snapshot(2).probes["launch"].minus(before)
    assert window.channels[Channel(Phase.START)].count == 1


def test_off_means_that_nothing_is_subscribed(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    assert not one.cupti.subscriptions
    one.on()
    assert one.cupti.subscribed
    assert one.cupti.enabled == {10, 1, 22, 2, 17, 57}
    assert one.board.timeline.words.on
    one.off()
    assert not one.cupti.subscribed
    assert not one.cupti.enabled
    assert not one.board.timeline.words.on
    assert not one.collector.status.on
    flushes = len(one.cupti.flags)
    one.cupti.put(kernel(1_000_000, 1_001_000))
    time.sleep(0.03)
    assert len(one.cupti.flags) == flushes


def test_calls_are_recorded_until_the_probes_rest_and_the_last_round_has_their_records(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    recorded = []

    def call_that_returns_late(seconds: float) -> bool:
        recorded.append(one.board.timeline.words.on)
        one.call("launch", 1_000_000, 1_010_000)
        one.cupti.put(kernel(1_012_000, 1_013_000))
        return True

    one.collector._wait_idle = call_that_returns_late
    one.off()
    assert recorded == [True]
    seen = one.snapshot()
    assert [each.probe for each in seen.intervals] == ["launch"]
    assert seen.losses.unmatched == 0


def test_the_last_flush_is_forced_and_brings_what_is_left(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    one.call("launch", 1_000_000, 1_003_000)
    one.rounds()
    one.cupti.put(kernel(1_005_000, 1_006_000))
    one.off()
    assert one.cupti.flags[-1] == 1
    assert [each.probe for each in one.snapshot().intervals] == ["launch"]


def test_off_detaches_cupti_from_the_process(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    held, size = request(one.cupti.native)
    assert held
    assert size
    one.off()
    assert one.cupti.detached == 1
    assert not one.board.header.hold
    # CUPTI no longer knows the buffer that it held.
    assert all(buffer.state == BufferState.FREE for buffer in core().pool.states)


@pytest.mark.parametrize("refused", ["detach", "finalize"])
def test_a_cupti_that_cannot_be_detached_is_unsubscribed(rig: Callable[..., Rig], refused: str) -> None:
    one = rig(probe("launch"), cupti=FakeCupti(refused={refused: 14}))
    one.on()
    one.off()
    assert not one.cupti.detached
    assert not one.cupti.subscribed
    assert not one.board.header.hold


def test_cupti_stays_attached_while_work_lasts_and_is_detached_afterwards(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    one.idle = False
    one.off()
    assert not one.collector.status.on
    assert not one.cupti.enabled
    assert not one.cupti.detached
    assert not one.board.header.hold
    one.idle = True
    wait_until(lambda: one.cupti.detached == 1, "the detaching")
    wait_until(lambda: not one.board.header.hold, "the end of the hold")


def test_the_probes_are_held_while_cupti_is_attached_and_kinds_are_enabled(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    held: list[tuple[str, bool]] = []
    subscribe, enable = one.cupti.subscribe, one.cupti.enable

    def subscribing(callback: int) -> tuple[int, int]:
        held.append(("subscribe", bool(one.board.header.hold)))
        return subscribe(callback)

    def enabling(kind: int) -> int:
        held.append(("enable", bool(one.board.header.hold)))
        return enable(kind)

    one.cupti.subscribe, one.cupti.enable = subscribing, enabling  # type: ignore[method-assign]
    one.on()
    assert set(held) == {("subscribe", True), ("enable", True)}
    assert not one.board.header.hold


def test_nothing_is_held_while_a_call_lasts(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    words = one.board["launch"].words
    words.inflight_since_ns = 1
    words.inflight_op = 1
    one.idle = False
    one.off()
    assert not one.cupti.detached
    # Switching it on again ends the old subscription.
    one.on()
    assert one.cupti.subscriptions == 2
    words.inflight_op = 0
    one.idle = True
    one.off()
    assert one.cupti.detached


def test_the_end_of_the_engine_detaches_nothing(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.on()
    assert one.collector.stop(60)
    assert not one.cupti.detached
    assert not one.cupti.subscribed


def test_a_hundred_times_on_and_off(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    for _ in range(100):
        one.on()
        one.off()
    assert one.cupti.subscriptions == 100
    assert not one.cupti.subscribed
    one.on()
    one.call("launch", 1_000_000, 1_003_000)
    one.cupti.put(kernel(1_005_000, 1_006_000))
    assert len(one.rounds().intervals) == 1


def test_switches_faster_than_they_take_effect_end_with_the_last_one(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    for _ in range(50):
        one.collector.switch(True)
        one.collector.switch(False)
    one.collector.switch(True)
    wait_until(lambda: one.collector.settled, "the switch", 60)
    assert one.collector.status.on
    assert one.cupti.subscribed


@pytest.mark.parametrize(
    ("refused", "problem"),
    [
        ({"subscribe": 39}, TimelineProblem.TAKEN),
        ({"subscribe": 15}, TimelineProblem.LIBRARY_TOO_NEW),
        ({10: 41}, TimelineProblem.CONFIDENTIAL_COMPUTING),
        ({10: 33}, TimelineProblem.VIRTUAL_GPU),
        ({1: 999}, TimelineProblem.FAILED),
    ],
)
def test_a_refusal_is_a_state_with_a_sentence_and_leaves_nothing_on(
    rig: Callable[..., Rig], refused: Mapping[str | int, int], problem: TimelineProblem
) -> None:
    one = rig(probe("launch"), cupti=FakeCupti(refused=refused))
    one.on()
    status = one.collector.status
    assert (status.on, status.problem) == (False, problem)
    assert status.found
    assert status.do
    assert not one.cupti.enabled
    assert not one.cupti.subscribed
    # What was attached is detached.
    assert one.cupti.detached == ("subscribe" not in refused)
    assert not one.board.header.hold
    one.cupti.refused.clear()
    one.on()
    assert one.collector.status.on


def test_a_library_that_is_missing_is_a_state(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))

    def load() -> FakeCupti:
        raise TimelineUnavailable(TimelineProblem.NO_LIBRARY, "libcupti was not found", "pip install it")

    collector = Collector(load, one.board, one.probes, [], dict, one.read_clock, one.wait_idle)
    collector.switch(True)
    wait_until(lambda: collector.settled, "the switch", 60)
    assert collector.status.sentence == "the timeline is not available: libcupti was not found; pip install it"
    assert collector.stop(10)


def work_ns(number: int) -> int:
    """When the work of a turn of 2.4 ms starts, on the host's clock."""
    return 1_000_000_000 + number * 2_394 * US


def turn(number: int, offset_ns: int, delay_ns: int = SWITCH_TO_WORK_NS) -> list[bytes]:
    """The records of a turn: the secondary context gets the engine, works, and leaves it."""
    context, start, gpu_ns = CONTEXT_NUMBERS["secondary"], work_ns(number), work_ns(number) - delay_ns + offset_ns
    return [
        record(RecordKind.CONTEXT_SWITCH, context=context, start=gpu_ns, subkind=1),
        record(RecordKind.CONTEXT_SWITCH, context=context, start=gpu_ns + 63 * US, subkind=2),
        record(RecordKind.COPY, start=start, end=start + US, context=context, stream=0, correlation=0, device=0,
               bytes=4096, subkind=8, source=3, target=3),
    ]  # fmt: skip


def switched_to(seen: TimelineSnapshot) -> list[int]:
    """How long before its work each switch to the context was, in ns."""
    return [work_ns(number) - each.at_ns for number, each in enumerate(each for each in seen.switches if each.starts)]


def test_context_switches_are_converted_from_the_clock_of_the_gpu(rig: Callable[..., Rig]) -> None:
    one = rig(probe("d2d", Placement(SECONDARY)))
    one.clock_offset_ns = GPU_OFFSET_NS
    one.on()
    one.cupti.put(*turn(0, GPU_OFFSET_NS), *turn(1, GPU_OFFSET_NS))
    assert switched_to(one.rounds()) == [SWITCH_TO_WORK_NS] * 2


@pytest.mark.parametrize("drift_ns", [1_000, -1_000])
def test_the_drift_of_the_clock_of_the_gpu_is_followed(rig: Callable[..., Rig], drift_ns: int) -> None:
    one = rig(probe("d2d", Placement(SECONDARY)))
    one.clock_offset_ns = GPU_OFFSET_NS + 10 * drift_ns
    one.on()
    for number in range(20 * CLOCK_SAMPLES):
        one.cupti.put(*turn(number, GPU_OFFSET_NS + number * drift_ns))
        if number % CLOCK_SAMPLES == 0:
            one.rounds()
    # The offset is the median of the last samples.
    assert abs(switched_to(one.rounds())[-1] - SWITCH_TO_WORK_NS) < 2 * CLOCK_SAMPLES * abs(drift_ns)


def test_work_that_starts_late_in_its_turn_does_not_move_the_offset(rig: Callable[..., Rig]) -> None:
    one = rig(probe("d2d", Placement(SECONDARY)))
    one.clock_offset_ns = GPU_OFFSET_NS
    one.on()
    late = [SWITCH_TO_WORK_NS + 1_700 * (number % 17) for number in range(4 * CLOCK_SAMPLES)]
    for number, delay_ns in enumerate(late):
        one.cupti.put(*turn(number, GPU_OFFSET_NS, delay_ns))
    assert switched_to(one.rounds()) == late


def test_the_clock_of_the_gpu_is_read_again_where_nothing_confirms_it(
    rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = rig(probe("launch"), probe("d2d", Placement(SECONDARY)))
    one.clock_offset_ns = GPU_OFFSET_NS
    times = iter((1,))
    now = one.board.now
    # As if it had been confirmed last when the machine started.
    monkeypatch.setattr(one.board, "now", lambda: next(times, None) or now())
    one.on()
    one.rounds()
    assert len(one.clock_reads) == 2


@pytest.mark.parametrize(
    ("cupti", "note"),
    [
        (FakeCupti(version=130_001), "older than 13.1"),
        (FakeCupti(version=28), "need a driver for CUDA 13"),
        (FakeCupti(refused={57: 14}), "refuses"),
    ],
)
def test_without_context_switches_the_rest_works(rig: Callable[..., Rig], cupti: FakeCupti, note: str) -> None:
    one = rig(probe("launch"), cupti=cupti)
    one.on()
    assert one.collector.status.on
    assert not one.collector.status.context_switches
    assert note in one.collector.status.note
    one.call("launch", 1_000_000, 1_003_000)
    one.cupti.put(
        record(RecordKind.KERNEL, cupti.version, start=1_005_000, end=1_006_000, context=1, stream=0, correlation=0)
    )
    assert [each.delay_ns for each in one.rounds().intervals] == [2_000]


def test_without_the_clock_of_the_gpu_there_are_no_context_switches(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"))
    one.clock_offset_ns = None
    one.on()
    assert one.collector.status.on
    assert RecordKind.CONTEXT_SWITCH not in one.cupti.enabled
    assert "the GPU's clock could not be read" in one.collector.status.note


def test_contexts_and_streams_have_names(rig: Callable[..., Rig]) -> None:
    one = rig(probe("launch"), probe("d2d", Placement(SECONDARY)))
    one.on()
    assert set(one.collector.status.contexts.values()) <= {"primary", "secondary"}
    assert one.collector.status.streams[PRIMARY_NUMBER, 0] == "own"
    assert one.collector.status.version == NEWEST
