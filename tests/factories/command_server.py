"""A server process that runs commands of ``stallscope`` for tests: it imports them once and forks for each command.

Each command is a process of its own with its own descriptors, environment, working directory, signals and exit. Only
the start of the interpreter and the imports are shared, which would take half a second of CPU time for each command.

As a program: command_server.py SOCKET_FD.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from typing import IO, Any, NoReturn

import stallprobes
import stallscope.cli
import stallscope.report

_STREAMS = 3
_REQUEST_BYTES = 1 << 20


class CommandServer:
    """Client of the server, which it starts for the first command and ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        atexit.register(self.close)

    def run(
        self, mode: str | None, arguments: tuple[str, ...], env: Mapping[str, str], timeout_s: float
    ) -> tuple[int, str, str]:
        """Run a command to its end: exit code (negative: the signal), stdout and stderr.

        Raises subprocess.TimeoutExpired after ``timeout_s``; the command is killed then.
        """
        request = json.dumps({"mode": mode, "arguments": arguments, "env": dict(env), "cwd": os.getcwd()}).encode()
        with self._lock, open(os.devnull, "rb") as nothing, _file() as out, _file() as err:
            streams = [nothing.fileno(), out.fileno(), err.fileno()]
            connection = self._connected(env)
            try:
                socket.send_fds(connection, [request], streams)
            except OSError:
                # The server ended while no command ran, so none is run twice.
                self.close()
                connection = self._connected(env)
                socket.send_fds(connection, [request], streams)
            connection.settimeout(timeout_s)
            try:
                answer = connection.recv(_REQUEST_BYTES)
            except TimeoutError:
                self._kill()
                raise subprocess.TimeoutExpired(list(arguments), timeout_s, _text(out), _text(err)) from None
            assert answer, f"the command server ended: {_text(err)}"
            return os.waitstatus_to_exitcode(int(answer)), _text(out), _text(err)

    def close(self) -> None:
        """End the server. In a forked child of the owner it does nothing."""
        if self._socket is not None and os.getpid() == self._owner:
            self._socket.close()
            assert self._process is not None
            self._process.wait()
            self._process = self._socket = None

    def _connected(self, env: Mapping[str, str]) -> socket.socket:
        if self._process is not None and self._process.poll() is not None:
            self.close()
        if self._socket is None:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                self._process = subprocess.Popen(
                    [sys.executable, "-P", __file__, str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    env=env,
                    stdin=subprocess.DEVNULL,
                    start_new_session=True,
                )
            self._socket, self._owner = ours, os.getpid()
        return self._socket

    def _kill(self) -> None:
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self.close()


def _file() -> IO[bytes]:
    return tempfile.TemporaryFile()


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode("utf-8")


def main(connection: socket.socket) -> NoReturn:
    """Serve commands until the client closes the socket."""
    from factories import fake_machine

    _import_commands()
    fake_machine.prepare()
    # Objects of the imports stay on the pages that the commands share.
    gc.freeze()
    while True:
        message, streams, _, _ = socket.recv_fds(connection, _REQUEST_BYTES, _STREAMS)
        if not message:
            raise SystemExit
        child = os.fork()
        if child == 0:
            connection.close()
            _become(json.loads(message), streams, fake_machine)
        for stream in streams:
            os.close(stream)
        _, status = os.waitpid(child, 0)
        connection.send(str(status).encode())


def _import_commands() -> None:
    """Import what commands import, except the screen and the compiled loop, which few need."""
    for package in (stallscope.cli, stallscope.report, stallprobes):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.startswith("stallprobes.engine."):
                importlib.import_module(module.name)
    importlib.import_module("stallprobes.engine.sim.profile")
    importlib.import_module("numpy.ma")


def _become(request: Mapping[str, Any], streams: list[int], fake_machine: Any) -> NoReturn:
    """Run the command of ``request`` in this forked process, with ``streams`` as its descriptors 0, 1 and 2."""
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    if request["mode"] is None:
        sys.argv = ["stallscope", *request["arguments"]]
        runpy.run_module("stallscope", run_name="__main__", alter_sys=True)
    else:
        fake_machine.run(request["mode"], request["arguments"])
    raise SystemExit


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])))
