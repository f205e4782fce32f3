"""The screen in this process, driven by Textual's pilot: what to wait for, and its text as a snapshot file."""

from __future__ import annotations

import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from textual.pilot import Pilot
from textual.strip import Strip

from factories.waiting import LIMIT_S
from stallscope.tui.app import StallscopeApp
from stallscope.tui.monitor.screen import Monitor
from stallscope.tui.settings import Settings
from stallscope.tui.sources.live import EngineRequest, LiveSource

SNAPSHOTS = Path(__file__).parents[1] / "screen" / "snapshots"
QUICK = Settings(quiet_seconds=0.5)


def monitor(pilot: Pilot[None]) -> Monitor:
    """The monitor screen of the app."""
    screen = pilot.app.screen_stack[1]
    assert isinstance(screen, Monitor)
    return screen


async def until(pilot: Pilot[None], condition: Callable[[], object]) -> None:
    """Let the app run until ``condition`` holds; AssertionError after LIMIT_S."""
    end = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end, f"after {LIMIT_S:g} s the condition does not hold"
        await pilot.pause(0.02)


def quiet_is_known(screen: Monitor) -> bool:
    """Whether every victim has its baseline."""
    return screen.analyzer is not None and bool(screen.analyzer.baselines) and not screen.analyzer.without_baseline


def running(pilot: Pilot[None]) -> set[str]:
    """The names of the probes that are switched on."""
    last = monitor(pilot).last
    if last is None or last.snapshot is None:
        return set()
    return {name for name, probe in last.snapshot.probes.items() if probe.on}


@asynccontextmanager
async def live_monitor(settings: Settings = QUICK, wait: bool = True) -> AsyncIterator[Pilot[None]]:
    """The monitor over a simulated GPU; with ``wait`` once the baseline is measured."""
    source = LiveSource(EngineRequest(sim="h200"))
    app = StallscopeApp(lambda: source, settings)
    try:
        async with app.run_test(size=(160, 48)) as pilot:
            await until(pilot, lambda: isinstance(pilot.app.screen, Monitor))
            if wait:
                await until(pilot, lambda: quiet_is_known(monitor(pilot)))
            yield pilot
    finally:
        source.close()


def text_of(strips: list[Strip]) -> str:
    """The lines of a screen without style."""
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


def assert_snapshot(name: str, text: str) -> None:
    """Compare with the snapshot file ``name``; ``STALLSCOPE_REMAKE=1`` writes it anew."""
    file = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("STALLSCOPE_REMAKE"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")
