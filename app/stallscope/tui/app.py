"""The screen program: one Textual app over a live engine, a recording, or a watched program."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, ClassVar

from textual import on
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandInput, CommandList, CommandPalette
from textual.dom import DOMNode
from textual.driver import Driver
from textual.events import Event, Key
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.theme import ThemeProvider
from textual.widget import Widget

from stallprobes.errors import EXIT_ENGINE
from stallprobes.foreign_text import printable_lines
from stallprobes.machine.shortage import shortage
from stallscope.tui import line_filters
from stallscope.tui.actions import SCREENS
from stallscope.tui.common.dialog import TopScreen
from stallscope.tui.common.printable_text import PrintableStatic
from stallscope.tui.driver import TerminalDriver
from stallscope.tui.key_order import KeyHandled, KeyOrder, Ordered
from stallscope.tui.settings import Settings
from stallscope.tui.signal_exit import SIGNAL_BASE, SignalExit

if TYPE_CHECKING:
    from textual.filter import LineFilter

    from stallprobes.recording.recorder import Recorder
    from stallscope.tui.common.screen import ActionScreen, ScreenContext
    from stallscope.tui.demo.tour import DemoTour
    from stallscope.tui.sources.source import ScreenSource


# Color themes in the order in which the theme key switches through them.
THEMES = ("textual-dark", "textual-light", "nord", "gruvbox", "solarized-light", "monokai")


class Palette(TopScreen, CommandPalette):
    """Textual's command palette; its list ignores keys until it has lines."""

    @on(CommandInput.Submitted)
    @on(CommandList.OptionSelected)
    def ignore_after_dismissal(self, event: Message) -> None:
        """Ignore a second selection: Textual's palette would run the command again."""
        if self.app.screen is not self:
            event.stop()
            event.prevent_default()

    def _action_command_list(self, action: str) -> None:
        """Run an action of the list. Without a size the list knows no lines, and Textual's raises KeyError."""
        if self.query_one(CommandList).scrollable_content_region:
            super()._action_command_list(action)


