"""Events of a Chrome trace: numbers and tracks of a file, and the text of what an event is made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from typing import TypeVar

from stallprobes.foreign_text import escaped_json

_Key = TypeVar("_Key")


class FileNumbers:
    """Numbers of the processes, threads and flows of a file."""

    def __init__(self) -> None:
        self._next, self._flow = count(1), 0

    def next(self) -> int:
        """The number of a new process or thread."""
        return next(self._next)

    def flows(self, number: int) -> int:
        """The first of ``number`` new flows."""
        first, self._flow = self._flow + 1, self._flow + number
        return first


@dataclass(frozen=True)
class EventTrack:
    """A thread of the file: its head is what all its events begin with."""

    process: int
    thread: int

    @property
    def head(self) -> str:
        """The members that say where an event is."""
        return f'"pid":{self.process},"tid":{self.thread}'


class TextCache(dict[_Key, str]):
    """Texts by what they are made of; ``made`` makes one that is missing."""

    def __init__(self, made: Callable[[_Key], str]) -> None:
        super().__init__()
        self._made = made

    def __missing__(self, key: _Key) -> str:
        text = self[key] = self._made(key)
        return text


def us_text(ns: int) -> str:
    """``ns``, not negative, as microseconds with three decimals."""
    return f"{ns // 1000}.{ns % 1000:03d}"


def json_text(value: object) -> str:
    """``value`` as JSON without characters that a terminal could take for a command."""
    return escaped_json(json.dumps(value, ensure_ascii=False, separators=(",", ":")))
