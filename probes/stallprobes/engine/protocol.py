"""Protocol between a session and its engine process: pickled messages over a socket pair, and shared memory.

Frequent data is on the board in shared memory; messages are for events that happen once. This module does not import
NumPy, so that an engine process can be spawned before NumPy is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallprobes.engine.backend import Options, ProbeFailure
from stallprobes.model import Probe, Process
from stallprobes.records.timeline import TimelineStatus


@dataclass(frozen=True)
class Start:
    """To the engine, first message: prepare ``probes`` on ``backend`` and start their threads.

    ``process`` is the receiver, which prepares the probes that name it; the engine starts the other process.
    """

    probes: tuple[Probe, ...]
    backend: str
    options: Options
    process: Process = Process.ENGINE


@dataclass(frozen=True)
class Advance:
    """To an engine with virtual time: advance by ``ns``, then answer with this message."""

    number: int
    ns: int


@dataclass(frozen=True)
class SwitchTimeline:
    """To the engine: switch the timeline on or off; it answers TimelineChanged with the same ``number``."""

    number: int
    on: bool


@dataclass(frozen=True)
class Stop:
    """To the engine: stop all probes and exit."""


@dataclass(frozen=True)
class Ready:
    """From the engine: every probe is parked. ``info`` is the backend's description of devices and contexts.

    ``second_pid`` is the id of the second process, None without one.
    """

    info: Mapping[str, object]
    second_pid: int | None = None


@dataclass(frozen=True)
class Refused:
    """From the engine: this machine lacks something. ``probes`` need it, empty if unknown."""

    reason: str
    probes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Failed:
    """From the engine: it could not start; ``after_ready``: an error affects all probes and the engine exits."""

    exit_code: int
    sentence: str
    after_ready: bool = False


@dataclass(frozen=True)
class TimelineChanged:
    """From the engine: the timeline's state. ``number`` is the number of the last SwitchTimeline that took effect."""

    number: int
    status: TimelineStatus


ToEngine = Start | Advance | SwitchTimeline | Stop
# A ProbeFailure: the probe stopped with an error, and the other probes continue.
FromEngine = Ready | Refused | Failed | ProbeFailure | Advance | TimelineChanged
