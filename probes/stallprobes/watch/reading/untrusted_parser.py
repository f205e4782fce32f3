"""Client of the process that parses the names and files of other programs: its answers are limited and untrusted.

A request that takes too long, ends the process or has an invalid answer loses its item, which is counted; the next one
has a new process.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from stallprobes.errors import MalformedJson
from stallprobes.files.codec import decoded, encoded
from stallprobes.foreign_text import is_printable
from stallprobes.watch.reading.code_lines import LONGEST_SYMBOL, MAX_INLINED, CodeLine
from stallprobes.watch.reading.cpu_supply import times_of
from stallprobes.watch.reading.demangler import LONGEST_DEMANGLED
from stallprobes.watch.reading.elf_symbols import CodePlaces
from stallprobes.watch.reading.parser_messages import (
    HEADER,
    MAX_ADDRESSES,
    MAX_ANSWER_BYTES,
    MAX_NAMES,
    MAX_REQUEST_BYTES,
    LimitExceeded,
    ParserAnswer,
    ParserRequest,
    message,
    receive_content,
)

# Time limits (s) of a request. REQUEST_S: longest time until the parser process has answered, without the time in which
# the process is ready to run and has no CPU. MAX_LACKED_S: largest time without a CPU that is excluded. Reason for the
# exclusion: on a busy server, names would be missing.
REQUEST_S, MAX_LACKED_S = 5.0, 25.0
# Limits after which no more requests of a kind are made. MAX_FAILURES: number of consecutive failed requests.
# MAX_LOST_S: time (s) lost in failed and slow requests.
MAX_FAILURES, MAX_LOST_S = 8, 30.0
# Time (s) from which an answered request counts as slow. The symbols of the largest libraries take a fifth of this
# time.
_SLOW_S = 1.0
# Longest wait (s) for the end of a killed parser process.
_END_S = 1.0
# Code that the parser process runs. Its arguments: the descriptor of the connection, then the folders of modules.
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; from socket import socket; "
    "from stallprobes.watch.reading.parser_process import serve; serve(socket(fileno=int(sys.argv[1])))"
)

# Our end of the connection to a new process, the id of that process, and what ends it. Raises OSError where it cannot
# be started.
Starter = Callable[[], tuple[socket.socket, int, Callable[[], None]]]

_Address = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
_LineNumber = Annotated[int, Meta(ge=1, le=1 << 31)]
_Symbol = Annotated[str, Meta(max_length=LONGEST_SYMBOL)]
# Name of a function in an answer, or path of a source file: its folder, a slash and its name.
_Text = Annotated[str, Meta(max_length=2 * LONGEST_SYMBOL + 1)]
_Number = Annotated[int, Meta(ge=0)]
_Lines = Annotated[list[tuple[_Number, _Number, _LineNumber]], Meta(min_length=1, max_length=MAX_INLINED)]
_Demangled = Annotated[str, Meta(max_length=LONGEST_DEMANGLED)]


class _Code(Struct, forbid_unknown_fields=True):
    """The answer about a file that was read."""

    names: Annotated[list[tuple[_Address, _Symbol]], Meta(max_length=MAX_ADDRESSES)]
    # Names of functions and paths of files, to which lines refer by their numbers.
    texts: Annotated[list[_Text], Meta(max_length=2 * MAX_ADDRESSES * MAX_INLINED)]
    lines: Annotated[list[tuple[_Address, _Lines]], Meta(max_length=MAX_ADDRESSES)]


class UntrustedParser:
    """Parser of names and files, in a process of its own that is started when it is needed. Threads may share it."""

    def __init__(self, starter: Starter | None = None, seconds: float = REQUEST_S) -> None:
        """``starter`` starts the process; ``seconds`` is the longest time for the answers to a request."""
        self._starter = start_parser if starter is None else starter
        self._seconds = seconds
        self._lock = threading.Lock()
        self._connection: socket.socket | None = None
        # Folder of the process in /proc.
        self._process: Path | None = None
        self._end: Callable[[], None] = _nothing
        # Files whose lines could not be read within the limits: of these, only the names are asked for.
        self._without_lines: set[tuple[int, int]] = set()
        self._skipped: Counter[ParserRequest] = Counter()
        self._failures: Counter[ParserRequest] = Counter()
        self._lost_s: dict[ParserRequest, float] = dict.fromkeys(ParserRequest, 0.0)

    @property
    def skipped(self) -> Mapping[ParserRequest, int]:
        """The number of names and of files that could not be read within the limits."""
        return {kind: number for kind, number in self._skipped.items() if number}

    def demangled(self, names: Sequence[str]) -> dict[str, str]:
        """The demangled form of each of ``names``, which are mangled; those that are skipped are left out."""
        texts: dict[str, str] = {}
        rest = list(names)
        with self._lock:
            while rest and not self._has_given_up(ParserRequest.NAMES):
                asked, done = rest[:MAX_NAMES], 0
                with self._request(ParserRequest.NAMES):
                    for name, text in zip(asked, self._name_answers(asked), strict=True):
                        done += 1
                        self._failures[ParserRequest.NAMES] = 0
                        if text is None:
                            self._skipped[ParserRequest.NAMES] += 1
                        else:
                            texts[name] = text
                # The first name without an answer is the one that failed.
                rest = rest[min(done + 1, len(asked)) :]
            self._skipped[ParserRequest.NAMES] += len(rest)
        return texts

    def code(self, descriptor: int, build_id: bytes, addresses: Collection[int]) -> CodePlaces | None:
        """The code at ``addresses`` of the open file ``descriptor``, if it has the build id; None if it is skipped.

        A file that is no ELF file, or is of another build, has no code.
        """
        wanted = [address for address in addresses if 0 <= address < 1 << 63]
        names: dict[int, str] = {}
        lines: dict[int, tuple[CodeLine, ...]] = {}
        with self._lock:
            for at in range(0, len(wanted), MAX_ADDRESSES):
                asked = wanted[at : at + MAX_ADDRESSES]
                code = self._code(descriptor, build_id, asked) or self._code(descriptor, build_id, asked, False)
                if code is None:
                    self._skipped[ParserRequest.FILE] += 1
                    return None
                names.update(code.names)
                lines.update(code.lines)
        return CodePlaces(names, lines)

    def close(self) -> None:
        """End the process. The next request starts another one."""
        with self._lock:
            self._close()

    def _name_answers(self, names: Sequence[str]) -> Iterator[str | None]:
        """The demangled form of each name; None for one that becomes too long."""
        due = self._send(ParserRequest.NAMES, encoded(names))
        for _ in names:
            kind, content = self._receive(due)
            if kind is ParserAnswer.TOO_LARGE:
                yield None
            else:
                yield _checked(decoded(content, _Demangled))

    def _code(
        self, descriptor: int, build_id: bytes, addresses: Sequence[int], with_lines: bool = True
    ) -> CodePlaces | None:
        status = os.fstat(descriptor)
        file = status.st_dev, status.st_ino
        if self._has_given_up(ParserRequest.FILE) or (with_lines and file in self._without_lines):
            return None
        if with_lines:
            # Until there is an answer: the lines of a file may need more memory or time than there is.
            self._without_lines.add(file)
        with self._request(ParserRequest.FILE):
            request = encoded({"build_id": build_id.hex(), "addresses": addresses, "lines": with_lines})
            kind, content = self._receive(self._send(ParserRequest.FILE, request, descriptor))
            code = decoded(content, _Code) if kind is ParserAnswer.FOUND else _Code([], [], [])
            asked = set(addresses)
            names = {address: _checked(name) for address, name in code.names if address in asked}
            texts = [_checked(text) for text in code.texts]
            if any(max(line[:2]) >= len(texts) for _, lines in code.lines for line in lines):
                raise ValueError("a line names no text")
            lines = {
                address: tuple(CodeLine(texts[function], texts[path], line) for function, path, line in inlined)
                for address, inlined in code.lines
            }
            if len(names) != len(code.names) or not lines.keys() <= asked:
                raise ValueError("it is about other addresses")
            self._failures[ParserRequest.FILE] = 0
            if kind is ParserAnswer.TOO_LARGE:
                return None
            if with_lines:
                self._without_lines.discard(file)
            return CodePlaces(names, lines)
        return None

    @contextmanager
    def _request(self, kind: ParserRequest) -> Iterator[None]:
        """A request of a kind. If it fails, that is counted and the process ended."""
        began_s, failed = time.monotonic(), False
        before_s = self._lacked_s()
        try:
            yield
        except (OSError, EOFError, LimitExceeded, MalformedJson, ValueError):
            self._close()
            failed = True
            self._failures[kind] += 1
            # The other names of the request have their answers.
            self._skipped[kind] += kind is ParserRequest.NAMES
        except BaseException:
            # An answer may be on its way.
            self._close()
            raise
        finally:
            lacked_s = 0.0 if failed else max(self._lacked_s() - before_s, 0.0)
            took_s = time.monotonic() - began_s - lacked_s
            if failed or took_s >= _SLOW_S:
                self._lost_s[kind] += took_s

    def _has_given_up(self, kind: ParserRequest) -> bool:
        return self._failures[kind] >= MAX_FAILURES or self._lost_s[kind] >= MAX_LOST_S

    def _lacked_s(self) -> float:
        """Total time (s) in which the process was ready to run and had no CPU."""
        times = times_of(self._process)
        return 0.0 if times is None else times[0] / 1e9

    def _send(self, kind: ParserRequest, content: bytes, *descriptors: int) -> Callable[[], float]:
        """Send a request. Returns a function of the time (s) that is left for its answers."""
        connection = self._connected()
        due, before_s = time.monotonic() + self._seconds, self._lacked_s()

        def left_s() -> float:
            left = due - time.monotonic()
            return left if left > 0 else left + min(self._lacked_s() - before_s, MAX_LACKED_S)

        request = message(kind, content, MAX_REQUEST_BYTES)
        connection.settimeout(self._seconds)
        socket.send_fds(connection, [request[: HEADER.size]], descriptors)
        connection.sendall(request[HEADER.size :])
        return left_s

    def _receive(self, left_s: Callable[[], float]) -> tuple[ParserAnswer, bytes]:
        """The next answer. Raises TimeoutError when ``left_s()`` is 0 or less, ValueError for an invalid one."""
        connection = self._connection
        assert connection is not None

        ready = select.poll()
        ready.register(connection, select.POLLIN)

        def wait() -> None:
            while (left := left_s()) > 0:
                if ready.poll(left * 1000):
                    return
            raise TimeoutError

        size, kind = HEADER.unpack(receive_content(connection, HEADER.size, wait))
        if size > MAX_ANSWER_BYTES:
            raise ValueError("the answer is too large")
        return ParserAnswer(kind), receive_content(connection, size, wait)

    def _connected(self) -> socket.socket:
        """The connection to the process, which is started if there is none. Raises OSError."""
        if self._connection is not None and _has_ended(self._connection):
            # Between two requests: that is no failure of either.
            self._close()
        if self._connection is None:
            self._connection, pid, self._end = self._starter()
            self._process = Path(f"/proc/{pid}")
        return self._connection

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._end()
        self._end = _nothing


def start_parser() -> tuple[socket.socket, int, Callable[[], None]]:
    """Start the process as a child of this one: the connection to it, its id, and what ends it. Raises OSError."""
    connection, process = spawn_parser()

    def end() -> None:
        # The child of root has another user, and ends by itself where root may not kill that.
        with contextlib.suppress(OSError):
            process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)

    return connection, process.pid, end


def spawn_parser() -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """The connection to a new process, and the process. Raises OSError."""
    ours, theirs = socket.socketpair()
    package = str(Path(__file__).absolute().parents[3])
    folders = [package, *(folder for folder in sys.path if os.path.isabs(folder))]
    libraries = os.environ.get("LD_LIBRARY_PATH")
    with theirs:
        try:
            process = subprocess.Popen(
                # Neither the folder in which it starts nor the environment has modules for it.
                [sys.executable, "-I", "-S", "-B", "-c", _START, str(theirs.fileno()), *folders],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                start_new_session=True,
                env={} if libraries is None else {"LD_LIBRARY_PATH": libraries},
            )
        except BaseException:
            ours.close()
            raise
    return ours, process


@cache
def shared_parser() -> UntrustedParser:
    """The parser of this process, where nothing else is said."""
    return UntrustedParser()


def _checked(text: str) -> str:
    if not is_printable(text):
        raise ValueError("a text cannot be printed")
    return text


def _has_ended(connection: socket.socket) -> bool:
    """True if the other end is closed, or sent something unasked."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))


def _nothing() -> None:
    pass
