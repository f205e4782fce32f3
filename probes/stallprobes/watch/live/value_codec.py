"""Codec of findings for recordings: frozen dataclasses as JSON by the types of their fields, and back with checks.

A field that has its default is left out. Enums are their values, histograms sparse. What ``decoded`` returns has the
declared types, bounded numbers, and text without control characters.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar

from stallprobes.files.json_reader import Node, clean
from stallprobes.latency.histogram import Histogram
from stallprobes.watch.attribution.causes import OTHER_THREAD
from stallprobes.watch.attribution.findings import ExplainedCall

LONGEST_TEXT = 4000
MOST_ITEMS = 20_000
_MOST = 2**62
# CUDA's and CUPTI's codes and exit codes.
_SIGNED = ("result", "code", "exit_code")
_LARGEST_NUMBER = 1e12

Value = TypeVar("Value")


def encoded(value: Any) -> Any:
    """``value`` as JSON types."""
    match value:
        case Histogram():
            return [value.max_ns, value.pairs()]
        case Enum():
            return value.value
        case None | bool() | int() | float():
            return value
        case str():
            return clean(value)[:LONGEST_TEXT]
        case Mapping():
            return [[encoded(key), encoded(item)] for key, item in value.items()]
        case tuple() | list():
            return [encoded(item) for item in value]
    out = {}
    for one in fields(value):
        item = getattr(value, one.name)
        if not _is_default(one, item):
            out[one.name] = encoded(item)
    return out


def _is_default(one: Any, item: Any) -> bool:
    if one.default is not MISSING:
        return bool(item == one.default)
    return one.default_factory is not MISSING and bool(item == one.default_factory())


def decoded(node: Node, kind: type[Value]) -> Value:
    """The value of type ``kind`` that ``encoded`` made. Raises MalformedJson, which names the place."""
    found: Value = _read(node, kind, "")
    return found


def _read(node: Node, kind: Any, name: str) -> Any:
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin in (typing.Union, types.UnionType):
        (inner,) = (one for one in arguments if one is not types.NoneType)
        return None if node.value is None else _read(node, inner, name)
    if origin is tuple:
        return _tuple(node, arguments, name)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        key, item = arguments
        pairs = [one.record(2) for one in node.items(MOST_ITEMS)]
        return {_read(pair[0], key, name): _read(pair[1], item, name) for pair in pairs}
    if kind is Histogram:
        return _histogram(node)
    if issubclass(kind, Enum):
        return _member(node, kind)
    if is_dataclass(kind):
        return _dataclass(node, kind)
    return _plain(node, kind, name)


def _tuple(node: Node, arguments: tuple[Any, ...], name: str) -> tuple[Any, ...]:
    if len(arguments) == 2 and arguments[1] is ...:
        return tuple(_read(item, arguments[0], name) for item in node.items(MOST_ITEMS))
    items = node.record(len(arguments))
    return tuple(_read(item, kind, name) for item, kind in zip(items, arguments, strict=True))


def _plain(node: Node, kind: type, name: str) -> Any:
    if kind is bool:
        return node.flag()
    if kind is int:
        return node.whole(-_MOST if name in _SIGNED else 0, _MOST)
    if kind is float:
        return node.number(_LARGEST_NUMBER)
    if kind is str:
        return node.text(LONGEST_TEXT)
    raise TypeError(f"the codec has no type {kind}")


def _member(node: Node, kind: type[Enum]) -> Enum:
    if type(node.value) in (int, str):
        for member in kind:
            # True equals 1.
            if member.value == node.value:
                return member
    raise node.wrong(f"is no {kind.__name__}")


def _histogram(node: Node) -> Histogram:
    items = node.record(2)
    try:
        return Histogram.read(items[1].value, items[0].value)
    except ValueError as error:
        raise node.wrong(str(error)) from None


@cache
def _types(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _dataclass(node: Node, kind: Any) -> Any:
    known = {one.name: one for one in fields(kind)}
    needed = [name for name, one in known.items() if one.default is MISSING and one.default_factory is MISSING]
    members = node.some(*needed, optional=[name for name in known if name not in needed])
    values = {name: _read(member, _types(kind)[name], name) for name, member in members.items()}
    made = kind(**values)
    if isinstance(made, ExplainedCall) and made.cause in OTHER_THREAD and not made.evidence.calls:
        raise node.wrong("has a cause in another thread, and no call of it")
    return made
