"""Mutants of valid documents: values, keys, lengths and order changed at random places, from a fixed seed.

The same seed gives the same mutants, so that the number of a failing one repeats the failure.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any

# Values that a careless reader takes for others.
_ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2, 3, 7, 255, 2303, 2304, 2**31, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63,
    -(2**63) - 1, 2**64, 10**30, 0.5, -0.5, 1e-300, 1e18, 1e308, -1e308, math.nan, math.inf, -math.inf,
    "", "0", "call", "quiet",
    "\x1b[2J", "\x00", "\u202e", "\ud800", "é" * 300, "x" * 5000, [], {}, [[]], [0], [0, 1], [None], {"": 0},
)  # fmt: skip
# Numbers of changes, of which one is chosen: most mutants have one, which more often passes.
_CHANGES = (1, 1, 1, 2, 3)
_DEEPEST = 60
# The probability that a change is further inside a container.
_DEEPER = 0.94


def mutants(base: Any, seed: int, count: int) -> Iterator[Any]:
    """``count`` mutants of ``base``, each with one to three changes; ``base`` stays as it is."""
    dice = random.Random(seed)
    for _ in range(count):
        found = base
        for _ in range(dice.choice(_CHANGES)):
            found = _changed(found, base, dice)
        yield found


def damaged(data: bytes, seed: int, count: int) -> Iterator[bytes]:
    """``count`` copies of ``data`` with bytes changed, removed, inserted or cut off."""
    dice = random.Random(seed)
    for _ in range(count):
        found = bytearray(data)
        for _ in range(dice.choice(_CHANGES)):
            at = dice.randrange(len(found) + 1)
            match dice.randrange(4):
                case 0:
                    found[at : at + 1] = dice.randbytes(1)
                case 1:
                    del found[at : at + dice.randrange(1, 40)]
                case 2:
                    found[at:at] = dice.randbytes(dice.randrange(1, 8))
                case _:
                    del found[at:]
        yield bytes(found)


def damaged_lines(text: str, seed: int, count: int) -> Iterator[str]:
    """``count`` copies of ``text`` with lines, values and characters changed, for formats such as TOML."""
    dice = random.Random(seed)
    lines = text.splitlines()
    for _ in range(count):
        found = list(lines)
        for _ in range(dice.choice(_CHANGES)):
            at = dice.randrange(len(found))
            dice.choice((_value, _key, _swapped, _twice, _removed, _character))(found, at, dice)
            found = found or [""]
        yield "\n".join(found)


def _changed(value: Any, base: Any, dice: random.Random) -> Any:
    """``value`` with a change at a random place; containers off the way to it are shared."""
    if isinstance(value, dict) and value and dice.random() < _DEEPER:
        key = dice.choice(list(value))
        return {**value, key: _changed(value[key], base, dice)}
    if isinstance(value, list) and value and dice.random() < _DEEPER:
        at = dice.randrange(len(value))
        return [*value[:at], _changed(value[at], base, dice), *value[at + 1 :]]
    return dice.choice(_changes(value))(value, base, dice)


def _changes(value: Any) -> tuple[Callable[[Any, Any, random.Random], Any], ...]:
    if isinstance(value, dict) and value:
        return (_odd, _without_key, _with_key, _renamed_key, _part, _nested)
    if isinstance(value, list) and value:
        return (_odd, _shorter, _longer, _shuffled, _reversed, _part, _nested)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return (_odd, _near, _part)
    return (_odd, _part)


def _odd(_value: Any, _base: Any, dice: random.Random) -> Any:
    return dice.choice(_ODD)


def _near(value: Any, _base: Any, dice: random.Random) -> Any:
    return dice.choice((value + 1, value - 1, -value, value * 2, value * 1000, float(value), str(value)))


def _part(_value: Any, base: Any, dice: random.Random) -> Any:
    """A part of the document in the place of another one."""
    found = base
    while isinstance(found, (dict, list)) and found and dice.random() < 0.9:
        found = dice.choice(list(found.values()) if isinstance(found, dict) else found)
    return found


def _nested(value: Any, _base: Any, dice: random.Random) -> Any:
    for _ in range(dice.choice((1, 2, _DEEPEST))):
        value = [value]
    return value


def _without_key(value: dict[str, Any], _base: Any, dice: random.Random) -> Any:
    without = dice.choice(list(value))
    return {key: item for key, item in value.items() if key != without}


def _with_key(value: dict[str, Any], _base: Any, dice: random.Random) -> Any:
    return {**value, dice.choice(("", "x", "schema", "\x1b", "\ud800")): dice.choice(_ODD)}


def _renamed_key(value: dict[str, Any], _base: Any, dice: random.Random) -> Any:
    old, new = dice.choice(list(value)), dice.choice(("", "x", *value))
    return {new if key == old else key: item for key, item in value.items()}


def _shorter(value: list[Any], _base: Any, dice: random.Random) -> Any:
    at = dice.randrange(len(value))
    return [*value[:at], *value[at + dice.choice((1, len(value))) :]]


def _longer(value: list[Any], _base: Any, dice: random.Random) -> Any:
    at = dice.randrange(len(value))
    return [*value[: at + 1], *value[at : at + 1] * dice.choice((1, 2, 50)), *value[at + 1 :]]


def _shuffled(value: list[Any], _base: Any, dice: random.Random) -> Any:
    return dice.sample(value, len(value))


def _reversed(value: list[Any], _base: Any, _dice: random.Random) -> Any:
    return value[::-1]


_TOML_VALUES = (
    "-1", "0", "nan", "inf", "-inf", "1e400", "9" * 400, "9" * 5000, '""', '"x"', "true", "[]", "[1, 2]", "{}", "[[1]]",
    "1979-05-27", "'''", '"\\u001b[2J"', "[" * 500 + "]" * 500, "[" * 5000, "{a=" * 300 + "1" + "}" * 300, "0x10", "",
)  # fmt: skip


def _value(lines: list[str], at: int, dice: random.Random) -> None:
    key, equals, _ = lines[at].partition("=")
    lines[at] = f"{key}= {dice.choice(_TOML_VALUES)}" if equals else dice.choice(_TOML_VALUES)


def _key(lines: list[str], at: int, dice: random.Random) -> None:
    _, equals, value = lines[at].partition("=")
    key = dice.choice(("x", '""', "a.b.c", '"\\u0000"', "theme", "source", "machine", "keys", "base"))
    lines[at] = f"{key} ={value}" if equals else f"[{key}]"


def _swapped(lines: list[str], at: int, dice: random.Random) -> None:
    other = dice.randrange(len(lines))
    lines[at], lines[other] = lines[other], lines[at]


def _twice(lines: list[str], at: int, _dice: random.Random) -> None:
    lines.insert(at, lines[at])


def _removed(lines: list[str], at: int, _dice: random.Random) -> None:
    del lines[at]


def _character(lines: list[str], at: int, dice: random.Random) -> None:
    place = dice.randrange(len(lines[at]) + 1)
    lines[at] = (
        lines[at][:place] + dice.choice("\x00\x1b\"'[]{}=#,.-9eé\ud800") + lines[at][place + dice.randrange(2) :]
    )
