"""Histograms converted from their text: as the decoder and the validation of one read them, None where those refuse."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stallprobes.latency import histogram_text
from stallprobes.latency.histogram import LOWER, MOST, Histogram

PAIRS = st.lists(st.tuples(st.sampled_from(LOWER[:400].tolist()), st.integers(1, 10**6)), max_size=6).map(
    lambda pairs: [list(pair) for pair in sorted(dict(pairs).items())]
)
NEIGHBOUR = b"[[64,1],[65,3]]"


def expected(max_ns: bytes, pairs: bytes) -> tuple[list[list[int]], int] | None:
    """The pairs and the maximum as the decoder and ``Histogram.read`` find them."""
    try:
        found = Histogram.read(json.loads(pairs), int(max_ns))
    except ValueError:
        return None
    return found.pairs(), found.max_ns


def read(max_ns: bytes, pairs: bytes) -> tuple[list[list[int]], int] | None:
    """The same of a histogram that is converted together with a valid one."""
    texts = [b':{"call":{"max_ns":%s,"histogram":%s}}' % one for one in ((max_ns, pairs), (b"65", NEIGHBOUR))]
    groups = [match[1] for text in texts if (match := histogram_text.HISTOGRAMS.pattern.fullmatch(text))]
    *converted, neighbour = histogram_text.read_objects(groups)
    assert neighbour is not None
    assert (neighbour["call"].pairs(), neighbour["call"].count) == ([[64, 1], [65, 3]], 4)
    if not converted or converted[0] is None:
        return None
    found = converted[0]["call"]
    assert found.count == sum(count for _, count in found.pairs())
    return found.pairs(), found.max_ns


@given(PAIRS, st.integers(0, MOST + 1))
def test_what_is_valid_is_read(pairs: list[list[int]], max_ns: int) -> None:
    text = json.dumps(pairs, separators=(",", ":")).encode()
    assert read(b"%d" % max_ns, text) == expected(b"%d" % max_ns, text)


@given(st.text("[],0469 \n", max_size=14))
@example("[[064,1]]")
@example("[[64,01]]")
@example("[[,64],[1,1]]")
@example("[[64,],[,1]]")
@example("[[0,1],[00,1]]")
@example("[[6 4,1]]")
@example("[[64,1],]")
@example("[[64,1][65,1]]")
@example("[[64,1]5]")
@example("[5[64,1]]")
@example("[[64,1]5,[65,1]]")
@example("[[64,1],5[65,1]]")
@example("[[64,1,65],[1]]")
@example("[[64,99999999999999999999]]")
@example("[[64,9007199254740993]]")
@example("[" * 30 + "]" * 30)
@example("[]")
@example("[ ]")
@example("[[0,1]]")
@example("")
def test_whatever_the_text_is_it_is_read_as_the_decoder_reads_it_or_left_to_it(text: str) -> None:
    assert read(b"900", text.encode()) in (None, expected(b"900", text.encode()))


def test_lists_nested_beyond_the_decoder_are_left_to_it() -> None:
    assert read(b"900", b"[" * 100_000 + b"]") is None


@pytest.mark.parametrize(
    "text",
    [
        '{"call": {"max_ns": 65, "histogram": [[64, 1]]}}',
        '{"call":{"histogram":[[64,1]],"max_ns":65}}',
        '{"call":{"histogram":[[64,1]]}}',
        '{"call":{"max_ns":65,"histogram":[[64,1.0]]}}',
        '{"call":{"max_ns":65,"histogram":[[64,1]],"more":1}}',
        '{"call":{"max_ns":065,"histogram":[[64,1]]}}',
        '{"call":{"max_ns":-65,"histogram":[[64,1]]}}',
        '{"a\\"b":{"max_ns":65,"histogram":[[64,1]]}}',
        '{"é":{"max_ns":65,"histogram":[[64,1]]}}',
        '{"a\tb":{"max_ns":65,"histogram":[[64,1]]}}',
    ],
)
def test_other_text_is_left_to_the_decoder(text: str) -> None:
    assert histogram_text.HISTOGRAMS.pattern.search(f":{text}".encode()) is None


NAMED = {"call": {"max_ns": 65, "histogram": [[64, 1], [65, 3]]}, "wait:a b": {"max_ns": 0, "histogram": []}}


def value_of(text: str) -> object:
    """The value of the first match in ``text``, which is in a document."""
    match = histogram_text.HISTOGRAMS.pattern.search(f'{{"channels":{text}}}'.encode())
    assert match is not None
    (found,) = histogram_text.HISTOGRAMS.convert(*([group] for group in match.groups()))
    return found


def test_all_histograms_of_an_object_without_spaces_are_one_value() -> None:
    found = value_of(json.dumps(NAMED, separators=(",", ":")))
    assert isinstance(found, dict)
    assert {name: {"max_ns": one.max_ns, "histogram": one.pairs()} for name, one in found.items()} == NAMED


@pytest.mark.parametrize(
    "text",
    [
        '{"a":{"max_ns":65,"histogram":[[64,1]]},"a":{"max_ns":65,"histogram":[[64,1]]}}',
        '{"a":{"max_ns":65,"histogram":[[64,1]]},"b":{"max_ns":65,"histogram":[[65,1],[64,1]]}}',
        '{"a":{"max_ns":65,"histogram":[[64,1],5]}}',
        '{"a":{"max_ns":65,"histogram":[[64,1]5]}}',
        '{"a":{"max_ns":65,"histogram":[64,1]}}',
        '{"a":{"max_ns":63,"histogram":[[64,1]]}}',
        '{"a":{"max_ns":65,"histogram":[[64,01]]}}',
    ],
)
def test_an_object_with_a_histogram_that_is_not_valid_is_left_to_the_decoder(text: str) -> None:
    assert value_of(text) is None
    valid = json.dumps(NAMED, separators=(",", ":"))[1:-1].encode()
    assert [one is None for one in histogram_text.read_objects([valid, text[1:-1].encode(), valid])] == [
        False,
        True,
        False,
    ]
