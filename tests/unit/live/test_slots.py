"""Slots on the live screen and in recordings: baselines, rates and verdicts count only a victim's own time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from factories.recordings import WALL_S
from factories.simulated_machine import MS, SECOND, machine
from stallprobes.live.analyzer import Analyzer
from stallprobes.live.history import BINS, SLOT_NS, History
from stallprobes.live.view_model import MonitorView, ProbeRow
from stallprobes.model import Phase, Role
from stallprobes.recording.observation import SIM, EngineCondition, EngineStatus, Observation, ProbeSet
from stallprobes.recording.recorder import Recorder
from stallprobes.recording.recording import Recording
from stallprobes.verdicts.kinds import VerdictKind
from stallscope.tui.probe_sets import default_probes

NOISY = Path(__file__).parents[2] / "gpu" / "recorded" / "quiet-h200-noisy.rec"
STEP_NS = 100 * MS
SLOTTED = ("launch", "d2d@secondary")
VICTIMS = (*SLOTTED, "d2h-pinned", "host")
LONGEST_BASELINE_STEPS = 80


@dataclass(frozen=True)
class Shown:
    """What the screen shows: in which step each baseline was complete, and the rows before and with the spin kernel."""

    baselines: Mapping[str, int]
    quiet: MonitorView
    disturbed: MonitorView
    rates: tuple[tuple[float | None, ...], ...]
    file: Path


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Shown:
    """The default screen on the simulated GPU: its baseline, then 2 s of the spin kernel; recorded as well."""
    made = machine(*default_probes())
    probe_set = ProbeSet(title="default", probes=made.probes, backend=SIM)
    analyzer = Analyzer(probe_set)
    file = tmp_path_factory.mktemp("slots") / "default.rec"
    recorder = Recorder(file)
    complete: dict[str, int] = {}
    rates: list[tuple[float | None, ...]] = []

    def step(number: int) -> None:
        made.advance(STEP_NS)
        snapshot = made.board.snapshot()
        observation = Observation(
            wall_s=WALL_S + snapshot.at_ns / 1e9,
            probe_set=probe_set,
            engine=EngineStatus(EngineCondition.READY),
            snapshot=snapshot,
        )
        analyzer.feed(observation)
        recorder.put_blocking(observation, analyzer.baselines)
        for name in analyzer.baselines:
            complete.setdefault(name, number)

    made.switch(True, VICTIMS)
    for number in range(LONGEST_BASELINE_STEPS):
        step(number)
        rows = {row.name: row for row in analyzer.monitor_view(None, strip=0).rows}
        rates.append(tuple(rows[name].calls_per_s for name in VICTIMS))
        if number and not analyzer.without_baseline:
            break
    step(LONGEST_BASELINE_STEPS)
    quiet = analyzer.monitor_view(None, strip=0)
    made.switch(True, ["spin"])
    for number in range(25):
        step(number)
    recorder.close(10.0)
    return Shown(complete, quiet, analyzer.monitor_view(None, strip=0), tuple(rates), file)


def test_a_baseline_is_gathered_over_the_slots_of_its_victim(shown: Shown) -> None:
    """Two seconds of calls take four seconds where two groups share the time."""
    assert {name: shown.baselines[name] for name in ("d2h-pinned", "host")} == dict.fromkeys(("d2h-pinned", "host"), 25)
    for name in SLOTTED:
        assert 44 <= shown.baselines[name] <= 47


def test_rates_count_the_time_of_the_slots_only(shown: Shown) -> None:
    for each in shown.rates[15:]:
        assert each == pytest.approx((1000,) * len(VICTIMS), rel=0.05)


def test_the_copy_is_stalled_as_if_alone_and_nothing_else_is(shown: Shown) -> None:
    states = {row.name: row.state for row in shown.disturbed.rows if row.role is not Role.AGGRESSOR}
    assert states == {"launch": "quiet", "d2d@secondary": "STALLED", "d2h-pinned": "quiet", "host": "quiet"}
    row = shown.disturbed.row("d2d@secondary")
    assert row is not None
    assert row.phase is Phase.WAIT
    assert row.ratio is not None
    assert row.ratio >= 300
    assert [entry.verdict.kind for entry in shown.disturbed.log] == [VerdictKind.STALLED]


def test_a_replay_has_the_same_slots_verdicts_and_rows(shown: Shown) -> None:
    recording = Recording(shown.file)
    analyzer = None
    for observation in recording.play():
        if analyzer is None:
            analyzer = Analyzer(observation.probe_set)
        analyzer.feed(observation)
    assert analyzer is not None
    view = analyzer.monitor_view(None, strip=0)

    def figures(rows: tuple[ProbeRow, ...]) -> list[object]:
        return [(row.name, row.state, row.calls_per_s, row.p50_ns, row.ratio) for row in rows]

    assert figures(view.rows) == figures(shown.disturbed.rows)
    assert [entry.verdict for entry in view.log] == [entry.verdict for entry in shown.disturbed.log]
    groups = {probe.name: probe.slot_group for probe in analyzer.probe_set.probes}
    assert groups == {probe.name: probe.slot_group for probe in default_probes()}


def test_a_recording_from_before_slots_reads_as_before_and_its_groups_follow_from_the_catalogue() -> None:
    frames = (frame for frame in Recording(NOISY).play() if frame.snapshot is not None)
    first, second = next(frames), next(frames)
    groups = {probe.name: probe.slot_group for probe in first.probe_set.probes}
    assert {name: groups[name] for name in VICTIMS} == {
        "launch": (0, "primary"),
        "d2d@secondary": (0, "secondary"),
        "d2h-pinned": None,
        "host": None,
    }
    assert first.snapshot is not None
    assert second.snapshot is not None
    for window in second.snapshot.minus(first.snapshot).values():
        assert not window.in_slots
        assert window.duration_ns == second.snapshot.at_ns - first.snapshot.at_ns


def test_the_heat_map_counts_the_calls_per_second_of_the_slots() -> None:
    history = History(2, 100)
    history.move_to(SECOND)
    empty = np.zeros(BINS, dtype=np.uint32)
    for number in range(1, 10):
        history.move_to(SECOND + number * SLOT_NS, SECOND + (number - 1) * SLOT_NS)
        history.add(0, empty, None, closed_ns=SLOT_NS if number % 2 else 0)
        history.add(1, empty, None)
    assert history.columns(0, 1, 20)[2].tolist() == pytest.approx([0.4])
    assert history.columns(1, 1, 20)[2].tolist() == pytest.approx([0.9])
