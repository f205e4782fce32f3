"""Timeline of a live engine: switched on and off, and read into a history."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from enum import StrEnum

from stallprobes.engine.session import Session
from stallprobes.errors import EngineFailed
from stallprobes.recording.observation import SIM, Observation
from stallprobes.records.timeline import OFF, TimelineStatus
from stallprobes.traces.history import TraceHistory


class TimelineCondition(StrEnum):
    """The condition of the timeline of a live engine.

    ``PROBLEM``: it cannot be switched on here. ``NO_ENGINE``: no engine runs.
    """

    OFF = "off"
    SWITCHING_ON = "switching on"
    ON = "on"
    SWITCHING_OFF = "switching off"
    PROBLEM = "problem"
    NO_ENGINE = "no engine"


@dataclass(frozen=True)
class TimelineReport:
    """The condition of the timeline, the seconds since it was switched last, and the engine's status."""

    condition: TimelineCondition
    age_s: float = 0.0
    status: TimelineStatus = OFF


class LiveTimeline:
    """The timeline of the running engine, and of each later one.

    ``wanted`` is True from ``switch(True)`` on. ``history`` has the records since the timeline was last switched on,
    None before.
    """

    def __init__(self) -> None:
        self.wanted = False
        self.history: TraceHistory | None = None
        self._session: Session | None = None
        # What the session was asked for last, and when.
        self._asked = False
        self._asked_s = 0.0
        # The session whose rows the history has, None while the timeline is not on.
        self._read: Session | None = None

    def switch(self, on: bool) -> None:
        """Switch the timeline on or off, for this engine and later ones."""
        if on != self.wanted:
            self.wanted, self._asked_s = on, time.monotonic()
            self.follow(self._session)

    def follow(self, session: Session | None) -> None:
        """Belong to the engine of ``session``, or to none, and ask it once for the wanted state."""
        if session is not self._session:
            self._session, self._asked = session, False
        if session is not None and self.wanted != self._asked:
            # An engine that has ended has no timeline; the source reports the end.
            with contextlib.suppress(EngineFailed, RuntimeError):
                session.switch_timeline(self.wanted)
            self._asked, self._asked_s = self.wanted, time.monotonic()

    @property
    def report(self) -> TimelineReport:
        """The present condition."""
        session, wanted = self._session, self.wanted
        age_s = time.monotonic() - self._asked_s
        if session is None or not session.alive:
            return TimelineReport(TimelineCondition.NO_ENGINE, age_s)
        status = session.timeline_status()
        if status is None or (status.on and not wanted):
            switching = TimelineCondition.SWITCHING_ON if wanted else TimelineCondition.SWITCHING_OFF
            return TimelineReport(switching, age_s)
        if wanted and status.problem is not None:
            return TimelineReport(TimelineCondition.PROBLEM, age_s, status)
        return TimelineReport(TimelineCondition.ON if status.on else TimelineCondition.OFF, age_s, status)

    @property
    def is_on(self) -> bool | None:
        """True if calls are recorded, which makes them longer; None while it is being switched."""
        condition = self.report.condition
        if condition in (TimelineCondition.SWITCHING_ON, TimelineCondition.SWITCHING_OFF):
            return None
        return condition is TimelineCondition.ON

    def read(self, observation: Observation | None) -> TraceHistory | None:
        """Read the new records, and the GPU's counters of ``observation``, the last one; None unless it is on."""
        session = self._session
        if session is None or self.report.condition is not TimelineCondition.ON:
            self._read = None
            return None
        with contextlib.suppress(RuntimeError):
            if self._read is not session or self.history is None:
                # What was recorded before is left out: who had the engine in between is not known.
                self.history = TraceHistory(session.probes, simulated=session.backend == SIM)
                rows = session.timeline_rows()
                self.history.position, self.history.started_ns = rows.position, rows.at_ns
                self._read = session
            self.history.feed(session.timeline_rows(self.history.position), time.time())
            if observation is not None and observation.snapshot is not None:
                self.history.feed_counters(observation.snapshot.at_ns, observation.telemetry)
        return self.history
