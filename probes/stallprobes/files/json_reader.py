"""JSON reader with validation: a value of the expected types, or MalformedJson with the place and what is wrong there.

Python's reader accepts NaN, duplicate keys, lone surrogates, and true in place of 1; this one rejects them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from typing import Any, TypeVar

from stallprobes.errors import MalformedJson, TruncatedJson

DEEPEST = 32
# Lengths in messages.
_LONGEST_KEY = 40
_LONGEST_LIST = 200
# The longest string, in characters: a host's name is at most 255, the longest sentence of a verdict some 500.
LONGEST_TEXT = 1 << 16
LONGEST_NAME = 1 << 10
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_Choice = TypeVar("_Choice", bound=StrEnum)


def refused_constant(constant: str) -> Any:
    """Raise MalformedJson for NaN or an infinity."""
    raise MalformedJson(f"it has {constant} in place of a number")


def decoder(
    made: Callable[[dict[str, Any]], Any], constant: Callable[[str], Any] = refused_constant
) -> json.JSONDecoder:
    """A decoder of JSON that rejects duplicate keys. ``made`` converts each object, ``constant`` NaN and infinities."""

    def built(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            raise duplicate_key(next(key for key in keys if keys.count(key) > 1))
        return made(found)

    return json.JSONDecoder(object_pairs_hook=built, parse_constant=constant, parse_float=_finite)


def duplicate_key(key: str) -> MalformedJson:
    """The exception with the message that ``key`` occurs twice."""
    return MalformedJson(f"the key {_shown(key)} occurs twice in one object")


def parse(text: str, made: Callable[[dict[str, Any]], Any]) -> Any:
    """The value of the JSON ``text``. ``made`` converts each object, innermost first.

    Raises MalformedJson for invalid JSON, NaN, infinities and duplicate keys, TruncatedJson if only the end is missing.
    """
    try:
        return decoder(made).decode(text)
    except json.JSONDecodeError as error:
        if text[:1] in "{[" and (error.pos >= len(text) or text[-1] not in "}]"):
            raise TruncatedJson("its end is missing") from error
        raise MalformedJson(f"line {error.lineno} is not valid JSON") from error
    except RecursionError:
        raise nested_too_deeply() from None
    except ValueError:
        raise too_many_digits() from None


def nested_too_deeply() -> MalformedJson:
    """The exception for JSON that exceeds the decoder's recursion limit."""
    return MalformedJson("it is nested too deeply")


def too_many_digits() -> MalformedJson:
    """The exception for an integer that Python does not convert."""
    return MalformedJson("it has a number of thousands of digits")


def clean(text: str) -> str:
    """``text`` with U+FFFD in place of lone surrogates and control characters other than newline and tab."""
    return _ODD.sub("\ufffd", text)


def plain(value: object) -> Any:
    """``value`` as JSON types; a number that is not finite becomes None, an object of another type its text."""
    match value:
        case None | bool():
            return value
        case int():
            return int(value)
        case float():
            return float(value) if math.isfinite(value) else None
        case str():
            return clean(str(value))
        case Mapping():
            return {clean(str(key)): plain(item) for key, item in value.items()}
        case Iterable() if not isinstance(value, bytes):
            return [plain(item) for item in value]
    return clean(str(value))


