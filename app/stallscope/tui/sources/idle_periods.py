"""Periods of probes that make their calls after longer idle times than in their baselines."""

from __future__ import annotations

from collections.abc import Iterable

from stallprobes.engine.session import Session
from stallprobes.model import Probe


class IdlePeriods:
    """The periods of ``probes``, those of the baselines at first."""

    def __init__(self, probes: Iterable[Probe]) -> None:
        self._probes = {probe.name: probe for probe in probes if probe.baseline_period_ns is not None}
        self._idle = False
        self._changed: dict[str, int] = {}

    def switch(self, session: Session, idle: bool) -> None:
        """Give the probes the longer periods, or those of their baselines."""
        if idle is not self._idle:
            self._idle = idle
            self.apply(session)

    def change(self, session: Session, name: str, period_ns: int) -> None:
        """Change the period of a probe; of one whose baseline has another period, the longer one."""
        if name in self._probes:
            self._changed[name] = period_ns
            self.apply(session)
        else:
            session.set_period(name, period_ns)

    def apply(self, session: Session) -> None:
        """Set the present periods."""
        for name, probe in self._probes.items():
            if self._idle or probe.baseline_period_ns is None:
                session.set_period(name, self._changed.get(name, probe.period_ns))
            else:
                session.set_period(name, probe.baseline_period_ns)
