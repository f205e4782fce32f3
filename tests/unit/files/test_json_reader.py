"""The validating JSON reader: what passes, and the sentence and the place of what does not."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.errors import MalformedJson, TruncatedJson
from stallprobes.files.json_reader import DEEPEST, Node, clean, parse, plain

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4), max_leaves=20
)


class Word(StrEnum):
    CALL = "call"
    WAIT = "wait"


def read(text: str) -> Any:
    return parse(text, lambda made: made)


def nested(depth: int) -> Any:
    """An object that holds ``depth`` objects inside one another."""
    found: dict[str, Any] = {}
    for _ in range(depth):
        found = {"a": found}
    return found


@given(DOCUMENTS)
def test_what_json_writes_is_read_back(value: Any) -> None:
    assert read(json.dumps(value)) == value


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('{"a": NaN}', "NaN in place of a number"),
        ("[Infinity]", "Infinity in place of a number"),
        ("[-Infinity]", "-Infinity in place of a number"),
        ("[1e999]", "a number that is too large"),
        ("[" + "9" * 5000 + "]", "a number of thousands of digits"),
        ('{"a": 1, "b": 2, "a": 3}', "the key “a” occurs twice"),
        ('{"x": {"\\u001b[2J": 1, "\\u001b[2J": 2}}', "the key “\ufffd[2J” occurs twice"),
        ('{"' + "k" * 60 + '": 1, "' + "k" * 60 + '": 2}', "the key “" + "k" * 39 + "…” occurs twice"),
        ("[\n1,\nx]", "line 3 is not valid JSON"),
        ("{'a': 1}", "line 1 is not valid JSON"),
        ("[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ],
)
def test_what_is_no_sound_json_is_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(MalformedJson) as refused:
        read(text)
    assert sentence in str(refused.value)


@given(st.dictionaries(st.text(min_size=1), SCALARS, min_size=1, max_size=4), st.data())
def test_a_document_cut_off_anywhere_is_refused(document: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(document)
    end = data.draw(st.integers(1, len(text) - 1))
    with pytest.raises((MalformedJson, TruncatedJson)):
        read(text[:end])


@pytest.mark.parametrize("text", ['{"a": [1, 2', '{"a"', "{", '["abc', "[1, 2, ", ""])
def test_a_document_whose_end_is_missing_is_said_to_be_cut_off(text: str) -> None:
    with pytest.raises(TruncatedJson):
        read(text)


def test_objects_can_be_replaced_from_the_inside_out() -> None:
    made: list[list[str]] = []

    def replace(found: dict[str, Any]) -> Any:
        made.append(sorted(found))
        return len(made)

    assert parse('{"a": {"b": {}}, "c": 5}', replace) == 3
    assert made == [[], ["b"], ["a", "c"]]


def test_clean_replaces_control_characters_and_lone_surrogates() -> None:
    assert clean("a\x1b[2J\x00\x7f\x9f\ud800é\n\t") == "a\ufffd[2J\ufffd\ufffd\ufffd\ufffdé\n\t"


@given(st.text(alphabet=st.characters(codec=None)))
def test_a_cleaned_text_is_a_text_to_the_reader(text: str) -> None:
    assert Node(clean(text), "x").text() == clean(text)


def test_plain_makes_json_of_anything() -> None:
    class Odd:
        def __str__(self) -> str:
            return "odd\x00"

    value = {
        1: (1.5, math.inf, math.nan),
        "\x1b": {True, },
        "fraction": Fraction(1, 2),
        "word": Word.CALL,
        "bytes": b"ab",
        "odd": Odd(),
        "none": None,
    }  # fmt: skip
    found = plain(value)
    assert found == {
        "1": [1.5, None, None],
        "\ufffd": [True],
        "fraction": "1/2",
        "word": "call",
        "bytes": "b'ab'",
        "odd": "odd\ufffd",
        "none": None,
    }
    assert read(json.dumps(found, allow_nan=False)) == found
    assert type(found["word"]) is str


def test_members_and_items_know_where_they_stand() -> None:
    cells = Node({"cells": [{"row": "a"}]}, "").fields("cells")["cells"]
    assert cells.where == "cells"
    (first,) = cells.items()
    assert first.where == "cells[0]"
    assert first.fields("row")["row"].where == "cells[0].row"
    assert first.members()["row"].where == "cells[0][“row”]"
    assert first.fields("row")["row"].text() == "a"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ([], "the document is not an object"),
        ({"a": 1}, "the document has no “b”"),
        ({"a": 1, "b": 2, "c": 3}, "the document has “c”, which is not expected here"),
    ],
)
def test_fields_are_exactly_those_asked_for(value: Any, sentence: str) -> None:
    with pytest.raises(MalformedJson) as refused:
        Node(value, "").fields("a", "b")
    assert str(refused.value) == sentence


def test_some_fields_may_be_missing_and_others_may_be_there() -> None:
    found = Node({"a": 1, "b": 2, "later": 3}, "x").some("a", optional=("b", "c"))
    assert {key: (one.where, one.value) for key, one in found.items()} == {"a": ("x.a", 1), "b": ("x.b", 2)}
    with pytest.raises(MalformedJson, match=r"^x has no “a”$"):
        Node({"b": 2}, "x").some("a", optional=("b",))


def test_a_long_list_of_words_is_cut_in_the_message() -> None:
    with pytest.raises(MalformedJson) as refused:
        Node("x", "row").one_of(["y" * 5000])
    assert len(str(refused.value)) < 250


ACCEPTED: list[tuple[str, tuple[Any, ...], Any, Any]] = [
    ("text", (), "é\n", "é\n"),
    ("name", (), "a", "a"),
    ("text_or_none", (), None, None),
    ("text_or_none", (), "", ""),
    ("flag", (), False, False),
    ("whole", (-5, 5), -5, -5),
    ("whole", (-5, 5), 5, 5),
    ("number", (2.0,), 0, 0.0),
    ("number", (2.0,), 2.0, 2.0),
    ("number_or_none", (2.0,), None, None),
    ("choice", (Word,), "wait", Word.WAIT),
    ("one_of", (("a", "b"),), "b", "b"),
    ("items", (), [], []),
    ("members", (), {}, {}),
    ("free", (), {"a": [None, True, 1, 1.5, "x", {}]}, {"a": [None, True, 1, 1.5, "x", {}]}),
]


@pytest.mark.parametrize(("method", "arguments", "value", "expected"), ACCEPTED)
def test_a_value_of_the_right_kind_passes(method: str, arguments: tuple[Any, ...], value: Any, expected: Any) -> None:
    found = getattr(Node(value, "x"), method)(*arguments)
    assert found == expected
    assert type(found) is type(expected)


REFUSED: list[tuple[str, tuple[Any, ...], Any, str]] = [
    ("text", (), 1, "is not a string"),
    ("text", (), "\x1b", "has control characters"),
    ("text", (), "\ud800", "has control characters"),
    ("name", (), "", "is empty"),
    ("text_or_none", (), 0, "is not a string"),
    ("flag", (), 1, "is neither true nor false"),
    ("flag", (), None, "is neither true nor false"),
    ("whole", (0, 5), True, "is not an integer from 0 to 5"),
    ("whole", (0, 5), 1.0, "is not an integer from 0 to 5"),
    ("whole", (0, 5), 6, "is not an integer from 0 to 5"),
    ("whole", (-(2**53), 2**53), 2**53 + 1, "is not an integer from -2**53 to 2**53"),
    ("number", (2.0,), True, "is not a number from 0 to 2"),
    ("number", (2.0,), -0.1, "is not a number from 0 to 2"),
    ("number", (2.0,), 2.1, "is not a number from 0 to 2"),
    ("number", (2.0,), math.nan, "is not a number from 0 to 2"),
    ("number_or_none", (2.0,), "1", "is not a number from 0 to 2"),
    ("choice", (Word,), "Call", "is not one of call, wait"),
    ("one_of", (("a", "b"),), ["a"], "is not one of a, b"),
    ("items", (), {}, "is not a list"),
    ("members", (), [], "is not an object"),
    ("members", (), {"\x00": 1}, "has a key with control characters"),
    ("free", (), [], "is not an object"),
    ("free", (), {"a": {"\x00": 1}}, "has control characters"),
    ("free", (), {"a": ["\x1b"]}, "has control characters"),
    ("free", (), nested(DEEPEST), f"is nested deeper than {DEEPEST}"),
    ("free", (), {"a": (1, 2)}, "has a value of an unexpected type"),
]


@pytest.mark.parametrize(("method", "arguments", "value", "sentence"), REFUSED)
def test_a_value_of_another_kind_is_refused_with_its_place(
    method: str, arguments: tuple[Any, ...], value: Any, sentence: str
) -> None:
    with pytest.raises(MalformedJson) as refused:
        getattr(Node(value, "cells[3].x"), method)(*arguments)
    assert str(refused.value) == f"cells[3].x {sentence}"


def test_an_object_as_deep_as_allowed_passes() -> None:
    assert Node(nested(DEEPEST - 2), "x").free() == nested(DEEPEST - 2)
