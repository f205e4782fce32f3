"""The pull reader of JSON: the same values as the decoder gives, however the text is cut into pieces."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stallprobes.errors import MalformedJson, TruncatedJson
from stallprobes.files.json_stream import LARGEST_VALUE, Extraction, JsonStream

PAIRS = st.lists(st.lists(st.integers(0, 2000), min_size=2, max_size=2), max_size=4)
TEXT = st.text(max_size=4) | st.sampled_from([':{"pairs": [[1,2]]}', ':{\\"pairs":[[', "NaN", "-Infinity", "\\", "}"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT | PAIRS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(TEXT | st.just("pairs"), inner, max_size=3)
        | st.fixed_dictionaries({"pairs": PAIRS})
    ),
    max_leaves=12,
)


@dataclass
class Extracted:
    """A value that was taken from the text."""

    pairs: Any


def convert(pairs: list[bytes], others: list[bytes | None]) -> list[Extracted | None]:
    found: list[Extracted | None] = []
    for text, other in zip(pairs, others, strict=True):
        try:
            found.append(Extracted(json.loads(text)) if other is None and b"1999" not in text else None)
        except (ValueError, RecursionError):
            found.append(None)
    return found


SPACE = "[ ]*"
MEMBERS = rf'"pairs"{SPACE}:{SPACE}(\[[0-9,\[\] ]*\])({SPACE},{SPACE}"x":1)?'
EXTRACTION = Extraction(re.compile(rf":{SPACE}\{{{SPACE}{MEMBERS}{SPACE}\}}".encode()), convert)


def stream(text: str, size: int = 7) -> JsonStream:
    content = text.encode()
    pieces = (content[at : at + size] for at in range(0, len(content), size))
    return JsonStream(pieces, lambda found: found, EXTRACTION)


def decoded(value: Any) -> Any:
    """``value`` as the decoder gives it."""
    if isinstance(value, dict):
        return {key: decoded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [decoded(one) for one in value]
    return {"pairs": value.pairs} if isinstance(value, Extracted) else value


def in_parts(found: JsonStream, depth: int) -> Any:
    """The next value, objects and lists member by member down to ``depth``."""
    match found.peek() if depth else "":
        case "{":
            return {key: in_parts(found, depth - 1) for key in found.members()}
        case "[":
            return [in_parts(found, depth - 1) for _ in found.items()]
    return decoded(found.value())


@given(VALUES, st.integers(1, 60), st.integers(0, 3), st.sampled_from([None, 1]), st.booleans())
def test_the_values_are_those_of_the_decoder(
    value: Any, size: int, depth: int, indent: int | None, plain: bool
) -> None:
    found = stream(json.dumps(value, indent=indent, ensure_ascii=plain), size)
    assert in_parts(found, depth) == value
    found.end()


@given(VALUES, st.integers(1, 60), st.sampled_from([None, 1]))
def test_a_value_ahead_is_that_of_the_decoder(value: Any, size: int, indent: int | None) -> None:
    text = json.dumps([value, value], indent=indent)
    found, read = stream(text, size), []
    for _ in found.items():
        read.append(decoded(found.value_ahead()))
    assert read == [value, value]
    found.end()


@pytest.mark.parametrize("text", ['["' + "a" * LARGEST_VALUE + '"]', "[1, x]", "[1, 2", "[" * 100_000, "12"])
def test_a_value_that_is_not_ahead_is_left_to_the_other_methods(text: str) -> None:
    found = stream(text, 1 << 16)
    assert found.value_ahead() is None
    assert found.next_text(1) == text[0]


def walk(text: str) -> Iterator[Any]:
    found = stream(text)
    yield in_parts(found, 1)
    found.end()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "the key “a” occurs twice"),
        ('{"a": 1 "b": 2}', "line 1 is not valid JSON"),
        ('{"a": 1}\n\nx', "line 3 is not valid JSON"),
        ("[1, 2", "its end is missing"),
        ('{"a": "b', "its end is missing"),
        ('{"a"', "its end is missing"),
        ("[-Infinity]", "-Infinity in place of a number"),
        ('{"a": {"pairs": [[1,2]]}, "b": -Infinity}', "-Infinity in place of a number"),
        ('{"a": -Infinity, "b": {"pairs": [[1,2]]}}', "-Infinity in place of a number"),
        ('{"a": "b:{"pairs": [[1,2]]}"}', "line 1 is not valid JSON"),
        ('{"a":\n{"pairs":\n[]},\n"b":\n{"pairs": [1,,2]}}', "line 5 is not valid JSON"),
        ('{"a": {"pairs": [' + "[" * 100_000 + "]}}", "nested too deeply"),
        ('["' + "a" * (3 * LARGEST_VALUE) + '"]', "has a value larger than 1 MiB"),
        ("hello", "line 1 is not valid JSON"),
        ("[" + "9" * 5000 + "]", "thousands of digits"),
    ],
    ids=lambda value: value[:20],
)
def test_what_is_not_json_is_refused_with_its_line(text: str, said: str) -> None:
    with pytest.raises(MalformedJson) as refused:
        list(walk(text))
    assert said in str(refused.value)
    assert isinstance(refused.value, TruncatedJson) == (said == "its end is missing")
