"""Notice of engines that a signal has stopped: a measurement waits for them, and says so."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from stallscope.cli.process import diagnostics

# Period (s) of the checks whether a signal has stopped an engine (the process that runs the probes). An engine is
# reported only if two successive checks find it stopped: when the user suspends the command, its engines stop
# shortly before the command does.
_POLL_S = 0.3


@contextmanager
def stopped_engines_named() -> Iterator[None]:
    """Names a stopped engine on stderr until the end of the block, and reports when the engine continues."""
    ended = threading.Event()
    thread = threading.Thread(target=_watch, args=(ended,), name="stopped engines", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _watch(ended: threading.Event) -> None:
    before: set[int] = set()
    named: set[int] = set()
    asked_s = time.monotonic()
    while not ended.wait(_POLL_S):
        # Before an engine is started its module is not loaded, or the main thread is loading it.
        ask = getattr(sys.modules.get("stallprobes.engine.process"), "stopped_engines", None)
        stopped = set() if ask is None else set(ask())
        now_s = time.monotonic()
        if now_s - asked_s > 2 * _POLL_S:
            # This process stood still too.
            before = set()
        for pid in sorted((stopped & before) - named):
            named.add(pid)
            diagnostics.print_message(
                f"the engine (pid {pid}) is stopped; waiting until it continues (kill -CONT {pid})"
            )
        for pid in sorted(named - stopped):
            named.discard(pid)
            diagnostics.print_message(f"the engine (pid {pid}) is no longer stopped")
        before, asked_s = stopped, now_s
