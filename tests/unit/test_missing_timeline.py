"""A timeline that cannot be switched on: one sentence and the documented exit code, before anything is measured."""

from __future__ import annotations

from dataclasses import replace

import pytest
from click.testing import CliRunner

import stallprobes
from stallprobes import doctor
from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.errors import EXIT_ENGINE, NoTimeline
from stallprobes.machine.libcuda_survey import DriverReport
from stallprobes.records import libcupti as library
from stallprobes.records.libcupti import Cupti, LibraryFile, matching, refusal
from stallprobes.records.timeline import OFF, UNAVAILABLE, TimelineProblem, TimelineStatus, TimelineUnavailable
from stallscope.cli.main import cli

STATUSES = {
    problem: TimelineStatus(False, problem, f"found {problem.value}", f"do against {problem.value}")
    for problem in TimelineProblem
}


@pytest.fixture(name="status", params=[*STATUSES.values(), OFF, None], ids=lambda one: getattr(one, "problem", "none"))
def _status(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> TimelineStatus | None:
    """The state of the timeline of every session; no session starts an engine, and measuring is an error."""

    def started(self: Session, timeout: float = 0.0) -> dict[str, object]:
        self.info = {"gpu_model": "none"}
        return {}

    def measured(*_: object) -> None:
        raise AssertionError("something was measured")

    monkeypatch.setattr(Session, "start", started)
    monkeypatch.setattr(Session, "timeline_status", lambda _: request.param)
    monkeypatch.setattr(Session, "set_running", measured)
    return request.param  # type: ignore[no-any-return]


def sentence(status: TimelineStatus | None) -> str:
    """What a command says of ``status``."""
    if status is None or status.problem is None:
        return f"{UNAVAILABLE}: CUPTI did not answer in time; the driver may hang, see dmesg"
    return f"{UNAVAILABLE}: {status.found}; {status.do}"


@pytest.mark.parametrize(
    "arguments",
    [("run", "launch", "spin", "--sim", "--timeline"), ("check", "--quick", "--sim", "--timeline")],
    ids=["run", "check"],
)
def test_a_command_ends_with_the_problem_and_exit_code_4(
    status: TimelineStatus | None, arguments: tuple[str, ...]
) -> None:
    done = CliRunner().invoke(cli, arguments)
    assert isinstance(done.exception, NoTimeline)
    assert done.exception.exit_code == EXIT_ENGINE
    assert done.exception.sentence == sentence(status)
    assert done.stdout == ""


def test_the_library_raises_it(status: TimelineStatus | None) -> None:
    with pytest.raises(NoTimeline) as caught:
        stallprobes.run("launch", backend="sim", timeline=True)
    assert str(caught.value) == sentence(status)
    with pytest.raises(NoTimeline):
        stallprobes.check(victims=["launch"], aggressors=["spin"], backend="sim", timeline=True)


def test_a_timeline_that_is_on_is_no_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    on = replace(OFF, on=True, note="no context switches")
    monkeypatch.setattr(Session, "timeline_status", lambda _: on)
    session = Session([entries()["launch"].probe()], "sim", options=Options(timeline=True))
    assert session.require_timeline() is on


class RefusingLibrary(Cupti):
    """A library as ``refusal`` reads it."""

    def __init__(self) -> None:
        self.path = "/x/libcupti.so.13"
        self.version = 130_101

    def text(self, code: int) -> str:
        return f"CODE_{code}"


@pytest.mark.parametrize("code", [*library._PROBLEMS, 999])
def test_every_refusal_of_cupti_says_what_is_wrong_and_what_to_do(code: int) -> None:
    status = refusal(RefusingLibrary(), "cuptiSubscribe", code).status
    assert status.found
    assert status.do
    assert status.sentence == f"{UNAVAILABLE}: {status.found}; {status.do}"
    assert "\n" not in status.sentence


@pytest.mark.parametrize(
    ("cuda", "libraries"), [(13_000, ()), (12_090, (13,)), (13_000, (12,))], ids=["missing", "too new", "too old"]
)
def test_the_doctor_and_the_engine_use_the_same_words(cuda: int, libraries: tuple[int, ...]) -> None:
    found = [LibraryFile(f"/x/libcupti.so.{major}", major, "Python package") for major in libraries]
    with pytest.raises(TimelineUnavailable) as caught:
        matching(cuda, found)
    [finding] = doctor._timeline(DriverReport(cuda_version=cuda), lambda: found, lambda _: None)
    status = caught.value.status
    assert f"the {finding.subject} is {finding.found}; {finding.do}" == status.sentence


@pytest.mark.parametrize("version", [28, 130_001, 130_101])
def test_the_doctor_says_of_context_switches_what_the_engine_says(version: int) -> None:
    major = 12 if version == 28 else 13
    found = [LibraryFile("/x/libcupti.so", major, "Python package")]
    [finding] = doctor._timeline(DriverReport(cuda_version=1000 * major), lambda: found, lambda _: version)
    why, do = library.without_context_switches(version)
    assert finding.found.endswith(f", {why}" if why else "libcupti.so)")
    assert finding.do == do
