"""Pace: how many frames of many have work."""

from __future__ import annotations

import pytest

from stallscope.tui.common.timers import Pace


@pytest.mark.parametrize("frames", [1, 4, 10, 12, 30])
@pytest.mark.parametrize("rate", [2, 4, 10])
def test_the_work_takes_place_at_its_rate_or_with_every_frame(rate: float, frames: float) -> None:
    pace = Pace(rate, frames)
    # Timers are not exact.
    times = [(number + 0.2 * (-1) ** number) / frames for number in range(round(20 * frames))]
    assert abs(sum(pace.due(at_s) for at_s in times) - 20 * min(rate, frames)) <= 20 * 0.05 * rate + 1


def test_after_a_gap_it_is_not_made_up_for() -> None:
    pace = Pace(4, 10)
    assert pace.due(0.0)
    assert pace.due(60.0)
    assert not pace.due(60.1)
    pace.restart(60.2)
    assert not pace.due(60.3)
    assert pace.due(60.5)
