"""Layout, stall trigger and status texts of the monitor, without a terminal."""

from __future__ import annotations

import pytest

from factories.live_noise import PROBE_SET
from stallprobes.model import MS
from stallprobes.recording.observation import EngineCondition, EngineStatus, Observation
from stallscope.tui.actions import SCREENS, all_actions
from stallscope.tui.common.timers import DELAY_S, StallTrigger
from stallscope.tui.monitor.layout import layout
from stallscope.tui.monitor.panel_views import frozen_text
from stallscope.tui.monitor.state import MonitorState


@pytest.mark.parametrize("height", [18, 24, 28, 36, 48, 70])
@pytest.mark.parametrize("rows", [3, 10, 19])
def test_the_panels_share_all_lines_and_none_is_too_low(height: int, rows: int) -> None:
    sizes = layout(height, rows, rows - 2)
    assert sizes.table + sizes.histograms + sizes.heat_map + sizes.log == height - 3
    assert sizes.log >= 3
    assert sizes.compact == (20 < height < 34)
    assert sizes.heat_map == 0 or sizes.heat_map >= 5
    assert sizes.table >= 2
    assert sizes.histograms >= 4
    # No more than the verdicts need: the rest is the heat map's and the histograms'.
    assert sizes.log <= max(6, height // 6)


def test_80x24_has_a_time_axis_with_the_gpu_s_values_below_it() -> None:
    sizes = layout(24, 9, 4, 1)
    # Marks, five decades, utilisation, SM activity and the time axis; three lines of a verdict and the next step.
    assert (sizes.compact, sizes.table, sizes.heat_map, sizes.histograms, sizes.log) == (True, 5, 9, 4, 4)


def test_the_trigger_fires_once_a_moment_after_the_first_stall() -> None:
    trigger = StallTrigger()
    assert not trigger.fires(9 * MS, MS, 0.0)
    trigger.toggle()
    assert not trigger.fires(0, MS, 1.0)
    assert not trigger.fires(2 * MS, MS, 2.0)
    assert not trigger.fires(0, MS, 2.0 + DELAY_S / 2)
    assert trigger.fires(0, MS, 2.0 + DELAY_S)
    assert not trigger.armed
    assert not trigger.fires(9 * MS, MS, 99.0)


def test_disarmed_it_forgets_a_stall() -> None:
    trigger = StallTrigger()
    trigger.toggle()
    trigger.fires(9 * MS, MS, 0.0)
    trigger.toggle()
    trigger.toggle()
    assert not trigger.fires(0, MS, 99.0)


def test_a_frozen_view_says_whether_the_probes_run() -> None:
    assert frozen_text("PAUSED at 12:00:00", EngineCondition.READY) == "PAUSED at 12:00:00, probes keep running"
    assert frozen_text("PAUSED at 12:00:00", EngineCondition.LOST) == "PAUSED at 12:00:00"


def test_actions_that_open_a_screen_name_one_and_common_actions_count_once() -> None:
    assert all(action.name in SCREENS for action in all_actions() if action.opens_screen)
    assert len(all_actions()) == len(set().union(*SCREENS.values()))


def test_the_time_of_the_session_goes_on_while_its_engine_is_silent() -> None:
    starting, ready, silent, lost = (EngineCondition(name) for name in ("starting", "ready", "silent", "lost"))
    state, begins = MonitorState(), []
    for wall_s, condition in enumerate((starting, ready, silent, ready, lost, starting, ready), 1):
        state = state.observed(
            Observation(wall_s=float(wall_s), probe_set=PROBE_SET, engine=EngineStatus(condition), snapshot=None)
        )
        begins.append(state.ready_at)
    # A new engine begins at 0.
    assert begins == [1, 2, 2, 2, 2, 2, 7]
