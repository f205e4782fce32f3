"""The screen program: one Textual app over a live engine or a recording."""

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

from stallscope.tui.actions import SCREENS
from stallscope.tui.line_filters import AsciiOnly, Colourless
from stallscope.tui.settings import Settings

if TYPE_CHECKING:
    from textual.filter import LineFilter

    from stallprobes.live.recorder import Recorder
    from stallscope.tui.common.screen import ScreenContext
    from stallscope.tui.monitor.screen import Monitor
    from stallscope.tui.sources.live import LiveSource
    from stallscope.tui.sources.replay import ReplaySource

THEMES = ("textual-dark", "textual-light", "nord", "gruvbox", "solarized-light", "monokai")
_EXIT_S = 0.9


class LoadingScreen(Screen[None]):
    """The first frame, shown while the monitor's modules are loaded."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "app.quit", "quit")]

    def compose(self) -> ComposeResult:
        """One line."""
        yield Static(" stallscope", id="opening")


class StallscopeApp(App[None]):
    """The app over the source that ``create_source`` returns; it is called in a thread after the first frame."""

    TITLE = "stallscope"
    # A notification covers the verdict log.
    NOTIFICATION_TIMEOUT = 3
    # All style sheets together: Textual does not look for those of the default screen.
    CSS_PATH: ClassVar[list[str | PurePath]] = ["common/dialog.tcss", *(f"{name}/{name}.tcss" for name in SCREENS)]
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c,ctrl+q", "quit", "quit", show=False, priority=True)]

    def __init__(
        self,
        create_source: Callable[[], LiveSource | ReplaySource],
        settings: Settings,
        recorder: Recorder | None = None,
    ) -> None:
        super().__init__()
        self.source: LiveSource | ReplaySource | None = None
        self.context: ScreenContext | None = None
        self.settings = settings
        self._create_source = create_source
        self._recorder = recorder
        self._filters: list[LineFilter] = []
        if self.no_color:
            self._filters.append(Colourless())
        if settings.ascii:
            self._filters.append(AsciiOnly())

    def get_default_screen(self) -> Screen[None]:
        """The first frame."""
        return LoadingScreen()

    def on_mount(self) -> None:
        """Apply the settings, let signals end the program as ``q`` does, and load the monitor."""
        if self.settings.theme in self.available_themes:
            self.theme = self.settings.theme
        if self.settings.keys:
            self.set_keymap(dict(self.settings.keys))
        if threading.current_thread() is threading.main_thread() and not self.is_headless:
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
                loop.add_signal_handler(number, self._end_by_signal, number)

        self.call_after_refresh(lambda: self.run_worker(self._open_monitor()))

    def close(self) -> None:
        """End everything that was started."""
        if self.context is not None:
            self.context.close()
        elif self.source is not None:
            self.source.close()

    @property
    def failure(self) -> str | None:
        """The reason why the program ended by itself, None where it did not."""
        fatal = getattr(self.source, "fatal", None)
        return fatal[1] if fatal is not None else None

    async def _open_monitor(self) -> None:
        # The source first: the engine starts while the monitor's modules are loaded.
        self.source = await asyncio.to_thread(self._create_source)
        context_class, monitor_class = await asyncio.to_thread(_load_monitor)
        self.context = context_class(self.source, self.settings)
        await self.push_screen(monitor_class(self.context, self._recorder))

    def get_line_filters(self) -> list[LineFilter]:
        """Textual's filters except the one that converts colors to greys, then the app's own."""
        usual = [known for known in super().get_line_filters() if type(known).__name__ != "Monochrome"]
        return [*usual, *self._filters]

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The actions of the screen, and Textual's choice of a theme."""
        commands = getattr(screen, "commands", None)
        if commands is not None:
            yield from commands()
        yield SystemCommand("select a theme", "Select one of all themes, light or dark.", self.action_change_theme)

    def action_next_theme(self) -> None:
        """Switch to the next theme."""
        position = THEMES.index(self.theme) if self.theme in THEMES else -1
        self.theme = THEMES[(position + 1) % len(THEMES)]

    def _end_by_signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            # The terminal is gone, so the final writes to it can hang.
            timer = threading.Timer(_EXIT_S, os._exit, (128 + number,))
            timer.daemon = True
            timer.start()
        self.exit(return_code=130 if number == signal.SIGINT else 128 + number)


def _load_monitor() -> tuple[type[ScreenContext], type[Monitor]]:
    from stallscope.tui.common.screen import ScreenContext
    from stallscope.tui.monitor.screen import Monitor

    return ScreenContext, Monitor
