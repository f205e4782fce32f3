"""Heat map of a probe set: the coarse history of its calls, with the marks of switches and each probe's strip."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from stallprobes.engine.snapshot import Snapshot
from stallprobes.latency.histogram import Histogram
from stallprobes.live.baselines import may_run
from stallprobes.live.gpu_history import GpuHistory
from stallprobes.live.history import SLOT_NS, History, binned_sums
from stallprobes.live.view_model import ChannelView, FocusView, ProbeRow
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import JUDGED_PHASES, MS, Channel, Probe

# The start is a part of the wait, and would count its calls twice.
_HEAT_CHANNELS = tuple(Channel(phase) for phase in JUDGED_PHASES if phase.traits.host)
_MARKS = 64
# Probe sets that stay on the axis.
_EARLIER = 4


@dataclass(frozen=True, eq=False)
class EarlierSet:
    """The history of a probe set that has ended, with the victim that was followed in it: its number and name.

    ``slow_ns`` is the latency from which its calls were slow, None without a baseline. ``wall_s`` is the time of its
    last calls (s since 1970): each set has a clock of its own.
    """

    history: HeatMapHistory
    number: int
    name: str
    slow_ns: float | None
    wall_s: float


class HeatMapHistory:
    """History of ``probes`` for ``slots`` tenths of a second, and the last marks, after ``earlier`` sets."""

    def __init__(self, probes: Sequence[Probe], slots: int, earlier: Sequence[EarlierSet] = ()) -> None:
        self.earlier = tuple(earlier)[-_EARLIER:]
        # The slot of the first observation with calls and its time (s since 1970); the time of the last observation,
        # and of the last one with calls.
        self._begin = 0
        self._begun = False
        self._wall_s = 0.0
        self._now_s = self._fed_s = 0.0
        self._probes = tuple(probes)
        self._history = History(len(self._probes), slots)
        self._marks: deque[tuple[int, str]] = deque(maxlen=_MARKS)
        self._strips: dict[int, tuple[tuple[int, int], tuple[int, ...]]] = {}
        self._gpu = GpuHistory(slots)

    def copy(self) -> HeatMapHistory:
        """An independent copy."""
        other = copy(self)
        other._history = self._history.copy()
        other._marks = deque(self._marks, _MARKS)
        other._strips = {}
        other._gpu = self._gpu.copy()
        return other

    def clear(self) -> None:
        """Remove all calls and marks."""
        self._history = History(len(self._probes), self._history.slots)
        self._gpu = GpuHistory(self._history.slots)
        self._marks.clear()
        self.earlier = ()

    @property
    def at_ns(self) -> int:
        """The time up to which the history reaches (board's time, in whole slots)."""
        return self._history.last * SLOT_NS

    def mark(self, at_ns: int, text: str) -> None:
        """Mark the time ``at_ns`` with ``text``."""
        self._marks.append((at_ns, text))

    def feed_gpu(self, at_ns: int, telemetry: TelemetrySnapshot | None) -> None:
        """Add the GPU's values at the time ``at_ns``."""
        self._gpu.feed(at_ns, telemetry)

    def observed(self, wall_s: float) -> None:
        """Note the time of an observation (s since 1970), also of one without calls."""
        self._now_s = wall_s

    def ended(self, number: int, name: str, slow_ns: float | None) -> tuple[EarlierSet, ...]:
        """This set and those before it as the earlier ones of the next set; the victim ``number`` was followed."""
        if not self._begun:
            return self.earlier
        alone = copy(self)
        alone.earlier = ()
        return (*self.earlier, EarlierSet(alone, number, name, slow_ns, self._fed_s))

    def feed(self, now: Snapshot, last: Snapshot | None) -> None:
        """Add the calls between ``last``, None for the first snapshot, and ``now``."""
        self._history.move_to(now.at_ns, None if last is None else last.at_ns)
        self._fed_s = self._now_s
        if not self._begun:
            self._begun, self._begin, self._wall_s = True, self._history.last, self._now_s
        if last is None:
            return
        shown: list[int] = []
        histograms: list[Histogram] = []
        signs: list[int] = []
        sum_of: list[int] = []
        for number, probe in enumerate(self._probes):
            part, before = now.probes[probe.name], last.probes[probe.name]
            if not may_run(part) and not may_run(before) and part.iterations == before.iterations:
                continue
            channels = [channel for channel in _HEAT_CHANNELS if channel in part.channels]
            if not channels:
                continue
            # The timeline may have been switched on in between.
            known = [before.channels[channel] for channel in channels if channel in before.channels]
            histograms += [*(part.channels[channel] for channel in channels), *known]
            signs += [1] * len(channels) + [-1] * len(known)
            sum_of += [len(shown)] * (len(channels) + len(known))
            shown.append(number)
        # Those of all probes at once: each call of numpy takes longer than its work for a few hundred buckets.
        for number, new in zip(shown, binned_sums(histograms, signs, sum_of, len(shown)), strict=True):
            part, before = now.probes[self._probes[number].name], last.probes[self._probes[number].name]
            flight, closed = part.in_flight, 0
            age = flight.age_ns if flight is not None and flight.age_ns >= 20 * MS else None
            if part.in_slots and part.on:
                closed = max(now.at_ns - last.at_ns - (part.allowed_ns - before.allowed_ns), 0)
            self._history.add(number, new, age, closed)

    def strip(self, number: int, columns: int) -> tuple[int, ...]:
        """The last minute of probe ``number`` in ``columns`` columns, updated once a second."""
        slots = max(1, round(60e9 / columns) // SLOT_NS)
        second = self._history.last // 10
        known = self._strips.get(number)
        if known is None or known[0] != (second, columns):
            known = ((second, columns), self._history.strip(number, columns, slots))
            self._strips[number] = known
        return known[1]

    def view(
        self, number: int, row: ProbeRow, channels: tuple[ChannelView, ...], columns: int, span_s: float
    ) -> FocusView:
        """The view of probe ``number``: about ``span_s`` seconds in ``columns`` columns, its row and histograms."""
        slots = max(1, round(span_s * 1e9 / SLOT_NS / max(columns, 1)))
        heat, ages, observed_s, first = self._history.columns(number, columns, slots)
        marks = tuple(
            (at // SLOT_NS // slots - first, words) for at, words in self._marks if at // SLOT_NS // slots >= first
        )
        gpu = self._gpu.columns(first, columns, slots)
        view = FocusView(row, channels, heat, ages, marks, slots * SLOT_NS / 1e9, first, observed_s, gpu)
        return self._with_earlier(view, slots) if self.earlier else view

    def _with_earlier(self, view: FocusView, slots: int) -> FocusView:
        """``view`` with the earlier sets to the left of its own columns, each with the name of its victim."""
        columns = len(view.heat)
        # While the engine starts, the past moves on by the clock alone.
        began_s = self._wall_s if self._begun else self._now_s
        first = view.first if self._begun else round(began_s * 1e9) // SLOT_NS // slots - columns + 1
        own = self._begin // slots - view.first if self._begun else columns - 1
        heat, ages, observed, gpu = view.heat.copy(), view.ages_ns.copy(), view.observed_s.copy(), view.gpu.copy()
        slow = np.full(max(min(own, columns), 0), np.nan)
        marks = [(own, view.row.name), *view.marks] if own >= 0 else list(view.marks)
        end = own
        for one in reversed(self.earlier):
            gap = max(round((began_s - one.wall_s) * 1e9 / SLOT_NS / slots), 1)
            end = min(end - 1, own - gap) + 1
            if end <= 0:
                break
            past = one.history.view(one.number, view.row, (), columns, slots * columns * SLOT_NS / 1e9)
            begin = max(one.history._begin // slots - past.first, 0)
            # Its last column stands just left of ``end``.
            shift = end - columns
            left = max(begin + shift, 0)
            kept = slice(left - shift, columns)
            heat[left:end], ages[left:end], observed[left:end] = (
                past.heat[kept],
                past.ages_ns[kept],
                past.observed_s[kept],
            )
            gpu[:, left:end] = past.gpu[:, kept]
            slow[left:end] = np.nan if one.slow_ns is None else one.slow_ns
            old = [(column + shift, text) for column, text in past.marks if left <= column + shift < end]
            marks = [*([(left, one.name)] if begin + shift >= 0 else []), *old, *marks]
            end = left
        changed = replace(view, heat=heat, ages_ns=ages, observed_s=observed, gpu=gpu)
        return replace(changed, marks=tuple(marks), first=first, earlier_slow_ns=slow)
