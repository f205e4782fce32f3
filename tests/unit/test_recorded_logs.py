"""Recordings of an H200 and of the simulated GPU, analyzed again: verdict logs and rows of the screen.

``tests/data/recorded_stalls.json`` holds the stalls that an earlier version reported, with one histogram of two seconds
as the baseline. ``recorded_logs.json.gz`` holds what this version reports; ``STALLSCOPE_REMAKE=1`` writes it anew.
"""

from __future__ import annotations

import gzip
import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from factories import replayed as replays
from factories.replayed import Replayed
from stallprobes.files import codec
from stallprobes.latency.baseline import Baseline
from stallprobes.live.analyzer import Analyzer
from stallprobes.recording.recording import Recording

TESTS = Path(__file__).parents[1]
LOGS = TESTS / "data" / "recorded_logs.json.gz"
NOISY = "quiet-h200-noisy"
# The default screen on an H200 whose calls varied by up to ×6.6: alone for 305 s, then the spin kernel, fresh pageable
# copies and a blame experiment. The screen drew 30 times a second; the file has five observations of each second.
SLOTS = TESTS / "gpu" / "recorded" / "quiet-h200-slots.rec"
SLOTS_ALONE_S = 305
RECORDINGS = {
    **{path.stem: path for path in sorted((TESTS.parent / "screenshots" / "recordings").glob("*.rec"))},
    "stall": TESTS / "screen" / "data" / "stall.rec",
    NOISY: TESTS / "gpu" / "recorded" / f"{NOISY}.rec",
}
# The earlier version had no timeline.
REPORTED = json.loads((TESTS / "data" / "recorded_stalls.json").read_text())
# A stall may be reported this much later than by the earlier version.
LATER_S = 0.5
# Rows of the screen are compared at each of these observations.
ROWS_EVERY = 10

Json = Any


class RowsAnalyzer(Analyzer):
    """An analyzer that keeps the rows of the screen, so that a recording is read and analyzed once for log and rows."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.fed = 0
        self.rows: list[Json] = []

    def follow_recorded(self, baselines: Mapping[str, Baseline]) -> None:
        super().follow_recorded(baselines)
        self.fed += 1
        if self.fed % ROWS_EVERY == 0:
            view = self.monitor_view(None, strip=0)
            self.rows.append(
                [
                    [
                        w.name,
                        w.state,
                        str(w.quantile),
                        three(w.ratio),
                        three(None if w.p50_ns is None else w.p50_ns / 1000),
                    ]
                    for w in view.rows
                ]
            )


@cache
def replayed(name: str) -> Replayed:
    # The rows of the long one would take most of the time of this module.
    return replays.replayed(RECORDINGS[name], Analyzer if name == NOISY else RowsAnalyzer)


def entries(recording: Replayed) -> list[Mapping[str, Json]]:
    """The log: members of a verdict as documents have them, and the entry's own."""
    return [
        {
            **codec.plain(entry.verdict),
            "number": entry.number,
            "at_s": round(entry.began_s - recording.begun_s, 3),
            "duration_s": round(max((entry.ended_s or recording.last_s) - entry.began_s, 0.0), 3),
            "ended": entry.ended_s is not None,
            "onset": entry.onset,
        }
        for entry in recording.analyzer.log
    ]


def three(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def figures(name: str) -> Json:
    log = [
        [
            *(entry[key] for key in ("number", "kind", "probe", "phase", "quantile", "proof", "ended")),
            *(three(entry[key]) for key in ("at_s", "duration_s", "ratio", "detectable")),
            entry["range_ns"],
        ]
        for entry in entries(replayed(name))
    ]
    analyzer = replayed(name).analyzer
    return {"log": log, "rows": analyzer.rows if isinstance(analyzer, RowsAnalyzer) else []}


@pytest.mark.parametrize("name", RECORDINGS)
def test_a_recording_gives_the_same_log_and_rows(name: str) -> None:
    if os.environ.get("STALLSCOPE_REMAKE"):
        known = json.loads(gzip.decompress(LOGS.read_bytes())) if LOGS.exists() else {}
        text = json.dumps({**known, name: figures(name)}, sort_keys=True)
        LOGS.write_bytes(gzip.compress(text.encode(), mtime=0))
    assert json.loads(json.dumps(figures(name))) == json.loads(gzip.decompress(LOGS.read_bytes()))[name]


@pytest.mark.parametrize("name", REPORTED)
def test_every_stall_that_was_reported_before_is_reported_as_soon(name: str) -> None:
    wanted = REPORTED[name]
    found = [
        (entry["probe"], entry["phase"], entry["at_s"])
        for entry in entries(replayed(name))
        if entry["kind"] in ("stalled", "starved")
    ]
    assert len(found) == len(wanted)
    for (probe, phase, at_s), before in zip(found, wanted, strict=True):
        assert (probe, phase) == (before["probe"], before["phase"])
        assert at_s <= before["at_s"] + LATER_S


def test_a_noisy_machine_left_alone_is_unsteady_once_per_probe_and_two_contexts_wait_for_each_other() -> None:
    verdicts = entries(replayed(NOISY))
    (change_over,) = (entry for entry in verdicts if entry["kind"] != "unsteady")
    assert change_over["kind"] == "overhead"
    assert "change-over" in change_over["sentence"]
    verdicts = [entry for entry in verdicts if entry is not change_over]
    assert max(Counter(entry["probe"] for entry in verdicts).values()) == 1
    (launch,) = (entry["range_ns"] for entry in verdicts if entry["probe"] == "launch")
    assert launch[0] < 5_000 < 12_000 < launch[1]


def test_a_screen_with_slots_left_alone_is_unsteady_once_per_probe_and_then_reports_the_stall_alone() -> None:
    verdicts = entries(replays.replayed(SLOTS))
    alone = [entry for entry in verdicts if entry["at_s"] < SLOTS_ALONE_S]
    assert {entry["kind"] for entry in alone} == {"unsteady"}
    assert len({entry["probe"] for entry in alone}) == len(alone)
    (stall,) = (entry for entry in verdicts if entry not in alone)
    assert (stall["kind"], stall["probe"], stall["phase"]) == ("stalled", "d2d@secondary", "wait")
    assert stall["ratio"] > 250


def test_a_recording_holds_how_long_each_thread_polled() -> None:
    with closing(Recording(SLOTS)) as recording:
        first = [observation.snapshot for observation in islice(recording.play(), 60)]
    polled_ns = [snapshot.probes["launch"].polled_ns for snapshot in first if snapshot is not None]
    assert polled_ns[-1] > 100_000_000


def test_every_stall_of_a_pattern_is_proven_by_its_switch() -> None:
    stalls = [
        entry for name in RECORDINGS for entry in entries(replayed(name)) if entry["kind"] in ("stalled", "starved")
    ]
    assert len(stalls) >= 5
    assert {entry["proof"] for entry in stalls} == {"switching"}
    assert all("began and ended with" in entry["onset"] for entry in stalls)
