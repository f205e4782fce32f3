"""Python programs that start by a fork of a server process, which has imported their modules.

Each is a process of its own and a child of the test's process, with its own descriptors, environment, working
directory, signals and exit. Only the start of the interpreter and the imports are shared, which take more CPU time than
most tests: half a second for a command or a screen, one second for an engine that runs the compiled loop.

As a program: fork_server.py KIND SOCKET_FD.
"""

from __future__ import annotations

import atexit
import ctypes
import fcntl
import gc
import importlib
import json
import os
import pkgutil
import runpy
import socket
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

_TESTS = str(Path(__file__).parents[1])
_REQUEST_BYTES = 1 << 20
_MOST_DESCRIPTORS = 16
# Above every descriptor that a program is given.
_PARKED_FD = 500
# prctl(2)
_PR_SET_CHILD_SUBREAPER = 36


class Preload(StrEnum):
    """What a server imports."""

    COMMAND = "command"
    SCREEN = "screen"
    ENGINE = "engine"


def descriptors_of(given: Mapping[str, Any]) -> dict[int, int]:
    """The descriptors that a program gets and those of this process, from the arguments of Popen._execute_child."""
    streams = {0: given["p2cread"], 1: given["c2pwrite"], 2: given["errwrite"]}
    found = {number: number if fd == -1 else fd for number, fd in streams.items()}
    return found | {fd: fd for fd in given["pass_fds"]}


class ForkServer:
    """Client of a server, which it starts for the first program and ends with this process."""

    def __init__(self, preload: Preload) -> None:
        self._preload = preload
        self._lock = threading.Lock()
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None

    def start(
        self,
        arguments: Sequence[str],
        descriptors: Mapping[int, int],
        env: Mapping[str, str],
        *,
        cwd: str | None = None,
        new_session: bool = False,
        terminal: bool = False,
        engine: bool = False,
    ) -> int:
        """Run ``python ARGUMENTS``, a script, ``-m`` or ``-c``, and return the process id of this new child.

        ``descriptors`` maps the program's descriptors to this process's. ``terminal``: descriptor 0 becomes the
        controlling terminal of a new session. ``engine``: the program's first engine is a forked child too.
        """
        request = {
            "arguments": list(arguments),
            "targets": list(descriptors),
            "env": dict(env),
            "cwd": cwd or os.getcwd(),
            "session": new_session or terminal,
            "terminal": terminal,
            "engine": engine,
        }
        with self._lock:
            connection = self._connected(env)
            # The server's child ends once it has forked: the kernel then gives the grandchild to this process.
            _adopt_orphans(True)
            try:
                socket.send_fds(connection, [json.dumps(request).encode()], list(descriptors.values()))
                answer = connection.recv(_REQUEST_BYTES)
            finally:
                _adopt_orphans(False)
        assert answer, "the fork server has ended"
        return int(answer)

    def prepare(self) -> None:
        """Start the server now."""
        with self._lock:
            self._connected(os.environ)

    def close(self) -> None:
        """End the server. In a forked child of the owner it does nothing."""
        if self._socket is not None and os.getpid() == self._owner:
            self._socket.close()
            assert self._process is not None
            self._process.wait()
            self._process = self._socket = None

    def _connected(self, env: Mapping[str, str]) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            # A screen that is left while a check hangs kills all children of its process.
            self.close()
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__, self._preload, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=dict(env),
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._socket, self._owner = ours, os.getpid()
            # The first answer says that the modules are imported.
            ours.recv(_REQUEST_BYTES)
        return self._socket


@cache
def server(preload: Preload) -> ForkServer:
    """The server of a kind, one for all tests of this process."""
    one = ForkServer(preload)
    atexit.register(one.close)
    return one


def _adopt_orphans(adopt: bool) -> None:
    """Make this process the parent of descendants whose parent ends, in place of init."""
    assert ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, int(adopt), 0, 0, 0) == 0


