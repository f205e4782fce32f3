"""How often the garbage collector examines the objects of a command that makes many without cycles."""

from __future__ import annotations

import gc

_THRESHOLD = 50_000


def collect_rarely() -> None:
    """Let the garbage collector examine new objects rarely.

    A check has some 50 000 objects without cycles, as JSON ten times as many; a screen of a watched program makes
    thousands with each reading, and keeps as many. The usual threshold of 700 new objects would have them examined
    again and again.
    """
    gc.set_threshold(_THRESHOLD)
