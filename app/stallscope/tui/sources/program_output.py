"""Output of a program as lines: without the escape sequences of terminals, of bounded length and number."""

from __future__ import annotations

import codecs
import re
import threading
from collections import deque

MOST_LINES, LONGEST_LINE = 2000, 1000
# Control sequences (ESC [ …), strings to the terminal (ESC ] … BEL or ESC \), and the shorter escape sequences.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~])")
# What may be the beginning of one, at the end of what was read. A longer one is no escape sequence.
_BEGUN = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b]*\x1b?|[ -/]*)?\Z")
_LONGEST_ESCAPE = 4096
_CONTROLS = re.compile("([\r\n\b\t\a])")
_TAB = 8


class ProgramOutput:
    """The last lines that a program wrote. One thread feeds it, any other one reads it.

    A carriage return begins the line anew, as progress bars use it. ``count`` is the number of complete lines so far.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._lines: deque[str] = deque(maxlen=MOST_LINES)
        self._line, self._rest = "", ""
        self._returned = False
        self._lock = threading.Lock()
        self.count = 0

    def feed(self, data: bytes) -> None:
        """Add what was read."""
        text = _ESCAPES.sub("", self._rest + self._decoder.decode(data))
        begun = _BEGUN.search(text)
        self._rest = ""
        if begun is not None and len(text) - begun.start() <= _LONGEST_ESCAPE:
            text, self._rest = text[: begun.start()], text[begun.start() :]
        with self._lock:
            for part in _CONTROLS.split(text):
                self._add(part)

    def _add(self, part: str) -> None:
        if part == "\n":
            self._lines.append(self._line)
            self._line, self._returned = "", False
            self.count += 1
        elif part == "\r":
            # The next text replaces the line, unless the line ends here.
            self._returned = True
        elif part == "\b":
            self._line = self._line[:-1]
        elif part and part != "\a":
            before = "" if self._returned else self._line
            text = part if part != "\t" else " " * (_TAB - len(before) % _TAB)
            self._line, self._returned = (before + text)[:LONGEST_LINE], False

    def complete(self) -> tuple[int, list[str]]:
        """The number of complete lines so far, and the last ones."""
        with self._lock:
            return self.count, list(self._lines)

    def lines(self, most: int = MOST_LINES) -> list[str]:
        """The last lines, the incomplete one included."""
        with self._lock:
            found = [*self._lines, self._line] if self._line else list(self._lines)
        return found[-most:] if most else []
