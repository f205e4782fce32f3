"""What the session and its engine say to each other, pickled over a socket pair.

The board carries everything that is frequent; a message is for what happens once.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stallprobes.engine.backend import Options, Trouble
from stallprobes.model import Probe


@dataclass(frozen=True)
class Start:
    """To the engine, first of all: make these probes with that backend."""

    probes: tuple[Probe, ...]
    backend: str
    options: Options


@dataclass(frozen=True)
class Advance:
    """To the engine of a backend with virtual time: let ``ns`` pass, then answer Advanced with the same number."""

    number: int
    ns: int


@dataclass(frozen=True)
class Stop:
    """To the engine: end."""


@dataclass(frozen=True)
class Ready:
    """From the engine: every probe stands parked. ``info`` is what the backend tells about itself."""

    info: Mapping[str, object]


@dataclass(frozen=True)
class Refused:
    """From the engine: this machine cannot do it, why, and which probe needs it, if that is known."""

    reason: str
    probe: str | None = None


@dataclass(frozen=True)
class Failed:
    """From the engine, before Ready: it could not start."""

    exit_code: int
    sentence: str


@dataclass(frozen=True)
class ProbeFailed:
    """From the engine: one probe stopped, the others go on."""

    trouble: Trouble


@dataclass(frozen=True)
class Fatal:
    """From the engine: an error spoiled everything; it is ending."""

    exit_code: int
    sentence: str


@dataclass(frozen=True)
class Advanced:
    """From the engine: the virtual time of the Advance with this number has passed."""

    number: int


ToEngine = Start | Advance | Stop
FromEngine = Ready | Refused | Failed | ProbeFailed | Fatal | Advanced
