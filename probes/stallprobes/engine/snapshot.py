"""Snapshot of the board: the statistics of all probes at one time. The difference of two snapshots is a window."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from stallprobes.files.codec import Int64, Nanoseconds, Natural
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import ChannelMap, InFlight, Samples, Window, differences
from stallprobes.model import Channel, Phase, Probe
from stallprobes.native.layouts.board import EngineState, ProbeState


@dataclass(frozen=True)
class ProbeErrorCode:
    """An unexpected return code, the op's number (from 1; setup and teardown ops negative), and the time in ns."""

    code: int
    op: int
    at_ns: int


class ProbeFigures(Struct, frozen=True, eq=False):
    """The figures of one probe since its start that a recording stores as they are, in its order.

    ``in_slots``: the engine gives the probe slots. ``allowed_ns`` is then the time in which the probe was on and its
    slot open; otherwise the board's time. ``not_alone_ns`` is the part of ``allowed_ns`` beside a call in flight of
    another group. ``polled_ns`` is the time for which the loop polled the clock; ``paused_ns`` is the part of
    ``polled_ns`` without a CPU, in pauses of 20 µs or longer. Both are 0 on the simulated GPU.
    """

    state: ProbeState
    on: bool
    iterations: Natural
    on_since_ns: Nanoseconds
    heartbeat_ns: Nanoseconds
    missed: Natural
    proof: Int64
    period_ns: Nanoseconds
    in_slots: bool
    # A time counter that started since the clock was read shows a little less than nothing.
    allowed_ns: Int64
    not_alone_ns: Int64
    polled_ns: Nanoseconds
    paused_ns: Nanoseconds
    in_flight: InFlight | None
    error: ProbeErrorCode | None


class ProbeSnapshot(ProbeFigures, frozen=True, eq=False, kw_only=True):
    """The figures of one probe since its start, and its histograms.

    ``first_ns`` is each channel's value in the very first iteration, which the histograms leave out. ``samples``
    are the calls measured last, Sample[n] in their order; ``sample_count`` counts all that were ever measured.
    """

    name: str
    at_ns: int
    channels: Mapping[Channel, Histogram]
    first_ns: Mapping[Channel, int | None]
    samples: Samples
    sample_count: int

    def minus(self, earlier: ProbeSnapshot) -> Window:
        """The window between ``earlier`` and this. Raises ValueError for an earlier state that is not of this probe."""
        (window,) = windows([self], [earlier])
        return window

    def _since(self, earlier: ProbeSnapshot, channels: ChannelMap) -> Window:
        """The window between ``earlier`` and this with the values that ``channels`` have got meanwhile.

        A call that is in flight for longer than the period counts in the channel of the due time for the time it
        waited within the window, once for each start that was due.
        """
        flight = self.in_flight
        allowed_ns = max(self.allowed_ns - earlier.allowed_ns, 0)
        # A call of ordinary length that the snapshot happened to catch would count twice, first with a part of it.
        due = Channel(Phase.DUE)
        if flight is not None and due in channels and 0 < self.period_ns < flight.allowed_ns:
            # Calls that would have been due while the slot was closed were not delayed.
            inside = min(flight.allowed_ns, allowed_ns)
            channels = {**channels, due: channels[due].add_waiting(inside, self.period_ns)}
        fresh = min(self.sample_count - earlier.sample_count, len(self.samples))
        return Window(
            channels=channels,
            iterations=self.iterations - earlier.iterations,
            duration_ns=allowed_ns,
            in_flight=flight,
            missed=self.missed - earlier.missed,
            proof=self.proof - earlier.proof,
            period_ns=self.period_ns,
            first_ns=self.first_ns,
            samples=self.samples[len(self.samples) - fresh :],
            in_slots=self.in_slots,
            not_alone_ns=max(self.not_alone_ns - earlier.not_alone_ns, 0),
            polled_ns=self.polled_ns - earlier.polled_ns,
            paused_ns=self.paused_ns - earlier.paused_ns,
        )


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The statistics of all probes at one time (ns)."""

    at_ns: int
    engine_state: EngineState
    engine_heartbeat_ns: int
    probes: Mapping[str, ProbeSnapshot]

    def minus(self, earlier: Snapshot) -> dict[str, Window]:
        """The window of each probe, by name, between ``earlier`` and this."""
        parts = windows(list(self.probes.values()), [earlier.probes[name] for name in self.probes])
        return dict(zip(self.probes, parts, strict=True))


def windows(ends: Sequence[ProbeSnapshot], starts: Sequence[ProbeSnapshot]) -> list[Window]:
    """The window of each probe between its states in ``starts`` and ``ends``: all take little longer than one.

    Raises ValueError for an earlier state that is not of its probe.
    """
    try:
        channels = differences([end.channels for end in ends], [start.channels for start in starts])
    except ValueError as error:
        names = " or ".join(end.name for end in ends)
        raise ValueError(f"the earlier state is not of the probe {names}: {error}") from None
    return [end._since(start, added) for end, start, added in zip(ends, starts, channels, strict=True)]


def has_run(probe: Probe, progress: ProbeSnapshot | Window) -> bool:
    """True if ``probe`` ran: by the GPU's count if its program has a proof, else by iterations or a call in flight."""
    if probe.program.proof is not None:
        return progress.proof > 0
    return progress.iterations > 0 or progress.in_flight is not None
