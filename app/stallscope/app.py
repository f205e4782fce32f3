"""The screen program: the monitor on a live engine or a recording."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen

from stallscope.letters import AsciiOnly, Colourless
from stallscope.screens.monitor import Monitor
from stallscope.settings import Settings

if TYPE_CHECKING:
    from textual.filter import LineFilter

    from stallprobes.recording import Recorder
    from stallscope.replay import Replay
    from stallscope.source import Live

LEAVE_S = 0.9


class StallscopeApp(App[None]):
    """One screen over one source of frames."""

    TITLE = "stallscope"
    # The styles of all screens: those of a default screen are not looked for.
    CSS_PATH: ClassVar[list[str | PurePath]] = ["screens/monitor.tcss", "screens/dialog.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q", "quit", "quit", show=False, priority=True)]

    def __init__(self, source: Live | Replay, settings: Settings, recorder: Recorder | None = None) -> None:
        super().__init__()
        self.source = source
        self.settings = settings
        self._monitor = Monitor(source, settings, recorder)
        self._plain: list[LineFilter] = []
        if self.no_color:
            self._plain.append(Colourless())
        if settings.ascii:
            self._plain.append(AsciiOnly())

    def get_default_screen(self) -> Screen[None]:
        """The monitor is the ground on which all else lies."""
        return self._monitor

    def on_mount(self) -> None:
        """Settings, and signals that end the program as ``q`` does."""
        if self.settings.theme in self.available_themes:
            self.theme = self.settings.theme
        if self.settings.keys:
            self.set_keymap(dict(self.settings.keys))
        if threading.current_thread() is threading.main_thread() and not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.add_signal_handler(number, self._signalled, number)

    def get_line_filters(self) -> list[LineFilter]:
        """Textual's own filters, but for greys in place of colours, and ours."""
        usual = [known for known in super().get_line_filters() if type(known).__name__ != "Monochrome"]
        return [*usual, *self._plain]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The table of actions, and Textual's choice of a theme."""
        if screen is self._monitor:
            yield from self._monitor.commands()
        yield SystemCommand("choose a theme", "One of all themes, light or dark.", self.action_change_theme)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGHUP:
            # The terminal is gone: what is still to be written to it can hang.
            timer = threading.Timer(LEAVE_S, os._exit, (128 + number,))
            timer.daemon = True
            timer.start()
        self.exit(return_code=130 if number == signal.SIGINT else 128 + number)
