"""Tracker of verdicts: makes log entries, with a beginning and an end, of the verdicts on consecutive windows.

A verdict is logged from the second window on in which it is found; slower, and a stalled tail without an aggressor,
only once it has lasted for two windows that do not overlap. An entry ends when its verdict is missing for three
judgements. The cause of a slowdown that began and ended with one aggressor is proven by switching; a victim that is as
slow after the aggressors stopped has drift.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass, replace

from stallprobes.latency.ratio import Quantile
from stallprobes.live.view_model import LogEntry
from stallprobes.model import MS, Phase
from stallprobes.verdicts.kinds import VerdictKind
from stallprobes.verdicts.rules import DRIFT_CAUSE, without_remedy
from stallprobes.verdicts.verdict import Proof, Verdict

# Time (ns) between two judgements (evaluations) of all victims. While nobody reads the screen, judgements are rarer,
# and each judgement counts as several.
JUDGE_NS = 200 * MS
# Number of judgements that must find a slowdown or a burst before the log gets an entry. A burst is a stall
# of the p99 while no aggressor runs. With this number, the windows (1 s each) of the first and the last judgement do
# not overlap.
_LASTING = 7
# Largest time (ns) by which a judgement may come earlier than JUDGE_NS after the previous judgement.
JITTER_NS = 20 * MS
# Number of judgements that must find a verdict other than a slowdown or a burst before the log gets an entry. If
# _MISSING consecutive judgements miss the verdict, the count begins again at 0. A failure gets an entry at once.
_FOUND = 2
# Number of consecutive judgements that must miss a logged verdict before the verdict's entry ends.
_MISSING = 3
# If a stall begins at most this time (ns) after exactly one aggressor was switched on, and the stall's log entry ends
# at most this time after the aggressor was switched off, the aggressor counts as the cause. Reason for the length: the
# window, the judgements, and the start or end of the aggressor's work take time.
_WITH_SWITCH_NS = 3_000 * MS
# Number of switches of aggressors (on or off) that are kept, the latest ones.
_SWITCHES = 64
# Largest number of entries in the log of verdicts; the oldest are dropped.
MOST_ENTRIES = 200
# Factor by which an end of an unsteady victim's range must move outwards before the victim's log entry changes.
_WIDER = 1.05

# Probe, phase (None for an unsteady probe: one entry for all phases), and whether it is unsteady.
_Key = tuple[str, Phase | None, bool]


@dataclass(frozen=True)
class Switch:
    """An aggressor that was switched: its name, and when (board's time, ns)."""

    name: str
    on: bool
    at_ns: int


@dataclass
class _Pending:
    """A present verdict: how many times it was found, and missing since, and its entry once it is logged.

    ``lasted`` is ``found`` at the usual rate of judgements. ``after`` is True once it was found in a window after the
    aggressors stopped.
    """

    first_ns: int
    first_s: float
    found: int = 0
    lasted: int = 0
    missing: int = 0
    entry: LogEntry | None = None
    after: bool = False


class VerdictTracker:
    """The log of verdicts: the last MOST_ENTRIES, continuing ``log`` (oldest first)."""

    def __init__(self, log: Sequence[LogEntry] = ()) -> None:
        self._log: deque[LogEntry] = deque(log, maxlen=MOST_ENTRIES)
        self._last_number = max((entry.number for entry in log), default=0)
        self._pending: dict[_Key, _Pending] = {}
        self._unsteady: dict[str, LogEntry] = {}
        self._switches: deque[Switch] = deque(maxlen=_SWITCHES)
        self._judged_ns = 0

    def copy(self) -> VerdictTracker:
        """A copy whose entries do not change."""
        other = copy(self)
        other._log, other._pending, other._unsteady = self._log.copy(), {}, dict(self._unsteady)
        return other

    @property
    def entries(self) -> tuple[LogEntry, ...]:
        """All entries, the oldest first."""
        return tuple(self._log)

    def ended(self, wall_s: float) -> tuple[LogEntry, ...]:
        """The entries, oldest first, each ended at ``wall_s`` (s since 1970): for the next probe set."""
        cut_off = "other probes were loaded"
        return tuple(
            replace(entry, ended_s=wall_s, cut_off=cut_off) if entry.ended_s is None else entry
            for entry in self.entries
        )

    def clear(self) -> None:
        """Remove all entries. A verdict that still holds is logged again."""
        self._log.clear()
        self._pending.clear()
        self._unsteady.clear()

    def switched(self, switch: Switch) -> None:
        """Note that an aggressor was switched."""
        self._switches.append(switch)

    def add_blame(self, prove: Callable[[Verdict], Verdict], proven: Sequence[Verdict], wall_s: float) -> None:
        """Put the causes that a blame experiment proved into the log.

        ``prove`` returns a verdict with its proven cause. A verdict of ``proven`` without a current entry gets an entry
        that ends at once.
        """
        current = set()
        for key, state in self._pending.items():
            if state.entry is not None:
                state.entry = self._replace(state.entry, replace(state.entry, verdict=prove(state.entry.verdict)))
                current.add(key)
        for verdict in proven:
            if _key(verdict) not in current:
                self._last_number += 1
                self._log.append(LogEntry(self._last_number, wall_s, verdict, ended_s=wall_s))

    def feed(
        self,
        verdicts: Sequence[Verdict],
        now_ns: int,
        wall_s: float,
        *,
        after: bool,
        onset: Callable[[Verdict], tuple[str, str]],
        alone: bool = False,
        extended_ns: Callable[[str], int] = lambda _: 0,
    ) -> None:
        """Process the verdicts of one window.

        ``alone``: no aggressor ran. ``after``: the aggressors that the verdicts name stopped before the window began.
        ``onset`` returns a sentence on when a verdict began and the aggressor that was switched on then, "" where that
        is not known. ``extended_ns`` is the length
        of the window of a probe with few calls in a second, 0 for others.
        """
        present = {_key(verdict): verdict for verdict in reversed(verdicts) if verdict.kind.logged}
        passed = max(1, min((now_ns - self._judged_ns + JITTER_NS) // JUDGE_NS, _MISSING))
        self._judged_ns = now_ns
        for key, verdict in present.items():
            state = self._pending.setdefault(key, _Pending(now_ns, wall_s))
            state.lasted += passed if state.found else 1
            state.found, state.missing, state.after = state.found + 1, 0, state.after or after
            if state.entry is None:
                fresh = now_ns - state.first_ns >= extended_ns(verdict.probe)
                self._begin(state, verdict, wall_s, onset, alone, fresh)
            elif verdict.kind is VerdictKind.UNSTEADY:
                state.entry = self._unsteady[verdict.probe] = self._widened(state.entry, verdict)
            elif _worse(verdict, state.entry.verdict):
                state.entry = self._replace(state.entry, replace(state.entry, verdict=verdict))
            if after and state.entry is not None and state.entry.verdict.kind is VerdictKind.SLOWER:
                self._end_as_drift(state.entry, wall_s)
                del self._pending[key]
        for key in [key for key in self._pending if key not in present]:
            state = self._pending[key]
            state.missing += 1
            if state.missing >= _MISSING:
                if state.entry is not None:
                    self._end(state, now_ns, wall_s)
                del self._pending[key]

    def cut_off(self, wall_s: float, reason: str) -> None:
        """End every current entry at ``wall_s``, when the last observation before ``reason`` was made."""
        for state in self._pending.values():
            if state.entry is not None:
                ended = self._replace(state.entry, replace(state.entry, ended_s=wall_s, cut_off=reason))
                if ended.verdict.kind is VerdictKind.UNSTEADY:
                    self._unsteady[ended.verdict.probe] = ended
        self._pending.clear()

    def _begin(
        self,
        state: _Pending,
        verdict: Verdict,
        wall_s: float,
        onset: Callable[[Verdict], tuple[str, str]],
        alone: bool,
        fresh: bool,
    ) -> None:
        """Log ``verdict`` once it was present often enough: the window may contain a single outlier.

        ``fresh``: the window is long enough after the first one with the verdict to share no call with it.
        """
        if verdict.kind is VerdictKind.UNSTEADY:
            known = self._unsteady.get(verdict.probe)
            if known is not None:
                # Said once: the entry is current again.
                state.entry = self._unsteady[verdict.probe] = self._widened(known, verdict)
                return
        # Without an aggressor, a busy machine interrupts 1 call in 100 within one second, not in two.
        burst = alone and verdict.kind is VerdictKind.STALLED and verdict.quantile is Quantile.P99
        lasting = burst or verdict.kind is VerdictKind.SLOWER
        enough = state.lasted >= _LASTING and fresh if lasting else state.found >= _FOUND
        if (not enough and verdict.kind is not VerdictKind.FAILED) or (
            verdict.kind is VerdictKind.SLOWER and state.after
        ):
            return
        self._last_number += 1
        began_s = state.first_s if verdict.kind is VerdictKind.SLOWER else wall_s
        words, since = onset(verdict)
        state.entry = LogEntry(self._last_number, began_s, verdict, onset=words, since=since)
        self._log.append(state.entry)
        if verdict.kind is VerdictKind.UNSTEADY:
            self._unsteady[verdict.probe] = state.entry

    def _widened(self, entry: LogEntry, verdict: Verdict) -> LogEntry:
        """The entry of an unsteady probe, current, with the range of ``verdict`` if that is wider."""
        old, new = entry.verdict.range_ns, verdict.range_ns
        wider = old is None or (new is not None and (new[0] * _WIDER < old[0] or new[1] > old[1] * _WIDER))
        if not wider and entry.ended_s is None:
            return entry
        return self._replace(
            entry, replace(entry, ended_s=None, cut_off="", verdict=verdict if wider else entry.verdict)
        )

    def _end(self, state: _Pending, now_ns: int, wall_s: float) -> None:
        assert state.entry is not None
        ended = replace(state.entry, ended_s=wall_s)
        switch = None if state.after or not ended.verdict.kind.is_stall else self._proof(state.first_ns, now_ns)
        # Blame is the stronger proof.
        if switch is not None and ended.verdict.proof is not Proof.BLAME:
            words = f"It began and ended with {switch.name}."
            ended = replace(
                ended,
                verdict=ended.verdict.changed(proof=Proof.SWITCHING),
                onset=f"{ended.onset} {words}".lstrip(),
            )
        self._replace(state.entry, ended)
        if ended.verdict.kind is VerdictKind.UNSTEADY:
            self._unsteady[ended.verdict.probe] = ended

    def _proof(self, first_ns: int, now_ns: int) -> Switch | None:
        """The aggressor that began and ended a slowdown, first seen at ``first_ns``; None without one.

        Exactly one aggressor was switched on shortly before the beginning, and it was switched off shortly before the
        end.
        """
        began = {
            switch.name: switch
            for switch in self._switches
            if switch.on and first_ns - _WITH_SWITCH_NS <= switch.at_ns <= first_ns
        }
        ended = {
            switch.name
            for switch in self._switches
            if not switch.on and now_ns - _WITH_SWITCH_NS <= switch.at_ns <= now_ns
        }
        return next(iter(began.values())) if len(began) == 1 and ended & set(began) else None

    def _end_as_drift(self, entry: LogEntry, wall_s: float) -> None:
        drift = without_remedy(entry.verdict, VerdictKind.DRIFT, *DRIFT_CAUSE)
        self._replace(entry, replace(entry, verdict=drift, ended_s=wall_s, onset=""))

    def _replace(self, old: LogEntry, new: LogEntry) -> LogEntry:
        for place, entry in enumerate(self._log):
            if entry.number == old.number:
                self._log[place] = new
        return new


def _key(verdict: Verdict) -> _Key:
    unsteady = verdict.kind is VerdictKind.UNSTEADY
    return verdict.probe, None if unsteady else verdict.phase, unsteady


def _worse(verdict: Verdict, logged: Verdict) -> bool:
    """True if ``verdict`` replaces the verdict that is logged."""
    if verdict.kind is not logged.kind:
        return verdict.kind.severity > logged.kind.severity
    # A stall that began within the window shows in the tail first.
    if verdict.quantile is not logged.quantile:
        return verdict.quantile is Quantile.P50
    return (verdict.ratio or 0) > 1.2 * (logged.ratio or 0)
