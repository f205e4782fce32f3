"""Foreign text: strings from files, other processes, the driver and the command line, made safe to show.

A terminal obeys control characters and escape sequences, and a reader is deceived by characters that reverse the
direction or have no width. Every output replaces them through this module, each by one character of one column, so that
neither offsets nor widths change.
"""

from __future__ import annotations

import json
import re
from functools import cache

# Character that replaces each character that cannot be printed.
REPLACEMENT = "\ufffd"

# Characters that are replaced (content of [...] in a regular expression). Unicode categories: Cc except tab and
# newline, Cf (direction, zero width, tags), Cs (lone surrogates), Zl and Zp. Further: default-ignorable characters,
# fillers, variation selectors, and emoji modifiers, whose width depends on the terminal.
_CLASS = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u115f\u1160\u17b4\u17b5"
    "\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U0001f3fb-\U0001f3ff"
    "\U000e0000-\U000e0fff"
)
# Printable characters that make up nearly every text (content of [...] in a regular expression): Latin, Greek,
# Cyrillic, arrows, lines and blocks.
_FREQUENT = " -~\xa0-\xac\xae-\u02ff\u0370-\u0482\u2010-\u2027\u2190-\u21ff\u2500-\u25cf"
# Patterns for quick checks whether a text can stay unchanged. _COMMON: pattern of one line. _COMMON_LINES: pattern that
# also matches newlines and tabs.
_COMMON, _COMMON_LINES = re.compile(f"[{_FREQUENT}]*"), re.compile(f"[\n\t{_FREQUENT}]*")


def printable(text: str) -> str:
    """``text`` as one line: a space for each newline and tab, U+FFFD for each other character without a glyph."""
    if is_printable(text):
        return text
    return _unprintable().sub(REPLACEMENT, text.replace("\n", " ").replace("\t", " "))


def printable_lines(text: str) -> str:
    """``text`` with its newlines and tabs, and U+FFFD for each other character without a glyph."""
    return text if _COMMON_LINES.fullmatch(text) else _unprintable().sub(REPLACEMENT, text)


def is_printable(text: str) -> bool:
    """True if ``printable`` returns ``text`` as it is."""
    if _COMMON.fullmatch(text):
        return True
    return not ("\n" in text or "\t" in text or _unprintable().search(text))


def escaped_json(text: str) -> str:
    r"""The JSON ``text`` with ``\uXXXX`` for each character without a glyph; a reader gets the same strings."""
    if _COMMON_LINES.fullmatch(text):
        return text
    # DEL is the only ASCII character that JSON allows in strings and json.dumps does not escape.
    return _unprintable().sub(lambda match: r"\u007f" if match[0] == "\x7f" else json.dumps(match[0])[1:-1], text)


@cache
def _unprintable() -> re.Pattern[str]:
    # Compiled on first use: it takes a millisecond, and few texts need it.
    return re.compile(f"[{_CLASS}]")
