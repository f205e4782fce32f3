"""Messages between stallscope and the process that parses what programs wrote, with their limits.

A message is the size of its content (4 bytes), its kind (4 bytes) and its content in JSON. A request for the code of a
file has the descriptor of the file beside it. For the names of a request, an answer for each follows, in their order;
for a file there is one.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable
from enum import IntEnum

# Layout of the beginning of a message: the size (bytes) of its content, and its kind.
HEADER = struct.Struct("<II")
# Largest size (bytes) of a request to the parser process.
MAX_REQUEST_BYTES = 1 << 20
# Largest size (bytes) of an answer of the parser process. An answer about a file has two texts for each address.
MAX_ANSWER_BYTES = 1 << 22
# Largest number of names in a request to the parser process.
MAX_NAMES = 256
# Largest number of addresses of one file in a request to the parser process.
MAX_ADDRESSES = 256
# Largest size (bytes) of the parser process's data memory: files and names that need more are not read.
MAX_DATA_BYTES = 256 << 20


class ParserRequest(IntEnum):
    """Kind of a request to the parser process: demangled names, or places in the code of a file."""

    NAMES = 1
    FILE = 2


class ParserAnswer(IntEnum):
    """Result for a name or a file.

    FOUND: the demangled name, or the file's code, follows. NOT_READABLE: the file has no readable code, or is of
    another build. TOO_LARGE: the name, the file, or the answer about it, exceeds a limit of the parser process.
    """

    FOUND = 1
    NOT_READABLE = 2
    TOO_LARGE = 3


class LimitExceeded(Exception):
    """A name, a file or a message is larger than is read."""


def receive_content(connection: socket.socket, size: int, wait: Callable[[], None] = lambda: None) -> bytes:
    """The next ``size`` bytes, before each part of which ``wait`` is called. Raises EOFError where they end early."""
    parts: list[bytes] = []
    while size:
        wait()
        part = connection.recv(min(size, 1 << 16))
        if not part:
            raise EOFError
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def message(kind: IntEnum, content: bytes, limit: int) -> bytes:
    """A message. Raises LimitExceeded if it is larger than ``limit``."""
    if len(content) > limit:
        raise LimitExceeded
    return HEADER.pack(len(content), kind) + content
