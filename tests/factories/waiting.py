"""Waiting for something that happens in another thread or process."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

# Long enough for a machine that is busy with something else: a test fails on what is done, never on how fast.
LIMIT_S = 180.0


def wait_until(condition: Callable[[], object], what: str, limit_s: float = LIMIT_S) -> None:
    """Poll ``condition`` until it holds; AssertionError naming ``what`` after ``limit_s``."""
    until = time.monotonic() + limit_s
    begun_s = time.thread_time()
    while not condition():
        assert time.monotonic() < until, f"after {limit_s:g} s still not: {what}"
        # What is waited for may need the processor that the condition takes.
        time.sleep(max(0.005, 9 * (time.thread_time() - begun_s)))
        begun_s = time.thread_time()


def undisturbed(attempt: Callable[[int], Found], holds: Callable[[Found], object], attempts: int = 20) -> Found:
    """The result of the first attempt for which ``holds``, otherwise of the last; ``attempt`` gets its number.

    For programs whose short calls must not be slow: a busy machine may take the CPU from one of them.
    """
    for number in range(attempts):
        found = attempt(number)
        if holds(found):
            break
    return found
