"""The decoder of terminal input: what keys, mouse reports and pastes become, and that no bytes stop it."""

from __future__ import annotations

import random
from unittest.mock import Mock

import pytest
from textual import events
from textual._xterm_parser import XTermParser
from textual.constants import ESCAPE_DELAY
from textual.message import Message

from stallscope.tui.terminal_input import PASTE_S, InputDecoder

# After this time without more, an escape character is a key.
ESCAPE_S = ESCAPE_DELAY


class DecodedInput:
    """A decoder whose clock the test sets, and the messages it gave."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now_s = 0.0
        self.messages: list[Message] = []
        # The parser of Textual has a clock too.
        monkeypatch.setattr("textual._parser.get_time", lambda: self.now_s)
        self._decoder = InputDecoder(lambda: self.now_s)

    def feed(self, *chunks: bytes) -> None:
        """Feed chunks, as a terminal sends them."""
        for chunk in chunks:
            self.messages += self._decoder.feed(chunk)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
        self.messages += self._decoder.tick()

    @property
    def keys(self) -> list[str]:
        """The keys."""
        return [message.key for message in self.messages if isinstance(message, events.Key)]

    @property
    def pastes(self) -> list[str]:
        """The pasted texts."""
        return [message.text for message in self.messages if isinstance(message, events.Paste)]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> DecodedInput:
    """A decoder."""
    return DecodedInput(monkeypatch)


def test_keys_are_those_of_textual(decoded: DecodedInput) -> None:
    decoded.feed(b"a\x1b[5~", b"\x1b", b"[A\xc3", b"\xa9")
    assert decoded.keys == ["a", "pageup", "up", "é"]


def test_escape_alone_is_a_key_once_nothing_follows(decoded: DecodedInput) -> None:
    decoded.feed(b"\x1b")
    assert decoded.keys == []
    decoded.wait(ESCAPE_S)
    assert decoded.keys == ["escape"]


def test_bytes_that_are_not_utf8_are_dropped(decoded: DecodedInput) -> None:
    decoded.feed(b"\xe9x", b"\xff", b"\x85y")
    decoded.feed(b"\xe9")
    decoded.wait(ESCAPE_S)
    decoded.feed(b"z")
    assert decoded.keys == ["x", "y", "z"]


@pytest.mark.parametrize("cut", range(18))
def test_a_paste_is_one_message_wherever_it_is_cut(decoded: DecodedInput, cut: int) -> None:
    sent = b"\x1b[200~a\r\nq\x1b[201~k"
    decoded.feed(sent[:cut], sent[cut:])
    assert decoded.pastes == ["a\r\nq"]
    assert decoded.keys == ["k"]


def test_nothing_is_parsed_while_nothing_is_sent(decoded: DecodedInput, monkeypatch: pytest.MonkeyPatch) -> None:
    decoded.feed(b"\x1b[200~hello")
    decoded.wait(PASTE_S)
    assert decoded.pastes == ["hello"]
    parse = Mock(return_value=())
    monkeypatch.setattr(XTermParser, "feed", parse)
    for _ in range(5):
        decoded.wait(PASTE_S)
    parse.assert_not_called()


def test_a_paste_without_its_end_ends_when_only_single_keys_arrive(decoded: DecodedInput) -> None:
    decoded.feed(b"\x1b[200~hello")
    for _ in range(3):
        decoded.wait(PASTE_S / 2)
        decoded.feed(b"q")
    assert decoded.keys[-1] == "q"
    # The end that arrives later means nothing.
    decoded.feed(b"\x1b[201~k")
    assert decoded.keys[-1] == "k"
    assert decoded.pastes[0].startswith("hello")
    assert len(decoded.pastes) == 1


def test_a_slow_paste_is_not_taken_for_keys(decoded: DecodedInput) -> None:
    decoded.feed(b"\x1b[200~")
    for _ in range(4):
        decoded.feed(b"q" * 100)
        decoded.wait(PASTE_S * 0.9)
    decoded.feed(b"\x1b[201~")
    assert decoded.keys == []
    assert decoded.pastes == ["q" * 400]


@pytest.mark.parametrize(
    "sequence",
    [
        b"\x1b[99999999u",
        b"\x1b[1:2;3u",
        b"\x1b[55296u",
        b"\x1b[48;99999;99999;1;1t",
        b"\x1b[48;0;0;0;0t",
        b"\x1b[?2048;1$y",
        b"\x1b[<0;999999;999999M",
        b"\x1b[7;7R",
    ],
)
def test_a_sequence_that_means_nothing_has_no_effect_and_takes_no_key_with_it(
    decoded: DecodedInput, sequence: bytes
) -> None:
    decoded.feed(b"a" + sequence + b"\x1b[Ak")
    assert decoded.keys[0] == "a"
    assert decoded.keys[-2:] == ["up", "k"]
    assert not [one for one in decoded.messages if isinstance(one, (events.Resize, events.MouseEvent))]


@pytest.mark.parametrize("seed", range(40))
def test_after_any_bytes_a_key_is_a_key(decoded: DecodedInput, seed: int) -> None:
    random_source = random.Random(seed)
    pieces = (b"\x1b[200~ \x1b[201~ \x1b[M \x1b[< \x1b[ \x1b ; 1 : u M \x9b").split()
    for _ in range(40):
        junk = b"".join(
            random_source.choice(pieces) if random_source.random() < 0.6 else random_source.randbytes(3)
            for _ in range(random_source.randrange(12))
        )
        decoded.feed(junk)
        decoded.wait(random_source.choice((0.0, 0.05, ESCAPE_S)))
    # Nothing stays open longer than a paste and an escape sequence.
    for _ in range(3):
        decoded.wait(PASTE_S)
    decoded.messages.clear()
    decoded.feed(b"q")
    assert decoded.keys == ["q"]
    for message in decoded.messages:
        str(message).encode()
