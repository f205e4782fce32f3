"""Counts of consecutive times: those between two times, and how many are kept."""

from __future__ import annotations

import pytest

from stallprobes.watch.reading import timed_counts
from stallprobes.watch.reading.timed_counts import TimedCounts


def test_neighbouring_times_are_merged_and_nothing_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timed_counts, "_MOST", 4)
    counts = TimedCounts()
    assert counts.between(0, 100) == (0, {})
    for second in range(5):
        counts.add(second, second + 1, {"a": 1, "b": second})
    # Two pairs of times, and the last one.
    assert counts.between(0, 5) == (5, {"a": 5, "b": 10})
    assert counts.between(2, 5) == (3, {"a": 3, "b": 9})
    # The time from 0 to 2 began before.
    assert counts.between(1, 5) == (3, {"a": 3, "b": 9})
    assert counts.between(9, 10) == (1, {"a": 1, "b": 4})
