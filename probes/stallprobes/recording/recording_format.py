"""Format of recordings: its name and version, the form of lines, and limits that a reader and the writer share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from msgspec import Meta, Struct

from stallprobes.errors import MalformedJson, RecordingError
from stallprobes.files.codec import cleaned, decoded, encoded, is_odd

# Version of the format of a recording; another version is not read.
VERSION = 3

# Largest size (bytes) of the first line of a recording.
LONGEST_HEAD = 1 << 16
# Largest size (bytes) of a line of a recording (JSON). An observation has some kilobytes; the baselines of sixteen
# probes have some hundred kilobytes.
LONGEST_LINE = 1 << 22


class Head(Struct):
    """The first line: ``kind`` is "" for a recording of probes, or the key of the lines of another one."""

    format: Literal["stallscope.recording"]
    version: Annotated[int, Meta(ge=1)]
    kind: str = ""

    @classmethod
    def of_text(cls, path: Path, text: bytes) -> Head:
        """The head of ``path``. Raises RecordingError unless it is that of a readable recording."""
        try:
            head = decoded(text, cls)
        except (MalformedJson, UnicodeDecodeError):
            what = "is not a recording of stallscope" if text.strip() else "is empty"
            raise RecordingError(f"{path} {what}: name a file that `stallscope record` or --record wrote") from None
        if head.version != VERSION:
            remedy = "upgrade it" if head.version > VERSION else "record again"
            raise RecordingError(
                f"{path} has version {str(head.version)[:20]} of the format; "
                f"this stallscope reads version {VERSION}: {remedy}"
            )
        return head


class Line(Struct, frozen=True, omit_defaults=True):
    """Base of the lines, whose text is ``{KEY: {MEMBERS}}``.

    A line with a time begins with the member ``wall_s``, so that an index is made without decoding the line.
    """

    key: ClassVar[str]
    # How the text of such a line begins.
    start: ClassVar[bytes]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.start = f'{{"{cls.key}":'.encode()

    def text(self) -> bytes:
        """The text of the line. Raises TypeError for a value that the format cannot hold."""
        text = encoded(self)
        return self.start + (cleaned(self) if is_odd(text) else text) + b"}"

    @classmethod
    def of_text(cls, text: bytes) -> Self:
        """The line that begins with ``start``. Raises MalformedJson."""
        if is_odd(text):
            raise MalformedJson("it has control characters, or too long a string")
        try:
            return decoded(text[len(cls.start) : -1], cls)
        except UnicodeDecodeError:
            raise MalformedJson("it is not UTF-8") from None
