"""Process that parses the names and files of other programs: ELF, DWARF and mangled names.

It has little memory, no capability and no descriptor but that of its connection; the files come as open descriptors,
and it opens no names. A file or name for which that is not enough ends it: stallscope starts another one. It imports
neither NumPy nor anything else that takes long to load.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import signal
import socket
import struct
from collections.abc import Callable
from functools import partial
from typing import Any

from stallprobes.watch.reading.code_lines import load_symbolic
from stallprobes.watch.reading.demangler import demangled_within_limits, demangler
from stallprobes.watch.reading.elf_symbols import places_in
from stallprobes.watch.reading.parser_messages import (
    HEADER,
    MAX_ANSWER_BYTES,
    MAX_DATA_BYTES,
    MAX_REQUEST_BYTES,
    LimitExceeded,
    ParserAnswer,
    ParserRequest,
    message,
    receive_content,
)

# CPU time (s) after which the parser process ends. NAME_CPU_S: for demangling a name, which usually takes microseconds.
# FILE_CPU_S: for parsing a file.
NAME_CPU_S, FILE_CPU_S = 0.5, 5.0
# Limit of the parser process's file descriptors (RLIMIT_NOFILE): the number of each new descriptor must be smaller. All
# descriptors except the connection are closed, so that a number is free for the file to parse.
_MAX_DESCRIPTORS = 4
# Operations of prctl(2).
_PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 24, 38
# Highest number of a capability that the parser process drops: a set of capabilities has 64 bits.
_LAST_CAPABILITY = 63
# Header of capset(2): version 3, this thread.
_CAPSET_HEADER = struct.pack("<Ii", 0x20080522, 0)
# Data of capset(2): two words for each of three sets, without any capability.
_NO_CAPABILITIES = bytes(24)
# User and group that own no file. A parser process that root started continues as this user and group.
_NOBODY = 65534


def serve(connection: socket.socket) -> None:
    """Give up what this process does not need, and answer requests until the other end is closed."""
    restrict(connection.fileno())
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            _answer(connection)


def restrict(descriptor: int) -> None:
    """Give up memory, rights and descriptors, but ``descriptor``.

    What a kernel or a container refuses is left out: the process then has less to lose in the first place.
    """
    # Their libraries cannot be loaded afterwards.
    demangler()
    load_symbolic()
    libc = ctypes.CDLL(None)
    for other in map(int, os.listdir("/proc/self/fd")):
        # That of the list itself is closed already.
        with contextlib.suppress(OSError):
            if other != descriptor:
                os.close(other)
    limits = (
        (resource.RLIMIT_DATA, MAX_DATA_BYTES),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_NOFILE, _MAX_DESCRIPTORS),
    )
    for limit, value in limits:
        present = resource.getrlimit(limit)[1]
        value = value if present == resource.RLIM_INFINITY else min(value, present)
        resource.setrlimit(limit, (value, value))
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    for capability in range(_LAST_CAPABILITY + 1):
        libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
    if os.geteuid() == 0:
        # Without capabilities, root still owns its files.
        with contextlib.suppress(OSError):
            os.setgroups([])
            os.setresgid(_NOBODY, _NOBODY, _NOBODY)
        with contextlib.suppress(OSError):
            os.setresuid(_NOBODY, _NOBODY, _NOBODY)
    libc.capset(_CAPSET_HEADER, _NO_CAPABILITIES)


def _answer(connection: socket.socket) -> None:
    """Answer the next request. Raises EOFError without one."""
    header, descriptors, _, _ = socket.recv_fds(connection, HEADER.size, 1)
    try:
        if not header:
            raise EOFError
        header += receive_content(connection, HEADER.size - len(header))
        size, kind = HEADER.unpack(header)
        if size > MAX_REQUEST_BYTES:
            raise EOFError
        content = json.loads(receive_content(connection, size))
        if kind == ParserRequest.NAMES:
            for name in content:
                connection.sendall(_within_limits(NAME_CPU_S, partial(demangled_within_limits, name)))
        else:
            connection.sendall(_within_limits(FILE_CPU_S, partial(_code, descriptors[0], content)))
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _within_limits(seconds: float, find: Callable[[], Any]) -> bytes:
    """The answer with what ``find`` returns in so many seconds of CPU time; None: there is nothing to be read."""
    # Whatever takes longer ends the process: nothing else ends the C++ library.
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        found = find()
        if found is None:
            return HEADER.pack(0, ParserAnswer.NOT_READABLE)
        return message(ParserAnswer.FOUND, json.dumps(found, ensure_ascii=False).encode(), MAX_ANSWER_BYTES)
    except (LimitExceeded, MemoryError):
        return HEADER.pack(0, ParserAnswer.TOO_LARGE)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


def _code(descriptor: int, request: dict[str, Any]) -> dict[str, Any] | None:
    """The code at the addresses of a request; None if the file has none that can be read, or is of another build."""
    places = places_in(descriptor, bytes.fromhex(request["build_id"]), request["addresses"], request["lines"])
    if places is None:
        return None
    texts: dict[str, int] = {}

    def number(text: str) -> int:
        return texts.setdefault(text, len(texts))

    lines = [
        (address, [(number(line.function), number(line.file), line.line) for line in inlined])
        for address, inlined in places.lines.items()
    ]
    return {"names": list(places.names.items()), "texts": list(texts), "lines": lines}
