"""What a session does while all goes well, and what it says when something does not."""

from __future__ import annotations

import os
import sys
import textwrap
import time

import pytest

from factories.host_probes import host_probe
from factories.loaded_modules import loaded_packages
from factories.waiting import wait_until
from stallprobes.engine import process
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.errors import EngineFailed, Unsupported
from stallprobes.latency.window import Window
from stallprobes.model import PRIMARY, Buffer, Channel, HostFunction, Load, Op, Phase, Probe, Program, Role, Space, Word
from stallprobes.native.layouts.board import EngineState, ProbeState

CALL = Channel(Phase.CALL)
MS = 1_000_000
HUNG = Op("native:sleep", (600_000 * MS,))

pytestmark = pytest.mark.usefixtures("forked_engines", "nothing_left")


def window(session: Session, name: str, seconds: float) -> Window:
    before = session.snapshot()
    session.run_for(seconds)
    return session.snapshot().minus(before)[name]


def wait_for_iterations(session: Session, name: str, more: int = 1) -> None:
    """Wait until a probe made ``more`` iterations from now on."""
    last = session.snapshot().probes[name].iterations
    wait_until(lambda: session.snapshot().probes[name].iterations >= last + more, f"{name} runs")


def wait_for_state(session: Session, name: str, state: ProbeState) -> None:
    wait_until(lambda: session.snapshot().probes[name].state is state, f"{name} is {state.name}")


def test_probes_stand_parked_until_they_are_switched_on() -> None:
    with Session([host_probe("a"), host_probe("b")], "host") as session:
        for name in ("a", "b"):
            wait_for_state(session, name, ProbeState.PARKED)
        session.run_for(0.1)
        first = session.snapshot()
        assert first.engine_state is EngineState.READY
        assert [probe.iterations for probe in first.probes.values()] == [0, 0]


def test_switching_is_by_a_set_of_names_or_by_changes() -> None:
    with Session([host_probe("a"), host_probe("b")], "host") as session:

        def on() -> list[str]:
            return [name for name, probe in session.snapshot().probes.items() if probe.on]

        session.set_running(["a"])
        assert on() == ["a"]
        session.set_running({"b": True})
        assert on() == ["a", "b"]
        session.set_running({"a": False})
        assert on() == ["b"]
        wait_for_iterations(session, "b")
        session.set_running([])
        assert on() == []
        wait_for_state(session, "b", ProbeState.PARKED)
        assert window(session, "b", 0.1).iterations == 0
        session.set_running(["b"])
        wait_for_iterations(session, "b")


def test_a_new_period_holds_from_then_on() -> None:
    with Session([host_probe("a", period_ns=20 * MS)], "host") as session:
        session.set_running(["a"])
        wait_for_iterations(session, "a", 2)
        session.set_period("a", 2 * MS)
        wait_for_iterations(session, "a", 2)
        before = session.snapshot()

        def due_as_often_as_set() -> bool:
            """Iterations that were made or missed, so that a busy machine changes nothing."""
            fast = session.snapshot().minus(before)["a"]
            assert fast.period_ns == 2 * MS
            due = fast.iterations + fast.missed
            return due >= 50 and fast.duration_ns / due < 4 * MS

        wait_until(due_as_often_as_set, "the probe is due every 2 ms")


def test_names_and_periods_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="same name"):
        Session([host_probe("a"), host_probe("a")], "host")
    session = Session([host_probe("a")], "host")
    with pytest.raises(KeyError):
        session.set_running(["b"])
    with pytest.raises(KeyError):
        session.set_running({"b": False})
    with pytest.raises(KeyError):
        session.set_period("b", 1)
    with pytest.raises(ValueError, match="-1 ns"):
        session.set_period("a", -1)


def test_a_session_starts_once_and_tells_nothing_before() -> None:
    session = Session([host_probe("a")], "host")
    with pytest.raises(RuntimeError):
        session.snapshot()
    with pytest.raises(RuntimeError):
        session.run_for(0.1)
    with session, pytest.raises(RuntimeError):
        session.start()


