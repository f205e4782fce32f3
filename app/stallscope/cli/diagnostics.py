"""The one place that writes to stderr and that knows the exit codes by name."""

from __future__ import annotations

import os
import sys
import time
from enum import IntEnum
from typing import NoReturn

from stallscope.report.text import without_control


class Exit(IntEnum):
    """What the process says with its exit code."""

    FINE = 0
    REGRESSION = 1
    USAGE = 2
    NO_GPU = 3
    FAILED = 4
    INTERRUPTED = 130


MEANINGS = {
    Exit.FINE: "fine",
    Exit.REGRESSION: "a regression or a failed expectation",
    Exit.USAGE: "wrong use or an unreadable file",
    Exit.NO_GPU: "no usable GPU",
    Exit.FAILED: "the engine or the GPU failed on the way",
    Exit.INTERRUPTED: "interrupted",
}


class Problem(Exception):
    """Ends the command with ``exit_code`` and one sentence on stderr."""

    def __init__(self, exit_code: int, sentence: str) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code
        self.sentence = sentence


def say(sentence: str) -> None:
    """One line on stderr. A stderr that is gone is no reason to fail."""
    try:
        print(f"stallscope: {_fit(sentence)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


def ask(question: str) -> bool:
    """Ask on stderr, read the answer from stdin; anything but yes is no."""
    try:
        print(f"stallscope: {_fit(question)} [y/N] ", end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")
    except (OSError, ValueError):
        return False


def can_ask() -> bool:
    """Whether somebody sits there who can answer."""
    return is_terminal(sys.stdin) and is_terminal(sys.stderr)


def is_terminal(stream: object) -> bool:
    """Whether ``stream`` is a terminal; False when it is closed or missing."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except (AttributeError, ValueError):
        return False


def why_no_screen() -> str | None:
    """Why no screen can be drawn here, in a sentence; None where it can."""
    term = os.environ.get("TERM", "")
    if term in ("", "dumb", "unknown"):
        which = f"TERM={term} is none" if term else "TERM, which names it, is not set"
        return (
            f"the screen needs a terminal that can place the cursor, and {which}; for tables and JSON see: "
            "stallscope --help"
        )
    # The screen is drawn on stderr, so that stdout may well be a file.
    if not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
        return "the screen needs a terminal for input and output; for tables and JSON see: stallscope --help"
    return None


def leave(code: int) -> NoReturn:
    """End the process with ``code`` without another word, also when stdout can take no more."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            # The interpreter would try again at its end, and complain.
            quiet = os.open(os.devnull, os.O_WRONLY)
            os.dup2(quiet, 1 if stream is sys.stdout else 2)
    raise SystemExit(int(code))


class Bar:
    """A progress bar on stderr: drawn on a terminal; elsewhere silent, or with ``every_s`` a line in so many seconds.

    Use as a context manager.
    """

    WIDTH = 24

    def __init__(self, every_s: float | None = None) -> None:
        self._on = is_terminal(sys.stderr) and os.environ.get("TERM", "") != "dumb"
        self._shown = False
        self._every_s = every_s
        self._said: float | None = None

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.clear()

    def show(self, done_s: float, total_s: float, text: str) -> None:
        """Draw that ``done_s`` of ``total_s`` are done and ``text`` is on."""
        self.draw(done_s / total_s if total_s > 0 else 0.0, f"{done_s:.0f}/{total_s:.0f} s  {text}")

    def draw(self, share: float, text: str) -> None:
        """Draw that ``share`` (0 to 1) is done, and ``text`` behind it."""
        if not self._on:
            self._line(share, text)
            return
        filled = round(min(1.0, max(0.0, share)) * self.WIDTH)
        line = f"[{'#' * filled}{'-' * (self.WIDTH - filled)}] {text}"
        try:
            columns = os.get_terminal_size(sys.stderr.fileno()).columns or 80
            sys.stderr.write("\r\x1b[K" + _fit(line)[: columns - 1])
            sys.stderr.flush()
        except (OSError, ValueError):
            self._on, self._every_s = False, None
        self._shown = self._on

    def _line(self, share: float, text: str) -> None:
        now = time.monotonic()
        if self._every_s is not None and (self._said is None or now - self._said >= self._every_s):
            self._said = now
            say(f"{share:.0%}: {text}")

    def clear(self) -> None:
        """Take the bar off the screen again."""
        if self._shown:
            self._shown = False
            try:
                sys.stderr.write("\r\x1b[K")
                sys.stderr.flush()
            except (OSError, ValueError):
                self._on = False


def _fit(text: str) -> str:
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    return without_control(text).encode(encoding, errors="replace").decode(encoding)