class LoadingScreen(Screen[None]):
    """The first frame, shown while the modules of the first screen are loaded. Keys typed meanwhile wait for that."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("q", "app.quit", "quit")]

    def holds(self, event: Key) -> bool:
        """True if a key waits for the first screen: each key except the keys that quit or suspend the program."""
        active = self.active_bindings.get(event.key)
        return active is None or active.binding.action not in ("app.quit", "quit", "suspend_process")

    def compose(self) -> ComposeResult:
        """One line."""
        yield PrintableStatic(" stallscope  starting", id="opening")


class StallscopeApp(App[None]):
    """The app over the source that ``create_source`` returns; it is called in a thread after the first frame.

    ``first`` is the name of the first screen, ``tour`` the demo that it shows.
    """

    TITLE = "stallscope"
    # Time (s) for which a notification is shown: short, since a notification covers the verdict log.
    NOTIFICATION_TIMEOUT = 3
    # Style sheets of all screens, listed here because Textual does not load the sheet of a default screen.
    CSS_PATH: ClassVar[list[str | PurePath]] = ["common/dialog.tcss", *(f"{name}/{name}.tcss" for name in SCREENS)]
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("ctrl+c,ctrl+q", "quit", "quit", show=False, priority=True),
        Binding("ctrl+z", "suspend_process", "suspend", show=False, priority=True),
    ]

    def __init__(
        self,
        create_source: Callable[[], ScreenSource],
        settings: Settings,
        recorder: Recorder | None = None,
        first: str = "monitor",
        tour: DemoTour | None = None,
    ) -> None:
        super().__init__(driver_class=TerminalDriver)
        self.keys = KeyOrder(self, super().on_event)
        self._tour = tour
        self.source: ScreenSource | None = None
        self._first = first
        self.context: ScreenContext | None = None
        self.settings = settings
        self._create_source = create_source
        self._recorder = recorder
        # The traceback of the error that ended the program, "" without one.
        self.crash = ""
        # The shortage of memory or files that ended it, None without one.
        self._shortage: str | None = None
        # The theme of the next frame, None for the current one.
        self._wanted_theme: str | None = None
        self._suspending = False
        filters = [line_filters.printable_segment]
        if self.no_color:
            filters.append(line_filters.colourless_segment)
        elif self.console.color_system == "standard":
            filters.append(line_filters.readable_segment)
        if settings.ascii:
            filters.append(line_filters.ascii_segment)
        self._filters = [line_filters.SegmentFilter(changed) for changed in filters]

    def get_default_screen(self) -> Screen[None]:
        """The first frame."""
        return LoadingScreen()

    def on_mount(self) -> None:
        """Apply the settings, and load the first screen."""
        if self.settings.theme in self.available_themes:
            self.theme = self.settings.theme
        if self.settings.keys:
            self.set_keymap(dict(self.settings.keys))
        self.call_after_refresh(lambda: self.run_worker(self._open_first()))

    async def on_event(self, event: Event) -> None:
        """As Textual's; but a key or a click waits until the one before it is handled."""
        if isinstance(event, Ordered) and not event.is_forwarded:
            await self.keys.put(event)
        else:
            await super().on_event(event)

    @on(KeyHandled)
    async def note_handled_key(self, message: KeyHandled) -> None:
        """Hand over the next key."""
        message.stop()
        await self.keys.answer(message)

    def close(self) -> None:
        """End everything that was started."""
        if self.context is not None:
            self.context.close()
        elif self.source is not None:
            self.source.close()

    def _build_driver(self, headless: bool, inline: bool, mouse: bool, size: tuple[int, int] | None) -> Driver:
        """Textual's driver. In a terminal, signals end the program as ``q`` does, before the terminal is changed."""
        driver = super()._build_driver(headless, inline, mouse, size)
        if isinstance(driver, TerminalDriver) and threading.current_thread() is threading.main_thread():
            SignalExit(partial(self._signalled, asyncio.get_running_loop()), self._last_resort)
        return driver

    def _handle_exception(self, error: Exception) -> None:
        """End the program after an error that nothing handled; tests see the error itself."""
        if self.is_headless:
            super()._handle_exception(error)
            return
        if self._exit:
            # A screen that is opened while the program ends finds some of its widgets gone.
            self._close_messages_no_wait()
            return
        if self._shortage is None and not self.crash:
            self._shortage = shortage(error)
            if self._shortage is None:
                self.crash = "".join(traceback.format_exception(error))
        self._return_code = EXIT_ENGINE
        self._close_messages_no_wait()

    @property
    def failure(self) -> str | None:
        """The reason why the program ended by itself, None where it did not."""
        if self._shortage is not None:
            return self._shortage
        if self.crash:
            return f"the screen failed ({self.crash.splitlines()[-1]}); this is a defect of stallscope"
        engine = None if self.source is None else self.source.engine
        return None if engine is None or engine.fatal is None else engine.fatal[1]

    async def _open_first(self) -> None:
        # The source first: the engine starts while the screen's modules are loaded.
        self.source = await asyncio.to_thread(self._create_source)
        context_class, screen_class = await asyncio.to_thread(_load, self._first)
        self.context = context_class(self.source, self.settings)
        if self._tour is not None:
            self.context.controllers[type(self._tour)] = self._tour
        recorder = () if self._recorder is None else (self._recorder,)
        await self.push_screen(screen_class(self.context, self.source, *recorder))

    async def action_quit(self) -> None:
        """Quit by the first screen's own action, which may ask before it ends a measurement."""
        if len(self.screen_stack) < 2:
            self.exit()
        else:
            await self.screen_stack[1].run_action("leave")

    def get_line_filters(self) -> list[LineFilter]:
        """Textual's filters except the one that converts colors to greys, then the app's own."""
        usual = [known for known in super().get_line_filters() if type(known).__name__ != "Monochrome"]
        return [*usual, *self._filters]

    def notify(
        self,
        message: str,
        *,
        title: str = "",
        severity: SeverityLevel = "information",
        timeout: float | None = None,
        markup: bool = False,
    ) -> None:
        """Show a message, which is never parsed as markup."""
        texts = printable_lines(message), printable_lines(title)
        super().notify(texts[0], title=texts[1], severity=severity, timeout=timeout, markup=False)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy ``text`` to the clipboard, without control characters, which a terminal would obey after a paste."""
        super().copy_to_clipboard(printable_lines(text))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """The actions of the screen, and Textual's choice of a theme."""
        yield from getattr(screen, "commands", tuple)()
        yield SystemCommand("select a theme", "Select one of all themes, light or dark.", self.action_change_theme)

    def action_command_palette(self) -> None:
        """Open the command palette, unless it is open."""
        if not isinstance(self.screen, Palette):
            self.push_screen(Palette(id="--command-palette"))

    def search_themes(self) -> None:
        """Open the choice of a theme; in Textual's own palette a second answer would remove the screen below."""
        self.push_screen(Palette(providers=[ThemeProvider], placeholder="Search for themes…"))

    async def _dispatch_action(self, namespace: DOMNode, action_name: str, params: Any) -> bool:
        """Run an action, unless its widget has no size yet: Textual's widgets fail before their first layout."""
        if isinstance(namespace, Widget) and not isinstance(namespace, Screen) and not namespace.size:
            return True
        return await super()._dispatch_action(namespace, action_name, params)

    def action_suspend_process(self) -> None:
        """Suspend the program as ctrl+z does in a shell; the screens switch the aggressors off meanwhile."""
        driver = self._driver
        if not isinstance(driver, TerminalDriver) or self._suspending:
            return
        if not driver.can_suspend:
            self.notify("The program cannot be suspended: no shell started it that could resume it.")
            return
        self._suspending = True
        self.run_worker(self._suspend_process(driver))

    async def _suspend_process(self, driver: TerminalDriver) -> None:
        try:
            self.app_suspend_signal.publish(self)
            await driver.suspend_process()
        finally:
            self._suspending = False
        self.app_resume_signal.publish(self)
        self.screen.refresh(layout=True)
        self.refresh(layout=True)

    def action_next_theme(self) -> None:
        """Switch to the next theme at the next frame, once for all calls before it: a theme styles every widget."""
        if self._wanted_theme is None:
            self._wanted_theme = self.theme
            self.set_timer(1 / self.settings.frames_per_second, self._apply_theme)
        position = THEMES.index(self._wanted_theme) if self._wanted_theme in THEMES else -1
        self._wanted_theme = THEMES[(position + 1) % len(THEMES)]

    def _apply_theme(self) -> None:
        wanted, self._wanted_theme = self._wanted_theme, None
        if wanted is not None:
            self.theme = wanted

    def terminal_takes_output(self) -> bool:
        """True if the terminal reads its output. Lost output is drawn again."""
        driver = self._driver
        if not isinstance(driver, TerminalDriver):
            return True
        if driver.output_waits:
            return False
        if driver.output_lost:
            driver.output_lost = False
            self.screen.refresh()
        return True

    def _signalled(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        with contextlib.suppress(RuntimeError):
            # The loop has ended, and the program is about to.
            loop.call_soon_threadsafe(self._end_by_signal, number)

    def _end_by_signal(self, number: int) -> None:
        """End the program in order; whatever input waits is dropped."""
        if isinstance(self._driver, TerminalDriver):
            self._driver.input.close()
        if self.source is not None and self.source.program is not None:
            self.source.program.end_by_signal(number)
        self.exit(return_code=SIGNAL_BASE + number)

    def _last_resort(self, number: int) -> None:
        """End the processes that must not remain when this process is killed: the engine, and the terminal's modes.

        Waits for a watched program, which got the same signal, to end, and for its report.
        """
        source = self.source
        if source is not None and source.program is not None:
            source.program.wait()
        if source is not None:
            time.sleep(source.report_s)
        pid = None if source is None or source.engine is None else source.engine.engine_pid
        if pid is not None:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        if number != signal.SIGHUP and isinstance(self._driver, TerminalDriver):
            self._driver.restore_terminal()


def _load(name: str) -> tuple[type[ScreenContext], Callable[..., ActionScreen]]:
    """The class of contexts, and the class of the screen ``name``."""
    from stallscope.tui.common.screen import ScreenContext

    return ScreenContext, import_module(f"stallscope.tui.{name}.screen").SCREEN