def test_after_the_stop_the_last_figures_are_still_there() -> None:
    session = Session([host_probe("a")], "host")
    with session:
        session.set_running(["a"])
        wait_for_iterations(session, "a")
        before = session.snapshot().probes["a"].iterations
    session.stop()
    assert session.snapshot().probes["a"].iterations >= before > 0
    assert session.failure() is None
    assert not session.alive
    session.set_running([])
    session.set_period("a", 0)


def test_a_session_without_probes_is_fine() -> None:
    with Session([], "host") as session:
        session.run_for(0.05)
        assert session.snapshot().probes == {}


def test_a_wrong_return_code_stops_its_probe_and_no_other() -> None:
    bad = host_probe("bad", Op("native:nothing"), Op("libc:clock_nanosleep", (99, 0, 0, 0), label="odd clock"))
    with Session([bad, host_probe("good")], "host") as session:
        session.set_running(["bad", "good"])
        wait_until(session.probe_failures, "the error is reported")
        (failure,) = session.probe_failures()
        assert (failure.probe, failure.code, failure.fatal) == ("bad", 22, False)
        assert failure.sentence == "bad: libc:clock_nanosleep (odd clock) returned 22 (Invalid argument)"
        assert session.alive
        wait_for_iterations(session, "good")
        stopped = session.snapshot().probes["bad"]
        assert stopped.state is ProbeState.ERROR
        assert stopped.error is not None
        assert (stopped.error.code, stopped.error.op) == (22, 2)
        assert len(session.probe_failures()) == 1


def test_a_wrong_return_code_in_the_setup_is_told_too() -> None:
    setup = (Op("native:nothing"), Op("native:wait", (Word("never"), 1, 1000)))
    with Session([host_probe("bad", setup=setup), host_probe("good")], "host") as session:
        session.set_running(["bad", "good"])
        wait_for_iterations(session, "good")
        wait_until(session.probe_failures, "the error is reported")
        assert [t.sentence for t in session.probe_failures()] == ["bad: native:wait returned 1 (timed out)"]
        assert session.snapshot().probes["bad"].iterations == 0
        assert session.snapshot().probes["good"].iterations > 0


def test_a_call_that_does_not_return_shows_its_age_and_counts_as_waiting() -> None:
    with Session([host_probe("hung", Op("native:nothing"), HUNG)], "host") as session:
        session.set_running(["hung"])
        wait_until(lambda: (now := session.snapshot().probes["hung"].in_flight) and now.op == 1, "the call hangs")
        seen = window(session, "hung", 0.2)
        assert seen.iterations == 0
        assert seen.in_flight is not None
        assert seen.in_flight.op == 1
        assert seen.in_flight.age_ns > 0.2e9
        assert seen.channels[Channel(Phase.DUE)].count >= 100


def test_words_are_shared_between_probes_only_where_they_say_so() -> None:
    shared, own = Word("shared", shared=True), Word("own")
    patient = 600_000 * MS
    waits = host_probe("waits", Op("native:wait", (shared, 5, patient)))
    waits_alone = host_probe("waits-alone", Op("native:wait", (own, 5, patient)))
    counts = host_probe("counts", Op("native:add", (shared, 1)), Op("native:add", (own, 1)))
    with Session([waits, waits_alone, counts], "host") as session:
        session.set_running(["waits", "waits-alone"])
        assert window(session, "waits", 0.1).iterations == 0
        session.set_running({"counts": True})
        wait_for_iterations(session, "waits")
        assert session.snapshot().probes["waits-alone"].iterations == 0


def test_a_value_made_by_one_op_is_used_by_the_next() -> None:
    # mmap(2): PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS.
    block, page = Word("block"), 4096
    ops = (
        Op("libc:mmap", (0, 4 * page, 3, 0x22, -1, 0), into=block, label="map"),
        Op("libc:memset", (Load(block), 1, 4 * page), phase=None, into=Word("ignored")),
        Op("libc:munmap", (Load(block), 4 * page), label="unmap"),
    )
    with Session([host_probe("a", *ops)], "host") as session:
        session.set_running(["a"])
        before = session.snapshot()
        wait_for_iterations(session, "a", 3)
        seen = session.snapshot().minus(before)["a"]
        assert session.probe_failures() == ()
        labels = [channel.label for channel, hist in seen.channels.items() if hist.count > 0]
        assert {"map", "unmap"} <= set(labels)