class Node:
    """A JSON value and ``where`` it is in the document. Methods raise MalformedJson for a value of another type."""

    __slots__ = ("_parent", "_step", "value")

    def __init__(self, value: Any, where: str) -> None:
        self.value = value
        self._parent: Node | None = None
        # How to get here from the parent: a field, (a member's key,), or an item's number. A path takes longer to
        # compose than the value to check, and few are ever shown.
        self._step: str | tuple[str] | int = where

    def _at(self, value: Any, step: str | tuple[str] | int) -> Node:
        found = Node.__new__(Node)
        found.value, found._parent, found._step = value, self, step
        return found

    @property
    def where(self) -> str:
        """The place of the value in the document, such as ``cells[3].row``; "" for the document itself."""
        if self._parent is None:
            return str(self._step)
        before = self._parent.where
        match self._step:
            case str():
                return f"{before}.{self._step}" if before else self._step
            case int():
                return f"{before}[{self._step}]"
        return f"{before}[{_shown(self._step[0])}]"

    def wrong(self, what: str) -> MalformedJson:
        """The exception with the message that this value ``what``, a clause such as "is not a list"."""
        return MalformedJson(f"{self.where or 'the document'} {what}")

    def field(self, key: str, value: Any) -> Node:
        """The node of ``value``, which is the member ``key`` of an object that is read in parts."""
        return self._at(value, key)

    def item(self, number: int, value: Any) -> Node:
        """The node of ``value``, which is item ``number`` of a list that is read in parts."""
        return self._at(value, number)

    def fields(self, *keys: str) -> dict[str, Node]:
        """The members of an object that has exactly these keys."""
        found = self._object()
        for key in keys:
            if key not in found:
                raise self.wrong(f"has no {_shown(key)}")
        if len(found) > len(keys):
            raise self.wrong(f"has {_shown(next(key for key in found if key not in keys))}, which is not expected here")
        return {key: self._at(found[key], key) for key in keys}

    def some(self, *keys: str, optional: Iterable[str] = ()) -> dict[str, Node]:
        """The members of an object that has ``keys``, with those of ``optional`` that it has; it may have others."""
        found = self._object()
        for key in keys:
            if key not in found:
                raise self.wrong(f"has no {_shown(key)}")
        known = [*keys, *(key for key in optional if key in found)]
        return {key: self._at(found[key], key) for key in known}

    def members(self) -> dict[str, Node]:
        """The members of an object that may have any keys."""
        found = self._object()
        for key in found:
            if len(key) > LONGEST_NAME:
                raise self.wrong(f"has a key of more than {LONGEST_NAME} characters")
            if _ODD.search(key):
                raise self.wrong("has a key with control characters")
        return {key: self._at(value, (key,)) for key, value in found.items()}

    def items(self, most: int | None = None) -> list[Node]:
        """The items of a list of at most ``most``."""
        if len(self.listed()) > (len(self.value) if most is None else most):
            raise self.wrong(f"has more than {most} items")
        return [self._at(value, i) for i, value in enumerate(self.value)]

    def record(self, length: int) -> list[Node]:
        """The items of a list of ``length``."""
        if len(self.listed()) != length:
            raise self.wrong(f"is not a list of {length}")
        return self.items()

    def listed(self) -> list[Any]:
        """The values of the items of a list."""
        if type(self.value) is not list:
            raise self.wrong("is not a list")
        return self.value

    def text(self, longest: int = LONGEST_TEXT) -> str:
        """A string of at most ``longest`` characters, without control characters other than newline and tab."""
        if type(self.value) is not str:
            raise self.wrong("is not a string")
        if len(self.value) > longest:
            raise self.wrong(f"is longer than {longest} characters")
        if _ODD.search(self.value):
            raise self.wrong("has control characters")
        return self.value

    def name(self) -> str:
        """A string that is not empty, of at most LONGEST_NAME characters."""
        if not self.text(LONGEST_NAME):
            raise self.wrong("is empty")
        return self.text(LONGEST_NAME)

    def text_or_none(self, longest: int = LONGEST_TEXT) -> str | None:
        """A string as ``text`` returns it, or null."""
        return None if self.value is None else self.text(longest)

    def flag(self) -> bool:
        """True or false."""
        if type(self.value) is not bool:
            raise self.wrong("is neither true nor false")
        return self.value

    def whole(self, low: int, high: int) -> int:
        """An integer from ``low`` to ``high``."""
        if type(self.value) is not int or not low <= self.value <= high:
            raise self.wrong(f"is not an integer from {_number(low)} to {_number(high)}")
        return self.value

    def number(self, high: float) -> float:
        """A number from 0 to ``high``."""
        if type(self.value) not in (int, float) or not 0 <= self.value <= high:
            raise self.wrong(f"is not a number from 0 to {high:g}")
        return float(self.value)

    def number_or_none(self, high: float) -> float | None:
        """A number from 0 to ``high``, or null."""
        return None if self.value is None else self.number(high)

    def choice(self, kind: type[_Choice]) -> _Choice:
        """A member of the enum ``kind``."""
        return kind(self.one_of([str(word) for word in kind]))

    def one_of(self, words: Iterable[str]) -> str:
        """One of ``words``."""
        if type(self.value) is not str or self.value not in (known := list(words)):
            raise self.wrong(f"is not one of {_cut(', '.join(words), _LONGEST_LIST)}")
        return known[known.index(self.value)]

    def free(self, most: int | None = None) -> dict[str, Any]:
        """An object of any structure, at most DEEPEST levels deep, without control characters in its strings.

        ``most`` is the largest number of values in it, at all levels.
        """
        self._check(self._object(), DEEPEST)
        if most is not None and _size(self.value) > most:
            raise self.wrong(f"has more than {most} values")
        found: dict[str, Any] = self.value
        return found

    def free_or_none(self) -> dict[str, Any] | None:
        """An object as ``free`` returns it, or null."""
        return None if self.value is None else self.free()

    def _check(self, value: object, depth: int) -> None:
        if depth == 0:
            raise self.wrong(f"is nested deeper than {DEEPEST}")
        match value:
            case str():
                if len(value) > LONGEST_TEXT:
                    raise self.wrong(f"has a string of more than {LONGEST_TEXT} characters")
                if _ODD.search(value):
                    raise self.wrong("has control characters")
            case dict():
                for key, item in value.items():
                    self._check(key, depth)
                    self._check(item, depth - 1)
            case list():
                for item in value:
                    self._check(item, depth - 1)
            case None | bool() | int() | float():
                pass
            case _:
                raise self.wrong("has a value of an unexpected type")

    def _object(self) -> dict[str, Any]:
        if type(self.value) is not dict:
            raise self.wrong("is not an object")
        return self.value


def _size(value: object) -> int:
    """Number of values in ``value``, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_size, inner))


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise MalformedJson("it has a number that is too large")
    return value


def _number(value: int) -> str:
    return "2**53" if value == 2**53 else "-2**53" if value == -(2**53) else str(value)


def _shown(key: str) -> str:
    return f"“{clean(_cut(key, _LONGEST_KEY))}”"


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"
