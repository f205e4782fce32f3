"""Aggressors beside a program: what they refuse, what ends them, and that nothing of them stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from factories.processes import children, wait_for_end
from factories.simulated_aggressors import FakeNvml, simulated_session
from factories.waiting import LIMIT_S, wait_until
from stallprobes.catalog import beside_programs, entries
from stallprobes.engine.backend import GIB, Options
from stallprobes.engine.cuda import backend
from stallprobes.engine.session import Session
from stallprobes.errors import BackendError, BesideRefused, NvmlUnavailable, Unsupported
from stallprobes.measurement.aggressors import Aggressors, least_free_bytes, probes_of
from stallprobes.model import MIB, Buffer, Probe, Role, Space

UUID = "41414141-4141-4141-4141-414141414141"
pytestmark = pytest.mark.usefixtures("forked_engines")


def aggressors(nvml: FakeNvml, *names: str, pids: tuple[int, ...] = (77,), shared: bool = False) -> Aggressors:
    return Aggressors(
        names or ("spin", "dram"), UUID, pids, shared_allowed=shared, make=simulated_session, load=lambda: nvml
    )


@contextmanager
def started(nvml: FakeNvml, *names: str) -> Iterator[Aggressors]:
    made = aggressors(nvml, *names)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def refusal(nvml: FakeNvml, **options: object) -> str:
    """The sentence with which aggressors are refused; nothing runs then."""
    made = aggressors(nvml, **options)  # type: ignore[arg-type]
    with pytest.raises(BesideRefused) as raised:
        made.start()
    assert made.pids == ()
    return str(raised.value)


def test_each_one_may_run_beside_a_program() -> None:
    assert len(beside_programs()) == 9
    for name in beside_programs():
        entry = entries()[name]
        assert entry.role is Role.AGGRESSOR
        assert entry.needs.gpus == 1
        assert entry.causes
    buffers = {
        (probe.name, part)
        for name in beside_programs()
        for probe in probes_of(name)
        for part in probe.program.resources
        if isinstance(part, Buffer) and part.space is Space.DEVICE
    }
    # Beside these, an allocation in flight and the context of the process, of about half a GiB.
    assert sum(part.nbytes for _, part in buffers) <= 448 * MIB


@pytest.mark.parametrize(("total", "least"), [(8, 4), (24, 4), (40, 4), (80, 8), (140, 14)])
def test_the_limit_is_4_gib_or_a_tenth_of_the_memory(total: int, least: int) -> None:
    assert least_free_bytes(total * GIB) == least * GIB


@pytest.mark.parametrize(
    ("nvml", "sentence"),
    [
        (FakeNvml(free_gib=14.9), "14.9 of 140.0 GiB of the GPU's memory are free: 14.0 GiB must stay free, and the "),
        (FakeNvml(free_gib=4.5, total_gib=16), "4.5 of 16.0 GiB of the GPU's memory are free: 4.0 GiB must stay free"),
        (FakeNvml(mode=3), 'the GPU is in the compute mode "exclusive process", in which it is not shared.'),
        (FakeNvml(mode=2), 'the GPU is in the compute mode "prohibited", in which it is not shared.'),
        (FakeNvml(mode=3, uuid=f"MIG-{UUID}", mig=True), 'the GPU is in the compute mode "exclusive process"'),
        (FakeNvml(mig=True), "the GPU is in MIG mode, and which of its instances the program uses is not known."),
        (FakeNvml(uuid="GPU-other"), "NVML does not list the GPU of the program."),
        (FakeNvml(broken={"nvmlDeviceGetComputeRunningProcesses"}), "which other processes use the GPU is not known"),
        (FakeNvml(pids=(77, 78)), "other processes use the GPU too, and would be disturbed: "),
    ],
)
def test_what_is_refused(nvml: FakeNvml, sentence: str) -> None:
    assert sentence in refusal(nvml)


def test_without_nvml_nothing_runs() -> None:
    def no_nvml() -> object:
        raise NvmlUnavailable("no NVIDIA driver", "install it")

    with pytest.raises(BesideRefused, match="how much memory of the GPU is free is not known: no NVIDIA driver"):
        Aggressors(("spin",), UUID, (), load=no_nvml).start()


def test_memory_that_nvml_does_not_state_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stallprobes.measurement.aggressors._FIRST_S", 0.2)
    nvml = FakeNvml(broken={"nvmlDeviceGetMemoryInfo"})
    assert refusal(nvml) == "NVML does not say how much memory of the GPU is free."


def test_other_processes_are_disturbed_only_if_that_is_allowed() -> None:
    made = aggressors(FakeNvml(pids=(77, os.getpid(), os.getppid())), shared=True)
    made.start()
    made.stop()
    # The program, this process, and in a container the program by the number that it has on the host.
    for pids in ((77, os.getpid()), (2_000_000_001,)):
        made = aggressors(FakeNvml(pids=pids))
        made.start()
        made.stop()


def test_they_run_one_at_a_time_and_become_idle() -> None:
    with started(FakeNvml(), "spin", "dram") as made:
        for name in ("spin", "dram"):
            made.run(name)
            wait_until(lambda: made.has_run, "it runs")
            made.mark()
            wait_until(lambda: made.has_run, "it runs")
            assert not made.is_idle
        made.run("")
        wait_until(lambda: made.is_idle, "nothing runs")
        assert not made.has_run
        assert made.sm_clock_mhz in (None, 1980.0)
        assert (made.free_bytes, made.least_free_bytes) == (100 * GIB, 14 * GIB)
        (pid,) = made.pids
        assert pid in children(os.getpid())
    wait_for_end(pid)


def test_host_load_has_a_thread_for_each_cpu() -> None:
    probes = probes_of("host-load")
    assert len(probes) == min(len(os.sched_getaffinity(0)), 64)
    # Not more than the program's control group may use.
    assert [len(probes_of("host-load", cpus)) for cpus in (1, 0, 1000)] == [1, 1, len(probes)]
    with started(FakeNvml(), "host-load") as made:
        made.run("host-load")
        wait_until(lambda: made.has_run, "it runs")


@pytest.mark.parametrize("change", ["shrinks", "not known"])
def test_they_end_where_free_memory_shrinks_or_is_not_known(change: str) -> None:
    nvml = FakeNvml()
    with started(nvml, "spin") as made:
        (pid,) = made.pids
        made.run("spin")
        if change == "shrinks":
            nvml.free_gib = 13.9
        else:
            nvml.broken.add("nvmlDeviceGetMemoryInfo")
        wait_until(lambda: bool(made.ended), "they end")
        wait_for_end(pid)
        assert made.ended.startswith("only 13.9 GiB" if change == "shrinks" else "NVML no longer says")
        # Nothing fails that is asked afterwards.
        made.run("")
        made.mark()
        assert (made.has_run, made.is_idle) in ((False, False), (False, True))


def test_the_end_of_their_process_is_said() -> None:
    with started(FakeNvml(), "spin") as made:
        os.kill(made.pids[0], signal.SIGKILL)
        wait_until(lambda: bool(made.ended), "they end")
        assert "the engine ended" in made.ended


def test_one_that_this_machine_has_not_is_left_out() -> None:
    class Lacking(Session):
        def start(self, timeout: float | None = None) -> object:  # type: ignore[override]
            names = [probe.name for probe in self.probes if probe.entry == "nvml-poll"]
            if names:
                raise Unsupported("NVML is missing", *names)
            return super().start(timeout)

    def make(probes: tuple[Probe, ...], options: Options) -> Session:
        assert options.without_mps
        assert options.gpu == f"GPU-{UUID}"
        return Lacking(probes, backend="sim", options=Options(paced=True))

    made = Aggressors(("nvml-poll", "spin"), UUID, (), make=make, load=FakeNvml)  # type: ignore[arg-type]
    made.start()
    assert made.refused == {"nvml-poll": "NVML is missing"}
    made.run("spin")
    wait_until(lambda: made.has_run, "it runs")
    made.stop()


def test_they_are_no_client_of_an_mps_server(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    class NoDriver:
        def __init__(self) -> None:
            seen.append(os.environ.get("CUDA_MPS_PIPE_DIRECTORY"))
            raise BackendError(3, "no driver")

    monkeypatch.setattr(backend, "Api", NoDriver)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/tmp/server")
    for options in (Options(), Options(without_mps=True)):
        with pytest.raises(BackendError):
            backend.CudaBackend().prepare([], None, options)  # type: ignore[arg-type]
    assert seen == ["/tmp/server", "/dev/null"]


PARENT = f"""
from factories.simulated_aggressors import FakeNvml, simulated_session
from stallprobes.measurement.aggressors import Aggressors
made = Aggressors(("spin",), "{UUID}", (), make=simulated_session, load=FakeNvml)
made.start()
made.run("spin")
print(*made.pids, flush=True)
import time; time.sleep(600)
"""


def test_nothing_of_them_stays_after_sigkill_of_stallscope() -> None:
    roots = [str(Path(__file__).parents[3] / name) for name in ("app", "probes", "tests")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(roots)}
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True, env=environment) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        parent.kill()
        parent.wait(LIMIT_S)
        wait_for_end(pid)
