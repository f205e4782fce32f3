"""Whether what is stated holds the cost of simulated programs, whose rates differ by more than records cost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

from factories.watch_calls import process
from stallprobes.native.dtypes import dtype_of
from stallprobes.native.layouts.watch_file import Window
from stallprobes.watch.cost import cost_of
from stallprobes.watch.reading.process import ClockPair
from stallprobes.watch.reading.record_windows import RESUMED_NS, RecordWindows

MS, SEEDS, LEAST_COVERAGE = 1_000_000, 200, 0.93
# Shortest window (ms), and by how much longer cycles are at most.
SHORTEST_MS, LONGER = 60.0, 0.25


@dataclass(frozen=True)
class Program:
    """A program that is watched.

    - ``rate``: its calls per ms, which have levels that differ by ``drift`` at most, for ``level_ms`` each; ``noise``
      is that of a window of 100 ms. A part of the windows, ``disturbed``, is slower by 20 to 70 %.
    - ``share``: the share of time with records, which slow it by a share at each time (ms).
    - ``period_ms``: all calls come in three tenths of it.
    - ``callbacks``: windows without records are quiet, but for the time before records, which is slower by this share.
    """

    rate: float = 30.0
    share: float = 0.3
    slower: Callable[[float], float] = lambda _: 0.15
    drift: float = 0.2
    level_ms: float = 1000.0
    noise: float = 0.05
    disturbed: float = 0.0
    period_ms: float = 0.0
    callbacks: float = 0.0

    def run(self, compared: int, seed: int) -> tuple[RecordWindows, float]:
        """Windows with so many comparisons, and what share of the time records cost since they were first off."""
        random = np.random.default_rng(seed)
        lengths, shorter = [200.0], min(self.share, 1 - self.share)
        for number in range(2 * compared + 1):
            cycle = SHORTEST_MS / shorter * (1 + LONGER * random.random())
            lengths.append(cycle * (self.share if number % 2 else 1 - self.share))
        ends = np.cumsum(lengths)
        begins = ends - lengths
        on = np.arange(len(ends)) % 2 == 0
        resumed = np.minimum(RESUMED_NS / MS / np.array(lengths), 1)
        slower = np.where(on, [self.slower(begin) for begin in begins], self.callbacks * resumed)
        times = np.arange(0.0, ends[-1], 1.0)
        levels = 1 + self.drift * random.uniform(-1, 1, int(ends[-1] / self.level_ms) + 2)
        rates = self.rate * levels[(times / self.level_ms + random.random()).astype(int)]
        if self.period_ms:
            rates *= ((times + self.period_ms * random.random()) % self.period_ms < 0.3 * self.period_ms) / 0.3
        made = np.diff(np.append(0.0, np.cumsum(rates))[np.append(begins, ends[-1]).astype(int)])
        spread = self.noise * (100 / np.array(lengths)) ** 0.5
        # The mean rate is the same whatever the length.
        scatter = np.exp(spread * random.normal(size=len(ends)) - spread**2 / 2)
        scatter *= np.where(random.random(len(ends)) < self.disturbed, random.uniform(0.3, 0.8, len(ends)), 1)
        rows = np.zeros(len(ends), dtype_of(Window))
        rows["began_ns"], rows["ended_ns"], rows["records"] = begins * MS, ends * MS, on
        rows["took_ns"] = rows["ended_ns"] - rows["began_ns"]
        rows["calls"] = random.poisson(made * scatter * (1 - slower))
        rows["kept"], rows["quiet"] = rows["calls"], ~on & (self.callbacks > 0)
        return RecordWindows.of(rows), float((slower * lengths)[1:].sum() / sum(lengths[1:]))


PROGRAMS = {
    "drift": Program(),
    "quick drift": Program(level_ms=150.0),
    "little time": Program(share=0.05),
    "most of the time": Program(share=0.9),
    "noise": Program(share=0.9, noise=0.15),
    "nothing": Program(slower=lambda _: 0.0),
    "few calls": Program(rate=1.0),
    "disturbed": Program(disturbed=0.1),
    "steps longer than windows": Program(period_ms=500.0, drift=0.1),
    "phases": Program(slower=lambda at: 0.3 if at % 1100 < 300 else 0.05),
    "quiet windows": Program(slower=lambda _: 0.25, callbacks=0.15),
    "one change": Program(slower=lambda at: 0.3 if at < 3000 else 0.05),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_stated_interval_holds_what_records_cost(name: str) -> None:
    held = measured = 0
    for compared, seed in product((6, 9, 20, 40), range(SEEDS)):
        windows, truth = PROGRAMS[name].run(compared, seed)
        watched = process().changed(windows=windows, started=ClockPair(0, 0), records=0, stacks_ns=0, budget=0.05)
        cost = cost_of(watched, int(windows.ends[-1]))
        if cost.compared:
            measured += 1
            # Shares are written with six decimals.
            held += cost.low - 1e-6 <= truth <= cost.high + 1e-6
    assert measured > 3 * SEEDS
    assert held >= LEAST_COVERAGE * measured, f"{held} of {measured}"
