"""The oscilloscope without its screen: frames in, pictures out.

It keeps a window of the last second, each victim's quiet base, the coarse history and the log of verdicts. It owns
no session and no thread, and what it says follows from the frames alone, so a replayed recording shows the same.

Quiet is measured once, while no aggressor is on, and stays the yardstick until it is asked for again: a base that
followed the present would hide a slow change.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from stallprobes.engine.board import ProbeSnapshot, ProbeState, Snapshot
from stallprobes.latency.histogram import Histogram
from stallprobes.live.history import SLOT_NS, History
from stallprobes.live.observation import EngineCondition, Observation, ProbeSet
from stallprobes.live.view_model import ChannelView, FocusView, LogEntry, MonitorView, ProbeRow
from stallprobes.model import MS, Channel, Phase, Probe, Role, op_name
from stallprobes.verdicts import rules
from stallprobes.verdicts.rules import ENOUGH_CALLS, IN_FLIGHT_NS, STALLED, Seen, Verdict, judge

WINDOW_NS = 1_000 * MS
_SETTLE_NS = 500 * MS
_JUDGE_NS = 200 * MS
_LOG = 200
_MARKS = 64
_MEASURED = (Phase.CALL, Phase.WAIT, Phase.START)
_SHOWN = (Phase.CALL, Phase.WAIT, Phase.START, Phase.GPU, Phase.DUE)
_STATES = {
    "quiet": ("quiet", "good"),
    "slower": ("slower", "warn"),
    "host": ("host noise", "warn"),
    "stalled": ("STALLED", "bad"),
    "starved": ("STARVED", "bad"),
    "failed": ("failed", "bad"),
}
# Of these a log is made; "quiet" is the normal state.
_TOLD = ("slower", "host", "stalled", "starved", "failed", "gpu-time", "overhead")


@dataclass(frozen=True, eq=False)
class Quiet:
    """One victim's quiet: its histograms, and when (board's time, ns) they were complete."""

    channels: Mapping[Channel, Histogram]
    at_ns: int


@dataclass
class _Open:
    """A verdict that is seen now: how often in a row, and its entry once it is told."""

    seen: int = 0
    missed: int = 0
    entry: LogEntry | None = None


class Analyzer:
    """Feed it every frame of one bench, ask it for pictures whenever one is drawn."""

    def __init__(
        self,
        probe_set: ProbeSet,
        *,
        quiet_s: float = 2.0,
        keep_s: float = 120.0,
        quiet: Mapping[str, Quiet] | None = None,
        log: Sequence[LogEntry] = (),
    ) -> None:
        """``quiet_s`` seconds of calls make a quiet base; ``keep_s`` seconds of history are kept. ``quiet`` is a base
        that is known already (of a recording), ``log`` what was told on the bench before this one, oldest first."""
        self.probe_set = probe_set
        self._quiet_ns = round(quiet_s * 1e9)
        self._recent: deque[Snapshot] = deque()
        self._window: Snapshot | None = None
        self._last: Snapshot | None = None
        self._history = History(len(probe_set.probes), round(keep_s * 1e9) // SLOT_NS)
        self.quiet: dict[str, Quiet] = dict(quiet or {})
        self._gathering: dict[str, ProbeSnapshot] = {}
        self._calm_since_ns: int | None = None
        self._was_on: dict[str, bool] = {}
        self._marks: deque[tuple[int, str]] = deque(maxlen=_MARKS)
        self._judged_ns = 0
        self._verdicts: tuple[Verdict, ...] = ()
        self._open: dict[tuple[str, Phase | None], _Open] = {}
        self._log: deque[LogEntry] = deque(log, maxlen=_LOG)
        self._told = max((entry.number for entry in log), default=0)
        self._held: frozenset[str] = frozenset()
        self._strips: dict[int, tuple[tuple[int, int], tuple[int, ...]]] = {}
        self._errors: dict[str, str] = {}

    def copy(self) -> Analyzer:
        """The same at this moment, to look at while this one goes on."""
        other = copy(self)
        other._history = self._history.copy()
        other._marks = deque(self._marks, _MARKS)
        other._log = deque(self._log, _LOG)
        other.quiet = dict(self.quiet)
        other._strips = {}
        return other

    def feed(self, observation: Observation) -> None:
        """Take in the next frame. Frames of an engine that does not answer are passed over: what its calls waited for
        then was not the GPU."""
        self._held = observation.waiting
        self._errors = {failure.probe: failure.sentence for failure in observation.probe_failures}
        now = observation.snapshot
        if now is None or observation.engine.state != EngineCondition.READY:
            self._recent.clear()
            self._gathering.clear()
            self._last = None
            return
        if self._last is not None and now.at_ns < self._last.at_ns:
            self._recent.clear()
            self._last = None
        self._remember(now)
        self._switches(now)
        self._gather(now)
        self._slide(now)
        if now.at_ns - self._judged_ns >= _JUDGE_NS:
            self._judged_ns = now.at_ns
            self._judge(now, observation.wall_s)
        self._last = now

    def forget_quiet(self, names: Iterable[str] | None = None) -> None:
        """Measure quiet again, of ``names`` or of all, as soon as no aggressor is on."""
        for name in list(self.quiet) if names is None else names:
            self.quiet.pop(name, None)
            self._gathering.pop(name, None)

    def clear(self) -> None:
        """Begin the window, the history and the log anew; the quiet base stays."""
        self._recent.clear()
        self._history = History(len(self.probe_set.probes), self._history.slots)
        self._marks.clear()
        self._log.clear()
        self._open.clear()

    @property
    def quiet_missing(self) -> tuple[str, ...]:
        """Probes that are on and have no quiet base yet."""
        if self._last is None:
            return tuple(probe.name for probe in self.probe_set.probes if probe.role is not Role.AGGRESSOR)
        return tuple(
            probe.name
            for probe in self.probe_set.probes
            if probe.role is not Role.AGGRESSOR and self._needs_quiet(self._last.probes[probe.name])
        )

    def told(self, wall_s: float) -> tuple[LogEntry, ...]:
        """The log, oldest first, with everything ended at ``wall_s``: for the scope of the next bench."""
        return tuple(replace(e, ended_s=wall_s) if e.ended_s is None else e for e in self._log)

    @property
    def worst(self) -> str | None:
        """The victim with the worst verdict now, None while all is quiet."""
        loud = [found for found in self._verdicts if found.kind in _TOLD and self._role(found.probe) is Role.VICTIM]
        worst = max(loud, key=lambda found: (rules.severity(found), found.ratio or 0), default=None)
        return None if worst is None else worst.probe

    def slowest_ns(self) -> int:
        """The longest that a victim's call took in the window, or has been in flight for (ns); 0 where the host
        control saw half as much, since that is the machine's own doing."""
        if self._window is None:
            return 0
        longest = {Role.VICTIM: 0, Role.HOST: 0, Role.AGGRESSOR: 0}
        for probe in self.probe_set.probes:
            part = self._window.probes[probe.name]
            seen = [part.channels[Channel(phase)].max_ns for phase in _MEASURED if Channel(phase) in part.channels]
            seen.append(part.in_flight.age_ns if part.in_flight is not None else 0)
            longest[probe.role] = max(longest[probe.role], *seen)
        return longest[Role.VICTIM] if longest[Role.HOST] * 2 < longest[Role.VICTIM] else 0

    def monitor_view(
        self, focus: str | None, *, columns: int = 60, span_s: float = 60.0, strip: int = 20
    ) -> MonitorView:
        """What to draw: ``columns`` of heat map over about ``span_s`` seconds, strips of ``strip`` columns over a
        minute, the histograms of the probe called ``focus``."""
        at_ns = self._history.last * SLOT_NS
        strip_slots = max(1, round(60e9 / max(strip, 1)) // SLOT_NS)
        rows = tuple(
            replace(self._row(probe), strip=self._strip(number, strip, strip_slots) if strip else ())
            for number, probe in enumerate(self.probe_set.probes)
        )
        names = [probe.name for probe in self.probe_set.probes]
        view = None
        if focus in names:
            view = self._focus(names.index(focus), rows[names.index(focus)], columns, span_s)
        needed = self.quiet_missing
        age = None
        if self.quiet and not needed:
            age = max(0.0, max(at_ns - quiet.at_ns for quiet in self.quiet.values()) / 1e9)
        window = next((p.window_ns for p in self._window.probes.values()), 0) if self._window is not None else 0
        return MonitorView(rows, view, tuple(reversed(self._log)), age, self._quiet_left_s(needed), (window or 0) / 1e9)

    def _quiet_left_s(self, needed: Sequence[str]) -> float | None:
        """Until the base of all that are ``needed`` is there; None while an aggressor may be at work."""
        if self._last is None or (self._calm_since_ns is None and needed):
            return None
        now_ns, left = self._last.at_ns, 0
        for name in needed:
            begun = self._gathering.get(name)
            if begun is None:
                settled = max(self._calm_since_ns or 0, self._last.probes[name].on_since_ns or now_ns) + _SETTLE_NS
            until = self._quiet_ns + (max(settled, now_ns) if begun is None else begun.at_ns)
            left = max(left, until - now_ns)
        return left / 1e9

    def _strip(self, number: int, columns: int, slots: int) -> tuple[int, ...]:
        """A probe's last minute, made anew once a second."""
        second = self._history.last // 10
        known = self._strips.get(number)
        if known is None or known[0] != (second, columns):
            known = ((second, columns), self._history.strip(number, columns, slots))
            self._strips[number] = known
        return known[1]

    def _role(self, name: str) -> Role | None:
        probe = self.probe_set.probe(name)
        return None if probe is None else probe.role

    def _remember(self, now: Snapshot) -> None:
        self._history.move_to(now.at_ns, None if self._last is None else self._last.at_ns)
        for number, probe in enumerate(self.probe_set.probes):
            part = now.probes[probe.name]
            flight = part.in_flight
            age = flight.age_ns if flight is not None and flight.age_ns >= 20 * MS else None
            channels = [Channel(phase) for phase in _MEASURED if Channel(phase) in part.channels]
            counts = sum((part.channels[channel].counts for channel in channels), np.zeros(1, dtype=np.uint64))
            if self._last is not None and channels:
                before = self._last.probes[probe.name]
                counts = counts - sum(
                    (before.channels[channel].counts for channel in channels), np.zeros(1, dtype=np.uint64)
                )
                self._history.add(number, counts, age)

    def _switches(self, now: Snapshot) -> None:
        for probe in self.probe_set.probes:
            on = now.probes[probe.name].on
            before = self._was_on.get(probe.name)
            if before is not None and before != on and probe.role is Role.AGGRESSOR:
                self._marks.append((now.at_ns, f"{probe.title.split(' · ')[0]} {'on' if on else 'off'}"))
            self._was_on[probe.name] = on

    def _busy(self, now: Snapshot) -> bool:
        """Whether an aggressor may still be at work."""
        parts = [now.probes[probe.name] for probe in self.probe_set.probes if probe.role is Role.AGGRESSOR]
        return any(part.on or part.state is ProbeState.RUNNING or part.in_flight is not None for part in parts)

    def _needs_quiet(self, part: ProbeSnapshot) -> bool:
        return part.on and part.error is None and part.name not in self.quiet

    def _gather(self, now: Snapshot) -> None:
        """Collect quiet for each victim that is on, from half a second after the last aggressor went off."""
        if self._busy(now):
            self._calm_since_ns = None
            self._gathering.clear()
            return
        if self._calm_since_ns is None:
            self._calm_since_ns = now.at_ns
        for probe in self.probe_set.probes:
            part = now.probes[probe.name]
            if probe.role is Role.AGGRESSOR or not self._needs_quiet(part):
                self._gathering.pop(probe.name, None)
                continue
            begun = self._gathering.get(probe.name)
            if begun is None:
                # First calls are slow and no part of quiet.
                since = max(self._calm_since_ns, part.on_since_ns or now.at_ns)
                if part.iterations and now.at_ns - since >= _SETTLE_NS:
                    self._gathering[probe.name] = part
            elif part.at_ns - begun.at_ns >= self._quiet_ns and part.iterations - begun.iterations >= ENOUGH_CALLS:
                self.quiet[probe.name] = Quiet(part.minus(begun).channels, now.at_ns)
                del self._gathering[probe.name]

    def _slide(self, now: Snapshot) -> None:
        self._recent.append(now)
        while len(self._recent) > 2 and now.at_ns - self._recent[1].at_ns >= WINDOW_NS:
            self._recent.popleft()
        self._window = now.minus(self._recent[0]) if len(self._recent) > 1 else None

    def _judge(self, now: Snapshot, wall_s: float) -> None:
        if self._window is None:
            return
        on = [probe for probe in self.probe_set.probes if self._window.probes[probe.name].on]
        self._verdicts = judge([self._seen(probe, self._window.probes[probe.name]) for probe in on])
        present = {(v.probe, v.phase): v for v in reversed(self._verdicts) if v.kind in _TOLD}
        for key, found in present.items():
            state = self._open.setdefault(key, _Open())
            state.seen, state.missed = state.seen + 1, 0
            # A verdict that lasts for one look only is not told: the window may have caught one odd call.
            if state.entry is None and (state.seen >= 2 or found.kind == "failed"):
                self._told += 1
                state.entry = LogEntry(self._told, wall_s, found, onset=self._onset(found, now))
                self._log.append(state.entry)
            elif state.entry is not None and _worse(found, state.entry.verdict):
                state.entry = self._replace(state.entry, replace(state.entry, verdict=found))
        for key in [key for key in self._open if key not in present]:
            state = self._open[key]
            state.missed += 1
            if state.missed >= 3:
                if state.entry is not None:
                    self._replace(state.entry, replace(state.entry, ended_s=wall_s))
                del self._open[key]

    def _replace(self, old: LogEntry, new: LogEntry) -> LogEntry:
        for place, entry in enumerate(self._log):
            if entry.number == old.number:
                self._log[place] = new
        return new

    def _onset(self, found: Verdict, now: Snapshot) -> str:
        """After what it began: the first slow call that followed the last switch, where the ring still holds it."""
        aggressors = [p for p in self.probe_set.probes if p.role is Role.AGGRESSOR and now.probes[p.name].on]
        part, quiet = now.probes[found.probe], self.quiet.get(found.probe)
        if not aggressors or quiet is None or found.phase is None or found.kind == "host":
            return ""
        newest = max(aggressors, key=lambda probe: now.probes[probe.name].on_since_ns)
        since = now.probes[newest.name].on_since_ns
        channel = Channel(found.phase)
        began: list[int] = []
        if part.in_flight is not None and part.in_flight.age_ns >= IN_FLIGHT_NS:
            began.append(part.in_flight.since_ns)
        if channel in part.channels and channel in quiet.channels and len(part.ring):
            border = STALLED * (quiet.channels[channel].percentile(99) or 0.0)
            of_channel = part.ring[part.ring[:, 1] == list(part.channels).index(channel)]
            slow = of_channel[(of_channel[:, 2] > border) & (of_channel[:, 0] > since)]
            began.extend((slow[:1, 0] - slow[:1, 2]).tolist())
            if len(of_channel) and of_channel[0, 0] - of_channel[0, 2] > since:
                # The ring does not reach back to the switch, so an earlier slow call may be missing from it.
                return ""
        if not began or min(began) - since > 5_000 * MS:
            return ""
        after = max(0, min(began) - since)
        words = f"{after / MS:.0f} ms after" if after >= MS else "as soon as"
        return f"It began {words} “{newest.title}” went on."

    def _seen(self, probe: Probe, part: ProbeSnapshot) -> Seen:
        quiet = self.quiet.get(probe.name)
        flight = part.in_flight
        return Seen(
            # Its pace may have been changed since the bench was made.
            probe=probe if probe.period_ns == part.period_ns else replace(probe, period_ns=part.period_ns),
            channels=part.channels,
            quiet=() if quiet is None else (quiet.channels,),
            calls=part.iterations,
            # Switched on a moment ago, it had no whole window yet.
            window_ns=min(part.window_ns or 0, max(part.at_ns - part.on_since_ns, 0)) if part.on_since_ns else 0,
            in_flight_ns=None if flight is None else flight.age_ns,
            in_flight_op=None if flight is None else op_name(probe.program.ops[flight.op]),
            error=self._errors.get(probe.name),
        )

    def _row(self, probe: Probe) -> ProbeRow:
        row = ProbeRow(
            probe.name,
            probe.title,
            probe.role,
            False,
            "off",
            "dim",
            period_ns=probe.period_ns,
            short_title=probe.short_title,
        )
        if self._last is None and self._window is None:
            return row
        part = (self._window or self._last).probes[probe.name]  # type: ignore[union-attr]
        held = probe.name in self._held
        row = replace(row, on=part.on or held, period_ns=part.period_ns)
        if probe.name in self._errors:
            return replace(row, state="failed", mark="bad")
        if held:
            return replace(row, state="after quiet", mark="dim")
        if not part.on:
            return row
        if self._window is None:
            return replace(row, state="starting", mark="dim")
        own = next((found for found in self._verdicts if found.probe == probe.name), None)
        phase = own.phase if own is not None and own.phase is not None else Phase.CALL
        live = part.channels.get(Channel(phase), Histogram.empty())
        flight = part.in_flight
        row = replace(
            row,
            calls_per_s=part.iterations / (part.window_ns / 1e9) if part.window_ns else None,
            phase=phase,
            p50_us=_us(live.percentile(50)),
            p99_us=_us(live.percentile(99)),
            in_flight_us=flight.age_ns / 1000 if flight is not None and flight.age_ns >= IN_FLIGHT_NS else None,
            in_flight_op=op_name(probe.program.ops[flight.op]) if flight is not None else None,
        )
        if probe.role is Role.AGGRESSOR:
            at_work = part.proof > 0 if probe.program.proof is not None else part.iterations > 0 or flight is not None
            return replace(row, state="running" if at_work else "no proof", mark="" if at_work else "warn")
        quiet = self.quiet.get(probe.name)
        if quiet is None:
            return replace(row, state="baseline", mark="dim")
        loud = own is not None and own.kind != "quiet"
        quantile = own.quantile if own is not None and loud and own.quantile != "in-flight" else "p50"
        q = 99.0 if quantile == "p99" else 50.0
        before, now_ns = quiet.channels.get(Channel(phase), Histogram.empty()).percentile(q), live.percentile(q)
        if row.in_flight_us is not None:
            now_ns = max(now_ns or 0.0, row.in_flight_us * 1000)
        ratio = now_ns / max(before, 1.0) if now_ns is not None and before is not None else None
        if own is not None and loud and own.ratio is not None:
            # What the verdict compared, so that row and sentence never say two things.
            ratio = own.ratio
        state, mark = _STATES.get(own.kind, ("n/a", "dim")) if own is not None else ("n/a", "dim")
        return replace(row, ratio=ratio, quantile=quantile, state=state, mark=mark)

    def _focus(self, number: int, row: ProbeRow, columns: int, span_s: float) -> FocusView:
        probe = self.probe_set.probes[number]
        slots = max(1, round(span_s * 1e9 / SLOT_NS / max(columns, 1)))
        heat, ages, looked, first = self._history.columns(number, columns, slots)
        marks = tuple(
            (at // SLOT_NS // slots - first, words) for at, words in self._marks if at // SLOT_NS // slots >= first
        )
        channels: tuple[ChannelView, ...] = ()
        if self._window is not None:
            part = self._window.probes[probe.name]
            quiet = self.quiet.get(probe.name)
            shown = [Channel(phase) for phase in _SHOWN] + [channel for channel in part.channels if channel.label]
            base = {} if quiet is None else quiet.channels
            channels = tuple(
                ChannelView(
                    channel.phase, channel.label, part.channels[channel], base.get(channel), part.first_ns.get(channel)
                )
                for channel in shown
                if channel in part.channels
            )
        return FocusView(row, channels, heat, ages, marks, slots * SLOT_NS / 1e9, first, looked)


def _worse(found: Verdict, told: Verdict) -> bool:
    if rules.severity(found) != rules.severity(told):
        return rules.severity(found) > rules.severity(told)
    # A window that the stall fills only partly shows it in the tail first.
    if found.quantile != told.quantile:
        return found.quantile == "p50"
    return (found.ratio or 0) > 1.2 * (told.ratio or 0)


def _us(ns: float | None) -> float | None:
    return None if ns is None else ns / 1000
