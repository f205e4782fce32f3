"""Resident: an object in the engine process of a simulated GPU, whose methods the session calls.

It switches and reads the probes while virtual time passes. From the session's process each step would take two
messages, and those of a check take as much processor time as half of its simulation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # The board imports NumPy; a message that names a resident must stay cheap to import.
    from stallprobes.engine.board import Board
    from stallprobes.engine.snapshot import ProbeSnapshot
    from stallprobes.latency.histogram import Histogram
    from stallprobes.model import Channel


class LocalControl:
    """Control of a simulated GPU's probes in the process that simulates them, as ``Session`` has it in its own.

    ``advance`` lets virtual time pass, in ns, and raises Stopped if the engine is to stop.
    """

    def __init__(self, board: Board, advance: Callable[[int], None]) -> None:
        self._board = board
        self._advance = advance

    def set_running(self, which: Mapping[str, bool]) -> None:
        """Switch probes on and off. Raises KeyError for an unknown name."""
        for name, on in which.items():
            self._board.switch(name, on)

    def set_period(self, name: str, period_ns: int) -> None:
        """Set the time in ns between the due times of a probe's iterations. Raises KeyError for an unknown name."""
        self._board.set_period(name, period_ns)

    def run_for(self, seconds: float) -> None:
        """Let ``seconds`` of virtual time pass. Raises Stopped."""
        self._advance(round(seconds * 1e9))

    def probe_snapshots(
        self, names: Iterable[str], with_channels: bool = True, with_timeline: bool = True
    ) -> dict[str, ProbeSnapshot]:
        """The statistics of the probes ``names`` now. Raises KeyError for an unknown name."""
        return {name: self._board.probe_snapshot(name, with_channels, with_timeline) for name in names}

    def timeline_channels(self, names: Iterable[str]) -> dict[str, dict[Channel, Histogram]]:
        """The histograms of the probes ``names`` that the timeline fills. Raises KeyError for an unknown name."""
        return {name: self._board.timeline_channels(name) for name in names}

    def await_records(self, timeout: float) -> bool:
        """True: in virtual time the records of the timeline arrive as it passes."""
        return True


ResidentFactory = Callable[[LocalControl], object]
