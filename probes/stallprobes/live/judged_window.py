"""Judged window of a probe set: the present windows with their baselines and verdicts, as the monitor shows them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

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

# The kinds that a victim's row shows as a word; an unsteady one shows its range.
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
    """The present windows of all probes, None before the first, with what is known of the probes at their end.

    ``last`` is the last snapshot, None without an engine. ``errors`` are sentences by probe; ``waiting`` are aggressors
    that wait for the baseline. With ``timeline`` the phases that it measures are shown. ``progress`` is that of
    baselines, by probe, where calls are rare; ``judged_calls`` are the calls of each probe on which ``verdicts`` rest.
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

    def row(self, probe: Probe) -> ProbeRow:
        """The row of a probe: its state and its figures."""
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
        # Without an engine the last window remains visible.
        snapshot = self.windows.end if self.windows is not None else self.last
        if snapshot is None:
            return row
        part, held = snapshot.probes[probe.name], probe.name in self.waiting
        row = replace(row, on=part.on or held, period_ns=part.period_ns)
        if probe.name in self.errors:
            return replace(row, state="failed", mark="bad")
        if held:
            return replace(row, state="waiting", mark="dim")
        if not part.on:
            return row
        if self.windows is None:
            return replace(row, state="starting", mark="dim")
        window = self.windows[probe.name]
        own = next((found for found in self.verdicts if found.probe == probe.name), None)
        phase = own.phase if own is not None and own.phase is not None else Phase.CALL
        live = window.channels.get(Channel(phase), Histogram.empty())
        flight = window.in_flight
        row = replace(
            row,
            calls_per_s=window.iterations / window.seconds if window.duration_ns else None,
            phase=phase,
            p50_ns=live.percentile(50),
            p99_ns=live.percentile(99),
            in_flight_ns=flight.age_ns if flight is not None and flight.age_ns >= IN_FLIGHT_NS else None,
        )
        if probe.role is Role.AGGRESSOR:
            ran = has_run(probe, window)
            return replace(row, state="running" if ran else "no proof", mark="" if ran else "warn")
        baseline = self.baselines.get(probe.name)
        if baseline is None:
            learned = self.progress.get(probe.name)
            return replace(row, state="baseline" if learned is None else learned.state, mark="dim", progress=learned)
        few = self._too_few(probe, window, own)
        if few is not None:
            return replace(row, state=few.state, mark="dim", progress=few)
        return self._judged_row(row, own, live, baseline)

    def _too_few(self, probe: Probe, window: Window, own: Verdict | None) -> CallProgress | None:
        """The progress of a probe with a long period that has too few calls for a verdict; None for any other."""
        period_ns = window.period_ns
        if not extended_ns(period_ns) or self.judged_calls.get(probe.name, 0) >= TAIL_CALLS:
            return None
        if own is not None and own.kind is not VerdictKind.QUIET:
            return None
        calls = min(window.iterations, TAIL_CALLS)
        return CallProgress(calls, TAIL_CALLS, calls_left_ns(TAIL_CALLS, calls, period_ns, window.duration_ns) / 1e9)

    def _judged_row(self, row: ProbeRow, own: Verdict | None, live: Histogram, baseline: Baseline) -> ProbeRow:
        """The row of a victim with its ratio and the state that its worst verdict ``own`` gives."""
        assert row.phase is not None
        severe = own is not None and own.kind is not VerdictKind.QUIET
        quantile = own.quantile if own is not None and severe else Quantile.P50
        quantile = Quantile.P50 if quantile is Quantile.IN_FLIGHT else quantile
        channel = Channel(row.phase)
        before = baseline.channels.get(channel, Histogram.empty()).percentile(quantile.percent)
        now_ns = live.percentile(quantile.percent)
        if row.in_flight_ns is not None:
            now_ns = max(now_ns or 0.0, row.in_flight_ns)
        ratio = None
        if now_ns is not None and before is not None:
            ratio = BaselineRatio(channel, quantile, before, now_ns).ratio
        if own is not None and severe and own.ratio is not None:
            # The ratio of the verdict, so that row and sentence agree.
            ratio = own.ratio
        row = replace(row, ratio=ratio, quantile=quantile)
        if own is not None and own.kind is VerdictKind.UNSTEADY and own.range_ns is not None:
            return replace(row, state=range_ns(*own.range_ns), mark=own.kind.look.style, range_ns=own.range_ns)
        if own is None or own.kind not in _ROW_STATES:
            return replace(row, state="n/a", mark="dim")
        return replace(row, state=own.kind.look.word, mark=own.kind.look.style)

    def channel_views(self, probe: Probe) -> tuple[ChannelView, ...]:
        """The histograms of a probe's window, with those of its baseline."""
        if self.windows is None:
            return ()
        window, baseline = self.windows[probe.name], self.baselines.get(probe.name)
        shown = [*map(Channel, Phase), *(channel for channel in window.channels if channel.label)]
        base = {} if baseline is None else baseline.channels
        return tuple(
            ChannelView(one.phase, one.label, window.channels[one], base.get(one), window.first_ns.get(one))
            for one in shown
            if one in window.channels and (self.timeline or probe.program.source(one.phase) is not Source.TIMELINE)
        )

    def groups_on(self, probes: Sequence[Probe]) -> int:
        """The number of groups of ``probes`` that share a GPU in slots now, on the GPU with the most; at least 1."""
        if self.last is None:
            return 1
        parts = self.last.probes
        on = {p.slot_group for p in probes if parts[p.name].on and parts[p.name].in_slots}
        gpus = [group[0] for group in on if group is not None]
        return max((gpus.count(gpu) for gpu in gpus), default=1)
