"""A machine that varies as recorded checks of it do, on a clock of its own: a check measures it without an engine.

A window is drawn from the repeats that the recorded checks have of its cell, so it varies between repeats as the
machine did, and takes as long as it took there. What the checks do not hold, the time between the windows, is estimated
from the sleeps of ``window_measurer`` and the calls that these wait for.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from stallprobes.catalog.host import HOST
from stallprobes.latency.window import Window
from stallprobes.matrix.check import runner
from stallprobes.matrix.check.plan import AggressorSet, Plan, VictimProbe, plan
from stallprobes.matrix.check.window_measurer import Lengths, VictimWindow
from stallprobes.matrix.matrix import QUIET, Matrix, Repeat
from stallprobes.model import Phase

# Start of an engine with all probes.
_START_S = 3.0
# Sleep before a window, with the snapshots around it.
_LEAD_IN_S = 0.0026
# Start, settling and end of aggressors whose iterations are short.
_SWITCH_S = 0.018
# A victim that stops is awaited for so long at most; with a shorter call than this it has stopped by then.
_PARK_AT_MOST_S, _PARKED_S = 0.05, 0.0005
# A window lasts at least so long, and so many iterations of a slow aggressor.
_SHORTEST_S, _ITERATIONS = 0.0075, 1.2


@dataclass
class RecordedMachine:
    """The repeats of recorded ``checks`` by cell, and a clock.

    ``slowness`` multiplies the time between the windows. With 1.5 the checks of the machine in
    tests/gpu/recorded/minute have as many additional repeats as the recorded ones, with 1 more, with 2 none.
    """

    checks: Sequence[Matrix]
    seed: int
    slowness: float = 1.0
    now_s: float = 1000.0
    blocks: list[tuple[str, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._dice = random.Random(self.seed)
        self._repeats: dict[tuple[str, str], list[Repeat]] = {}
        for check in self.checks:
            for key, cell in check.cells.items():
                if cell.status.measured:
                    self._repeats.setdefault(key, []).extend(cell.repeats)
        self._columns: dict[str, list[str]] = {}
        lengths: dict[str, list[float]] = {}
        for (row, column), repeats in self._repeats.items():
            if column != QUIET:
                self._columns.setdefault(row, []).append(column)
                lengths.setdefault(column, []).extend(one.window.duration_ns / 1e9 for one in repeats)
        self._lengths_s = {column: statistics.median(found) for column, found in lengths.items()}

    @property
    def plan(self) -> Plan:
        """The plan of the cells that the recorded checks measured."""
        whole = plan()
        victims = tuple(victim for victim in whole.victims if victim.row.name in self._columns)
        return Plan(victims, tuple(one for one in whole.aggressor_sets if one.column.name in self._lengths_s))

    def iteration_s(self, column: str) -> float:
        """Duration of an iteration of slow aggressors, by the lengths of their windows; 0 for others."""
        usual = self._lengths_s[column]
        # The spin kernels keep a queue full, which has no iterations.
        return usual / _ITERATIONS if usual > _SHORTEST_S and not column.startswith("spin") else 0.0

    def start(self) -> None:
        """Spend the time of the start of an engine."""
        self.now_s += _START_S * self.slowness

    def baseline(self, row: str, lengths: Lengths) -> VictimWindow:
        """A window of a victim with no aggressor."""
        drawn = self._dice.choice(self._repeats[row, self._dice.choice(self._columns[row])])
        self.now_s += _LEAD_IN_S * self.slowness + lengths.baseline_s
        calls = max((one.count for one in drawn.before.values()), default=0)
        return VictimWindow(Window(drawn.before, calls, round(lengths.baseline_s * 1e9)), self._host(QUIET))

    def windows(self, rows: Sequence[str], column: str, lengths: Lengths) -> dict[str, VictimWindow]:
        """The windows of a block."""
        self.blocks.append((column, len(rows)))
        self.now_s += (_SWITCH_S + self.iteration_s(column) / 2) * self.slowness
        return {row: self._window(row, column, lengths) for row in rows}

    def _window(self, row: str, column: str, lengths: Lengths) -> VictimWindow:
        drawn = self._dice.choice(self._repeats[row, column])
        seconds = drawn.window.duration_ns / 1e9 if lengths.calls else lengths.window_s
        channels = drawn.window.channels
        slowest_s = (
            max((c.max_ns for one, c in channels.items() if one.phase in (Phase.CALL, Phase.WAIT)), default=0) / 1e9
        )
        park_s = min(slowest_s / 2, _PARK_AT_MOST_S) if slowest_s > 2 * _PARKED_S else 0.0
        self.now_s += (_LEAD_IN_S + park_s) * self.slowness + seconds
        return VictimWindow(drawn.window, self._host(column))

    def _host(self, column: str) -> Mapping[Any, Any]:
        return self._dice.choice(self._repeats[HOST, column]).window.channels


@dataclass
class _Session:
    info: Mapping[str, object] = field(default_factory=lambda: {"devices": []})

    def probe_failures(self) -> list[object]:
        """No probe fails."""
        return []


class _RecordedCellRunner:
    """What a check asks of a cell runner, answered by a recorded machine."""

    def __init__(
        self, machine: RecordedMachine, victims: Sequence[VictimProbe], aggressor_sets: Sequence[AggressorSet]
    ) -> None:
        self._machine = machine
        self._measured: set[str] = set()
        self.rows = tuple(victim.row.name for victim in victims)
        self.aggressor_sets = aggressor_sets
        self.session = _Session()
        self.timeline = None

    def __enter__(self) -> _RecordedCellRunner:
        self._machine.start()
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def iteration_s(self, aggressor_set: AggressorSet) -> float:
        """Duration of an iteration of the aggressors, 0 before the first measurement."""
        column = aggressor_set.column.name
        return self._machine.iteration_s(column) if column in self._measured else 0.0

    def measure_baselines(
        self, victims: Sequence[VictimProbe], lengths: Lengths, _rng: random.Random
    ) -> dict[str, VictimWindow]:
        """Windows of the victims with no aggressor."""
        return {victim.row.name: self._machine.baseline(victim.row.name, lengths) for victim in victims}

    def measure(
        self, aggressor_set: AggressorSet, victims: Sequence[VictimProbe], lengths: Lengths, _rng: random.Random
    ) -> dict[str, VictimWindow]:
        """Windows of the victims with the aggressors running."""
        self._measured.add(aggressor_set.column.name)
        return self._machine.windows([victim.row.name for victim in victims], aggressor_set.column.name, lengths)


@contextmanager
def _in_place_of_an_engine(machine: RecordedMachine) -> Iterator[None]:
    def cell_runner(victims: Sequence[VictimProbe], sets: Sequence[AggressorSet], *_: Any) -> _RecordedCellRunner:
        return _RecordedCellRunner(machine, victims, sets)

    def now_s() -> float:
        return machine.now_s

    known = dict(machine.checks[0].fingerprint)
    with (
        mock.patch.object(runner, "CellRunner", cell_runner),
        mock.patch("stallprobes.matrix.check.schedule.time.monotonic", now_s),
        mock.patch.object(runner._Check, "_fingerprint", return_value=known),
    ):
        yield


def checked(machine: RecordedMachine) -> Matrix:
    """A check of ``machine``."""
    with _in_place_of_an_engine(machine):
        return runner.run(machine.plan, backend="cuda", seed=machine.seed)
