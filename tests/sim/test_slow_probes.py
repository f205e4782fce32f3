"""Probes that make a call each second or each five seconds, on the screen's analyzer in virtual time."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from types import SimpleNamespace

import pytest

from factories.virtual_session import VirtualSession
from stallprobes.catalog import entries
from stallprobes.engine.backend import Options
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.view_model import MonitorView, ProbeRow
from stallprobes.live.windows import LONGEST_WINDOW_NS, thinned
from stallprobes.model import MS, Probe, Role
from stallprobes.patterns import patterns
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, Observation, ProbeSet
from stallscope.tui.monitor.guide import Guide
from stallscope.tui.monitor.verdict_log import VerdictLogView, log_lines
from stallscope.tui.probe_sets import aggressors
from stallscope.tui.sources.engine_thread import LiveEngine

STEP_S = 0.1
S = 1_000 * MS
PATTERN = patterns()["idle-wakeup"]
WAKE_UP = Options(sim_set={"wakeup_us": "400"})
LEFT = re.compile(r"about (\d+) s left")


@dataclass
class Frame:
    """The view at a time, and the calls that the launch probe made in all."""

    at_s: float
    view: MonitorView
    calls: int

    @property
    def launch(self) -> ProbeRow:
        found = self.view.row("launch")
        assert found is not None
        return found


class Screen:
    """What the screen does with a session: baselines first, then the longer periods and the aggressors."""

    def __init__(self, probes: Sequence[Probe], options: Options = WAKE_UP) -> None:
        self.probe_set = ProbeSet(title="slow", probes=tuple(probes), backend=SIM)
        self.session = VirtualSession(self.probe_set.probes, backend=SIM, options=options)
        self.session.start()
        self.analyzer = Analyzer(self.probe_set)
        self.frames: list[Frame] = []
        self.engine = LiveEngine.of(self.probe_set, {})
        self.engine.apply(self.session, held=True, idle=False)

    def run(self, seconds: float, until: Callable[[Frame], bool] = lambda _: False) -> Frame:
        for _ in range(round(seconds / STEP_S)):
            held = self.analyzer.holds_aggressors
            self.engine.apply(self.session, held=held, idle=not held)
            self.session.run_for(STEP_S)
            at_s, snapshot = (len(self.frames) + 1) * STEP_S, self.session.snapshot()
            self.analyzer.feed(
                Observation(
                    wall_s=1e9 + at_s,
                    probe_set=self.probe_set,
                    engine=EngineStatus(EngineCondition.READY),
                    snapshot=snapshot,
                )
            )
            self.frames.append(Frame(at_s, self.analyzer.monitor_view("launch"), snapshot.probes["launch"].iterations))
            if until(self.frames[-1]):
                break
        return self.frames[-1]

    @property
    def states(self) -> list[str]:
        """The states of the launch probe, each once where it follows itself."""
        states = [frame.launch.state for frame in self.frames]
        return [state for number, state in enumerate(states) if number == 0 or state != states[number - 1]]

    @property
    def log(self) -> list[str]:
        return [entry.text for entry in self.analyzer.log]


def every(entry: str, period_ns: int) -> Probe:
    """A probe that has that period in its baseline too."""
    return replace(entries()[entry].probe(), period_ns=period_ns)


@pytest.fixture(scope="module")
def each_5_s() -> Iterator[Screen]:
    """The variant ``after-5s`` of ``idle-wakeup`` for 30 s."""
    made = Screen(PATTERN.variant("after-5s").probes)
    made.run(30)
    yield made
    made.session.stop()


@pytest.fixture(scope="module")
def each_1_s() -> Iterator[Screen]:
    """A launch each second, also in its baseline, without an aggressor for 40 s."""
    made = Screen((every("launch", S), every("host", S)), Options())
    made.run(40)
    yield made
    made.session.stop()


def test_a_call_each_5_s_is_counted_and_never_quiet_before_it_is_judged(each_5_s: Screen) -> None:
    assert each_5_s.states == [
        "starting", "baseline", "quiet", "starting", "0/3 calls", "1/3 calls", "2/3 calls", "3/3 calls", "STALLED",
    ]  # fmt: skip
    host = {row.state for frame in each_5_s.frames[-50:] for row in frame.view.rows if row.name == "host"}
    assert host == {"quiet"}


def test_the_time_left_is_that_until_the_verdict(each_5_s: Screen) -> None:
    judged_s = next(frame.at_s for frame in each_5_s.frames if frame.launch.state == "STALLED")
    counted = [frame for frame in each_5_s.frames if frame.launch.progress is not None]
    assert len(counted) > 100
    for frame in counted:
        (sentence,) = frame.view.progress
        left = LEFT.search(sentence)
        assert left is not None
        assert int(left[1]) == pytest.approx(judged_s - frame.at_s, abs=1.1)
        # Nothing is compared with the baseline until then.
        assert frame.launch.ratio is None
    assert counted[0].view.progress[0].startswith("launch: 0 of the 3 calls for a verdict")


def test_its_verdict_names_the_calls_on_which_it_rests(each_5_s: Screen) -> None:
    assert len(each_5_s.log) == 2
    for text in each_5_s.log:
        assert re.search(r"after 5\.00 s without a call \([34] calls\)\.", text)
    # The window has four calls, and the row keeps its verdict.
    assert each_5_s.frames[-1].launch.calls_per_s == pytest.approx(0.2, rel=0.1)


def test_a_baseline_of_one_call_a_second_counts_its_calls(each_1_s: Screen) -> None:
    states = each_1_s.states
    assert states[0] == "starting"
    assert states[1:22] == [f"base {number}/20" for number in range(20)] + ["quiet"]
    complete_s = next(frame.at_s for frame in each_1_s.frames if frame.launch.state == "quiet")
    assert complete_s == pytest.approx(21, abs=1.1)
    for frame in each_1_s.frames:
        if frame.launch.progress is not None and frame.launch.progress.calls:
            assert frame.view.baseline_left_s == pytest.approx(complete_s - frame.at_s, abs=1.1)


def test_one_call_a_second_is_no_stall_while_nothing_disturbs_it(each_1_s: Screen) -> None:
    assert each_1_s.log == []
    assert each_1_s.states[-1] == "quiet"
    assert {row.state for row in each_1_s.frames[-1].view.rows} == {"quiet"}
    assert each_1_s.frames[-1].view.progress == ()


def test_one_call_a_second_beside_an_aggressor_is_a_stall_after_three_of_them() -> None:
    copy = patterns()["secondary-context-d2d"].variant("kernel-other-context").probes
    probes = [replace(one, name="launch", period_ns=S) if one.role is Role.VICTIM else one for one in copy]
    made = Screen(probes, Options())
    made.run(40, until=lambda frame: frame.launch.state == "quiet" and not made.analyzer.holds_aggressors)
    made.engine.switches.update(dict.fromkeys(aggressors(made.probe_set), True))
    on_s, calls = made.frames[-1].at_s, made.frames[-1].calls
    found = made.run(12, until=lambda _: bool(made.analyzer.log))
    made.session.stop()
    assert found.at_s - on_s < 8
    assert found.calls - calls >= 2
    assert re.search(r"\([345] calls\) while ", made.log[0])


def test_the_log_says_how_many_calls_are_missing(each_5_s: Screen) -> None:
    sentence = "launch: 1 of the 3 calls for a verdict, about 10 s left."
    view = VerdictLogView(guide=Guide("Every victim is as fast as its baseline."), progress=(sentence,))
    shown = [" ".join(text for text, _ in line).strip() for _, line in log_lines(view, 80, 6)]
    assert shown[1:] == [sentence]
    view = replace(view, entries=each_5_s.frames[-1].view.log)
    # In a low panel the verdicts have the lines.
    assert sentence not in [" ".join(text for text, _ in line).strip() for _, line in log_lines(view, 80, 6)]
    assert sentence in [" ".join(text for text, _ in line).strip() for _, line in log_lines(view, 80, 9)]


def test_old_snapshots_are_kept_once_a_second() -> None:
    recent = deque(SimpleNamespace(at_ns=33 * MS * number) for number in range(20))
    for number in range(20, 1_800):
        recent.append(SimpleNamespace(at_ns=33 * MS * number))
        thinned(recent)  # type: ignore[arg-type]
    times = [one.at_ns for one in recent]
    newer = [at for at in times if at >= times[-1] - LONGEST_WINDOW_NS]
    assert times[0] == 0
    assert len(newer) == pytest.approx(LONGEST_WINDOW_NS / (33 * MS), abs=1)
    assert len(times) - len(newer) < 62
    assert max(b - a for a, b in pairwise(times)) <= S
