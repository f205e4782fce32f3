"""Input queue and driver: how many events wait, reach the app, and are dropped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator
from typing import Any, cast

import pytest
from textual.app import App
from textual.events import Key, MouseMove
from textual.message import Message

from stallscope.tui.driver import TerminalDriver
from stallscope.tui.terminal_input import MOST_WAITING, InputQueue


def key(letter: str) -> Key:
    return Key(letter, letter)


def move(x: int) -> MouseMove:
    return MouseMove(None, x, 0, 0, 0, 0, False, False, False)


def test_a_flood_is_dropped_as_a_whole_and_ends_with_a_pause() -> None:
    queue = InputQueue()
    most = 0
    for _ in range(100_000):
        queue.put(key("1"))
        most = max(most, len(queue))
    assert most <= MOST_WAITING
    assert len(queue) == 0
    assert queue.flooded
    assert queue.pause()
    assert not queue.pause()
    queue.put(key("q"))
    assert cast(Key, queue.take()).key == "q"
    assert queue.take() is None


def test_what_a_person_types_or_a_path_that_is_pasted_as_keys_arrives_in_order() -> None:
    queue = InputQueue()
    text = "x" * (MOST_WAITING - 1) + "y"
    for letter in text:
        queue.put(key(letter))
    assert "".join(cast(Key, queue.take()).key for _ in text) == text
    assert not queue.pause()


def test_of_movements_in_a_row_only_the_last_waits() -> None:
    queue = InputQueue()
    for x in range(10_000):
        queue.put(move(x))
    queue.put(key("a"))
    queue.put(move(7))
    waiting = [queue.take() for _ in range(len(queue))]
    assert [getattr(event, "x", "key") for event in waiting] == [9_999, "key", 7]


def test_a_closed_queue_has_nothing_and_takes_nothing() -> None:
    queue = InputQueue()
    queue.put(key("a"))
    queue.close()
    queue.put(key("b"))
    assert len(queue) == 0


class SlowApp:
    """An app that handles an event only when it is told to."""

    screen: Any = None

    def __init__(self) -> None:
        self.events: list[Message] = []
        self.handled = 0
        self.screen = self
        self.focused = None

    @property
    def message_queue_size(self) -> int:
        # Screen and app are one object here, which is asked twice.
        return (len(self.events) - self.handled + 1) // 2

    def post_message(self, event: Message) -> None:
        self.events.append(event)

    def call_later(self, *_: object) -> None: ...
    def action_suspend_process(self) -> None: ...


@pytest.fixture
def signals() -> Iterator[None]:
    """The driver's handlers are removed afterwards."""
    numbers = (signal.SIGTSTP, signal.SIGCONT)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.usefixtures("signals")
async def test_the_app_gets_a_few_events_at_a_time_and_what_waits_can_be_dropped() -> None:
    app = SlowApp()
    driver = TerminalDriver(cast(App[Any], app))
    for _ in range(100):
        driver.send_message(key("1"))
    while not app.events:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    assert len(app.events) <= 8
    assert len(driver.input) == 100 - len(app.events)
    while len(app.events) < 100:
        app.handled = len(app.events)
        await asyncio.sleep(0.005)
    assert len(driver.input) == 0
    for _ in range(100_000):
        driver.send_message(key("1"))
    await asyncio.sleep(0.05)
    assert len(app.events) == 100
    assert driver.input.pause()
