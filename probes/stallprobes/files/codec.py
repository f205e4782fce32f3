"""Codec of JSON: values of declared types as text and back, and their JSON Schemas, all from the types themselves.

Types are dataclasses, NamedTuples, enums, tuples, mappings and what JSON has. Limits are annotations of fields, such as
``Text``. A class that has a JSON form of its own gives it by two methods, ``to_json`` and ``of_json``.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from stallprobes.errors import MalformedJson, TruncatedJson

_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f"
# The longest sentence of a verdict has some 500 characters, the longest line of a program is cut to 1000.
LONGEST_TEXT = 1 << 16
LONGEST_NAME = 1 << 10
# The largest integer that every JSON parser represents exactly.
LARGEST_INTEGER = 2**53

Text = Annotated[str, Meta(max_length=LONGEST_TEXT, pattern=f"^[^{_CONTROL}]*$")]
Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, pattern=f"^[^{_CONTROL}]*$")]
# A count, a number of bytes, or nanoseconds.
Natural = Annotated[int, Meta(ge=0, le=LARGEST_INTEGER)]

Value = TypeVar("Value")
_ODD = re.compile(f"[{_CONTROL}\ud800-\udfff]")
# What a control character is in JSON; a backslash that is escaped itself does not begin one.
_ODD_ESCAPED = re.compile(rb"(?<!\\)(?:\\\\)*\\(?:[bfr]|u00)|\x7f|\xc2[\x80-\x9f]")


def clean(text: str) -> str:
    """``text`` with U+FFFD in place of lone surrogates and control characters other than newline and tab."""
    return _ODD.sub("\ufffd", text)


def encoded(value: object) -> bytes:
    """``value`` as JSON text in UTF-8, its strings as ``clean`` returns them. Raises TypeError for an unknown type."""
    try:
        text = msgspec.json.encode(value, enc_hook=_out)
    except UnicodeEncodeError:
        return _cleaned(value)
    return _cleaned(value) if _ODD_ESCAPED.search(text) else text


def decoded(text: bytes, kind: type[Value]) -> Value:
    """The value of type ``kind`` that ``encoded`` made.

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
        raise MalformedJson(_sentence(str(error))) from None
    except msgspec.DecodeError as error:
        # A number that ends early is malformed to msgspec, at the end of the text.
        place = re.search(r"\(byte (\d+)\)", str(error))
        if "truncated" in str(error) or (place is not None and int(place[1]) >= len(text)):
            raise TruncatedJson("its end is missing") from None
        raise MalformedJson(f"it is not valid JSON: {str(error).removeprefix('JSON is malformed: ')}") from None


def schema(kind: Any) -> dict[str, Any]:
    """The JSON Schema of the type ``kind``."""
    return msgspec.json.schema(kind, schema_hook=_schema)


@cache
def _decoder(kind: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(kind, dec_hook=_read)


def _out(value: Any) -> Any:
    return value.to_json() if hasattr(value, "to_json") else _unknown(type(value))


def _read(kind: Any, value: Any) -> Any:
    return kind.of_json(value) if hasattr(kind, "of_json") else _unknown(kind)


def _schema(kind: Any) -> dict[str, Any]:
    own: dict[str, Any] = kind.json_schema()
    return own


def _unknown(kind: type) -> Any:
    raise TypeError(f"the codec has no type {kind}")


def _cleaned(value: object) -> bytes:
    return msgspec.json.encode(_clean_strings(msgspec.to_builtins(value, enc_hook=_out)))


def _clean_strings(value: Any) -> Any:
    match value:
        case str():
            return clean(value)
        case dict():
            return {_clean_strings(key): _clean_strings(item) for key, item in value.items()}
        case list() | tuple():
            return [_clean_strings(item) for item in value]
    return value


def _sentence(message: str) -> str:
    """What msgspec's ``message`` says, with the place first: ``rows[0].name: expected str, got int``."""
    what, _, place = message.replace("`", "").partition(" - at ")
    place = place.removeprefix("$").removeprefix(".") or "the document"
    what = re.sub(r" matching regex .*", " without control characters", what)
    return f"{place}: {what[:1].lower()}{what[1:]}"
