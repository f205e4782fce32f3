"""Virtual time: SimPy's environment in whole ns, with a short cut while no other event is due."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import simpy

Wait = Generator[Any, Any, None]
Call = Generator[Any, Any, int]

# A clock of 0 on the board means that there is none.
EPOCH_NS = 1_000_000_000
NEVER = 1 << 62


class Clock(simpy.Environment):  # type: ignore[misc]
    """Virtual time in ns.

    A process that waits until a time before which no other event is due need not be suspended: ``advance_to`` moves
    the time there at once, which is faster and gives the same results. Only the running process may call it.
    """

    def __init__(self) -> None:
        super().__init__(EPOCH_NS)

    def is_idle_until(self, until: int) -> bool:
        """Whether no event is due up to and including ``until``."""
        return bool(self.peek() > until)

    def advance_to(self, until: int) -> None:
        """Move the time to ``until``; no event may be due before."""
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
