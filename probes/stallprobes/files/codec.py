"""Codec of JSON: values of declared types as text and back, and their JSON Schemas, all from the types themselves.

Results are ``Document`` types, which have the members of the JSON object. Other types are dataclasses, NamedTuples,
enums, tuples, mappings and what JSON has. Limits and decimals are annotations of fields, such as ``Text`` and
``Share``. A class that has a JSON form of its own gives it by two methods, ``to_json`` and ``of_json``.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from itertools import pairwise
from mmap import mmap
from types import UnionType
from typing import Annotated, Any, Self, TypeVar, Union, dataclass_transform, get_args, get_origin, get_type_hints

import msgspec
from msgspec import Meta
from msgspec.structs import force_setattr

from stallprobes.errors import MalformedJson, TruncatedJson

# Control characters other than tab and newline, as the content of [...] in a regular expression.
_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
# Largest number of characters of a text in a document. Usual texts are shorter: a sentence of a verdict has some 500
# characters, and a line of a program's output at most 1000.
LONGEST_TEXT = 1 << 16
# Longest name (characters) in a document, such as a probe's.
LONGEST_NAME = 1 << 10
# Largest integer that every JSON parser represents exactly.
LARGEST_INTEGER = 2**53

# Regular expression of a text without control characters other than tab and newline.
_WITHOUT_CONTROL = f"^[^{_CONTROL}]*$"
# A text in a document.
Text = Annotated[str, Meta(max_length=LONGEST_TEXT, pattern=_WITHOUT_CONTROL)]
# A text of recordings, whose lines are checked for control characters as a whole: the limits are in the schema alone.
String = Annotated[str, Meta(extra_json_schema={"maxLength": LONGEST_TEXT, "pattern": _WITHOUT_CONTROL})]
# Text that is set when a document is made, so that recordings have none.
Sentence = String | msgspec.UnsetType
# A text that is not empty.
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=_WITHOUT_CONTROL)]
# A count, a number of bytes, or nanoseconds.
Natural = Annotated[int, Meta(ge=0, le=LARGEST_INTEGER)]
# Largest integer that documents accept from the driver or the clock, such as a handle, a size or a time. As a time
# (ns), this integer is 146 years.
LARGEST_UNSIGNED = 2**62
# An integer of the driver or the clock that is not negative.
Unsigned = Annotated[int, Meta(ge=0, le=LARGEST_UNSIGNED)]
# A time or duration (ns).
Nanoseconds = Unsigned
# An integer of a structured array.
Int64 = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
# A time since 1970, until 2286.
WallSeconds = Annotated[float, Meta(ge=0, le=1e10)]
# A count above 0.
Positive = Annotated[int, Meta(ge=1, le=LARGEST_INTEGER)]
# Any integer that every JSON parser represents exactly.
Integer = Annotated[int, Meta(ge=-LARGEST_INTEGER, le=LARGEST_INTEGER)]
# A number that is not negative, up to a limit above every measured one.
Figure = Annotated[float, Meta(ge=0, le=1e18)]


@dataclass(frozen=True)
class Rounded:
    """Annotation of a number in a ``Document``: it is rounded when the document is made. 0 decimals make an integer."""

    decimals: int


# Nanoseconds of a latency; a percentile can have a fraction.
Latency = Annotated[float, Meta(ge=0, le=LARGEST_UNSIGNED), Rounded(0)]
# Ratio of two latencies, or calls per second.
Ratio = Annotated[float, Meta(ge=0, le=1e18), Rounded(3)]
# Share of a whole, 0 to 1.
Share = Annotated[float, Meta(ge=0, le=1), Rounded(6)]
# Duration (s) of at most 158 years; durations in files of watched processes are within ``Nanoseconds``.
Seconds = Annotated[float, Meta(ge=0, le=5e9)]

Value = TypeVar("Value")


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class PlainDocument(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of results, which are JSON documents: an object that has the declared members and no others.

    It is for objects of which there are thousands, without a number that is rounded.
    """

    def changed(self, **values: Any) -> Self:
        """The object with other ``values``."""
        return msgspec.structs.replace(self, **values)

    @classmethod
    def of(cls, source: object, /, **others: Any) -> Self:
        """The document of ``source``: its attributes by name, and ``others``."""
        return cls(**{name: getattr(source, name) for name in cls.__struct_fields__ if name not in others} | others)


class _Schema(msgspec.Struct):
    """Member of a document with the name of its schema."""

    schema: Any = None


def brief(document: PlainDocument, *names: str) -> str:
    """A short ``repr`` of ``document``, with the members ``names`` alone."""
    return f"{type(document).__name__}({', '.join(f'{name}={getattr(document, name)!r}' for name in names)})"


class Document(PlainDocument):
    """Base of results. A number whose annotation has ``Rounded`` is rounded when the object is made."""

    def __post_init__(self) -> None:
        for name, decimals in _rounded_fields(type(self)):
            force_setattr(self, name, _rounded(getattr(self, name), decimals))


