"""Judged window of a probe set: the present windows with their baselines and verdicts, as the monitor shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from stallprobes.engine.snapshot import Snapshot, has_run
from stallprobes.latency.baseline import Baseline
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.ratio import BaselineRatio, Quantile
from stallprobes.latency.window import Window
from stallprobes.live.view_model import CallProgress, ChannelView, ProbeRow
from stallprobes.live.windows import LazyWindows, calls_left_ns, extended_ns
from stallprobes.model import Channel, Phase, Probe, Role, Source
from stallprobes.units import range_ns
from stallprobes.verdicts.kinds import IN_FLIGHT_NS, VerdictKind
from stallprobes.verdicts.rules import TAIL_CALLS
from stallprobes.verdicts.verdict import Verdict

# If the p99 of the latency from the due time exceeds this multiple of the sum of the p99 of call and wait, the screen
# shows the histogram of the latency from the due time.
_MORE = 1.5
# Verdict kinds whose name a victim's row shows as its state. The row of an unsteady victim shows the range of the
# latencies, not the name.
_ROW_STATES = (
    VerdictKind.QUIET,
    VerdictKind.OVERHEAD,
    VerdictKind.SLOWER,
    VerdictKind.HOST,
    VerdictKind.STALLED,
    VerdictKind.STARVED,
    VerdictKind.FAILED,
)


@dataclass(frozen=True, eq=False)
class JudgedWindow:
    """The present windows of all probes, None before the first, with the probes' states at their end.

    ``last`` is the last snapshot, None without an engine. ``errors`` are sentences by probe; ``waiting`` are aggressors
    that wait for the baseline. With ``timeline`` the phases that it measures are shown. ``progress`` is that of
    baselines, by probe, where calls are rare; ``judged_calls`` are the calls of each probe on which ``verdicts`` rest.
    ``phases`` has the phase of a quiet victim's figures where that is not the call.
    """

    windows: LazyWindows | None
    last: Snapshot | None
    baselines: Mapping[str, Baseline]
    verdicts: Sequence[Verdict]
    errors: Mapping[str, str]
    waiting: frozenset[str]
    timeline: bool
    progress: Mapping[str, CallProgress] = field(default_factory=dict)
    judged_calls: Mapping[str, int] = field(default_factory=dict)
    phases: Mapping[str, Phase] = field(default_factory=dict)

    def row(self, probe: Probe, strip: tuple[int, ...] = ()) -> ProbeRow:
        """The row of a probe: its state, its figures and its ``strip``."""
        # Without an engine the last window remains visible.
        snapshot = self.windows.end if self.windows is not None else self.last
        part, held = None if snapshot is None else snapshot.probes[probe.name], probe.name in self.waiting
        row = partial(
            ProbeRow,
            probe.name,
            probe.role,
            part is not None and (part.on or held),
            period_ns=probe.period_ns if part is None else part.period_ns,
            strip=strip,
        )
        if part is None:
            return row("off", "dim")
        if probe.name in self.errors:
            return row("failed", "bad")
        if held:
            return row("waiting", "dim")
        if not part.on:
            return row("off", "dim")
        if self.windows is None:
            return row("starting", "dim")
        window = self.windows[probe.name]
        own = next((verdict for verdict in self.verdicts if verdict.probe == probe.name), None)
        phase = self.phases.get(probe.name) if own is None or own.kind is VerdictKind.QUIET else None
        channel = Channel(phase or (None if own is None else own.phase) or Phase.CALL)
        live = window.channels.get(channel, Histogram.empty())
        flight = window.in_flight
        in_flight_ns = flight.age_ns if flight is not None and flight.age_ns >= IN_FLIGHT_NS else None
        row = partial(
            row,
            calls_per_s=window.iterations / window.seconds if window.duration_ns else None,
            phase=channel.phase,
            p50_ns=live.percentile(50),
            p99_ns=live.percentile(99),
            in_flight_ns=in_flight_ns,
        )
        if probe.role is Role.AGGRESSOR:
            return row("running") if has_run(probe, window) else row("no proof", "warn")
        baseline = self.baselines.get(probe.name)
        if baseline is None:
            learned = self.progress.get(probe.name)
            return row("baseline" if learned is None else learned.state, "dim", progress=learned)
        few = self._too_few(probe, window, own)
        if few is not None:
            return row(few.state, "dim", progress=few)
        before = baseline.channels.get(channel, Histogram.empty())
        ratio, quantile = _ratio(own, channel, live, in_flight_ns, before)
        row = partial(row, ratio=ratio, quantile=quantile, baseline_ns=before.percentile(quantile.percent))
        if own is None:
            return row("n/a", "dim")
        if own.kind is VerdictKind.UNSTEADY and own.range_ns is not None:
            return row(range_ns(*own.range_ns), own.kind.look.style, range_ns=own.range_ns)
        return row(own.kind.look.word, own.kind.look.style) if own.kind in _ROW_STATES else row("n/a", "dim")

    def _too_few(self, probe: Probe, window: Window, own: Verdict | None) -> CallProgress | None:
        """The progress of a probe with a long period that has too few calls for a verdict; None for any other."""
        period_ns = window.period_ns
        if not extended_ns(period_ns) or self.judged_calls.get(probe.name, 0) >= TAIL_CALLS:
            return None
        if own is not None and own.kind is not VerdictKind.QUIET:
            return None
        calls = min(window.iterations, TAIL_CALLS)
        return CallProgress(calls, TAIL_CALLS, calls_left_ns(TAIL_CALLS, calls, period_ns, window.duration_ns) / 1e9)

    def channel_views(self, probe: Probe) -> tuple[ChannelView, ...]:
        """The histograms of a probe's window, with its baseline's."""
        if self.windows is None:
            return ()
        window, baseline = self.windows[probe.name], self.baselines.get(probe.name)
        shown = [*map(Channel, Phase), *(channel for channel in window.channels if channel.label)]
        base = {} if baseline is None else baseline.channels
        return tuple(
            ChannelView(
                channel.phase, channel.label, window.channels[channel], base.get(channel), window.first_ns.get(channel)
            )
            for channel in shown
            if channel in window.channels
            and (self.timeline or probe.program.source(channel.phase) is not Source.TIMELINE)
            and (channel.phase is not Phase.DUE or _due_says_more(window))
        )

    def groups_on(self, probes: Sequence[Probe]) -> int:
        """The number of groups of ``probes`` that share a GPU in slots now, on the GPU with the most; at least 1."""
        if self.last is None:
            return 1
        parts = self.last.probes
        on = {p.slot_group for p in probes if parts[p.name].on and parts[p.name].in_slots}
        gpus = [group[0] for group in on if group is not None]
        return max((gpus.count(gpu) for gpu in gpus), default=1)


def _due_says_more(window: Window) -> bool:
    """True if earlier calls held calls up: the due time exceeds the call and the wait together."""
    due, call, wait = (
        histogram.percentile(99) or 0.0 if (histogram := window.channels.get(Channel(phase))) is not None else 0.0
        for phase in (Phase.DUE, Phase.CALL, Phase.WAIT)
    )
    return due > _MORE * (call + wait)


def _ratio(
    own: Verdict | None, channel: Channel, live: Histogram, in_flight_ns: int | None, before: Histogram
) -> tuple[float | None, Quantile]:
    """The ratio of a victim's row and its percentile, taken from its worst verdict ``own`` unless it is quiet.

    ``live`` and ``before`` are the histograms of ``channel`` now and in the baseline.
    """
    severe = own is not None and own.kind is not VerdictKind.QUIET
    quantile = own.quantile if own is not None and severe else Quantile.P50
    quantile = Quantile.P50 if quantile is Quantile.IN_FLIGHT else quantile
    if own is not None and severe and own.ratio is not None:
        # The ratio of the verdict, so that row and sentence agree.
        return own.ratio, quantile
    now_ns, before_ns = live.percentile(quantile.percent), before.percentile(quantile.percent)
    if in_flight_ns is not None:
        now_ns = max(now_ns or 0.0, in_flight_ns)
    if now_ns is None or before_ns is None:
        return None, quantile
    return BaselineRatio(channel, quantile, before_ns, now_ns).ratio, quantile
