"""Standard output: text reports and JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from stallprobes.foreign_text import escaped_json
from stallscope.cli.diagnostics import CommandError, ExitCode, is_terminal
from stallscope.cli.streams import guarded
from stallscope.report.text import PARAGRAPH_WIDTH, TextWriter, speaks_utf8


class ClosedPipeError(Exception):
    """The reader of stdout closed the pipe, as ``head`` does."""


class Output(TextWriter):
    """Writer of results to ``stream``, by default stdout.

    Uses colour on a terminal unless NO_COLOR is set or TERM is dumb, and ASCII if the locale is not UTF-8. Raises
    CommandError if there is no stdout.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        chosen = stream if stream is not None else sys.stdout
        if chosen is None:
            raise CommandError(ExitCode.USAGE, "the result could not be written: stdout is closed")
        terminal = is_terminal(chosen)
        super().__init__(
            guarded(chosen),
            width=_terminal_width(chosen) if terminal else _pipe_width(),
            colour=terminal and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb",
            ascii=not speaks_utf8(chosen),
        )

    @classmethod
    def on_stderr(cls) -> Output:
        """A writer to stderr, for a command whose program has stdout. Raises CommandError if there is none."""
        if sys.stderr is None:
            raise CommandError(ExitCode.USAGE, "the result could not be written: stderr is closed")
        return cls(sys.stderr)

    def json(self, document: Mapping[str, Any]) -> None:
        """Write ``document`` as JSON; an iterator in it is written as a list, one item at a time.

        Raises ValueError for a value that JSON cannot hold (NaN).
        """
        for piece in _pretty(document):
            self.write(escaped_json(piece))
        self.write("\n")

    def flush(self) -> None:
        """Flush the stream.

        Raises CommandError if it cannot be written (a full disk), ClosedPipeError if its reader closed it.
        """
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise ClosedPipeError from None
        except OSError as error:
            raise CommandError(ExitCode.USAGE, f"the result could not be written: {error.strerror}") from error

    def write(self, text: str) -> None:
        """Write ``text``, of any number of lines. Raises as ``flush`` does."""
        try:
            super().write(text)
        except BrokenPipeError:
            raise ClosedPipeError from None
        except OSError as error:
            raise CommandError(ExitCode.USAGE, f"the result could not be written: {error.strerror}") from error


def _terminal_width(stream: TextIO) -> int:
    try:
        # Of this stream: another one may be a file.
        present = os.get_terminal_size(stream.fileno()).columns
    except (OSError, ValueError, AttributeError):
        present = 0
    return _asked_width() or present or PARAGRAPH_WIDTH


def _pipe_width() -> int:
    # In a file or a pipe, lines are as long as they need to be unless COLUMNS is set.
    return _asked_width() or 10_000


def _asked_width() -> int | None:
    columns = os.environ.get("COLUMNS", "")
    return int(columns) if columns.isdecimal() and int(columns) > 0 else None


def _pretty(value: Any, pad: str = "") -> Iterator[str]:
    """JSON with a line for each member, except that a list of numbers (a histogram) is on one line."""
    inner = pad + " "
    if isinstance(value, Mapping) and value:
        for number, (key, item) in enumerate(value.items()):
            yield f"{',' if number else '{'}\n{inner}{json.dumps(key)}: "
            yield from _pretty(item, inner)
        yield f"\n{pad}}}"
    elif isinstance(value, Iterator) or (isinstance(value, list) and any(isinstance(item, Mapping) for item in value)):
        number = -1
        for number, item in enumerate(value):
            yield f"{',' if number else '['}\n{inner}"
            yield from _pretty(item, inner)
        yield f"\n{pad}]" if number >= 0 else "[]"
    else:
        yield json.dumps(value, allow_nan=False)