@cache
def _rounded_fields(kind: type[Document]) -> tuple[tuple[str, int], ...]:
    hints = get_type_hints(kind, include_extras=True)
    marks = {name: _mark(hint) for name, hint in hints.items() if name in kind.__struct_fields__}
    return tuple((name, mark.decimals) for name, mark in marks.items() if mark is not None)


def _mark(hint: Any) -> Rounded | None:
    """The ``Rounded`` of an annotation: of a number, of a member of a union, as with None, or of all of a tuple."""
    marks = [mark for mark in getattr(hint, "__metadata__", ()) if isinstance(mark, Rounded)]
    if not marks and get_origin(hint) in (Annotated, Union, UnionType, tuple):
        marks = [mark for mark in map(_mark, get_args(hint)) if mark is not None]
    return marks[0] if marks else None


def _rounded(value: Any, decimals: int) -> Any:
    if value is None:
        return None
    if isinstance(value, tuple):
        return tuple(_rounded(item, decimals) for item in value)
    # A number of NumPy is a plain one afterwards.
    return round(float(value), decimals) if decimals else round(value)


def about(description: str) -> Meta:
    """The annotation of a member with its description in the JSON Schema."""
    return Meta(description=description)


# Characters that are replaced in a text: control characters and lone surrogates.
_ODD = re.compile(f"[{_CONTROL}\ud800-\udfff]")
# Byte patterns of possible control characters in JSON text. _ESCAPED: escape sequence ``\b``, ``\f``, ``\r`` or ``\u``.
# _C1: character from U+0080 to U+009F in UTF-8.
_ESCAPED, _C1 = re.compile(rb"\\[bfru]"), re.compile(rb"\xc2[\x80-\x9f]")
# Beginning of an escape sequence in JSON text: ``\u00``, or else the backslash and the next character.
_ESCAPE = re.compile(rb"\\(?:u00|.)")
# The only escape sequences in the JSON text that ``encoded`` writes. ``is_odd`` is true for text with any other escape
# sequence.
_PLAIN_ESCAPES = frozenset((rb"\\", rb"\"", rb"\n", rb"\t"))
# Pattern of JSON text that may contain a string longer than LONGEST_TEXT: a quote, then LONGEST_TEXT bytes without a
# quote. ``is_odd`` searches for the pattern after blanks have replaced the escaped quotes. Only after a match does
# ``is_odd`` measure each string.
_LONG_PART = re.compile(rb'"[^"]{%d}' % LONGEST_TEXT)
# A string of JSON.
_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')


def clean(text: str) -> str:
    """``text`` with U+FFFD in place of lone surrogates and control characters other than newline and tab."""
    return _ODD.sub("\ufffd", text)


def encoded(value: object) -> bytes:
    """``value`` as JSON text in UTF-8, its strings as ``clean`` returns them. Raises TypeError for an unknown type."""
    try:
        text = msgspec.json.encode(value, enc_hook=_out)
    except UnicodeEncodeError:
        return cleaned(value)
    odd = _ESCAPED.search(text) or _C1.search(text) or b"\x7f" in text
    return cleaned(value) if odd else text


def cleaned(value: object) -> bytes:
    """``value`` as JSON text in UTF-8, its strings as ``clean`` returns them, and cut to LONGEST_TEXT."""
    return msgspec.json.encode(_clean_strings(msgspec.to_builtins(value, enc_hook=_out)))


def is_odd(text: bytes) -> bool:
    """True if a string of the JSON ``text`` is none that ``cleaned`` writes: with control characters, or too long."""
    if not _PLAIN_ESCAPES.issuperset(_ESCAPE.findall(text)) or b"\x7f" in text or _C1.search(text):
        return True
    # A long part without quotes is rare, and is found faster than the strings.
    return bool(_LONG_PART.search(text.replace(rb"\"", b"  "))) and any(map(_is_long, _STRING.findall(text)))


def _is_long(string: bytes) -> bool:
    return len(string) > LONGEST_TEXT and len(msgspec.json.decode(string)) > LONGEST_TEXT


def plain(value: object) -> Any:
    """``value`` as JSON types, its strings as ``clean`` returns them. Raises TypeError for an unknown type."""
    return msgspec.json.decode(encoded(value))


def decoded(text: bytes | mmap | msgspec.Raw, kind: type[Value], where: str = "") -> Value:
    """The value of type ``kind`` that ``encoded`` made. ``where`` is its place in the document that it is part of.

    Raises MalformedJson, which names the place, TruncatedJson where the text ends early, and UnicodeDecodeError.
    """
    try:
        wanted: Any = kind
        decoder: msgspec.json.Decoder[Value] = _decoder(wanted)
        return decoder.decode(text)
    except UnicodeDecodeError:
        raise
    except RecursionError:
        raise MalformedJson("it is nested too deeply") from None
    except msgspec.ValidationError as error:
        raise MalformedJson(_sentence(str(error), where)) from None
    except msgspec.DecodeError as error:
        # One of the two errors that msgspec has for this.
        if "UTF-8" in str(error):
            raise MalformedJson("it is not UTF-8") from None
        # A number that ends early is malformed to msgspec, at the end of the text.
        place = re.search(r"\(byte (\d+)\)", str(error))
        if "truncated" in str(error) or (place is not None and int(place[1]) >= len(text)):
            raise TruncatedJson("its end is missing") from None
        raise MalformedJson(f"it is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}") from None


