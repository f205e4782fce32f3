"""Periods of probes that make their calls after longer idle times than in their baselines."""

from __future__ import annotations

from collections.abc import Iterable

from stallprobes.engine.session import Session
from stallprobes.model import Probe


class IdlePeriods:
    """The periods of ``probes``: of those whose baseline has another one, that at first."""

    def __init__(self, probes: Iterable[Probe]) -> None:
        self._wanted: dict[str, int] = {}
        self._baselines: dict[str, int] = {}
        for probe in probes:
            self._wanted[probe.name] = probe.period_ns
            if probe.baseline_period_ns is not None:
                self._baselines[probe.name] = probe.baseline_period_ns
        self._idle = False

    def switch(self, session: Session, idle: bool) -> None:
        """Give the probes the longer periods, or those of their baselines."""
        if idle is not self._idle:
            self._idle = idle
            self.apply(session)

    def wanted_ns(self, name: str) -> int | None:
        """The period of a probe; of one whose baseline has another period, the longer one, also in the baseline."""
        return self._wanted.get(name)

    def is_fixed_in_baseline(self, name: str) -> bool:
        """Whether the baseline of the probe has a period of its own."""
        return name in self._baselines

    def change(self, session: Session, name: str, period_ns: int) -> None:
        """Change the period of a probe; of one whose baseline has another period, the longer one."""
        self._wanted[name] = period_ns
        if name in self._baselines:
            self.apply(session)
        else:
            session.set_period(name, period_ns)

    def apply(self, session: Session) -> None:
        """Set the present periods of the probes whose baselines have other ones."""
        for name, baseline_ns in self._baselines.items():
            session.set_period(name, self._wanted[name] if self._idle else baseline_ns)