def test_the_proof_is_what_the_word_counts() -> None:
    counted = Word("counted")
    program = Program((Op("native:add", (counted, 3)),), context=None, proof=counted)
    probe = Probe("a", "a", Role.AGGRESSOR, program, MS, "a")
    with Session([probe], "host") as session:
        session.set_running(["a"])
        wait_for_iterations(session, "a")
        session.set_running([])
        wait_for_state(session, "a", ProbeState.PARKED)
        iterations = session.snapshot().probes["a"].iterations
        wait_until(lambda: session.snapshot().probes["a"].proof == 3 * iterations > 0, "the proof is on the board")


def test_the_stop_opens_a_gate_that_somebody_waits_at() -> None:
    gate = HostFunction("gate", Word("open"), Word("forced"), 600_000 * MS)
    session = Session([host_probe("gated", Op("native:gate", (gate,)))], "host")
    session.start()
    session.set_running(["gated"])
    wait_until(lambda: session.snapshot().probes["gated"].in_flight is not None, "the call waits at the gate")
    session.stop()
    assert session.snapshot().probes["gated"].state is ProbeState.ENDED


def test_the_stop_ends_sixteen_busy_threads_and_one_that_waits_for_a_mutex() -> None:
    # A busy machine may leave a thread without a CPU for longer than the engine waits for it: once, but not each time.
    assert any(states_after_stop() == {ProbeState.ENDED} for _ in range(10))


def states_after_stop() -> set[ProbeState]:
    """The states of sixteen busy threads, and one that waits for a mutex, after the stop."""
    mutex = HostFunction("mutex", Word("held", shared=True), Word("forced"), 600_000 * MS)
    busy = [host_probe(f"busy {number}", Op("native:spin", (MS,)), period_ns=0) for number in range(16)]
    waiting = host_probe("waiting", Op("native:mutex", (mutex,)))
    holder = host_probe("holder", Op("native:lock", (mutex.word, MS), ok=(1,)))
    session = Session([holder, waiting, *busy], "host")
    session.start()
    session.set_running(["holder", *(probe.name for probe in busy)])
    for name in ("holder", "busy 0", "busy 15"):
        wait_for_iterations(session, name)
    session.set_running({"waiting": True})
    wait_until(lambda: session.snapshot().probes["waiting"].in_flight is not None, "the call waits for the mutex")
    session.stop()
    return {probe.state for probe in session.snapshot().probes.values()}


def test_a_machine_that_cannot_do_it_says_why() -> None:
    program = Program((Op("cuCtxSynchronize"),), context=PRIMARY)
    with pytest.raises(Unsupported, match="gpu-probe needs a GPU: it runs in the primary context"):
        Session([Probe("gpu-probe", "", Role.VICTIM, program, MS, "")], "host").start()
    huge = Buffer("huge", Space.PAGEABLE, 1 << 60)
    with pytest.raises(Unsupported, match="bytes of memory for huge cannot be allocated"):
        Session([host_probe("a", Op("native:work", (huge,)))], "host").start()


def test_an_unknown_backend_is_wrong_use() -> None:
    with pytest.raises(EngineFailed, match="no backend 'gpu'") as failed:
        Session([host_probe("a")], "gpu").start()
    assert failed.value.exit_code == 2


def test_a_program_that_fits_no_table_is_told_in_a_sentence() -> None:
    with pytest.raises(EngineFailed, match="at most 11") as failed:
        Session([host_probe("a", Op("native:nothing", tuple(range(12))))], "host").start()
    assert failed.value.exit_code == 4


