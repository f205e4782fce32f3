"""Document of a check while it is read as a stream: its members one after the other, and its cells one at a time."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

from stallprobes.errors import MalformedJson
from stallprobes.files.json_reader import Node
from stallprobes.files.json_stream import JsonStream
from stallprobes.matrix.check_reader import DERIVED, MOST_MEMBERS, CheckReader, CheckSize
from stallprobes.matrix.matrix import Matrix


def read(stream: JsonStream, content: LimitedSize, check_schema: Callable[[object], None]) -> Matrix:
    """The matrix in the document ``stream``, which converts its histograms with ``histogram_text``.

    ``content`` gets the limit for the number of hosts. ``check_schema`` raises unless the value of ``schema``,
    None without one, is that of a check. Raises MalformedJson.
    """
    if stream.peek() != "{":
        stream.value()
        stream.end()
        check_schema(None)
        raise MalformedJson("the document is not an object")
    return _Document(stream, content, check_schema).matrix()


class LimitedSize(Protocol):
    """Something whose size must not exceed ``largest`` bytes."""

    largest: int


class _Document:
    """The document while it is read: its members, and its cells as far as they could be converted.

    The cells are the largest part and the last in a file that ``save`` wrote. A program may have sorted the keys; then
    the cells wait for what they refer to.
    """

    def __init__(self, stream: JsonStream, content: LimitedSize, check_schema: Callable[[object], None]) -> None:
        self._stream, self._content, self._check_schema = stream, content, check_schema
        self._root = Node({}, "")
        self._size = CheckSize(0)
        self._repeats = 0
        self._reader: CheckReader | None = None
        self._waiting: list[Node] = []
        self._large_cells = False

    def matrix(self) -> Matrix:
        """The matrix. Raises MalformedJson."""
        found: dict[str, Any] = self._root.value
        for key in self._stream.members():
            if len(found) == MOST_MEMBERS:
                raise MalformedJson(f"the document has more than {MOST_MEMBERS} members")
            found[key] = self._member(key)
        self._stream.end()
        reader = self._known()
        for node in self._waiting:
            reader.add_cell(node)
        return reader.matrix(self._root)

    def _known(self) -> CheckReader:
        """The reader of cells, once what they refer to is known."""
        if self._reader is None:
            self._check_schema(self._root.value.get("schema"))
            self._reader = CheckReader(self._root, self._size)
        return self._reader

    def _member(self, key: str) -> Any:
        stream, begin = self._stream, self._stream.peek()
        if key == "cells" and begin == "[":
            if {"schema", "rows", "columns", "hosts"} <= self._root.value.keys():
                self._known()
            self._cells()
            return []
        if key == "hosts" and begin == "{":
            return self._hosts()
        value = stream.value()
        if key in DERIVED and isinstance(value, dict):
            self._root.field(key, value).free()
            return {}
        return value

    def _hosts(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        node = self._root.field("hosts", found)
        for name in self._stream.members():
            if len(found) == CheckSize.HOSTS:
                raise node.wrong(f"has more than {CheckSize.HOSTS} hosts")
            (one,) = self._root.field("hosts", {name: self._stream.value()}).members().values()
            found[name] = one.free(CheckSize.FINGERPRINT)
            self._size = CheckSize(len(found))
            self._content.largest = self._size.bytes
        return found

    def _cells(self) -> None:
        node = self._root.field("cells", [])
        for number in self._stream.items():
            if number == CheckSize.CELLS:
                raise node.wrong(f"has more than {CheckSize.CELLS} cells")
            value = self._stream.value() if self._stream.peek() != "{" else {}
            cell = node.item(number, value)
            if isinstance(value, dict):
                self._cell(cell)
            if self._reader is not None:
                self._reader.add_cell(cell)
            else:
                self._waiting.append(cell)

    def _cell(self, cell: Node) -> None:
        """Read the members of a cell, and of its lists with one item for each host one item at a time."""
        stream, found = self._stream, cell.value
        # That of a merged check may be larger than all text ahead, and so are most of its others then.
        whole = None if self._large_cells else stream.value_ahead()
        if isinstance(whole, dict):
            self._whole_cell(cell, whole)
            return
        self._large_cells = True
        for key in stream.members():
            if len(found) == MOST_MEMBERS:
                raise cell.wrong(f"has more than {MOST_MEMBERS} members")
            if key in ("repeats", "hosts") and stream.peek() == "[":
                found[key] = [stream.value() for _ in self._counted(stream.items(), cell)]
            else:
                found[key] = stream.value()
                if key == "figures" and isinstance(found[key], dict):
                    cell.field(key, found[key]).members()
                    found[key] = {}

    def _whole_cell(self, cell: Node, members: dict[str, Any]) -> None:
        if len(members) > MOST_MEMBERS:
            raise cell.wrong(f"has more than {MOST_MEMBERS} members")
        for key in ("repeats", "hosts"):
            if isinstance(members.get(key), list):
                collections.deque(self._counted(range(len(members[key])), cell), maxlen=0)
        if isinstance(members.get("figures"), dict):
            cell.field("figures", members["figures"]).members()
            members["figures"] = {}
        cell.value.update(members)

    def _counted(self, items: Iterable[int], cell: Node) -> Iterator[int]:
        for number in items:
            self._repeats += 1
            if self._repeats > self._size.repeats:
                raise cell.wrong(f"is beyond {self._size.repeats} repeats in total")
            yield number
