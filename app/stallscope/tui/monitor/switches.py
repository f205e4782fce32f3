"""The switches of the monitor: probes on and off, unless the engine or an experiment is in the way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stallprobes.model import Role
from stallprobes.recording.observation import EngineCondition
from stallscope.tui.actions import MONITOR_ACTIONS, key_label, keys_of
from stallscope.tui.monitor import status

if TYPE_CHECKING:
    from stallscope.tui.monitor.screen import Monitor


class ProbeSwitches:
    """Switches the probes of ``screen``. On a recording it does nothing."""

    def __init__(self, screen: Monitor) -> None:
        self._screen = screen

    def engine_usable(self, silent: bool = True) -> bool:
        """Whether the engine can do what a key asks for, a ``silent`` one later; if not, the screen says why."""
        screen = self._screen
        if screen.live is None or screen.last is None:
            return False
        pick, restart = (
            key_label(keys_of(one, screen.settings.keys)) for one in MONITOR_ACTIONS if one.name in ("pick", "restart")
        )
        obstacle = status.engine_obstacle(screen.last.engine.state, restart, pick)
        if obstacle:
            screen.notify(obstacle, severity="warning")
        return not obstacle or (silent and screen.last.engine.state == EngineCondition.SILENT)

    def press(self, key: str) -> None:
        """Switch the aggressor of ``key``; focus a victim, or switch it if it is focused or off."""
        screen = self._screen
        name = next((name for name, known in screen.keys_of_probes.items() if known == key), None)
        probe = None if screen.probe_set is None or name is None else screen.probe_set.probe(name)
        if name is None or probe is None:
            return
        # The focus stays on the victim, which shows the effect of an aggressor.
        if screen.live is not None and probe.role is Role.AGGRESSOR:
            self.toggle(name)
        else:
            if screen.live is not None and (screen.focus_name == name or not screen.live.is_on(name)):
                self.toggle(name)
            screen.focus_name = name
        screen.mark_changed()

    def toggle(self, name: str) -> None:
        """Switch the probe ``name``."""
        screen = self._screen
        live = screen.live
        probe = None if screen.probe_set is None else screen.probe_set.probe(name)
        if live is None or probe is None or screen.blame.blocks_switches() or not self.engine_usable():
            return
        on = not live.is_on(name)
        if on and probe.role is Role.AGGRESSOR:
            screen.if_sharing_allowed(lambda: live.switch(name, True))
        else:
            live.switch(name, on)

    def all_off(self) -> None:
        """Switch all aggressors off."""
        screen = self._screen
        if screen.live is not None and self.engine_usable():
            screen.blame.stop()
            screen.live.switch_all_off()
            screen.mark_changed()

    def all_on(self) -> None:
        """Switch all aggressors on."""
        screen = self._screen
        live = screen.live
        if live is None or screen.blame.blocks_switches() or not self.engine_usable():
            return
        screen.if_sharing_allowed(live.switch_all_on)
        screen.mark_changed()
