"""Progress of a check: how many of its windows are measured, reported from the threads of all its engines."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass

from stallprobes.matrix.check.schedule import Block, TimeBudget
from stallprobes.matrix.matrix import Cell


@dataclass(frozen=True)
class CheckProgress:
    """Progress of a check: the number of measured windows and of all windows, and the current step.

    ``left_s`` is the estimated remaining time in seconds, None while unknown. ``cell`` is a cell that was just
    measured, with the repeats so far.
    """

    done: int
    total: int
    left_s: float | None
    text: str
    cell: Cell | None = None


class ProgressReporter:
    """Reports the progress of a check with ``repeats`` regular repeats to ``progress``, never twice at the same time.

    ``pace`` estimates the remaining time. With ``cells``, each cell just measured is reported too.
    """

    def __init__(
        self, progress: Callable[[CheckProgress], None] | None, pace: TimeBudget, repeats: int, cells: bool
    ) -> None:
        self._progress = progress
        self._pace = pace
        self._repeats = repeats
        # Whether cells are reported: to compute one takes time.
        self.wants_cells = cells and progress is not None
        self._done = 0
        self._total = 0
        self._text = ""
        self._lock = threading.Lock()

    def expect(self, windows: int) -> None:
        """Add ``windows`` to the number of all windows; a negative number removes windows."""
        with self._lock:
            self._total += windows

    def add_done(self, windows: int) -> None:
        """Add ``windows`` to the number of measured windows."""
        with self._lock:
            self._done += windows

    def report_step(self, block: Block) -> None:
        """Report that ``block`` is measured next."""
        what = "warming up" if block.repeat == 0 else f"repeat {block.repeat} of {self._repeats}"
        if block.repeat > self._repeats:
            what = "additional repeats"
        with self._lock:
            self._text = f"{what} · {block.aggressor_set.column.name}"
        self.report()

    def report(self, cell: Cell | None = None) -> None:
        """Report the progress, with a ``cell`` that was just measured.

        At the end, the windows left out last are no longer expected.
        """
        if self._progress is not None:
            with self._lock:
                left_s = self._pace.left_s(self._done, self._total, self._repeats)
                self._progress(CheckProgress(self._done, self._total, left_s, self._text, cell))
