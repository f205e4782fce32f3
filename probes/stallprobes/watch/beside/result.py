"""The effect of aggressors beside a watched program, as data."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from msgspec import Meta

from stallprobes.files.codec import Document, Ratio, Rounded, Sentence, Share, String, Unsigned
from stallprobes.watch.division.parts import Part
from stallprobes.watch.reading.call_stack import StackFrame

_Mhz = Annotated[float, Meta(ge=0, le=1e6), Rounded(0)]


class BesideOutcome(StrEnum):
    """Effect of an aggressor on the program's steps. The values are those of the JSON document.

    ``SAME``: the interval of the ratio contains 1, or ends close to it, and is narrow. ``UNKNOWN``: there is none, or
    it is wide.
    """

    SLOWER = "slower"
    FASTER = "faster"
    SAME = "same"
    UNKNOWN = "unknown"

    @property
    def style(self) -> str:
        """Style of the words."""
        return _STYLES[self]


_STYLES = {
    BesideOutcome.SLOWER: "bad",
    BesideOutcome.FASTER: "accent",
    BesideOutcome.SAME: "good",
    BesideOutcome.UNKNOWN: "dim",
}


class BesideUnit(StrEnum):
    """What is timed of the program: its steps, or where these are not regular, its calls that wait or copy."""

    STEP = "step"
    WAIT = "wait"


class RatioInterval(Document):
    """A ratio with its 95 % interval."""

    ratio: Ratio
    low: Ratio
    high: Ratio


class StepTimes(Document):
    """Times of the steps in some turns; of a program without regular steps, the mean time from one wait to the next."""

    steps: Unsigned = 0
    """How many were timed."""
    p50_ns: Unsigned | None = None
    """The median, or the mean time from one wait to the next."""
    p99_ns: Unsigned | None = None
    """Null with fewer than 100 steps, and without regular steps."""
    sm_clock_mhz: _Mhz | None = None
    """Median of the SM clock by NVML; null where that is not known."""


class GrownPart(Document):
    """The part of the program's time that grew most in a step."""

    part: Part
    off: Share
    """Its share of the recorded time without an aggressor."""
    on: Share
    """Its share with the aggressor."""


class GrownLine(Document):
    """The line of the program at which its threads' time in a step grew most."""

    place: StackFrame
    off: Share
    """Its share of the threads' time without an aggressor."""
    on: Share
    """Its share with the aggressor."""


class BesideRow(Document, kw_only=True):
    """One aggressor beside the program."""

    aggressor: String
    turns: Unsigned = 0
    """Turns in which it ran, and that count."""
    off: StepTimes = StepTimes()
    """In the turns without an aggressor before and after these."""
    on: StepTimes = StepTimes()
    ratio: RatioInterval | None = None
    """Geometric mean over the turns of the median step with it over that without it, by Student's t; null with fewer
    than three turns."""
    grew: GrownPart | None = None
    """Null where no part grew by a tenth of a step or more."""
    line: GrownLine | None = None
    """Null where none grew by a tenth of a step or more, and certainly at all (95 %)."""
    outcome: BesideOutcome = BesideOutcome.UNKNOWN
    reason: String = ""
    """Why the effect is not known; empty if it is."""
    sentence: Sentence = ""


class BesideResult(Document, kw_only=True):
    """What aggressors in a process of stallscope's, on the GPU of the program, did to it."""

    pid: Unsigned = 0
    """The process whose steps are timed; 0 before one was found."""
    gpu: String = ""
    """UUID of its GPU, without GPU- or MIG-; empty if not known."""
    unit: BesideUnit = BesideUnit.STEP
    rows: tuple[BesideRow, ...] = ()
    on_ns: Unsigned = 0
    """For so long an aggressor ran."""
    free_bytes: Unsigned | None = None
    """Least free memory of the GPU meanwhile, by NVML."""
    least_free_bytes: Unsigned | None = None
    """The aggressors end where less is free: 4 GiB, or a tenth of the GPU's memory if more."""
    problem: String = ""
    """Why the aggressors did not run or ended early, a sentence; else empty."""
