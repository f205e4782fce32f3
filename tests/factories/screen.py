"""The screen in this process, driven by Textual's pilot: what to wait for, and its text as a snapshot file."""

from __future__ import annotations

import asyncio
import os
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import textual.app
import textual.pilot
from rich.console import Console
from textual._compositor import Compositor
from textual._context import active_app, visible_screen_stack
from textual.app import App
from textual.cache import LRUCache
from textual.css.stylesheet import Stylesheet
from textual.pilot import Pilot
from textual.screen import Screen
from textual.strip import Strip

from factories.waiting import LIMIT_S
from stallprobes.engine.backend import Options
from stallprobes.engine.session import Session
from stallprobes.live import baselines, judgement
from stallprobes.model import MS, Role
from stallscope.tui.app import StallscopeApp
from stallscope.tui.common.dialog import TextDialog
from stallscope.tui.monitor.following import Following
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import LiveSource

SNAPSHOTS = Path(__file__).parents[1] / "screen" / "snapshots"
# A short measurement of the baseline.
QUICK = Settings(quiet_seconds=0.3, frames_per_second=10)
_SETTLE_NS = 100 * MS
# Layouts and drawings that follow one another after a key; a screen that always changes has no end of them.
_MOST_UPDATES = 20


def monitor(pilot: Pilot[None]) -> Monitor:
    """The monitor screen of the app."""
    screen = pilot.app.screen_stack[1]
    assert isinstance(screen, Monitor)
    return screen


def is_open(pilot: Pilot[None], kind: type[Screen[Any]]) -> bool:
    """Whether a screen of this class is on top and has its widgets: it is on top before it has any."""
    return isinstance(pilot.app.screen, kind) and pilot.app.screen.is_mounted


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Let the app run until ``condition`` holds; AssertionError after LIMIT_S."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"after {LIMIT_S:g} s the condition does not hold"
        assert pilot.app._exception is None
        await asyncio.sleep(0.02)


def quiet_is_known(screen: Monitor) -> bool:
    """Whether every victim has its baseline."""
    return screen.analyzer is not None and bool(screen.analyzer.baselines) and not screen.analyzer.without_baseline


def running(pilot: Pilot[None]) -> set[str]:
    """The names of the probes that are switched on."""
    last = monitor(pilot).state.observation
    if last is None or last.snapshot is None:
        return set()
    return {name for name, probe in last.snapshot.probes.items() if probe.on}


@asynccontextmanager
async def live_monitor(settings: Settings = QUICK, wait: bool = True) -> AsyncIterator[Pilot[None]]:
    """The monitor over a simulated GPU; with ``wait`` once the baseline is measured."""
    source = LiveSource(Options(profile="h200"))
    app = StallscopeApp(lambda: source, settings)
    try:
        with short_settling():
            async with app.run_test(size=(120, 36)) as pilot:
                await until(pilot, lambda: is_open(pilot, Monitor))
                if wait:
                    await until(pilot, lambda: quiet_is_known(monitor(pilot)))
                yield pilot
    finally:
        source.close()


