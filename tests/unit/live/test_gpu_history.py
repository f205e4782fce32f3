"""History of the GPU's values on the slots of the heat map."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from stallprobes.live.gpu_history import GPU_VALUES, GpuHistory
from stallprobes.live.history import SLOT_NS
from stallprobes.machine.telemetry import NAMES, TelemetryReading, TelemetrySnapshot


def telemetry(**values: float) -> TelemetrySnapshot:
    readings = {name: TelemetryReading(values.get(name), 1, None) for name in NAMES}
    return TelemetrySnapshot("GPU-1", 1, "live", None, MappingProxyType(readings))


def test_a_column_has_the_mean_of_its_slots_and_nan_without_a_value() -> None:
    history = GpuHistory(40)
    for slot, percent in enumerate((0, 100, 50, 70)):
        history.feed(slot * SLOT_NS, telemetry(utilisation_percent=percent))
    history.feed(4 * SLOT_NS, None)
    found = history.columns(0, 3, 2)
    assert found.shape == (len(GPU_VALUES), 3)
    assert found[0, :2].tolist() == [50.0, 60.0]
    assert np.isnan(found[0, 2])
    # Values that nothing gave are not 0.
    assert np.isnan(found[1:]).all()


def test_slots_that_have_passed_are_forgotten() -> None:
    history = GpuHistory(4)
    for slot in range(9):
        history.feed(slot * SLOT_NS, telemetry(utilisation_percent=slot))
    found = history.columns(0, 9, 1)[0]
    assert np.isnan(found[:5]).all()
    assert found[5:].tolist() == [5, 6, 7, 8]


def test_slots_between_two_observations_have_the_newer_ones_values_for_a_second_at_most() -> None:
    history = GpuHistory(60)
    for slot, percent in ((0, 10), (3, 40), (23, 90)):
        history.feed(slot * SLOT_NS, telemetry(utilisation_percent=percent))
    found = history.columns(0, 24, 1)[0]
    assert found[:4].tolist() == [10, 40, 40, 40]
    assert np.isnan(found[4:23]).all()
    assert found[23] == 90
