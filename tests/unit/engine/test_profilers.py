"""Probes that profile their own process: addresses in libcupti, iterations with a made-up one, what they exclude."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from factories.fake_cupti import UNKNOWN, FakeCupti, record
from factories.waiting import wait_until
from stallprobes.catalog import Placement, entries
from stallprobes.engine.backend import Backend, Options, check_profilers, timeline_refusal
from stallprobes.engine.board import Board, BoardLayout
from stallprobes.engine.cuda import backend as cuda
from stallprobes.engine.cuda import resolver as resolving
from stallprobes.engine.cuda.devices import CudaDevice
from stallprobes.engine.cuda.libraries import CuptiFunctions
from stallprobes.engine.sim.backend import SimBackend
from stallprobes.errors import Unsupported
from stallprobes.model import Probe, Process
from stallprobes.native.layouts.board import ProbeState
from stallprobes.native.layouts.cupti import BufferState, RecordKind
from stallprobes.native.library import core
from stallprobes.patterns import patterns
from stallprobes.records.libcupti import matching
from stallprobes.records.timeline import OFF, UNAVAILABLE, TimelineProblem

NAMES = ["profiler", "profiler-sessions", "profiler-ended", "profiler-detached"]
SECOND = Placement(process=Process.SECOND)
GPU = CudaDevice(0, 0, "made up", "0", sms=132, threads_per_sm=2048, clock_khz=1_980_000)
SENTENCE = (
    f"{UNAVAILABLE}: the probe profiler uses CUPTI in the engine's process; switch the timeline on with other probes"
)


# The thread of a probe may still call its functions when a test has failed.
KEPT: list[FakeCupti] = []


def probes(*names: str) -> list[Probe]:
    return [entries()[name].probe() for name in names]


class FakeApi:
    """A driver that makes no context, since neither the profilers nor the host control have one."""

    version = 13_000

    def text(self, code: int) -> str:
        return f"driver's {code}"


@pytest.fixture(name="cupti")
def _cupti(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeCupti]:
    """A made-up libcupti in place of the machine's, and a made-up GPU."""
    made = FakeCupti()
    KEPT.append(made)
    monkeypatch.setattr(cuda, "Api", FakeApi)
    monkeypatch.setattr(cuda, "choose", lambda *_: [GPU])
    monkeypatch.setattr(resolving, "CuptiFunctions", lambda version: CuptiFunctions(version, lambda _: made))
    core().discard_buffers(1)
    yield made
    core().discard_buffers(1)


def backend(kind: str, *chosen: Probe, options: Options | None = None) -> tuple[Backend, Board]:
    made: Backend = cuda.CudaBackend() if kind == "cuda" else SimBackend()
    board = Board.create(BoardLayout.of(chosen))
    made.prepare(chosen, board, options or Options())
    return made, board


@pytest.mark.parametrize("kind", ["cuda", "sim"])
def test_the_timeline_is_refused_beside_a_profiler(cupti: FakeCupti, kind: str) -> None:
    made, board = backend(kind, *probes("host", "profiler"))
    assert made.timeline() == OFF
    made.switch_timeline(True)
    status = made.timeline()
    assert status is not None
    assert not status.on
    assert status.problem is TimelineProblem.TAKEN
    assert status.sentence == SENTENCE
    assert board.timeline.words.on == 0
    made.switch_timeline(False)
    assert made.timeline() == OFF
    assert cupti.subscriptions == 0


@pytest.mark.parametrize("kind", ["cuda", "sim"])
@pytest.mark.parametrize("name", NAMES)
def test_a_profiler_is_refused_where_the_timeline_is_on_from_the_beginning(
    cupti: FakeCupti, kind: str, name: str
) -> None:
    with pytest.raises(Unsupported, match=f"the probe {name} uses CUPTI in the engine's process") as caught:
        backend(kind, *probes("host", name), options=Options(timeline=True))
    assert caught.value.probes == (name,)


def test_a_profiler_of_the_second_process_leaves_the_engines_timeline_alone() -> None:
    other = entries()["profiler"].probe(SECOND, name="other")
    launch, *_ = probes("launch")
    assert timeline_refusal([other, launch]) is None
    check_profilers([other, launch], Options(timeline=True))
    made, _ = backend("sim", other, launch, options=Options(timeline=True))
    made.switch_timeline(True)
    status = made.timeline()
    assert status is not None
    assert status.on


@pytest.mark.parametrize("kind", ["cuda", "sim"])
@pytest.mark.parametrize("name", NAMES)
def test_no_profiler_runs_beside_graph_launches_of_its_process(cupti: FakeCupti, kind: str, name: str) -> None:
    with pytest.raises(Unsupported, match="beside the graph launches of graph-launch loses the context") as caught:
        backend(kind, *probes("graph-launch", name))
    assert caught.value.probes == (name,)
    check_profilers([*probes(name), entries()["graph-launch"].probe(SECOND)], Options())


def test_the_pattern_has_no_graph_launch() -> None:
    for variant in patterns()["profiler-on"].variants:
        check_profilers(variant.probes, Options())


def test_a_missing_library_makes_a_profiler_unsupported_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(version: int) -> Any:
        return matching(version, [])

    with pytest.raises(Unsupported) as caught:
        CuptiFunctions(13_000, missing).address("cuptiFinalize")
    assert caught.value.reason == "libcupti was not found; pip install nvidia-cuda-cupti"


def test_a_missing_function_is_unsupported() -> None:
    functions = CuptiFunctions(13_000, lambda _: FakeCupti())
    assert functions.address("cuptiFinalize")
    with pytest.raises(Unsupported, match=r"the libcupti at /nowhere/libcupti\.so\.13 has no cuptiNothing"):
        functions.address("cuptiNothing")


