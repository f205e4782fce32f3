"""History of the GPU's utilisation, SM activity and power, on the slots of the heat map."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stallprobes.live.history import MOST_SLOTS, SLOT_NS
from stallprobes.machine.telemetry import TelemetrySnapshot

# Names of the GPU's telemetry readings that the history keeps.
GPU_VALUES = ("utilisation_percent", "sm_active_percent", "power_w", "power_limit_w")


class GpuHistory:
    """Values of the last ``slots`` tenths of a second, NaN where none is known, in memory of constant size."""

    def __init__(self, slots: int) -> None:
        self._slots = slots
        self._values = np.full((len(GPU_VALUES), slots), np.nan, dtype=np.float32)
        # The running number of the slot in each place, -1 for none.
        self._numbers = np.full(slots, -1, dtype=np.int64)
        # The slot of the last observation.
        self._last = -1

    def feed(self, at_ns: int, telemetry: TelemetrySnapshot | None) -> None:
        """Add the values of ``telemetry`` at the board's time ``at_ns``; nothing for readings without a value."""
        if telemetry is None:
            return
        number = at_ns // SLOT_NS
        # The slots since the last observation too, unless that was more than a second ago.
        since = self._last + 1 if 0 < number - self._last <= MOST_SLOTS else number
        self._last = number
        numbers = np.arange(since, number + 1)
        places = numbers % self._slots
        known = [telemetry.readings[name].value if name in telemetry.readings else None for name in GPU_VALUES]
        self._values[:, places] = np.array([[np.nan if value is None else value] for value in known])
        self._numbers[places] = numbers

    def columns(self, first: int, count: int, slots_each: int) -> NDArray[np.float32]:
        """The mean of each value in ``count`` columns of ``slots_each`` slots, the number of the first is ``first``.

        float32[values][count], NaN for a column without a value.
        """
        wanted = np.arange(first * slots_each, (first + count) * slots_each)
        places = wanted % self._slots
        values = np.where(self._numbers[places] == wanted, self._values[:, places], np.float32(np.nan))
        parts = values.reshape(len(GPU_VALUES), count, slots_each)
        known = np.isfinite(parts)
        sums = np.where(known, parts, 0).sum(axis=2, dtype=np.float32)
        counts = known.sum(axis=2)
        return np.where(counts > 0, sums / np.maximum(counts, 1), np.float32(np.nan)).astype(np.float32)
