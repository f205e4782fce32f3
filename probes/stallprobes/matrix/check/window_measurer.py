"""Measurement of windows: one victim at a time, alone or with the aggressors of a column."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from stallprobes.engine.session import Session
from stallprobes.engine.snapshot import ProbeSnapshot, has_run
from stallprobes.latency.histogram import Histogram
from stallprobes.latency.window import ChannelMap, Window
from stallprobes.model import Channel, Phase, Probe
from stallprobes.native.layouts.board import ProbeState
from stallprobes.verdicts.kinds import STARVED_CALLS, STARVED_WINDOW_NS

# Time (s) for which a probe runs before its window begins. Reason: the first calls after a pause are slow, as caches
# are cold and the core is idle. The check also waits this long after the work of aggressors has ended.
_LEAD_IN_S = 0.002
# First polling interval (s) of three waits of a check. The waits are for switched-off probes to stop, for aggressors'
# calls to return, and for contexts to be idle. Each further interval is longer by the factor _INTERVAL_GROWTH.
_PARK_S = 0.001
# Pause (s) between the proof that the aggressors of a column run and the start of the first victim. Before this proof,
# the check tests at intervals of the same length whether the aggressors run.
_SETTLE_S = 0.005
# Values (s of virtual time) that replace _LEAD_IN_S, _PARK_S and _SETTLE_S on a simulated GPU. Reason for
# _LEAD_IN_VIRTUAL_S: a parked thread takes up to 1 ms to start, and its first call makes the GPU change over to its
# context. Reason for _PARK_VIRTUAL_S: a switched-off thread stops within microseconds.
_LEAD_IN_VIRTUAL_S, _PARK_VIRTUAL_S, _SETTLE_VIRTUAL_S = 0.0012, 0.0002, 0.001
# Age (ns) of a call in flight above which its probe counts as stuck, on a simulated GPU.
_STUCK_NS = 500_000
# Longest wait (s) for a switched-off probe to stop, checked at the end of each polling interval. After this wait, the
# check continues. With the polling intervals of a real GPU, the wait ends after 0.075 s at the latest.
_PARK_AT_MOST_S = 0.05
# Factor by which each polling interval is longer than the one before.
_INTERVAL_GROWTH = 1.5
# Longest wait (s) until aggressors prove that they run.
_PROOF_S = 5.0
# Longest wait (s) until the calls of switched-off aggressors have returned. The following wait for the end of their GPU
# work has the same limit.
_DRAIN_AT_MOST_S = 3.0
# Time (ns) without progress after which an aggressor counts as not running. Windows beside this aggressor do not count.
# Progress: a higher count of the aggressor's work, if the GPU counts this work. For other aggressors, progress is an
# ended iteration or a call in flight.
_NO_PROGRESS_NS = 250_000_000
# Shortest call (ns) of the host control that shows a loss of the CPU core. The host control is a probe without CUDA
# calls. The call must also reach _SPIKE_TIMES times the window's median call.
_SPIKE_NS = 100_000
# Smallest ratio of a call of the host control to the window's median call that shows a loss of the CPU core. The call
# must also take at least _SPIKE_NS.
_SPIKE_TIMES = 10
# Largest time (s) by which a window may take longer than planned. A longer window does not count: the check or the
# machine was suspended.
_GAP_S = 1.0
# Longest wait (s) for the records of the timeline. Records usually arrive after some 10 ms.
_RECORDS_AT_MOST_S = 0.2
# Channel (kind of latency) of the time inside the calls of the host control, the probe without CUDA calls.
_CALL = Channel(Phase.CALL)


@dataclass(frozen=True)
class Lengths:
    """Lengths of the windows of a block, in seconds.

    ``window_s`` with the aggressors, ``baseline_s`` without. A window is extended up to ``longest_s`` for slow
    iterations of an aggressor, and up to ``extended_s`` until it has ``calls`` iterations of the victim. With
    ``starve``, a window without enough calls lasts half a second, so that it shows whether the victim is starved.
    """

    window_s: float
    baseline_s: float
    longest_s: float
    extended_s: float
    calls: int
    starve: bool


@dataclass(frozen=True, eq=False)
class VictimWindow:
    """A victim's window with the host control's channels in the same time.

    ``rejection`` is a clause on why the window does not count, None if it counts. Several cells share
    the windows of their baselines.
    """

    window: Window
    host: ChannelMap = field(default_factory=dict)
    rejection: str | None = None


@dataclass(frozen=True)
class MeasuredProbes:
    """The probes of a session by their parts: ``victims`` has their names by row, ``aggressors`` their names by column.

    ``host`` is the name of the host control, ``drains`` are the names of the probes that wait for a context.
    ``periods_ns`` are set before the first window. ``virtual``: the time is virtual. ``timeline``: the timeline is on.
    """

    victims: Mapping[str, str]
    aggressors: Mapping[str, tuple[Probe, ...]]
    host: str
    drains: tuple[str, ...]
    periods_ns: Mapping[str, int]
    virtual: bool
    timeline: bool


class WindowMeasurer:
    """Measures windows with a session.

    Victims run one at a time, since they would disturb each other.
    """

    def __init__(
        self,
        probes: MeasuredProbes,
        session: Session,
        before_step: Callable[[], None],
        throttled: Callable[[int], str | None],
    ) -> None:
        """``before_step`` is called before time passes. ``throttled`` returns a clause if the GPU's clocks were lowered
        since a time of the board in ns, else None."""
        self._probes = probes
        self._session = session
        self._before_step = before_step
        self._throttled = throttled
        self._virtual = probes.virtual
        self._lead_in_s, self._park_s, self._settle_s = (
            (_LEAD_IN_VIRTUAL_S, _PARK_VIRTUAL_S, _SETTLE_VIRTUAL_S)
            if self._virtual
            else (_LEAD_IN_S, _PARK_S, _SETTLE_S)
        )
        self._calling: str | None = None
        self._iteration_s: dict[str, float] = {}

    def begin(self) -> None:
        """Set the periods and start the host control."""
        for name, period_ns in self._probes.periods_ns.items():
            self._session.set_period(name, period_ns)
        self._session.set_running({self._probes.host: True})
        self._run_for(self._lead_in_s)

    def measure_baselines(self, rows: Sequence[str], lengths: Lengths) -> dict[str, VictimWindow]:
        """A window of the victim of each of ``rows``, in this order, with no aggressor running."""
        windows = {}
        begin = self._timeline_channels(rows)
        for row in rows:
            windows[row] = self._window(row, lengths.baseline_s, lengths.baseline_s, 0, False, None)
        self._stop_victim()
        return self._with_timeline(windows, begin)

    def measure(self, column: str, rows: Sequence[str], lengths: Lengths) -> tuple[dict[str, VictimWindow], float]:
        """A window of the victim of each of ``rows``, in this order, with the aggressors of ``column`` running.

        Afterwards the aggressors are off and the GPU is idle. A window in which an aggressor did not run is rejected.
        Also returns the duration of an iteration of the slowest aggressor in seconds.
        """
        aggressors = self._probes.aggressors[column]
        names = [probe.name for probe in aggressors]
        begin = self._timeline_channels(rows)
        self._session.set_running(dict.fromkeys(names, True))
        progress = _AggressorProgress(aggressors)
        began = self._await_start(progress)
        windows = {}
        try:
            self._run_for(self._settle_s)
            iteration_s = self._iteration_s.get(column, 0.0)
            # The stalls of a slow aggressor come with its iterations, so the window should contain at least one. In
            # virtual time there are fewer repeats, and it contains two short ones.
            wanted = iteration_s * (2 if self._virtual and iteration_s <= 0.04 else 1.2)
            seconds = min(max(lengths.window_s, wanted), max(lengths.longest_s, lengths.window_s))
            for row in rows:
                longest_s = max(lengths.extended_s, seconds)
                windows[row] = self._window(row, seconds, longest_s, lengths.calls, lengths.starve, progress)
            self._stop_victim()
            self._iteration_s[column] = self._iteration_time_s(aggressors, progress, began)
        finally:
            self._session.set_running(dict.fromkeys(names, False))
        self._drain(names)
        return self._with_timeline(windows, begin), self._iteration_s[column]

    def _timeline_channels(self, rows: Sequence[str]) -> dict[str, dict[Channel, Histogram]]:
        """The histograms of the timeline of each row's victim; none while it is off."""
        if not self._probes.timeline:
            return {}
        victims = self._probes.victims
        channels = self._session.timeline_channels([victims[row] for row in rows])
        return {row: channels[victims[row]] for row in rows}

    def _with_timeline(
        self, windows: Mapping[str, VictimWindow], begin: Mapping[str, Mapping[Channel, Histogram]]
    ) -> dict[str, VictimWindow]:
        """``windows`` with what the timeline recorded since ``begin``.

        A victim runs in its own window and between two windows only, so these records are of the state that was
        measured, although they arrive later.
        """
        if not begin:
            return dict(windows)
        self._session.await_records(_RECORDS_AT_MOST_S)
        end = self._timeline_channels(list(windows))
        return {row: replace(own, window=own.window.with_records(begin[row], end[row])) for row, own in windows.items()}

    def _window(
        self,
        row: str,
        seconds: float,
        longest_s: float,
        calls: int,
        starve: bool,
        progress: _AggressorProgress | None,
    ) -> VictimWindow:
        name, host = self._probes.victims[row], self._probes.host
        before, self._calling = self._calling, name
        # The previous victim stops while this one starts. Neither is measured meanwhile.
        self._session.set_running({name: True} if before is None else {before: False, name: True})
        self._run_for(self._lead_in_s)
        if before is not None and self._stuck(before):
            self._until(lambda: self._parked(before), _PARK_AT_MOST_S)
        aggressors = [] if progress is None else progress.names
        begin = self._snapshots(name, aggressors)
        if progress is not None:
            progress.update(begin)
        passed = 0.0
        step = seconds
        while True:
            self._run_for(step)
            passed += step
            # Without histograms, whose difference is needed once, at the end.
            done = self._session.probe_snapshots([name], False)[name].iterations - begin[name].iterations
            limit = STARVED_WINDOW_NS / 1e9 if starve and done < STARVED_CALLS else longest_s
            if done >= calls or passed >= limit - 1e-9:
                break
            # The time that the missing calls take at this rate; at least a quarter of the window, to limit the steps.
            missing = seconds if done < STARVED_CALLS else passed * (calls - done + 1) / done
            step = min(max(missing, seconds / 4), limit - passed)
        end = self._snapshots(name, aggressors)
        window = end[name].minus(begin[name])
        host_window = end[host].minus(begin[host])
        rejection = None if progress is None else progress.update(end)
        gap_s = 0.0 if self._virtual else (end[name].at_ns - begin[name].at_ns) / 1e9 - passed
        if gap_s > _GAP_S:
            rejection = f"the check stood still for {gap_s:.0f} s"
        rejection = rejection or _host_delay(host_window) or self._throttled(begin[name].at_ns)
        return VictimWindow(window, host_window.channels, rejection)

    def _snapshots(self, victim: str, aggressors: Sequence[str]) -> dict[str, ProbeSnapshot]:
        """The statistics of a victim and the host control, and those of the aggressors without histograms."""
        measured = self._session.probe_snapshots([victim, self._probes.host], with_timeline=False)
        return {**measured, **self._session.probe_snapshots(aggressors, False)}

    def _stop_victim(self) -> None:
        """Stop the victim that still runs."""
        name, self._calling = self._calling, None
        if name is not None:
            self._session.set_running({name: False})
            self._until(lambda: self._parked(name), _PARK_AT_MOST_S)

    def _stuck(self, name: str) -> bool:
        """True if the probe has not stopped yet; in virtual time, if it is in a long call."""
        part = self._session.probe_snapshots([name], False)[name]
        if self._virtual:
            return part.in_flight is not None and part.in_flight.age_ns > _STUCK_NS
        return part.state == ProbeState.RUNNING

    def _parked(self, name: str) -> bool:
        return self._session.probe_snapshots([name], False)[name].state != ProbeState.RUNNING

    def _until(self, done: Callable[[], bool], at_most_s: float) -> None:
        """Run until ``done`` returns True, for at most ``at_most_s``; the interval between calls of ``done`` grows."""
        waited, step = 0.0, self._park_s
        while waited < at_most_s:
            self._run_for(step)
            if done():
                return
            waited += step
            step *= _INTERVAL_GROWTH

    def _await_start(self, progress: _AggressorProgress) -> float:
        waited = 0.0
        begin = self._session.probe_snapshots(progress.names, False)
        progress.update(begin)
        while waited < _PROOF_S:
            self._run_for(self._settle_s)
            waited += self._settle_s
            now = self._session.probe_snapshots(progress.names, False)
            progress.update(now)
            if all(progress.ran(name) or now[name].error is not None for name in progress.names):
                break
        return self._now_s()

    def _now_s(self) -> float:
        """Time of the board in seconds; virtual on a simulated GPU."""
        host = self._probes.host
        return self._session.probe_snapshots([host], False)[host].at_ns / 1e9

    def _iteration_time_s(self, aggressors: Sequence[Probe], progress: _AggressorProgress, began_s: float) -> float:
        """The longest mean iteration time of the aggressors, except those that only keep a queue full."""
        on_s = self._now_s() - began_s
        iterations = [
            on_s / max(progress.iterations(probe.name), 1) for probe in aggressors if probe.program.guard is None
        ]
        return max(iterations, default=0.0)

    def _drain(self, names: Sequence[str]) -> None:
        """Wait until the aggressors' calls have returned and every context is idle."""

        def returned() -> bool:
            now = self._session.probe_snapshots(names, False)
            return all(now[name].in_flight is None and now[name].state != ProbeState.RUNNING for name in names)

        self._until(returned, _DRAIN_AT_MOST_S)
        drains = self._probes.drains
        before = self._session.probe_snapshots(drains, False)

        def drained() -> bool:
            now = self._session.probe_snapshots(drains, False)
            return all(now[name].iterations > before[name].iterations or now[name].error is not None for name in drains)

        self._session.set_running(dict.fromkeys(drains, True))
        self._until(drained, _DRAIN_AT_MOST_S)
        self._session.set_running(dict.fromkeys(drains, False))
        self._run_for(self._lead_in_s)

    def _run_for(self, seconds: float) -> None:
        self._before_step()
        if seconds:
            self._session.run_for(seconds)


