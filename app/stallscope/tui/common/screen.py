"""Base class of the screens: everything that follows from the table of actions, and the drawing of panels."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Generic, TypeVar, cast

from textual import events, on
from textual.app import SystemCommand
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.timer import Timer

from stallprobes.errors import reason_of
from stallprobes.live.analyzer import Analyzer
from stallprobes.model import MS
from stallprobes.recording.observation import Observation
from stallprobes.traces.trace import Trace
from stallscope.tui.actions import (
    HELP_RANK,
    SCREENS,
    TITLES,
    Action,
    Group,
    available,
    help_lines,
    key_hints,
    key_label,
    keys_of,
)
from stallscope.tui.common.bars import KeyBar, ScreenHead
from stallscope.tui.common.dialog import Answer, Ask, Dialog, TopScreen
from stallscope.tui.common.lines import SMALLEST, TOO_SMALL, LineWidget
from stallscope.tui.common.timers import Pace, StallTrigger
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import LiveSource
from stallscope.tui.sources.source import ScreenSource

# Step (s) of a seek in a recording.
SEEK_S = 5.0
# TABLES_PER_S: number of redraws of the tables per second. HEADERS_PER_S: number of redraws of the header per second.
# Reason: a person reads no faster.
TABLES_PER_S, HEADERS_PER_S = 2.5, 2.0


@dataclass(frozen=True, eq=False)
class MovingState:
    """State of a screen whose view moves; ``frozen_why`` is the reason why it is frozen, "" while it moves.

    ``utilization`` has the last figures of the GPU's utilization in percent.
    """

    frozen_why: str = ""
    utilization: tuple[int, ...] = ()


Kept = TypeVar("Kept")
Moving = TypeVar("Moving", bound=ScreenSource)
Shown = TypeVar("Shown", bound=MovingState)


@dataclass
class ScreenContext:
    """The objects that all screens share: the source, the settings, and objects that outlive their screen.

    - ``observation`` and ``analyzer``: the monitor's last ones.
    - ``focus_name``: the monitor's probe.
    - ``record_trace``: puts a trace into the recording, None without one.
    - ``remedy_language``: the chosen language of remedies as code, "" for the language of the settings.
    - ``choice``: the selection in the view of patterns until the monitor has loaded it.
    - ``activities``: what a hidden view does, by the view's name.
    - ``check_runs``: tells whether the check runs for which the engine was stopped; None if the engine was not stopped.
    - ``chosen_pid``: the process that the screen was left for, which is attached then.
    - ``controllers``: objects with a method ``close``, by class.
    """

    source: ScreenSource
    settings: Settings
    observation: Observation | None = None
    analyzer: Analyzer | None = None
    focus_name: str | None = None
    record_trace: Callable[[Trace], None] | None = None
    remedy_language: str = ""
    choice: tuple[str, str] | None = None
    activities: dict[str, Callable[[], str]] = field(default_factory=dict)
    check_runs: Callable[[], bool] | None = None
    chosen_pid: int | None = None
    controllers: dict[type[Any], Any] = field(default_factory=dict)

    def controller(self, kind: type[Kept], create: Callable[[], Kept]) -> Kept:
        """The only object of class ``kind``, created at the first request."""
        if kind not in self.controllers:
            self.controllers[kind] = create()
        return cast(Kept, self.controllers[kind])

    def restart_engine(self) -> bool:
        """Restart the engine that was stopped for a check, once the check has ended; whether it was restarted."""
        if self.check_runs is None or self.check_runs() or self.source.engine is None:
            return False
        self.check_runs = None
        self.source.engine.restart()
        return True

    def close(self) -> None:
        """Close the controllers, then the source."""
        for controller in self.controllers.values():
            controller.close()
        self.source.close()


class ActionScreen(TopScreen, Screen[None]):
    """A screen of panels whose keys come from ``actions.SCREENS[NAME]``.

    A subclass composes its panels and a KeyBar, and overrides ``tick`` (called ``frames_per_second`` times a second),
    ``draw`` and ``place_panels``. Actions do not draw: they call ``mark_changed``, and the next frame draws, however
    many keys arrived before it; ``changed`` is True until then. Its module assigns the class to ``SCREEN``, where
    actions with ``opens_screen`` find it. The first screen stays below all others; ``VIEWS`` are the screens that it
    opens, at most one at a time.
    """

    NAME: ClassVar[str] = ""
    VIEWS: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls, **options: Any) -> None:
        own: list[BindingType] = [
            Binding(action.keys, action.call, action.title, show=False, id=action.name, tooltip=action.description)
            for action in SCREENS.get(cls.NAME, ())
        ]
        cls.BINDINGS = [*own, *cls.__dict__.get("BINDINGS", ())]
        super().__init_subclass__(**options)

    def __init__(self, context: ScreenContext) -> None:
        super().__init__()
        self.context = context
        self.settings = context.settings
        self.frame_timer: Timer | None = None
        self.frames_per_s = self.settings.frames_per_second
        self.changed = True

    @property
    def live(self) -> LiveSource | None:
        """The source of a live engine, None in a replay."""
        return self.context.source.engine

    @property
    def replayed(self) -> bool:
        """True if the view shows a recording: then actions that need something live are not available."""
        return self.context.source.playback is not None

    @property
    def base(self) -> ActionScreen:
        """The first screen, which may be this one."""
        screen = self.app.screen_stack[1] if len(self.app.screen_stack) > 1 else self
        return screen if isinstance(screen, ActionScreen) else self

    @property
    def views(self) -> tuple[str, ...]:
        """The names of the first screen and of the views that it opens; none with a single screen."""
        base, opening = self.base, {action.name: action for action in SCREENS[self.NAME] if action.opens_screen}
        names = tuple(name for name in base.VIEWS if name in opening and opening[name].available(base.replayed))
        return (base.NAME, *names) if names else ()

    @property
    def has_way_back(self) -> bool:
        """True if the key that goes back has something to leave."""
        return self.base is not self

    @property
    def urgent(self) -> tuple[str, ...]:
        """The names of actions that come in the key bar right after the help: what helps in the present state."""
        return ()

    @property
    def without_effect(self) -> tuple[str, ...]:
        """The names of actions that the key bar leaves out, as they have no effect in the present state."""
        return ()

    @property
    def actions(self) -> tuple[Action, ...]:
        """The available actions."""
        views, step = self.views, ("next_view", "previous_view")
        return tuple(
            action
            for action in available(self.replayed, SCREENS[self.NAME])
            if (not action.opens_screen or action.name in views) and (views or action.name not in step)
        )

    @property
    def reads(self) -> bool:
        """True if the screen is still reading the data on which keys act, and will have them in a moment."""
        return False

    def holds(self, event: events.Key) -> bool:
        """True if a key waits until what it acts on has been read."""
        action = self.action_of(event)
        return self.reads and action is not None and not action.at_once

    def action_of(self, event: events.Key) -> Action | None:
        """The action that has a key, None without one."""
        names = {event.key, *event.aliases}
        return next(
            (action for action in self.actions if names & set(keys_of(action, self.settings.keys).split(","))), None
        )

    @property
    def more_keys(self) -> Mapping[Group, tuple[str, str]]:
        """Keys that are not in the table, for the help: (keys, words)."""
        return {}

    def on_mount(self) -> None:
        """Fill the key bar and the line of views, and start the timer."""
        self.show_note("")
        self.frame_timer = self.set_interval(1 / self.frames_per_s, self.tick)
        self.call_after_refresh(self.tick)

    def on_resize(self, event: events.Resize) -> None:
        """Arrange the panels for the new size."""
        self.rearrange()
        self.mark_changed()

    def mark_changed(self) -> None:
        """Have the next frame draw every panel, at the usual rate of frames."""
        self.changed = True
        self.set_frame_rate(self.settings.frames_per_second)

    def set_frame_rate(self, per_second: float) -> None:
        """Have ``per_second`` frames from now on; even one that draws nothing costs time."""
        if per_second != self.frames_per_s and self.frame_timer is not None:
            self.frame_timer.stop()
            self.frame_timer = self.set_interval(1 / per_second, self.tick)
            self.frames_per_s = per_second

    @property
    def can_draw(self) -> bool:
        """True if the screen can be seen, and the terminal has taken the last frame: a terminal that does not read gets
        no other one. A screen that is being closed may have lost its panels."""
        takes_output = getattr(self.app, "terminal_takes_output", lambda: True)
        return self.is_mounted and self.is_current and bool(takes_output())

    def tick(self) -> None:
        """Update the state, and draw what changed."""

    def draw(self) -> None:
        """Give every panel its view."""
        self.changed = False

    def show_note(self, note: str) -> None:
        """Draw the key bar after ``note``, and the line of views."""
        hidden = (self.NAME, "" if self.has_way_back else "go_back", *self.without_effect)
        shown = [
            replace(action, rank=HELP_RANK + 1) if action.name in self.urgent else action
            for action in self.actions
            if action.name not in hidden
        ]
        self.query_one(KeyBar).view = note, key_hints(shown, self.settings.keys, self.settings.ascii)
        # In a recording, the first view is the replay.
        titles = TITLES if not self.base.replayed or self.base.NAME != "monitor" else {**TITLES, "monitor": "Replay"}
        activities = self.context.activities
        self.query_one(ScreenHead).views = tuple(
            (name, f"{titles[name]}{activities[name]() if name in activities else ''}", name == self.NAME)
            for name in self.views
        )

    def place_panels(self, width: int, height: int) -> None:
        """Set the panels' sizes; never called for a terminal that is too small."""

    def rearrange(self) -> None:
        """Arrange the panels for the current size."""
        width, height = self.app.size
        small = width < SMALLEST[0] or height < SMALLEST[1]
        self.set_class(small, TOO_SMALL)
        if small:
            # Sizes of panels would override the style sheet, by which one panel with the notice fills the screen.
            for panel in self.children:
                panel.styles.clear_rule("height")
                panel.styles.clear_rule("display")
        else:
            self.place_panels(width, height)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """True if an action of the table is available; True for all others."""
        name = parameters[0] if action == "open" and parameters else action
        named = [
            candidate for candidate in SCREENS[self.NAME] if name in (candidate.name, candidate.call.partition("(")[0])
        ]
        return not named or any(candidate in self.actions for candidate in named)

    @on(LineWidget.Clicked, "ScreenHead")
    def open_clicked_view(self, message: LineWidget.Clicked) -> None:
        """Open the clicked view."""
        self.action_open(message.target)

    def on_key(self, event: events.Key) -> None:
        """Name the view in which a key has its effect, if it has none here."""
        action = self.action_of(event)
        if action is not None or not self.views or event.key in self.active_bindings:
            return
        for name in self.views:
            actions = available(self.replayed, SCREENS[name])
            elsewhere = next(
                (candidate for candidate in actions if event.key in keys_of(candidate, self.settings.keys).split(",")),
                None,
            )
            if elsewhere is not None:
                self.warn(
                    f"{self.key_of(elsewhere)} ({elsewhere.title}) has no effect here, but in the view {TITLES[name]}."
                )
                return

    @on(LineWidget.Clicked, "KeyBar")
    async def run_clicked_action(self, message: LineWidget.Clicked) -> None:
        """Run the action of a clicked hint."""
        await self.run_action(message.target)

    def key_of(self, action: Action) -> str:
        """The first key of an action as it is written on this terminal."""
        return key_label(keys_of(action, self.settings.keys), self.settings.ascii)

    def commands(self) -> Iterable[SystemCommand]:
        """The entries of the command palette."""
        for action in self.actions:
            key = self.key_of(action)
            yield SystemCommand(f"{action.title} ({key})", action.description, partial(self.run_action, action.call))

    def ask(self, dialog: Dialog[Answer], then: Callable[[Answer], object]) -> None:
        """Open ``dialog``, and call ``then`` with its answer, unless there is none or it is no."""

        def answered(answer: Answer | None) -> None:
            if answer:
                then(answer)

        self.app.push_screen(dialog, answered)

    def warn(self, sentence: str) -> None:
        """Show why something has no effect."""
        self.notify(sentence, severity="warning")

    def if_sharing_allowed(
        self, then: Callable[[], None], otherwise: Callable[[], None] = lambda: None, disturbs: bool = True
    ) -> None:
        """Call ``then``; if it ``disturbs`` other processes on the GPU, after a confirmation, or without it
        ``otherwise``."""
        live = self.live
        others = () if live is None or not disturbs else live.disturbed_processes()
        if live is None or not others:
            then()
            return

        def answered(yes: bool | None) -> None:
            if yes:
                live.sharing_allowed = True
                then()
            else:
                otherwise()

        question = f"Other processes use this GPU: {', '.join(others)}. Disturb them?"
        self.app.push_screen(Ask(question), answered)

    def action_open(self, name: str) -> None:
        """Show the view called ``name`` in place of this one."""
        base = self.base
        if name == self.NAME or self.app.screen is not self:
            return
        if name == base.NAME:
            self.dismiss()
            return
        screen = import_module(f"stallscope.tui.{name}.screen").SCREEN(self.context)
        if base is self:
            self.app.push_screen(screen)
        else:
            self.app.switch_screen(screen)

    def action_change_view(self, by: int) -> None:
        """Show the next or the previous view; after the last one comes the first."""
        views = self.views
        if views:
            self.action_open(views[(views.index(self.NAME) + by) % len(views)])

    def action_go_back(self) -> None:
        """Return to the first screen; there it has no effect."""
        if self.base is not self:
            self.dismiss()

    @property
    def engine_is_free(self) -> bool:
        """True if the engine may start; while a check runs it may not, and the screen says so."""
        runs = self.context.check_runs
        if runs is None or not runs():
            return True
        self.warn("A check runs, which has the GPU to itself: wait for its end, or stop it in the view Check.")
        return False

    def help_sections(self) -> tuple[tuple[str, str], ...]:
        """The sections of the help, (title, text) each."""
        from stallscope.tui.common.help import sections

        return sections(self.NAME)

    def action_help(self) -> None:
        """Open the help."""
        from stallscope.tui.common.help import Help

        lines = help_lines(self.actions, self.settings.keys, self.settings.ascii)
        for group, (keys, words) in self.more_keys.items():
            lines[group].insert(0, (keys, words, ""))
        self.app.push_screen(Help(TITLES[self.NAME], lines, self.help_sections()), self._run_from_help)

    async def _run_from_help(self, call: str | None) -> None:
        if call:
            await self.run_action(call)

    def action_screenshot(self) -> None:
        """Save the screen as an SVG file."""
        name = time.strftime("stallscope-%Y%m%d-%H%M%S.svg")
        try:
            self.app.save_screenshot(name, path=os.getcwd())
        except OSError as error:
            self.notify(f"Cannot write {name}: {reason_of(error)}", severity="error")
        else:
            self.notify(f"Saved {name}")

    def action_restart(self) -> None:
        """Restart the engine."""
        if self.live is not None and self.engine_is_free:
            self.live.restart()
            self.mark_changed()

    def copy_report(self, report: str) -> None:
        """Copy a report to the terminal's clipboard."""
        self.app.copy_to_clipboard(report)
        self.notify("Text sent to the terminal's clipboard (OSC 52).")

    def action_leave(self) -> None:
        """End the program; a screen beside which something runs asks first."""
        self.app.exit()


