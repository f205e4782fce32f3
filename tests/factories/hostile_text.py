"""Hostile text in place of every string of a value, and what of it must never reach a terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from typing import Any, TypeVar

from msgspec import Struct, structs

from stallprobes.latency.histogram import Histogram
from stallprobes.watch.reading.call_stack import CallStack

# Escape sequences of C0 and C1, a bell, BS, CR, a forged line; direction, zero width, separators, tags, a lone
# surrogate; markup of Textual and HTML; a wide character and a combining one.
SEQUENCES = "\x1b]0;t\x07\x1b[31m\x9b2J\x9d0;t\x9c\x85\x08\r\nstallscope: forged\t\x00\x7f"
DECEPTIONS = "\u202e\u2066\u200f\u061c\u200b\u200d\ufeff\u2028\u2029\xad\ufe0f\u3164\U000e0041\ud800"
MARKUP = "[red]r[/red][/nothing][link='u'][@click=app.quit]<b onclick=\"x\">&amp;'$(x)`"
WIDE = "語e\u0301"
HOSTILE = f"{SEQUENCES}{DECEPTIONS}{MARKUP}{WIDE}"

_Value = TypeVar("_Value")


def is_forbidden(letter: str) -> bool:
    """Whether a terminal obeys ``letter``, or a reader is deceived by it."""
    return (unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp") and letter not in "\n\t") or letter in (
        "\ufe0f\u3164"
    )


def forbidden(text: str) -> set[str]:
    """The forbidden characters in ``text``."""
    return set(filter(is_forbidden, set(text)))


def poisoned(value: _Value, keep: Iterable[str] = (), hostile: str = HOSTILE) -> _Value:
    """``value`` with ``hostile`` around every string that is neither empty nor in ``keep``; equal ones stay equal."""
    kept = frozenset(keep)

    def of(one: Any) -> Any:
        if isinstance(one, (Enum, Histogram)):
            return one
        if isinstance(one, str):
            return one if not one or one in kept else f"{hostile[:6]}{one}{hostile}"
        if isinstance(one, Mapping):
            return type(one)({of(key): of(item) for key, item in one.items()})  # type: ignore[call-arg]
        if isinstance(one, tuple) and hasattr(one, "_fields"):
            return type(one)(*map(of, one))
        if isinstance(one, (tuple, frozenset, list)):
            return type(one)(map(of, one))
        if isinstance(one, CallStack):
            return CallStack(of(one.python), of(one.native), one.complete)
        if isinstance(one, Struct):
            return structs.replace(one, **{name: of(getattr(one, name)) for name in one.__struct_fields__})
        if is_dataclass(one) and not isinstance(one, type):
            return replace(one, **{field.name: of(getattr(one, field.name)) for field in fields(one) if field.init})
        return one

    changed: _Value = of(value)
    return changed
