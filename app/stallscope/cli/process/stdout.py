"""Standard output: text reports and JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Self, TextIO

from stallprobes.foreign_text import escaped_json
from stallscope.cli.process.diagnostics import CommandError, ExitCode, is_terminal
from stallscope.cli.process.streams import guarded
from stallscope.report.text import USUAL_WIDTH, TextWriter, speaks_utf8

# Number of small pieces of JSON text that are joined, escaped and written at once. Reason: a write for each piece would
# take as long as making the pieces.
_PIECES = 500
# The JSON text of a value.
_encoded = json.JSONEncoder(allow_nan=False).encode


class ClosedPipeError(Exception):
    """The reader of stdout closed the pipe, as ``head`` does."""


class Output(TextWriter):
    """Writer of results to ``stream``, by default stdout.

    Uses colour on a terminal unless NO_COLOR is set or TERM is dumb, and ASCII if the locale is not UTF-8. Raises
    CommandError if there is no stdout. As a context manager, it flushes the stream at the end of a block without an
    exception.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        chosen = stream if stream is not None else sys.stdout
        if chosen is None:
            raise CommandError(ExitCode.USAGE, "the result could not be written: stdout is closed")
        terminal = is_terminal(chosen)
        super().__init__(
            guarded(chosen),
            width=_width(chosen, terminal),
            colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
            ascii=not speaks_utf8(chosen),
        )

    @classmethod
    def on_stderr(cls) -> Output:
        """A writer to stderr, for a command whose program has stdout. Raises CommandError if there is none."""
        if sys.stderr is None:
            raise CommandError(ExitCode.USAGE, "the result could not be written: stderr is closed")
        return cls(sys.stderr)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.flush()

    def json(self, document: Mapping[str, Any]) -> None:
        """Write ``document`` as JSON; an iterator in it is written as a list, one item at a time.

        Raises ValueError for a value that JSON cannot hold (NaN).
        """
        pieces: list[str] = []
        for piece in _pretty(document):
            pieces.append(piece)
            # Escaping and writing many small pieces costs as much as making them.
            if len(pieces) == _PIECES:
                self.write(escaped_json("".join(pieces)))
                pieces.clear()
        self.write(escaped_json("".join(pieces)) + "\n")

    def flush(self) -> None:
        """Flush the stream.

        Raises CommandError if it cannot be written (a full disk), ClosedPipeError if its reader closed it.
        """
        with _write_errors():
            self._stream.flush()

    def write(self, text: str) -> None:
        """Write ``text``, of any number of lines. Raises as ``flush`` does."""
        with _write_errors():
            super().write(text)


@contextmanager
def _write_errors() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise ClosedPipeError from None
    except OSError as error:
        from stallprobes.errors import reason_of

        raise CommandError(ExitCode.USAGE, f"the result could not be written: {reason_of(error)}") from error


def _width(stream: TextIO, terminal: bool) -> int:
    """Columns of a report to ``stream``: COLUMNS if set, else the terminal's width, else USUAL_WIDTH."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns) > 0:
        return int(columns)
    if terminal:
        with suppress(OSError, ValueError, AttributeError):
            # The size of this stream: another one may be a file.
            return os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    return USUAL_WIDTH


# Types of JSON values that contain no other value; these values are written at once.
_ATOMS = {str, int, float, bool, type(None)}
# Types of JSON values that are not objects with named members.
_WITHOUT_MEMBERS = {*_ATOMS, list, tuple}
# Types of values that Python's JSON encoder accepts by itself. A value of another type may be a Mapping or an iterator.
_PLAIN = {*_WITHOUT_MEMBERS, dict}


def _pretty(value: Any, pad: str = "") -> Iterator[str]:
    """JSON with a line for each member, except that a list of numbers (a histogram) is on one line."""
    inner = pad + " "
    if _is_mapping(value) and value:
        for number, (key, item) in enumerate(value.items()):
            if type(item) in _ATOMS:
                yield f"{',' if number else '{'}\n{inner}{_encoded(key)}: {_encoded(item)}"
            else:
                yield f"{',' if number else '{'}\n{inner}{_encoded(key)}: "
                yield from _pretty(item, inner)
        yield f"\n{pad}}}"
    elif (isinstance(value, list) and _has_mapping(value)) or _is_iterator(value):
        number = -1
        for number, item in enumerate(value):
            yield f"{',' if number else '['}\n{inner}"
            yield from _pretty(item, inner)
        yield f"\n{pad}]" if number >= 0 else "[]"
    else:
        yield _encoded(value)


def _is_mapping(value: object) -> bool:
    # Types first: to ask an abstract class costs more than to write a figure.
    kind = type(value)
    return kind is dict or (kind not in _PLAIN and isinstance(value, Mapping))


def _has_mapping(items: list[Any]) -> bool:
    return not _WITHOUT_MEMBERS.issuperset(map(type, items)) and any(map(_is_mapping, items))


def _is_iterator(value: object) -> bool:
    return type(value) not in _PLAIN and isinstance(value, Iterator)
