"""Order of keys and clicks: each reaches the screen or widget that the one before it has opened or focused.

Textual hands a key to the widget with the focus when the key arrives. Keys that arrive together would all go to one
widget, even if the first key, or a click before it, opens or closes a dialog. Here a key or a click waits until the one
before it is handled, and until the opened screen knows its widgets; a key also waits as long as the screen ``holds``
it, because the screen is still reading the key's target.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from textual.app import App, ScreenStackError
from textual.errors import NoWidget
from textual.events import Key, MouseDown, MouseUp, Paste
from textual.message import Message
from textual.message_pump import MessagePump

# Events that are kept in order. Mouse moves are excluded, since they are many and open nothing.
Ordered = Key | Paste | MouseDown | MouseUp
# Period (s) at which the app checks, while keys wait, whether the widget that handles the earlier key was removed, and
# whether a loading screen has its data. Reason: a removed widget never answers a key.
_LOST_S = 0.02
# Longest wait (s) of later keys for the action of an earlier key. After this time, the app handles the later keys
# although the action still runs.
_LONGEST_S = 0.5
# Longest time (s) for which a loading screen may hold back keys. Reason: a saved check loads in half a second, and data
# that take much longer may never come.
_LONGEST_HELD_S = 2.0
# Number of a KeyHandled message that belongs to no key. At this message, the app checks whether keys must still be held
# back. The numbers of keys begin at 1.
_LOOK = 0


class KeyHandled(Message):
    """Follows key or click ``number`` through the same queues, from its widget to the app: then that is handled."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class KeyOrder:
    """Hands keys and clicks to ``handle``, the app's own method, one after the other. All runs in the event loop."""

    def __init__(self, app: App[Any], handle: Callable[[Ordered], Awaitable[None]]) -> None:
        self._app, self._handle = app, handle
        self._waiting: deque[Ordered] = deque()
        self._number = 0
        self._target: MessagePump | None = None
        self._top: MessagePump | None = None
        self._due_s = 0.0
        # Until when keys are held, None while none is; and whether a look at them is due.
        self._held_until_s: float | None = None
        self._looks = False
        self._delivers = False

    def __len__(self) -> int:
        """The number of keys that wait."""
        return len(self._waiting)

    async def put(self, event: Ordered) -> None:
        """Hand over a key or a click, or queue it behind the earlier ones."""
        self._waiting.append(event)
        await self._deliver()

    async def answer(self, message: KeyHandled) -> None:
        """Take the answer to a key. If the key has opened another screen, that screen is asked too."""
        if message.number == _LOOK:
            self._looks = False
            await self._deliver()
            return
        if message.number != self._number or self._target is None:
            return
        top = self._screen()
        if top is not None and top is not self._top:
            self._ask(top)
            return
        self._target = None
        await self._deliver()

    async def _deliver(self) -> None:
        if self._delivers:
            return
        self._delivers = True
        try:
            while self._waiting and self._target is None:
                top = self._screen()
                if top is None:
                    # The app has ended: nothing takes them.
                    self._waiting.clear()
                    break
                if self._is_held(self._waiting[0], top):
                    break
                event = self._waiting.popleft()
                target = self._target_of(event, top)
                await self._handle(event)
                if event.is_forwarded:
                    self._begin(target, top)
                elif (now := self._screen()) is not top:
                    # A binding with priority is handled at once, and has opened a screen.
                    self._begin(now, top)
        finally:
            self._delivers = False

    def _is_held(self, event: Ordered, top: MessagePump | None) -> bool:
        """True if the next event waits for ``top``, which is then asked again."""
        holds: Callable[[Key], bool] = getattr(top, "holds", lambda _key: False)
        if not isinstance(event, Key) or not holds(event):
            self._held_until_s = None
            return False
        loop = asyncio.get_running_loop()
        if self._held_until_s is None:
            self._held_until_s = loop.time() + _LONGEST_HELD_S
        if loop.time() >= self._held_until_s:
            return False
        if not self._looks:
            self._looks = True
            loop.call_later(_LOST_S, self._app.post_message, KeyHandled(_LOOK))
        return True

    def _target_of(self, event: Ordered, top: MessagePump) -> MessagePump:
        """The widget that an event goes to."""
        if not isinstance(event, MouseDown | MouseUp):
            return self._app.focused or top
        if self._app.mouse_captured is not None:
            return self._app.mouse_captured
        try:
            return self._app.get_widget_at(int(event.x), int(event.y))[0]
        except NoWidget:
            return top

    def _begin(self, target: MessagePump | None, top: MessagePump | None) -> None:
        """Wait until ``target`` has handled the key that was handed over while ``top`` was the screen."""
        if target is None:
            return
        self._top = top
        self._due_s = asyncio.get_running_loop().time() + _LONGEST_S
        self._ask(target)

    def _ask(self, target: MessagePump) -> None:
        self._number += 1
        self._target = target
        if self._screen() is target:
            self._top = target
        target.post_message(KeyHandled(self._number))
        asyncio.get_running_loop().call_later(_LOST_S, self._look, self._number)

    def _look(self, number: int) -> None:
        """Continue where the answer to a key is lost, or takes too long."""
        target = self._target
        if number != self._number or target is None:
            return
        loop = asyncio.get_running_loop()
        if target.is_attached and target.is_running and loop.time() < self._due_s:
            loop.call_later(_LOST_S, self._look, number)
            return
        # The number returns as an answer, in the app's own task.
        self._app.post_message(KeyHandled(number))

    def _screen(self) -> MessagePump | None:
        try:
            return self._app.screen
        except ScreenStackError:
            return None
