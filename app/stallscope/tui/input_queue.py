"""Queue of a terminal's input events, bounded whatever arrives."""

from __future__ import annotations

import threading
from collections import deque

from textual.events import MouseMove
from textual.message import Message

# More than a person types ahead, and than a path that a terminal pastes as keys.
MOST_WAITING = 512


class InputQueue:
    """Input events that wait for the screen.

    A movement of the mouse replaces one that waits. With more than MOST_WAITING events it is a flood: all of them are
    dropped, and all further ones until ``pause``. The reader and the screen are different threads.
    """

    def __init__(self) -> None:
        self.flooded = False
        self._closed = False
        self._waiting: deque[Message] = deque()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._waiting)

    def put(self, event: Message) -> None:
        """Add an event, or drop it."""
        with self._lock:
            if self._closed or self.flooded:
                return
            if isinstance(event, MouseMove) and self._waiting and isinstance(self._waiting[-1], MouseMove):
                self._waiting[-1] = event
                return
            self._waiting.append(event)
            if len(self._waiting) > MOST_WAITING:
                self.flooded = True
                self._waiting.clear()

    def take(self) -> Message | None:
        """The event that waits longest, None without one."""
        with self._lock:
            return self._waiting.popleft() if self._waiting else None

    def pause(self) -> bool:
        """Note that the terminal has sent nothing for a moment. Returns whether that ended a flood."""
        with self._lock:
            ended, self.flooded = self.flooded, False
            return ended

    def close(self) -> None:
        """Drop all events, now and from now on: the program ends."""
        with self._lock:
            self._closed = True
            self._waiting.clear()
