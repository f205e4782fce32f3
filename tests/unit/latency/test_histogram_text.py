"""Histograms converted from their text: as the decoder and the validation of one read them, None where those refuse."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stallprobes.latency import histogram_text
from stallprobes.latency.histogram import LOWER
from stallprobes.latency.sparse import MOST, SparseHistogram

PAIRS = st.lists(st.tuples(st.sampled_from(LOWER[:400].tolist()), st.integers(1, 10**6)), max_size=6).map(
    lambda pairs: [list(pair) for pair in sorted(dict(pairs).items())]
)
NEIGHBOUR = b"[[64,1],[65,3]]"


def expected(max_ns: bytes, pairs: bytes) -> tuple[list[list[int]], int] | None:
    """The pairs and the maximum as the decoder and ``SparseHistogram.read`` find them."""
    try:
        found = SparseHistogram.read(json.loads(pairs), int(max_ns))
    except ValueError:
        return None
    return found.pairs(), found.max_ns


def read(max_ns: bytes, pairs: bytes) -> tuple[list[list[int]], int] | None:
    """The same of a histogram that is converted together with a valid one."""
    found, neighbour = histogram_text.read_many([max_ns, b"65"], [pairs, NEIGHBOUR])
    assert neighbour is not None
    assert (neighbour.pairs(), neighbour.count) == ([[64, 1], [65, 3]], 4)
    if found is not None:
        assert found.count == sum(count for _, count in found.pairs())
    return None if found is None else (found.pairs(), found.max_ns)


@given(PAIRS, st.integers(0, MOST + 1), st.sampled_from([(",", ":"), (", ", ": ")]), st.sampled_from([None, 1]))
def test_what_is_valid_is_read_however_it_is_written(
    pairs: list[list[int]], max_ns: int, separators: tuple[str, str], indent: int | None
) -> None:
    text = json.dumps(pairs, separators=separators, indent=indent).encode()
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
def test_whatever_the_text_is_it_is_read_as_the_decoder_reads_it(text: str) -> None:
    assert read(b"900", text.encode()) == expected(b"900", text.encode())


def test_lists_nested_beyond_the_decoder_are_left_to_it() -> None:
    assert read(b"900", b"[" * 100_000) is None


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ('{"call": {"max_ns": 65, "histogram": [[64, 1]]}}', True),
        ('{"call":{"histogram":[[64,1]],\n"max_ns":65}}', True),
        ('{"call": {"max_ns": 65, "histogram": [[64, 1.0]]}}', False),
        ('{"call": {"max_ns": 65, "histogram": [[64, 1]], "more": 1}}', False),
        ('{"call": {"max_ns": 065, "histogram": [[64, 1]]}}', False),
        ('{"call": {"max_ns": -65, "histogram": [[64, 1]]}}', False),
    ],
)
def test_histograms_are_found_in_the_text(text: str, matches: bool) -> None:
    assert (histogram_text.HISTOGRAMS.pattern.search(text.encode()) is not None) is matches


@pytest.mark.parametrize("text", ['{"histogram": [[64, 1]]}', '{"max_ns": 65, "histogram": [], "max_ns": 65}'])
def test_one_without_a_maximum_or_with_two_is_left_to_the_decoder(text: str) -> None:
    match = histogram_text.HISTOGRAMS.pattern.search(f":{text}".encode())
    assert match is not None
    assert list(histogram_text.HISTOGRAMS.convert(*([group] for group in match.groups()))) == [None]


NAMED = {"call": {"max_ns": 65, "histogram": [[64, 1], [65, 3]]}, "wait:a b": {"max_ns": 0, "histogram": []}}


def value_of(text: str) -> object:
    """The value of the first match in ``text``, which is in a document."""
    match = histogram_text.HISTOGRAMS.pattern.search(f'{{"channels":{text}}}'.encode())
    assert match is not None
    (found,) = histogram_text.HISTOGRAMS.convert(*([group] for group in match.groups()))
    return found


def test_all_histograms_of_an_object_without_spaces_are_one_value() -> None:
    found = value_of(json.dumps(NAMED, separators=(",", ":")))
    assert isinstance(found, histogram_text.NamedHistograms)
    assert {name: {"max_ns": one.max_ns, "histogram": one.pairs()} for name, one in found.members().items()} == NAMED
    assert isinstance(value_of(json.dumps(NAMED)), SparseHistogram)


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


@pytest.mark.parametrize("name", ['a\\"b', "a\\u0041", "é", "a\tb"])
def test_a_name_with_other_than_plain_characters_is_left_to_the_decoder(name: str) -> None:
    assert isinstance(value_of(f'{{"{name}":{{"max_ns":65,"histogram":[[64,1]]}}}}'), SparseHistogram)


def test_values_of_both_kinds_are_converted_together() -> None:
    texts = [json.dumps(NAMED, separators=(",", ":")), json.dumps(NAMED["call"])]
    groups = [histogram_text.HISTOGRAMS.pattern.search(f":{text}".encode()) for text in texts]
    columns = zip(*(match.groups() for match in groups if match is not None), strict=True)
    named, one = histogram_text.HISTOGRAMS.convert(*(list(column) for column in columns))
    assert isinstance(named, histogram_text.NamedHistograms)
    assert isinstance(one, SparseHistogram)
    assert one.pairs() == NAMED["call"]["histogram"]
