"""Pull reader of JSON: an object or list that does not fit into memory is read member by member.

The memory that it takes depends on the largest value that the caller reads as a whole, and that has a limit.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from stallprobes.errors import MalformedJson, TruncatedJson
from stallprobes.files.json_reader import (
    decoder,
    duplicate_key,
    nested_too_deeply,
    parse,
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
# Extracted text that is kept at a time.
_EXTRACTED = 1 << 22
# A document of a careless program has NaN rather than this.
_PLACEHOLDER = "-Infinity"
_SPACE = re.compile(r"[ \t\n\r]*")


class RawPairs:
    """Text of a list of lists of digits, not decoded."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def decoded(self) -> Any:
        """The value as JSON types. Raises MalformedJson."""
        return parse(self.text, lambda found: found)


class JsonStream:
    """Position in the JSON text that ``pieces`` yields. ``made`` converts each object of a value read as a whole.

    A list of lists of digits that is the member ``raw`` of an object becomes RawPairs where possible: most of a large
    document may be such lists, and decoding each number takes ten times as long as the caller may need.

    ``members`` and ``items`` yield the position before each value, which the caller then reads with ``value``,
    ``members`` or ``items``. Methods raise MalformedJson, and TruncatedJson where the text ends early.
    """

    def __init__(self, pieces: Iterable[str], made: Callable[[dict[str, Any]], Any], raw: str = "") -> None:
        self._pieces = iter(pieces)
        self._decoder = decoder(made, self._constant)
        self._key = f'"{raw}"'
        self._pattern = re.compile(rf"(?<!\\){self._key}: ?(\[\[[0-9,\[\] ]*\]\])") if raw else None
        # Text that may begin a list of the pattern. Then the lists for which the text has a placeholder, their size,
        # and how many of them the value that is being decoded has used.
        self._carry = ""
        self._extracted: deque[str] = deque()
        self._extracted_size = 0
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
        for _ in range(self._used):
            self._extracted_size -= len(self._extracted.popleft())

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
        parts, ahead = [self._text[self._at :]], len(self._text) - self._at
        while ahead < size and not self._ended:
            # A search in many small pieces costs more than one in all of them.
            pieces, missing = [], min(size - ahead, _FILL)
            while missing > 0 and not self._ended:
                piece = next(self._pieces, None)
                self._ended = piece is None
                pieces.append(piece or "")
                missing -= len(pieces[-1])
            parts.append(self._reduced("".join(pieces)))
            ahead += len(parts[-1])
        self._text, self._at = "".join(parts), 0

    def _reduced(self, piece: str) -> str:
        """``piece`` with a placeholder in place of each list that is extracted.

        A placeholder in the document itself is noticed: then there are more of them than lists.
        """
        if self._pattern is None:
            return piece
        text, self._carry = self._carry + piece, ""
        if self._extracted_size > _EXTRACTED:
            return text
        begin = self._unfinished(text)
        if not self._ended and len(text) - begin < LARGEST_VALUE:
            text, self._carry = text[:begin], text[begin:]
        return self._pattern.sub(self._extract, text)

    def _unfinished(self, text: str) -> int:
        """Where a list of the pattern may begin that ends after ``text``; its length if there is none."""
        assert self._pattern is not None
        begin = text.rfind(self._key)
        if begin >= 0:
            match = self._pattern.match(text, begin)
            rest = text[begin + len(self._key) :]
            if match is None and not rest.strip(": []0123456789,"):
                return begin
            if match is not None and match.end() == len(text):
                return begin
        for length in range(min(len(self._key) - 1, len(text)), 0, -1):
            if self._key.startswith(text[-length:]):
                return len(text) - length
        return len(text)

    def _extract(self, match: re.Match[str]) -> str:
        self._extracted.append(match[1])
        self._extracted_size += len(match[1])
        return f"{self._key}:{_PLACEHOLDER}"

    def _constant(self, constant: str) -> Any:
        if constant != _PLACEHOLDER or self._used == len(self._extracted):
            return refused_constant(constant)
        self._used += 1
        return RawPairs(self._extracted[self._used - 1])

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
