"""What was measured of one cell, repeat by repeat, and what can be said of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from stallprobes.catalog import cause
from stallprobes.engine.board import ProbeSnapshot
from stallprobes.latency.histogram import Histogram
from stallprobes.matrix.matrix import Cell, Repeat, Status, merged
from stallprobes.matrix.plan import AggressorSet, VictimProbe
from stallprobes.model import Channel, Phase, Probe, Role, op_name
from stallprobes.units import duration, times
from stallprobes.verdicts.rules import ENOUGH_CALLS, STALLED, TAIL_NS, TAIL_SHARE, Seen, Verdict, judge, severity

# A cell whose other repeats were spoilt is still one with this many; with fewer asked for, with all of them.
LEAST_REPEATS = 2

_DUE = Channel(Phase.DUE)

ChannelMap = Mapping[Channel, Histogram]


@dataclass(frozen=True, eq=False)
class Window:
    """A victim's histograms over ``window_ns`` with the host control's, and a call that had not returned at its end."""

    channels: ChannelMap
    host: ChannelMap
    calls: int
    window_ns: int
    in_flight_ns: int | None = None
    in_flight_op: str | None = None
    spoilt: str | None = None


def window(probe: Probe, part: ProbeSnapshot, host: ChannelMap, spoilt: str | None = None) -> Window:
    """The window that ``part``, a difference of two looks at ``probe``, is."""
    flight = part.in_flight
    return Window(
        channels=part.channels,
        host=host,
        calls=part.iterations,
        window_ns=part.window_ns or 0,
        in_flight_ns=None if flight is None else flight.age_ns,
        in_flight_op=None if flight is None else op_name(probe.program.ops[flight.op]),
        spoilt=spoilt,
    )


@dataclass
class CellAccumulator:
    """One cell while it is measured: its good repeats, and why others do not count.

    ``hosts``: the host control's histograms beside the aggressors, before them and after them.
    """

    victim: VictimProbe | None
    aggressor_set: AggressorSet
    repeats: list[Repeat] = field(default_factory=list)
    spoilt: list[str] = field(default_factory=list)
    hosts: tuple[dict[Channel, Histogram], ...] = field(default_factory=lambda: ({}, {}, {}))
    longest_ns: int | None = None
    longest_op: str | None = None
    status: Status | None = None
    reason: str | None = None
    error: str | None = None

    def add(self, before: Window, now: Window, after: Window | None) -> None:
        """One repeat; a spoilt one is only noted."""
        found = next((one.spoilt for one in (now, before, after) if one is not None and one.spoilt), None)
        if found is not None:
            self.spoilt.append(found)
            return
        self.repeats.append(
            Repeat(
                now.channels, before.channels, {} if after is None else after.channels, now.calls, now.window_ns / 1e9
            )
        )
        for total, part in zip(self.hosts, (now, before, after), strict=True):
            if part is not None:
                total.update(merged((total, part.host)))
        if now.in_flight_ns is not None and now.in_flight_ns > (self.longest_ns or 0):
            self.longest_ns, self.longest_op = now.in_flight_ns, now.in_flight_op

    def cell(self, row: str, column: str, wanted: int, host: Probe) -> Cell:
        """What is known of the cell, ``wanted`` repeats being the whole of it."""
        if self.status is not None:
            return Cell(row, column, self.status, self.reason, tuple(self.repeats))
        if not self.repeats and not self.spoilt:
            return Cell(row, column, Status.MISSING, "it was not reached")
        if len(self.repeats) < min(wanted, LEAST_REPEATS) and self.spoilt:
            return Cell(row, column, Status.INVALID, self.spoilt[-1], tuple(self.repeats))
        victim = host if self.victim is None else self.victim.probe
        seen = self._seen(victim)
        others = [Seen(probe, {}, (), 1, seen.window_ns) for probe in self.aggressor_set.probes]
        control = [] if self.victim is None else [self._host(host, seen.window_ns)]
        found = [one for one in judge([seen, *others, *control]) if one.probe == victim.name]
        if not any(severity(one) for one in found):
            rare = _rare(seen, self.repeats, self.aggressor_set)
            found = found if rare is None else [rare]
        return Cell(
            row,
            column,
            Status.STARVED if seen.starved else Status.OK,
            self.error,
            tuple(self.repeats),
            tuple(replace(one, probe=row) for one in found),
            None if self.longest_ns is None else self.longest_ns / 1000,
            self.longest_op,
        )

    def _seen(self, victim: Probe) -> Seen:
        quiets = (merged(part.before for part in self.repeats), merged(part.after for part in self.repeats))
        return Seen(
            probe=victim,
            channels=merged(part.channels for part in self.repeats),
            quiet=tuple(quiet for quiet in quiets if quiet),
            calls=sum(part.calls for part in self.repeats),
            window_ns=round(sum(part.window_s for part in self.repeats) * 1e9),
            in_flight_ns=self.longest_ns,
            in_flight_op=self.longest_op,
        )

    def _host(self, host: Probe, window_ns: int) -> Seen:
        now, before, after = self.hosts
        return Seen(host, now, tuple(quiet for quiet in (before, after) if quiet), 1, window_ns)


def quiet_cell(row: str, column: str, repeats: Sequence[Repeat], others: Sequence[Cell]) -> Cell:
    """The cell of a victim beside nothing; where the machine cannot run the victim, ``others`` of its row say why."""
    refused = [cell for cell in others if cell.status is Status.UNSUPPORTED]
    if not repeats and refused and len(refused) == len(others):
        return Cell(row, column, Status.UNSUPPORTED, refused[0].reason)
    if not repeats:
        return Cell(row, column, Status.MISSING, "it was not reached")
    return Cell(row, column, Status.OK, None, tuple(repeats))


def _rare(one: Seen, repeats: Sequence[Repeat], aggressor_set: AggressorSet) -> Verdict | None:
    """Stalls so rare that they are hardly any of the calls made, and yet much of the time.

    A victim that calls often makes many fast calls between two stalls. Counted by the calls that were due, those that
    a stall kept waiting weigh as much as it lasted. A thread that lost its core once would look the same, so all
    repeats but one, and two at least, have to show it.
    """
    if one.probe.role is Role.HOST or len(repeats) < LEAST_REPEATS:
        return None
    quiet = merged(part.quiet for part in repeats).get(_DUE, Histogram.empty())
    before, now = quiet.percentile(99), one.channels.get(_DUE, Histogram.empty()).percentile(99)
    if before is None or now is None or quiet.count < ENOUGH_CALLS:
        return None
    border = int(max(STALLED * before, before + TAIL_NS))
    showing = sum(part.channels[_DUE].share_above(border) >= TAIL_SHARE for part in repeats if _DUE in part.channels)
    if now <= border or showing < max(LEAST_REPEATS, len(repeats) - 1):
        return None
    why, helps = _because(one.probe, aggressor_set)
    change = f"{duration(before / 1000)} → {duration(now / 1000)} ({times(now / before)})"
    return Verdict(
        probe=one.probe.name,
        phase=Phase.DUE,
        quantile="p99",
        quiet_us=before / 1000,
        now_us=now / 1000,
        ratio=now / before,
        kind="stalled",
        cause=why,
        sentence=f"{one.probe.title}: few calls are slow, but for so long that of the calls due 1 in 100 or more had "
        f"to wait: p99 of the time until done {change} while “{aggressor_set.column.title}” runs. {why}",
        helps=helps,
    )


def _because(victim: Probe, aggressor_set: AggressorSet) -> tuple[str, str]:
    known = [found for probe in aggressor_set.probes if (found := cause(victim, probe)) is not None]
    if known:
        return known[0].why, known[0].helps
    return "The catalogue knows no reason for this pair.", "Compare with another driver, and tell its maker."
