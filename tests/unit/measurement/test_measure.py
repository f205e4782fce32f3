"""What names stand for, and how a run goes on the host alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from factories.virtual_session import VirtualSession, virtual_sessions
from stallprobes.engine.session import Session
from stallprobes.errors import EXIT_NO_GPU, EngineFailed, UnknownName
from stallprobes.latency.histogram import Histogram
from stallprobes.measurement import measure
from stallprobes.measurement.plan import plan, selection
from stallprobes.measurement.run_clock import RunProgress
from stallprobes.model import SECONDARY, Channel, Phase, Role
from stallprobes.patterns import patterns
from stallprobes.verdicts.kinds import VerdictKind


@pytest.fixture
def without_engines() -> Iterator[None]:
    """Runs of the simulated GPU start no engine process in this test."""
    with virtual_sessions():
        yield


def test_a_pattern_stands_for_its_variants_and_all_for_every_pattern() -> None:
    whole = selection(["all"])
    assert [name for name, _ in whole] == [p.name for p in patterns().values() for _ in p.variants]
    assert selection(["all", "scalar-readback"]) == whole


def test_only_the_variants_asked_for_are_kept() -> None:
    found = selection(["secondary-context-d2d"], ["third-context", "green-context"])
    assert [variant.name for _, variant in found] == ["third-context", "green-context"]


def test_probes_run_together_with_the_host_control() -> None:
    ((name, variant),) = selection(["launch", "d2d@secondary", "d2h-pageable-warm/shared", "launch@secondary/null"])
    assert name == "probes"
    places = {probe.name: (probe.context, probe.stream) for probe in variant.probes}
    assert places == {
        "launch": ("primary", "own"),
        "d2d@secondary": ("secondary", "own"),
        "d2h-pageable-warm/shared": ("primary", "shared"),
        "launch@secondary/null": ("secondary", "NULL"),
        "host": ("none", "none"),
    }
    assert variant.probes[1].program.context == SECONDARY


def test_probes_over_two_gpus_need_two() -> None:
    ((_, variant),) = selection(["peer-copy"])
    assert variant.needs.gpus == 2


@pytest.mark.parametrize(
    ("names", "variants", "words"),
    [
        (["lunch"], [], 'did you mean "launch"?'),
        (["d2d@secundary"], [], 'did you mean "secondary"?'),
        (["launch/nul"], [], 'did you mean "null"?'),
        (["scalar-readback"], ["pined"], 'did you mean "pinned"?'),
        (["launch"], ["pinned"], 'there is no variant "pinned": only patterns have any'),
        ([""], [], 'there is no pattern or probe ""; see: stallscope list'),
        (["launch/x"], [], 'there is no stream "x"; there are: own, null, shared'),
    ],
)
def test_an_unknown_name_is_said_with_the_nearest(names: list[str], variants: list[str], words: str) -> None:
    with pytest.raises(UnknownName) as caught:
        selection(names, variants)
    assert words in str(caught.value)


def test_a_run_on_the_host_alone_measures_quiet_and_window() -> None:
    result = measure.run(plan(selection(["host"]), seconds=0.5), backend="host")
    (variant,) = result.variants
    assert variant.status == "ok"
    (host,) = variant.probes
    assert host.role is Role.HOST
    assert host.calls > 0
    assert variant.spread is not None
    assert (variant.spread.probe, variant.spread.phase) == ("host", Phase.CALL)
    assert variant.spread.p50 is not None
    assert variant.baseline_s > 0.9
    assert variant.verdicts


@pytest.mark.usefixtures("without_engines")
@pytest.mark.parametrize("together", [False, True])
def test_each_victim_of_several_contexts_is_measured_for_the_whole_time(together: bool) -> None:
    steps: list[RunProgress] = []
    (variant,) = measure.run(
        plan(selection(["launch", "d2d@secondary"]), seconds=0.5, together=together),
        backend="sim",
        progress=steps.append,
    ).variants
    probes = {probe.name: probe for probe in variant.probes}
    assert (variant.slots, variant.together) == (not together, together)
    assert variant.window_s == (0.5 if together else 1.0)
    for name in ("launch", "d2d@secondary"):
        assert probes[name].window_s == pytest.approx(0.5, abs=0.1)
        assert probes[name].calls / probes[name].window_s == pytest.approx(1000, rel=0.02)
    kinds = [verdict.kind for verdict in variant.verdicts]
    assert kinds.count(VerdictKind.OVERHEAD) == together
    assert {result.state for result in variant.probes} == {"quiet"}
    assert steps[-1].done_s == pytest.approx(steps[-1].total_s)


@pytest.mark.usefixtures("without_engines")
def test_the_share_that_is_done_never_goes_back_so_that_its_rate_tells_the_time_left() -> None:
    steps: list[RunProgress] = []
    measure.run(plan(selection(["scalar-readback"]), seconds=0.5), backend="sim", progress=steps.append)
    done = [step.done_s for step in steps]
    assert done == sorted(done)
    assert len(set(done)) > len(done) / 2
    assert steps[-1].done_s == pytest.approx(steps[-1].total_s)


@pytest.mark.usefixtures("without_engines")
def test_a_gpu_that_is_lost_on_the_way_costs_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = iter([True, False, True])
    start = VirtualSession.start

    def losing(session: VirtualSession) -> Mapping[str, object]:
        if next(starts):
            return start(session)
        raise EngineFailed(EXIT_NO_GPU, "no usable GPU: cuInit returned 999")

    monkeypatch.setattr(VirtualSession, "start", losing)
    result = measure.run(plan(selection(["host"]) * 3, seconds=0.5), backend="sim")
    assert [variant.status for variant in result.variants] == ["ok", "invalid", "ok"]
    assert result.variants[1].reason == "no usable GPU: cuInit returned 999"


def test_without_a_gpu_from_the_start_there_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_gpu(_session: Session) -> Mapping[str, object]:
        raise EngineFailed(EXIT_NO_GPU, "no usable GPU")

    monkeypatch.setattr(Session, "start", no_gpu)
    with pytest.raises(EngineFailed):
        measure.run(plan(selection(["host"]), seconds=0.5), backend="host")


@pytest.mark.usefixtures("without_engines")
def test_a_run_that_is_stopped_keeps_what_it_has() -> None:
    asked = iter([False] * 40 + [True] * 1000)
    chosen = selection(["host"]) * 3
    result = measure.run(plan(chosen, seconds=0.5), backend="sim", stop=lambda: next(asked))
    assert result.interrupted
    assert len(result.variants) < 3


@pytest.mark.usefixtures("without_engines")
def test_a_variant_during_which_the_process_was_suspended_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    usual, sessions = VirtualSession.run_for, []

    def run_for(session: VirtualSession, seconds: float) -> None:
        usual(session, seconds)
        if session not in sessions:
            sessions.append(session)
            # As after ctrl+z and fg in the first variant.
            session.gap_s = 60.0 if len(sessions) == 1 else 0.0

    monkeypatch.setattr(VirtualSession, "run_for", run_for)
    steps: list[RunProgress] = []
    (variant,) = measure.run(plan(selection(["host"]), seconds=0.5), backend="sim", progress=steps.append).variants
    assert variant.status == "ok"
    assert len(sessions) == 2
    assert any("measured again" in step.text for step in steps)


@pytest.mark.usefixtures("without_engines")
@pytest.mark.parametrize(
    ("late_ns", "times", "windows", "kind"),
    [(40_000, 1, 2, "quiet"), (40_000, 2, 2, "stalled"), (400_000, 1, 1, "stalled"), (0, 0, 1, "quiet")],
)
def test_a_tail_that_is_stalled_by_little_has_to_be_so_twice(
    monkeypatch: pytest.MonkeyPatch, late_ns: int, times: int, windows: int, kind: str
) -> None:
    """2 of 100 waits are so late in the first ``times`` windows with the aggressor."""
    measured, real = 0, measure._windows

    def late(*arguments: Any, **named: Any) -> Any:
        nonlocal measured
        found = real(*arguments, **named)
        if "host-load" not in found.whole or not found.whole["host-load"].iterations:
            return found
        measured += 1
        if measured > times:
            return found
        window = found.whole["launch"]
        waits = Histogram.of([5_000] * 980 + [5_000 + late_ns] * 20)
        changed = replace(window, channels={**window.channels, Channel(Phase.WAIT): waits})
        return replace(found, whole={**found.whole, "launch": changed})

    monkeypatch.setattr(measure, "_windows", late)
    chosen = plan(selection(["launch", "host-load"]), seconds=0.5)
    (variant,) = measure.run(chosen, backend="sim").variants
    kinds = {one.kind for one in variant.verdicts if one.probe == "launch"}
    assert (measured, kinds) == (windows, {VerdictKind(kind)})
    (launch,) = (one for one in variant.probes if one.name == "launch")
    assert launch.state == VerdictKind(kind).look.word
    assert (launch.phases[Phase.WAIT].p99_ns or 0) > 20_000 or kind == "quiet"
