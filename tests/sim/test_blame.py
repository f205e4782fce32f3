"""The blame experiment on the simulated GPU: run --blame, mixtures, and that it restores the switches."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence

import pytest

from factories import blame_mixtures, documents
from factories.blame_mixtures import Mixture, blamed, runs_of, scores, truths
from factories.virtual_session import VirtualSession, virtual_sessions
from stallprobes.engine.session import Session
from stallprobes.errors import EngineFailed, Stopped
from stallprobes.files import codec
from stallprobes.latency.ratio import Quantile
from stallprobes.measurement import blame as experiment
from stallprobes.measurement import measure
from stallprobes.measurement.blame import BlameProgress
from stallprobes.measurement.plan import plan, selection
from stallprobes.measurement.result import RUN_SCHEMA, RunResult
from stallprobes.measurement.run_clock import RunProgress
from stallprobes.model import Phase
from stallprobes.verdicts import experiment as conclusions
from stallprobes.verdicts.blame import Conclusion
from stallprobes.verdicts.experiment import ALL_OFF, BUDGET_S, FEWEST_ROUNDS, AggressorState, BlameWindow
from stallprobes.verdicts.verdict import Proof
from stallscope.report import run_text
from stallscope.report.text import TextWriter


@pytest.fixture(scope="module", autouse=True)
def without_engines() -> Iterator[None]:
    """Runs and mixtures start no engine process."""
    with virtual_sessions(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(blame_mixtures, "Session", VirtualSession)
        yield


@pytest.fixture(scope="module")
def progress() -> list[RunProgress]:
    """The progress of ``result``."""
    return []


@pytest.fixture(scope="module")
def result(without_engines: None, progress: list[RunProgress]) -> RunResult:
    """A launch and a copy beside a spin, which delays the copy, and host-register, which delays the launch."""
    names = ["launch", "d2d@secondary", "spin", "host-register"]
    return measure.run(plan(selection(names), seconds=0.5, blame=True), backend="sim", progress=progress.append)


def test_each_aggressor_is_named_for_the_victim_that_it_delays(result: RunResult) -> None:
    (variant,) = result.variants
    blame = variant.blame
    assert blame is not None
    # Victims of two contexts.
    assert variant.slots
    assert blame.rounds >= 3
    assert blame.seconds <= BUDGET_S + 0.5
    launch, copy = blame.find("launch", Phase.CALL, Quantile.P50), blame.find("d2d@secondary", Phase.WAIT, Quantile.P50)
    assert launch is not None
    assert copy is not None
    assert [one.conclusion for one in launch.aggressors] == [Conclusion.INNOCENT, Conclusion.CAUSE]
    assert [one.conclusion for one in copy.aggressors] == [Conclusion.CAUSE, Conclusion.INNOCENT]


def test_verdicts_name_the_cause_that_was_proven(result: RunResult) -> None:
    (variant,) = result.variants
    stalled = {(one.probe, one.phase): one for one in variant.verdicts if one.kind.is_stall}
    launch, copy = stalled["launch", Phase.CALL], stalled["d2d@secondary", Phase.WAIT]
    assert (launch.proof, copy.proof) == (Proof.BLAME, Proof.BLAME)
    assert launch.aggressors == ("host-register",)
    assert "spin" not in launch.cause
    assert "spin" in copy.cause


def test_the_document_holds_the_experiment_and_keeps_to_the_schema(result: RunResult) -> None:
    written = codec.plain(result)
    documents.validator(RUN_SCHEMA).validate(written)
    blame = written["variants"][0]["blame"]
    assert blame["aggressors"] == ["spin", "host-register"]
    figure = next(one for one in blame["figures"] if (one["probe"], one["phase"]) == ("launch", "call"))
    assert figure["outcome"] == "stall"
    assert {one["aggressor"]: one["conclusion"] for one in figure["aggressors"]} == {
        "spin": "innocent",
        "host-register": "cause",
    }


def test_the_text_has_a_table_of_each_stall(result: RunResult) -> None:
    stream = io.StringIO()
    run_text.show_run(TextWriter(stream, width=100), result)
    text = stream.getvalue()
    assert "because of host-register" in text
    assert re.search("host-register .*necessary, sufficient", text)
    assert max(map(len, text.splitlines())) <= 100


def test_progress_includes_the_experiment(result: RunResult, progress: list[RunProgress]) -> None:
    assert result.variants
    done = [step.done_s for step in progress]
    assert done == sorted(done)
    assert progress[-1].total_s > BUDGET_S
    assert done[-1] == pytest.approx(progress[-1].total_s)
    assert len({round(second) for second in done}) > 10


@pytest.mark.parametrize("seed", [2, 23])
def test_a_mixture_names_its_causes_and_no_innocent_one(seed: int) -> None:
    mixture = Mixture.drawn(seed)
    session = mixture.session(seed + 1_000_000)
    try:
        runs = runs_of(mixture, session, 1.5)
    finally:
        session.stop()
    found = scores(mixture, truths(mixture, runs), blamed(mixture, seed))
    assert all(one.right for one in found if not one.borderline)


def test_rounds_of_the_open_states_follow_while_something_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = Mixture.of("launch", "host-register", "spin")
    opened = frozenset({ALL_OFF, frozenset({"spin"})})
    seen: list[BlameWindow] = []

    def undecided(_aggressors: object, _victims: object, measured: Sequence[BlameWindow]) -> frozenset[AggressorState]:
        seen[:] = measured
        return opened

    monkeypatch.setattr(conclusions, "open_states", undecided)
    result = blamed(mixture, 1)
    states = [{one.state for one in seen if one.round == number} for number in range(result.rounds - 1)]
    every = set(experiment.plan_of(mixture.aggressors, [mixture.victim]).states)
    assert states[:FEWEST_ROUNDS] == [every] * FEWEST_ROUNDS
    assert {frozenset(one) for one in states[FEWEST_ROUNDS:]} == {opened}
    assert result.rounds > len(experiment.plan_of(mixture.aggressors, [mixture.victim]).rounds)
    assert result.seconds <= BUDGET_S + 0.5


def test_all_planned_rounds_are_whole_where_nothing_is_undecided(monkeypatch: pytest.MonkeyPatch) -> None:
    mixture = Mixture.of("launch", "host-register", "spin")
    monkeypatch.setattr(conclusions, "open_states", lambda *_: frozenset())
    plan = experiment.plan_of(mixture.aggressors, [mixture.victim])
    measured: list[BlameProgress] = []
    session = mixture.session(1)
    try:
        result = experiment.measure(session, mixture.aggressors, [mixture.victim], progress=measured.append)
    finally:
        session.stop()
    assert result.rounds == len(plan.rounds)
    assert measured[-1].done == plan.windows


def test_aggressors_are_as_before_when_it_is_stopped_or_the_engine_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # With an engine process, which ends.
    monkeypatch.setattr(blame_mixtures, "Session", Session)
    mixture = Mixture.of("launch", "host-register", "spin")
    session = mixture.session(1)
    try:
        session.set_running({"spin": True})
        seen: list[BlameProgress] = []
        with pytest.raises(Stopped):
            experiment.measure(
                session, mixture.aggressors, [mixture.victim], progress=seen.append, stop=lambda: len(seen) == 3
            )
        parts = session.snapshot().probes
        assert {name: parts[name].on for name in ("launch", "host-register", "spin")} == {
            "launch": True,
            "host-register": False,
            "spin": True,
        }

        def stop_engine(_progress: BlameProgress) -> None:
            session.stop()

        with pytest.raises(EngineFailed):
            experiment.measure(session, mixture.aggressors, [mixture.victim], progress=stop_engine)
    finally:
        session.stop()
