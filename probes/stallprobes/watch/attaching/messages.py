"""Messages between stallscope and its helper: JSON in packets of a socket, with descriptors beside them."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping, Sequence
from typing import Any

# Largest size (bytes) of a message between stallscope and a helper process, which has the rights of another user. The
# value of an environment variable in a message has at most 1/64 of this size.
MAX_BYTES = 1 << 17
# Largest number of file descriptors in a message between stallscope and a helper process.
MAX_DESCRIPTORS = 8


def send(connection: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send a message. Raises OSError; EMSGSIZE for one that is too large."""
    socket.send_fds(connection, [json.dumps(message).encode()], list(descriptors))


def receive(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message, and its descriptors, which pass to the caller.

    Raises EOFError at the end of the connection, ValueError for something else than a message, and OSError.
    """
    data, descriptors, flags, _ = socket.recv_fds(connection, MAX_BYTES, MAX_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    try:
        if not data:
            raise EOFError
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            raise ValueError("a message was cut")
        message = json.loads(data)
        if not isinstance(message, dict):
            raise ValueError("a message is no object")
    except BaseException:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return message, descriptors