class MovingScreen(ActionScreen, Generic[Moving, Shown]):
    """A screen whose view moves with ``source``, live or played, until a key or a stall freezes it.

    A subclass overrides ``freeze``, ``thaw``, ``suspend``, ``resume`` and ``draw_due``.
    """

    def __init__(self, context: ScreenContext, source: Moving, state: Shown) -> None:
        super().__init__(context)
        self.source, self.state = source, state
        self.trigger = StallTrigger()
        frames = context.settings.frames_per_second
        self.table_pace, self.header_pace = Pace(TABLES_PER_S, frames), Pace(HEADERS_PER_S, frames)

    def on_mount(self) -> None:
        """Start the source. Textual calls the base class's method too."""
        self.app.app_suspend_signal.subscribe(self, lambda _: self.suspend(), immediate=True)
        self.app.app_resume_signal.subscribe(self, lambda _: self.resume(), immediate=True)
        self.source.start()

    @property
    def frozen(self) -> bool:
        """True if the view is frozen."""
        return bool(self.state.frozen_why)

    def show(self, state: Shown) -> None:
        """Have the next frame draw ``state``."""
        self.state = state
        self.mark_changed()

    def freeze(self, why: str) -> None:
        """Freeze the view for a reason, if there is something to show."""

    def thaw(self) -> None:
        """Have the view move again."""

    def stalls(self, slowest_ns: int) -> bool:
        """True if the trigger freezes the view now; ``slowest_ns`` is the slowest call."""
        return self.trigger.fires(slowest_ns, self.settings.freeze_above_ms * MS, time.monotonic())

    def suspend(self) -> None:
        """Do what must be done before the program is suspended."""

    def resume(self) -> None:
        """Continue after a suspension."""
        self.mark_changed()

    def draw_due(self, now_s: float) -> None:
        """Draw the panels that are due."""

    def draw_frame(self, now_s: float) -> None:
        """Draw the panels that are due, or all after a change."""
        if not self.can_draw or not (self.app.screen is self or self.app.screen.is_modal):
            return
        if self.changed:
            self.table_pace.restart(now_s)
            self.header_pace.restart(now_s)
            self.draw()
        else:
            self.draw_due(now_s)

    def action_pause(self) -> None:
        """Pause or resume the view, or the recording."""
        if self.source.playback is not None:
            self.source.playback.pause()
            self.mark_changed()
        elif self.frozen:
            self.thaw()
        else:
            self.freeze("PAUSED")

    def action_seek(self, steps: int) -> None:
        """Go back or forward in the recording."""
        if self.source.playback is not None:
            self.source.playback.seek(self.source.playback.at_s + steps * SEEK_S)
            self.mark_changed()

    def action_trap(self) -> None:
        """Arm or disarm "freeze on stall"."""
        self.trigger.toggle()
        if self.trigger.armed:
            self.thaw()
        self.mark_changed()
