"""Decoder of the bytes that a terminal sends: keys, mouse reports and pastes as Textual's messages."""

from __future__ import annotations

import codecs
import re
import time
from collections.abc import Callable, Iterable

from textual import events
from textual._xterm_parser import XTermParser
from textual.message import Message
from textual.messages import InBandWindowResize

ESCAPE_S = 0.1
# A paste without its end is over when nothing longer than what a person types has arrived for so long.
PASTE_S = 1.0
_TYPED_BYTES = 16
LONGEST_PASTE = 65_536
_PASTE_BEGIN, _PASTE_END = b"\x1b[200~", b"\x1b[201~"
# No terminal is larger.
_LARGEST_COORDINATE = 10_000
_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


class InputDecoder:
    """Decoder of a terminal's bytes, whatever they are. It raises nothing.

    Bytes that are not UTF-8 and sequences that mean nothing are dropped. A paste has at most LONGEST_PASTE bytes, the
    rest is dropped, and it ends without its end sequence too.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parser = XTermParser()
        self._text = codecs.getincrementaldecoder("utf-8")("ignore")
        # The last bytes that the parser has, among which a paste may have begun.
        self._passed = b""
        # The beginning of the end of a paste.
        self._held = b""
        self._paste: bytearray | None = None
        self._waits_since_s = 0.0

    def feed(self, data: bytes) -> list[Message]:
        """The messages of ``data``, which continues what was fed before."""
        found: list[Message] = []
        if data and (self._paste is None or len(data) >= _TYPED_BYTES):
            self._waits_since_s = self._clock()
        rest = self._held + data
        self._held = b""
        while rest:
            rest = self._feed_paste(rest, found) if self._paste is not None else self._feed_keys(rest, found)
        return found

    def tick(self) -> list[Message]:
        """The messages of sequences whose rest has not arrived in time; to be called several times a second."""
        found: list[Message] = []
        waited_s = self._clock() - self._waits_since_s
        if self._paste is not None and waited_s >= PASTE_S:
            self._paste += self._held
            self._held = b""
            self._end_paste(found)
        if self._paste is None and waited_s >= ESCAPE_S:
            # The first bytes of a character without the others.
            self._passed = b""
            self._text.reset()
        try:
            found += _accepted(self._parser.tick())
        except Exception:
            self._parser = XTermParser()
        return found

    def _feed_keys(self, rest: bytes, found: list[Message]) -> bytes:
        """Decode ``rest`` up to a paste; returns what is left."""
        passed = len(self._passed)
        whole = self._passed + rest
        begin = whole.find(_PASTE_BEGIN)
        if begin < 0:
            self._pass_on(rest, found)
            return b""
        end = begin + len(_PASTE_BEGIN)
        self._pass_on(whole[passed:end], found)
        # The parser ends its own paste, which collects without a limit.
        self._pass_on(_PASTE_END, found)
        self._passed, self._paste = b"", bytearray()
        return whole[end:]

    def _feed_paste(self, rest: bytes, found: list[Message]) -> bytes:
        """Collect ``rest`` up to the end of the paste; returns what is left."""
        assert self._paste is not None
        end = rest.find(_PASTE_END)
        if end < 0:
            # The end sequence may be cut between two reads.
            cut = next((n for n in range(len(_PASTE_END) - 1, 0, -1) if rest.endswith(_PASTE_END[:n])), 0)
            self._paste += rest[: len(rest) - cut][: LONGEST_PASTE - len(self._paste)]
            self._held = rest[len(rest) - cut :] if cut else b""
            return b""
        self._paste += rest[:end][: LONGEST_PASTE - len(self._paste)]
        self._end_paste(found)
        return rest[end + len(_PASTE_END) :]

    def _end_paste(self, found: list[Message]) -> None:
        pasted, self._paste = bytes(self._paste or b""), None
        text = pasted.decode("utf-8", "ignore").replace("\r\n", "\n").replace("\r", "\n")
        text = _CONTROL.sub("", text)
        if text:
            found.append(events.Paste(text))

    def _pass_on(self, data: bytes, found: list[Message]) -> None:
        self._passed = (self._passed + data)[-(len(_PASTE_BEGIN) - 1) :]
        found += self._parse(self._text.decode(data))

    def _parse(self, text: str) -> list[Message]:
        found: list[Message] = []
        # One sequence after the other, so that one that the parser cannot read takes no other with it.
        for part in re.split("(?=\x1b)", text):
            if not part:
                continue
            try:
                found += _accepted(self._parser.feed(part))
            except Exception:
                self._parser = XTermParser()
        return found


def _accepted(messages: Iterable[Message]) -> list[Message]:
    """``messages`` without those that a terminal has no reason to send.

    The kernel has the size of the terminal: a size that arrives as text could be any. Pastes are the decoder's.
    """
    found = []
    for message in messages:
        if isinstance(message, (events.Resize, InBandWindowResize, events.CursorPosition, events.Paste)):
            continue
        if isinstance(message, events.MouseEvent) and max(message.x, message.y) > _LARGEST_COORDINATE:
            continue
        if isinstance(message, events.Key) and _SURROGATES.search(f"{message.key}{message.character or ''}"):
            # They cannot be written to a terminal.
            continue
        found.append(message)
    return found
