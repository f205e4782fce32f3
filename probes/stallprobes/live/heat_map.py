"""Heat map of a probe set: the coarse history of its calls, with the marks of switches and each probe's strip."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from copy import copy, deepcopy
from dataclasses import dataclass, replace

import numpy as np

from stallprobes.engine.snapshot import Snapshot
from stallprobes.latency.histogram import Histogram
from stallprobes.live.baselines import may_run
from stallprobes.live.gpu_history import GpuHistory
from stallprobes.live.history import SLOT_NS, History, binned_sums
from stallprobes.live.view_model import ChannelView, FocusView, ProbeRow, Stretch
from stallprobes.machine.telemetry import TelemetrySnapshot
from stallprobes.model import JUDGED_PHASES, MS, Channel, Probe
from stallprobes.recording.observation import ProbeSet

# Channels (kinds of latency) that the heat map counts: only latencies that the host measures. Reason: the time until
# the work starts on the GPU is a part of the host's wait, and would count the same call twice.
_HEAT_CHANNELS = tuple(Channel(phase) for phase in JUDGED_PHASES if phase.traits.host)
# Largest number of marks (switches, slow calls, …) on the heat map's time axis, the latest ones.
_MARKS = 64
# Largest number of earlier probe sets that the heat map's time axis shows.
_EARLIER = 4


@dataclass(frozen=True, eq=False)
class EarlierSet:
    """The history of the ended ``probe_set``, with the last row and histograms of the followed victim.

    ``wall_s`` is the time of its last calls (s since 1970): each set has a clock of its own. ``relation`` is a remedy's
    relation to the stall before it.
    """

    history: HeatMapHistory
    probe_set: ProbeSet
    row: ProbeRow
    channels: tuple[ChannelView, ...]
    wall_s: float
    relation: str = ""

    @property
    def probe(self) -> Probe:
        """The victim that was followed."""
        return self.probe_set.probes[self.number]

    @property
    def number(self) -> int:
        """The number of the victim that was followed."""
        return next(n for n, probe in enumerate(self.probe_set.probes) if probe.name == self.row.name)

    @property
    def slow_ns(self) -> float | None:
        """The latency from which its calls were slow (ns), None without a baseline."""
        return FocusView(self.row, self.channels).slow_ns


@dataclass(frozen=True, eq=False)
class _Place:
    """The columns of an earlier set, from ``begin`` to before ``end``; its history ends there."""

    earlier: EarlierSet
    begin: int
    end: int
    # Whether its own begin is on the axis.
    whole: bool


class HeatMapHistory:
    """History of the probes of ``probe_set`` for ``slots`` tenths of a second, and the last marks, after ``earlier``
    sets. ``relation`` is a remedy's relation to the stall before it."""

    def __init__(self, probe_set: ProbeSet, slots: int, earlier: Sequence[EarlierSet] = (), relation: str = "") -> None:
        self.earlier, self._relation = tuple(earlier)[-_EARLIER:], relation
        self._probe_set = probe_set
        # The slot of the first observation with calls and its time (s since 1970); the time of the last observation,
        # and of the last one with calls.
        self._begin = 0
        self._begun = False
        self._wall_s = 0.0
        self._now_s = self._fed_s = 0.0
        self._probes = probe_set.probes
        self._history = History(len(self._probes), slots)
        self._marks: deque[tuple[int, str]] = deque(maxlen=_MARKS)
        self._strips: dict[tuple[str, bool], tuple[tuple[int, int], tuple[int, ...]]] = {}
        self._gpu = GpuHistory(slots)

    def copy(self) -> HeatMapHistory:
        """An independent copy."""
        other = copy(self)
        other._history = deepcopy(self._history)
        other._marks = deque(self._marks, _MARKS)
        other._strips = {}
        other._gpu = deepcopy(self._gpu)
        return other

    def clear(self) -> None:
        """Remove all calls and marks."""
        self._history = History(len(self._probes), self._history.slots)
        self._gpu = GpuHistory(self._history.slots)
        self._marks.clear()
        self.earlier, self._begun = (), False

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

    def ended(self, row: ProbeRow, channels: tuple[ChannelView, ...]) -> tuple[EarlierSet, ...]:
        """This set and the earlier ones, as the earlier sets of the next set; the victim of ``row`` was followed."""
        if not self._begun:
            return self.earlier
        alone = copy(self)
        alone.earlier = ()
        return (*self.earlier, EarlierSet(alone, self._probe_set, row, channels, self._fed_s, self._relation))

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
        # All probes at once: a call of numpy takes longer than its work for a few hundred buckets.
        for number, new in zip(shown, binned_sums(histograms, signs, sum_of, len(shown)), strict=True):
            part, before = now.probes[self._probes[number].name], last.probes[self._probes[number].name]
            flight, closed = part.in_flight, 0
            age = flight.age_ns if flight is not None and flight.age_ns >= 20 * MS else None
            if part.in_slots and part.on:
                closed = max(now.at_ns - last.at_ns - (part.allowed_ns - before.allowed_ns), 0)
            self._history.add(number, new, age, closed)

    def strip(self, probe: Probe, columns: int, *, earlier_only: bool = False) -> tuple[int, ...]:
        """The last minute of ``probe`` in ``columns`` columns, in this set and in earlier ones that have it, or in
        earlier ones alone; updated once a second."""
        slots = max(1, round(60e9 / columns) // SLOT_NS)
        second = self._history.last // 10 if self._begun else int(self._now_s)
        known = self._strips.get((probe.name, earlier_only))
        if known is None or known[0] != (second, columns):
            known = ((second, columns), self._strip(probe, columns, slots, earlier_only))
            self._strips[probe.name, earlier_only] = known
        return known[1]

    def _strip(self, probe: Probe, columns: int, slots: int, earlier_only: bool) -> tuple[int, ...]:
        levels = [-1] * columns
        number = None if earlier_only else _number_of(probe, self._probe_set)
        if number is not None and self._begun:
            levels[:] = self._history.strip(number, columns, slots)
        for place in self._places(columns, slots):
            number = _number_of(probe, place.earlier.probe_set)
            if number is not None:
                past = place.earlier.history._history.strip(number, columns, slots)
                levels[place.begin : place.end] = past[place.begin - place.end + columns :]
        return tuple(levels)

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
        return self._with_stretches(view, slots)

    def _own(self, columns: int, slots: int) -> int:
        """The first column of this set, below 0 where that is left of the axis; behind the last one before it runs."""
        return columns - 1 - self._history.last // slots + self._begin // slots if self._begun else columns

    def _places(self, columns: int, slots: int) -> Iterator[_Place]:
        """The earlier sets on the axis, the newest first, each before a rule and the start time of the set after it."""
        # While the engine starts, the past moves on by the clock alone.
        began_s, own = (self._wall_s if self._begun else self._now_s), min(self._own(columns, slots), columns - 1)
        # Between two sets there is a column for the rule, and one without calls while the engine starts.
        end = own
        for earlier in reversed(self.earlier):
            gap = max(round((began_s - earlier.wall_s) * 1e9 / SLOT_NS / slots), 1)
            end = min(end - 1, own - gap + 1)
            if end <= 0:
                return
            past = earlier.history
            begin = end - 1 - past._history.last // slots + past._begin // slots
            yield _Place(earlier, max(begin, 0), end, begin >= 0)
            end = max(begin, 0)

    def _with_stretches(self, view: FocusView, slots: int) -> FocusView:
        """``view`` with the earlier sets to the left of its own columns, and the stretches of all sets."""
        columns, own = len(view.heat), self._own(len(view.heat), slots)
        name, places = view.row.name, list(self._places(len(view.heat), slots))
        rule = places[0].end if places else own - 1 if own > 0 else None
        stretches = [Stretch(own, rule, name, self._probe_set, self._relation)]
        if not places:
            return replace(view, stretches=tuple(stretches) if self._begun else ())
        first = view.first
        if not self._begun:
            first = round(self._now_s * 1e9) // SLOT_NS // slots - columns + 1
        heat, ages, observed, gpu = view.heat.copy(), view.ages_ns.copy(), view.observed_s.copy(), view.gpu.copy()
        slow = np.full(min(max(own, 0), columns), np.nan)
        marks = list(view.marks)
        for number, place in enumerate(places):
            earlier, begin, end = place.earlier, place.begin, place.end
            past = earlier.history.view(earlier.number, earlier.row, (), columns, slots * columns * SLOT_NS / 1e9)
            shift = end - columns
            kept = slice(begin - shift, columns)
            heat[begin:end], ages[begin:end] = past.heat[kept], past.ages_ns[kept]
            observed[begin:end], gpu[:, begin:end] = past.observed_s[kept], past.gpu[:, kept]
            slow[begin:end] = np.nan if earlier.slow_ns is None else earlier.slow_ns
            marks = [*((at + shift, text) for at, text in past.marks if begin <= at + shift < end), *marks]
            older = places[number + 1].end if number + 1 < len(places) else begin - 1 if place.whole and begin else None
            stretches.insert(0, Stretch(begin, older, earlier.row.name, earlier.probe_set, earlier.relation))
        changed = replace(view, heat=heat, ages_ns=ages, observed_s=observed, gpu=gpu, stretches=tuple(stretches))
        return replace(changed, marks=tuple(marks), first=first, earlier_slow_ns=slow)


def _number_of(probe: Probe, probe_set: ProbeSet) -> int | None:
    """The number of the probe of ``probe_set`` that makes the calls of ``probe``, None where there is none."""
    for number, other in enumerate(probe_set.probes):
        if (other.name, other.entry) == (probe.name, probe.entry):
            return number
    return None
