"""Terminal columns: how many a text takes, and cutting, padding and folding by them."""

from __future__ import annotations

import re
import textwrap
import unicodedata

from stallprobes.foreign_text import is_printable

# Pattern of text in which each character takes one terminal column. Nearly all text matches, and for matching text no
# character's width is looked up. Control characters match too, because ``printable`` replaces each by a character of
# one column.
_ONE_COLUMN = re.compile("[\x00-\u02ff\u0370-\u0482\u2010-\u2027\u2190-\u21ff\u2500-\u259f\u25a0-\u25cf\ufffd]*")
# Vowels and final consonants of Hangul. A terminal draws these characters into the preceding syllable, without a column
# of their own.
_JAMO = re.compile("[\u1160-\u11ff\ud7b0-\ud7fb]")
# Pattern of the space in a figure, or between it and its unit, at which no line is broken, and a letter that stands for
# it meanwhile, which no text has: ``printable`` replaces it.
_IN_FIGURE = re.compile(r"(?<=\d) (?=(?:%|[nµm]?s|[KMGT]iB|bytes?|W|°C|[MG]Hz|\d{3})(?![\w°]))")
_NO_BREAK = "\x01"
# Piece of a name. A line break is allowed between two pieces: before @ and /, and after - + : and _.
_PIECES = re.compile(r"[@/]?[^-+:_@/]*[-+:_]?")


def display_width(text: str) -> int:
    """Number of terminal columns that ``text`` takes: two for a wide character, none for a combining one.

    A character that ``printable`` replaces counts as one column, as its replacement does.
    """
    if text.isascii() or _ONE_COLUMN.fullmatch(text):
        return len(text)
    return sum(map(_columns, text))


def cut_columns(text: str, columns: int) -> str:
    """The longest beginning of ``text`` that takes at most ``columns``."""
    if text.isascii() or _ONE_COLUMN.fullmatch(text):
        return text[: max(0, columns)]
    width = 0
    for number, letter in enumerate(text):
        width += _columns(letter)
        if width > columns:
            return text[:number]
    return text


def cut_words(text: str, columns: int, dots: str = "…") -> str:
    """``text`` in at most ``columns``: whole words, and ``dots`` where some are left out."""
    if display_width(text) <= columns:
        return text
    return f"{wrapped(text, columns - display_width(dots) - 1)[0]} {dots}"


def by_column(text: str) -> list[str]:
    """``text`` as one string for each column: a letter with its combining characters, empty after a wide letter."""
    cells: list[str] = []
    for letter in text:
        columns = _columns(letter)
        if columns == 0 and cells:
            cells[-1] += letter
        else:
            cells += [letter, *[""] * (columns - 1)]
    return cells


def padded(text: str, columns: int, right: bool = False) -> str:
    """``text`` with spaces up to ``columns``, before it with ``right``."""
    space = " " * (columns - display_width(text))
    return space + text if right else text + space


def wrapped(text: str, columns: int, *, first: str = "", indent: str = "", break_long_words: bool = True) -> list[str]:
    """``text`` in lines of at most ``columns``, broken at spaces that are not in a figure or before its unit.

    ``first`` begins the first line, ``indent`` the others. A word longer than a line is broken by ``name_parts`` with
    ``break_long_words``, else it stays whole.
    """
    text = _IN_FIGURE.sub(_NO_BREAK, text)
    lines = _broken(text, columns, first, indent, break_long_words)
    return [line.replace(_NO_BREAK, " ") for line in lines]


def _broken(text: str, columns: int, first: str, indent: str, break_long_words: bool) -> list[str]:
    words = text.split()
    room = columns - display_width(indent)
    if display_width(text) == len(text) and all(len(word) <= room for word in words):
        return textwrap.wrap(text, columns, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    lines, line, empty = [], first, True
    for word in words:
        space = "" if empty else " "
        if display_width(line + space + word) <= columns:
            line, empty = line + space + word, False
            continue
        if not empty:
            lines.append(line)
            line = indent
        parts = name_parts(word, columns - display_width(line)) if break_long_words else [word]
        lines += [(line if not number else indent) + part for number, part in enumerate(parts[:-1])]
        line, empty = (indent if len(parts) > 1 else line) + parts[-1], False
    return lines if empty else [*lines, line]


def name_pieces(name: str) -> list[str]:
    """``name`` in the pieces between which it may be broken: after - + : and _, before @ and /."""
    return [piece for piece in _PIECES.findall(name) if piece]


def name_parts(name: str, columns: int) -> list[str]:
    """``name`` in parts of at most ``columns``, broken as ``name_pieces`` has it, else where it must."""
    parts = [""]
    for piece in name_pieces(name):
        while piece:
            if display_width(parts[-1] + piece) <= columns:
                parts[-1] += piece
                break
            if parts[-1]:
                parts.append("")
            else:
                # A part holds at least one character, else this would not end.
                parts[-1] = cut_columns(piece, columns) or piece[:1]
                piece = piece[len(parts[-1]) :]
    return parts


def _columns(letter: str) -> int:
    if not is_printable(letter):
        return 1
    if unicodedata.category(letter)[0] == "M" or _JAMO.match(letter):
        return 0
    return 2 if unicodedata.east_asian_width(letter) in "WF" else 1
