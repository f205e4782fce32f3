"""Verdict kinds and the table of their words, letters, marks and styles. Loads neither the catalogue nor numpy."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# Number of iterations in half a second (STARVED_WINDOW_NS) below which a victim is starved. A victim is never starved
# if the victim runs back to back, or if at most twice this number of iterations are due in half a second.
STARVED_CALLS = 3
# Length (ns) that a window needs for the verdict that a victim is starved.
STARVED_WINDOW_NS = 500_000_000
# Age (ns) from which a call in flight, or unfinished GPU work, is reported. Some younger call is nearly always in
# flight when a window ends.
IN_FLIGHT_NS = 100_000_000
# Results of a comparison that the user can select as failures (--fail-on).
FAILURES = ("worse", "starved", "better", "unsure")
# Results of a comparison that count as failures by default.
FAIL_ON = ("worse", "starved")
# Value of --fail-on with which an unusual stall lets a check fail. A stall of a victim beside an aggressor is unusual
# if no check of the reference has the stall.
UNUSUAL = "unusual"


class VerdictKind(StrEnum):
    """Kind of a verdict, from harmless to severe. The values are those of the JSON documents.

    ``GPU_TIME``: a call takes much longer on the host than its own GPU work, since it waits for earlier GPU work.
    ``OVERHEAD``: a call or wait takes much longer than its GPU work, and the driver or the change-over from another
    context takes that time. ``DRIFT``: slower than the baseline, and as slow after the aggressors stopped.
    ``UNSTEADY``: the machine itself varies by as much, with no aggressor running, or the measurement is too short to
    tell. ``HOST``: the machine itself was slower, without CUDA. ``STARVED``: fewer than 3 calls returned in half a
    second. ``FAILED``: a call returned an error.
    """

    QUIET = "quiet"
    GPU_TIME = "gpu-time"
    OVERHEAD = "overhead"
    DRIFT = "drift"
    UNSTEADY = "unsteady"
    SLOWER = "slower"
    HOST = "host"
    STALLED = "stalled"
    STARVED = "starved"
    FAILED = "failed"

    @property
    def severity(self) -> int:
        """Rank of the kind: 0 for quiet, more for worse."""
        return _SEVERITY[self]

    @property
    def look(self) -> Look:
        """Word, letter, mark and style of the kind."""
        return LOOKS[self]

    @property
    def is_stall(self) -> bool:
        """True if a victim waits: slower, stalled or starved."""
        return self in (VerdictKind.SLOWER, VerdictKind.STALLED, VerdictKind.STARVED)

    @property
    def logged(self) -> bool:
        """True if the live screen logs verdicts of this kind: all but quiet."""
        return self is not VerdictKind.QUIET

    @property
    def is_slowdown(self) -> bool:
        """True if a probe waits or fails now: all but quiet, drift and the machine's own variation."""
        return self not in (VerdictKind.QUIET, VerdictKind.DRIFT, VerdictKind.UNSTEADY)


@dataclass(frozen=True)
class Look:
    """Display attributes of a kind or status.

    ``word`` in sentences and rows, capitals for what makes a program wait; ``letter`` in the text matrix; ``mark``, one
    or two characters beside a figure on the screen; ``style``: "good", "warn", "bad", "accent", "dim", "faint" or "";
    ``meaning`` explains the letter in a legend.
    """

    word: str
    letter: str = ""
    mark: str = ""
    style: str = ""
    meaning: str = ""


# Words and marks of each kind of verdict.
LOOKS = {
    VerdictKind.QUIET: Look("quiet", style="good"),
    VerdictKind.GPU_TIME: Look("GPU time", "g", style="accent", meaning="GPU time"),
    VerdictKind.OVERHEAD: Look("overhead", "o", style="accent", meaning="host time that no GPU work explains"),
    VerdictKind.DRIFT: Look("drift", "?", "?", "warn", "drift: as slow after the aggressor stopped"),
    VerdictKind.UNSTEADY: Look("unsteady", "u", "~", "dim", "unsteady: the machine itself varies by as much"),
    VerdictKind.SLOWER: Look("slower", "s", "!", "warn", "slower"),
    VerdictKind.HOST: Look("host noise", "h", "~", "warn", "host noise"),
    VerdictKind.STALLED: Look("STALLED", "S", "!!", "bad", "STALLED"),
    VerdictKind.STARVED: Look("STARVED", style="bad", meaning="fewer than 3 calls returned in 0.5 s"),
    VerdictKind.FAILED: Look("FAILED", "F", style="bad", meaning="FAILED"),
}
# Rank of each kind of verdict, from harmless to severe.
_SEVERITY = {kind: number for number, kind in enumerate(VerdictKind)}
