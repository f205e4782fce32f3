"""Progress of a command on stderr: the present step, the share done, and the remaining time.

On a terminal the progress is one line, drawn again in its place and removed at the end. A terminal that cannot erase a
line (TERM=dumb) gets a new line now and then. A file, a pipe, the log of a continuous integration (CI) and a job in the
background get nothing. The line has no colour.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from stallscope.cli.process import diagnostics
from stallscope.cli.process.diagnostics import status_line

# Time (s) from the start of a progress display until the progress line appears. If a step reports a remaining time of
# at least _FIRST_S, the line appears at once.
_FIRST_S = 1.0
# Shortest time (s) between two redraws of the progress line when a step reports its progress.
_DRAW_S = 0.1
# Period (s) at which a thread redraws the progress line. Reason: the times in the line must advance even if no step
# reports progress.
_TICK_S = 0.25
# Time (s) from the start of a progress display until the first line, on a terminal that cannot erase lines.
_FIRST_LINE_S = 2.0
# Period (s) of the further lines of progress, on a terminal that cannot erase lines.
_LINE_S = 10.0
# A step must have run for this time (s) before the remaining time is estimated from the finished share. Reason: an
# earlier estimate is inaccurate.
_RATE_S = 1.0
# Smallest finished share (0 to 1) of a step at which the remaining time is estimated from this share. Reason: an
# earlier estimate is inaccurate.
_RATE_SHARE = 0.01
# Width (columns) of the progress bar between its brackets.
_BAR_COLUMNS = 24
# Smallest time (s) that the progress line shows in minutes.
_MINUTES_FROM_S = 100


@dataclass(frozen=True)
class _Step:
    """Step of a command: ``share`` (0 to 1) of it is done, None if unknown.

    Times are of the monotonic clock. ``count`` is the share in other words. ``left_s`` was the remaining time at
    ``at_s``, None if only the rate shows it. ``at_most_s``: after so long the command stops waiting.
    """

    text: str
    began_s: float
    at_s: float
    share: float | None = None
    count: str = ""
    left_s: float | None = None
    at_most_s: float | None = None

    def remaining_s(self, now_s: float) -> float | None:
        """The estimated time that the step still takes, None while it is not known."""
        if self.left_s is not None:
            return max(self.left_s - (now_s - self.at_s), 0.0)
        passed_s = self.at_s - self.began_s
        if self.share is None or passed_s < _RATE_S or self.share < _RATE_SHARE:
            return None
        return max(passed_s / self.share - (now_s - self.began_s), 0.0)

    def line(self, now_s: float, part: str) -> str:
        """The step as text; ``part`` is its number among several steps, "" for a single step."""
        if self.share is None:
            limit = "" if self.at_most_s is None else f", at most {_seconds(self.at_most_s)}"
            return f"{self.text}{part and f' ({part})'}: {_seconds(now_s - self.began_s)}{limit}"
        remaining_s = self.remaining_s(now_s)
        left = "" if remaining_s is None else f", {_seconds(remaining_s)} left{part and f' of {part}'}"
        return f"{self.count or f'{self.share:.0%}'}{left}  {self.text}"

    @property
    def bar(self) -> str:
        """The share as a bar; "" if it is not known."""
        if self.share is None:
            return ""
        filled = round(min(1.0, max(0.0, self.share)) * _BAR_COLUMNS)
        return f"[{'#' * filled}{'-' * (_BAR_COLUMNS - filled)}] "


class Progress:
    """Context manager that shows the steps of a command. Any thread may call its methods.

    A thread draws the line again while the command waits, so that its seconds pass.
    """

    def __init__(self) -> None:
        self._redraws = diagnostics.redraws_line()
        self._lock = threading.Lock()
        self._step: _Step | None = None
        self._part = ""
        self._began_s = self._drawn_s = 0.0
        self._line_due_s = 0.0
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._began_s = time.monotonic()
        self._line_due_s = self._began_s + _FIRST_LINE_S
        if self._redraws is not None:
            self._thread = threading.Thread(target=self._tick, name="progress", daemon=True)
            # Without a thread the line is drawn at each step only.
            with contextlib.suppress(RuntimeError):
                self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None and self._thread.is_alive():
            self._thread.join()
        self.end()

    def begin(self, text: str, at_most_s: float | None = None) -> None:
        """Begin a step of unknown length that ends after ``at_most_s`` seconds at the latest."""
        if self._redraws is not None:
            now_s = time.monotonic()
            self._show(_Step(text, now_s, now_s, at_most_s=at_most_s))

    def end(self) -> None:
        """Remove the line: what follows is printed, or takes no time."""
        with self._lock:
            self._step = None
        status_line.clear()

    def part(self, number: int, count: int) -> None:
        """Say that the next steps are part ``number`` of ``count``; each has a time of its own."""
        with self._lock:
            self._part = f"step {number} of {count}"
            self._step = None

    def show(self, share: float, text: str, *, left_s: float | None = None, count: str = "") -> None:
        """Show that the ``share`` (0 to 1) of the step is done, as ``count`` says it.

        ``left_s`` is the remaining time in seconds; None to estimate it by the rate since the step began.
        """
        if self._redraws is None:
            return
        now_s, step = time.monotonic(), self._step
        began_s = now_s if step is None or step.share is None or share < step.share else step.began_s
        self._show(_Step(text, began_s, now_s, share, count, left_s))

    def shower(self, text: str) -> Callable[[float], None]:
        """Function that shows the finished share of a step."""
        return lambda share: self.show(share, text)

    def _show(self, step: _Step) -> None:
        with self._lock:
            self._step = step
            if step.at_s - self._drawn_s >= _DRAW_S:
                self._draw(step.at_s)

    def _tick(self) -> None:
        while not self._ended.wait(_TICK_S):
            with self._lock:
                self._draw(time.monotonic())

    def _draw(self, now_s: float) -> None:
        step = self._step
        if step is None or self._ended.is_set() or not diagnostics.in_foreground():
            return
        if self._redraws is False:
            if now_s >= self._line_due_s:
                self._line_due_s = now_s + _LINE_S
                diagnostics.print_message(step.line(now_s, self._part))
        elif now_s - self._began_s >= _FIRST_S or (step.left_s or 0.0) >= _FIRST_S:
            self._drawn_s = now_s
            if not status_line.draw(step.bar + step.line(now_s, self._part)):
                self._redraws = None


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < _MINUTES_FROM_S else f"{seconds / 60:.0f} min"
