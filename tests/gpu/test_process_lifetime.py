"""On a real GPU: whatever ends or hangs, nothing is left of it within two seconds, and errors come in words."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from factories import processes
from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.engine.snapshot import Snapshot
from stallprobes.errors import EXIT_ENGINE, EXIT_NO_GPU, EngineFailed, EngineLost, NvmlUnavailable
from stallprobes.machine import gpus, nvml
from stallprobes.model import (
    MIB,
    MS,
    Arg,
    Buffer,
    BufferPart,
    Channel,
    Kernel,
    Op,
    Phase,
    Probe,
    Process,
    Program,
    Role,
    Space,
    Stream,
)
from stallprobes.native.layouts.board import ProbeState
from stallprobes.patterns import patterns
from stallprobes.patterns.naming import parse_probe

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[2]
SIGNALS = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]
WITHIN_S = 2.0
SLACK = 64 * MIB
CALL = Channel(Phase.CALL)
GATED = patterns()["default-stream-gate"].variant("pageable")

Used = Callable[[], int]
Spawn = Callable[[Sequence[str]], "subprocess.Popen[str]"]


class Card:
    """What NVML says of the GPU that CUDA takes first."""

    def __init__(self) -> None:
        self._nvml = nvml.load()
        (gpu,) = gpus.choose(None, gpus.survey())
        self._handle = self._nvml.nvmlDeviceGetHandleByUUID(gpu.uuid)

    def used(self) -> int:
        """Bytes of GPU memory in use, by whomever."""
        return int(self._nvml.nvmlDeviceGetMemoryInfo(self._handle).used)

    def processes(self) -> tuple[gpus.GpuProcess, ...]:
        """The processes that NVML lists."""
        return gpus.processes_on(self._nvml, self._handle)

    def utilisation(self) -> int:
        """Percent of the last 1/6 s to 1 s in which some kernel ran; without it the test is skipped."""
        try:
            return int(self._nvml.nvmlDeviceGetUtilizationRates(self._handle).gpu)
        except self._nvml.NVMLError as error:
            pytest.skip(f"NVML's utilisation: {nvml.error_text(error)}")


@pytest.fixture(scope="module")
def card() -> Card:
    try:
        found = Card()
    except NvmlUnavailable as problem:
        pytest.skip(f"NVML: {problem.reason}")
    # What the driver keeps for itself once any process has used the GPU is not a leak.
    with Session([entries()["launch"].probe()]):
        pass
    settled(found.used)
    return found


@pytest.fixture
def before(card: Card) -> int:
    """The GPU memory in use before a test."""
    return settled(card.used)


@pytest.fixture
def spawn() -> Iterator[Spawn]:
    """Starts a Python process with both packages at hand; killed at the end if it lives."""
    started = []

    def run(arguments: Sequence[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, *arguments], env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield run
    for process in started:
        process.kill()
        process.communicate()


def environment(**changed: str) -> dict[str, str]:
    paths = [str(ROOT / "app"), str(ROOT / "probes"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)} | changed


def settled(read: Used) -> int:
    """A figure once it has stayed the same for 0.3 s, or after 5 s whatever it is."""
    until = time.monotonic() + 5
    value, same = read(), 0
    while same < 3 and time.monotonic() < until:
        time.sleep(0.1)
        now = read()
        same, value = (same + 1 if now == value else 0), now
    return value


def within(seconds: float, holds: Callable[[], bool], step_s: float = 0.02) -> bool:
    until = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > until:
            return False
        time.sleep(step_s)
    return True


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that only waits to be reaped by somebody else has."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True
    return stat.rpartition(")")[2].split()[0] in ("Z", "X")


def nothing_left(card: Card, before: int, *pids: int) -> None:
    """Assert that within two seconds from now all of ``pids`` are gone and their GPU memory is free again."""

    def clean() -> bool:
        return all(is_gone(pid) for pid in pids) and card.used() <= before + SLACK

    held = within(WITHIN_S, clean)
    left = [pid for pid in pids if not is_gone(pid)]
    assert held, f"processes {left}, {(card.used() - before) / MIB:.0f} MiB"


def await_snapshot(session: Session, holds: Callable[[Snapshot], bool], seconds: float = 10.0) -> Snapshot:
    """The first snapshot of which ``holds`` is true. Raises AssertionError when there is none in time."""
    until = time.monotonic() + seconds
    while True:
        session.run_for(0.02)
        seen = session.snapshot()
        if holds(seen):
            return seen
        assert time.monotonic() < until, seen.probes


def spins(seen: Snapshot) -> bool:
    return seen.probes["spin"].proof >= 2 and seen.probes["launch"].iterations >= 100


def spinning() -> list[Probe]:
    return [entries()["spin"].probe(), entries()["launch"].probe()]


# Ends.


def test_a_stopped_session_leaves_nothing_behind_while_the_spin_runs(card: Card, before: int) -> None:
    with Session(spinning()) as session:
        session.set_running(["spin", "launch"])
        await_snapshot(session, spins)
        engine = session.engine_pid
        assert engine is not None
        # Otherwise that it is free again would say nothing.
        assert card.used() > before + SLACK
    nothing_left(card, before, engine)


STORMS = [
    ("event-poll-storm", "x16"), ("launch-storm", "x16"), ("host-callback", "mutex"), ("vmm-churn", "pieces"),
    ("profiler-on", "tracing"), ("profiler-on", "sessions"), ("profiler-on", "detached"),
]  # fmt: skip


def all_run(seen: Snapshot) -> bool:
    return all(probe.iterations >= 2 for probe in seen.probes.values())


@pytest.mark.parametrize(("pattern", "variant"), STORMS)
def test_a_stopped_session_leaves_nothing_behind_while_many_threads_call(
    card: Card, before: int, pattern: str, variant: str
) -> None:
    probes = patterns()[pattern].variant(variant).probes
    with Session(probes) as session:
        session.set_running([probe.name for probe in probes])
        await_snapshot(session, all_run)
        engine = session.engine_pid
        assert engine is not None
    nothing_left(card, before, engine)


@pytest.mark.parametrize(("pattern", "variant"), STORMS)
def test_a_killed_engine_leaves_nothing_behind_while_many_threads_call(
    card: Card, before: int, pattern: str, variant: str
) -> None:
    probes = patterns()[pattern].variant(variant).probes
    with Session(probes) as session:
        session.set_running([probe.name for probe in probes])
        await_snapshot(session, all_run)
        engine = session.engine_pid
        assert engine is not None
        os.kill(engine, signal.SIGKILL)
        nothing_left(card, before, engine)


def test_a_killed_engine_leaves_nothing_behind_in_the_middle_of_a_kernel_and_the_gpu_is_as_before(
    card: Card, before: int
) -> None:
    with Session(spinning()) as session:
        session.set_running(["spin", "launch"])
        await_snapshot(session, spins)
        engine = session.engine_pid
        assert engine is not None
        assert card.used() > before + SLACK
        os.kill(engine, signal.SIGKILL)
        nothing_left(card, before, engine)
        with pytest.raises(EngineLost):
            session.run_for(1)
    with Session(spinning()) as session:
        session.set_running(["spin", "launch"])
        await_snapshot(session, spins)
        assert session.probe_failures() == ()


@pytest.mark.parametrize("number", SIGNALS)
def test_a_command_ended_by_a_signal_leaves_nothing_behind_while_the_spin_runs(
    card: Card, before: int, spawn: Spawn, number: signal.Signals
) -> None:
    names = ["secondary-context-d2d", "--variant", "kernel-same-context", "--seconds", "8", "--allow-shared"]
    # What an earlier test's kernels left in NVML's window.
    assert within(5, lambda: card.utilisation() < 50, step_s=0.1)
    process = spawn(["-m", "stallscope", "run", *names])
    # A one-thread kernel that never pauses reads 100 %; the quiet copies before it read next to nothing.
    running = within(30, lambda: card.utilisation() >= 90 or process.poll() is not None, step_s=0.1)
    assert running, "the spin kernel was not seen to run"
    assert process.poll() is None, process.communicate()
    engines = processes.engines(process.pid)
    assert len(engines) == 1
    assert card.used() > before + SLACK
    process.send_signal(number)
    nothing_left(card, before, process.pid, *engines)


def in_two_processes() -> list[Probe]:
    return [parse_probe("spin@second-process", as_name="spin"), parse_probe("launch")]


@pytest.mark.parametrize("victim", ["nobody", "engine", "second process"])
def test_a_second_process_leaves_nothing_behind_while_its_spin_runs(card: Card, before: int, victim: str) -> None:
    with Session(in_two_processes()) as session:
        session.set_running(["spin", "launch"])
        await_snapshot(session, spins)
        pids = session.process_ids
        assert len(pids) == 2
        assert card.used() > before + SLACK
        # NVML lists both processes where it has this host's process ids; elsewhere it lists none of them.
        listed = {one.pid for one in card.processes()} & set(pids)
        assert listed in (set(), set(pids))
        if victim != "nobody":
            os.kill(pids[0] if victim == "engine" else pids[1], signal.SIGKILL)
            nothing_left(card, before, *pids)
            with pytest.raises(EngineFailed):
                session.run_for(1)
    nothing_left(card, before, *pids)


def test_an_error_that_spoils_a_context_of_the_second_process_ends_the_engine_with_its_words() -> None:
    bad = replace(spoiling(), program=replace(spoiling().program, process=Process.SECOND))
    with Session([bad, entries()["launch"].probe()]) as session:
        session.set_running(["launch"])
        await_snapshot(session, lambda seen: seen.probes["launch"].iterations >= 100)
        session.set_running({"spoiling": True})
        with pytest.raises(EngineFailed, match=r"in the second process: .*CUDA_ERROR_ILLEGAL_ADDRESS"):
            session.run_for(10)


HANGING = textwrap.dedent("""
    from stallprobes.engine.backend import Options
    from stallprobes.patterns import patterns
    from stallprobes.engine.session import Session

    probes = patterns()["default-stream-gate"].variant("pageable").probes
    with Session(probes, options=Options(watchdog_ns=100_000_000_000)) as session:
        session.set_running([probe.name for probe in probes])
        for _ in range(1000):
            session.run_for(0.02)
            flight = session.snapshot().probes["launch-then-open"].in_flight
            if flight is not None and flight.age_ns > 500_000_000:
                print(session.engine_pid, flush=True)
                session.run_for(600)
