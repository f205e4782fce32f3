"""The live source: what it says of the GPUs that a probe set uses."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest

from factories.waiting import wait_until
from stallprobes.engine.backend import Options
from stallprobes.machine.gpus import Gpu, Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.patterns import patterns
from stallprobes.recording.observation import CUDA, SIM, EngineCondition, ProbeSet
from stallscope.tui import probe_sets
from stallscope.tui.sources.engine_thread import EngineThread, LiveEngine
from stallscope.tui.sources.live import LiveSource

TWO = Survey(
    tuple(Gpu(uuid=f"GPU-{i}", pci=f"0000:0{i}:00.0", name="NVIDIA H200", nvml_index=i, cuda_index=i) for i in (0, 1)),
    DriverReport(cuda_version=13000),
    driver_version="580.159.04",
)


def test_a_probe_set_on_two_gpus_names_both_and_the_next_one_only_its_own() -> None:
    source = LiveSource(Options(gpu="1"), survey=lambda: TWO)
    source.start()
    wait_until(lambda: source.observation().probe_set.gpus != (), "the GPU is known")
    probe_set = source.observation().probe_set
    assert (probe_set.backend, probe_sets.gpu_label(probe_set)) == (CUDA, "NVIDIA H200 (GPU 1)")
    assert probe_set.details == ("driver 580.159.04", "CUDA 13.0")
    for pattern, variant, words in (
        ("peer-copy-behind-kernel", "staged", "2 × NVIDIA H200 (GPU 1, GPU 0)"),
        ("scalar-readback", "pageable", "NVIDIA H200 (GPU 1)"),
    ):
        story = patterns()[pattern]
        source.load(probe_sets.for_variant(probe_set, story, story.variant(variant)), {})
        opened = f"{pattern} · {variant} is open"
        wait_until(lambda variant=variant: source.observation().probe_set.variant == variant, opened)  # type: ignore[misc]
        wait_until(lambda words=words: probe_sets.gpu_label(source.observation().probe_set) == words, words)  # type: ignore[misc]
    source.close()


def test_of_several_requests_for_an_engine_only_the_last_starts_one(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[str] = []
    monkeypatch.setattr(EngineThread, "start_engine", lambda _, engine: started.append(engine.probe_set.title))
    source = LiveSource(Options(profile="h200"))
    for number in range(100):
        source.load(ProbeSet(title=f"set {number}", probes=(), backend=SIM), {})
    source._thread.jobs.put(None)
    source._thread.run()
    assert started == ["set 99"]


def test_an_edit_begins_with_the_last_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EngineThread, "start_engine", lambda self, engine: setattr(self, "engine", engine))
    source = LiveSource(Options(profile="h200"))
    probes = patterns()["secondary-context-d2d"].variant("kernel-other-context").probes
    switches = {probe.name: probe.name != "host" for probe in probes}
    waiting = ProbeSet(title="waiting", probes=probes, backend=SIM)
    source.load(waiting, {name: on for name, on in switches.items() if name != "d2d"})
    assert source.requested() == (waiting, switches)
    assert not source.is_on("spin")
    source._thread.jobs.put(None)
    source._thread.run()
    assert source.requested() == (waiting, switches)
    source.switch("spin", False)
    assert source.requested() == (waiting, switches | {"spin": False})


def test_probes_with_two_periods_idle_once_the_baseline_is_complete() -> None:
    what = patterns()["idle-wakeup"].variant("after-1s")
    set_to: dict[str, int] = {}
    session = SimpleNamespace(set_period=set_to.__setitem__, set_running=lambda _: None, running=dict)
    source = LiveSource(Options(profile="h200"))
    engine = LiveEngine.of(ProbeSet(title="idle", probes=what.probes, backend=SIM), {})
    source._thread.engine = replace(engine, condition=EngineCondition.READY, session=session)  # type: ignore[arg-type]
    source.update_engine(True)
    assert set_to == {"launch": 1_000_000, "host": 1_000_000}
    source.update_engine(False)
    assert set_to == {"launch": 1_000_000_000, "host": 1_000_000_000}
    # A changed period holds again after the baseline was measured anew.
    assert not source.set_period("launch", 500_000_000)
    source.update_engine(True)
    assert set_to == {"launch": 1_000_000, "host": 1_000_000}
    assert source.period_ns("launch") == 500_000_000
    assert source.period_ns("spin") is None
    source.update_engine(False)
    assert set_to == {"launch": 500_000_000, "host": 1_000_000_000}