def _serve(connection: socket.socket) -> NoReturn:
    """Start programs until the client closes the socket."""
    # Objects of the imports stay on the pages that the programs share.
    gc.freeze()
    connection.send(b"ready")
    while True:
        message, received, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _MOST_DESCRIPTORS)
        if not message:
            raise SystemExit
        reading, writing = os.pipe()
        between = os.fork()
        if between == 0:
            between = os.getpid()
            program = os.fork()
            if program == 0:
                while os.getppid() == between:
                    time.sleep(0.0005)
                os.close(reading)
                os.close(writing)
                connection.close()
                become(json.loads(message), received)
            os.write(writing, str(program).encode())
            os._exit(0)
        os.waitpid(between, 0)
        for descriptor in (*received, writing):
            os.close(descriptor)
        with open(reading, "rb") as pipe:
            connection.send(pipe.read())


def become(request: Mapping[str, Any], received: list[int]) -> NoReturn:
    """Run the program of ``request`` in this forked process, which has got the descriptors ``received``."""
    parked = [fcntl.fcntl(one, fcntl.F_DUPFD, _PARKED_FD) for one in received]
    for descriptor in received:
        os.close(descriptor)
    for descriptor, target in zip(parked, request["targets"], strict=True):
        os.dup2(descriptor, target)
        os.close(descriptor)
    if request["session"]:
        os.setsid()
    if request["terminal"]:
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    _open_streams()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    arguments = [one for one in request["arguments"] if one != "-P"]
    if request["engine"]:
        from factories import waiting_engine

        waiting_engine.prepare()
    code: object = 0
    try:
        if arguments[0] == "-m":
            sys.argv = arguments[1:]
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        elif arguments[0] == "-c":
            sys.argv = ["-c", *arguments[2:]]
            module = sys.modules["__main__"] = ModuleType("__main__")
            exec(arguments[1], module.__dict__)
        else:
            sys.argv = arguments
            runpy.run_path(arguments[0], run_name="__main__")
    except SystemExit as end:
        code = end.code
    _exit(code)


def _exit(code: object) -> NoReturn:
    """End the process as the interpreter does, but without freeing the modules, which would copy their pages."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    if not isinstance(code, int | None):
        sys.stderr.write(f"{code}\n")
        code = 1
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    os._exit(code or 0)


def _open_streams() -> None:
    """Open the standard streams anew: whether lines are buffered depends on what the descriptors are."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        old = getattr(sys, name)
        new = open(  # noqa: SIM115
            number,
            "w" if number else "r",
            buffering=1 if number == 2 or os.isatty(number) else -1,
            encoding=getattr(old, "encoding", "utf-8"),
            errors=getattr(old, "errors", "backslashreplace"),
            closefd=False,
        )
        setattr(sys, name, new)
        setattr(sys, f"__{name}__", new)


def _import_commands() -> None:
    """Import what commands import, except the screen, and for their first engine what that imports."""
    _import_engine()
    del sys.modules["scipy"]
    import stallprobes
    import stallscope.cli
    import stallscope.report
    from factories import fake_machine

    for package in (stallscope.cli, stallscope.report, stallprobes):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith("stallprobes.engine."):
                importlib.import_module(module.name)
    importlib.import_module("numpy.ma")
    fake_machine.prepare()


def _import_screen() -> None:
    """Import what the screen imports, and for its first engine what that imports."""
    _import_engine()
    del sys.modules["scipy"]
    import stallscope.tui

    for name in ("stallscope.cli.main", "stallscope.cli.screen"):
        importlib.import_module(name)
    for module in pkgutil.walk_packages(stallscope.tui.__path__, f"{stallscope.tui.__name__}."):
        importlib.import_module(module.name)


def _import_engine() -> None:
    """Import the backends of the host and of the simulated GPU, without scipy as the engine's main program does."""
    sys.modules["scipy"] = None  # type: ignore[assignment]
    for name in ("second_process", "slots", "host", "sim.backend"):
        importlib.import_module(f"stallprobes.engine.{name}")
    sys.path.append(_TESTS)
    importlib.import_module("factories.waiting_engine")
    sys.path.remove(_TESTS)


def main(kind: str, connection: socket.socket) -> NoReturn:
    """Import and serve."""
    {Preload.COMMAND: _import_commands, Preload.SCREEN: _import_screen, Preload.ENGINE: _import_engine}[Preload(kind)]()
    _serve(connection)


if __name__ == "__main__":
    main(sys.argv[1], socket.socket(fileno=int(sys.argv[2])))
