"""Effects of aggressors beside a program, made by hand, and aggressors that only note what is switched."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from stallprobes.errors import BesideRefused
from stallprobes.watch.beside.result import (
    BesideOutcome,
    BesideResult,
    BesideRow,
    BesideUnit,
    GrownPart,
    RatioInterval,
    StepTimes,
)
from stallprobes.watch.beside_text import row_text
from stallprobes.watch.division.parts import Part


def beside_result() -> BesideResult:
    """One aggressor that makes steps slower, and one with too few turns."""
    rows = (
        BesideRow(
            aggressor="spin",
            turns=6,
            off=StepTimes(900, 14_100_000, 15_000_000, 1980),
            on=StepTimes(400, 27_900_000, 29_600_000, 1980),
            ratio=RatioInterval(1.984, 1.952, 2.011),
            grew=GrownPart(Part.SHARED, 0.0, 0.48),
            outcome=BesideOutcome.SLOWER,
        ),
        BesideRow(
            aggressor="h2d-pinned-large",
            turns=2,
            off=StepTimes(90, 14_100_000),
            on=StepTimes(90, 14_200_000),
            reason="2 of at least 3 turns",
        ),
    )
    return BesideResult(
        pid=4711,
        gpu="41414141-4141-4141-4141-414141414141",
        rows=tuple(row.changed(sentence=row_text(row, BesideUnit.STEP)) for row in rows),
        on_ns=14_700_000_000,
        free_bytes=int(38.2 * (1 << 30)),
        least_free_bytes=14 << 30,
    )


@dataclass
class FakeAggressors:
    """Aggressors that note what was switched; those of ``never`` do nothing."""

    clock: Callable[[], int]
    names: tuple[str, ...] = ("spin", "dram")
    ended: str = ""
    refused: dict[str, str] = field(default_factory=dict)
    free_bytes: int | None = 50 << 30
    least_free_bytes: int | None = 14 << 30
    never: tuple[str, ...] = ()
    refusal: str = ""
    running: str = ""
    stopped: bool = False
    pids: tuple[int, ...] = (4242,)
    switched: list[tuple[int, str]] = field(default_factory=list)
    sm_clock_mhz: float | None = 1980.0

    def start(self) -> None:
        if self.refusal:
            raise BesideRefused(self.refusal)

    def run(self, name: str) -> None:
        self.running = name
        self.switched.append((self.clock(), name))

    def mark(self) -> None:
        pass

    @property
    def has_run(self) -> bool:
        return self.running not in self.never

    @property
    def is_idle(self) -> bool:
        return self.clock() - self.switched[-1][0] >= 150_000_000

    def stop(self) -> None:
        self.stopped = True
