"""Sessions of the simulated GPU without an engine process, for tests of what is measured and not of the process.

An engine process takes 0.3 s of processor time to start, which for many tests is more than their simulation takes. The
figures are the same: test_check.py compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import ClassVar

import pytest

from stallprobes.engine.board import Board
from stallprobes.engine.main import VIRTUAL_STEP_NS
from stallprobes.engine.session import Session
from stallprobes.engine.sim.backend import SimBackend
from stallprobes.errors import BackendError, EngineFailed
from stallprobes.live import capture
from stallprobes.matrix.check import cell_runner
from stallprobes.measurement import measure
from stallprobes.records.timeline import TimelineStatus


class VirtualSession(Session):
    """A session whose simulated GPU runs in this process, within ``run_for``."""

    new_backend: ClassVar[Callable[[], SimBackend]] = SimBackend
    _simulated: SimBackend | None = None

    def start(self, timeout: float | None = None) -> Mapping[str, object]:
        """Prepare the simulated GPU; raises what Session.start raises."""
        assert self.backend == "sim"
        assert not self.options.paced
        self._started = True
        self._board = Board.create(self._layout)
        self._simulated = type(self).new_backend()
        try:
            self.info = self._simulated.prepare(self.probes, self._board, self.options)
            self._simulated.start()
            if self.options.timeline:
                self.switch_timeline(True)
        except BackendError as error:
            self.stop()
            raise EngineFailed(error.exit_code, error.sentence) from error
        except BaseException:
            self.stop()
            raise
        return self.info

    @property
    def alive(self) -> bool:
        return self._simulated is not None

    def switch_timeline(self, on: bool, timeout: float = 0.0) -> TimelineStatus | None:
        """Switch the timeline, which takes effect at once."""
        assert self._simulated is not None
        self._simulated.switch_timeline(on)
        self._inbox.timeline = self._simulated.timeline() or self._inbox.timeline
        return self.timeline_status()

    def run_for(self, seconds: float) -> None:
        """Advance the simulation in the steps of the engine."""
        assert self._simulated is not None
        left = round(seconds * 1e9)
        while left > 0:
            step = min(left, VIRTUAL_STEP_NS)
            self._simulated.advance(step)
            self._inbox.probe_failures += self._simulated.poll()
            left -= step

    def stop(self) -> None:
        simulated, self._simulated = self._simulated, None
        if simulated is not None and self._board is not None:
            self._board.header.quit = 1
            if self.info:
                # The threads end, and with them what refers to the board.
                simulated.stop(1.0)
        self._kill()


@contextmanager
def virtual_sessions(new_backend: Callable[[], SimBackend] = SimBackend) -> Iterator[None]:
    """Within it, runs, checks and recordings of the simulated GPU start no process, and have a ``new_backend``."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(VirtualSession, "new_backend", new_backend)
        for module in (capture, cell_runner, measure):
            patch.setattr(module, "Session", VirtualSession)
        yield