@contextmanager
def short_settling() -> Iterator[None]:
    """Within it, a baseline begins soon after the last aggressor stopped: no call of a simulated GPU is slower then."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (baselines, judgement):
            patch.setattr(module, "SETTLE_NS", _SETTLE_NS)
        yield


@contextmanager
def recorded_switches() -> Iterator[list[dict[str, bool]]]:
    """What is asked of ``Session.set_running`` meanwhile: a mapping for each call."""
    calls: list[dict[str, bool]] = []
    switch = Session.set_running

    def recorded(session: Session, which: Iterable[str] | Mapping[str, bool]) -> None:
        calls.append(dict(which) if isinstance(which, Mapping) else dict.fromkeys(which, True))
        switch(session, which)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Session, "set_running", recorded)
        yield calls


class SharedMonitor:
    """A monitor over a simulated GPU that runs for several tests, one after the other in one event loop.

    For tests that leave the set of probes, the settings and the baselines as they are.
    """

    def __init__(self) -> None:
        self._ended = asyncio.Event()
        self._pilot: asyncio.Future[Pilot[None]] = asyncio.get_running_loop().create_future()
        self._first_victim: str | None = None
        # A task of its own, because an app must be left in the context in which it was entered.
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        try:
            async with live_monitor() as pilot:
                self._first_victim = monitor(pilot).state.focus_name
                self._pilot.set_result(pilot)
                await self._ended.wait()
        except BaseException as error:
            if not self._pilot.done():
                self._pilot.set_exception(error)
            raise

    @asynccontextmanager
    async def as_at_first(self) -> AsyncIterator[Pilot[None]]:
        """The monitor alone on the screen, with every aggressor off and the first victim in focus."""
        pilot = await self._pilot
        active_app.set(pilot.app)
        while not isinstance(pilot.app.screen, Monitor):
            pilot.app.pop_screen()
            await pilot.pause()
        screen = monitor(pilot)
        if screen.state.frozen is not None:
            await pilot.press("p")
        await pilot.press("x")
        assert screen.state.observation is not None
        aggressors = {probe.name for probe in screen.state.observation.probe_set.probes if probe.role is Role.AGGRESSOR}
        await until(pilot, lambda: not running(pilot) & aggressors)
        # No victim stalls any more, so that the panels stay on the first one until a test makes one stall.
        await until(pilot, lambda: screen.analyzer is not None and not screen.analyzer.stalls)
        screen.show(replace(screen.state, focus_name=self._first_victim, selected=False, following=Following()))
        yield pilot

    async def end(self) -> None:
        """Leave the app and end its engine."""
        self._ended.set()
        await self._task


@contextmanager
def processed_input() -> Iterator[None]:
    """Within it, a pilot waits after each key until every message is processed and every change is laid out.

    Textual's own wait ends when the process used little CPU time in the last 20 ms: too late where a live monitor is
    drawn meanwhile, and too early where the machine stopped the process.
    """

    async def wait_for_idle(_min_sleep: float = 0.0, _max_sleep: float = 0.0) -> None:
        await _no_callback_is_ready()
        for _ in range(_MOST_UPDATES):
            screen = _shown_screen(active_app.get())
            if screen is None or not _has_to_be_drawn(screen):
                return
            # What the next frame of Textual does; its messages can change the screen again.
            screen._on_timer_update()
            await _no_callback_is_ready()

    with pytest.MonkeyPatch.context() as patch:
        for module in (textual.app, textual.pilot):
            patch.setattr(module, "wait_for_idle", wait_for_idle)
        yield


# Parsed style sheets of all apps by their variables.
_PARSED: defaultdict[frozenset[tuple[str, str]], LRUCache[Any, Any]] = defaultdict(lambda: LRUCache(256))


@contextmanager
def shared_styles() -> Iterator[None]:
    """Within it, no app parses a style sheet that another one has parsed with the same variables."""
    create, set_variables = Stylesheet.__init__, Stylesheet.set_variables

    def shared_create(sheet: Stylesheet, *, variables: dict[str, str] | None = None) -> None:
        create(sheet, variables=variables)
        sheet._parse_cache = _PARSED[frozenset(sheet._variables.items())]

    def shared_set_variables(sheet: Stylesheet, variables: dict[str, str]) -> None:
        # The cache of the old variables is left to others.
        sheet._parse_cache = LRUCache(1)
        set_variables(sheet, variables)
        sheet._parse_cache = _PARSED[frozenset(variables.items())]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "__init__", shared_create)
        patch.setattr(Stylesheet, "set_variables", shared_set_variables)
        yield


def _shown_screen(app: App[object]) -> Screen[object] | None:
    stack = app._screen_stacks[app._current_mode]
    return stack[-1] if stack else None


def _has_to_be_drawn(screen: Screen[object]) -> bool:
    states = (screen._layout_required, screen._scroll_required, screen._repaint_required, screen._recompose_required)
    return any(states) or bool(screen._dirty_widgets) or bool(screen._callbacks)


async def _no_callback_is_ready() -> None:
    """Let the event loop run until it waits for time, input or a thread."""
    loop = asyncio.get_running_loop()
    await asyncio.sleep(0)
    while loop._ready:  # type: ignore[attr-defined]
        await asyncio.sleep(0)


@contextmanager
def no_terminal_updates() -> Iterator[None]:
    """Within it, apps without a terminal do not make the output that a terminal would get after each change.

    Making it takes a third of the CPU time of these apps, and nothing reads it: tests read ``drawn_strips``.
    """
    render_update = Compositor.render_update

    def render(
        compositor: Compositor,
        full: bool = False,
        screen_stack: list[Screen[object]] | None = None,
        simplify: bool = False,
    ) -> object:
        if full or not active_app.get().is_headless:
            return render_update(compositor, full, screen_stack, simplify)
        compositor._dirty_regions.clear()
        return None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Compositor, "render_update", render)
        yield


def drawn_strips(app: App[None]) -> list[Strip]:
    """The lines of the screen, with what is visible of the screens behind it."""
    visible_screen_stack.set(app._background_screens)
    return app.screen._compositor.render_strips(app.screen.size)


# A panel can be laid out a few rounds after its screen has opened.
_ALIKE = 4


async def settled(pilot: Pilot[None]) -> list[Strip]:
    """The lines of a screen of which nothing moves, once some readings of it in a row agree."""
    before: str | None = None
    alike = 0
    end = time.monotonic() + LIMIT_S
    while True:
        await pilot.pause()
        strips = drawn_strips(pilot.app)
        alike = alike + 1 if before == (before := text_of(strips)) else 0
        if alike == _ALIKE:
            return strips
        assert time.monotonic() < end, f"after {LIMIT_S:g} s the screen still changes"


def dialog_text(screen: Screen[Any]) -> str:
    """The text of a dialog, in lines that are not folded."""
    assert isinstance(screen, TextDialog)
    console = Console(width=2000)
    with console.capture() as captured:
        console.print(screen.body())
    return captured.get()


def text_of(strips: list[Strip]) -> str:
    """The lines of a screen without style."""
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def assert_snapshot(name: str, text: str) -> None:
    """Compare with the snapshot file ``name``; ``STALLSCOPE_REMAKE=1`` writes it anew."""
    file = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("STALLSCOPE_REMAKE"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
