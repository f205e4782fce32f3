"""The codec of JSON: what it writes it reads, and what is damaged it refuses with the place."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import jsonschema
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.errors import MalformedJson, TruncatedJson
from stallprobes.files import codec
from stallprobes.files.codec import Name, Natural, Text


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Pair(NamedTuple):
    first: int
    second: str


class Sum:
    """A class with a JSON form of its own."""

    def __init__(self, parts: tuple[int, ...]) -> None:
        self.parts = parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sum) and self.parts == other.parts

    def __hash__(self) -> int:
        return hash(self.parts)

    def to_json(self) -> list[int]:
        return list(self.parts)

    @classmethod
    def of_json(cls, value: Any) -> Sum:
        if type(value) is not list:
            raise ValueError("is not a list of integers")
        return cls(tuple(value))

    @staticmethod
    def json_schema() -> dict[str, Any]:
        return {"type": "array", "items": {"type": "integer"}}


@dataclass(frozen=True)
class Inner:
    count: Natural
    text: Text = ""


@dataclass(frozen=True)
class Outer:
    name: Name
    colour: Colour
    total: Sum
    inner: tuple[Inner, ...] = ()
    numbers: Mapping[str, float] | None = None
    pair: Pair | None = None


WHOLE = Outer("a", Colour.BLUE, Sum((1, 2)), (Inner(3, "x\ny"),), {"b": 0.5}, Pair(1, "c"))


def test_a_value_is_read_as_it_was_written() -> None:
    assert codec.decoded(codec.encoded(WHOLE), Outer) == WHOLE


def test_the_schema_of_a_type_accepts_what_is_written() -> None:
    schema = codec.schema(Outer)
    jsonschema.validate(json.loads(codec.encoded(WHOLE)), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"name": "a", "colour": "green"}, schema)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (b'{"colour": "red"}', "the document: it has no “name”"),
        (b'{"name": "a", "colour": "green"}', "colour: invalid value 'green'"),
        (b'{"name": "", "colour": "red"}', "name: expected a string of length >= 1"),
        (
            b'{"name": "a", "colour": "red", "total": [], "inner": [{"count": -1}]}',
            "inner[0].count: expected an integer >= 0",
        ),
        (
            b'{"name": "a", "colour": "red", "total": [], "inner": [{"count": true}]}',
            "inner[0].count: expected an integer, got true",
        ),
        (b'{"name": "\\u0007", "colour": "red"}', "name: expected a string without control characters"),
        (b'{"name": "a", "colour": "red", "total": 3}', "total: is not a list of integers"),
        (b'{"name": "a", "colour": "red", "numbers": {"b": NaN}}', "it is not valid JSON: invalid character"),
        (b'{"name": "a", "colour": "red", "numbers": {"b": 1e999}}', "numbers[...]: number out of range"),
        (b'{"name": "\\ud800", "colour": "red"}', "it is not valid JSON: "),
        (b"[" * 200_000, "it is nested too deeply"),
        (b"[]", "the document: expected an object, got a list"),
    ],
)
def test_a_damaged_text_is_refused_with_the_place(text: bytes, sentence: str) -> None:
    with pytest.raises(MalformedJson) as error:
        codec.decoded(text, Any if text.startswith(b"[[") else Outer)
    assert str(error.value).startswith(sentence)


@given(st.integers(1, len(codec.encoded(WHOLE)) - 1))
def test_a_text_that_ends_early_is_truncated(length: int) -> None:
    with pytest.raises(TruncatedJson):
        codec.decoded(codec.encoded(WHOLE)[:length], Outer)


@given(st.text(alphabet=st.characters() | st.characters(categories=["Cs", "Cc"]), max_size=20))
def test_any_text_is_written_so_that_it_can_be_read(text: str) -> None:
    assert codec.decoded(codec.encoded(Inner(0, text)), Inner) == Inner(0, codec.clean(text))


def test_an_unknown_type_is_a_mistake_of_the_program() -> None:
    with pytest.raises(TypeError):
        codec.encoded(object())


@pytest.mark.parametrize(
    "text",
    [
        "\x00",
        "a\x1b[2J",
        "\x7f",
        "\x85",
        "\r",
        "\\\x08",
        "x" * (codec.LONGEST_TEXT + 1),
        '"' * (codec.LONGEST_TEXT + 1),
    ],
)
def test_what_is_no_text_is_found_and_cleaned(text: str) -> None:
    assert codec.is_odd(msgspec.json.encode({text: [text]}))
    ((key, (value,)),) = codec.decoded(codec.cleaned({text: [text]}), dict[str, list[str]]).items()
    assert key == value == codec.clean(text)[: codec.LONGEST_TEXT]


@pytest.mark.parametrize(
    "text", ["", "\\b", "\\\\", 'a"b', "µ · é 語\n\t", "\\" * codec.LONGEST_TEXT, "é" * codec.LONGEST_TEXT]
)
def test_a_text_is_not_odd(text: str) -> None:
    assert not codec.is_odd(codec.encoded([text, *range(30_000)]))
    assert codec.cleaned([text]) == codec.encoded([text])