""")


# The program handles none of them: Python makes an exception of one, and the others end it as SIGKILL does.
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_a_parent_ended_by_a_signal_leaves_nothing_behind_while_a_launch_hangs_in_the_driver(
    card: Card, before: int, spawn: Spawn, number: signal.Signals
) -> None:
    process = spawn(["-c", HANGING])
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate()
    engine = int(line)
    assert not is_gone(engine)
    assert card.used() > before + SLACK
    process.send_signal(number)
    nothing_left(card, before, process.pid, engine)


# Gates.


@pytest.mark.parametrize("watchdog_ms", [400, 1200])
def test_a_hung_gate_opens_after_its_watchdogs_time(watchdog_ms: int) -> None:
    watchdog_ns = watchdog_ms * MS
    (copy,) = (probe.name for probe in GATED.probes if probe.name.startswith("gated-copy"))
    with Session(GATED.probes, options=Options(watchdog_ns=watchdog_ns)) as session:
        session.set_running([probe.name for probe in GATED.probes])

        def longest(seen: Snapshot, name: str) -> int:
            # From the ring, which has the very first call too.
            part = seen.probes[name]
            calls = part.samples[part.samples["channel"] == list(part.channels).index(CALL)]
            return int(calls["value_ns"].max()) if len(calls) else 0

        seen = await_snapshot(session, lambda seen: longest(seen, "launch-then-open") >= 0.8 * watchdog_ns)
        # The copy waits for one gate only. The launch may lose the lock to the next copy, and wait for two.
        assert 0.8 * watchdog_ns <= longest(seen, copy) < 1.5 * watchdog_ns
        iterations = seen.probes["launch-then-open"].iterations
        await_snapshot(session, lambda later: later.probes["launch-then-open"].iterations > iterations)
        assert session.probe_failures() == ()


# Errors.


def probe(name: str, *ops: Op, setup: tuple[Op, ...] = ()) -> Probe:
    return Probe(name, name, Role.VICTIM, Program(ops, setup=setup), 1 * MS, name)


def test_a_wrong_return_code_stops_its_probe_with_op_and_cudas_text_while_another_goes_on() -> None:
    never_allocated = 0xDEAD_0000
    bad = probe("bad", Op("cuMemFree", (never_allocated,), label="of nothing"))
    with Session([bad, entries()["launch"].probe()]) as session:
        session.set_running(["bad", "launch"])
        await_snapshot(session, lambda _: bool(session.probe_failures()))
        (failure,) = session.probe_failures()
        assert failure.probe == "bad"
        assert failure.op == "cuMemFree (of nothing)"
        assert failure.code == 1
        assert "CUDA_ERROR_INVALID_VALUE" in failure.text
        assert not failure.fatal
        assert "cuMemFree" in failure.sentence
        iterations = session.snapshot().probes["launch"].iterations
        seen = await_snapshot(session, lambda seen: seen.probes["launch"].iterations >= iterations + 100)
        assert seen.probes["bad"].state is ProbeState.ERROR
        assert session.alive


def spoiling() -> Probe:
    """The spin kernel told to count its start at an address where there is no memory."""
    stream, kernel = Stream(), Kernel("spin")
    block = Buffer("parameters", Space.PAGEABLE, 4096)
    # Two pointers to the two parameters, which lie behind them.
    at_cycles, at_word, cycles, word = (BufferPart(block, offset) for offset in (0, 8, 64, 72))
    no_memory = 0x1000
    setup: list[tuple[Arg, Arg]] = [(at_cycles, cycles), (at_word, word), (cycles, 0), (word, no_memory)]
    return probe(
        "spoiling",
        Op("cuLaunchKernel", (kernel, 1, 1, 1, 1, 1, 1, 0, stream, block, 0)),
        Op("cuStreamSynchronize", (stream,), Phase.WAIT),
        setup=tuple(Op("native:store", pair, phase=None) for pair in setup),
    )


def test_an_error_that_spoils_the_context_ends_the_engine_with_its_words(card: Card, before: int) -> None:
    with Session([spoiling(), entries()["launch"].probe()]) as session:
        session.set_running(["launch"])
        await_snapshot(session, lambda seen: seen.probes["launch"].iterations >= 100)
        engine = session.engine_pid
        assert engine is not None
        session.set_running({"spoiling": True})
        with pytest.raises(EngineFailed) as failed:
            session.run_for(10)
        assert failed.value.exit_code == EXIT_ENGINE
        assert "CUDA_ERROR_ILLEGAL_ADDRESS" in failed.value.sentence
        assert "contexts of all probes are unusable" in failed.value.sentence
        assert session.probe_failures()[0].fatal
        nothing_left(card, before, engine)


# No GPU.


def command(*arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
    line = [sys.executable, "-m", "stallscope", *arguments]
    return subprocess.run(line, env=environment(**changed), capture_output=True, text=True, check=False, timeout=60)


def test_with_every_gpu_hidden_a_run_ends_with_one_sentence_and_3() -> None:
    done = command("run", "launch", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == EXIT_NO_GPU, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


@pytest.mark.parametrize("name", ["99", "GPU-00000000-0000-0000-0000-000000000000"])
def test_a_gpu_that_is_not_there_ends_a_run_with_one_sentence_and_3(name: str) -> None:
    done = command("run", "launch", "--gpu", name)
    assert done.returncode == EXIT_NO_GPU, done.stderr
    assert done.stdout == ""
    assert name in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr


def test_a_session_on_a_gpu_that_is_not_there_fails_with_3() -> None:
    session = Session([entries()["launch"].probe()], gpu="99")
    with pytest.raises(EngineFailed) as failed:
        session.start()
    assert failed.value.exit_code == EXIT_NO_GPU
    assert not session.alive