def test_the_session_loads_no_compiler_no_cuda_and_no_screen() -> None:
    loaded = loaded_packages("import stallprobes.engine.session")
    assert not loaded & {"cuda", "textual", "rich", "simpy", "pynvml", "click"}


FAKE = """
    import os, sys, time
    import stallprobes.engine.main as engine
    from stallprobes.engine.backend import ProbeFailure
    from stallprobes.errors import BackendError

    class Backend:
        virtual = True
        def prepare(self, probes, board, options):
            self.board, self.seed, self.steps = board, options.seed, 0
            return {"seed": options.seed, "gpu": options.gpu, "set": dict(options.sim_set)}
        def start(self):
            self.board.header.clock_ns = 1
        def poll(self):
            if self.seed == 7 and self.steps > 3:
                return [ProbeFailure("a", "cuLaunchKernel", 700, "an illegal address", fatal=True)]
            return []
        def advance(self, ns):
            self.steps += 1
            if self.seed == 8:
                raise BackendError(4, "the model is at its end")
            if self.seed == 9:
                raise RuntimeError("a slip")
            if self.seed == 10:
                time.sleep(600)
            self.board.header.clock_ns += ns
        def stop(self, deadline_s):
            return True

    sys.modules["fake"] = sys.modules["__main__"]
    create = Backend
    engine.BACKENDS["sim"] = "fake"
    engine.main(sys.argv[1:])
"""


@pytest.fixture
def fake_sim(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine's backend "sim" becomes one that only counts its time."""

    def command(board_fd: int, control_fd: int) -> list[str]:
        return [sys.executable, "-c", textwrap.dedent(FAKE), str(board_fd), str(control_fd), str(os.getpid())]

    monkeypatch.setattr(process, "_command", command)


@pytest.mark.usefixtures("fake_sim")
def test_virtual_time_passes_exactly_as_told() -> None:
    options = Options(seed=3, sim_set={"timeslice_us": "4000"})
    with Session([host_probe("a")], "sim", gpu="0", options=options) as session:
        assert session.info == {"seed": 3, "gpu": "0", "set": {"timeslice_us": "4000"}}
        before = session.snapshot()
        session.run_for(1000.05)
        session.run_for(0.05)
        assert session.snapshot().at_ns - before.at_ns == 1_000_100 * MS


@pytest.mark.usefixtures("fake_sim")
def test_paced_virtual_time_follows_the_clock() -> None:
    began_ns = time.monotonic_ns()
    with Session([host_probe("a")], "sim", options=Options(paced=True)) as session:
        wait_until(lambda: session.snapshot().at_ns > 300 * MS, "virtual time passes")
        at_ns = session.snapshot().at_ns
        assert at_ns <= time.monotonic_ns() - began_ns


@pytest.mark.usefixtures("fake_sim")
@pytest.mark.parametrize(
    ("seed", "sentence"),
    [
        (7, r"a: cuLaunchKernel returned 700 \(an illegal address\); after this error"),
        (8, "the model is at its end"),
        (9, "internal error of the engine: RuntimeError: a slip"),
    ],
)
def test_what_spoils_everything_ends_the_session_with_the_same_words(seed: int, sentence: str) -> None:
    with Session([host_probe("a")], "sim", options=Options(seed=seed)) as session:
        with pytest.raises(EngineFailed, match=sentence) as failed:
            session.run_for(600)
        assert failed.value.exit_code == 4
        assert not session.alive
        with pytest.raises(EngineFailed, match=sentence):
            session.run_for(1)
        failure = session.failure()
        assert failure is not None
        assert failure.sentence == failed.value.sentence
        assert [failure.code for failure in session.probe_failures()] == ([700] if seed == 7 else [])


@pytest.mark.usefixtures("fake_sim")
def test_an_engine_that_shows_no_life_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallprobes.engine.session._SILENCE_S", 1.0)
    with (
        Session([host_probe("a")], "sim", options=Options(seed=10)) as session,
        pytest.raises(EngineFailed, match="has not answered for 1 s"),
    ):
        session.run_for(1)
