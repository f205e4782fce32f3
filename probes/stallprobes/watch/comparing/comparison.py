"""Results of a comparison of watched runs: the change of a step, of the verdict, parts, lines, waits and kernels.

They are the members of the JSON document, schema ``stallscope.watch-compare/1``.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from enum import StrEnum
from typing import Literal

from stallprobes.files.codec import Document, Latency, Natural, Ratio, String, Unsigned, brief
from stallprobes.matrix.comparing.comparability import Difference
from stallprobes.matrix.comparing.comparison import Change
from stallprobes.watch.comparing.measures import WorkUnit
from stallprobes.watch.division.parts import Bound, Part


class Sort(StrEnum):
    """Sort of what changed. The values are those of JSON. LAUNCH: the kernels that a line launches."""

    WAIT = "wait"
    LINE = "line"
    LAUNCH = "launch"
    KERNEL = "kernel"
    PART = "part"


class RunsSide(Document, kw_only=True):
    """The runs of one side."""

    command: tuple[String, ...]
    """The words of the command; one, the command line, if attached."""
    began_at: String | None
    """Begin of the last run, UTC; null if not known."""
    runs: Natural
    """Runs that are compared."""
    left_out: tuple[String, ...] = ()
    """A sentence for each run, or kind of run, that is not."""
    unit_ns: tuple[Latency, ...] = ()
    """Time of a step, or of the operations, in each run."""
    verdicts: tuple[Bound, ...] = ()
    """What bounds it, the most frequent verdict first."""
    seconds: tuple[Bound, ...] = ()
    """Other verdicts that hold, or nearly."""
    line: String = ""
    """The line that costs most in the last run; empty where none is known."""
    before: bool = False
    """Whether that line costs most before its calls, not inside them."""
    parts: Mapping[Part, Unsigned] = {}
    """Time of each part in a step, the mean of the runs."""

    @property
    def mean_ns(self) -> float:
        """Geometric mean of the time of a step; 0 without runs."""
        return statistics.geometric_mean(self.unit_ns) if self.unit_ns else 0.0


class ItemChange(Document, kw_only=True):
    """A part, line, place of waits or launches, or kernel whose time in a step changed by more than runs vary."""

    sort: Sort
    name: String
    """Part, place, or name of the kernel; the place in the new runs if it moved."""
    function: String = ""
    """Function of the driver that waits; empty for other sorts."""
    old_ns: Latency
    """Time in a step, of waits their price; 0: it was not there."""
    new_ns: Latency
    change: Change
    """worse: it takes longer; better: it takes less."""

    @property
    def saved_ns(self) -> float:
        """How much less time it takes."""
        return self.old_ns - self.new_ns


class RunsComparison(Document, kw_only=True):
    """Output of `stallscope compare --json` for two files of `stallscope watch --save`. Times are nanoseconds; null
    means unknown."""

    schema: Literal["stallscope.watch-compare/1"] = "stallscope.watch-compare/1"
    change: Change
    """Of the time of a step, or of the operations."""
    sentence: String = ""
    """What changed."""
    why: String = ""
    """Why it is unsure, as a sentence; else empty."""
    unit: WorkUnit | None = None
    """What is compared. step: the time of a step. kernels: the time in which the same kernels run as often, where other
    calls mark the steps; of 1000 operations where no step is known. null: nothing."""
    operations: bool = False
    """Whether the unit is 1000 operations, since no step of the old runs is known."""
    ratio: Ratio | None = None
    """New divided by old; null where nothing is compared."""
    low: Ratio | None = None
    """With high its 95 % interval; null where the spread is not measured."""
    high: Ratio | None = None
    detectable: Ratio | None = None
    """Smallest ratio that would be worse."""
    measured: bool = False
    """Whether the spread is that of the runs, three or more of each; else 25 %."""
    differences: tuple[Difference, ...] = ()
    """What differs between the programs and machines."""
    notes: tuple[String, ...] = ()
    """Sentences on the kernels with the SM clock, and on what is missing."""
    items: tuple[ItemChange, ...] = ()
    """The largest change in time first."""
    old: RunsSide
    new: RunsSide
    fail_on: tuple[Change, ...] = ()
    """Changes for which the command exits with 1."""

    def __repr__(self) -> str:
        return brief(self, "change", "ratio", "sentence")
