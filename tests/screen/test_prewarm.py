"""What starts before the modules of a command or of the screen are there."""

from __future__ import annotations

import threading

import pytest

from factories.waiting import LIMIT_S, wait_until
from stallprobes.engine.backend import Options
from stallprobes.engine.process import SpareEngine
from stallprobes.machine.gpus import Survey
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.measurement import measure
from stallprobes.measurement.plan import plan, selection
from stallprobes.recording.observation import SIM, EngineCondition
from stallscope.cli.process import prewarm
from stallscope.tui.sources.live import LiveSource


def ready(source: LiveSource) -> None:
    source.start()
    source.start()
    wait_until(lambda: source.observation().engine.state == EngineCondition.READY, "the engine is ready")


def test_the_first_answer_was_begun_at_once_and_later_ones_are_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    done = threading.Event()

    def question() -> int:
        asked.append(len(asked))
        done.set()
        return len(asked)

    monkeypatch.setattr("stallprobes.machine.gpus.survey", question)
    begun = prewarm.start_survey()
    assert done.wait(LIMIT_S)
    assert [begun(), begun(), begun()] == [1, 2, 3]  # type: ignore[comparison-overlap]


def test_what_went_wrong_ahead_is_raised_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def question() -> int:
        raise ValueError("no")

    monkeypatch.setattr("stallprobes.machine.gpus.survey", question)
    begun = prewarm.start_survey()
    with pytest.raises(ValueError, match="no"):
        begun()


@pytest.mark.parametrize(
    ("simulated", "signs", "backend"), [(True, ("/",), "sim"), (False, ("/",), "cuda"), (False, (), "sim")]
)
def test_the_engine_is_of_the_kind_that_will_be_wanted(
    monkeypatch: pytest.MonkeyPatch, simulated: bool, signs: tuple[str, ...], backend: str
) -> None:
    monkeypatch.setattr(prewarm, "_DRIVER_FILES", signs)
    spare = prewarm.start_engine(simulated)
    assert spare is not None
    assert spare.backend == backend
    spare.close()


@pytest.mark.parametrize(("signs", "backend"), [(("/",), "cuda"), ((), None)])
def test_a_command_starts_an_engine_where_there_is_a_driver(
    monkeypatch: pytest.MonkeyPatch, signs: tuple[str, ...], backend: str | None
) -> None:
    monkeypatch.setattr(prewarm, "_DRIVER_FILES", signs)
    spare = prewarm.start_cuda_engine()
    assert (None if spare is None else spare.backend) == backend
    if spare is not None:
        spare.close()


def test_a_run_takes_a_spare_engine_over_for_its_first_variant() -> None:
    spare = SpareEngine("sim")
    assert spare._held is not None
    process = spare._held[0].process
    measured = measure.run(plan(selection(("launch", "d2d")), seconds=0.1), backend="sim", spare=spare)
    assert [variant.status for variant in measured.variants] == ["ok"]
    assert spare._held is None
    assert process.wait(LIMIT_S) == 0


def test_the_live_source_takes_it_over() -> None:
    spare = SpareEngine("sim")
    assert spare._held is not None
    pid = spare._held[0].process.pid
    source = LiveSource(Options(profile="h200"), spare=spare)
    ready(source)
    assert source.engine_pid == pid
    observation = source.observation()
    assert observation.snapshot is not None
    assert {name for name, probe in observation.snapshot.probes.items() if probe.on} == {
        "launch",
        "d2d@secondary",
        "d2h-pinned",
        "host",
    }
    source.close()


def test_where_it_turns_out_to_be_of_the_wrong_kind_it_is_ended() -> None:
    spare = SpareEngine("cuda")
    assert spare._held is not None
    process = spare._held[0].process
    source = LiveSource(Options(), survey=lambda: Survey((), DriverReport(problem="made up")), spare=spare)
    ready(source)
    assert source.observation().probe_set.backend == SIM
    process.wait(LIMIT_S)
    assert source.engine_pid not in (None, process.pid)
    source.close()
