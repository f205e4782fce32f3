"""Virtual time: SimPy's environment, counting whole nanoseconds, with a short cut where nothing else happens."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

Wait = Generator[Any, Any, None]
Call = Generator[Any, Any, int]

# The board takes a clock of 0 for "none".
EPOCH_NS = 1_000_000_000
NEVER = 1 << 62


class Clock(simpy.Environment):  # type: ignore[misc]
    """Virtual time in ns.

    A host thread that computes for a while need not be suspended when nothing else is due before it is done: then
    ``advance_to`` moves the time there at once. That is all the difference between a slow and a fast simulation, and none
    between their results. It may be called only by the process that is running, where it could also have waited.
    """

    def __init__(self) -> None:
        super().__init__(EPOCH_NS)

    def is_idle_until(self, until: int) -> bool:
        """Whether nothing is due up to and including ``until``."""
        return bool(self.peek() > until)

    def advance_to(self, until: int) -> None:
        """Move the time to ``until``, up to which the way must be clear."""
        self._now = until

    def wait(self, ns: int) -> Wait:
        """Wait ``ns``."""
        until = self._now + ns
        if self.peek() > until:
            self._now = until
        elif ns > 0:
            yield self.timeout(ns)

    def call_at(self, time: int, what: Callable[[Any], None]) -> None:
        """Call ``what`` with the event that fired, at ``time``."""
        self.timeout(time - self._now).callbacks.append(what)
