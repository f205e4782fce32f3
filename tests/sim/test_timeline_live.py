"""The live analyzer and the timeline: baselines of its own, one log entry for a stall, and none for the switch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from factories.virtual_session import VirtualSession
from stallprobes.catalog import Placement, entries
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import MonitorView
from stallprobes.model import SECONDARY, Channel, Phase
from stallprobes.recording.observation import EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.verdicts.kinds import VerdictKind

PROBES = (
    entries()["d2d"].probe(Placement(SECONDARY)),
    entries()["spin"].probe(),
    entries()["host"].probe(),
)
START = Channel(Phase.START)


@dataclass
class Live:
    """A simulated engine that is observed ten times a second. ``timeline`` is what the observations say of it."""

    timeline: bool | None = False
    session: VirtualSession = field(default_factory=lambda: VirtualSession(PROBES, "sim"))
    analyzer: Analyzer = field(init=False)

    def __post_init__(self) -> None:
        self.session.start()
        self.session.set_running(["d2d@secondary", "host"])
        self.probe_set = ProbeSet(title="test", probes=PROBES, backend="sim")
        self.analyzer = Analyzer(self.probe_set)
        self.wall_s = 0.0

    def switch_timeline(self, on: bool) -> None:
        assert self.session._simulated is not None
        self.session._simulated.switch_timeline(on)
        self.timeline = on

    def run(self, seconds: float) -> MonitorView:
        for _ in range(round(seconds * 10)):
            self.session.run_for(0.1)
            self.wall_s += 0.1
            status = EngineStatus(EngineCondition.READY)
            snapshot = self.session.snapshot()
            self.analyzer.feed(
                Observation(
                    wall_s=self.wall_s,
                    probe_set=self.probe_set,
                    engine=status,
                    snapshot=snapshot,
                    timeline=self.timeline,
                )
            )
        return self.analyzer.monitor_view("d2d@secondary")


@pytest.fixture(scope="module", name="stages")
def _stages() -> dict[str, Any]:
    """What was known at each stage of one session: off, being switched, on, stalled, and off again."""
    one = Live()
    found: dict[str, Any] = {}
    one.run(4)
    found["off"] = one.analyzer.baselines["d2d@secondary"]
    one.timeline = None
    # A switch that holds up calls: the kernel stands for it.
    one.session.set_running({"spin": True})
    one.run(1)
    one.session.set_running({"spin": False})
    one.run(0.5)
    found["log while it was switched"] = one.analyzer.log
    found["baselines while it was switched"] = one.analyzer.baselines["d2d@secondary"]
    one.switch_timeline(True)
    found["row after the switch"] = one.run(0.3).rows[0].state
    found["needed after the switch"] = one.analyzer.without_baseline
    one.run(4)
    found["on"] = one.analyzer.baselines["d2d@secondary"]
    one.session.set_running({"spin": True})
    found["stalled"] = one.run(3)
    found["log"] = one.analyzer.log
    one.session.set_running({"spin": False})
    one.run(1)
    one.switch_timeline(False)
    found["end"] = one.run(0.2)
    found["off again"] = one.analyzer.baselines["d2d@secondary"]
    found["iterations"] = one.session.snapshot().probes["d2d@secondary"].iterations
    one.session.stop()
    return found


def test_each_state_of_the_timeline_has_baselines_of_its_own(stages: dict[str, Any]) -> None:
    assert stages["baselines while it was switched"] is stages["off"]
    assert stages["row after the switch"] == "baseline"
    assert set(stages["needed after the switch"]) == {"d2d@secondary", "host"}
    assert START not in stages["off"].channels
    assert stages["on"].channels[START].count > 1000
    assert stages["off again"] is stages["off"]


def test_nothing_is_judged_while_the_timeline_is_switched(stages: dict[str, Any]) -> None:
    assert stages["log while it was switched"] == ()


def test_a_stall_with_the_timeline_is_one_entry_with_the_start(stages: dict[str, Any]) -> None:
    [entry] = stages["log"]
    assert (entry.verdict.kind, entry.verdict.phase) == (VerdictKind.STALLED, Phase.WAIT)
    assert "returned → GPU start 2.19 µs → " in entry.text
    view = stages["stalled"]
    assert isinstance(view, MonitorView)
    assert view.focus is not None
    shown = {channel.phase: channel for channel in view.focus.channels}
    assert {Phase.START, Phase.EARLY, Phase.GPU} < set(shown)
    assert shown[Phase.START].baseline is not None


def test_the_heat_map_counts_each_call_once_and_marks_the_switches(stages: dict[str, Any]) -> None:
    view = stages["end"]
    assert isinstance(view, MonitorView)
    assert view.focus is not None
    # One value of the call and one of the wait.
    assert 0 < view.focus.heat.sum() <= 2 * stages["iterations"]
    words = [words for _, words in view.focus.marks]
    assert [one for one in words if "timeline" in one] == ["timeline on", "timeline off"]
