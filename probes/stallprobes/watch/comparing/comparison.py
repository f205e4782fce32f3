"""Results of a comparison of watched runs: the change of a step, of the verdict, parts, lines, waits and kernels.

They are the members of the JSON document, schema ``stallscope.watch-compare/1``.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Literal

from stallprobes.files.codec import Document, Latency, Natural, Ratio, String, Unsigned, about, brief
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

    command: Annotated[tuple[String, ...], about("The words of the command; one, the command line, if attached.")]
    began_at: Annotated[String | None, about("Begin of the last run, UTC; null if not known.")]
    runs: Annotated[Natural, about("Runs that are compared.")]
    left_out: Annotated[tuple[String, ...], about("A sentence for each run, or kind of run, that is not.")] = ()
    unit_ns: Annotated[tuple[Latency, ...], about("Time of a step, or of the operations, in each run.")] = ()
    verdicts: Annotated[tuple[Bound, ...], about("What bounds it, the most frequent verdict first.")] = ()
    seconds: Annotated[tuple[Bound, ...], about("Other verdicts that hold, or nearly.")] = ()
    line: Annotated[String, about("The line that costs most in the last run; empty where none is known.")] = ""
    before: Annotated[bool, about("Whether that line costs most before its calls, not inside them.")] = False
    parts: Annotated[Mapping[Part, Unsigned], about("Time of each part in a step, the mean of the runs.")] = {}

    @property
    def mean_ns(self) -> float:
        """Geometric mean of the time of a step; 0 without runs."""
        return statistics.geometric_mean(self.unit_ns) if self.unit_ns else 0.0


class ItemChange(Document, kw_only=True):
    """A part, line, place of waits or launches, or kernel whose time in a step changed by more than runs vary."""

    sort: Sort
    name: Annotated[String, about("Part, place, or name of the kernel; the place in the new runs if it moved.")]
    function: Annotated[String, about("Function of the driver that waits; empty for other sorts.")] = ""
    old_ns: Annotated[Latency, about("Time in a step, of waits their price; 0: it was not there.")]
    new_ns: Latency
    change: Annotated[Change, about("worse: it takes longer; better: it takes less.")]

    @property
    def saved_ns(self) -> float:
        """How much less time it takes."""
        return self.old_ns - self.new_ns


class RunsComparison(Document, kw_only=True):
    """Output of `stallscope compare --json` for two files of `stallscope watch --save`. Times are nanoseconds; null
    means unknown."""

    schema: Literal["stallscope.watch-compare/1"] = "stallscope.watch-compare/1"
    change: Annotated[Change, about("Of the time of a step, or of the operations.")]
    sentence: Annotated[String, about("What changed.")] = ""
    why: Annotated[String, about("Why it is unsure, as a sentence; else empty.")] = ""
    unit: Annotated[
        WorkUnit | None,
        about(
            "What is compared. step: the time of a step. kernels: the time in which the same kernels run as often, "
            "where other calls mark the steps; of 1000 operations where no step is known. null: nothing."
        ),
    ] = None
    operations: Annotated[
        bool, about("Whether the unit is 1000 operations, since no step of the old runs is known.")
    ] = False
    ratio: Annotated[Ratio | None, about("New divided by old; null where nothing is compared.")] = None
    low: Annotated[Ratio | None, about("With high its 95 % interval; null where the spread is not measured.")] = None
    high: Ratio | None = None
    detectable: Annotated[Ratio | None, about("Smallest ratio that would be worse.")] = None
    measured: Annotated[bool, about("Whether the spread is that of the runs, three or more of each; else 25 %.")] = (
        False
    )
    differences: Annotated[tuple[Difference, ...], about("What differs between the programs and machines.")] = ()
    notes: Annotated[
        tuple[String, ...], about("Sentences on the kernels with the SM clock, and on what is missing.")
    ] = ()
    items: Annotated[tuple[ItemChange, ...], about("The largest change in time first.")] = ()
    old: RunsSide
    new: RunsSide
    fail_on: Annotated[tuple[Change, ...], about("Changes for which the command exits with 1.")] = ()

    def __repr__(self) -> str:
        return brief(self, "change", "ratio", "sentence")
