"""A forked child of a program that waits to become the program's first engine.

The start of an interpreter and the imports of an engine take most of the CPU time of a command or a screen. The child
is forked before the program starts a thread: a later fork could copy a lock that another thread holds. Later engines of
the program start as usual.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import AnyStr

from factories.fork_server import become
from factories.forked_processes import ForkedProcess
from stallprobes.engine import process

_REQUEST_BYTES = 1 << 20
_MOST_DESCRIPTORS = 16

# The child and the socket to it, until it has become an engine.
_waiting: list[tuple[int, socket.socket]] = []


class FirstForkedEngine(ForkedProcess[AnyStr]):
    """The process of an engine; the first one is the waiting child."""

    def _execute_child(self, *arguments: object) -> None:
        if _waiting:
            super()._execute_child(*arguments)
        else:
            subprocess.Popen._execute_child(self, *arguments)  # type: ignore[attr-defined]

    def _forked(
        self,
        arguments: Sequence[str],
        descriptors: Mapping[int, int],
        env: Mapping[str, str],
        cwd: str | None,
        new_session: bool,
    ) -> int:
        pid, connection = _waiting.pop()
        request = {
            "arguments": list(arguments),
            "targets": list(descriptors),
            "env": dict(env),
            "cwd": cwd or os.getcwd(),
            "session": new_session,
            "terminal": False,
            "engine": False,
        }
        with connection:
            socket.send_fds(connection, [json.dumps(request).encode()], list(descriptors.values()))
        return pid


def _end() -> None:
    """End the child if it has not become an engine."""
    for pid, connection in _waiting:
        connection.close()
        os.waitpid(pid, 0)


def prepare() -> None:
    """Fork the child. Called before this process starts a thread."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        # Signals of the terminal are for the program.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        ours.close()
        message, received, _, _ = socket.recv_fds(theirs, _REQUEST_BYTES, _MOST_DESCRIPTORS)
        if not message:
            # The program has ended without an engine.
            os._exit(0)
        for name in os.listdir("/proc/self/fd"):
            if int(name) not in received:
                # That of the list itself is closed.
                with contextlib.suppress(OSError):
                    os.close(int(name))
        sys.modules["scipy"] = None  # type: ignore[assignment]
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        become(json.loads(message), received)
    theirs.close()
    _waiting.append((pid, ours))
    atexit.register(_end)
    process.subprocess = SimpleNamespace(**{**vars(subprocess), "Popen": FirstForkedEngine})  # type: ignore[assignment, attr-defined]
