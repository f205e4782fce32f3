"""The screen program: the monitor on a live engine or a recording."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable, Iterable
from pathlib import PurePath
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Static

from stallscope.tui.line_filters import AsciiOnly, Colourless
from stallscope.tui.settings import Settings

if TYPE_CHECKING:
    from textual.filter import LineFilter

    from stallprobes.live.recording import Recorder
    from stallscope.tui.monitor.screen import Monitor
    from stallscope.tui.sources.live import Live
    from stallscope.tui.sources.replay import Replay

LEAVE_S = 0.9


class Opening(Screen[None]):
    """What stands there until the monitor's modules are loaded: the first frame comes before they do."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "app.quit", "quit")]

    def compose(self) -> ComposeResult:
        """One line."""
        yield Static(" stallscope", id="opening")


class StallscopeApp(App[None]):
    """One screen over one source of frames, which ``make`` makes, in a thread, once the first frame is drawn."""

    TITLE = "stallscope"
    # A notice lies over the verdicts.
    NOTIFICATION_TIMEOUT = 3
    # The styles of all screens: those of a default screen are not looked for.
    CSS_PATH: ClassVar[list[str | PurePath]] = ["monitor/monitor.tcss", "common/dialog.tcss", "matrix/matrix.tcss"]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q", "quit", "quit", show=False, priority=True)]

    def __init__(self, make: Callable[[], Live | Replay], settings: Settings, recorder: Recorder | None = None) -> None:
        super().__init__()
        self.source: Live | Replay | None = None
        self.settings = settings
        self._make = make
        self._recorder = recorder
        self._monitor: Monitor | None = None
        self._plain: list[LineFilter] = []
        if self.no_color:
            self._plain.append(Colourless())
        if settings.ascii:
            self._plain.append(AsciiOnly())

    def get_default_screen(self) -> Screen[None]:
        """A line, at once."""
        return Opening()

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

        self.call_after_refresh(lambda: self.run_worker(self._open()))

    def close(self) -> None:
        """End what was begun."""
        if self._monitor is not None and self._monitor.controller is not None:
            self._monitor.controller.close()
        if self.source is not None:
            self.source.close()

    @property
    def last_words(self) -> str | None:
        """Why it ended by itself, None where it did not."""
        fatal = getattr(self.source, "fatal", None)
        return fatal[1] if fatal is not None else None

    async def _open(self) -> None:
        """Load the monitor beside the running screen, and go there."""
        # The source first: while the monitor is loaded, the engine gets ready.
        self.source = await asyncio.to_thread(self._make)
        kind = await asyncio.to_thread(_load)
        self._monitor = kind(self.source, self.settings, self._recorder)
        await self.push_screen(self._monitor)

    def get_line_filters(self) -> list[LineFilter]:
        """Textual's own filters, but for greys in place of colours, and ours."""
        usual = [known for known in super().get_line_filters() if type(known).__name__ != "Monochrome"]
        return [*usual, *self._plain]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The table of actions, and Textual's choice of a theme."""
        commands = getattr(screen, "commands", None)
        if commands is not None:
            yield from commands()
        yield SystemCommand("choose a theme", "One of all themes, light or dark.", self.action_change_theme)

    def _signalled(self, number: int) -> None:
        if number == signal.SIGHUP:
            # The terminal is gone: what is still to be written to it can hang.
            timer = threading.Timer(LEAVE_S, os._exit, (128 + number,))
            timer.daemon = True
            timer.start()
        self.exit(return_code=130 if number == signal.SIGINT else 128 + number)


def _load() -> type[Monitor]:
    from stallscope.tui.monitor.screen import Monitor

    return Monitor
