"""Input of a terminal: its bytes decoded into Textual's messages, and a bounded queue of them."""

from __future__ import annotations

import codecs
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable

from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message
from textual.messages import InBandWindowResize

# Time (s) without pasted bytes after which a paste without an end sequence counts as ended. Typed text (see
# _PASTE_BYTES) does not extend the time.
PASTE_S = 1.0
# Smallest number of bytes in one read that count as a part of a paste. Fewer bytes without an escape character count as
# typed text.
_PASTE_BYTES = 16
# Control sequence that ends a paste.
_PASTE_END = "\x1b[201~"
# Largest coordinate (column or line) that is accepted in a mouse event; no terminal is larger.
_LARGEST_COORDINATE = 10_000
# Surrogate characters. A key event with a surrogate character is dropped, because surrogate characters cannot be
# written to a terminal.
_SURROGATES = re.compile("[\ud800-\udfff]")
# Number of waiting input events above which all waiting events are dropped as a flood. Reason: a person types fewer
# events ahead, and a path that a terminal pastes as keys has fewer events.
MOST_WAITING = 512


class InputDecoder:
    """Decoder of any bytes from a terminal. It raises nothing.

    Bytes that are not UTF-8 and unknown sequences are dropped. A paste ends without its end sequence too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parser = XTermParser()
        self._text = codecs.getincrementaldecoder("utf-8")("ignore")
        # When something was sent with which a paste may have begun; infinite once its end is certain.
        self._sent_s = math.inf

    def feed(self, data: bytes) -> list[Message]:
        """The messages of ``data``, which continues the earlier data."""
        if len(data) >= _PASTE_BYTES or b"\x1b" in data:
            self._sent_s = self._clock()
        messages: list[Message] = []
        # One sequence after the other, so that an unreadable sequence does not take another with it.
        for part in re.split("(?=\x1b)", self._text.decode(data)):
            if part:
                messages += self._parse(part)
        return messages

    def tick(self) -> list[Message]:
        """The messages of sequences whose rest has not arrived in time; to be called several times a second."""
        messages = self._parse(None)
        if self._clock() - self._sent_s >= PASTE_S:
            # Without effect where no paste has begun. Once: it takes more time than all else while nothing is sent.
            self._sent_s = math.inf
            messages += self._parse(_PASTE_END)
        return messages

    def _parse(self, part: str | None) -> list[Message]:
        """The messages of ``part``, or of a sequence that has waited for its rest for too long."""
        try:
            messages = self._parser.tick() if part is None else self._parser.feed(part)
            return [message for message in messages if _is_accepted(message)]
        except Exception:
            self._parser = XTermParser()
            return []


def _is_accepted(message: Message) -> bool:
    """True if a terminal has a reason to send ``message``.

    The kernel has the size of the terminal: a size that arrives as text could be any.
    """
    if isinstance(message, events.MouseEvent):
        return max(message.x, message.y) <= _LARGEST_COORDINATE
    if isinstance(message, events.Key):
        # Surrogates cannot be written to a terminal.
        return not _SURROGATES.search(f"{message.key}{message.character or ''}")
    return not isinstance(message, (events.Resize, InBandWindowResize, events.CursorPosition))


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
            if (
                isinstance(event, events.MouseMove)
                and self._waiting
                and isinstance(self._waiting[-1], events.MouseMove)
            ):
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