def schema_name(text: bytes) -> str | None:
    """The name of the schema of a document, cleaned; "" if it has none, None if it is no document."""
    try:
        name = decoded(text, _Schema).schema
    except (MalformedJson, UnicodeDecodeError):
        return None
    return clean(name) if isinstance(name, str) else ""


def attributes(value: object, kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The attributes of ``value`` that are fields of ``kind``, by name."""
    return {name: getattr(value, name) for name in kind.__struct_fields__}


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of the type ``kind``, with the docstrings of members as their descriptions."""
    derived = msgspec.json.schema(kind, schema_hook=_schema)
    kinds = {each.__name__: each for each in _kinds(msgspec.Struct)}
    for component in derived.get("$defs", {}).values():
        if (owner := kinds.get(component.get("title", "").partition("[")[0])) is not None:
            members = dict(zip(owner.__struct_fields__, owner.__struct_encode_fields__, strict=True))
            for base in reversed(owner.__mro__):
                for name, text in _docstrings(base.__module__).get(base.__name__, {}).items():
                    component["properties"][members[name]]["description"] = text
    return derived


def _kinds(base: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    """All classes that are derived from ``base``."""
    for kind in base.__subclasses__():
        yield kind
        yield from _kinds(kind)


@cache
def _docstrings(module: str) -> dict[str, dict[str, str]]:
    """The docstrings below the members of the classes of a module, by class and member."""
    found: dict[str, dict[str, str]] = {}
    with suppress(OSError, TypeError):
        for statement in ast.parse(inspect.getsource(import_module(module))).body:
            if isinstance(statement, ast.ClassDef):
                members = found[statement.name] = {}
                for field, text in pairwise(statement.body):
                    match field, text:
                        case ast.AnnAssign(target=ast.Name(name)), ast.Expr(ast.Constant(str(docstring))):
                            members[name] = " ".join(docstring.split())
    return found


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_read)


def _out(value: Any) -> Any:
    if isinstance(value, msgspec.Raw):
        return msgspec.json.decode(value)
    return value.to_json() if hasattr(value, "to_json") else _unknown(type(value))


def _read(kind: Any, value: Any) -> Any:
    return kind.of_json(value) if hasattr(kind, "of_json") else _unknown(kind)


def _schema(kind: Any) -> dict[str, Any]:
    own: dict[str, Any] = kind.json_schema()
    return own


def _unknown(kind: type) -> Any:
    raise TypeError(f"the codec has no type {kind}")


def _clean_strings(value: Any) -> Any:
    match value:
        case str():
            return clean(value)[:LONGEST_TEXT]
        case dict():
            return {_clean_strings(key): _clean_strings(item) for key, item in value.items()}
        case list() | tuple():
            return [_clean_strings(item) for item in value]
    return value


# Words for the types of JSON values, by their names in msgspec's error messages.
_WORDS = {
    "str": "a string",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "array": "a list",
    "object": "an object",
}
# Sentences in place of msgspec's error messages.
_SENTENCES = (
    (re.compile(r"Object missing required field `(.*)`"), "it has no “{}”"),
    (re.compile(r"Object contains unknown field `(.*)`"), "it has “{}”, which is not expected here"),
)
# Largest number of characters of a key in an error message about a document. A longer key is cut.
_LONGEST_KEY = 40
# Largest number of characters of msgspec's text in an error message about a document. A longer text is cut.
_LONGEST_MESSAGE = 160


def _sentence(message: str, where: str) -> str:
    """msgspec's ``message`` with the place first: ``rows[0].name: expected a string, got an integer``."""
    what, _, place = message.partition(" - at ")
    key = place.startswith("`key` in ")
    place = place.removeprefix("`key` in ").replace("`", "").removeprefix("$")
    place = f"{where}{place}".removeprefix(".") or "the document"
    for pattern, sentence in _SENTENCES:
        if match := pattern.fullmatch(what):
            return f"{place}: {sentence.format(clean(match[1][:_LONGEST_KEY]))}"
    what = what.replace("Invalid enum value", "invalid value")
    what = what.replace(f" matching regex {_WITHOUT_CONTROL!r}", " without control characters")
    what = re.sub(
        r"`([a-z |]+)`", lambda kind: " or ".join(_WORDS.get(word, word) for word in kind[1].split(" | ")), what
    )
    what = what if len(what) <= _LONGEST_MESSAGE else f"{what[:_LONGEST_MESSAGE]}…"
    return f"{place}: {'in a key ' if key else ''}{what[:1].lower()}{clean(what[1:])}"