class _AggressorProgress:
    """Progress of the aggressors between snapshots."""

    def __init__(self, probes: Sequence[Probe]) -> None:
        self.names = [probe.name for probe in probes]
        self._probes = {probe.name: probe for probe in probes}
        self._first: dict[str, ProbeSnapshot] = {}
        self._active: dict[str, ProbeSnapshot] = {}
        self._latest: dict[str, ProbeSnapshot] = {}

    def update(self, snapshots: Mapping[str, ProbeSnapshot]) -> str | None:
        """Add snapshots; a clause if an aggressor failed or made no progress for too long, else None."""
        failure = None
        for name in self.names:
            part = snapshots[name]
            self._first.setdefault(name, part)
            self._latest[name] = part
            active = self._active.setdefault(name, part)
            if has_run(self._probes[name], part.minus(active)):
                self._active[name] = part
            elif part.at_ns - active.at_ns > _NO_PROGRESS_NS:
                failure = f"the {name} did not run"
            if part.error is not None:
                failure = f"the {name} failed with code {part.error.code}"
        return failure

    def ran(self, name: str) -> bool:
        """True if an aggressor ran since the first snapshot."""
        return has_run(self._probes[name], self._latest[name].minus(self._first[name]))

    def iterations(self, name: str) -> int:
        """Iterations of an aggressor since the first snapshot."""
        return self._latest[name].iterations - self._first[name].iterations


def _host_delay(host: Window) -> str | None:
    """A clause if a call of the host control took so long that it must have lost its CPU core, else None."""
    histogram = host.channels.get(_CALL, Histogram.empty())
    median = histogram.percentile(50)
    if median is None or histogram.max_ns < max(_SPIKE_NS, _SPIKE_TIMES * median):
        return None
    return f"the host control, which makes no CUDA call, was delayed by {histogram.max_ns / 1000:.0f} µs"
