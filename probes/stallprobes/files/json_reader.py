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
_ODD = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_Choice = TypeVar("_Choice", bound=StrEnum)


def parse(text: str, made: Callable[[dict[str, Any]], Any]) -> Any:
    """The value of the JSON ``text``. ``made`` converts each object, innermost first.

    Raises MalformedJson for invalid JSON, NaN, infinities and duplicate keys, TruncatedJson if only the end is missing.
    """

    def built(pairs: list[tuple[str, Any]]) -> Any:
        found = dict(pairs)
        if len(found) != len(pairs):
            keys = [key for key, _ in pairs]
            raise MalformedJson(
                f"the key {_shown(next(key for key in keys if keys.count(key) > 1))} occurs twice in one object"
            )
        return made(found)

    try:
        return json.loads(text, object_pairs_hook=built, parse_constant=_refused, parse_float=_finite)
    except json.JSONDecodeError as error:
        if text[:1] in "{[" and (error.pos >= len(text) or text[-1] not in "}]"):
            raise TruncatedJson("its end is missing") from error
        raise MalformedJson(f"line {error.lineno} is not valid JSON") from error
    except RecursionError:
        raise MalformedJson("it is nested too deeply") from None
    except ValueError:
        raise MalformedJson("it has a number of thousands of digits") from None


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

    __slots__ = ("value", "where")

    def __init__(self, value: Any, where: str) -> None:
        self.value = value
        self.where = where

    def wrong(self, what: str) -> MalformedJson:
        """The exception with the message that this value ``what``, a clause such as "is not a list"."""
        return MalformedJson(f"{self.where or 'the document'} {what}")

    def fields(self, *keys: str) -> dict[str, Node]:
        """The members of an object that has exactly these keys."""
        found = self._object()
        for key in keys:
            if key not in found:
                raise self.wrong(f"has no {_shown(key)}")
        if len(found) > len(keys):
            raise self.wrong(f"has {_shown(next(key for key in found if key not in keys))}, which is not expected here")
        return {key: Node(found[key], f"{self.where}.{key}" if self.where else key) for key in keys}

    def some(self, *keys: str, optional: Iterable[str] = ()) -> dict[str, Node]:
        """The members of an object that has ``keys``, with those of ``optional`` that it has; it may have others."""
        found = self._object()
        for key in keys:
            if key not in found:
                raise self.wrong(f"has no {_shown(key)}")
        known = [*keys, *(key for key in optional if key in found)]
        return {key: Node(found[key], f"{self.where}.{key}" if self.where else key) for key in known}

    def members(self) -> dict[str, Node]:
        """The members of an object that may have any keys."""
        found = self._object()
        for key in found:
            if _ODD.search(key):
                raise self.wrong("has a key with control characters")
        return {key: Node(value, f"{self.where}[{_shown(key)}]") for key, value in found.items()}

    def items(self) -> list[Node]:
        """The items of a list."""
        if type(self.value) is not list:
            raise self.wrong("is not a list")
        return [Node(value, f"{self.where}[{i}]") for i, value in enumerate(self.value)]

    def text(self) -> str:
        """A string without control characters other than newline and tab."""
        if type(self.value) is not str:
            raise self.wrong("is not a string")
        if _ODD.search(self.value):
            raise self.wrong("has control characters")
        return self.value

    def name(self) -> str:
        """A string that is not empty."""
        if not self.text():
            raise self.wrong("is empty")
        return self.text()

    def text_or_none(self) -> str | None:
        """A string or null."""
        return None if self.value is None else self.text()

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

    def free(self) -> dict[str, Any]:
        """An object of any structure, at most DEEPEST levels deep, without control characters in its strings."""
        self._check(self._object(), DEEPEST)
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


def _refused(constant: str) -> float:
    raise MalformedJson(f"it has {constant} in place of a number")


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
