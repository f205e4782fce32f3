"""Pull reader of JSON: an object or list that does not fit into memory is read member by member.

The memory that it takes depends on the largest value that the caller reads as a whole, and that has a limit.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from stallprobes.errors import MalformedJson, TruncatedJson
from stallprobes.files.json_reader import (
    decoder,
    duplicate_key,
    nested_too_deeply,
    refused_constant,
    too_many_digits,
)

# A value that is incomplete after so many characters is refused.
LARGEST_VALUE = 1 << 20
# With so much text ahead, a value of usual size is complete, and is not decoded a second time.
_AHEAD = 1 << 16
_FILL = 1 << 18
# The decoder reports an incomplete text so near to its end; or where an unterminated string begins.
_NEAR_END = 16
# So many values are extracted and kept at a time.
_MOST_VALUES = 1 << 15
# A document of a careless program has NaN rather than this constant. A string cannot contain the tab, so a match that
# begins in a string stays an error.
_CONSTANT = "-Infinity"
_PLACEHOLDER = f":{_CONSTANT}\t".encode()
_SPACE = re.compile(r"[ \t\n\r]*")


@dataclass(frozen=True)
class Extraction:
    """Values that are taken from the text before it is decoded, many at a time.

    ``pattern`` matches a colon and the object after it, in UTF-8 and without newlines. ``convert`` gets a list for each
    group of the pattern, with an item for each match, None for a group that is not in it. It returns the value of each
    match, or None for one that the decoder has to read. ``ends`` are ends of matches: a piece of the text ends with the
    last of the first one that it has, so that it seldom ends within a match.
    """

    pattern: re.Pattern[bytes]
    convert: Callable[..., Sequence[Any]]
    ends: tuple[bytes, ...] = (b"}",)


class JsonStream:
    """Position in the JSON text whose UTF-8 ``pieces`` yields.

    ``made`` converts each object of a value read as a whole.

    Most of a large document may be values of one form, which ``extraction`` converts in a tenth of the decoder's time.

    ``members`` and ``items`` yield the position before each value, which the caller then reads with ``value``,
    ``members`` or ``items``. Methods raise MalformedJson, TruncatedJson where the text ends early, and
    UnicodeDecodeError.
    """

    def __init__(
        self,
        pieces: Iterable[bytes],
        made: Callable[[dict[str, Any]], Any],
        extraction: Extraction | None = None,
    ) -> None:
        self._pieces = iter(pieces)
        self._characters = codecs.getincrementaldecoder("utf-8")()
        self._decoder = decoder(made, self._constant)
        self._extraction = extraction
        # Text that may begin a match. Then the values for which the text has a placeholder, the number of those that
        # were read, and of those that the value that is being decoded has used.
        self._carry = b""
        self._values: list[Any] = []
        self._taken = 0
        self._used = 0
        self._text = ""
        self._at = 0
        self._line = 1
        self._ended = False
        # Number of objects and lists that are open; at 0 the text is no JSON rather than cut off.
        self._open = 0

    def peek(self) -> str:
        """The first character of the next value, or the punctuation there; "" at the end of the text."""
        while True:
            self._at = _SPACE.match(self._text, self._at).end()  # type: ignore[union-attr]
            if self._at < len(self._text):
                return self._text[self._at]
            if self._ended:
                return ""
            self._fill(_FILL)

    def next_text(self, size: int) -> str:
        """At most ``size`` characters from the next value on."""
        self.peek()
        return self._text[self._at : self._at + size]

    def members(self) -> Iterator[str]:
        """The keys of the object that begins here; each value is read before the next key."""
        seen = set()
        for _ in self._parts("{", "}"):
            if self.peek() not in ('"', ""):
                raise self._invalid()
            key = self.value()
            if key in seen:
                raise duplicate_key(key)
            seen.add(key)
            self._take(":")
            yield key

    def items(self) -> Iterator[int]:
        """The numbers of the items of the list that begins here; each item is read before the next number."""
        yield from self._parts("[", "]")

    def value(self) -> Any:
        """The value that begins here, as a whole. Raises MalformedJson if it is much larger than LARGEST_VALUE."""
        self.peek()
        if len(self._text) - self._at < _AHEAD:
            self._fill(_FILL)
        while True:
            incomplete, self._used = None, 0
            try:
                found, end = self._decoder.raw_decode(self._text, self._at)
            except json.JSONDecodeError as error:
                near = len(self._text) - error.pos <= _NEAR_END
                if not near and not error.msg.startswith("Unterminated string"):
                    raise self._invalid(error.pos) from error
                incomplete = error
            except RecursionError:
                raise nested_too_deeply() from None
            except ValueError:
                raise too_many_digits() from None
            else:
                # A number at the end of the text may have more digits.
                if end < len(self._text) or self._ended:
                    self._read_to(end)
                    return found
            if incomplete is not None and self._ended:
                raise self._cut_off(incomplete.pos) from incomplete
            size = len(self._text) - self._at
            if size > LARGEST_VALUE:
                raise MalformedJson(f"line {self._line_at(self._at)} has a value larger than {LARGEST_VALUE >> 20} MiB")
            self._fill(max(2 * size, _FILL))

    def value_ahead(self) -> Any | None:
        """The value that begins here if it is valid and the text ahead has all of it; else None, and nothing is read.

        A value of up to some 64 thousand characters is ahead. Raises MalformedJson for a duplicate key and for NaN.
        """
        self.peek()
        if len(self._text) - self._at < _AHEAD:
            self._fill(_FILL)
        self._used = 0
        try:
            found, end = self._decoder.raw_decode(self._text, self._at)
        except (ValueError, RecursionError):
            # The caller reads it in parts, which finds the place of an error.
            return None
        if end == len(self._text):
            return None
        self._read_to(end)
        return found

    def end(self) -> None:
        """Read the white space up to the end of the text. Raises MalformedJson for anything else."""
        if self.peek():
            raise self._invalid()

    def _read_to(self, end: int) -> None:
        self._at = end
        self._taken += self._used

    def _parts(self, begin: str, end: str) -> Iterator[int]:
        self._take(begin)
        self._open += 1
        number = 0
        while self.peek() != end:
            if number:
                self._take(",")
            yield number
            number += 1
        self._at += 1
        self._open -= 1

    def _take(self, wanted: str) -> None:
        found = self.peek()
        if not found:
            raise self._cut_off(self._at)
        if found != wanted:
            raise self._invalid()
        self._at += 1

    def _fill(self, size: int) -> None:
        """Read text until ``size`` characters are ahead, and forget what was read."""
        self._line += self._text.count("\n", 0, self._at)
        del self._values[: self._taken]
        self._taken = 0
        parts, ahead = [self._text[self._at :]], len(self._text) - self._at
        while ahead < size and not self._ended:
            # A search in many small pieces costs more than one in all of them.
            pieces, missing = [], _FILL
            while missing > 0 and not self._ended:
                piece = next(self._pieces, None)
                self._ended = piece is None
                pieces.append(piece or b"")
                missing -= len(pieces[-1])
            parts.append(self._characters.decode(self._reduced(b"".join(pieces)), self._ended))
            ahead += len(parts[-1])
        self._text, self._at = "".join(parts), 0

    def _reduced(self, piece: bytes) -> bytes:
        """``piece`` with a placeholder in place of each value that is extracted.

        A placeholder in the document itself is noticed: then there are more of them than values.
        """
        if self._extraction is None:
            return piece
        text, self._carry = self._carry + piece, b""
        if not self._ended:
            end = next((at + len(one) for one in self._extraction.ends if (at := text.rfind(one)) >= 0), 0)
            if len(text) - end < LARGEST_VALUE:
                text, self._carry = text[:end], text[end:]
        if len(self._values) > _MOST_VALUES:
            return text
        pattern = self._extraction.pattern
        parts = pattern.split(text)
        step = 1 + pattern.groups
        if len(parts) == 1:
            return text
        values = self._extraction.convert(*(parts[group::step] for group in range(1, step)))
        self._values += [value for value in values if value is not None]
        if None not in values:
            return _PLACEHOLDER.join(parts[::step])
        each = iter(values)
        return pattern.sub(lambda match: match[0] if next(each) is None else _PLACEHOLDER, text)

    def _constant(self, constant: str) -> Any:
        place = self._taken + self._used
        if constant != _CONSTANT or place == len(self._values):
            return refused_constant(constant)
        self._used += 1
        return self._values[place]

    def _line_at(self, position: int) -> int:
        return self._line + self._text.count("\n", 0, position)

    def _invalid(self, position: int | None = None) -> MalformedJson:
        return MalformedJson(f"line {self._line_at(self._at if position is None else position)} is not valid JSON")

    def _cut_off(self, position: int) -> MalformedJson:
        text = self._text.rstrip()
        if not self._open and self._text[self._at : self._at + 1] not in ("{", "["):
            return self._invalid(position)
        if position >= len(text) or text[-1] not in "}]":
            return TruncatedJson("its end is missing")
        return self._invalid(position)
