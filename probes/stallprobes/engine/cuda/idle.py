"""Waits until a GPU has done all work on the streams of the probes."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence

from stallprobes.engine.cuda.api import CudaError
from stallprobes.engine.cuda.resolver import SessionResources, c_function
from stallprobes.engine.timeline.interfaces import StreamUse

_NOT_READY = 600
_STEP_S = 0.0005


class StreamsIdle:
    """Asks the streams of ``uses``. Only one thread may use it, and only while no call of a probe is in flight."""

    def __init__(self, shared: SessionResources, uses: Sequence[StreamUse]) -> None:
        self._shared = shared
        self._streams = {(use.context, use.handle): use for use in uses}

    def wait(self, seconds: float) -> bool:
        """Wait for the end of all work; False if it lasts longer than ``seconds`` or a call failed."""
        query = c_function(self._shared.api.address("cuStreamQuery"))
        until = time.monotonic() + seconds
        try:
            for (_, handle), use in self._streams.items():
                self._shared.contexts.use(use.stream.context)
                while (status := query(handle)) == _NOT_READY and time.monotonic() < until:
                    time.sleep(_STEP_S)
                if status != 0:
                    return False
        except CudaError:
            return False
        finally:
            with contextlib.suppress(CudaError):
                self._shared.api.call("cuCtxSetCurrent", 0)
        return True
