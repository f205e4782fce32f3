"""A hold: all probe threads of a process rest between two iterations, so that none of them is in a driver call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from stallprobes.engine.board import Board
from stallprobes.native.layouts.board import ProbeState

_STEP_S = 0.0005
# A loop in one of these states makes no calls any more.
_WITHOUT_CALLS = (ProbeState.ENDED, ProbeState.ERROR)


class ProbeHold:
    """Holds the loops of the probes ``names``. Only one thread may use it, but for ``end_if_longer_than``.

    A loop begins its schedule anew after a hold, so no call counts as late because of it.
    """

    def __init__(self, board: Board, names: Sequence[str], clock_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self._header = board.header
        self._words = [board[name].words for name in names]
        self._clock_ns = clock_ns
        self._number = 0
        self._begun_ns = 0

    def begin(self, seconds: float) -> bool:
        """Hold the loops; False, and without a hold, if one has not come to rest within ``seconds``."""
        self._number += 1
        self._begun_ns = self._clock_ns()
        self._header.hold = self._number
        until = self._begun_ns + round(seconds * 1e9)
        while not all(words.held == self._number or words.state in _WITHOUT_CALLS for words in self._words):
            if self._clock_ns() > until:
                self.end()
                return False
            time.sleep(_STEP_S)
        return True

    def end(self) -> None:
        """Let the loops continue."""
        self._header.hold = 0

    def end_if_longer_than(self, seconds: float) -> None:
        """Let the loops continue if they have been held for more than ``seconds``."""
        if self._header.hold and self._clock_ns() - self._begun_ns > round(seconds * 1e9):
            self.end()

    def has_call_longer_than(self, seconds: float) -> bool:
        """Whether a call is in flight that began more than ``seconds`` ago."""
        before = self._clock_ns() - round(seconds * 1e9)
        return any(words.inflight_op and words.inflight_since_ns < before for words in self._words)
