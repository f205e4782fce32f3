"""Notice of engines that a signal has stopped: a measurement waits for them, and says so."""

from __future__ import annotations

import sys
import threading
import time
from typing import Self

from stallscope.cli.process import diagnostics

# Time (s) between two looks; an engine is named at the second one, since a suspension of the command stops its engines
# for a moment before it.
_POLL_S = 0.3


class StoppedEngines:
    """Context manager with a thread that names a stopped engine on stderr, and reports when the engine continues."""

    def __init__(self) -> None:
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="stopped engines", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        before: set[int] = set()
        named: set[int] = set()
        asked_s = time.monotonic()
        while not self._ended.wait(_POLL_S):
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