def test_the_library_is_loaded_once_and_for_a_profiler_only(cupti: FakeCupti, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    def load(version: int) -> FakeCupti:
        loaded.append(version)
        return cupti

    monkeypatch.setattr(resolving, "CuptiFunctions", lambda version: CuptiFunctions(version, load))
    backend("cuda", *probes("host"))
    assert loaded == []
    backend("cuda", *probes("host", *NAMES))
    assert loaded == [13_000]


def run_once(made: Backend, board: Board, name: str) -> None:
    """Run one iteration of the probe ``name`` in its thread, and end it."""
    made.start()
    board[name].words.run = 1
    wait_until(lambda: board.snapshot().probes[name].iterations, "an iteration", 20)
    board[name].words.run = 0
    board.header.quit = 1
    assert made.stop(2.0)


@pytest.mark.parametrize("name", NAMES)
def test_an_iteration_records_throws_the_records_away_and_detaches(cupti: FakeCupti, name: str) -> None:
    many = [record(RecordKind.KERNEL)] * 2_000

    def record_all() -> None:
        while not cupti.native:
            threading.Event().wait(0.001)
        cupti.put(*many)

    recording = threading.Thread(target=record_all)
    recording.start()
    made, board = backend("cuda", *probes("host", name))
    run_once(made, board, name)
    recording.join()
    assert made.poll() == []
    assert cupti.most_kinds == {RecordKind.KERNEL, RecordKind.COPY, RecordKind.MEMSET, RecordKind.DRIVER_CALL}
    assert cupti.enabled == set()
    assert cupti.detached >= 1
    assert core().pool.returned > 0
    assert {buffer.state for buffer in core().pool.states} == {BufferState.FREE}


def test_two_profilers_never_profile_at_the_same_time(cupti: FakeCupti) -> None:
    """Each disables what it has enabled: the made-up library refuses cuptiFinalize while a kind is enabled."""
    made, board = backend("cuda", *probes("host", "profiler-sessions", "profiler-detached"))
    made.start()
    for name in NAMES[1::2]:
        board[name].words.run = 1

    def all_ran() -> bool:
        now = board.snapshot().probes
        return all(now[name].iterations for name in NAMES[1::2])

    wait_until(all_ran, "an iteration of each", 20)
    for name in NAMES[1::2]:
        board[name].words.run = 0
    board.header.quit = 1
    assert made.stop(3.0)
    assert made.poll() == []
    assert cupti.enabled == set()


def test_a_refusal_of_cupti_has_its_name_for_the_code(cupti: FakeCupti) -> None:
    cupti.refused[int(RecordKind.DRIVER_CALL)] = 39
    made, board = backend("cuda", *probes("host", "profiler"))
    made.start()
    board["profiler"].words.run = 1
    wait_until(lambda: board["profiler"].words.state == ProbeState.ERROR, "the failure", 20)
    failures = made.poll()
    board.header.quit = 1
    made.stop(1.0)
    (failure,) = failures
    assert failure.sentence == "profiler: cupti:cuptiActivityEnable (cuptiActivityEnable) returned 39 (CODE_39)"
    assert not failure.fatal


def fail_once(cupti: FakeCupti, made: Backend, board: Board, name: str, at: int) -> str:
    """Run the probe ``name`` until the call number ``at`` of the library fails; the sentence of the failure."""
    cupti.fails_at = at
    board[name].words.run = 1
    wait_until(lambda: board[name].words.state == ProbeState.ERROR, f"the failure of call {at}", 20)
    (failure,) = made.poll()
    assert not failure.fatal
    return failure.sentence


def calls_of_an_iteration(name: str) -> list[str]:
    return [op.fn.removeprefix("cupti:") for op in entries()[name].probe().program.ops if op.fn.startswith("cupti:")]


@pytest.mark.parametrize(
    ("name", "at"),
    [
        (name, at)
        for name in NAMES
        for at in range(1, len(calls_of_an_iteration(name)) + 1)
        # One of many profiles is as the first and the last one.
        if not 12 <= at <= len(calls_of_an_iteration(name)) - 11
    ],
)
def test_whichever_call_of_cupti_fails_no_kind_stays_enabled_and_nothing_attached(
    cupti: FakeCupti, name: str, at: int
) -> None:
    made, board = backend("cuda", *probes("host", name))
    made.start()
    sentence = fail_once(cupti, made, board, name, at)
    failed = calls_of_an_iteration(name)[at - 1]
    assert cupti.calls[at - 1] == failed
    # The failure that is reported is the first one.
    assert sentence == f"{name}: cupti:{failed} ({failed}) returned {UNKNOWN} (CODE_{UNKNOWN})"
    board.header.quit = 1
    assert made.stop(2.0)
    assert cupti.enabled == set()
    assert cupti.detached == 1
    assert {buffer.state for buffer in core().pool.states} == {BufferState.FREE}


def test_after_the_failure_of_one_profiler_the_next_one_runs(cupti: FakeCupti) -> None:
    made, board = backend("cuda", *probes("host", "profiler-detached", "profiler-ended"))
    made.start()
    fail_once(cupti, made, board, "profiler-detached", 4)
    board["profiler-ended"].words.run = 1
    wait_until(lambda: board.snapshot().probes["profiler-ended"].iterations, "an iteration of the other one", 20)
    board.header.quit = 1
    assert made.stop(2.0)
    assert made.poll() == []
    assert cupti.enabled == set()


def test_a_profiler_that_does_not_get_its_turn_leaves_another_ones_kinds_alone() -> None:
    program = entries()["profiler"].probe().program
    # ``undo`` does not follow the failure of the first op.
    assert program.ops[0].fn == "native:lock"
    assert [op.fn for op in program.undo][-1] == "native:store"
