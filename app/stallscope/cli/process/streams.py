"""The gate to stdout and stderr: no written text has a character that a terminal obeys.

Only ``TerminalText`` passes as it is; the writers of reports and progress make it from printable text.
``guarded_streams`` covers what others write too: click's help, tracebacks of any thread, warnings.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO, cast

from stallprobes.foreign_text import printable_lines
from stallscope.report.text import TerminalText


class PrintableStream:
    """A text stream in front of ``stream``. A character that its encoding lacks is written as ``?``.

    Without ``buffer``, so that nothing can be written past it.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write ``text``; unless it is TerminalText, U+FFFD replaces characters that a terminal would obey. Raises
        OSError."""
        shown = text if isinstance(text, TerminalText) else printable_lines(text)
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        if not shown.isascii() and encoding.lower().replace("-", "") != "utf8":
            shown = shown.encode(encoding, errors="replace").decode(encoding)
        self._stream.write(shown)
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Write each of ``lines``."""
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        if name in ("buffer", "detach"):
            raise AttributeError(name)
        return getattr(self._stream, name)


def guarded(stream: TextIO) -> TextIO:
    """``stream`` behind a PrintableStream."""
    return stream if isinstance(stream, PrintableStream) else cast(TextIO, PrintableStream(stream))


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Puts sys.stdout and sys.stderr behind a PrintableStream. A closed one stays None."""
    before = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (stream and guarded(stream) for stream in before)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
