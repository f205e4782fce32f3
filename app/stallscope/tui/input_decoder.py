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
_X10_BYTES = 3
# No terminal is larger; X10 reports end at 223.
_LARGEST_COORDINATE = 10_000
_BEGINNINGS = re.compile(rb"\x1b\[(?:M|200~)")
_SURROGATES = re.compile("[\ud800-\udfff]")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")


def _as_latin1(error: UnicodeError) -> tuple[str, int]:
    """The invalid bytes as Latin-1, without its control characters."""
    assert isinstance(error, UnicodeDecodeError)
    text = error.object[error.start : error.end].decode("latin-1")
    return _CONTROL.sub("", text), error.end


codecs.register_error("stallscope-latin-1", _as_latin1)


class InputDecoder:
    """Decoder of a terminal's bytes, whatever they are. It raises nothing.

    Bytes that are not UTF-8 count as Latin-1, X10 mouse reports as those of SGR. A paste has at most LONGEST_PASTE
    bytes, the rest is dropped, and it ends without its end sequence too. A sequence that means nothing is dropped.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._parser = XTermParser()
        self._text = codecs.getincrementaldecoder("utf-8")("stallscope-latin-1")
        # The last bytes that the parser has, among which a sequence may have begun; and bytes that it does not have.
        self._passed = b""
        self._held = b""
        self._paste: bytearray | None = None
        self._waits_since_s = 0.0
        self._button = 0

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
            # The first bytes of a mouse report without the others, and of a character.
            self._held, self._passed = b"", b""
            found += self._parse(self._text.decode(b"", final=True))
            self._text.reset()
        try:
            found += _accepted(self._parser.tick())
        except Exception:
            self._parser = XTermParser()
        return found

    def _feed_keys(self, rest: bytes, found: list[Message]) -> bytes:
        """Decode ``rest`` up to a paste or the first bytes of a mouse report; returns what is left."""
        known = len(self._passed)
        whole = self._passed + rest
        match = _BEGINNINGS.search(whole)
        if match is None or match.end() <= known:
            self._pass_on(rest, found)
            return b""
        # Part of the sequence may be with the parser already.
        begin, end = max(match.start(), known), match.end()
        if whole[match.start() : end] == _PASTE_BEGIN:
            self._pass_on(whole[known:end], found)
            # The parser ends its own paste, which collects without a limit.
            self._pass_on(_PASTE_END, found)
            self._passed, self._paste = b"", bytearray()
            return whole[end:]
        if len(whole) < end + _X10_BYTES:
            # The letter M stays here, so that the parser takes nothing for a key.
            held = max(begin, end - 1)
            self._pass_on(whole[known:held], found)
            self._held = whole[held:]
            return b""
        self._pass_on(whole[known : end - 1], found)
        self._pass_on(self._sgr(whole[end : end + _X10_BYTES]), found)
        self._passed = b""
        return whole[end + _X10_BYTES :]

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
        text = pasted.decode("utf-8", "stallscope-latin-1").replace("\r\n", "\n").replace("\r", "\n")
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

    def _sgr(self, report: bytes) -> bytes:
        """The rest of an SGR mouse report after ``ESC [`` for the three bytes of one of X10."""
        code, x, y = (byte - 32 for byte in report)
        if code < 0 or x < 1 or y < 1:
            # An SGR report without a position has no effect.
            return b"<0;0;0m"
        moves, wheel, released = code & 32, code & 64, code & 3 == 3
        if released and not moves and not wheel:
            return b"<%d;%d;%dm" % (self._button, x, y)
        if not moves and not wheel:
            self._button = code & 3
        return b"<%d;%d;%dM" % (code, x, y)


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
